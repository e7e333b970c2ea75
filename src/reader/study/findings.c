/* findings.c - see findings.h.
 *
 * All rules but one look at the allocations that are live at the peak. What they need of the past is
 * the number of the forward pass in which each was made (attribution/cycle.h).
 *
 * CHECKPOINT finds the blocks of a model by their loop: a stack that allocates in a block allocates in each
 * of n blocks, mostly once, so n is the number of which most bytes are a multiple, and what these stacks allocate in
 * a block comes before all that they allocate in the next:
 *
 *   block 1          block 2          block 3
 *   a  b  c  d       a  b  c  d       a  b  c  d         stacks a, b, c, d; n = 3
 *
 * The stacks part where the loop calls the block: the innermost frame that they share, as long as it is
 * neither torch's nor C++. A block that is written on one line shares that line too, and the loop is one frame
 * further out; see is_within_block. */
#include "study/findings.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/sort.h"
#include "columns/tables.h"
#include "study/block_call.h"
#include "study/finder.h"
#include "tessera/unstable/frames.h"
#include "timeline/sweep.h"

/* So many allocations are a graph, and not only outputs that the program keeps. */
#define GRAPH_ALLOCATIONS 10

/* The event that made an allocation of the trace; of one from before it, TSR_NONE. */
static uint32_t birth_of(const tsr__finder *f, uint32_t allocation) {
  return f->t->birth.items[allocation];
}

/* ---- What a pass keeps ---- */

/* What one pass holds at a moment. */
typedef struct pass_share {
  uint64_t bytes, allocations, largest_bytes;
  uint32_t stack;
  uint32_t usual;         /* the stack of more than half of them, if there is one */
  uint64_t votes, usuals; /* for it, while it is sought; how many it has */
  bool is_earlier;        /* a pass that should be gone */
} pass_share;

/* The stack that a majority has survives if different ones cancel each other out. */
static void vote(pass_share *share, uint32_t stack) {
  if (!share->votes) share->usual = stack;
  if (share->usual == stack)
    share->votes++;
  else
    share->votes--;
}

static void add_to_share(const tsr__finder *f, pass_share *share, uint32_t a) {
  uint64_t bytes = tsr__timeline_requested(f->t, a);
  share->allocations++;
  share->bytes = tsr__sum_u64(share->bytes, bytes);
  vote(share, tsr__timeline_stack(f->t, a));
  if (bytes <= share->largest_bytes) return;
  share->largest_bytes = bytes;
  share->stack = tsr__timeline_stack(f->t, a);
}

/* A graph keeps several tensors of each layer, made by several lines. Tensors that one line collects, such as in a list
 * that grows, are no graph. Without stacks, this cannot be checked. */
static bool is_graph(const pass_share *share) {
  bool is_one_line = share->usual != TSR_NONE && share->usuals * 4 > share->allocations * 3;
  return share->allocations >= GRAPH_ALLOCATIONS && !is_one_line &&
         share->largest_bytes < share->bytes / 2;
}

/* What a graph from before the recording keeps: also copies of weights, since autocast's cache of them is
 * gone. */
static bool is_of_old_graph(const tsr__finder *f, uint32_t allocation) {
  return allocation < f->t->initial.count && (f->category[allocation] == TSR_CATEGORY_ACTIVATION ||
                                              f->category[allocation] == TSR_CATEGORY_CAST);
}

/* The event by which most activations from before the recording are gone; 0 if they stay. Those of a pass
 * that the recording cuts go together with the rest of it, or later, since backward begins at the end. */
static uint32_t old_ones_gone(const tsr__finder *f) {
  uint64_t count = 0, gone = 0;
  uint32_t last = 0;
  for (uint32_t a = 0; a < f->t->initial.count; a++) {
    if (!is_of_old_graph(f, a)) continue;
    uint32_t death = f->t->death.items[a];
    count++;
    gone += death != TSR_NONE;
    if (death != TSR_NONE && death > last) last = death;
  }
  return gone * 10 >= count * 9 ? last : 0;
}

/* ---- NO_GRAD ---- */

/* A pass without a backward pass, and what is left when its last allocation has been made. */
typedef struct forward {
  uint32_t first, last; /* events */
  uint64_t made, kept,
      freed; /* allocations of activations; those that live on; those freed later */
  uint64_t kept_bytes, largest_bytes;
  uint64_t quarters[4]; /* of the kept: by when in the pass they were made */
  uint32_t stack;       /* of the largest kept one */
} forward;

/* The last allocation of a forward phase from event `first` to `end` - 1; UINT32_MAX if absent. */
static uint32_t last_forward_alloc(const tsr__finder *f, uint32_t first, uint32_t end) {
  uint32_t last = UINT32_MAX;
  for (size_t i = 0; i < f->phases->runs.count; i++) {
    const tsr__phase_run *run = &f->phases->runs.items[i];
    if (run->phase != TSR_PHASE_FORWARD || run->last_alloc < first || run->first >= end) continue;
    last = run->last_alloc;
    if (last < end) continue;
    last = end - 1;
    while (last > first && f->t->events.action[last] != TSR_ACTION_ALLOC) last--;
  }
  return last;
}

/* Where nothing runs backward, what a finished pass makes is temporary, for however long it is kept. */
static bool is_of_graph(const tsr__finder *f, uint32_t allocation) {
  return f->category[allocation] == TSR_CATEGORY_ACTIVATION || is_of_old_graph(f, allocation) ||
         (!f->has_backward && f->category[allocation] == TSR_CATEGORY_TEMPORARY);
}

