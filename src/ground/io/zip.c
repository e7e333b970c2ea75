/* zip.c - one member of a zip archive, read front to back.
 *
 *   PK 03 04 | sizes, name, extra | data | PK 07 08 descriptor | PK 03 04 ... | PK 01 02 directory
 *   '---------- local header ----------'      (flag bit 3)
 *
 * The directory that zip readers begin with is at the end; here there may be no end to seek to (a
 * pipe, a layer of gzip), so members are walked by their local headers. The first whose name can be
 * a snapshot's is the one; what is before it is decoded and dropped.
 *
 * How a member ends depends on who wrote it:
 *
 *   sizes in the header     Python's zipfile and most others: that many bytes
 *   deflated, no sizes      zip and zipfile into a pipe: the deflated data ends by itself
 *   stored, no sizes        torch.save (miniz): ends where a descriptor (signature, CRC, both
 *                           sizes) names exactly the number of bytes there were before it
 *
 * A wrong CRC of the wanted member counts as damage at its end. Not read: encrypted members,
 * methods besides stored and deflated, archives with something in front of them, the directory. */
#include <string.h>

#include "base/memory.h"
#include "io/forms.h"
#include "io/inflate.h"

enum {
  WINDOW_BYTES = 64 << 10,
  SCRATCH_BYTES = 32 << 10,
  HEADER_BYTES = 30,
  LONGEST_DESCRIPTOR = 24,
  FLAG_ENCRYPTED = 1 << 0,
  FLAG_DESCRIPTOR = 1 << 3,
  STORED = 0,
  DEFLATED = 8,
  EXTRA_ZIP64 = 1
};

#define MAGIC_LOCAL      UINT32_C(0x04034b50)
#define MAGIC_DESCRIPTOR UINT32_C(0x08074b50)
#define MAGIC_DIRECTORY  UINT32_C(0x02014b50)
#define MAGIC_END        UINT32_C(0x06054b50)
#define MAGIC_END_ZIP64  UINT32_C(0x06064b50)
#define SIZE_IN_EXTRA    UINT32_C(0xffffffff)

/* The member at the window, and how far it has been read. */
typedef struct member {
  uint32_t flags, method, crc;        /* as its header says */
  uint64_t stored_bytes, whole_bytes; /* compressed and not, as its header says */
  bool is_sized;                      /* stored_bytes can be relied on */
  bool is_wanted, has_ended;
  uint64_t taken_bytes, made_bytes; /* so far: compressed and not */
  uint32_t made_crc;
} member;

typedef struct zip_stream {
  tsr__stream base;
  tsr__input source;
  tsr__expansion expansion;
  z_stream z;
  member member;
} zip_stream;

/* ---- bytes ---- */

static uint32_t u16(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const unsigned char *p) {
  return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const unsigned char *p) {
  return u32(p) | (uint64_t)u32(p + 4) << 32;
}

static void consume(tsr__input *source, size_t size) {
  source->data += size;
  source->size -= size;
  source->offset += size;
}

/* Have `size` bytes in the window, or all that is left: 0 or a negative tsr_status. */
static int want(tsr__input *source, size_t size, tsr_error *error) {
  int status = 0;
  while (source->size < size && !source->at_end && !status)
    status = tsr__input_fill(source, 0, error);
  return status;
}

static int fail_damaged(tsr_error *error, const char *detail) {
  return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the zip archive is damaged: %s", detail);
}

/* ---- local headers ---- */

/* Sizes that do not fit 32 bits are in the extra field instead, the whole one first. */
static void read_zip64(member *m, const unsigned char *extra, size_t size) {
  while (size >= 4 && u16(extra + 2) <= size - 4) {
    const unsigned char *data = extra + 4;
    size_t left = u16(extra + 2);
    if (u16(extra) == EXTRA_ZIP64) {
      if (m->whole_bytes == SIZE_IN_EXTRA && left >= 8) {
        m->whole_bytes = u64(data);
        data += 8;
        left -= 8;
      }
      if (m->stored_bytes == SIZE_IN_EXTRA && left >= 8) m->stored_bytes = u64(data);
      return;
    }
    size -= 4 + left;
    extra += 4 + left;
  }
}

