/* write.c - a template with its data: see page.h.
 *
 *   <template's head, with the policy on requests inserted>
 *   <script type="application/json" id="tessera-head"> what the columns are </script>
 *   <script type="text/plain" id="tessera-data"> the columns: base64 of a zlib stream </script>
 *   <template's tail, with the program>
 *
 * Base64 contains no '<', and in the JSON every '<' is escaped, so nothing in the data can close its
 * element. */
#include <assert.h>
#include <string.h>

#include "page/page.h"

void tsr__page_bytes(tsr__page_writer *w, const void *data, size_t size_bytes) {
  if (!w->failed && size_bytes) w->failed = w->write(w->context, data, size_bytes) != 0;
}

static void put_base64(tsr__page_writer *w, const unsigned char *data, size_t size) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char line[1 << 14];
  size_t used = 0;
  for (size_t at = 0; at < size; at += 3) {
    size_t left = size - at;
    uint32_t bits = (uint32_t)data[at] << 16 | (left > 1 ? (uint32_t)data[at + 1] << 8 : 0) |
                    (left > 2 ? data[at + 2] : 0);
    line[used++] = digits[bits >> 18];
    line[used++] = digits[bits >> 12 & 63];
    line[used++] = left > 1 ? digits[bits >> 6 & 63] : '=';
    line[used++] = left > 2 ? digits[bits & 63] : '=';
    if (used > sizeof line - 4) {
      tsr__page_bytes(w, line, used);
      used = 0;
    }
  }
  assert(used % 4 == 0 && used <= sizeof line);
  tsr__page_bytes(w, line, used);
}

static void put_text(tsr__page_writer *w, const char *text) {
  tsr__page_bytes(w, text, strlen(text));
}

int tsr__page_written(const tsr__page_writer *w, tsr_error *error) {
  if (!w->failed) return 0;
  return tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the output could not be written");
}

int tsr__page_put(tsr__page_writer *w, const tsr__template *page, const char *asks,
                  const tsr__buffer *head, const tsr__buffer *data, tsr_error *error) {
  tsr__page_bytes(w, page->head, page->head_size);
  put_text(w, asks);
  tsr__page_bytes(w, page->rest, page->rest_size);
  put_text(w, "<script type=\"application/json\" id=\"tessera-head\">");
  tsr__page_bytes(w, head->data, head->size);
  put_text(w, "</script>\n<script type=\"text/plain\" id=\"tessera-data\">");
  put_base64(w, (const unsigned char *)data->data, data->size);
  put_text(w, "</script>\n");
  tsr__page_bytes(w, page->tail, page->tail_size);
  return tsr__page_written(w, error);
}

uint64_t tsr__template_bytes(const tsr__template *page) {
  return (uint64_t)page->head_size + page->rest_size + page->tail_size;
}