/* The allocation that an event makes of a graph, or TSR_NONE. */
static uint32_t graph_alloc(const tsr__finder *f, uint32_t event) {
  uint32_t a = f->t->allocation_of[event];
  if (f->t->events.action[event] != TSR_ACTION_ALLOC || a == TSR_NONE) return TSR_NONE;
  return is_of_graph(f, a) ? a : TSR_NONE;
}

static void weigh_forward(const tsr__finder *f, forward *pass) {
  for (uint32_t event = pass->first; event <= pass->last; event++) {
    uint32_t a = graph_alloc(f, event);
    if (a == TSR_NONE) continue;
    uint64_t bytes = f->t->events.size[event];
    uint32_t death = f->t->death.items[a];
    pass->made++;
    if (death != TSR_NONE && death <= pass->last) continue;
    pass->kept++;
    pass->freed += death != TSR_NONE;
    pass->kept_bytes = tsr__sum_u64(pass->kept_bytes, bytes);
    pass->quarters[(uint64_t)(event - pass->first) * 4 /
                   ((uint64_t)(pass->last - pass->first) + 1)]++;
    if (bytes < pass->largest_bytes) continue;
    pass->largest_bytes = bytes;
    pass->stack = f->t->events.stack[event];
  }
}

/* A graph was released without a backward pass: this one, or one as large from before the recording, whose
 * place in the program's variables it took. */
static bool is_released(const tsr__finder *f, const forward *pass) {
  return pass->freed * 10 >= pass->kept * 9 || f->released_bytes >= pass->kept_bytes / 2;
}

/* Autograd keeps something of every layer and lets all of it go at once, when the output is dropped. A
 * program under no_grad keeps outputs, a cache, or a hidden state of each layer: a few of what it makes. */
static bool keeps_graph(const forward *pass) {
  for (int i = 0; i < 4; i++)
    if (!pass->quarters[i]) return false;
  return pass->kept >= GRAPH_ALLOCATIONS && pass->kept * 10 >= pass->made * 3 &&
         pass->largest_bytes < pass->kept_bytes / 2;
}

typedef TSR__VECTOR(forward) forwards;

/* Passes that keep a graph. None of them if no graph is known to be released without a backward pass: the recording
 * may have ended before it. */
static bool find_graphs(tsr__finder *f, forwards *out) {
  bool is_known = false;
  for (size_t i = 0; i < f->cycle->passes.count; i++) {
    uint32_t end = i + 1 < f->cycle->passes.count ? f->cycle->passes.items[i + 1]
                                                  : (uint32_t)f->t->events.count;
    forward pass = {.first = f->cycle->passes.items[i], .stack = TSR_NONE};
    pass.last = last_forward_alloc(f, pass.first, end);
    if (pass.last == UINT32_MAX || pass.last <= pass.first) continue;
    weigh_forward(f, &pass);
    if (!keeps_graph(&pass)) continue;
    is_known |= is_released(f, &pass);
    if (!TSR__VECTOR_PUSH(out, pass)) return false;
  }
  if (!is_known) out->count = 0;
  return true;
}

/* What a pass has made and is live after an event of a later pass, or of its own. */
static void weigh_live(const tsr__finder *f, const forward *pass, uint32_t event, forward *sum) {
  uint64_t largest = 0;
  for (uint32_t e = pass->first; e <= pass->last; e++) {
    uint32_t a = graph_alloc(f, e);
    if (a == TSR_NONE || f->t->death.items[a] <= event) continue;
    uint64_t bytes = f->t->events.size[e];
    sum->kept++;
    sum->kept_bytes = tsr__sum_u64(sum->kept_bytes, bytes);
    if (bytes > largest) largest = bytes;
  }
  sum->largest_bytes = tsr__sum_u64(sum->largest_bytes, largest);
}

/* Whether an allocation is of a graph from before the recording, and is alive after an event. */
static bool is_older_and_alive(const tsr__finder *f, uint32_t allocation, uint32_t event) {
  return is_of_old_graph(f, allocation) && f->t->death.items[allocation] > event;
}

/* The graph from before the recording that is still alive after an event. Empty if there is no such graph, or if the
 * trace does not show its release. */
static pass_share weigh_older(const tsr__finder *f, uint32_t event) {
  pass_share share = {.stack = TSR_NONE};
  if (!old_ones_gone(f)) return share;
  for (uint32_t a = 0; a < f->t->initial.count; a++)
    if (is_older_and_alive(f, a, event)) add_to_share(f, &share, a);
  for (uint32_t a = 0; a < f->t->initial.count; a++)
    if (is_older_and_alive(f, a, event))
      share.usuals += tsr__timeline_stack(f->t, a) == share.usual;
  return is_graph(&share) ? share : (pass_share){.stack = TSR_NONE};
}

/* All graphs that are alive when a pass ends; `largest_bytes` are their outputs. Programs hold
 * few passes: the ones before it are examined until one is gone. */
static forward weigh_alive(const tsr__finder *f, const forwards *list, size_t index) {
  const forward *last = &list->items[index];
  forward sum = {.first = last->first, .last = last->last, .stack = last->stack};
  for (size_t i = index + 1; i-- > 0;) {
    uint64_t before = sum.kept;
    weigh_live(f, &list->items[i], last->last, &sum);
    if (sum.kept - before < GRAPH_ALLOCATIONS) return sum;
  }
  pass_share older = weigh_older(f, last->last);
  sum.kept += older.allocations;
  sum.kept_bytes = tsr__sum_u64(sum.kept_bytes, older.bytes);
  sum.largest_bytes = tsr__sum_u64(sum.largest_bytes, older.largest_bytes);
  return sum;
}