/* Does a snapshot have such a name, or another form that is read in its place? Ignores case. A .csv is in archives for
 * other reasons, and may be before the snapshot. */
static bool can_be_snapshot(const unsigned char *name, size_t size) {
  static const char *const endings[] = {".pkl", ".pickle", ".json", ".html",   ".htm",
                                        ".gz",  ".zst",    ".xz",   ".sqlite", ".prof"};
  static const char mac[] = "__MACOSX/"; /* resource forks, named like the files */
  if (size >= sizeof mac - 1 && memcmp(name, mac, sizeof mac - 1) == 0) return false;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t length = strlen(endings[i]), same = 0;
    if (size < length) continue;
    const unsigned char *tail = name + size - length;
    while (same < length && (tail[same] | 0x20) == (endings[i][same] | 0x20)) same++;
    if (same == length) return true;
  }
  return false;
}

/* The header at the window becomes z->member. 1 where there is a directory or nothing instead. */
static int read_header(zip_stream *zip, tsr_error *error) {
  tsr__input *source = &zip->source;
  int status = want(source, HEADER_BYTES, error);
  if (status) return status;
  uint32_t magic = source->size >= 4 ? u32(source->data) : MAGIC_END;
  if (magic == MAGIC_DIRECTORY || magic == MAGIC_END || magic == MAGIC_END_ZIP64) return 1;
  if (magic != MAGIC_LOCAL) return fail_damaged(error, "a member is missing");
  if (source->size < HEADER_BYTES) return 1;
  size_t name_size = u16(source->data + 26), extra_size = u16(source->data + 28);
  status = want(source, HEADER_BYTES + name_size + extra_size, error);
  if (status) return status;
  if (source->size < HEADER_BYTES + name_size + extra_size) return 1;
  const unsigned char *p = source->data, *name = p + HEADER_BYTES;
  member m = {.flags = u16(p + 6),
              .method = u16(p + 8),
              .crc = u32(p + 14),
              .stored_bytes = u32(p + 18),
              .whole_bytes = u32(p + 22)};
  read_zip64(&m, name + name_size, extra_size);
  m.is_sized = !(m.flags & FLAG_DESCRIPTOR) || m.stored_bytes;
  m.is_wanted = can_be_snapshot(name, name_size);
  zip->member = m;
  consume(source, HEADER_BYTES + name_size + extra_size);
  return 0;
}

/* ---- descriptors ---- */

/* Are the sizes at `p`, of `width` bytes each, those of the member as it was read? */
static bool sizes_fit(const member *m, const unsigned char *p, size_t width) {
  if (width == 8) return u64(p) == m->taken_bytes && u64(p + 8) == m->made_bytes;
  return u32(p) == (uint32_t)m->taken_bytes && u32(p + 4) == (uint32_t)m->made_bytes;
}

/* Bytes of the descriptor at the window, 0 if absent. Its signature is optional, its
 * sizes have 4 or 8 bytes, and nothing says which: they must fit, and a header or the end must
 * follow. */
static size_t descriptor_size(const tsr__input *source, const member *m) {
  size_t signature = source->size >= 4 && u32(source->data) == MAGIC_DESCRIPTOR ? 4 : 0;
  for (size_t width = 4; width <= 8; width += 4) {
    size_t size = signature + 4 + 2 * width;
    if (source->size < size || !sizes_fit(m, source->data + signature + 4, width)) continue;
    if (source->size < size + 2 || memcmp(source->data + size, "PK", 2) == 0) return size;
  }
  return 0;
}

