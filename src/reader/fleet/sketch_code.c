/* sketch_code.c - a sketch as bytes: docs/sketch.md.
 *
 * Numbers are LEB128; signed ones are zigzag first. A table (texts, frames, stacks) has only what the shares that are kept refer to,
 * in the order of first use, so that equal sketches give equal bytes. A sum over all bytes comes last. */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/intern.h"
#include "fleet/bytes.h"
#include "fleet/sketch.h"

static const char magic[] = "tessera/sketch/2\n";
/* What sketches of all versions begin with. */
static const char family[] = "tessera/sketch/";
enum { MAGIC_BYTES = sizeof magic - 1, MOST_DEPTH = 64 };
/* What a decoder allows, above what an encoder writes: 64 KiB have room for no more. */
#define MOST_ROWS ((uint64_t)TSR__SKETCH_MOST_BYTES)

/* ---- Encoding ---- */

typedef struct writer {
  const tsr__sketch *from;
  tsr__buffer body;                  /* devices, which come last */
  tsr__intern texts, frames, stacks; /* what they refer to */
  bool is_failed;
} writer;

static void put_signed(tsr__buffer *out, int64_t number) {
  tsr__put_leb(out, (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0));
}

static uint32_t put_text(writer *w, uint32_t offset) {
  const char *text = w->from->texts.data + offset;
  uint32_t id = tsr__intern_put(&w->texts, text, strlen(text), NULL);
  if (id == TSR__INTERN_FULL) w->is_failed = true;
  return id;
}

typedef struct frame_key {
  uint64_t line;
  uint32_t name, file;
} frame_key;

/* 1 + the number of the stack among those that are written; 0 for TSR_NONE. */
static uint64_t put_stack(writer *w, uint32_t stack) {
  uint32_t ids[MOST_DEPTH];
  if (stack == TSR_NONE) return 0;
  const tsr__sketch_stack *s = &w->from->stacks.items[stack];
  assert(stack < w->from->stacks.count && s->depth <= MOST_DEPTH);
  for (uint32_t i = 0; i < s->depth; i++) {
    const tsr__sketch_frame *f = &w->from->frames.items[s->first_frame + i];
    frame_key key = {f->line, put_text(w, f->name), put_text(w, f->file)};
    ids[i] = tsr__intern_put(&w->frames, &key, sizeof key, NULL);
    if (ids[i] == TSR__INTERN_FULL) w->is_failed = true;
  }
  uint32_t id = tsr__intern_put(&w->stacks, ids, s->depth * sizeof *ids, NULL);
  if (id == TSR__INTERN_FULL) w->is_failed = true;
  return (uint64_t)id + 1;
}

static void put_shares(writer *w, const tsr__sketch_share *shares, size_t count) {
  tsr__put_leb(&w->body, count);
  for (size_t i = 0; i < count; i++) {
    tsr__put_leb(&w->body, put_stack(w, shares[i].stack));
    tsr__put_leb(&w->body, shares[i].category);
    tsr__put_leb(&w->body, shares[i].bytes);
    tsr__put_leb(&w->body, shares[i].count);
  }
}

static void put_steps(tsr__buffer *out, const tsr__sketch_device *d) {
  tsr__put_leb(out, d->step_count);
  tsr__put_leb(out, d->whole_steps);
  tsr__put_leb(out, d->steps.count);
  int64_t before = 0;
  for (size_t i = 0; i < d->steps.count; i++) {
    const tsr__sketch_step *step = &d->steps.items[i];
    for (size_t k = 0; k < TSR__SKETCH_MOMENTS; k++) {
      put_signed(out, (int64_t)((uint64_t)step->at_us[k] - (uint64_t)before));
      before = step->at_us[k];
    }
    tsr__put_leb(out, step->peak_bytes);
    tsr__put_leb(out, step->end_bytes);
  }
}