/* Note what all passes keep after an event. */
static bool note_alive(tsr__finder *f, const forwards *list, uint32_t last) {
  bool ok = true, has_older = weigh_older(f, last).allocations != 0;
  for (uint32_t a = 0; ok && has_older && a < f->t->initial.count; a++)
    if (is_older_and_alive(f, a, last)) ok = tsr__finder_note(f, TSR_FINDING_NO_GRAD, a);
  for (size_t i = 0; i < list->count && list->items[i].last <= last; i++)
    for (uint32_t e = list->items[i].first; ok && e <= list->items[i].last; e++) {
      uint32_t a = graph_alloc(f, e);
      if (a != TSR_NONE && f->t->death.items[a] > last)
        ok = tsr__finder_note(f, TSR_FINDING_NO_GRAD, a);
    }
  return ok;
}

static bool find_no_grad(tsr__finder *f) {
  forward worst = {0};
  forwards list = {0};
  if (f->has_backward) return true;
  for (uint32_t a = 0; a < f->t->initial.count; a++)
    if (is_of_old_graph(f, a) && f->t->death.items[a] != TSR_NONE)
      f->released_bytes = tsr__sum_u64(f->released_bytes, tsr__timeline_requested(f->t, a));
  bool ok = find_graphs(f, &list);
  for (size_t i = 0; ok && i < list.count; i++) {
    forward alive = weigh_alive(f, &list, i);
    if (alive.kept_bytes > worst.kept_bytes) worst = alive;
  }
  bool is_found = ok && tsr__finder_is_worth_it(f, worst.kept_bytes);
  if (is_found) ok = note_alive(f, &list, worst.last);
  TSR__VECTOR_FREE(&list);
  if (!is_found || !ok) return ok;
  return tsr__finder_add(f, (tsr_finding){.rule = TSR_FINDING_NO_GRAD,
                                          .bytes = worst.kept_bytes,
                                          .saved_bytes = worst.kept_bytes - worst.largest_bytes,
                                          .count = worst.kept,
                                          .event = worst.last,
                                          .frame = TSR_NONE,
                                          .stack = worst.stack});
}

/* ---- TWO_FORWARDS ---- */

/* Are the activations from before the recording a pass that is older than those of the recording? */
static bool has_older_pass(const tsr__finder *f) {
  uint32_t gone = old_ones_gone(f);
  uint64_t newer = 0, outlived = 0;
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    if (!is_of_graph(f, a) || birth_of(f, a) == TSR_NONE) continue;
    newer++;
    outlived += f->t->death.items[a] == TSR_NONE || f->t->death.items[a] > gone;
  }
  return gone && outlived * 10 >= newer * 9;
}

/* The share that an allocation belongs to, or NULL. Pass 0 is what is older than the recording. */
static pass_share *share_of(const tsr__finder *f, pass_share *shares, bool is_older, uint32_t a) {
  uint32_t birth = birth_of(f, a);
  if (!is_of_graph(f, a) || (birth == TSR_NONE && !is_older)) return NULL;
  return &shares[birth == TSR_NONE ? 0 : tsr__cycle_passes_by(f->cycle, birth)];
}

static void count_usuals(const tsr__finder *f, bool is_older, pass_share *shares) {
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    pass_share *share = share_of(f, shares, is_older, a);
    if (share) share->usuals += tsr__timeline_stack(f->t, a) == share->usual;
  }
}

static void weigh_passes(const tsr__finder *f, bool is_older, pass_share *shares) {
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    pass_share *share = share_of(f, shares, is_older, a);
    if (share) add_to_share(f, share, a);
  }
  count_usuals(f, is_older, shares);
}

static bool note_earlier(tsr__finder *f, bool is_older, pass_share *shares) {
  bool ok = true;
  for (size_t i = 0; ok && i < f->live.count; i++) {
    const pass_share *share = share_of(f, shares, is_older, f->live.items[i]);
    if (share && share->is_earlier)
      ok = tsr__finder_note(f, TSR_FINDING_TWO_FORWARDS, f->live.items[i]);
  }
  return ok;
}

static bool find_two_forwards(tsr__finder *f) {
  pass_share *shares = TSR__NEW_ARRAY(pass_share, f->cycle->passes.count + 1), earlier = {0};
  if (!shares) return false;
  bool is_older = has_older_pass(f);
  weigh_passes(f, is_older, shares);
  size_t latest = f->cycle->passes.count;
  while (latest && !shares[latest].allocations) latest--;
  uint64_t alive = 1;
  for (size_t i = 0; i < latest; i++) {
    if (!is_graph(&shares[i]) || shares[i].bytes < shares[latest].bytes / 3) continue;
    alive++;
    shares[i].is_earlier = true;
    earlier.bytes = tsr__sum_u64(earlier.bytes, shares[i].bytes);
    if (shares[i].largest_bytes <= earlier.largest_bytes) continue;
    earlier.largest_bytes = shares[i].largest_bytes;
    earlier.stack = shares[i].stack;
  }
  bool is_found =
      alive > 1 && is_graph(&shares[latest]) && tsr__finder_is_worth_it(f, earlier.bytes);
  bool ok = !is_found || note_earlier(f, is_older, shares);
  tsr__free(shares);
  if (!is_found || !ok) return ok;
  return tsr__finder_add(f, (tsr_finding){.rule = TSR_FINDING_TWO_FORWARDS,
                                          .bytes = earlier.bytes,
                                          .saved_bytes = earlier.bytes,
                                          .count = alive,
                                          .event = f->t->allocated_event,
                                          .frame = TSR_NONE,
                                          .stack = earlier.stack});
}