/* After the member's data: leave the descriptor, if there must be one, and check the sum. */
static int end_member(zip_stream *zip, tsr_error *error) {
  member *m = &zip->member;
  m->has_ended = true;
  uint32_t crc = m->crc;
  if (m->flags & FLAG_DESCRIPTOR) {
    int status = want(&zip->source, LONGEST_DESCRIPTOR + 2, error);
    if (status) return status;
    size_t size = descriptor_size(&zip->source, m);
    if (!size) return fail_damaged(error, "a member has wrong sizes");
    crc = u32(zip->source.data + (u32(zip->source.data) == MAGIC_DESCRIPTOR ? 4 : 0));
    consume(&zip->source, size);
  }
  return crc == m->made_crc ? 0 : fail_damaged(error, "a member has a wrong checksum");
}

/* ---- data ---- */

static void account(member *m, const unsigned char *made, size_t size) {
  m->made_crc = (uint32_t)crc32_z(m->made_crc, made, size);
  m->made_bytes += size;
}

/* Up to `size` of the window's bytes as they are. */
static size_t take_stored(zip_stream *zip, unsigned char *buffer, size_t size) {
  if (size > zip->source.size) size = zip->source.size;
  memcpy(buffer, zip->source.data, size);
  consume(&zip->source, size);
  zip->member.taken_bytes += size;
  account(&zip->member, buffer, size);
  return size;
}

/* How many of the window's bytes are data for certain; a member of unknown size ends at 0. */
static size_t bytes_before_descriptor(const tsr__input *source, const member *m) {
  const unsigned char *p = source->data, *end = p + source->size;
  while ((p = memchr(p, 'P', (size_t)(end - p)))) {
    if (end - p < 4 && !source->at_end) break;
    if (end - p >= 4 && u32(p) == MAGIC_DESCRIPTOR) {
      if (p > source->data) break; /* look again when it is at the front */
      if (descriptor_size(source, m)) return 0;
    }
    if (++p == end) return source->size;
  }
  return p ? (size_t)(p - source->data) : source->size;
}

static int read_stored(zip_stream *zip, unsigned char *buffer, size_t size, size_t *got,
                       tsr_error *error) {
  member *m = &zip->member;
  if (m->is_sized) {
    uint64_t left = m->stored_bytes - m->taken_bytes;
    if (size > left) size = (size_t)left;
    if (!size) return end_member(zip, error);
  }
  int status = want(&zip->source, m->is_sized ? 1 : LONGEST_DESCRIPTOR + 2, error);
  if (status) return status;
  if (!m->is_sized) {
    size_t sure = bytes_before_descriptor(&zip->source, m);
    if (!sure && zip->source.size) return end_member(zip, error);
    if (size > sure) size = sure;
  }
  *got = take_stored(zip, buffer, size);
  return 0;
}

static int read_deflated(zip_stream *zip, unsigned char *buffer, size_t size, size_t *got,
                         tsr_error *error) {
  member *m = &zip->member;
  int status = want(&zip->source, 1, error);
  if (status) return status;
  tsr__decoder_io io = {
      .in = zip->source.data, .in_size = zip->source.size, .out = buffer, .out_size = size};
  int result = tsr__inflate(&zip->z, &io);
  *got = size - io.out_size;
  m->taken_bytes += zip->source.size - io.in_size;
  consume(&zip->source, zip->source.size - io.in_size);
  account(m, buffer, *got);
  status = tsr__expansion_check(zip->expansion, &zip->base, m->made_bytes, error);
  if (status) return status;
  if (result == Z_STREAM_END) return end_member(zip, error);
  if (result == Z_OK || result == Z_BUF_ERROR) return 0;
  if (result == Z_MEM_ERROR) return tsr__fail_memory(error);
  return fail_damaged(error, zip->z.msg ? zip->z.msg : "unknown form");
}

/* The next bytes of the member; none where it has ended, or the input has. Bytes that were got
 * count also when a failure is returned. */
static int read_member(zip_stream *zip, unsigned char *buffer, size_t size, size_t *got,
                       tsr_error *error) {
  *got = 0;
  if (zip->member.has_ended) return 0;
  if (zip->member.method == DEFLATED) return read_deflated(zip, buffer, size, got, error);
  return read_stored(zip, buffer, size, got, error);
}

/* ---- the way to the wanted member ---- */

