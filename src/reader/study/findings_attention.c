/* findings_attention.c - attention weights that are kept for the backward pass: what fused attention does without.
 *
 * Evidence is a softmax that a function of attention calls, in frames of Python or C++, whose outputs are kept in
 * three layers or more. What the same function keeps in the size of that output, or a half or a quarter of it (the
 * weights in 16 bits, the mask of a dropout), goes with it. PyTorch's own
 * scaled_dot_product_attention does not count, because it chooses its kernel itself. */
#include <string.h>

#include "attribution/frames.h"
#include "base/map.h"
#include "base/memory.h"
#include "study/block_call.h"
#include "study/finder.h"
#include "timeline/sweep.h"

enum { LAYERS = 3 };

/* What a stack says of attention. */
typedef struct site {
  bool is_known, has_softmax;
  uint32_t function; /* frame id of the innermost function of attention; TSR_NONE: it is of none */
} site;

typedef struct search {
  const tsr__finder *f;
  site *sites; /* by stack */
  uint64_t
      *weights; /* by frame id of a function: the size of its softmax's outputs, 0 if it has none */
  uint64_t *layers;     /* likewise, how many of these are kept */
  uint32_t stack_count; /* of the snapshot */
  tsr__map
      functions; /* by name and file: the first frame id of the function, which stands for all */
  bool is_out_of_memory;
} search;

static bool holds(tsr_text text, const char *word) {
  size_t size = strlen(word);
  for (size_t at = 0; at + size <= text.size_bytes; at++)
    if (memcmp(text.data + at, word, size) == 0) return true;
  return false;
}

static bool ends(tsr_text text, const char *word) {
  size_t size = strlen(word);
  return text.size_bytes >= size && memcmp(text.data + text.size_bytes - size, word, size) == 0;
}

static site read_stack(const tsr_snapshot *snapshot, uint32_t id) {
  site found = {.is_known = true, .function = TSR_NONE};
  tsr_stack stack = tsr_snapshot_stack(snapshot, id);
  for (uint32_t i = 0; i < stack.depth && found.function == TSR_NONE; i++) {
    tsr_frame frame = tsr_snapshot_frame(snapshot, stack.frames[i]);
    tsr_text name = tsr_snapshot_string(snapshot, frame.name);
    bool is_python = !holds(name, "::");
    tsr_text function = is_python ? name : tsr__function_of(name);
    if (ends(function, "softmax") && !ends(function, "log_softmax")) found.has_softmax = true;
    /* PyTorch's own, and what transformers calls it by */
    if ((!is_python && holds(name, "scaled_dot_product")) || ends(name, "sdpa_attention_forward"))
      break;
    if (is_python && (holds(name, "attention") || holds(name, "Attention") || holds(name, "attn")))
      found.function = stack.frames[i];
  }
  return found;
}

static const site *site_of(search *s, uint32_t allocation) {
  static const site none = {.function = TSR_NONE};
  const tsr_snapshot *snapshot = s->f->t->snapshot;
  uint32_t stack = tsr__timeline_stack(s->f->t, allocation);
  if (stack == TSR_NONE || stack >= s->stack_count) return &none;
  site *at = &s->sites[stack];
  if (at->is_known) return at;
  *at = read_stack(snapshot, stack);
  if (at->function == TSR_NONE) return at;
  tsr_frame frame = tsr_snapshot_frame(snapshot, at->function);
  uint64_t *first =
      tsr__map_put(&s->functions, (uint64_t)frame.name << 32 | frame.file, at->function, NULL);
  if (first)
    at->function = (uint32_t)*first;
  else
    s->is_out_of_memory = true;
  return at;
}

static bool is_kept(const tsr__finder *f, uint32_t allocation) {
  return f->category[allocation] == TSR_CATEGORY_ACTIVATION &&
         f->t->birth.items[allocation] != TSR_NONE;
}

static bool is_attention(search *s, uint32_t allocation) {
  const site *at = site_of(s, allocation);
  if (at->function == TSR_NONE || !s->weights[at->function]) return false;
  uint64_t whole = s->weights[at->function], bytes = tsr__timeline_requested(s->f->t, allocation);
  return at->has_softmax || bytes == whole || bytes == whole / 2 || bytes == whole / 4;
}