/* ---- OLD_GRADIENTS ---- */

/* The event at which the latest model was created: of the parameters made after a gradient, the first.
 * TSR_NONE if all are older than every gradient. */
static uint32_t latest_model(const tsr__finder *f, uint32_t first_gradient) {
  uint32_t first = TSR_NONE;
  uint64_t newer = 0, all = 0;
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i], birth = birth_of(f, a);
    if (f->category[a] != TSR_CATEGORY_PARAMETER) continue;
    uint64_t bytes = tsr__timeline_requested(f->t, a);
    all = tsr__sum_u64(all, bytes);
    if (birth == TSR_NONE || birth < first_gradient) continue;
    newer = tsr__sum_u64(newer, bytes);
    if (birth < first) first = birth;
  }
  return newer >= all / 4 ? first : TSR_NONE;
}

/* Was an allocation made before the event at which a model was created? */
static bool is_old(const tsr__finder *f, uint32_t allocation, uint32_t model) {
  uint32_t birth = birth_of(f, allocation);
  return birth == TSR_NONE || birth < model;
}

static bool note_old_gradients(tsr__finder *f, uint32_t model) {
  bool ok = true;
  for (size_t i = 0; ok && i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    if (f->category[a] == TSR_CATEGORY_GRADIENT && is_old(f, a, model))
      ok = tsr__finder_note(f, TSR_FINDING_OLD_GRADIENTS, a);
  }
  return ok;
}

/* A copy of the model's parameters (an average of weights) is also made after gradients. But then no new
 * gradients follow, or all are new: so there must be gradients of both ages, in comparable numbers. */
static bool find_old_gradients(tsr__finder *f) {
  uint32_t first = TSR_NONE, stack = TSR_NONE;
  uint64_t old = 0, old_count = 0, new_count = 0, largest = 0;
  for (size_t i = 0; i < f->live.count; i++)
    if (f->category[f->live.items[i]] == TSR_CATEGORY_GRADIENT) {
      uint32_t birth = birth_of(f, f->live.items[i]);
      first = birth == TSR_NONE ? 0 : birth < first ? birth : first;
    }
  uint32_t model = first == TSR_NONE ? TSR_NONE : latest_model(f, first);
  if (model == TSR_NONE) return true;
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    if (f->category[a] != TSR_CATEGORY_GRADIENT) continue;
    new_count += !is_old(f, a, model);
    if (!is_old(f, a, model)) continue;
    uint64_t bytes = tsr__timeline_requested(f->t, a);
    old_count++;
    old = tsr__sum_u64(old, bytes);
    if (bytes <= largest) continue;
    largest = bytes;
    stack = tsr__timeline_stack(f->t, a);
  }
  if (new_count < 3 || old_count < 3 || !tsr__finder_is_worth_it(f, old)) return true;
  if (!note_old_gradients(f, model)) return false;
  return tsr__finder_add(f, (tsr_finding){.rule = TSR_FINDING_OLD_GRADIENTS,
                                          .bytes = old,
                                          .saved_bytes = old,
                                          .count = old_count,
                                          .event = f->t->allocated_event,
                                          .frame = TSR_NONE,
                                          .stack = stack});
}

/* ---- CACHED ---- */

typedef struct free_segments {
  const tsr__timeline *t;
  uint64_t bytes;
} free_segments;

/* Adds up entirely free segments that empty_cache() releases: not those of private pools. */
static void add_free(void *context, const tsr__gap *gap) {
  free_segments *found = context;
  bool is_default = gap->span->pool == TSR_NONE || gap->span->pool == found->t->default_pool;
  if (gap->is_whole && is_default) found->bytes = tsr__sum_u64(found->bytes, gap->size_bytes);
}

/* Where a part of the file is missing, what was reserved and free at a moment of it is not known. */
static bool find_cached(tsr__finder *f, tsr_error *error) {
  tsr_fragmentation lost;
  free_segments found = {f->t, 0};
  if (tsr__snapshot_is_incomplete(f->t->snapshot)) return true;
  if (f->t->at_peak.reserved_bytes < f->t->at_peak.active_bytes) return true;
  if (tsr__timeline_gaps(f->t, f->t->allocated_event, &f->live, add_free, &found, &lost, error))
    return false;
  uint64_t bytes = found.bytes;
  if (!tsr__finder_is_worth_it(f, bytes) || bytes < f->t->at_peak.reserved_bytes / 10) return true;
  return tsr__finder_add(f, (tsr_finding){.rule = TSR_FINDING_CACHED,
                                          .bytes = bytes,
                                          .saved_bytes = bytes,
                                          .event = f->t->allocated_event,
                                          .is_one_moment = !tsr__has_history(&f->t->events),
                                          .frame = TSR_NONE,
                                          .stack = TSR_NONE});
}

/* ---- CHECKPOINT ---- */

/* An activation of the pass in which the peak is. */
typedef struct kept {
  uint32_t stack, birth, allocation;
  uint64_t bytes;
} kept;

/* The kept allocations of one stack: items first .. first + count - 1, by birth. */
typedef struct kept_group {
  size_t first;
  uint64_t count, bytes;
} kept_group;

/* Blocks of a model. */
typedef struct blocks {
  kept *kept; /* by stack, then by birth */
  size_t kept_count;
  kept_group *groups;
  size_t group_count;
  uint64_t count;        /* of blocks */
  uint64_t bytes;        /* of all blocks */
  uint64_t output_bytes; /* of the last allocation in each */
} blocks;

