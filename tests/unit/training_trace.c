/* training_trace.c - see training_trace.h. */
#include "training_trace.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "base/vector.h"

#define KIB UINT64_C(1024)

/* A frame as text: name, file, line; stacks are lists of them, innermost first. */
#define NATIVE(name) name "|??|0;"
#define MALLOC       NATIVE("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc")
#define TORCH        "/venv/lib/python3.12/site-packages/torch/"
#define TRAIN(line)  "train|/work/train.py|" line ";<module>|/work/train.py|90;"
#define MODULE       "_call_impl|" TORCH "nn/modules/module.py|1750;"
#define LAYER(line)  "forward|/work/model.py|" line ";" MODULE "forward|/work/model.py|88;" MODULE
#define ENGINE                                                                 \
  NATIVE("torch::autograd::Node::operator()(std::vector<at::Tensor>&&)")       \
  NATIVE("torch::autograd::Engine::evaluate_function(torch::autograd::Node*)") \
  NATIVE("torch::autograd::Engine::thread_main(torch::autograd::GraphTask const&)")
#define CAST                                \
  MALLOC NATIVE("at::_ops::_to_copy::call") \
      NATIVE("at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType)")
#define RECOMPUTE                                                     \
  "recompute_fn|" TORCH "utils/checkpoint.py|1399;unpack_hook|" TORCH \
  "utils/checkpoint.py|1111;" ENGINE
#define STEP(function, line)                                                                   \
  function "|" TORCH "optim/adamw.py|" line ";step|" TORCH "optim/adamw.py|220;wrapper|" TORCH \
           "optim/optimizer.py|493;" TRAIN("44")
#define ZERO_GRAD "zero_grad|" TORCH "optim/optimizer.py|970;" TRAIN("38")
#define RELEASE   NATIVE("torch::autograd::generated::MmBackward0::release_variables()") ENGINE

typedef struct block {
  uint64_t address, size;
  bool is_live;
  const char *stack;
} block;

typedef struct writer {
  const training *run;
  tsr__buffer events, annotations;
  TSR__VECTOR(block) blocks;
  uint64_t next_address;
  uint32_t event_count;
  int64_t time_us;
} writer;

#define FIRST_ADDRESS UINT64_C(0x7f0000000000)
#define SEGMENT_SLACK (UINT64_C(64) << 20)

/* ---- Events ---- */

static bool is_native(const char *name) {
  return strstr(name, "::") != NULL;
}

static uint32_t code_of(const char *text, size_t size) {
  uint32_t code = 17;
  for (size_t i = 0; i < size; i++) code = code * 31 + (unsigned char)text[i];
  return code;
}

static void put_frames(writer *w, const char *stack) {
  bool is_first = true;
  tsr__buffer_text(&w->events, ", \"frames\": [");
  while (*stack) {
    size_t name = strcspn(stack, "|"), file = strcspn(stack + name + 1, "|");
    size_t line = strcspn(stack + name + file + 2, ";");
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)name, stack);
    const char *file_at = stack + name + 1, *line_at = file_at + file + 1;
    if (!w->run->python_only || !is_native(text)) {
      tsr__buffer_text(&w->events, is_first ? "" : ", ");
      if (w->run->is_anonymous)
        snprintf(text, sizeof text, "f%x", (unsigned)code_of(text, strlen(text)));
      tsr__buffer_printf(&w->events, "{\"name\": \"%s\", \"filename\": \"%.*s\", \"line\": %.*s}",
                         text, w->run->is_anonymous ? 4 : (int)file,
                         w->run->is_anonymous ? "a.py" : file_at, (int)line, line_at);
      is_first = false;
    }
    stack = line_at + line + 1;
  }
  tsr__buffer_text(&w->events, "]");
}

static void put_event(writer *w, const char *action, uint32_t b, const char *truth,
                      const char *stack) {
  w->time_us += 10;
  if (w->event_count++ < w->run->cut_events) return;
  tsr__buffer_printf(&w->events,
                     "%s{\"action\": \"%s\", \"addr\": %" PRIu64 ", \"size\": %" PRIu64
                     ", \"stream\": 0, \"time_us\": %" PRIi64 ", \"category\": \"%s\"",
                     w->events.size ? ",\n" : "", action, w->blocks.items[b].address,
                     w->blocks.items[b].size, w->time_us, truth);
  if (!w->run->has_no_frames) put_frames(w, stack);
  tsr__buffer_text(&w->events, "}");
}

