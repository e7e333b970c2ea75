/* labels.c - what the page calls stacks. See page.h.
 *
 * As everywhere, attribution/labels.h names them: all stacks of all files as rows of one table, so that no two
 * of the page read alike. Equal stacks of several files are one node and have one label.
 *
 *   column labels:  by node, 0, or 1 + the string that the stack ending there is called */
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

void tsr__page_pack_labels(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                           size_t input_count) {
  size_t node_count = p->names->nodes.count;
  labeller l = {.bundle = p,
                .namers = TSR__NEW_ARRAY(tsr__namer, input_count),
                .strings = TSR__NEW_ARRAY(uint32_t, node_count)};
  bool ok = l.namers && l.strings;
  for (size_t i = 0; ok && i < input_count; i++)
    ok = add_rows(&l, inputs[i].input.snapshot, &ids[i], i);
  ok = ok && put_names(&l);
  tsr__bundle_column(p, "labels");
  for (size_t i = 0; ok && i < node_count; i++) tsr__pack_number(&p->pack, l.strings[i]);
  tsr__bundle_column_end(p);
  if (!ok) p->ok = false;
  for (size_t i = 0; l.namers && i < input_count; i++) tsr__namer_release(&l.namers[i]);
  tsr__free(l.namers);
  tsr__free(l.strings);
  TSR__VECTOR_FREE(&l.rows);
  TSR__VECTOR_FREE(&l.nodes);
}