static int compare_kept(const void *left, const void *right) {
  const kept *a = left, *b = right;
  if (a->stack != b->stack) return a->stack < b->stack ? -1 : 1;
  return (a->birth > b->birth) - (a->birth < b->birth);
}

static bool list_kept(const tsr__finder *f, blocks *b) {
  int64_t peak = f->t->allocated_event;
  size_t last = peak < 0 ? 0 : tsr__cycle_passes_by(f->cycle, (uint32_t)peak);
  b->kept = TSR__NEW_ARRAY(kept, f->live.count + 1);
  b->groups = TSR__NEW_ARRAY(kept_group, f->live.count + 1);
  if (!b->kept || !b->groups) return false;
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i], birth = birth_of(f, a);
    if (birth == TSR_NONE || f->category[a] != TSR_CATEGORY_ACTIVATION) continue;
    uint32_t stack = tsr__timeline_stack(f->t, a);
    if (stack == TSR_NONE || !tsr_snapshot_stack(f->t->snapshot, stack).depth) continue;
    if (tsr__cycle_passes_by(f->cycle, birth) == last)
      b->kept[b->kept_count++] = (kept){stack, birth, a, tsr__timeline_requested(f->t, a)};
  }
  tsr__sort(b->kept, b->kept_count, sizeof *b->kept, compare_kept);
  for (size_t i = 0; i < b->kept_count; i++) {
    if (!i || b->kept[i].stack != b->kept[i - 1].stack)
      b->groups[b->group_count++] = (kept_group){.first = i};
    kept_group *group = &b->groups[b->group_count - 1];
    group->count++;
    group->bytes = tsr__sum_u64(group->bytes, b->kept[i].bytes);
  }
  return true;
}

static int compare_groups(const void *left, const void *right) {
  const kept_group *a = left, *b = right;
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  return (a->first > b->first) - (a->first < b->first);
}

/* Whether a stack that allocates `count` times may do so in each of `of` blocks: the peak may be within one more
 * block, which has begun. */
static bool is_multiple(uint64_t count, uint64_t of) {
  return count >= of && count % of <= count / of;
}

/* Bytes of the stacks that allocate in each of `count` blocks. */
static uint64_t bytes_covered(const blocks *b, uint64_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < b->group_count; i++)
    if (is_multiple(b->groups[i].count, count)) bytes = tsr__sum_u64(bytes, b->groups[i].bytes);
  return bytes;
}

/* The number of blocks that most bytes agree on: the largest that covers nearly as many as any does. 0 if no
 * stack allocated three times. Sorts the groups by their number of allocations. Linear in groups times the
 * square root of allocations, since so many numbers can differ. */
static uint64_t number_of_blocks(blocks *b) {
  uint64_t best = 0, most = 0;
  tsr__sort(b->groups, b->group_count, sizeof *b->groups, compare_groups);
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < b->group_count; i++) {
      uint64_t count = b->groups[i].count;
      if (count < 3 || (i && count == b->groups[i - 1].count)) continue;
      uint64_t bytes = bytes_covered(b, count);
      if (bytes > most) most = bytes;
      if (round && bytes >= most / 4 * 3) best = count;
    }
  return best;
}

/* Drop the groups that do not allocate alike in each block: once, or some number of times. The last block may
 * still be at work, with temporaries besides. */
static void keep_regular(blocks *b) {
  size_t regular = 0;
  for (size_t i = 0; i < b->group_count; i++) {
    kept_group group = b->groups[i];
    uint64_t times = group.count / b->count;
    bool is_regular = is_multiple(group.count, b->count);
    group.count = times * b->count;
    group.bytes = 0;
    for (uint64_t k = 0; is_regular && k < group.count; k++) {
      const kept *item = &b->kept[group.first + k];
      group.bytes = tsr__sum_u64(group.bytes, item->bytes);
      is_regular = k < times || k + times >= group.count || item->bytes == (item - times)->bytes;
    }
    if (is_regular) b->groups[regular++] = group;
  }
  b->group_count = regular;
}

/* Do the blocks follow each other? Also notes the output of a block: what it allocates last. */
static bool is_loop(blocks *b) {
  uint32_t end = 0;
  for (uint64_t k = 0; k < b->count; k++) {
    uint32_t first = UINT32_MAX, last = 0;
    for (size_t i = 0; i < b->group_count; i++) {
      uint64_t times = b->groups[i].count / b->count;
      const kept *items = &b->kept[b->groups[i].first + k * times];
      if (items[0].birth < first) first = items[0].birth;
      if (items[times - 1].birth < last) continue;
      last = items[times - 1].birth;
      b->output_bytes = items[times - 1].bytes;
    }
    if (k && first <= end) return false;
    end = last;
  }
  return true;
}

/* Whether a frame is Python code of the program or of a library that builds on torch. Between such frames,
 * C++ and torch's own differ by how the interpreter happened to make the call. */
static bool is_code(const tsr_snapshot *snapshot, uint32_t id) {
  tsr_frame frame = tsr_snapshot_frame(snapshot, id);
  tsr_origin origin = tsr_frame_origin(tsr_snapshot_string(snapshot, frame.name),
                                       tsr_snapshot_string(snapshot, frame.file));
  return origin == TSR_ORIGIN_USER || origin == TSR_ORIGIN_LIBRARY;
}

/* The frames of a stack that are code, outermost first. `out` has room for its depth. */
static uint32_t list_code(const tsr_snapshot *snapshot, uint32_t stack, uint32_t *out) {
  tsr_stack frames = tsr_snapshot_stack(snapshot, stack);
  uint32_t count = 0;
  for (uint32_t i = frames.depth; i-- > 0;)
    if (is_code(snapshot, frames.frames[i])) out[count++] = frames.frames[i];
  return count;
}

