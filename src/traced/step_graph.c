/* step_graph.c - see step_graph.h.
 *
 * Arrays of the file become arrays here, checked once; after that indices are valid. The stacks of a snapshot are
 * chains of frames: the part of stack s from depth d outwards has the id first[s] + d, so a caller's id is the next
 * number. */
#include "traced/step_graph.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "traced/graph_data.h"

#define SCHEMA          "tessera-step/1"
#define SCHEMA_FAMILY   "tessera-step/"
#define MOST_SLOT_BYTES TSR__TENSOR_MOST_BYTES
/* All slots together: addresses do not wrap. */
#define MOST_BYTES (UINT64_C(1) << 56)
/* Operations or bytes of one op. */
#define MOST_WORK (UINT64_C(1) << 60)

/* A reader: its position, and the first error. */
typedef struct reader {
  tsr__step_graph *graph;
  tsr_error *error;
  int status;
} reader;

static bool wrong(reader *r, const char *where, size_t index, const char *what) {
  if (r->status) return false;
  r->status = tsr__fail(r->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "step graph: %s %llu %s",
                        where, (unsigned long long)index, what);
  return false;
}

static bool no_memory(reader *r) {
  if (!r->status) r->status = tsr__fail_memory(r->error);
  return false;
}

static const json_t *array_of(reader *r, const json_t *in, const char *key, size_t most) {
  const json_t *array = json_object_get(in, key);
  if (r->status) return NULL;
  if (!json_is_array(array) || json_array_size(array) > most) {
    r->status = tsr__fail(r->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                          "step graph: '%s' is not a list of at most %llu items", key,
                          (unsigned long long)most);
    return NULL;
  }
  return array;
}

/* A whole number below `end`. */
static bool number(const json_t *value, uint64_t end, uint64_t *out) {
  json_int_t n = json_integer_value(value);
  if (!json_is_integer(value) || n < 0 || (uint64_t)n >= end) return false;
  *out = (uint64_t)n;
  return true;
}

/* ---- texts, frames, stacks ---- */

static bool read_texts(reader *r, const json_t *root) {
  const json_t *list = array_of(r, root, "texts", TSR__STEP_GRAPH_MOST_FRAMES);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *text = json_array_get(list, i);
    if (!json_is_string(text)) return wrong(r, "text", i, "is no text");
    size_t length = json_string_length(text);
    char *copy = TSR__NEW_ARRAY(char, length + 1);
    if (!copy) return no_memory(r);
    memcpy(copy, json_string_value(text), length);
    if (memchr(copy, '\0', length) || !TSR__VECTOR_PUSH(&r->graph->texts, copy)) {
      bool has_zero = memchr(copy, '\0', length) != NULL;
      tsr__free(copy);
      return has_zero ? wrong(r, "text", i, "contains a zero") : no_memory(r);
    }
  }
  return !r->status;
}

static bool read_frames(reader *r, const json_t *root) {
  const json_t *list = array_of(r, root, "frames", TSR__STEP_GRAPH_MOST_FRAMES);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    uint64_t name, file, line;
    if (json_array_size(item) != 3 ||
        !number(json_array_get(item, 0), r->graph->texts.count, &name) ||
        !number(json_array_get(item, 1), r->graph->texts.count, &file) ||
        !number(json_array_get(item, 2), UINT32_MAX, &line))
      return wrong(r, "frame", i, "is not [name, file, line]");
    tsr__graph_frame frame = {(uint32_t)name, (uint32_t)file, (uint32_t)line};
    if (!TSR__VECTOR_PUSH(&r->graph->frames, frame)) return no_memory(r);
  }
  return !r->status;
}

static bool read_stacks(reader *r, const json_t *root) {
  const json_t *list = array_of(r, root, "stacks", TSR__STEP_GRAPH_MOST_FRAMES);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *stack = json_array_get(list, i);
    if (!json_is_array(stack) || !json_array_size(stack))
      return wrong(r, "stack", i, "is no list of frames");
    if (r->graph->chain.count + json_array_size(stack) >= 16 * (size_t)TSR__STEP_GRAPH_MOST_FRAMES)
      return wrong(r, "stack", i, "is one too many");
    if (!TSR__VECTOR_PUSH(&r->graph->first, (uint32_t)r->graph->chain.count)) return no_memory(r);
    for (size_t k = 0; k < json_array_size(stack); k++) {
      uint64_t frame;
      if (!number(json_array_get(stack, k), r->graph->frames.count, &frame))
        return wrong(r, "stack", i, "has a frame that is not there");
      if (!TSR__VECTOR_PUSH(&r->graph->chain, (uint32_t)frame)) return no_memory(r);
    }
    if (!TSR__VECTOR_PUSH(&r->graph->chain, TSR_NONE)) return no_memory(r);
  }
  return !r->status;
}