static uint32_t take(writer *w, uint64_t size, const char *truth, const char *stack) {
  block b = {w->next_address, size, true, stack};
  w->next_address += (size + 511) / 512 * 512;
  assert_true(TSR__VECTOR_PUSH(&w->blocks, b));
  put_event(w, "alloc", (uint32_t)w->blocks.count - 1, truth, stack);
  return (uint32_t)w->blocks.count - 1;
}

static void give(writer *w, uint32_t b, const char *stack) {
  put_event(w, "free_requested", b, "", stack);
  put_event(w, "free_completed", b, "", stack);
  w->blocks.items[b].is_live = false;
}

static void annotate(writer *w, const char *name, const char *stage) {
  if (!w->run->annotates) return;
  w->time_us += 10;
  tsr__buffer_printf(&w->annotations,
                     "%s{\"name\": \"%s\", \"stage\": \"%s\", \"device\": 0, \"time_us\": %" PRIi64
                     "}",
                     w->annotations.size ? ", " : "", name, stage, w->time_us);
  w->time_us += 10;
}

/* ---- The run ---- */

#define LAYERS_MAX 16
#define STEPS_MAX  64
#define NOTHING    UINT32_MAX

typedef struct state {
  uint32_t weight[LAYERS_MAX], gradient[LAYERS_MAX], moment[LAYERS_MAX][2];
  uint32_t cast[LAYERS_MAX], bias[LAYERS_MAX], inner[LAYERS_MAX], output[LAYERS_MAX];
  uint32_t input, logits, loss;
  uint32_t cache[STEPS_MAX];
  uint64_t batch; /* bytes of an activation */
} state;

static uint64_t weight_bytes(uint32_t layer) {
  return (layer % 3 == 2 ? 3 : 64) * KIB + layer % 3 * 512;
}

static void build(writer *w, state *s) {
  for (uint32_t i = 0; i < w->run->layers; i++) {
    s->weight[i] = take(w, weight_bytes(i), "parameter",
                        MALLOC "__init__|" TORCH
                               "nn/modules/linear.py|106;__init__|/work/model.py|12;" TRAIN("30"));
    s->gradient[i] = s->moment[i][0] = s->moment[i][1] = NOTHING;
  }
}

static void noise(writer *w, const char *stack) {
  for (uint32_t i = 0; i < w->run->noise; i++) give(w, take(w, 8 * KIB, "temporary", stack), stack);
}

static void forward_layer(writer *w, state *s, uint32_t i) {
  static const char cast[] = CAST LAYER("21") TRAIN("40");
  static const char mm[] = MALLOC NATIVE("at::_ops::mm::call") LAYER("21") TRAIN("40");
  static const char out[] = MALLOC NATIVE("at::_ops::add_Tensor::call") LAYER("23") TRAIN("40");
  bool keeps = !w->run->checkpoint;
  const char *truth = keeps ? "activation" : "temporary";
  s->cast[i] = w->run->autocast ? take(w, weight_bytes(i) / 2, "cast", cast) : NOTHING;
  s->bias[i] = w->run->autocast ? take(w, 2 * KIB, "cast", cast) : NOTHING;
  uint32_t temporary = take(w, s->batch * 2, "temporary", mm);
  s->inner[i] = take(w, s->batch, truth, mm);
  give(w, temporary, mm);
  noise(w, mm);
  s->output[i] = take(w, s->batch, "activation", out);
  if (keeps) return;
  give(w, s->inner[i], out);
}

/* The cache of casts is cleared: those that backward does not need die. */
static void leave_autocast(writer *w, state *s) {
  static const char leave[] =
      NATIVE("at::autocast::clear_cache()") "__exit__|" TORCH
                                            "amp/autocast_mode.py|398;" TRAIN("40");
  for (uint32_t i = 0; i < w->run->layers && w->run->autocast; i++) {
    give(w, s->bias[i], leave);
    if (w->run->checkpoint) give(w, s->cast[i], leave);
  }
}