static void put_device(writer *w, const tsr__sketch_device *d, size_t most) {
  tsr__buffer *out = &w->body;
  size_t count = d->shares.count < most ? d->shares.count : most;
  uint64_t rest = (uint64_t)d->rest_bytes;
  for (size_t i = count; i < d->shares.count; i++) rest += d->shares.items[i].bytes;
  tsr__put_leb(out, d->device);
  tsr__put_leb(out, d->event_count);
  put_signed(out, d->first_us);
  put_signed(out, d->last_us);
  put_signed(out, d->peak_event);
  put_signed(out, d->peak_us);
  tsr__put_leb(out, d->peak_bytes);
  tsr__put_leb(out, d->peak_reserved_bytes);
  tsr__put_leb(out, d->end_bytes);
  tsr__put_leb(out, d->end_reserved_bytes);
  tsr__put_leb(out, d->limit_bytes);
  tsr__put_leb(out, d->known_peak_bytes);
  put_signed(out, d->stop.event);
  put_signed(out, d->stop.time_us);
  tsr__put_leb(out, d->stop.request_bytes);
  tsr__put_leb(out, d->stop.free_bytes);
  tsr__put_leb(out, put_stack(w, d->stop.stack));
  put_signed(out, (int64_t)rest);
  put_shares(w, d->shares.items, count);
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) tsr__put_leb(out, d->category_highs[i]);
  put_shares(w, d->highs.items, d->highs.count < most ? d->highs.count : most);
  tsr__put_leb(out, d->kept_steps);
  put_shares(w, d->kept.items, d->kept.count < most / 4 ? d->kept.count : most / 4);
  put_shares(w, d->ends.items, d->ends.count < most / 4 ? d->ends.count : most / 4);
  put_steps(out, d);
  for (size_t i = 0; i < TSR__SKETCH_PARTS; i++) tsr__put_leb(out, d->parts[i]);
}

static void put_tables(const writer *w, tsr__buffer *out) {
  tsr__put_leb(out, w->texts.count);
  for (uint32_t i = 0; i < w->texts.count; i++) {
    tsr__put_leb(out, w->texts.items[i].size_bytes);
    tsr__buffer_append(out, w->texts.items[i].data, w->texts.items[i].size_bytes);
  }
  tsr__put_leb(out, w->frames.count);
  for (uint32_t i = 0; i < w->frames.count; i++) {
    frame_key key;
    memcpy(&key, w->frames.items[i].data, sizeof key);
    tsr__put_leb(out, key.name);
    tsr__put_leb(out, key.file);
    tsr__put_leb(out, key.line);
  }
  tsr__put_leb(out, w->stacks.count);
  for (uint32_t i = 0; i < w->stacks.count; i++) {
    uint32_t depth = w->stacks.items[i].size_bytes / (uint32_t)sizeof(uint32_t), frame;
    tsr__put_leb(out, depth);
    for (uint32_t k = 0; k < depth; k++) {
      memcpy(&frame, w->stacks.items[i].data + k * sizeof frame, sizeof frame);
      tsr__put_leb(out, frame);
    }
  }
}

static void put_place(tsr__buffer *out, const tsr_rank_place *place) {
  put_signed(out, place->rank);
  put_signed(out, place->world_size);
  tsr__put_leb(out, place->axis_count);
  for (size_t i = 0; i < place->axis_count; i++) {
    const tsr_mesh_axis *axis = &place->axes[i];
    tsr__put_leb(out, strlen(axis->name));
    tsr__buffer_append(out, axis->name, strlen(axis->name));
    tsr__put_leb(out, axis->size);
    tsr__put_leb(out, axis->at);
  }
}

/* With at most `most` shares a device. */
static bool encode(const tsr__sketch *sketch, size_t most, tsr__buffer *out) {
  writer w = {.from = sketch};
  size_t begin = out->size;
  tsr__intern_init(&w.texts);
  tsr__intern_init(&w.frames);
  tsr__intern_init(&w.stacks);
  tsr__put_leb(&w.body, sketch->devices.count);
  for (size_t i = 0; i < sketch->devices.count; i++)
    put_device(&w, &sketch->devices.items[i], most);
  tsr__buffer_append(out, magic, MAGIC_BYTES);
  tsr__put_leb(out, sketch->input_bytes);
  put_place(out, &sketch->place);
  put_signed(out, sketch->taken_us);
  put_signed(out, sketch->started_us);
  tsr__put_leb(out, sketch->is_partial);
  put_tables(&w, out);
  tsr__buffer_append(out, w.body.data, w.body.size);
  bool ok = !w.is_failed && !w.body.failed && !out->failed;
  if (ok) tsr__put_sum(out, begin);
  tsr__buffer_release(&w.body);
  tsr__intern_release(&w.texts);
  tsr__intern_release(&w.frames);
  tsr__intern_release(&w.stacks);
  return ok && !out->failed;
}

bool tsr__sketch_encode(const tsr__sketch *sketch, tsr__buffer *out) {
  size_t begin = out->size;
  for (size_t most = 2048;; most = most * 3 / 4) {
    out->size = begin;
    if (!encode(sketch, most, out)) return false;
    if (out->size - begin <= TSR__SKETCH_MOST_BYTES || !most) return true;
  }
}

/* ---- Decoding ---- */

