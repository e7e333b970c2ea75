/* escape.c - see escape.h. */
#include "questions/shared/escape.h"

#include <string.h>

#include "tessera/types.h"

/* Append the text, each of `special` replaced by what `escape` appends. */
static void append_escaped(tsr__buffer *out, tsr_text text, const char *special,
                           void (*escape)(tsr__buffer *out, char byte)) {
  for (size_t i = 0; i < text.size_bytes; i++)
    if (strchr(special, text.data[i]) && text.data[i])
      escape(out, text.data[i]);
    else
      tsr__buffer_append(out, &text.data[i], 1);
}

static void escape_xml(tsr__buffer *out, char byte) {
  tsr__buffer_printf(out, "&#%u;", (unsigned)(unsigned char)byte);
}

static void escape_markdown(tsr__buffer *out, char byte) {
  if (byte == '<')
    tsr__buffer_text(out, "&lt;");
  else
    tsr__buffer_printf(out, "\\%c", byte);
}

/* U+FFFE and U+FFFF are characters of UTF-8 but not of XML, not even escaped: '?' replaces them. */
static void drop_noncharacters(tsr__buffer *words) {
  size_t used = 0;
  for (size_t i = 0; i < words->size;) {
    const unsigned char *at = (const unsigned char *)words->data + i;
    bool is_none = words->size - i >= 3 && at[0] == 0xEF && at[1] == 0xBF && at[2] >= 0xBE;
    words->data[used++] = is_none ? '?' : words->data[i];
    i += is_none ? 3 : 1;
  }
  words->size = used;
}

void tsr__put_xml(tsr__buffer *out, tsr__buffer *words) {
  drop_noncharacters(words);
  append_escaped(out, (tsr_text){words->data, words->size}, "<>&\"'\n", escape_xml);
  words->size = 0;
}

void tsr__put_markdown(tsr__buffer *out, tsr__buffer *words) {
  append_escaped(out, (tsr_text){words->data, words->size}, "|*_`<[]\\~#", escape_markdown);
  words->size = 0;
}