static void recompute_layer(writer *w, state *s, uint32_t i) {
  static const char cast[] = CAST LAYER("21") RECOMPUTE;
  static const char mm[] = MALLOC NATIVE("at::_ops::mm::call") LAYER("21") RECOMPUTE;
  if (w->run->autocast) s->cast[i] = take(w, weight_bytes(i) / 2, "cast", cast);
  uint32_t temporary = take(w, s->batch * 2, "temporary", mm);
  s->inner[i] = take(w, s->batch, "recomputed", mm);
  give(w, temporary, mm);
}

static void backward_layer(writer *w, state *s, uint32_t i) {
  static const char mm[] = MALLOC NATIVE("at::_ops::mm::call")
      NATIVE("torch::autograd::generated::MmBackward0::apply") ENGINE;
  static const char weight[] = MALLOC NATIVE("at::_ops::mm::call")
      NATIVE("torch::autograd::generated::details::mm_mat2_backward")
          NATIVE("torch::autograd::generated::MmBackward0::apply") ENGINE;
  if (w->run->checkpoint) recompute_layer(w, s, i);
  uint32_t inner = take(w, s->batch, "temporary", mm);
  bool adds = s->gradient[i] != NOTHING;
  uint32_t gradient = take(w, weight_bytes(i), adds ? "temporary" : "gradient", weight);
  if (s->cast[i] != NOTHING) give(w, s->cast[i], RELEASE);
  give(w, s->inner[i], RELEASE);
  give(w, inner, mm);
  give(w, s->output[i], RELEASE);
  if (adds)
    give(w, gradient, mm);
  else
    s->gradient[i] = gradient;
}

static void run_batch(writer *w, state *s) {
  static const char loss[] =
      MALLOC NATIVE("at::_ops::log_softmax::call") "cross_entropy|/work/loss.py|8;" TRAIN("41");
  static const char data[] = MALLOC "get_batch|/work/data.py|5;" TRAIN("39");
  uint32_t old_input = s->input, old_loss = s->loss;
  s->input = take(w, 4 * KIB, "input", data);
  if (old_input != NOTHING) give(w, old_input, data);
  for (uint32_t i = 0; i < w->run->layers; i++) forward_layer(w, s, i);
  s->logits = take(w, s->batch * 4, "activation", loss);
  s->loss = take(w, 4, "activation", loss);
  leave_autocast(w, s);
  if (old_loss != NOTHING) give(w, old_loss, loss);
  static const char ones[] = MALLOC "_make_grads|" TORCH "autograd/__init__.py|200;backward|" TORCH
                                    "_tensor.py|522;" TRAIN("42");
  give(w, take(w, 4, "temporary", ones), ones);
  for (uint32_t i = w->run->layers; i-- > 0;) backward_layer(w, s, i);
  give(w, s->logits, RELEASE);
}

static void optimize(writer *w, state *s) {
  annotate(w, "Optimizer.step#AdamW.step", "START");
  for (uint32_t i = 0; i < w->run->layers; i++)
    for (int k = 0; k < 2; k++)
      if (s->moment[i][k] == NOTHING)
        s->moment[i][k] =
            take(w, weight_bytes(i), "optimizer_state", MALLOC STEP("_init_group", "180"));
  static const char sqrt[] =
      MALLOC NATIVE("at::_ops::sqrt::call") STEP("_single_tensor_adamw", "300");
  static const char put[] =
      MALLOC NATIVE("at::_ops::sub::call") STEP("_single_tensor_adamw", "310");
  for (uint32_t i = 0; i < w->run->layers && !w->run->is_fused; i++) {
    give(w, take(w, weight_bytes(i), "temporary", sqrt), sqrt);
    if (!w->run->replaces) continue;
    uint32_t moment = take(w, weight_bytes(i), "optimizer_state", put);
    give(w, s->moment[i][0], put);
    s->moment[i][0] = moment;
    uint32_t weight = take(w, weight_bytes(i), "parameter", put);
    give(w, s->weight[i], put);
    s->weight[i] = weight;
  }
  annotate(w, "Optimizer.step#AdamW.step", "END");
}