/* The innermost frame of a stack, which is a place in the chain; past its end, of a place at which cuBLAS takes a workspace. */
static uint32_t parent(const tsr__tracer *tracer, uint32_t stack, tsr__trace_frame *frame) {
  const tsr__step_graph *g = (const tsr__step_graph *)tracer;
  if (stack >= g->chain.count) {
    *frame = (tsr__trace_frame){
        .id = (uint32_t)g->frames.count, .name = "at::cuda::getCUDABlasWorkspace", .file = "??"};
    return stack - (uint32_t)g->chain.count;
  }
  assert(stack < g->chain.count && g->chain.items[stack] < g->frames.count);
  uint32_t id = g->chain.items[stack];
  const tsr__graph_frame *f = &g->frames.items[id];
  *frame = (tsr__trace_frame){
      .id = id, .line = f->line, .name = g->texts.items[f->name], .file = g->texts.items[f->file]};
  return g->chain.items[stack + 1] == TSR_NONE ? TSR_NONE : stack + 1;
}

/* ---- slots ---- */

static bool category_of(const char *word, uint8_t *out) {
  for (int i = 0; word && i < TSR_CATEGORY_COUNT; i++)
    if (strcmp(word, tsr_category_name((tsr_category)i)) == 0) {
      /* A snapshot does not distinguish buffers, so their memory counts as everywhere else. */
      *out = (uint8_t)(i == TSR_CATEGORY_BUFFER ? TSR_CATEGORY_PARAMETER : i);
      return true;
    }
  return false;
}

/* Bytes and category of one slot. */
static bool read_slot(reader *r, const char *where, size_t at, const json_t *bytes,
                      const json_t *category, tsr__tape_slot *out) {
  if (!number(bytes, MOST_SLOT_BYTES, &out->bytes) || !out->bytes)
    return wrong(r, where, at, "has no size that a tensor could have");
  if (!category_of(json_string_value(category), &out->category))
    return wrong(r, where, at, "has a category that does not exist");
  return true;
}

/* A list that may be absent: NULL then, and if it is something else, which is refused. */
static const json_t *optional(reader *r, const json_t *root, const char *key, size_t most) {
  return json_object_get(root, key) ? array_of(r, root, key, most) : NULL;
}

/* The stream of each slot, where there are several. */
static bool read_streams(reader *r, const json_t *slots) {
  const json_t *streams = optional(r, slots, "stream", TSR__STEP_GRAPH_MOST_SLOTS);
  if (!streams) return !r->status;
  if (json_array_size(streams) != r->graph->slots.count)
    return wrong(r, "slot", json_array_size(streams), "lacks its stream, or is not there");
  for (size_t i = 0; i < r->graph->slots.count; i++) {
    uint64_t stream;
    if (!number(json_array_get(streams, i), UINT16_MAX + 1, &stream))
      return wrong(r, "slot", i, "has a stream that is no number below 65536");
    r->graph->slots.items[i].stream = (uint16_t)stream;
  }
  return true;
}

static bool read_slots(reader *r, const json_t *root) {
  const json_t *slots = json_object_get(root, "slots");
  const json_t *bytes = array_of(r, slots, "bytes", TSR__STEP_GRAPH_MOST_SLOTS);
  const json_t *categories = array_of(r, slots, "category", TSR__STEP_GRAPH_MOST_SLOTS);
  if (r->status) return false;
  if (json_array_size(bytes) != json_array_size(categories))
    return wrong(r, "slot", json_array_size(bytes), "lacks its bytes or its category");
  if (!number(json_object_get(root, "static"), json_array_size(bytes) + 1, &r->graph->static_count))
    return wrong(r, "'static'", json_array_size(bytes), "slots are all there are");
  uint64_t total = 0;
  for (size_t i = 0; i < json_array_size(bytes); i++) {
    tsr__tape_slot slot = {.is_static = i < r->graph->static_count};
    if (!read_slot(r, "slot", i, json_array_get(bytes, i), json_array_get(categories, i), &slot))
      return false;
    total += slot.bytes;
    if (total > MOST_BYTES)
      return wrong(r, "slot", i, "makes the sum of all sizes larger than 2^56 bytes");
    if (!TSR__VECTOR_PUSH(&r->graph->slots, slot)) return no_memory(r);
  }
  return read_streams(r, slots);
}

/* ---- the schedule ---- */

/* The state of each slot so far. */
enum { UNTOUCHED, TAKEN, TAKEN_ONCE, GIVEN_BACK };

/* A step graph has no phase of evaluation. */
enum { PHASES = TSR__TAPE_PHASE_EVALUATION };

