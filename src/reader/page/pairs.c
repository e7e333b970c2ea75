/* pairs.c - which stacks of two files are the same, although lines or paths moved. See page.h.
 *
 * Equal stacks are one node of the page (names.h). Stacks that `tessera diff` matches without being equal
 * are listed here, for each pair of files, so that the page pairs them in the same way:
 *
 *   column pairs:  first input | second input | for each of the two: count, then (node, class) ...
 *   column lines:  first track | second track | for each of the two: count, then (name, class) ...
 *
 * Nodes of one class are one row of a difference; classes are numbers of the pair. Lines are groups of the
 * grouping by line, if the page has that: those that moved between the peaks of two tracks. Their names and
 * classes are strings of the page; a class is the name that its row has. */
#include "base/arena.h"
#include "page/page.h"
#include "questions/diff/match.h"

#include <assert.h>
#include <string.h>

#include "emit/text.h"

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

/* ---- Lines ---- */

static const tsr_view_grouping *grouping_by_line(const tsr_view_device *d) {
  for (size_t i = 0; i < d->grouping_count; i++)
    if (!strcmp(d->groupings[i].key, TSR_BY_LINE)) return &d->groupings[i];
  return NULL;
}

/* The lines that are live at the peak of a track; a name that the other side has already gets its bit. False
 * if out of memory. */
static bool add_lines(const tsr_view_device *d, uint8_t side, tsr__arena *arena, tsr__line *lines,
                      uint32_t *count) {
  const tsr_view_grouping *grouping = grouping_by_line(d);
  bool is_live[TSR_VIEW_GROUPS_MAX] = {false};
  assert(grouping && grouping->count <= TSR_VIEW_GROUPS_MAX);
  for (size_t a = 0; a < d->allocation_count; a++)
    if (d->born[a] <= d->peak && d->peak < d->died[a]) is_live[grouping->group[a]] = true;
  for (size_t g = 0; g < grouping->count; g++) {
    tsr_text name = grouping->names[g];
    char *copy = is_live[g] ? tsr__arena_alloc(arena, name.size_bytes + 1, 1) : NULL;
    if (!is_live[g]) continue;
    if (!copy) return false;
    if (name.size_bytes) memcpy(copy, name.data, name.size_bytes);
    copy[name.size_bytes] = '\0';
    uint32_t at = 0;
    while (at < *count && strcmp(lines[at].name, copy) != 0) at++;
    assert(at < 2 * TSR_VIEW_GROUPS_MAX);
    if (at == *count) lines[(*count)++] = (tsr__line){.name = copy};
    lines[at].sides |= side;
  }
  return true;
}

static bool has_moved(const tsr__line *lines, uint32_t count, uint32_t i) {
  for (uint32_t k = 0; k < count; k++)
    if (k != i && lines[k].into == lines[i].into) return true;
  return false;
}

static void pack_lines_of(tsr__bundle *p, const tsr__line *lines, uint32_t count, uint8_t side) {
  uint32_t moved = 0;
  for (uint32_t i = 0; i < count; i++)
    moved += lines[i].sides == side && has_moved(lines, count, i);
  tsr__pack_number(&p->pack, moved);
  for (uint32_t i = 0; i < count; i++) {
    if (lines[i].sides != side || !has_moved(lines, count, i)) continue;
    assert(lines[i].into < count);
    const char *of = lines[lines[i].into].name;
    tsr__pack_number(&p->pack, tsr__page_text(p->names, tsr__text_of(lines[i].name), &p->ok));
    tsr__pack_number(&p->pack, tsr__page_text(p->names, tsr__text_of(of), &p->ok));
  }
}

static void pack_line_pair(tsr__bundle *p, const tsr__page_track *tracks, size_t first,
                           size_t second) {
  tsr__line lines[2 * TSR_VIEW_GROUPS_MAX];
  uint32_t count = 0;
  tsr__arena arena;
  tsr__arena_init(&arena);
  p->ok = add_lines(tracks[first].device, 1, &arena, lines, &count) &&
          add_lines(tracks[second].device, 2, &arena, lines, &count) &&
          !tsr__match_lines(lines, count, NULL);
  if (p->ok) {
    tsr__pack_number(&p->pack, first);
    tsr__pack_number(&p->pack, second);
    for (uint8_t side = 1; side <= 2; side++) pack_lines_of(p, lines, count, side);
  }
  tsr__arena_release(&arena);
}

void tsr__page_pack_lines(tsr__bundle *p, const tsr__page_track *tracks, size_t track_count) {
  if (track_count > TSR__MOST_PAIRED) return;
  tsr__bundle_column(p, "lines");
  for (size_t i = 0; i < track_count; i++)
    for (size_t k = i + 1; p->ok && k < track_count; k++)
      if (tracks[i].input != tracks[k].input && grouping_by_line(tracks[i].device) &&
          grouping_by_line(tracks[k].device))
        pack_line_pair(p, tracks, i, k);
  tsr__bundle_column_end(p);
}
