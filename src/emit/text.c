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

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
  if (tsr__code_is_unsafe(code))
    tsr__buffer_printf(out, "\\u%04x", (unsigned)code);
  else
    tsr__buffer_append(out, bytes, length);
}

size_t tsr__json_escape(tsr__buffer *out, tsr_text text, size_t from, size_t until) {
  if (until > text.size_bytes) until = text.size_bytes;
  size_t at = from;
  while (at < until) {
    size_t plain = plain_run(text, at, until);
    if (plain) {
      tsr__buffer_append(out, text.data + at, plain);
      at += plain;
      continue;
    }
    uint32_t code;
    size_t length = tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
    escape_character(out, code, text.data + at, length);
    at += length;
  }
  return at;
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

/* Byte position of character number `columns`. */
static size_t position_of(tsr_text text, size_t columns) {
  size_t at = 0;
  uint32_t code;
  while (columns-- && at < text.size_bytes)
    at += tsr__utf8_decode(text.data + at, text.size_bytes - at, &code);
  return at;
}

void tsr__text_shorten(tsr__buffer *out, tsr_text text, size_t width, size_t columns) {
  static const char gap[] = "...";
  const size_t gap_columns = sizeof gap - 1;
  if (width <= columns) {
    tsr__buffer_append(out, text.data, text.size_bytes);
    return;
  }
  if (columns <= gap_columns) {
    tsr__buffer_append(out, gap, columns);
    return;
  }
  size_t tail = (columns - gap_columns) / 2, head = columns - gap_columns - tail;
  size_t tail_at = position_of(text, width - tail);
  tsr__buffer_append(out, text.data, position_of(text, head));
  tsr__buffer_append(out, gap, gap_columns);
  tsr__buffer_append(out, text.data + tail_at, text.size_bytes - tail_at);
}

void tsr__text_shorten_at(tsr__buffer *out, tsr_text text, size_t width, size_t columns,
                          size_t at) {
  static const char gap[] = "...";
  const size_t gap_columns = sizeof gap - 1, head = columns / 4;
  if (width <= columns || columns < 4 * gap_columns || at < head) {
    tsr__text_shorten(out, text, width, columns);
    return;
  }
  size_t room = columns - head - gap_columns, lead = room / 3;
  size_t from = at - head > lead ? at - lead : head, end = width;
  if (width - from > room)
    end = from + room - gap_columns;
  else
    from = width - room;
  size_t from_at = position_of(text, from), end_at = position_of(text, end);
  tsr__buffer_append(out, text.data, position_of(text, head));
  tsr__buffer_append(out, gap, gap_columns);
  tsr__buffer_append(out, text.data + from_at, end_at - from_at);
  if (end < width) tsr__buffer_append(out, gap, gap_columns);
}

size_t tsr__text_difference(tsr_text a, tsr_text b) {
  size_t columns = 0, at = 0;
  while (at < a.size_bytes && at < b.size_bytes) {
    uint32_t x, y;
    size_t length = tsr__utf8_decode(a.data + at, a.size_bytes - at, &x);
    (void)tsr__utf8_decode(b.data + at, b.size_bytes - at, &y);
    if (x != y) break;
    at += length;
    columns++;
  }
  return columns;
}

tsr_text tsr__text_of(const char *string) {
  return (tsr_text){string, string ? strlen(string) : 0};
}

const char *tsr__device_name(uint32_t device, char text[TSR__FORMAT_BYTES]) {
  if (device == TSR_DEVICE_HOST)
    (void)snprintf(text, TSR__FORMAT_BYTES, "pinned host memory");
  else
    (void)snprintf(text, TSR__FORMAT_BYTES, "device %" PRIu32, device);
  return text;
}

const char *tsr__device_title(uint32_t device, char text[TSR__FORMAT_BYTES]) {
  tsr__device_name(device, text);
  text[0] = device == TSR_DEVICE_HOST ? 'P' : 'D';
  return text;
}
