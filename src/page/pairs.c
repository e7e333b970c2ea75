/* pairs.c - which stacks of two files are the same, although lines or paths moved. See page.h.
 *
 * Equal stacks are one node of the page (names.h). Stacks that `tessera diff` matches without being equal
 * are listed here, for each pair of files, so that the page pairs them in the same way:
 *
 *   column pairs:  first input | second input | for each of the two: count, then (node, class) ...
 *
 * Nodes of one class are one row of a difference; classes are numbers of the pair. */
#include "page/page.h"
#include "questions/diff/match.h"

/* The nodes of stacks that moved; returns how many, and packs them if `p` is not NULL. */
static uint64_t moved_nodes(tsr__bundle *p, const tsr__match *match, const uint32_t *classes,
                            const tsr_snapshot *snapshot, const tsr__page_ids *ids) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < tsr_snapshot_stack_count(snapshot); i++) {
    if (!match->is_moved[classes[i]] || !ids->nodes[i] || ids->nodes[i] - 1 == TSR_NONE) continue;
    count++;
    if (!p) continue;
    tsr__pack_number(&p->pack, ids->nodes[i] - 1);
    tsr__pack_number(&p->pack, classes[i]);
  }
  return count;
}

static void pack_pair(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                      size_t first, size_t second) {
  const tsr_snapshot *snapshots[] = {inputs[first].input.snapshot, inputs[second].input.snapshot};
  const size_t numbers[] = {first, second};
  tsr__match match = {0};
  if (tsr__match_compute(snapshots[0], snapshots[1], &match, NULL)) {
    p->ok = false;
    return;
  }
  const uint32_t *classes[] = {match.old_class, match.new_class};
  for (int k = 0; k < 2; k++) tsr__pack_number(&p->pack, numbers[k]);
  for (int k = 0; k < 2; k++) {
    const tsr__page_ids *of = &ids[numbers[k]];
    tsr__pack_number(&p->pack, moved_nodes(NULL, &match, classes[k], snapshots[k], of));
    (void)moved_nodes(p, &match, classes[k], snapshots[k], of);
  }
  tsr__match_release(&match);
}

void tsr__page_pack_pairs(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                          size_t input_count) {
  if (input_count < 2 || input_count > TSR__MOST_PAIRED) return;
  tsr__bundle_column(p, "pairs");
  for (size_t i = 0; i < input_count; i++)
    for (size_t k = i + 1; p->ok && k < input_count; k++) pack_pair(p, inputs, ids, i, k);
  tsr__bundle_column_end(p);
}
