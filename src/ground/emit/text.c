/* text.c - makes arbitrary bytes safe to print, as JSON or on a terminal.
 *
 * Both formats use the decoder of base/utf8.h, which treats lone surrogates as characters.
 *
 * A high surrogate followed by a low one becomes two escapes, which a JSON parser joins
 * into one character; JSON cannot represent them separately.
 *
 * Invariant: every function consumes at least one byte per step, so hostile input cannot stall it.
 */
#include "emit/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tessera/unstable/json.h"

/* Number of bytes from `at` on that need no work in either format: printable ASCII except `"` and `\`. */
static size_t plain_run(tsr_text text, size_t at, size_t until) {
  size_t end = at;
  while (end < until && text.data[end] >= ' ' && text.data[end] < 0x7F && text.data[end] != '"' &&
         text.data[end] != '\\')
    end++;
  return end - at;
}

static void escape_character(tsr__buffer *out, uint32_t code, const char *bytes, size_t length) {
  static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* a character, then its letter */
  if (code == TSR__CODE_INVALID) {
    tsr__buffer_text(out, "\xEF\xBF\xBD");
    return;
  }
  for (size_t i = 0; i + 1 < sizeof names; i += 2)
    if (code == (unsigned char)names[i]) {
      tsr__buffer_printf(out, "\\%c", names[i + 1]);
      return;
    }
  if (tsr__code_is_unsafe(code) && code > 0xFFFF)
    tsr__buffer_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (code >> 10)),
                       (unsigned)(0xDC00 | (code & 0x3FF)));
  else if (tsr__code_is_unsafe(code))
    tsr__buffer_printf(out, "\\u%04x", (unsigned)code);
  else
    tsr__buffer_append(out, bytes, length);
}

size_t tsr__json_escape(tsr__buffer *out, tsr_text text, size_t from, size_t until) {
  if (until > text.size_bytes) until = text.size_bytes;
  size_t at = from;
  assert(from <= text.size_bytes);
  while (at < until) {
    size_t plain = plain_run(text, at, until);
    if (plain) {
      tsr__buffer_append(out, text.data + at, plain);
      at += plain;
      continue;
    }
    uint32_t code;
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    assert(length && length <= text.size_bytes - at);
    escape_character(out, code, text.data + at, length);
    at += length;
  }
  return at;
}

size_t tsr_json_text(const char *text, size_t size_bytes, char *out) {
  tsr__buffer buffer = {.data = out, .capacity = 6 * size_bytes + 16}; /* never grows */
  (void)tsr__json_escape(&buffer, (tsr_text){text, size_bytes}, 0, size_bytes);
  assert(buffer.data == out && !buffer.failed);
  return buffer.size;
}

size_t tsr__text_clean(tsr__buffer *out, tsr_text text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size_bytes;) {
    size_t plain = plain_run(text, at, text.size_bytes);
    if (plain) {
      tsr__buffer_append(out, text.data + at, plain);
      at += plain, columns += plain;
      continue;
    }
    uint32_t code;
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    if (tsr__code_is_unsafe(code))
      tsr__buffer_text(out, "?");
    else
      tsr__buffer_append(out, text.data + at, length);
    at += length, columns++;
  }
  return columns;
}

tsr_text tsr__text_of(const char *string) {
  return (tsr_text){string, string ? strlen(string) : 0};
}

const char *tsr__device_name(uint32_t device, char text[TSR__FORMAT_BYTES]) {
  if (device == TSR_DEVICE_HOST)
    (void)snprintf(text, TSR__FORMAT_BYTES, "pinned host memory");
  else if (device == TSR_DEVICE_CPU)
    (void)snprintf(text, TSR__FORMAT_BYTES, "CPU memory");
  else
    (void)snprintf(text, TSR__FORMAT_BYTES, "device %" PRIu32, device);
  return text;
}

const char *tsr__device_title(uint32_t device, char text[TSR__FORMAT_BYTES]) {
  tsr__device_name(device, text);
  text[0] = device == TSR_DEVICE_HOST ? 'P' : device == TSR_DEVICE_CPU ? 'C' : 'D';
  return text;
}