typedef struct order {
  uint8_t *state;         /* of each slot */
  uint8_t phases[PHASES]; /* that have begun and not ended */
  size_t depth;
} order;

static bool take(reader *r, order *o, size_t at, uint64_t slot, bool is_once) {
  assert(slot < r->graph->slots.count);
  if (slot < r->graph->static_count || o->state[slot] != UNTOUCHED)
    return wrong(r, "instruction", at, "takes a slot again");
  o->state[slot] = is_once ? TAKEN_ONCE : TAKEN;
  return true;
}

static bool give_back(reader *r, order *o, size_t at, uint64_t slot) {
  assert(slot < r->graph->slots.count);
  if (o->state[slot] != TAKEN)
    return wrong(r, "instruction", at, "gives back a slot that is not taken");
  o->state[slot] = GIVEN_BACK;
  return true;
}

/* Free the slot's memory of the previous step. The slot must not be freed in its own step; the end of the reader
 * checks that. */
static bool give_back_previous(reader *r, size_t at, uint64_t slot) {
  assert(slot < r->graph->slots.count);
  tsr__tape_slot *s = &r->graph->slots.items[slot];
  if (slot < r->graph->static_count || s->is_carried)
    return wrong(r, "instruction", at, "gives back what the step before has given back");
  s->is_carried = true;
  return true;
}

static bool phase(reader *r, order *o, size_t at, uint64_t which, bool begins) {
  assert(which < PHASES && o->depth <= PHASES);
  if (begins) {
    if (o->depth == PHASES) return wrong(r, "instruction", at, "begins a phase within all others");
    o->phases[o->depth++] = (uint8_t)which;
    return true;
  }
  if (!o->depth || o->phases[o->depth - 1] != which)
    return wrong(r, "instruction", at, "ends a phase that has not begun");
  o->depth--;
  return true;
}

static bool read_instruction(reader *r, order *o, const json_t *item, size_t at) {
  static const struct {
    const char *word;
    uint8_t kind;
    bool has_stack;
  } words[] = {{"new", TSR__INSTR_NEW, true},      {"once", TSR__INSTR_NEW_ONCE, true},
               {"drop", TSR__INSTR_DROP, false},   {"drop_previous", TSR__INSTR_DROP_PREV, false},
               {"begin", TSR__INSTR_BEGIN, false}, {"end", TSR__INSTR_END, false}};
  const char *word = json_string_value(json_array_get(item, 0));
  size_t i = 0;
  while (word && i < sizeof words / sizeof *words && strcmp(word, words[i].word) != 0) i++;
  if (!word || i == sizeof words / sizeof *words)
    return wrong(r, "instruction", at, "is of an unknown kind");
  if (json_array_size(item) != 2 + (size_t)words[i].has_stack)
    return wrong(r, "instruction", at, "has too many or too few operands");
  bool is_phase = words[i].kind == TSR__INSTR_BEGIN || words[i].kind == TSR__INSTR_END;
  uint64_t subject, stack = 0, end = is_phase ? PHASES : r->graph->slots.count;
  if (!number(json_array_get(item, 1), end, &subject))
    return wrong(r, "instruction", at, "is about something that is not there");
  if (words[i].has_stack && !number(json_array_get(item, 2), r->graph->first.count, &stack))
    return wrong(r, "instruction", at, "has a stack that is not there");
  tsr__tape_instr instr = {.kind = words[i].kind,
                           .subject =
                               (uint32_t)subject + !is_phase, /* slot 0 of a tape means no slot */
                           .stack = words[i].has_stack ? r->graph->first.items[stack] : TSR_NONE};
  for (size_t k = 0; k < o->depth; k++)
    instr.is_backward |= o->phases[k] == TSR__TAPE_PHASE_BACKWARD;
  bool ok = true;
  switch ((tsr__tape_instr_kind)instr.kind) {
  case TSR__INSTR_NEW: ok = take(r, o, at, subject, false); break;
  case TSR__INSTR_NEW_ONCE: ok = take(r, o, at, subject, true); break;
  case TSR__INSTR_DROP: ok = give_back(r, o, at, subject); break;
  case TSR__INSTR_DROP_PREV: ok = give_back_previous(r, at, subject); break;
  case TSR__INSTR_BEGIN: ok = phase(r, o, at, subject, true); break;
  default: ok = phase(r, o, at, subject, false); break;
  }
  if (ok && !TSR__VECTOR_PUSH(&r->graph->schedule, instr)) return no_memory(r);
  return ok;
}

