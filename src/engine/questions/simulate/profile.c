/* profile.c - prints what is in memory at the peak of a run (tsr_memory_profile).
 *
 *   Memory of each phase:
 *     phase     at its end      peak  reserved
 *     ...
 *   At the peak, in the backward of step 1 (log-softmax):
 *     block     bytes   share  kept for backward  seen by hooks
 *     ...
 *     what        made by            saved for   count     bytes   share
 *     ...
 *
 *     what   type   count   in a step   at the peak
 *     ...
 *
 * Both lists of the peak end with rounding, so that they add up to what is allocated. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/format.h"
#include "base/memory.h"
#include "base/sort.h"
#include "questions/simulate/profile.h"
#include "tessera/unstable/runs.h"

/* Memory of one block, or outside all of them. */
typedef struct share {
  uint64_t bytes, kept_bytes, seen_bytes;
} share;

static bool is_kept(const tsr_memory_row *row) {
  return row->category == TSR_CATEGORY_ACTIVATION && row->saved_for[0];
}

/* Compare groups of memory, ignoring blocks. */
static int compare_kinds(const void *left, const void *right) {
  const tsr_memory_row *a = left, *b = right;
  if (a->category != b->category) return a->category < b->category ? -1 : 1;
  if (a->is_backward != b->is_backward) return a->is_backward ? 1 : -1;
  if (a->is_module_output != b->is_module_output) return a->is_module_output ? 1 : -1;
  int order = strcmp(a->dtype, b->dtype);
  if (order == 0) order = strcmp(a->op, b->op);
  if (order == 0) order = strcmp(a->kernel, b->kernel);
  return order ? order : strcmp(a->saved_for, b->saved_for);
}

static int compare_bytes(const void *left, const void *right) {
  const tsr_memory_row *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return compare_kinds(a, b);
}

/* Add up the rows over blocks, the largest first. The caller frees them; NULL when out of memory. */
static tsr_memory_row *list_kinds(const tsr_memory_profile *p, size_t *count) {
  tsr_memory_row *kinds = TSR__NEW_ARRAY(tsr_memory_row, p->row_count + 1);
  *count = 0;
  if (!kinds) return NULL;
  memcpy(kinds, p->rows, p->row_count * sizeof *kinds);
  tsr__sort(kinds, p->row_count, sizeof *kinds, compare_kinds);
  for (size_t i = 0; i < p->row_count; i++) {
    if (*count && compare_kinds(&kinds[*count - 1], &kinds[i]) == 0) {
      kinds[*count - 1].count += kinds[i].count;
      kinds[*count - 1].bytes += kinds[i].bytes;
    } else {
      kinds[(*count)++] = kinds[i];
    }
  }
  tsr__sort(kinds, *count, sizeof *kinds, compare_bytes);
  return kinds;
}

/* Add up the rows by block; the last item is memory outside of blocks. The caller frees them. */
static share *list_blocks(const tsr_memory_profile *p) {
  share *blocks = TSR__NEW_ARRAY(share, (size_t)p->block_count + 1);
  for (size_t i = 0; blocks && i < p->row_count; i++) {
    const tsr_memory_row *row = &p->rows[i];
    share *s = &blocks[row->block == TSR_NONE ? p->block_count : row->block];
    assert(row->block == TSR_NONE || row->block < p->block_count);
    s->bytes += row->bytes;
    if (is_kept(row)) s->kept_bytes += row->bytes;
    if (is_kept(row) && row->is_module_output) s->seen_bytes += row->bytes;
  }
  return blocks;
}

static void emit_phases(tsr__emitter *e, const tsr_memory_profile *p) {
  static const tsr__column columns[] = {
      {"phase", "phase", TSR__LEFT},
      {"end_allocated_bytes", "at its end", TSR__RIGHT},
      {"end_reserved_bytes", NULL, TSR__RIGHT},
      {"peak_allocated_bytes", "peak", TSR__RIGHT},
      {"peak_reserved_bytes", "reserved then", TSR__RIGHT},
      {"peak_step", "step", TSR__RIGHT},
      {"peak_op", "while", TSR__LEFT},
  };
  tsr__emit_printf(e, TSR__BOLD, "Memory of each phase:");
  tsr__emit_table(e, "phases", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < TSR_MEMORY_PHASES; i++) {
    const tsr_simulate_moment *peak = &p->phases[i].peak, *end = &p->phases[i].end;
    if (!peak->step && !end->step) continue;
    bool grows = peak->step != 0; /* a phase that only frees has no peak */
    tsr__emit_row(
        e, (tsr__cell[]){tsr__string(end->phase), tsr__bytes(end->totals.allocated_bytes),
                         tsr__bytes(end->totals.reserved_bytes),
                         grows ? tsr__bytes(peak->totals.allocated_bytes) : tsr__nothing(),
                         grows ? tsr__bytes(peak->totals.reserved_bytes) : tsr__nothing(),
                         grows ? tsr__count(peak->step) : tsr__nothing(), tsr__string(peak->op)});
    tsr__emit_row_end(e);
  }
  tsr__emit_table_end(e);
}

