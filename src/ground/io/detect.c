/* detect.c - first bytes, and what they promise.
 *
 * Names of files are ignored: people rename, and a pipe has none. A form is recognized by its magic
 * bytes; a page by its first character that is not blank, since neither a pickle nor a JSON text
 * can begin with `<`. What looks like nothing known is plain, and the readers of snapshots judge
 * it.
 *
 * Inside a form there may be another: a page in a zip, a .gz in a zip, a file that was compressed
 * twice. Four layers are more than anyone means; a file that contains itself stops there. */
#include "io/detect.h"

#include <stdio.h>
#include <string.h>

#include "io/forms.h"

typedef struct magic {
  tsr__form form;
  unsigned offset, size;
  const char *bytes;
} magic;

/* An empty zip has no member; zip.c reports it. */
static const magic MAGICS[] = {
    {TSR__FORM_GZIP, 0, 2, "\x1f\x8b"},
    {TSR__FORM_ZSTD, 0, 4, "\x28\xb5\x2f\xfd"},
    {TSR__FORM_XZ, 0, 6,
     "\xfd"
     "7zXZ\0"},
    {TSR__FORM_ZIP, 0, 4, "PK\x03\x04"},
    {TSR__FORM_ZIP, 0, 4, "PK\x05\x06"},
    {TSR__FORM_BZIP2, 0, 3, "BZh"},
    {TSR__FORM_LZ4, 0, 4, "\x04\x22\x4d\x18"},
    {TSR__FORM_7Z, 0, 6, "7z\xbc\xaf\x27\x1c"},
};

/* How a form is read: `open` unwraps it, NULL if nothing does. */
typedef struct form_rule {
  const char *name;
  tsr__stream_form *open;
} form_rule;

static const form_rule RULES[] = {
    [TSR__FORM_PLAIN] = {"", NULL},
    [TSR__FORM_GZIP] = {"gzip", tsr__stream_gzip},
    [TSR__FORM_ZSTD] = {"zstd", tsr__stream_zstd},
    [TSR__FORM_XZ] = {"xz", tsr__stream_xz},
    [TSR__FORM_ZIP] = {"zip", tsr__stream_zip},
    [TSR__FORM_HTML] = {"html", tsr__stream_html},
    [TSR__FORM_BZIP2] = {"bzip2 is not supported; recompress with zstd or gzip", NULL},
    [TSR__FORM_LZ4] = {"lz4 is not supported; recompress with zstd or gzip", NULL},
    [TSR__FORM_7Z] = {"7z archives are not supported; extract the snapshot first", NULL},
    [TSR__FORM_TAR] = {"tar archives are not supported; extract the snapshot first", NULL},
};

/* 50 2a 4d 18 to 5f 2a 4d 18: a frame that zstd skips, e.g. of pzstd, before one that it reads. */
static bool is_skippable_frame(const unsigned char *bytes, size_t size) {
  return size >= 4 && (bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, "\x2a\x4d\x18", 3) == 0;
}

/* A tar archive begins with a block of 512 bytes that contains its own octal checksum. "ustar"
 * alone may be in any text. */
static bool is_tar(const unsigned char *bytes, size_t size) {
  enum { BLOCK = 512, SUM_AT = 148, SUM_BYTES = 8, MAGIC_AT = 257 };
  if (size < BLOCK || memcmp(bytes + MAGIC_AT, "ustar", 5) != 0) return false;
  unsigned long sum = 0, told = 0;
  for (size_t i = 0; i < BLOCK; i++) {
    bool in_sum = i >= SUM_AT && i < SUM_AT + SUM_BYTES;
    sum += in_sum ? ' ' : bytes[i];
    if (in_sum && bytes[i] >= '0' && bytes[i] <= '7') told = told * 8 + (bytes[i] - '0');
  }
  return sum == told;
}

static bool is_page(const unsigned char *bytes, size_t size) {
  static const char byte_order_mark[] = "\xef\xbb\xbf";
  size_t i = size >= 3 && memcmp(bytes, byte_order_mark, 3) == 0 ? 3 : 0;
  while (i < size && bytes[i] && strchr(" \t\r\n\f", bytes[i])) i++;
  if (i + 1 >= size || bytes[i] != '<') return false;
  unsigned char next = bytes[i + 1] | 0x20;
  return (next >= 'a' && next <= 'z') || bytes[i + 1] == '!' || bytes[i + 1] == '?';
}

tsr__form tsr__detect(const unsigned char *bytes, size_t size) {
  for (size_t i = 0; i < sizeof MAGICS / sizeof *MAGICS; i++) {
    const magic *m = &MAGICS[i];
    if (size >= m->offset + m->size && memcmp(bytes + m->offset, m->bytes, m->size) == 0)
      return m->form;
  }
  if (is_skippable_frame(bytes, size)) return TSR__FORM_ZSTD;
  if (is_tar(bytes, size)) return TSR__FORM_TAR;
  return is_page(bytes, size) ? TSR__FORM_HTML : TSR__FORM_PLAIN;
}

/* Unwrap one layer, if any; `*form` is its form. */
static int unwrap_one(tsr__stream **stream, const tsr__wrapping *wrapping, bool may_wrap,
                      tsr__form *form, tsr_error *error) {
  const unsigned char *bytes;
  size_t size;
  int status = tsr__stream_ahead(*stream, TSR__DETECT_BYTES, stream, &bytes, &size, error);
  if (status) return status;
  *form = tsr__detect(bytes, size);
  if (*form == TSR__FORM_PLAIN) return 0;
  const form_rule *rule = &RULES[*form];
  if (*form == TSR__FORM_HTML && may_wrap)
    return tsr__stream_html_payload(*stream, wrapping->payload, stream, error);
  if (rule->open && may_wrap) return rule->open(*stream, wrapping->limits, stream, error);
  (*stream)->close(*stream);
  if (!rule->open) return tsr__fail(error, TSR_ERROR_UNSUPPORTED, 0, "%s", rule->name);
  return tsr__fail(error, TSR_ERROR_LIMIT, 0, "more than %d layers of compression",
                   TSR__MOST_LAYERS);
}

int tsr__stream_unwrap(tsr__stream **stream, tsr__wrapping *wrapping, tsr_error *error) {
  char *format = wrapping->format;
  size_t length = 0, format_size = sizeof wrapping->format;
  *format = 0;
  for (int layer = 0;; layer++) {
    tsr__form form;
    int status = unwrap_one(stream, wrapping, layer < TSR__MOST_LAYERS, &form, error);
    if (status || form == TSR__FORM_PLAIN) return status;
    int added = snprintf(format + length, format_size - length, "%s ", RULES[form].name);
    length += (size_t)added < format_size - length ? (size_t)added : format_size - length - 1;
  }
}
