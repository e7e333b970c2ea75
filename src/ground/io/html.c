/* html.c - snapshots embedded in a page, as PyTorch's _memory_viz.py writes them.
 *
 *   <script type="module">
 *   const local_files = [{"name": "snapshot.pickle", "base64": "gASVDAAB..."}, ...]
 *
 * The page is searched, not parsed: for `local_files`, then for a key `base64` with a quoted value,
 * in whatever quotes, which makes pages that people wrote by hand readable too. The value is
 * decoded as it is read; white space in it is skipped, `=` ends it. PyTorch appends 1 to 3 zero
 * bytes to the pickle so as to need no `=`; they are delivered, and pickle readers ignore them.
 *
 * When the value has ended, the rest of the page is searched for others, to say how many there are.
 * A text of base64 cannot look like the key: the key's colon is not in its alphabet. */
#include <string.h>

#include "base/memory.h"
#include "io/forms.h"

enum {
  WINDOW_BYTES = 128 << 10,
  LONGEST_KEY_TAIL = 64, /* quote, blanks, colon, blanks, quote */
  NOT_BASE64 = 0xff
};

typedef struct html_stream {
  tsr__stream base;
  tsr__input source;
  unsigned char sextet[256]; /* a character's value in base64, or NOT_BASE64 */
  unsigned char quote;       /* that ends the value */
  uint32_t bits;             /* the last `bit_count` of these are decoded, not yet a byte */
  unsigned bit_count;
  bool has_ended;
} html_stream;

static void consume(tsr__input *source, size_t size) {
  source->data += size;
  source->size -= size;
  source->offset += size;
}

/* ---- finding ---- */

/* Move the window past the next `text`: 0, 1 if absent, or a negative tsr_status. */
static int find(tsr__input *source, const char *text, tsr_error *error) {
  size_t length = strlen(text);
  for (;;) {
    const unsigned char *p = source->data;
    size_t left = source->size;
    while (left >= length) {
      const unsigned char *hit = memchr(p, text[0], left - length + 1);
      if (!hit) break;
      if (memcmp(hit, text, length) == 0) {
        consume(source, (size_t)(hit - source->data) + length);
        return 0;
      }
      left -= (size_t)(hit + 1 - p);
      p = hit + 1;
    }
    if (source->at_end) return 1;
    size_t keep = source->size < length ? source->size : length - 1;
    int status = tsr__input_fill(source, source->size - keep, error);
    if (status) return status;
  }
}

static bool is_blank(unsigned char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_quote(unsigned char c) {
  return c == '"' || c == '\'' || c == '`';
}

/* The window is past `base64`: the quote that opens its value, or 0 if it is no key. */
static unsigned char open_value(tsr__input *source) {
  size_t i = 0, end = source->size < LONGEST_KEY_TAIL ? source->size : LONGEST_KEY_TAIL;
  const unsigned char *p = source->data;
  if (i < end && is_quote(p[i])) i++;
  while (i < end && is_blank(p[i])) i++;
  if (i == end || p[i++] != ':') return 0;
  while (i < end && is_blank(p[i])) i++;
  if (i == end || !is_quote(p[i])) return 0;
  unsigned char quote = p[i];
  consume(source, i + 1);
  return quote;
}

/* Move the window to the first byte of the next value. As `find`. */
static int find_value(html_stream *html, tsr_error *error) {
  tsr__input *source = &html->source;
  for (;;) {
    int status = find(source, "base64", error);
    while (!status && source->size < LONGEST_KEY_TAIL && !source->at_end)
      status = tsr__input_fill(source, 0, error);
    if (status) return status;
    html->quote = open_value(source);
    if (html->quote) return 0;
  }
}

static int count_rest(html_stream *html, tsr_error *error) {
  int status;
  while ((status = find_value(html, error)) == 0) html->base.more_payloads++;
  return status == 1 ? 0 : status;
}

/* ---- decoding ---- */

/* Whole groups of four characters, while they last: nearly all of a page. */
static size_t decode_groups(html_stream *html, unsigned char *out, size_t size) {
  const unsigned char *p = html->source.data, *end = p + html->source.size, *s = html->sextet;
  unsigned char *start = out;
  for (; end - p >= 4 && size >= 3; p += 4, out += 3, size -= 3) {
    unsigned a = s[p[0]], b = s[p[1]], c = s[p[2]], d = s[p[3]];
    if ((a | b | c | d) == NOT_BASE64) break;
    out[0] = (unsigned char)(a << 2 | b >> 4);
    out[1] = (unsigned char)(b << 4 | c >> 2);
    out[2] = (unsigned char)(c << 6 | d);
  }
  consume(&html->source, (size_t)(p - html->source.data));
  return (size_t)(out - start);
}

/* One character; `*got` becomes 1 where it completes a byte. False where it does not belong. */
static bool decode_one(html_stream *html, unsigned char c, unsigned char *out, size_t *got) {
  unsigned sextet = html->sextet[c];
  *got = 0;
  if (sextet == NOT_BASE64) return is_blank(c);
  html->bits = html->bits << 6 | sextet;
  html->bit_count += 6;
  if (html->bit_count < 8) return true;
  html->bit_count -= 8;
  *out = (unsigned char)(html->bits >> html->bit_count);
  *got = 1;
  return true;
}

/* The value ends, after `made` bytes in all. */
static int end_value(html_stream *html, tsr__ending ending, uint64_t made, tsr_error *error) {
  if (!made)
    return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the snapshot in the page %s",
                     ending == TSR__ENDING_DAMAGED ? "is not base64" : "is empty");
  html->has_ended = true;
  int status = count_rest(html, error);
  tsr__ending below = html->base.below->ending;
  html->base.ending = below > ending ? below : ending;
  return status;
}