/* Whether a list shows row `i`; JSON contains all rows. */
static bool is_shown(const tsr__emitter *e, uint64_t top, size_t i) {
  return !tsr__emitter_is_text(e) || !top || i < top;
}

static void emit_block(tsr__emitter *e, tsr__cell number, const char *name, share s,
                       uint64_t whole) {
  tsr__emit_row(e, (tsr__cell[]){number, tsr__string(name), tsr__bytes(s.bytes),
                                 tsr__percent(s.bytes, whole), tsr__bytes(s.kept_bytes),
                                 tsr__bytes(s.seen_bytes)});
  tsr__emit_row_end(e);
}

static void emit_blocks(tsr__emitter *e, const tsr_memory_profile *p, const share *blocks,
                        uint64_t top) {
  static const tsr__column columns[] = {
      {"block", NULL, TSR__RIGHT},
      {"name", "block", TSR__LEFT},
      {"bytes", "bytes", TSR__RIGHT},
      {NULL, "share", TSR__RIGHT},
      {"kept_bytes", "kept for backward", TSR__RIGHT},
      {"hooks_bytes", "seen by hooks", TSR__RIGHT},
  };
  uint64_t whole = p->peak.totals.allocated_bytes;
  share rest = {0};
  char name[TSR__FORMAT_BYTES + 16], number[TSR__FORMAT_BYTES];
  size_t left_out = 0;
  tsr__emit_table(e, "blocks", columns, sizeof columns / sizeof *columns);
  for (uint32_t i = 0; i < p->block_count; i++) {
    (void)snprintf(name, sizeof name, "%u", i);
    if (is_shown(e, top, i)) {
      emit_block(e, tsr__count(i), name, blocks[i], whole);
      continue;
    }
    left_out++;
    rest.bytes += blocks[i].bytes;
    rest.kept_bytes += blocks[i].kept_bytes;
    rest.seen_bytes += blocks[i].seen_bytes;
  }
  (void)snprintf(name, sizeof name, "others (%s)", tsr__format_count(left_out, number));
  if (left_out) emit_block(e, tsr__nothing(), name, rest, whole);
  emit_block(e, tsr__nothing(), "outside blocks", blocks[p->block_count], whole);
  emit_block(e, tsr__nothing(), "rounding and tails", (share){.bytes = p->lost_bytes}, whole);
  tsr__emit_table_end(e);
}

static void emit_kind(tsr__emitter *e, const tsr_memory_row *row, const char *what,
                      const char *made_by, uint64_t whole) {
  tsr__emit_row(e, (tsr__cell[]){tsr__string(what), tsr__string(row->dtype), tsr__string(made_by),
                                 tsr__string(row->op), tsr__string(row->kernel),
                                 tsr__bool(row->is_backward), tsr__string(row->saved_for),
                                 tsr__bool(row->is_module_output), tsr__count(row->count),
                                 tsr__bytes(row->bytes), tsr__percent(row->bytes, whole)});
  tsr__emit_row_end(e);
}

static void emit_kinds(tsr__emitter *e, const tsr_memory_profile *p, const tsr_memory_row *kinds,
                       size_t count, uint64_t top) {
  static const tsr__column columns[] = {
      {"category", "what", TSR__CATEGORY},
      {"dtype", "type", TSR__LEFT},

      {NULL, "made by", TSR__WRAPPED},
      {"op", NULL, TSR__LEFT},
      {"kernel", NULL, TSR__LEFT},
      {"is_backward", NULL, TSR__LEFT},
      {"saved_for", "saved for", TSR__WRAPPED},
      {"is_module_output", NULL, TSR__LEFT},
      {"count", "count", TSR__RIGHT},
      {"bytes", "bytes", TSR__RIGHT},
      {NULL, "share", TSR__SPARE},
  };
  const tsr_memory_row none = {.dtype = "", .op = "", .kernel = "", .saved_for = ""};
  tsr_memory_row rest = none, lost = none;
  uint64_t whole = p->peak.totals.allocated_bytes;
  size_t left_out = 0;
  tsr__emit_table(e, "tensors", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < count; i++) {
    const tsr_memory_row *row = &kinds[i];
    char made_by[128];
    if (!is_shown(e, top, i)) {
      left_out++;
      rest.count += row->count;
      rest.bytes += row->bytes;
      continue;
    }
    bool is_named = row->op[0] && row->kernel[0];
    (void)snprintf(made_by, sizeof made_by, "%s%s%s%s", row->op, is_named ? ": " : "", row->kernel,
                   row->op[0] && row->is_backward ? " (backward)" : "");
    emit_kind(e, row, tsr_category_name(row->category), made_by, whole);
  }
  lost.bytes = p->lost_bytes;
  if (left_out) emit_kind(e, &rest, "other kinds", "", whole);
  emit_kind(e, &lost, "rounding and tails", "", whole);
  tsr__emit_table_end(e);
}