static void weigh_softmax(search *s) {
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < s->f->live.count; i++) {
      uint32_t a = s->f->live.items[i];
      const site *at = site_of(s, a);
      if (!is_kept(s->f, a) || !at->has_softmax || at->function == TSR_NONE) continue;
      uint64_t bytes = tsr__timeline_requested(s->f->t, a), *most = &s->weights[at->function];
      if (!round && bytes > *most) *most = bytes;
      if (round) s->layers[at->function] += bytes == *most;
    }
  for (uint32_t stack = 0; stack < s->stack_count; stack++) {
    uint32_t function = s->sites[stack].is_known ? s->sites[stack].function : TSR_NONE;
    if (function != TSR_NONE && s->layers[function] < LAYERS) s->weights[function] = 0;
  }
}

/* The peak of the trace without what attention's functions keep and work with in such sizes. */
static int peak_without(search *s, uint64_t *out, tsr_error *error) {
  tsr__sweep sweep = {.born = TSR_NONE};
  uint64_t now = 0, most = 0;
  int status = tsr__sweep_begin(s->f->t, &sweep, error);
  while (!status) {
    if (sweep.born != TSR_NONE && is_attention(s, sweep.born))
      now += s->f->t->block_bytes.items[sweep.born];
    if (sweep.died != TSR_NONE && is_attention(s, sweep.died))
      now = tsr__drop_u64(now, s->f->t->block_bytes.items[sweep.died]);
    uint64_t left = tsr__drop_u64(sweep.totals.allocated_bytes, now);
    if (left > most) most = left;
    if (!tsr__sweep_next(&sweep)) break;
  }
  tsr__sweep_release(&sweep);
  *out = most;
  return status;
}

static bool gather(tsr__finder *f, search *s, tsr_finding *finding) {
  uint64_t largest = 0;
  for (size_t i = 0; i < f->live.count; i++) {
    uint32_t a = f->live.items[i];
    if (!is_kept(f, a) || !is_attention(s, a)) continue;
    uint64_t bytes = tsr__timeline_requested(f->t, a);
    finding->bytes = tsr__sum_u64(finding->bytes, bytes);
    finding->count++;
    if (!tsr__finder_note(f, finding->rule, a)) return false;
    if (bytes <= largest) continue;
    largest = bytes;
    finding->stack = tsr__timeline_stack(f->t, a);
    finding->frame = site_of(s, a)->function;
  }
  return true;
}

static bool weigh(tsr__finder *f, search *s, tsr_finding *finding, tsr_error *error) {
  uint64_t left;
  if (!gather(f, s, finding)) return false;
  if (!tsr__finder_is_worth_it(f, finding->bytes)) return true;
  if (peak_without(s, &left, error)) return false;
  finding->saved_bytes = tsr__drop_u64(f->peak_bytes, left);
  if (finding->saved_bytes > finding->bytes) finding->saved_bytes = finding->bytes;
  tsr_frame frame = tsr_snapshot_frame(f->t->snapshot, finding->frame);
  bool is_transformers =
      tsr__path_has(tsr_snapshot_string(f->t->snapshot, frame.file), "transformers/");
  finding->call = is_transformers ? TSR_FINDING_CALL_SDPA_TRANSFORMERS : TSR_FINDING_CALL_SDPA;
  return true;
}

bool tsr__find_attention(tsr__finder *f, tsr_error *error) {
  const tsr_snapshot *snapshot = f->t->snapshot;
  uint32_t frames = tsr_snapshot_frame_count(snapshot);
  search s = {.f = f, .stack_count = tsr_snapshot_stack_count(snapshot)};
  tsr_finding finding = {.rule = TSR_FINDING_ATTENTION,
                         .event = f->t->allocated_event,
                         .frame = TSR_NONE,
                         .stack = TSR_NONE};
  s.sites = TSR__NEW_ARRAY(site, (size_t)s.stack_count + 1);
  s.weights = TSR__NEW_ARRAY(uint64_t, (size_t)frames + 1);
  s.layers = TSR__NEW_ARRAY(uint64_t, (size_t)frames + 1);
  bool is_of_no_use = f->out->items.count && f->out->items.items[0].rule == TSR_FINDING_NO_GRAD;
  bool ok = s.sites && s.weights && s.layers;
  if (ok && !is_of_no_use) {
    weigh_softmax(&s);
    ok = weigh(f, &s, &finding, error) && !s.is_out_of_memory;
  }
  tsr__map_release(&s.functions);
  tsr__free(s.sites);
  tsr__free(s.weights);
  tsr__free(s.layers);
  if (ok && finding.saved_bytes && tsr__finder_is_worth_it(f, finding.saved_bytes))
    return tsr__finder_add(f, finding);
  f->out->allocations[TSR_FINDING_ATTENTION].count = 0;
  return ok;
}