/* At the end of a step: slots that are still live are carried into the next one, or made once. */
static bool check_ends(reader *r, const order *o) {
  if (o->depth) return wrong(r, "phase", o->phases[o->depth - 1], "does not end");
  for (size_t i = r->graph->static_count; i < r->graph->slots.count; i++) {
    bool is_carried = r->graph->slots.items[i].is_carried;
    if (o->state[i] == UNTOUCHED) return wrong(r, "slot", i, "is never taken");
    if (is_carried != (o->state[i] == TAKEN))
      return wrong(r, "slot", i,
                   is_carried ? "is given back twice"
                              : "is taken in each step and never given back");
  }
  return true;
}

static bool read_schedule(reader *r, const json_t *root) {
  const json_t *list = array_of(r, root, "instructions", TSR__TAPE_MOST_INSTRUCTIONS - 1);
  order o = {.state = TSR__NEW_ARRAY(uint8_t, r->graph->slots.count + 1)};
  if (r->status || !o.state) {
    tsr__free(o.state);
    return r->status ? false : no_memory(r);
  }
  bool ok = true;
  for (size_t i = 0; ok && i < json_array_size(list); i++)
    ok = read_instruction(r, &o, json_array_get(list, i), i);
  ok = ok && check_ends(r, &o);
  tsr__free(o.state);
  return ok;
}

/* ---- what a rewrite needs ---- */

/* A number below `end`, or -1 for none. */
static bool number_or_none(const json_t *value, uint64_t end, uint32_t *out) {
  uint64_t n;
  assert(end <= TSR_NONE);
  *out = TSR_NONE;
  if (json_is_integer(value) && json_integer_value(value) == -1) return true;
  if (!number(value, end, &n)) return false;
  *out = (uint32_t)n;
  return true;
}

static bool read_saves(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "saved", TSR__TAPE_MOST_INSTRUCTIONS);
  uint64_t places = r->graph->schedule.count + 1;
  uint32_t before = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    tsr__graph_save save = {0};
    if (json_array_size(item) != 6 ||
        !number_or_none(json_array_get(item, 0), r->graph->slots.count, &save.slot) ||
        !number(json_array_get(item, 1), MOST_SLOT_BYTES, &save.bytes) ||
        !number_or_none(json_array_get(item, 2), places, &save.made) ||
        !number_or_none(json_array_get(item, 3), places, &save.used) ||
        !number_or_none(json_array_get(item, 4), places, &save.left) ||
        !number_or_none(json_array_get(item, 5), places, &save.gone))
      return wrong(r, "save", i, "is not [slot, bytes, made, used, left, gone]");
    bool is_ordered = save.made != TSR_NONE && save.made >= before &&
                      (save.used == TSR_NONE || save.used >= save.made) &&
                      save.left >= (save.used == TSR_NONE ? save.made : save.used) &&
                      save.gone >= (save.used == TSR_NONE ? save.made : save.used);
    if (!is_ordered) return wrong(r, "save", i, "is used, left or gone too early");
    before = save.made;
    if (!TSR__VECTOR_PUSH(&r->graph->saves, save)) return no_memory(r);
  }
  return !r->status;
}

static bool read_inputs(reader *r, const json_t *list, size_t at, tsr__graph_module *module) {
  if (!json_is_array(list)) return wrong(r, "module", at, "has no list of inputs");
  module->first_input = (uint32_t)r->graph->inputs.count;
  for (size_t i = 0; i < json_array_size(list); i++) {
    uint64_t slot;
    if (!number(json_array_get(list, i), r->graph->slots.count, &slot) ||
        r->graph->inputs.count >= TSR__TAPE_MOST_INSTRUCTIONS)
      return wrong(r, "module", at, "has an input that is not there");
    if (!TSR__VECTOR_PUSH(&r->graph->inputs, (uint32_t)slot)) return no_memory(r);
  }
  module->input_count = (uint32_t)json_array_size(list);
  return true;
}

static bool read_modules(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "modules", TSR__TAPE_MOST_INSTRUCTIONS);
  const uint64_t ends[] = {r->graph->texts.count,        r->graph->texts.count,
                           r->graph->schedule.count + 1, r->graph->schedule.count + 1,
                           r->graph->saves.count + 1,    r->graph->saves.count + 1};
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    uint64_t n[6] = {0};
    bool ok = json_array_size(item) == 7;
    for (size_t k = 0; ok && k < 6; k++) ok = number(json_array_get(item, k), ends[k], &n[k]);
    if (!ok || n[2] > n[3] || n[4] > n[5])
      return wrong(r, "module", i, "is not [name, class, begin, end, save, save, inputs]");
    tsr__graph_module module = {.name = (uint32_t)n[0],
                                .kind = (uint32_t)n[1],
                                .begin = (uint32_t)n[2],
                                .end = (uint32_t)n[3],
                                .first_save = (uint32_t)n[4],
                                .end_save = (uint32_t)n[5]};
    if (!read_inputs(r, json_array_get(item, 6), i, &module)) return false;
    if (!TSR__VECTOR_PUSH(&r->graph->modules, module)) return no_memory(r);
  }
  return !r->status;
}