typedef struct reader {
  const unsigned char *at, *end;
  bool is_wrong, is_failed; /* not a sketch; out of memory */
  tsr__sketch *out;
  TSR__VECTOR(uint32_t) texts; /* offsets */
  TSR__VECTOR(tsr__sketch_frame) frames;
} reader;

static uint64_t get(reader *r) {
  uint64_t number;
  if (!tsr__get_leb(&r->at, r->end, UINT64_MAX, &number)) r->is_wrong = true;
  return number;
}

static int64_t get_signed(reader *r) {
  uint64_t number = get(r);
  return (int64_t)(number >> 1 ^ (number & 1 ? UINT64_MAX : 0));
}

/* A number below `limit`. */
static uint64_t get_below(reader *r, uint64_t limit) {
  uint64_t number = get(r);
  if (number < limit) return number;
  r->is_wrong = true;
  return 0;
}

/* How many rows follow, each of at least one byte. */
static size_t get_count(reader *r) {
  size_t count = (size_t)get_below(r, MOST_ROWS);
  if (count > (size_t)(r->end - r->at)) r->is_wrong = true;
  return r->is_wrong ? 0 : count;
}

static void get_texts(reader *r) {
  size_t count = get_count(r);
  for (size_t i = 0; i < count && !r->is_wrong && !r->is_failed; i++) {
    size_t size = get_count(r);
    if (r->is_wrong || memchr(r->at, 0, size)) {
      r->is_wrong = true;
      return;
    }
    if (!TSR__VECTOR_PUSH(&r->texts, (uint32_t)r->out->texts.size)) r->is_failed = true;
    tsr__buffer_append(&r->out->texts, r->at, size);
    tsr__buffer_append(&r->out->texts, "", 1);
    r->at += size;
  }
  if (r->out->texts.failed) r->is_failed = true;
}

static void get_frames(reader *r) {
  size_t count = get_count(r);
  for (size_t i = 0; i < count && !r->is_wrong && !r->is_failed; i++) {
    uint64_t name = get_below(r, r->texts.count), file = get_below(r, r->texts.count);
    uint64_t line = get(r);
    if (r->is_wrong) return;
    tsr__sketch_frame frame = {r->texts.items[name], r->texts.items[file], line};
    if (!TSR__VECTOR_PUSH(&r->frames, frame)) r->is_failed = true;
  }
}

static void get_stacks(reader *r) {
  size_t count = get_count(r);
  for (size_t i = 0; i < count && !r->is_wrong && !r->is_failed; i++) {
    uint64_t depth = get_below(r, MOST_DEPTH + 1);
    tsr__sketch_stack stack = {(uint32_t)r->out->frames.count, (uint32_t)depth};
    for (uint64_t k = 0; k < depth && !r->is_failed; k++) {
      uint64_t frame = get_below(r, r->frames.count);
      if (r->is_wrong) return;
      if (!TSR__VECTOR_PUSH(&r->out->frames, r->frames.items[frame])) r->is_failed = true;
    }
    if (!TSR__VECTOR_PUSH(&r->out->stacks, stack)) r->is_failed = true;
  }
}

static uint32_t get_stack(reader *r) {
  uint64_t stack = get_below(r, r->out->stacks.count + 1);
  return stack ? (uint32_t)stack - 1 : TSR_NONE;
}

static void get_shares(reader *r, tsr__sketch_shares *shares) {
  size_t count = get_count(r);
  for (size_t i = 0; i < count && !r->is_wrong && !r->is_failed; i++) {
    tsr__sketch_share share = {.stack = get_stack(r),
                               .category = (uint8_t)get_below(r, TSR_CATEGORY_COUNT)};
    share.bytes = get(r);
    share.count = get(r);
    if (!TSR__VECTOR_PUSH(shares, share)) r->is_failed = true;
  }
}

static void get_steps(reader *r, tsr__sketch_device *d) {
  d->step_count = get(r);
  d->whole_steps = get(r);
  size_t count = get_count(r);
  int64_t before = 0;
  if (count > TSR__SKETCH_STEPS) r->is_wrong = true;
  for (size_t i = 0; i < count && !r->is_wrong && !r->is_failed; i++) {
    tsr__sketch_step step;
    for (size_t k = 0; k < TSR__SKETCH_MOMENTS; k++)
      before = step.at_us[k] = (int64_t)((uint64_t)before + (uint64_t)get_signed(r));
    step.peak_bytes = get(r);
    step.end_bytes = get(r);
    if (!TSR__VECTOR_PUSH(&d->steps, step)) r->is_failed = true;
  }
}

