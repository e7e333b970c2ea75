/* labels.c - what the page calls stacks. See page.h.
 *
 * As everywhere, attribution/labels.h names them: all stacks of all files as rows of one table, so that no two
 * of the page read alike. Equal stacks of several files are one node and have one label.
 *
 *   column labels:         by node, 0, or 1 + the string that the stack ending there is called
 *   column place.op,
 *          place.module,
 *          place.line:     likewise, of the group that the stack is in when `tessera profile` groups so */
#include <assert.h>

#include "attribution/labels.h"
#include "base/memory.h"
#include "page/page.h"

typedef struct labeller {
  tsr__bundle *bundle;
  tsr__namer *namers; /* by input */
  TSR__VECTOR(tsr__named_row) rows;
  TSR__VECTOR(uint32_t) nodes; /* by row */
  uint32_t *strings;           /* by node: 1 + a string of the page, 0: none */
} labeller;

/* The stacks of an input that the page has, but for nodes that an earlier input labels. */
static bool add_rows(labeller *l, const tsr_snapshot *snapshot, const tsr__page_ids *ids,
                     size_t input) {
  bool ok = tsr__namer_init(&l->namers[input], snapshot, NULL, NULL) == 0;
  for (uint32_t i = 0; ok && i < tsr_snapshot_stack_count(snapshot); i++) {
    if (!ids->nodes[i]) continue;
    uint32_t node = ids->nodes[i] - 1;
    assert(node < l->bundle->names->nodes.count);
    if (l->strings[node]) continue;
    l->strings[node] = TSR_NONE; /* taken */
    ok = TSR__VECTOR_PUSH(&l->rows, (tsr__named_row){&l->namers[input], i}) &&
         TSR__VECTOR_PUSH(&l->nodes, node);
  }
  return ok;
}

static bool put_names(labeller *l) {
  tsr__row_names names = {0};
  bool ok = tsr__row_names_compute(l->rows.items, l->rows.count, &names, NULL) == 0;
  for (size_t i = 0; ok && i < l->rows.count; i++)
    l->strings[l->nodes.items[i]] =
        tsr__page_text(l->bundle->names, tsr__row_name(&names, i), &ok) + 1;
  tsr__row_names_release(&names);
  return ok;
}

static void labeller_release(labeller *l, size_t input_count) {
  for (size_t i = 0; l->namers && i < input_count; i++) tsr__namer_release(&l->namers[i]);
  tsr__free(l->namers);
  tsr__free(l->strings);
  TSR__VECTOR_FREE(&l->rows);
  TSR__VECTOR_FREE(&l->nodes);
}

/* Must be released in any case. */
static bool labeller_init(labeller *l, tsr__bundle *p, const tsr_page_input *inputs,
                          const tsr__page_ids *ids, size_t input_count) {
  *l = (labeller){.bundle = p,
                  .namers = TSR__NEW_ARRAY(tsr__namer, input_count),
                  .strings = TSR__NEW_ARRAY(uint32_t, p->names->nodes.count)};
  bool ok = l->namers && l->strings;
  for (size_t i = 0; ok && i < input_count; i++)
    ok = add_rows(l, inputs[i].input.snapshot, &ids[i], i);
  return ok;
}

static void pack_column(const labeller *l, const char *name) {
  tsr__bundle *p = l->bundle;
  tsr__bundle_column(p, name);
  for (size_t i = 0; i < p->names->nodes.count; i++) tsr__pack_number(&p->pack, l->strings[i]);
  tsr__bundle_column_end(p);
}

void tsr__page_pack_labels(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                           size_t input_count) {
  labeller l;
  if (labeller_init(&l, p, inputs, ids, input_count) && put_names(&l))
    pack_column(&l, "labels");
  else
    p->ok = false;
  labeller_release(&l, input_count);
}

static bool put_places(labeller *l, tsr__label_kind kind) {
  tsr__buffer text = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < l->rows.count; i++) {
    text.size = 0;
    tsr__namer_append(l->rows.items[i].namer, kind, l->rows.items[i].stack, &text);
    ok = !text.failed;
    if (!ok) break;
    tsr_text name = {text.data, text.size};
    l->strings[l->nodes.items[i]] = tsr__page_text(l->bundle->names, name, &ok) + 1;
  }
  tsr__buffer_release(&text);
  return ok;
}

void tsr__page_pack_places(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                           size_t input_count) {
  static const struct {
    tsr__label_kind kind;
    const char *column;
  } places[] = {{TSR__LABEL_OP, "place.op"},
                {TSR__LABEL_MODULE, "place.module"},
                {TSR__LABEL_LINE, "place.line"}};
  labeller l;
  bool ok = labeller_init(&l, p, inputs, ids, input_count);
  for (size_t i = 0; ok && i < sizeof places / sizeof *places; i++) {
    ok = put_places(&l, places[i].kind);
    if (ok) pack_column(&l, places[i].column);
  }
  if (!ok) p->ok = false;
  labeller_release(&l, input_count);
}