static bool read_unheld(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "unheld", TSR__TAPE_MOST_INSTRUCTIONS);
  for (size_t i = 0; i < r->graph->slots.count; i++)
    if (!TSR__VECTOR_PUSH(&r->graph->unheld, TSR_NONE)) return no_memory(r);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    uint64_t slot, at;
    if (json_array_size(item) != 2 ||
        !number(json_array_get(item, 0), r->graph->slots.count, &slot) ||
        !number(json_array_get(item, 1), r->graph->schedule.count + 1, &at))
      return wrong(r, "item of 'unheld'", i, "is not [slot, instruction]");
    r->graph->unheld.items[slot] = (uint32_t)at;
  }
  return !r->status;
}

/* ---- what it takes to compute ---- */

/* "mm" of "at::_ops::mm::call"; *out stays NULL for other texts. False when out of memory. */
static bool op_of_text(const char *text, char **out) {
  static const char before[] = "at::_ops::", after[] = "::call";
  size_t length = strlen(text), head = sizeof before - 1, tail = sizeof after - 1;
  if (length <= head + tail || strncmp(text, before, head) != 0 ||
      strcmp(text + length - tail, after) != 0)
    return true;
  *out = TSR__NEW_ARRAY(char, length - head - tail + 1);
  if (*out) memcpy(*out, text + head, length - head - tail);
  return *out != NULL;
}

static bool read_ops(reader *r) {
  for (size_t i = 0; i < r->graph->texts.count; i++) {
    char *op = NULL;
    if (op_of_text(r->graph->texts.items[i], &op) && TSR__VECTOR_PUSH(&r->graph->ops, op)) continue;
    tsr__free(op);
    return no_memory(r);
  }
  return true;
}

/* Of a graph whose ops are not known. */
static bool assume_work(reader *r) {
  tsr__step_graph *g = r->graph;
  g->is_work_assumed = true;
  for (size_t i = 0; i < g->schedule.count; i++) {
    const tsr__tape_instr *instr = &g->schedule.items[i];
    if (instr->kind != TSR__INSTR_NEW) continue;
    tsr__graph_work work = {.place = (uint32_t)i,
                            .bytes = 2 * g->slots.items[instr->subject - 1].bytes};
    if (!TSR__VECTOR_PUSH(&g->work, work)) return no_memory(r);
  }
  return true;
}

static bool read_work(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "work", TSR__TAPE_MOST_INSTRUCTIONS);
  uint32_t before = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    tsr__graph_work work = {0};
    uint64_t place, bits;
    if (json_array_size(item) != 4 ||
        !number(json_array_get(item, 0), r->graph->schedule.count + 1, &place) ||
        !number(json_array_get(item, 1), MOST_WORK, &work.flops) ||
        !number(json_array_get(item, 2), MOST_WORK, &work.bytes) ||
        !number(json_array_get(item, 3), 65, &bits) || (bits != 16 && bits != 32))
      return wrong(r, "item of 'work'", i, "is not [place, operations, bytes, 16 or 32]");
    if (place < before) return wrong(r, "item of 'work'", i, "is before the one before it");
    before = work.place = (uint32_t)place;
    work.is_half = bits == 16;
    if (!TSR__VECTOR_PUSH(&r->graph->work, work)) return no_memory(r);
  }
  return !r->status && (list || assume_work(r));
}

/* The phase in which each op runs: the innermost. */
static void note_phases(tsr__step_graph *g) {
  tsr__tape_phase stack[PHASES + 1] = {TSR__TAPE_PHASE_STEP};
  size_t depth = 0, next = 0;
  for (size_t i = 0; i <= g->schedule.count; i++) {
    for (; next < g->work.count && g->work.items[next].place == i; next++)
      g->work.items[next].phase = (uint8_t)stack[depth];
    if (i == g->schedule.count) break;
    const tsr__tape_instr *instr = &g->schedule.items[i];
    if (instr->kind == TSR__INSTR_BEGIN) stack[++depth] = (tsr__tape_phase)instr->subject;
    if (instr->kind == TSR__INSTR_END) depth--;
    assert(depth <= PHASES);
  }
  assert(next == g->work.count);
}

/* ---- the forms of optimizers ---- */