/* The frame of the function that the code frame `at` of a stack, counted from the outermost, calls: code or torch's
 * Python, but for what passes a module's call on. TSR_NONE if that line allocates by itself. */
static uint32_t callee_of(const tsr_snapshot *snapshot, uint32_t stack, uint32_t at) {
  tsr_stack frames = tsr_snapshot_stack(snapshot, stack);
  uint32_t i = frames.depth, seen = 0;
  while (i > 0 && seen <= at) seen += is_code(snapshot, frames.frames[--i]);
  while (i-- > 0) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, frames.frames[i]);
    tsr_text file = tsr_snapshot_string(snapshot, frame.file);
    tsr_origin origin = tsr_frame_origin(tsr_snapshot_string(snapshot, frame.name), file);
    bool is_python =
        origin == TSR_ORIGIN_USER || origin == TSR_ORIGIN_LIBRARY || origin == TSR_ORIGIN_TORCH;
    if (!is_python || tsr__path_has(file, "torch/nn/modules/module.py")) continue;
    if (!tsr__frame_passes_on(snapshot, frames.frames[i])) return frames.frames[i];
  }
  return TSR_NONE;
}

static bool is_same_function(const tsr_snapshot *snapshot, uint32_t left, uint32_t right) {
  tsr_frame a = tsr_snapshot_frame(snapshot, left), b = tsr_snapshot_frame(snapshot, right);
  return a.name == b.name && a.file == b.file;
}

/* Whether all that a shared line calls is one function, which makes most of the bytes: the block. */
static bool calls_one_function(const tsr__finder *f, const blocks *b, uint32_t at) {
  uint32_t first = TSR_NONE;
  uint64_t bytes = 0;
  for (size_t i = 0; i < b->group_count; i++) {
    uint32_t callee = callee_of(f->t->snapshot, b->kept[b->groups[i].first].stack, at);
    if (callee == TSR_NONE) continue;
    if (first == TSR_NONE) first = callee;
    if (!is_same_function(f->t->snapshot, first, callee)) return false;
    bytes = tsr__sum_u64(bytes, b->groups[i].bytes);
  }
  return bytes > b->bytes / 2;
}

/* Whether a stack is in the call of a function that is the code frame `at` of `common`. */
static bool is_in_call(const tsr_snapshot *snapshot, const uint32_t *common, uint32_t at,
                       uint32_t stack) {
  tsr_stack frames = tsr_snapshot_stack(snapshot, stack);
  uint32_t seen = 0;
  for (uint32_t i = frames.depth; i-- > 0;) {
    if (!is_code(snapshot, frames.frames[i])) continue;
    if (seen == at) return is_same_function(snapshot, frames.frames[i], common[at]);
    if (frames.frames[i] != common[seen++]) return false;
  }
  return false;
}

/* The events from the first to the last of what the blocks keep. */
static void find_span(const blocks *b, uint32_t *first, uint32_t *last) {
  *first = UINT32_MAX, *last = 0;
  for (size_t i = 0; i < b->group_count; i++) {
    const kept *items = &b->kept[b->groups[i].first];
    uint32_t end = items[b->groups[i].count - 1].birth;
    if (items[0].birth < *first) *first = items[0].birth;
    if (end > *last) *last = end;
  }
}

/* Whether the function of a shared frame also allocates before or after the blocks, by a stack that is in none of them:
 * then it runs once in a pass, and the loop is in it. */
static bool works_outside(const tsr__finder *f, const blocks *b, const uint32_t *common,
                          uint32_t at, bool *out) {
  uint32_t first, last;
  find_span(b, &first, &last);
  size_t pass = tsr__cycle_passes_by(f->cycle, first);
  uint32_t start = pass ? f->cycle->passes.items[pass - 1] : 0;
  uint32_t end =
      pass < f->cycle->passes.count ? f->cycle->passes.items[pass] : (uint32_t)f->t->events.count;
  tsr__map seen = {0};
  bool ok = true;
  *out = false;
  for (uint32_t e = first; ok && e <= last; e++)
    if (f->t->events.action[e] == TSR_ACTION_ALLOC && f->t->events.stack[e] != TSR_NONE)
      ok = tsr__map_put(&seen, f->t->events.stack[e], 0, NULL) != NULL;
  for (uint32_t e = start; ok && e < end && !*out; e++) {
    uint32_t stack = f->t->events.stack[e];
    if (f->t->events.action[e] != TSR_ACTION_ALLOC || stack == TSR_NONE) continue;
    if (tsr__map_find(&seen, stack)) continue;
    *out = is_in_call(f->t->snapshot, common, at, stack);
    ok = tsr__map_put(&seen, stack, 0, NULL) != NULL;
  }
  tsr__map_release(&seen);
  return ok;
}

/* Whether the innermost shared frame is a line of the block, and not the one that calls it: it calls several functions,
 * or makes most by itself, and its function does nothing but the blocks. Code at a module's level is in no block. */
static bool is_within_block(const tsr__finder *f, const blocks *b, const uint32_t *common,
                            uint32_t at, bool *out) {
  static const char module[] = "<module>";
  tsr_frame frame = tsr_snapshot_frame(f->t->snapshot, common[at]);
  tsr_text name = tsr_snapshot_string(f->t->snapshot, frame.name);
  bool is_module =
      name.size_bytes == sizeof module - 1 && !memcmp(name.data, module, sizeof module - 1);
  bool is_outside = false;
  *out = false;
  if (!at || is_module) return true;
  if (calls_one_function(f, b, at)) return true;
  if (!works_outside(f, b, common, at, &is_outside)) return false;
  *out = !is_outside;
  return true;
}