static int check_readable(const member *m, tsr_error *error) {
  if (m->flags & FLAG_ENCRYPTED)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "a member of the zip archive is encrypted");
  if (m->method != STORED && m->method != DEFLATED)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "a member of the zip archive is compressed with method %u; only stored and "
                     "deflated ones can be read",
                     (unsigned)m->method);
  return 0;
}

/* Drop the member's bytes. Where its size is known they need not be understood. */
static int skip_member(zip_stream *zip, unsigned char *scratch, tsr_error *error) {
  member *m = &zip->member;
  if (m->is_sized && !(m->flags & FLAG_DESCRIPTOR)) {
    uint64_t left = m->stored_bytes;
    while (left) {
      int status = want(&zip->source, 1, error);
      if (status || !zip->source.size) return status;
      size_t size = left < zip->source.size ? (size_t)left : zip->source.size;
      consume(&zip->source, size);
      left -= size;
    }
    return 0;
  }
  int status = check_readable(m, error);
  while (!status && !m->has_ended) {
    size_t got;
    status = read_member(zip, scratch, SCRATCH_BYTES, &got, error);
    if (!got && zip->source.at_end && !zip->source.size) break;
  }
  return status;
}

static int find_member(zip_stream *zip, tsr_error *error) {
  unsigned char *scratch = TSR__NEW_ARRAY(unsigned char, SCRATCH_BYTES);
  int status = scratch ? 0 : tsr__fail_memory(error);
  while (!status) {
    status = read_header(zip, error);
    if (status) break;
    (void)inflateReset(&zip->z);
    if (zip->member.is_wanted) break;
    status = skip_member(zip, scratch, error);
  }
  tsr__free(scratch);
  if (status != 1) return status ? status : check_readable(&zip->member, error);
  bool is_cut = zip->source.size < 4 || u32(zip->source.data) == MAGIC_LOCAL;
  return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the zip archive %s",
                   is_cut ? "is truncated before any snapshot"
                          : "contains no .pkl, .pickle, .json or .html file");
}

/* ---- the stream ---- */

static ptrdiff_t zip_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                          tsr_error *error) {
  zip_stream *zip = (zip_stream *)stream;
  member *m = &zip->member;
  size_t total = 0;
  tsr_error why = {0};
  while (total < size && !m->has_ended) {
    size_t got;
    int status = read_member(zip, buffer + total, size - total, &got, &why);
    total += got;
    bool is_cut = !status && !got && !m->has_ended && zip->source.at_end && !zip->source.size;
    if (is_cut) status = fail_damaged(&why, "it ends before any data");
    if (!status) continue;
    if (status != TSR_ERROR_FORMAT || !m->made_bytes) {
      if (error) *error = why;
      return status;
    }
    m->has_ended = true;
    stream->ending = is_cut ? TSR__ENDING_CUT : TSR__ENDING_DAMAGED;
    if (stream->below->ending > stream->ending) stream->ending = stream->below->ending;
  }
  return (ptrdiff_t)total;
}

static void zip_close(tsr__stream *stream) {
  zip_stream *zip = (zip_stream *)stream;
  tsr__input_close(&zip->source);
  (void)inflateEnd(&zip->z);
  tsr__free(zip);
}

int tsr__stream_zip(tsr__stream *below, const tsr_limits *limits, tsr__stream **out,
                    tsr_error *error) {
  zip_stream *zip = TSR__NEW(zip_stream);
  if (!zip) {
    below->close(below);
    return tsr__fail_memory(error);
  }
  zip->base = (tsr__stream){.read = zip_read, .close = zip_close, .below = below};
  zip->expansion = tsr__expansion_of(limits);
  int status = tsr__input_open_sized(&zip->source, below, WINDOW_BYTES, error);
  if (!status) status = tsr__inflate_open(&zip->z, TSR__INFLATE_RAW, error);
  if (!status) status = find_member(zip, error);
  if (status) {
    zip_close(&zip->base);
    return status;
  }
  *out = &zip->base;
  return 0;
}
