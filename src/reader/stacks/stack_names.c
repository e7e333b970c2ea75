/* stack_names.c - see tessera/unstable/stack_names.h: attribution/labels.h and emit/cut.h for callers outside of the library. */
#include "tessera/unstable/stack_names.h"

#include "attribution/labels.h"
#include "base/error.h"
#include "base/memory.h"
#include "emit/cut.h"
#include "emit/text.h"

struct tsr_stack_naming {
  tsr__namer namer;
};

int tsr_stack_naming_new(const tsr_snapshot *snapshot, tsr_stack_naming **out, tsr_error *error) {
  tsr_stack_naming *made = TSR__NEW(tsr_stack_naming);
  if (!made) return tsr__fail_memory(error);
  int status = tsr__namer_init(&made->namer, snapshot, NULL, error);
  if (status)
    tsr__free(made);
  else
    *out = made;
  return status;
}

void tsr_stack_naming_free(tsr_stack_naming *naming) {
  if (!naming) return;
  tsr__namer_release(&naming->namer);
  tsr__free(naming);
}

/* Leave the row's name in `out`; `clean` is room for the whole of it. */
static void append_name(const tsr_named_stack *row, tsr_text name, size_t columns,
                        tsr__buffer *clean, tsr__buffer *out) {
  clean->size = out->size = 0;
  if (row->stack == TSR_NONE) name = tsr__text_of("(no stack recorded)");
  size_t width = tsr__text_clean(clean, name);
  tsr_text whole = {clean->data, clean->size};
  if (clean->failed) return;
  if (columns && width > columns)
    (void)tsr__place_shorten(out, whole, width, columns, false);
  else
    tsr__buffer_append(out, whole.data, whole.size_bytes);
}

int tsr_stacks_name(const tsr_named_stack *rows, size_t count, size_t columns,
                    tsr_stack_name_fn *put, void *context, tsr_error *error) {
  tsr__row_names names = {0};
  tsr__buffer clean = {0}, shown = {0};
  tsr__named_row *named = TSR__NEW_ARRAY(tsr__named_row, count);
  int status = named ? 0 : tsr__fail_memory(error);
  for (size_t i = 0; named && i < count; i++)
    named[i] = (tsr__named_row){&rows[i].naming->namer, rows[i].stack};
  if (status == 0 && count) status = tsr__row_names_compute(named, count, &names, error);
  for (size_t i = 0; status == 0 && i < count; i++) {
    append_name(&rows[i], tsr__row_name(&names, i), columns, &clean, &shown);
    if (clean.failed || shown.failed)
      status = tsr__fail_memory(error);
    else
      put(context, i, (tsr_text){shown.data, shown.size});
  }
  tsr__buffer_release(&shown);
  tsr__buffer_release(&clean);
  tsr__row_names_release(&names);
  tsr__free(named);
  return status;
}
