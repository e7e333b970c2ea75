/* report_names.c - the names of an entry, as text or JSON. See names.h. */
#include "base/format.h"
#include "emit/heading.h"
#include "questions/shared/names.h"

void tsr__emit_names(tsr__emitter *emitter, const tsr_named *names, const tsr_name_range *range) {
  if (tsr__emitter_is_text(emitter)) return;
  tsr__emit_array(emitter, "names");
  for (size_t i = 0; i < range->count; i++) {
    const tsr_named *name = &names[range->first + i];
    bool has_category = name->category != TSR_CATEGORY_UNKNOWN;
    tsr__emit_inline_object(emitter, NULL);
    tsr__emit_field(emitter, "name", NULL, tsr__text(name->name));
    tsr__emit_field(emitter, "type", NULL, *name->type ? tsr__string(name->type) : tsr__nothing());
    tsr__emit_field(emitter, "category", NULL,
                    has_category ? tsr__string(tsr_category_name(name->category)) : tsr__nothing());
    tsr__emit_field(emitter, "bytes", NULL, tsr__bytes(name->bytes));
    tsr__emit_field(emitter, "allocations", NULL, tsr__count(name->allocations));
    tsr__emit_field(emitter, "source", NULL, tsr__string(tsr_name_source_name(name->source)));
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_field(emitter, "omitted_names", NULL, tsr__count(range->omitted));
}

void tsr__append_names(tsr__emitter *emitter, const tsr_named *names, const tsr_name_range *range) {
  /* A line has room for little; -v and JSON have all of it. */
  enum { SHOWN_BYTES = 40 };
  char count[TSR__FORMAT_BYTES];
  uint64_t others = range->count ? range->count - 1 + range->omitted : 0;
  if (!range->count || !tsr__emitter_is_text(emitter)) return;
  tsr_text name = names[range->first].name;
  tsr__buffer *out = &emitter->scratch;
  bool is_long = name.size_bytes > SHOWN_BYTES;
  while (is_long && name.size_bytes > SHOWN_BYTES) name.size_bytes--;
  while (is_long && name.size_bytes && ((unsigned char)name.data[name.size_bytes] & 0xc0) == 0x80)
    name.size_bytes--;
  tsr__buffer_text(out, ": \"");
  tsr__buffer_append(out, name.data, name.size_bytes);
  tsr__buffer_text(out, is_long ? "...\"" : "\"");
  if (others) tsr__buffer_printf(out, " and %s more", tsr__format_count(others, count));
}

tsr_text tsr__with_names(tsr__emitter *emitter, tsr_text label, const tsr_named *names,
                         const tsr_name_range *range) {
  tsr__buffer *out = &emitter->scratch;
  size_t from = out->size;
  if (!range->count || !tsr__emitter_is_text(emitter)) return label;
  tsr__buffer_append(out, label.data, label.size_bytes);
  tsr__append_names(emitter, names, range);
  return out->failed ? label : (tsr_text){out->data + from, out->size - from};
}

void tsr__print_names(tsr__emitter *emitter, const tsr_named *names, const tsr_name_range *range) {
  char size[TSR__FORMAT_BYTES], count[TSR__FORMAT_BYTES];
  if (!tsr__emitter_is_text(emitter)) return;
  for (size_t i = 0; i < range->count; i++) {
    const tsr_named *name = &names[range->first + i];
    tsr__buffer *out = &emitter->scratch;
    tsr__buffer_printf(out, "%10s  ", tsr__format_size(name->bytes, size));
    tsr__buffer_append(out, name->name.data, name->name.size_bytes);
    if (*name->type) tsr__buffer_printf(out, "  %s", name->type);
    if (name->source != TSR_NAME_SIDECAR && name->allocations > 1)
      tsr__buffer_printf(out, "  in %s allocations", tsr__format_count(name->allocations, count));
    tsr__emit_line(emitter, TSR__PLAIN, 2);
  }
  if (!range->omitted) return;
  tsr__buffer_printf(&emitter->scratch, "... and %s more name%s (--top 0 shows all)",
                     tsr__format_count(range->omitted, count), tsr__plural(range->omitted));
  tsr__emit_line(emitter, TSR__DIM, 2);
}