/* Emit every category with each of its types. */
static void emit_types(tsr__emitter *e, const tsr_memory_profile *p) {
  static const tsr__column columns[] = {
      {"category", "what", TSR__CATEGORY},
      {"dtype", "type", TSR__LEFT},
      {"count", "count", TSR__RIGHT},
      {"bytes", "in a step", TSR__RIGHT},
      {"peak_bytes", "at the peak", TSR__RIGHT},
  };
  tsr__emit_table(e, "types", columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < p->type_count; i++) {
    const tsr_memory_type *type = &p->types[i];
    tsr__emit_row(e, (tsr__cell[]){tsr__string(tsr_category_name(type->category)),
                                   tsr__string(type->dtype), tsr__count(type->count),
                                   tsr__bytes(type->bytes), tsr__bytes(type->peak_bytes)});
    tsr__emit_row_end(e);
  }
  tsr__emit_table_end(e);
}

/* Emit which kept memory a hook on each module's output shows, and which not. */
static void emit_hooks(tsr__emitter *e, const tsr_memory_profile *p, const share *blocks) {
  share all = {0};
  char kept[TSR__FORMAT_BYTES], seen[TSR__FORMAT_BYTES], unseen[TSR__FORMAT_BYTES];
  for (uint32_t i = 0; i < p->block_count; i++) {
    all.kept_bytes += blocks[i].kept_bytes;
    all.seen_bytes += blocks[i].seen_bytes;
  }
  tsr__emit_field(e, "kept_bytes", NULL, tsr__bytes(all.kept_bytes));
  tsr__emit_field(e, "hooks_bytes", NULL, tsr__bytes(all.seen_bytes));
  if (!tsr__emitter_is_text(e) || !all.kept_bytes) return;
  tsr__buffer_printf(&e->scratch,
                     "Blocks keep %s for backward. Forward hooks on all modules would show %s of "
                     "it: the other %s are made within a module.",
                     tsr__format_size(all.kept_bytes, kept), tsr__format_size(all.seen_bytes, seen),
                     tsr__format_size(all.kept_bytes - all.seen_bytes, unseen));
  tsr__emit_line(e, TSR__PLAIN, 0);
}

static void emit_peak(tsr__emitter *e, const tsr_memory_profile *p) {
  char size[TSR__FORMAT_BYTES], reserved[TSR__FORMAT_BYTES], step[TSR__FORMAT_BYTES];
  tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(p->peak.totals.allocated_bytes));
  tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(p->peak_reserved_bytes));
  tsr__emit_field(e, "peak_event", NULL, tsr__index(p->peak.event));
  tsr__emit_field(e, "lost_bytes", NULL, tsr__bytes(p->lost_bytes));
  if (!tsr__emitter_is_text(e)) return;
  tsr__emit_space(e);
  tsr__buffer_printf(&e->scratch, "At the peak, %s allocated of %s reserved",
                     tsr__format_size(p->peak.totals.allocated_bytes, size),
                     tsr__format_size(p->peak_reserved_bytes, reserved));
  if (p->peak.step)
    tsr__buffer_printf(&e->scratch, ", in the %s of step %s%s%s%s", p->peak.phase,
                       tsr__format_count(p->peak.step, step), p->peak.op[0] ? " (" : "", p->peak.op,
                       p->peak.op[0] ? ")" : "");
  tsr__buffer_text(&e->scratch, ":");
  tsr__emit_line(e, TSR__BOLD, 0);
}

bool tsr__emit_memory_profile(tsr__emitter *e, const tsr_memory_profile *p, uint64_t top) {
  size_t count;
  tsr_memory_row *kinds = list_kinds(p, &count);
  share *blocks = list_blocks(p);
  bool ok = kinds && blocks;
  if (ok) {
    emit_phases(e, p);
    emit_peak(e, p);
    emit_blocks(e, p, blocks, top);
    tsr__emit_space(e);
    emit_kinds(e, p, kinds, count, top);
    tsr__emit_space(e);
    emit_types(e, p);
    tsr__emit_space(e);
    emit_hooks(e, p, blocks);
  }
  tsr__free(kinds);
  tsr__free(blocks);
  return ok;
}