/* Read an instruction: each slot is made, and stays or is freed afterwards. */
static bool read_form_instruction(reader *r, tsr__graph_form *form, uint8_t *state,
                                  const json_t *item, size_t at) {
  static const char *const words[] = {"new", "once", "drop"};
  static const uint8_t kinds[] = {TSR__INSTR_NEW, TSR__INSTR_NEW_ONCE, TSR__INSTR_DROP};
  const char *word = json_string_value(json_array_get(item, 0));
  size_t which = 0;
  uint64_t slot, stack = 0;
  while (word && which < 3 && strcmp(word, words[which]) != 0) which++;
  bool makes = which < 2;
  if (!word || which == 3 || json_array_size(item) != 2 + (size_t)makes ||
      !number(json_array_get(item, 1), form->slot_count, &slot) ||
      (makes && !number(json_array_get(item, 2), r->graph->first.count, &stack)) ||
      state[slot] != (makes ? UNTOUCHED : TAKEN))
    return wrong(r, "an optimizer's instruction", at,
                 "is not a new, once or drop of a slot in the right state");
  state[slot] = which == 0 ? TAKEN : which == 1 ? TAKEN_ONCE : GIVEN_BACK;
  tsr__tape_instr instr = {.kind = kinds[which],
                           .subject = (uint32_t)slot + 1,
                           .stack = makes ? r->graph->first.items[stack] : TSR_NONE};
  return TSR__VECTOR_PUSH(&r->graph->form_instrs, instr) || no_memory(r);
}

static bool read_form_schedule(reader *r, tsr__graph_form *form, const json_t *list) {
  uint8_t *state = TSR__NEW_ARRAY(uint8_t, form->slot_count + 1);
  if (!state) return no_memory(r);
  bool ok = true;
  for (size_t i = 0; ok && i < json_array_size(list); i++)
    ok = read_form_instruction(r, form, state, json_array_get(list, i), i);
  for (size_t i = 0; ok && i < form->slot_count; i++)
    if (state[i] != TAKEN_ONCE && state[i] != GIVEN_BACK)
      ok = wrong(r, "an optimizer's slot", i, "is not made, or made in each step and kept");
  tsr__free(state);
  return ok;
}

static bool read_form(reader *r, tsr__graph_form form, const json_t *value) {
  const json_t *bytes = array_of(r, value, "bytes", TSR__STEP_GRAPH_MOST_SLOTS);
  const json_t *categories = array_of(r, value, "category", TSR__STEP_GRAPH_MOST_SLOTS);
  const json_t *list = array_of(r, value, "instructions", TSR__TAPE_MOST_INSTRUCTIONS);
  if (r->status) return false;
  form.first_slot = (uint32_t)r->graph->form_slots.count;
  form.first_instr = (uint32_t)r->graph->form_instrs.count;
  form.slot_count = (uint32_t)json_array_size(bytes);
  form.instr_count = (uint32_t)json_array_size(list);
  if (json_array_size(categories) != form.slot_count ||
      r->graph->form_slots.count + form.slot_count > TSR__STEP_GRAPH_MOST_SLOTS ||
      r->graph->form_instrs.count + form.instr_count > TSR__TAPE_MOST_INSTRUCTIONS)
    return wrong(r, "optimizer", form.optimizer, "has a form with too many slots");
  for (size_t i = 0; i < form.slot_count; i++) {
    tsr__tape_slot slot = {0};
    if (!read_slot(r, "an optimizer's slot", i, json_array_get(bytes, i),
                   json_array_get(categories, i), &slot))
      return false;
    if (!TSR__VECTOR_PUSH(&r->graph->form_slots, slot)) return no_memory(r);
  }
  if (!read_form_schedule(r, &form, list)) return false;
  return TSR__VECTOR_PUSH(&r->graph->forms, form) || no_memory(r);
}

static bool read_optimizers(reader *r, const json_t *root) {
  static const char *const names[] = {[TSR__OPTIMIZER_FOREACH] = "foreach",
                                      [TSR__OPTIMIZER_LOOP] = "loop",
                                      [TSR__OPTIMIZER_FUSED] = "fused"};
  const json_t *list = optional(r, root, "optimizers", TSR__TAPE_MOST_INSTRUCTIONS);
  r->graph->optimizer_count = (uint32_t)json_array_size(list);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *forms = json_object_get(json_array_get(list, i), "forms");
    if (!json_is_object(forms)) return wrong(r, "optimizer", i, "has no forms");
    for (size_t k = 0; k < TSR__OPTIMIZER_FORMS; k++) {
      const json_t *value = json_object_get(forms, names[k]);
      tsr__graph_form form = {.optimizer = (uint32_t)i, .form = (tsr__form_kind)k};
      if (value && !read_form(r, form, value)) return false;
    }
  }
  return !r->status;
}

/* ---- all of it ---- */

bool tsr__step_graph_is(const json_t *root) {
  const char *schema = json_string_value(json_object_get(root, "schema"));
  return schema && strncmp(schema, SCHEMA_FAMILY, strlen(SCHEMA_FAMILY)) == 0;
}