static void get_device(reader *r, tsr__sketch_device *d) {
  d->device = (uint32_t)get_below(r, TSR_DEVICE_CPU + 1);
  d->event_count = get(r);
  d->first_us = get_signed(r);
  d->last_us = get_signed(r);
  d->peak_event = get_signed(r);
  d->peak_us = get_signed(r);
  d->peak_bytes = get(r);
  d->peak_reserved_bytes = get(r);
  d->end_bytes = get(r);
  d->end_reserved_bytes = get(r);
  d->limit_bytes = get(r);
  d->known_peak_bytes = get(r);
  d->stop.event = get_signed(r);
  d->stop.time_us = get_signed(r);
  d->stop.request_bytes = get(r);
  d->stop.free_bytes = get(r);
  d->stop.stack = get_stack(r);
  d->rest_bytes = get_signed(r);
  get_shares(r, &d->shares);
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) d->category_highs[i] = get(r);
  get_shares(r, &d->highs);
  d->kept_steps = get(r);
  get_shares(r, &d->kept);
  get_shares(r, &d->ends);
  get_steps(r, d);
  for (size_t i = 0; i < TSR__SKETCH_PARTS; i++) d->parts[i] = get(r);
}

static void get_place(reader *r, tsr_rank_place *place) {
  place->rank = get_signed(r);
  place->world_size = get_signed(r);
  if (place->rank < -1 || place->rank >= UINT32_MAX || place->world_size < -1 ||
      place->world_size >= UINT32_MAX)
    r->is_wrong = true;
  place->axis_count = (size_t)get_below(r, TSR_MESH_AXES + 1);
  for (size_t i = 0; i < place->axis_count && !r->is_wrong; i++) {
    tsr_mesh_axis *axis = &place->axes[i];
    size_t size = (size_t)get_below(r, TSR_MESH_NAME_BYTES);
    if (size > (size_t)(r->end - r->at)) r->is_wrong = true;
    if (r->is_wrong) return;
    memcpy(axis->name, r->at, size);
    r->at += size;
    axis->size = (uint32_t)get_below(r, UINT32_MAX);
    axis->at = (uint32_t)get_below(r, UINT32_MAX);
  }
}

/* Shares and what is in none must come to the peak. */
static bool adds_up(const tsr__sketch_device *d) {
  uint64_t sum = (uint64_t)d->rest_bytes;
  for (size_t i = 0; i < d->shares.count; i++) sum += d->shares.items[i].bytes;
  return sum == d->peak_bytes && d->peak_bytes <= INT64_MAX;
}

static void get_all(reader *r) {
  r->out->input_bytes = get(r);
  get_place(r, &r->out->place);
  r->out->taken_us = get_signed(r);
  r->out->started_us = get_signed(r);
  r->out->is_partial = get_below(r, 2);
  get_texts(r);
  get_frames(r);
  get_stacks(r);
  size_t count = (size_t)get_below(r, TSR__SKETCH_DEVICES + 1);
  for (size_t i = 0; i < count && !r->is_wrong && !r->is_failed; i++) {
    if (!TSR__VECTOR_PUSH(&r->out->devices, (tsr__sketch_device){0})) {
      r->is_failed = true;
      return;
    }
    get_device(r, &r->out->devices.items[i]);
    if (i && r->out->devices.items[i].device <= r->out->devices.items[i - 1].device)
      r->is_wrong = true; /* each once, in their order */
    if (!r->is_failed && !adds_up(&r->out->devices.items[i])) r->is_wrong = true;
  }
}

int tsr__sketch_decode(const void *data, size_t size_bytes, tsr__sketch *out, tsr_error *error) {
  const unsigned char *bytes = data;
  *out = (tsr__sketch){0};
  bool is_sketch = size_bytes >= MAGIC_BYTES + TSR__SUM_BYTES &&
                   size_bytes <= 2 * TSR__SKETCH_MOST_BYTES && !memcmp(bytes, magic, MAGIC_BYTES);
  if (!is_sketch && size_bytes >= MAGIC_BYTES && !memcmp(bytes, family, sizeof family - 1) &&
      memcmp(bytes, magic, MAGIC_BYTES) != 0)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "a sketch of another version of tessera: make it again from the snapshot");
  if (!is_sketch || !tsr__has_sum(bytes, size_bytes))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     is_sketch ? "a damaged sketch" : "not a sketch");
  reader r = {.at = bytes + MAGIC_BYTES, .end = bytes + size_bytes - TSR__SUM_BYTES, .out = out};
  get_all(&r);
  if (r.at != r.end) r.is_wrong = true;
  TSR__VECTOR_FREE(&r.texts);
  TSR__VECTOR_FREE(&r.frames);
  if (r.is_failed) return tsr__fail_memory(error);
  if (r.is_wrong) return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "a damaged sketch");
  return 0;
}