/* The code frames that all stacks of the blocks share, from the outermost. `common` has room for all of the first
 * stack's, `all` of them; `other` for the deepest stack's. */
static uint32_t list_shared(const tsr_snapshot *snapshot, const blocks *b, uint32_t *common,
                            uint32_t *other, uint32_t *all) {
  uint32_t shared = 0;
  for (size_t i = 0; i < b->group_count; i++) {
    uint32_t stack = b->kept[b->groups[i].first].stack, same = 0;
    uint32_t count = list_code(snapshot, stack, i ? other : common);
    if (!i) shared = *all = count;
    while (i && same < shared && same < count && other[same] == common[same]) same++;
    if (i) shared = same;
  }
  return shared;
}

static uint32_t drop_wrappers(const tsr_snapshot *snapshot, const uint32_t *common,
                              uint32_t shared) {
  while (shared && tsr__frame_passes_on(snapshot, common[shared - 1])) shared--;
  return shared;
}

/* The line that calls the blocks, and the frame of the block's code that it calls, of the first stack. TSR_NONE if
 * absent. */
static bool calling_frame(const tsr__finder *f, const blocks *b, uint32_t *out, uint32_t *block) {
  const tsr_snapshot *snapshot = f->t->snapshot;
  uint32_t deepest = 0, all = 0;
  bool is_within = false;
  for (size_t i = 0; i < b->group_count; i++) {
    uint32_t depth = tsr_snapshot_stack(snapshot, b->kept[b->groups[i].first].stack).depth;
    if (depth > deepest) deepest = depth;
  }
  uint32_t *common = TSR__NEW_ARRAY(uint32_t, (size_t)deepest * 2 + 1), *other = common + deepest;
  if (!common) return false;
  uint32_t shared = drop_wrappers(snapshot, common, list_shared(snapshot, b, common, other, &all));
  bool ok = !shared || is_within_block(f, b, common, shared - 1, &is_within);
  uint32_t caller = is_within ? drop_wrappers(snapshot, common, shared - 1) : shared;
  if (caller) shared = caller;
  *out = shared ? common[shared - 1] : TSR_NONE;
  while (shared < all && tsr__frame_passes_on(snapshot, common[shared])) shared++;
  *block = shared && shared < all ? common[shared] : TSR_NONE;
  tsr__free(common);
  return ok;
}

/* Checkpointed, a block keeps its input, which is the output of the one before; and while one runs
 * backward, all of its own. */
static uint64_t saved_by_checkpoints(const blocks *b) {
  uint64_t block = b->bytes / b->count;
  if (block <= b->output_bytes) return 0;
  return (block - b->output_bytes) * (b->count - 1);
}

/* Whether one of the stacks of the blocks made this activation. */
static bool is_of_blocks(const tsr__finder *f, tsr__map *stacks, uint32_t allocation) {
  if (allocation == TSR_NONE || f->category[allocation] != TSR_CATEGORY_ACTIVATION) return false;
  return birth_of(f, allocation) != TSR_NONE &&
         tsr__map_find(stacks, tsr__timeline_stack(f->t, allocation));
}

/* The peak if the blocks were checkpointed in every pass, as if they saved the same share of what they keep at
 * any moment. It may be another moment than now: an optimizer's step keeps nothing of them. */
static int peak_without(const tsr__finder *f, const blocks *b, uint64_t saved, uint64_t *out,
                        tsr_error *error) {
  tsr__map stacks = {0};
  tsr__sweep sweep = {.born = TSR_NONE};
  double share = (double)saved / (double)b->bytes, most = 0;
  uint64_t now = 0; /* kept of the blocks */
  bool ok = true;
  for (size_t i = 0; ok && i < b->group_count; i++)
    ok = tsr__map_put(&stacks, b->kept[b->groups[i].first].stack, 0, NULL) != NULL;
  int status = ok ? tsr__sweep_begin(f->t, &sweep, error) : tsr__fail_memory(error);
  while (status == 0) {
    if (is_of_blocks(f, &stacks, sweep.born)) now += tsr__timeline_requested(f->t, sweep.born);
    if (is_of_blocks(f, &stacks, sweep.died)) now -= tsr__timeline_requested(f->t, sweep.died);
    double left = (double)sweep.totals.allocated_bytes - share * (double)now;
    if (left > most) most = left;
    if (!tsr__sweep_next(&sweep)) break;
  }
  assert(status || most <= (double)f->peak_bytes);
  if (status == 0) *out = (uint64_t)most;
  tsr__sweep_release(&sweep);
  tsr__map_release(&stacks);
  return status;
}

static bool note_blocks(tsr__finder *f, const blocks *b) {
  bool ok = true;
  for (size_t i = 0; i < b->group_count; i++)
    for (uint64_t k = 0; ok && k < b->groups[i].count; k++)
      ok = tsr__finder_note(f, TSR_FINDING_CHECKPOINT, b->kept[b->groups[i].first + k].allocation);
  return ok;
}