static void copy_word(char *to, size_t size, const json_t *root, const char *key) {
  const char *word = json_string_value(json_object_get(root, key));
  (void)snprintf(to, size, "%s", word ? word : "");
}

static bool read_parameters(reader *r, const json_t *root) {
  if (number(json_object_get(root, "parameters"), UINT64_C(1) << 62, &r->graph->parameter_count))
    return true;
  r->status = tsr__fail(r->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                        "step graph: 'parameters' is not a count");
  return false;
}

int tsr__step_graph_read(const json_t *root, tsr__step_graph **out, tsr_error *error) {
  const char *schema = json_string_value(json_object_get(root, "schema"));
  if (!schema || strcmp(schema, SCHEMA) != 0)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "step graph of version '%.40s'; this tessera reads " SCHEMA,
                     schema ? schema : "?");
  tsr__step_graph *graph = TSR__NEW(tsr__step_graph);
  if (!graph) return tsr__fail_memory(error);
  reader r = {graph, error, 0};
  graph->tracer.parent = parent;
  copy_word(graph->optimizer, sizeof graph->optimizer, root, "optimizer");
  copy_word(graph->gpu, sizeof graph->gpu, root, "gpu");
  bool ok = read_parameters(&r, root) && read_texts(&r, root) && read_frames(&r, root) &&
            read_stacks(&r, root) && read_slots(&r, root) && read_schedule(&r, root) &&
            read_saves(&r, root) && read_modules(&r, root) && read_unheld(&r, root) &&
            read_ops(&r) && read_work(&r, root) && read_optimizers(&r, root);
  assert(ok == (r.status == 0));
  if (!ok) {
    tsr__step_graph_free(graph);
    return r.status;
  }
  note_phases(graph);
  *out = graph;
  return 0;
}

void tsr__step_graph_free(tsr__step_graph *graph) {
  if (!graph) return;
  for (size_t i = 0; i < graph->texts.count; i++) tsr__free(graph->texts.items[i]);
  TSR__VECTOR_FREE(&graph->texts);
  for (size_t i = 0; i < graph->ops.count; i++) tsr__free(graph->ops.items[i]);
  TSR__VECTOR_FREE(&graph->ops);
  TSR__VECTOR_FREE(&graph->work);
  TSR__VECTOR_FREE(&graph->frames);
  TSR__VECTOR_FREE(&graph->chain);
  TSR__VECTOR_FREE(&graph->first);
  TSR__VECTOR_FREE(&graph->slots);
  TSR__VECTOR_FREE(&graph->schedule);
  TSR__VECTOR_FREE(&graph->saves);
  TSR__VECTOR_FREE(&graph->inputs);
  TSR__VECTOR_FREE(&graph->modules);
  TSR__VECTOR_FREE(&graph->unheld);
  TSR__VECTOR_FREE(&graph->form_slots);
  TSR__VECTOR_FREE(&graph->form_instrs);
  TSR__VECTOR_FREE(&graph->forms);
  tsr__free(graph);
}

tsr__tracer *tsr__step_graph_tracer(tsr__step_graph *graph) {
  return &graph->tracer;
}

/* ---- what libraries take ---- */

enum { MOST_WORKSPACES = 64 };

/* The first product of a thread on a stream, which takes the workspace. */
typedef struct product {
  size_t at; /* instruction */
  bool is_backward;
  uint16_t stream;
} product;

/* Whether cuBLAS runs this op, or an overload of it, as "mm_dtype". */
static bool is_product(const char *op) {
  static const char *const ops[] = {
      "mm",   "addmm", "bmm",        "baddbmm",           "addbmm", "addmv", "mv", "dot",
      "vdot", "addr",  "_scaled_mm", "_addmm_activation", "_int_mm"};
  static const char *const overloads[] = {"", "_out", "_dtype", "_dtype_out"};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    size_t length = strlen(ops[i]);
    if (strncmp(op, ops[i], length) != 0) continue;
    for (size_t k = 0; k < sizeof overloads / sizeof *overloads; k++)
      if (strcmp(op + length, overloads[k]) == 0) return true;
  }
  return false;
}

static size_t find_products(const tsr__step_graph *graph, product out[MOST_WORKSPACES]) {
  size_t count = 0;
  for (size_t i = 0; i < graph->schedule.count && count < MOST_WORKSPACES; i++) {
    const tsr__tape_instr *instr = &graph->schedule.items[i];
    if (instr->kind != TSR__INSTR_NEW ||
        !is_product(tsr__step_graph_op(&graph->tracer, instr->stack)))
      continue;
    product one = {i, instr->is_backward, graph->slots.items[instr->subject - 1].stream};
    size_t k = 0;
    while (k < count && (out[k].is_backward != one.is_backward || out[k].stream != one.stream)) k++;
    if (k == count) out[count++] = one;
  }
  return count;
}