/* Some of the value into `buffer`; `made` bytes were made before. `*got` may be 0. */
static int decode(html_stream *html, unsigned char *buffer, size_t size, size_t *got, uint64_t made,
                  tsr_error *error) {
  tsr__input *source = &html->source;
  *got = 0;
  if (!source->size) {
    if (source->at_end) return end_value(html, TSR__ENDING_CUT, made, error);
    return tsr__input_fill(source, 0, error);
  }
  if (!html->bit_count) *got = decode_groups(html, buffer, size);
  if (*got || !source->size) return 0;
  unsigned char c = *source->data;
  consume(source, 1);
  if (c == html->quote || c == '=') return end_value(html, TSR__ENDING_WHOLE, made, error);
  if (decode_one(html, c, buffer, got)) return 0;
  return end_value(html, TSR__ENDING_DAMAGED, made, error);
}

/* ---- the stream ---- */

static ptrdiff_t html_read(tsr__stream *stream, unsigned char *buffer, size_t size,
                           tsr_error *error) {
  html_stream *html = (html_stream *)stream;
  size_t total = 0;
  while (total < size && !html->has_ended) {
    size_t got;
    int status =
        decode(html, buffer + total, size - total, &got, stream->delivered_bytes + total, error);
    if (status) return status;
    total += got;
  }
  return (ptrdiff_t)total;
}

static void html_close(tsr__stream *stream) {
  tsr__input_close(&((html_stream *)stream)->source);
  tsr__free(stream);
}

static void fill_sextets(html_stream *html) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  memset(html->sextet, NOT_BASE64, sizeof html->sextet);
  for (unsigned i = 0; i < 64; i++) html->sextet[(unsigned char)alphabet[i]] = (unsigned char)i;
}

/* A page of torch.profiler's export_memory_timeline, by its title. */
static bool is_picture(const tsr__input *source) {
  static const char title[] = "<title>GPU Memory Timeline HTML</title>";
  enum { LENGTH = sizeof title - 1, BEGINNING = 512 };
  for (size_t i = 0; i + LENGTH <= source->size && i < BEGINNING; i++)
    if (memcmp(source->data + i, title, LENGTH) == 0) return true;
  return false;
}

static int find_payload(html_stream *html, uint32_t index, tsr_error *error) {
  int status = html->source.size ? 0 : tsr__input_fill(&html->source, 0, error);
  if (!status && is_picture(&html->source))
    return tsr__fail(
        error, TSR_ERROR_FORMAT, 0,
        "the page has a picture of PyTorch's memory timeline and no numbers: export it "
        "under a name that ends in .raw.json.gz");
  if (!status) status = find(&html->source, "local_files", error);
  for (uint32_t i = 0; !status; i++) {
    status = find_value(html, error);
    if (!status && i == index) break;
    if (!status) html->base.more_payloads++;
  }
  if (status != 1) return status;
  if (html->base.more_payloads)
    return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the page contains only %u snapshots",
                     (unsigned)html->base.more_payloads);
  return tsr__fail(error, TSR_ERROR_FORMAT, 0, "the page contains no snapshot");
}

int tsr__stream_html_payload(tsr__stream *below, uint32_t index, tsr__stream **out,
                             tsr_error *error) {
  html_stream *html = TSR__NEW(html_stream);
  if (!html) {
    below->close(below);
    return tsr__fail_memory(error);
  }
  html->base = (tsr__stream){.read = html_read, .close = html_close, .below = below};
  fill_sextets(html);
  int status = tsr__input_open_sized(&html->source, below, WINDOW_BYTES, error);
  if (!status) status = find_payload(html, index, error);
  if (status) {
    html_close(&html->base);
    return status;
  }
  *out = &html->base;
  return 0;
}

int tsr__stream_html(tsr__stream *below, const tsr_limits *limits, tsr__stream **out,
                     tsr_error *error) {
  (void)limits;
  return tsr__stream_html_payload(below, 0, out, error);
}