static bool add_checkpoint(tsr__finder *f, const blocks *b, tsr_error *error) {
  uint64_t saved = saved_by_checkpoints(b), largest = 0, left = 0;
  uint32_t frame = TSR_NONE, block = TSR_NONE, stack = TSR_NONE;
  if (!calling_frame(f, b, &frame, &block)) return false;
  if (frame == TSR_NONE || !tsr__finder_is_worth_it(f, saved)) return true;
  if (peak_without(f, b, saved, &left, error)) return false;
  uint64_t lower = tsr__drop_u64(f->peak_bytes, left);
  if (lower < saved) saved = lower;
  if (!tsr__finder_is_worth_it(f, saved) || saved < f->peak_bytes / 10) return true;
  if (!note_blocks(f, b)) return false;
  for (size_t i = 0; i < b->group_count; i++) {
    if (b->groups[i].bytes <= largest) continue;
    largest = b->groups[i].bytes;
    stack = b->kept[b->groups[i].first].stack;
  }
  return tsr__finder_add(
      f, (tsr_finding){.rule = TSR_FINDING_CHECKPOINT,
                       .bytes = b->bytes / b->count,
                       .saved_bytes = saved,
                       .count = b->count,
                       .has_backward = f->has_backward || f->phases->is_training_marked,
                       .event = f->t->allocated_event,
                       .frame = frame,
                       .block = block,
                       .call = tsr__checkpoint_call(f->t->snapshot, stack, frame),
                       .stack = stack});
}

static uint64_t count_kept(const blocks *b) {
  uint64_t count = 0;
  for (size_t i = 0; i < b->group_count; i++) count += b->groups[i].count;
  return count / b->count;
}

/* Blocks that keep two tensors each are checkpointed already, or a cache of keys and values. */
static bool find_checkpoint(tsr__finder *f, tsr_error *error) {
  blocks b = {0};
  bool ok = f->out->items.count && f->out->items.items[0].rule == TSR_FINDING_NO_GRAD;
  if (ok) return true; /* no backward pass: nothing to recompute */
  ok = list_kept(f, &b);
  if (ok && (b.count = number_of_blocks(&b))) {
    keep_regular(&b);
    for (size_t i = 0; i < b.group_count; i++) b.bytes = tsr__sum_u64(b.bytes, b.groups[i].bytes);
    if (count_kept(&b) > 2 && is_loop(&b)) ok = add_checkpoint(f, &b, error);
  }
  tsr__free(b.kept);
  tsr__free(b.groups);
  return ok;
}

/* ---- All rules ---- */

/* The stack with most of what a finding is about, whether that is more than half of it, and whether another has as
 * much. */
static bool find_largest_part(const tsr__finder *f, tsr_finding *finding) {
  uint64_t whole = 0, most = 0;
  tsr__map sums = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < f->out->allocations[finding->rule].count; i++) {
    uint32_t a = f->out->allocations[finding->rule].items[i];
    uint32_t stack = tsr__timeline_stack(f->t, a);
    uint64_t bytes = tsr__timeline_requested(f->t, a);
    uint64_t *sum = tsr__map_put(&sums, stack, 0, NULL);
    ok = sum != NULL;
    whole = tsr__sum_u64(whole, bytes);
    if (!ok) break;
    *sum = tsr__sum_u64(*sum, bytes);
    if (*sum <= most) continue;
    most = *sum;
    finding->stack = stack;
  }
  finding->is_most = most > whole / 2;
  for (size_t i = 0; ok && i < f->out->allocations[finding->rule].count; i++) {
    uint32_t stack = tsr__timeline_stack(f->t, f->out->allocations[finding->rule].items[i]);
    finding->is_tied |= stack != finding->stack && *tsr__map_find(&sums, stack) == most;
  }
  tsr__map_release(&sums);
  return ok;
}

/* What is cached does not count at the peak: last. */
static int compare_findings(const void *left, const void *right) {
  const tsr_finding *a = left, *b = right;
  bool is_cached = a->rule == TSR_FINDING_CACHED;
  if (is_cached != (b->rule == TSR_FINDING_CACHED)) return is_cached ? 1 : -1;
  if (a->saved_bytes != b->saved_bytes) return a->saved_bytes > b->saved_bytes ? -1 : 1;
  return (a->rule > b->rule) - (a->rule < b->rule);
}

int tsr__findings_compute(const tsr__finding_sources *from, tsr__findings *out, tsr_error *error) {
  tsr__finder f = {.t = from->timeline,
                   .phases = from->phases,
                   .cycle = from->cycle,
                   .has_backward = tsr__phases_train(from->phases),
                   .category = from->categories->category,
                   .evidence = from->categories->evidence,
                   .peak_bytes = from->timeline->at_peak.allocated_bytes};
  tsr__findings made = {0};
  f.out = &made;
  assert(from->categories->count == from->timeline->birth.count);
  int status = tsr__timeline_live(f.t, f.t->allocated_event, &f.live, error);
  if (status) return status;
  bool ok = find_no_grad(&f) && find_checkpoint(&f, error) && tsr__find_attention(&f, error) &&
            find_two_forwards(&f) && find_old_gradients(&f) &&
            tsr__find_stale_gradients(&f, error) && tsr__find_held_outputs(&f, error) &&
            tsr__find_states(&f, error) && find_cached(&f, error);
  for (size_t i = 0; ok && i < made.items.count; i++)
    ok = find_largest_part(&f, &made.items.items[i]);
  if (ok && made.items.count)
    tsr__sort(made.items.items, made.items.count, sizeof *made.items.items, compare_findings);
  TSR__VECTOR_FREE(&f.live);
  if (!ok) {
    tsr__findings_release(&made);
    return tsr__fail_memory(error);
  }
  *out = made;
  return 0;
}

void tsr__findings_release(tsr__findings *findings) {
  TSR__VECTOR_FREE(&findings->items);
  for (size_t i = 0; i < TSR_FINDING_RULE_COUNT; i++) TSR__VECTOR_FREE(&findings->allocations[i]);
}