static void leave_behind(writer *w, state *s, uint32_t step) {
  static const char log[] = MALLOC "log|/work/train.py|12;" TRAIN("46");
  static const char cache[] = MALLOC "remember|/work/cache.py|3;" TRAIN("47");
  const training *run = w->run;
  uint32_t every = run->leak_every ? run->leak_every : 1;
  if (run->leak_bytes && step >= run->leak_from && (step - run->leak_from) % every == 0)
    (void)take(w, run->leak_bytes, "leak", log);
  if (!run->cache_steps) return;
  uint32_t *slot = &s->cache[step % run->cache_steps], old = *slot;
  *slot = take(w, 16 * KIB, "cache", cache);
  if (old != NOTHING) give(w, old, cache);
}

static void train(writer *w) {
  state s = {.input = NOTHING, .loss = NOTHING};
  char name[32];
  assert_true(w->run->layers <= LAYERS_MAX && w->run->cache_steps <= STEPS_MAX);
  for (size_t i = 0; i < STEPS_MAX; i++) s.cache[i] = NOTHING;
  build(w, &s);
  for (uint32_t step = 0; step < w->run->steps; step++) {
    snprintf(name, sizeof name, "ProfilerStep#%u", (unsigned)step);
    annotate(w, name, "START");
    s.batch = (w->run->varies ? 256 + step * 7 % 5 * 32 : 256) * KIB;
    for (uint32_t i = 0; i < w->run->layers; i++) {
      if (s.gradient[i] != NOTHING) give(w, s.gradient[i], ZERO_GRAD);
      s.gradient[i] = NOTHING;
    }
    run_batch(w, &s);
    if (w->run->adds_up) run_batch(w, &s);
    optimize(w, &s);
    leave_behind(w, &s, step);
    annotate(w, name, "END");
  }
}

/* ---- As a snapshot ---- */

static void put_blocks(writer *w, tsr__buffer *out) {
  uint64_t at = FIRST_ADDRESS, end = w->next_address + SEGMENT_SLACK;
  const char *comma = "";
  for (size_t i = 0; i < w->blocks.count; i++) {
    const block *b = &w->blocks.items[i];
    uint64_t size = (b->size + 511) / 512 * 512;
    if (!b->is_live) continue;
    if (b->address > at)
      tsr__buffer_printf(out,
                         "%s{\"address\": %" PRIu64 ", \"size\": %" PRIu64
                         ", \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}",
                         comma, at, b->address - at);
    tsr__buffer_printf(out,
                       "%s{\"address\": %" PRIu64 ", \"size\": %" PRIu64
                       ", \"requested_size\": %" PRIu64
                       ", \"state\": \"active_allocated\", \"frames\": []}",
                       b->address > at ? ", " : comma, b->address, size, b->size);
    at = b->address + size;
    comma = ", ";
  }
  tsr__buffer_printf(out,
                     "%s{\"address\": %" PRIu64 ", \"size\": %" PRIu64
                     ", \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}",
                     comma, at, end - at);
}

char *training_json(const training *run) {
  writer w = {.run = run, .next_address = FIRST_ADDRESS, .time_us = INT64_C(1700000000000000)};
  tsr__buffer out = {0};
  train(&w);
  tsr__buffer_printf(&out,
                     "{\"segments\": [{\"device\": 0, \"address\": %" PRIu64
                     ", \"total_size\": %" PRIu64 ", \"allocated_size\": 0, \"active_size\": 0, "
                     "\"requested_size\": 0, \"stream\": 0, \"segment_type\": \"large\", "
                     "\"is_expandable\": false, \"frames\": [], \"blocks\": [",
                     FIRST_ADDRESS, w.next_address + SEGMENT_SLACK - FIRST_ADDRESS);
  put_blocks(&w, &out);
  tsr__buffer_text(&out, "]}], \"device_traces\": [[");
  tsr__buffer_append(&out, w.events.data, w.events.size);
  tsr__buffer_text(&out, "]], \"external_annotations\": [");
  tsr__buffer_append(&out, w.annotations.data, w.annotations.size);
  tsr__buffer_append(&out, "]}", 3);
  assert_false(out.failed || w.events.failed);
  tsr__buffer_release(&w.events);
  tsr__buffer_release(&w.annotations);
  TSR__VECTOR_FREE(&w.blocks);
  return out.data;
}

tsr_snapshot *training_snapshot(const training *run) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  char *json = training_json(run);
  if (tsr_snapshot_read(json, strlen(json), NULL, &snapshot, &error)) fail_msg("%s", error.message);
  tsr__free(json);
  return snapshot;
}