size_t tsr__step_graph_workspaces(const tsr__step_graph *graph) {
  product products[MOST_WORKSPACES];
  return find_products(graph, products);
}

bool tsr__step_graph_needs_kernels(const tsr__step_graph *graph, bool had_flash) {
  const tsr__step_graph *texts = graph->origin ? graph->origin : graph;
  const char *name =
      had_flash ? "_scaled_dot_product_flash_attention" : "_scaled_dot_product_efficient_attention";
  bool is_half = had_flash, has_kernel = false;
  for (size_t i = 0; i < graph->work.count; i++) is_half |= graph->work.items[i].is_half;
  for (size_t i = 0; i < texts->ops.count; i++)
    has_kernel |= texts->ops.items[i] && strcmp(texts->ops.items[i], name) == 0;
  return is_half && has_kernel;
}

/* ---- the tape ---- */

static bool add_slots(const tsr__step_graph *graph, tsr__tape *tape) {
  bool ok = true;
  for (size_t i = 0; ok && i < graph->slots.count; i++) {
    tsr__tape_slot slot = graph->slots.items[i];
    slot.tensors = slot.is_carried; /* a carried slot has a holder until the next step */
    ok = TSR__VECTOR_PUSH(&tape->slots, slot);
    tsr__tape_tensor holder = {.layout = tsr__layout_dense(TSR__SHAPE(slot.bytes)),
                               .slot = (uint32_t)tape->slots.count - 1,
                               .holders = 1,
                               .op = TSR_NONE,
                               .dtype = TSR__DTYPE_BOOL};
    if (ok && slot.is_carried) ok = TSR__VECTOR_PUSH(&tape->tensors, holder);
  }
  return ok;
}

/* A product's workspace in a fresh process, before what it makes. */
static bool take_workspace(const tsr__step_graph *graph, size_t at, uint32_t slot,
                           tsr__tape *tape) {
  tsr__tape_instr instr = graph->schedule.items[at];
  instr.kind = TSR__INSTR_NEW_ONCE;
  instr.subject = slot;
  instr.stack += (uint32_t)graph->chain.count;
  return TSR__VECTOR_PUSH(&tape->schedule, instr);
}

int tsr__step_graph_record(const tsr__step_graph *graph, uint64_t workspace_bytes, bool is_fresh,
                           tsr__tape *tape) {
  product products[MOST_WORKSPACES];
  size_t count = find_products(graph, products), next = 0;
  assert(tape->slots.count == 1 && !tape->schedule.count && workspace_bytes); /* slot 0: none */
  bool ok = add_slots(graph, tape);
  uint32_t first = (uint32_t)tape->slots.count;
  for (size_t i = 0; ok && i < count; i++) {
    tsr__tape_slot slot = {.bytes = workspace_bytes,
                           .category = TSR_CATEGORY_WORKSPACE,
                           .stream = products[i].stream,
                           .is_static = !is_fresh};
    ok = TSR__VECTOR_PUSH(&tape->slots, slot);
  }
  for (size_t i = 0; ok && i < graph->schedule.count; i++) {
    bool takes = is_fresh && next < count && products[next].at == i;
    if (takes) ok = take_workspace(graph, i, first + (uint32_t)next++, tape);
    ok = ok && TSR__VECTOR_PUSH(&tape->schedule, graph->schedule.items[i]);
  }
  return ok ? tsr__tape_finish(tape) : TSR_ERROR_MEMORY;
}

const char *tsr__step_graph_op(const tsr__tracer *tracer, uint32_t stack) {
  const tsr__step_graph *g = (const tsr__step_graph *)tracer;
  const tsr__step_graph *texts = g->origin ? g->origin : g;
  uint32_t text;
  if (stack != TSR_NONE && stack >= g->chain.count) stack -= (uint32_t)g->chain.count;
  if (stack == TSR_NONE || g->chain.items[stack] == TSR_NONE) return "";
  text = g->frames.items[g->chain.items[stack]].name;
  const char *op = text < texts->ops.count ? texts->ops.items[text] : NULL;
  return op ? op : "";
}

bool tsr__step_graph_assumes_work(const tsr__step_graph *graph) {
  return graph->is_work_assumed;
}

uint64_t tsr__step_graph_parameters(const tsr__step_graph *graph) {
  return graph->parameter_count;
}

const char *tsr__step_graph_optimizer(const tsr__step_graph *graph) {
  return graph->optimizer;
}

const char *tsr__step_graph_gpu(const tsr__step_graph *graph) {
  return graph->gpu;
}
