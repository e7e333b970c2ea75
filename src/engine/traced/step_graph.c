/* step_graph.c - see step_graph.h.
 *
 * Arrays of the file become arrays here, checked once; after that indices are valid. The stacks of a snapshot are
 * chains of frames: the part of stack s from depth d outwards has the id first[s] + d, so a caller's id is the next
 * number. */
#include "traced/step_graph.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "traced/graph_data.h"
#include "traced/temporaries.h"

#define SCHEMA          "tessera-step/1"
#define SCHEMA_FAMILY   "tessera-step/"
#define MOST_SLOT_BYTES TSR__TENSOR_MOST_BYTES
/* All slots together: addresses do not wrap. */
#define MOST_BYTES (UINT64_C(1) << 56)
/* Operations or bytes of one op. */
#define MOST_WORK (UINT64_C(1) << 60)

/* A reader, and the first error. */
typedef struct reader {
  tsr__step_graph *graph;
  tsr_error *error;
  char within[48]; /* begins each message: "", or of which form of an optimizer this is */
  int status;
} reader;

/* Refuse the file. The message names the place and what is expected there. */
static bool refuse(reader *r, const char *format, ...) TSR__PRINTF(2, 3);
static bool refuse(reader *r, const char *format, ...) {
  char text[sizeof r->error->message];
  va_list arguments;
  if (r->status) return false;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  r->status =
      tsr__fail(r->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "step graph: %s%s", r->within, text);
  return false;
}

#define SHOWN_BYTES 48

typedef struct shown_text {
  char *out;
  size_t size; /* written so far */
  bool is_cut;
} shown_text;

/* As json_dump_callback wants it: what does not fit is left out. */
static int show_part(const char *part, size_t size, void *context) {
  shown_text *t = context;
  size_t room = SHOWN_BYTES - sizeof "..." - t->size, taken = size < room ? size : room;
  memcpy(t->out + t->size, part, taken);
  t->size += taken;
  t->is_cut |= taken < size;
  return 0;
}

static bool no_memory(reader *r) {
  if (!r->status) r->status = tsr__fail_memory(r->error);
  return false;
}

/* The value as the file has it, cut if it is long; "missing" without one. Out of memory, that is the reader's failure, and
 * what is being refused is not. */
static const char *shown(reader *r, const json_t *value, char out[SHOWN_BYTES]) {
  const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII;
  shown_text t = {.out = out};
  if (!value) return "missing";
  if (json_dump_callback(value, show_part, &t, flags)) (void)no_memory(r);
  memcpy(out + t.size, t.is_cut ? "..." : "", t.is_cut ? sizeof "..." : 1);
  return out;
}

static const json_t *array_of(reader *r, const json_t *in, const char *key, size_t most) {
  char got[SHOWN_BYTES];
  const json_t *array = json_object_get(in, key);
  if (r->status) return NULL;
  if (!json_is_array(array))
    (void)refuse(r, "'%s' is %s, not a list", key, shown(r, array, got));
  else if (json_array_size(array) > most)
    (void)refuse(r, "'%s' has %zu items, more than %zu", key, json_array_size(array), most);
  return r->status ? NULL : array;
}

static const json_t *object_of(reader *r, const json_t *in, const char *key) {
  char got[SHOWN_BYTES];
  const json_t *object = json_object_get(in, key);
  if (r->status) return NULL;
  if (!json_is_object(object))
    (void)refuse(r, "'%s' is %s, not an object", key, shown(r, object, got));
  return r->status ? NULL : object;
}

/* A whole number below `end`. */
static bool number(const json_t *value, uint64_t end, uint64_t *out) {
  json_int_t n = json_integer_value(value);
  if (!json_is_integer(value) || n < 0 || (uint64_t)n >= end) return false;
  *out = (uint64_t)n;
  return true;
}

/* A whole number in a row of a list: from `least` up to, without, `end`. */
typedef struct field {
  const char *name;
  uint64_t least, end;
  const char *things; /* what it numbers, such as slots: there are `end` of them; or NULL */
  bool may_be_none;   /* -1 is read as TSR_NONE */
} field;

static bool read_field(reader *r, const char *where, size_t at, const field *f, const json_t *value,
                       uint64_t *out) {
  char got[SHOWN_BYTES], numbered[32];
  assert(f->things ? !f->least : f->least < f->end);
  if (f->may_be_none && json_is_integer(value) && json_integer_value(value) == -1) {
    *out = TSR_NONE;
    return true;
  }
  if (number(value, f->end, out) && *out >= f->least) return true;
  (void)snprintf(numbered, sizeof numbered, "but %s are numbered", f->things ? f->things : "");
  if (f->things && !f->end)
    (void)refuse(r, "%s %zu: %s is %s, but there are no %s", where, at, f->name,
                 shown(r, value, got), f->things);
  else
    (void)refuse(r, "%s %zu: %s is %s, %s from %llu to %llu%s", where, at, f->name,
                 shown(r, value, got), f->things ? numbered : "not a whole number",
                 (unsigned long long)f->least, (unsigned long long)f->end - 1,
                 f->may_be_none ? ", or -1" : "");
  return false;
}

/* The rows of a list: what one is called, and its items. Those after the fields are read elsewhere. */
typedef struct row_form {
  const char *where, *items; /* "frame", "[function, file, line]" */
  size_t length, field_count;
  const field *fields;
} row_form;

static bool read_row(reader *r, const row_form *form, size_t at, const json_t *row, uint64_t *out) {
  char got[SHOWN_BYTES];
  assert(form->field_count <= form->length);
  if (json_array_size(row) != form->length)
    return refuse(r, "%s %zu is %s, not %s", form->where, at, shown(r, row, got), form->items);
  for (size_t i = 0; i < form->field_count; i++)
    if (!read_field(r, form->where, at, &form->fields[i], json_array_get(row, i), &out[i]))
      return false;
  return true;
}

/* ---- texts, frames, stacks ---- */

static bool read_texts(reader *r, const json_t *root) {
  char got[SHOWN_BYTES];
  const json_t *list = array_of(r, root, "texts", TSR__STEP_GRAPH_MOST_FRAMES);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *text = json_array_get(list, i);
    if (!json_is_string(text))
      return refuse(r, "text %zu is %s, not a text", i, shown(r, text, got));
    size_t length = json_string_length(text);
    char *copy = TSR__NEW_ARRAY(char, length + 1);
    if (!copy) return no_memory(r);
    memcpy(copy, json_string_value(text), length);
    if (memchr(copy, '\0', length) || !TSR__VECTOR_PUSH(&r->graph->texts, copy)) {
      bool has_zero = memchr(copy, '\0', length) != NULL;
      tsr__free(copy);
      return has_zero ? refuse(r, "text %zu contains a zero", i) : no_memory(r);
    }
  }
  return !r->status;
}

static bool read_frames(reader *r, const json_t *root) {
  const json_t *list = array_of(r, root, "frames", TSR__STEP_GRAPH_MOST_FRAMES);
  size_t texts = r->graph->texts.count;
  const field fields[] = {{"the function", 0, texts, "texts", false},
                          {"the file", 0, texts, "texts", false},
                          {"the line", 0, UINT32_MAX, NULL, false}};
  const row_form form = {"frame", "[function, file, line]", 3, 3, fields};
  for (size_t i = 0; i < json_array_size(list); i++) {
    uint64_t n[3];
    if (!read_row(r, &form, i, json_array_get(list, i), n)) return false;
    tsr__graph_frame frame = {(uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2]};
    if (!TSR__VECTOR_PUSH(&r->graph->frames, frame)) return no_memory(r);
  }
  return !r->status;
}

static bool read_stacks(reader *r, const json_t *root) {
  char got[SHOWN_BYTES];
  const json_t *list = array_of(r, root, "stacks", TSR__STEP_GRAPH_MOST_FRAMES);
  const size_t most = 16 * (size_t)TSR__STEP_GRAPH_MOST_FRAMES;
  const field one = {"a frame", 0, r->graph->frames.count, "frames", false};
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *stack = json_array_get(list, i);
    if (!json_is_array(stack) || !json_array_size(stack))
      return refuse(r, "stack %zu is %s, not a list of at least one frame", i,
                    shown(r, stack, got));
    if (r->graph->chain.count + json_array_size(stack) >= most)
      return refuse(r, "stack %zu makes all stacks together deeper than %zu frames", i, most);
    if (!TSR__VECTOR_PUSH(&r->graph->first, (uint32_t)r->graph->chain.count)) return no_memory(r);
    for (size_t k = 0; k < json_array_size(stack); k++) {
      uint64_t frame;
      if (!read_field(r, "stack", i, &one, json_array_get(stack, k), &frame)) return false;
      if (!TSR__VECTOR_PUSH(&r->graph->chain, (uint32_t)frame)) return no_memory(r);
    }
    if (!TSR__VECTOR_PUSH(&r->graph->chain, TSR_NONE)) return no_memory(r);
  }
  return !r->status;
}

/* The innermost frame of a stack, which is a place in the chain; past its end, of a place at which cuBLAS takes a workspace. */
static uint32_t parent(const void *context, uint32_t stack, tsr__trace_frame *frame) {
  const tsr__step_graph *g = context;
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

/* The op that the innermost frame of a stack names, such as mm; "" if none. */
static const char *op_of_stack(const void *context, uint32_t stack) {
  const tsr__step_graph *g = context, *texts = g->origin ? g->origin : g;
  if (stack != TSR_NONE && stack >= g->chain.count) stack -= (uint32_t)g->chain.count;
  if (stack == TSR_NONE || g->chain.items[stack] == TSR_NONE) return "";
  uint32_t text = g->frames.items[g->chain.items[stack]].name;
  const char *op = text < texts->ops.count ? texts->ops.items[text] : NULL;
  return op ? op : "";
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

static bool refuse_category(reader *r, size_t at, const json_t *category) {
  char got[SHOWN_BYTES], names[192] = "";
  for (int i = 0; i < TSR_CATEGORY_COUNT; i++) {
    size_t used = strlen(names);
    (void)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                   tsr_category_name((tsr_category)i));
  }
  return refuse(r, "slot %zu: category is %s, not one of %s", at, shown(r, category, got), names);
}

/* Bytes and category of one slot. */
static bool read_slot(reader *r, size_t at, const json_t *bytes, const json_t *category,
                      tsr__slot *out) {
  static const field size = {"bytes", 1, MOST_SLOT_BYTES, NULL, false};
  if (!read_field(r, "slot", at, &size, bytes, &out->bytes)) return false;
  return category_of(json_string_value(category), &out->category) ||
         refuse_category(r, at, category);
}

/* Whether two columns of slots are equally long. */
static bool check_columns(reader *r, const char *key, const json_t *column, size_t count) {
  return json_array_size(column) == count ||
         refuse(r, "the lengths of '%s' and 'bytes' differ: %zu and %zu", key,
                json_array_size(column), count);
}

/* A list that may be absent: NULL then, and if it is something else, which is refused. */
static const json_t *optional(reader *r, const json_t *root, const char *key, size_t most) {
  return json_object_get(root, key) ? array_of(r, root, key, most) : NULL;
}

/* The stream of each slot, where there are several. */
static bool read_streams(reader *r, const json_t *slots) {
  const json_t *streams = optional(r, slots, "stream", TSR__STEP_GRAPH_MOST_SLOTS);
  if (!streams) return !r->status;
  static const field one = {"stream", 0, UINT16_MAX + 1, NULL, false};
  if (!check_columns(r, "stream", streams, r->graph->slots.count)) return false;
  for (size_t i = 0; i < r->graph->slots.count; i++) {
    uint64_t stream;
    if (!read_field(r, "slot", i, &one, json_array_get(streams, i), &stream)) return false;
    r->graph->slots.items[i].stream = (uint16_t)stream;
  }
  return true;
}

static bool read_slots(reader *r, const json_t *root) {
  char got[SHOWN_BYTES];
  const json_t *slots = object_of(r, root, "slots");
  const json_t *bytes = array_of(r, slots, "bytes", TSR__STEP_GRAPH_MOST_SLOTS);
  const json_t *categories = array_of(r, slots, "category", TSR__STEP_GRAPH_MOST_SLOTS);
  if (r->status) return false;
  const json_t *fixed = json_object_get(root, "static");
  if (!check_columns(r, "category", categories, json_array_size(bytes))) return false;
  if (!number(fixed, json_array_size(bytes) + 1, &r->graph->static_count))
    return refuse(r, "'static' is %s, not a number of slots from 0 to %zu", shown(r, fixed, got),
                  json_array_size(bytes));
  uint64_t total = 0;
  for (size_t i = 0; i < json_array_size(bytes); i++) {
    tsr__slot slot = {.is_static = i < r->graph->static_count};
    if (!read_slot(r, i, json_array_get(bytes, i), json_array_get(categories, i), &slot))
      return false;
    total += slot.bytes;
    if (total > MOST_BYTES)
      return refuse(r, "slot %zu makes the sum of all sizes larger than 2^56 bytes", i);
    if (!TSR__VECTOR_PUSH(&r->graph->slots, slot)) return no_memory(r);
  }
  return read_streams(r, slots);
}

/* ---- the schedule ---- */

/* The state of each slot so far. */
enum { UNTOUCHED, TAKEN, TAKEN_ONCE, GIVEN_BACK };

/* A step graph has no phase of evaluation. */
enum { PHASES = TSR__PHASE_EVALUATION };

typedef struct order {
  uint8_t *state;         /* of each slot */
  uint8_t phases[PHASES]; /* that have begun and not ended */
  size_t depth;
} order;

static bool take(reader *r, order *o, size_t at, uint64_t slot, bool is_once) {
  assert(slot < r->graph->slots.count);
  if (slot < r->graph->static_count || o->state[slot] != UNTOUCHED)
    return refuse(r, "instruction %zu takes slot %zu, which %s", at, (size_t)slot,
                  o->state[slot] == UNTOUCHED ? "is static" : "was taken before");
  o->state[slot] = is_once ? TAKEN_ONCE : TAKEN;
  return true;
}

static const char *state_text(uint8_t state) {
  return state == UNTOUCHED    ? "is not taken before"
         : state == TAKEN_ONCE ? "is taken once, for all steps"
                               : "was given back before";
}

static bool give_back(reader *r, order *o, size_t at, uint64_t slot) {
  assert(slot < r->graph->slots.count);
  if (o->state[slot] != TAKEN)
    return refuse(r, "instruction %zu gives back slot %zu, which %s", at, (size_t)slot,
                  slot < r->graph->static_count ? "is static" : state_text(o->state[slot]));
  o->state[slot] = GIVEN_BACK;
  return true;
}

/* Free the slot's memory of the previous step. The slot must not be freed in its own step; the end of the reader
 * checks that. */
static bool give_back_previous(reader *r, size_t at, uint64_t slot) {
  assert(slot < r->graph->slots.count);
  tsr__slot *s = &r->graph->slots.items[slot];
  if (slot < r->graph->static_count || s->is_carried)
    return refuse(r, "instruction %zu gives back slot %zu of the step before, which %s", at,
                  (size_t)slot, s->is_carried ? "was given back before" : "is static");
  s->is_carried = true;
  return true;
}

static bool phase(reader *r, order *o, size_t at, uint64_t which, bool begins) {
  assert(which < PHASES && o->depth <= PHASES);
  if (begins) {
    if (o->depth == PHASES)
      return refuse(r, "instruction %zu begins phase %zu within %d others", at, (size_t)which,
                    (int)PHASES);
    o->phases[o->depth++] = (uint8_t)which;
    return true;
  }
  if (!o->depth || o->phases[o->depth - 1] != which)
    return refuse(r, "instruction %zu ends phase %zu, which is not the last one that began", at,
                  (size_t)which);
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
  char got[SHOWN_BYTES];
  const char *word = json_string_value(json_array_get(item, 0));
  size_t i = 0;
  while (word && i < sizeof words / sizeof *words && strcmp(word, words[i].word) != 0) i++;
  if (!word || i == sizeof words / sizeof *words)
    return refuse(r, "instruction %zu is %s, not new, once, drop, drop_previous, begin or end", at,
                  shown(r, item, got));
  bool is_phase = words[i].kind == TSR__INSTR_BEGIN || words[i].kind == TSR__INSTR_END;
  const field slot = {"the slot", 0, r->graph->slots.count, "slots", false};
  const field phase_field = {"the phase", 0, PHASES, "phases", false};
  const field stack_field = {"the stack", 0, r->graph->first.count, "stacks", false};
  const field fields[] = {is_phase ? phase_field : slot, stack_field};
  size_t operands = 1 + (size_t)words[i].has_stack;
  uint64_t n[2] = {0};
  if (json_array_size(item) != 1 + operands)
    return refuse(r, "instruction %zu is %s, not [\"%s\", %s]", at, shown(r, item, got), word,
                  is_phase        ? "phase"
                  : operands == 1 ? "slot"
                                  : "slot, stack");
  for (size_t k = 0; k < operands; k++)
    if (!read_field(r, "instruction", at, &fields[k], json_array_get(item, k + 1), &n[k]))
      return false;
  uint64_t subject = n[0];
  tsr__instr instr = {.kind = words[i].kind,
                      .subject = (uint32_t)subject + !is_phase, /* slot 0 of a tape means no slot */
                      .stack = words[i].has_stack ? r->graph->first.items[n[1]] : TSR_NONE};
  for (size_t k = 0; k < o->depth; k++) instr.is_backward |= o->phases[k] == TSR__PHASE_BACKWARD;
  bool ok = true;
  switch ((tsr__instr_kind)instr.kind) {
  case TSR__INSTR_NEW: ok = take(r, o, at, subject, false); break;
  case TSR__INSTR_NEW_ONCE: ok = take(r, o, at, subject, true); break;
  case TSR__INSTR_DROP: ok = give_back(r, o, at, subject); break;
  case TSR__INSTR_DROP_PREV: ok = give_back_previous(r, at, subject); break;
  case TSR__INSTR_BEGIN: ok = phase(r, o, at, subject, true); break;
  default: ok = phase(r, o, at, subject, false); break;
  }
  if (ok && !TSR__VECTOR_PUSH(&r->graph->instrs, instr)) return no_memory(r);
  return ok;
}

/* At the end of a step: slots that are still live are carried into the next one, or made once. */
static bool check_ends(reader *r, const order *o) {
  if (o->depth) return refuse(r, "phase %d does not end", o->phases[o->depth - 1]);
  for (size_t i = r->graph->static_count; i < r->graph->slots.count; i++) {
    bool is_carried = r->graph->slots.items[i].is_carried;
    if (o->state[i] == UNTOUCHED)
      return refuse(r, "slot %zu is not static, and never taken by new or once", i);
    if (is_carried != (o->state[i] == TAKEN))
      return refuse(r, "slot %zu %s", i,
                    is_carried ? "is given back twice: by drop and drop_previous, or after once"
                               : "is taken in each step, and given back by neither drop nor "
                                 "drop_previous");
  }
  return true;
}

static bool read_schedule(reader *r, const json_t *root) {
  const json_t *list = array_of(r, root, "instructions", TSR__MOST_INSTRUCTIONS - 1);
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

static bool read_saves(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "saved", TSR__MOST_INSTRUCTIONS);
  uint64_t places = r->graph->instrs.count + 1;
  char got[SHOWN_BYTES];
  uint32_t before = 0;
  const field fields[] = {{"the slot", 0, r->graph->slots.count, "slots", true},
                          {"bytes", 0, MOST_SLOT_BYTES, NULL, false},
                          {"made", 0, places, NULL, false},
                          {"used", 0, places, NULL, true},
                          {"left", 0, places, NULL, true},
                          {"gone", 0, places, NULL, true}};
  const row_form form = {"save", "[slot, bytes, made, used, left, gone]", 6, 6, fields};
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    uint64_t n[6];
    if (!read_row(r, &form, i, item, n)) return false;
    tsr__save save = {.slot = (uint32_t)n[0],
                      .bytes = n[1],
                      .made = (uint32_t)n[2],
                      .used = (uint32_t)n[3],
                      .left = (uint32_t)n[4],
                      .gone = (uint32_t)n[5]};
    bool is_ordered = save.made >= before && (save.used == TSR_NONE || save.used >= save.made) &&
                      save.left >= (save.used == TSR_NONE ? save.made : save.used) &&
                      save.gone >= (save.used == TSR_NONE ? save.made : save.used);
    if (!is_ordered)
      return refuse(r,
                    "save %zu is %s: it is made before the one before it, or used, left or gone "
                    "too early",
                    i, shown(r, item, got));
    before = save.made;
    if (!TSR__VECTOR_PUSH(&r->graph->saves, save)) return no_memory(r);
  }
  return !r->status;
}

/* What a list of slots in a row contains. */
typedef struct slot_list {
  const char *where, *one, *all; /* "module", "an argument's slot", "arguments" */
} slot_list;

static bool read_slot_list(reader *r, const slot_list *words, size_t at, const json_t *list,
                           uint32_t *first) {
  char got[SHOWN_BYTES];
  const field one = {words->one, 0, r->graph->slots.count, "slots", false};
  if (!json_is_array(list))
    return refuse(r, "%s %zu: the %s are %s, not a list of slots", words->where, at, words->all,
                  shown(r, list, got));
  *first = (uint32_t)r->graph->inputs.count;
  for (size_t i = 0; i < json_array_size(list); i++) {
    uint64_t slot;
    if (!read_field(r, words->where, at, &one, json_array_get(list, i), &slot)) return false;
    if (r->graph->inputs.count >= TSR__MOST_INSTRUCTIONS)
      return refuse(r, "%s %zu has more %s than %u together with those before it", words->where, at,
                    words->all, (unsigned)TSR__MOST_INSTRUCTIONS);
    if (!TSR__VECTOR_PUSH(&r->graph->inputs, (uint32_t)slot)) return no_memory(r);
  }
  return true;
}

static bool read_modules(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "modules", TSR__MOST_INSTRUCTIONS);
  const uint64_t texts = r->graph->texts.count, places = r->graph->instrs.count + 1,
                 saves = r->graph->saves.count + 1;
  uint64_t before = 0;
  char got[SHOWN_BYTES];
  const field fields[] = {
      {"the name", 0, texts, "texts", false},    {"the class", 0, texts, "texts", false},
      {"begin", 0, places, NULL, false},         {"end", 0, places, NULL, false},
      {"the first save", 0, saves, NULL, false}, {"the end of saves", 0, saves, NULL, false}};
  const row_form form = {
      "module", "[name, class, begin, end, first save, end of saves, [slots of arguments]]", 7, 6,
      fields};
  const slot_list arguments = {"module", "an argument's slot", "arguments"};
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    uint64_t n[6];
    if (!read_row(r, &form, i, item, n)) return false;
    if (n[2] > n[3] || n[4] > n[5])
      return refuse(r, "module %zu is %s, whose %s before they begin", i, shown(r, item, got),
                    n[2] > n[3] ? "instructions end" : "saves end");
    if (n[2] < before)
      return refuse(r, "module %zu is %s, which begins before the one before it", i,
                    shown(r, item, got));
    before = n[2];
    tsr__graph_module module = {.name = (uint32_t)n[0],
                                .kind = (uint32_t)n[1],
                                .begin = (uint32_t)n[2],
                                .end = (uint32_t)n[3],
                                .first_save = (uint32_t)n[4],
                                .end_save = (uint32_t)n[5],
                                .why_once = TSR_NONE};
    const json_t *inputs = json_array_get(item, 6);
    if (!read_slot_list(r, &arguments, i, inputs, &module.first_input)) return false;
    module.input_count = (uint32_t)json_array_size(inputs);
    if (!TSR__VECTOR_PUSH(&r->graph->modules, module)) return no_memory(r);
  }
  return !r->status;
}

static bool read_effects(reader *r, const json_t *root) {
  static const char where[] = "'effects', item";
  const json_t *list = optional(r, root, "effects", TSR__MOST_INSTRUCTIONS);
  const field calls[] = {{"the call", 0, r->graph->modules.count, "modules", false}};
  const field why = {"the reason", 0, r->graph->texts.count, "texts", true};
  const row_form form = {where, "[call, [slots of tensors], reason]", 3, 1, calls};
  const slot_list tensors = {where, "a tensor's slot", "tensors"};
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i), *slots = json_array_get(item, 1);
    uint64_t call, text;
    if (!read_row(r, &form, i, item, &call)) return false;
    tsr__graph_module *module = &r->graph->modules.items[call];
    if (!read_slot_list(r, &tensors, i, slots, &module->first_state) ||
        !read_field(r, where, i, &why, json_array_get(item, 2), &text))
      return false;
    module->state_count = (uint32_t)json_array_size(slots);
    module->why_once = (uint32_t)text;
  }
  return !r->status;
}

static bool read_unheld(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "unheld", TSR__MOST_INSTRUCTIONS);
  for (size_t i = 0; i < r->graph->slots.count; i++)
    if (!TSR__VECTOR_PUSH(&r->graph->unheld, TSR_NONE)) return no_memory(r);
  const field fields[] = {{"the slot", 0, r->graph->slots.count, "slots", false},
                          {"the place", 0, r->graph->instrs.count + 1, NULL, false}};
  const row_form form = {"'unheld', item", "[slot, place]", 2, 2, fields};
  for (size_t i = 0; i < json_array_size(list); i++) {
    uint64_t n[2];
    if (!read_row(r, &form, i, json_array_get(list, i), n)) return false;
    r->graph->unheld.items[n[0]] = (uint32_t)n[1];
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
  for (size_t i = 0; i < g->instrs.count; i++) {
    const tsr__instr *instr = &g->instrs.items[i];
    if (instr->kind != TSR__INSTR_NEW) continue;
    tsr__op_work work = {.place = (uint32_t)i,
                         .bytes = 2 * g->slots.items[instr->subject - 1].bytes};
    if (!TSR__VECTOR_PUSH(&g->work, work)) return no_memory(r);
  }
  return true;
}

static bool read_work(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "work", TSR__MOST_INSTRUCTIONS);
  char got[SHOWN_BYTES];
  uint32_t before = 0;
  const field fields[] = {
      {"the place", 0, r->graph->instrs.count + 1, NULL, false},
      {"operations", 0, MOST_WORK, NULL, false},
      {"bytes", 0, MOST_WORK, NULL, false},
  };
  const row_form form = {"'work', item", "[place, operations, bytes, bits]", 4, 3, fields};
  for (size_t i = 0; i < json_array_size(list); i++) {
    uint64_t n[3], bits;
    const json_t *row = json_array_get(list, i);
    if (!read_row(r, &form, i, row, n)) return false;
    if (!number(json_array_get(row, 3), 33, &bits) || (bits != 16 && bits != 32))
      return refuse(r, "'work', item %zu: bits is %s, not 16 or 32", i,
                    shown(r, json_array_get(row, 3), got));
    if (n[0] < before)
      return refuse(r,
                    "'work', item %zu: the place is %zu, less than that of the one before it, %u",
                    i, (size_t)n[0], before);
    tsr__op_work work = {
        .place = (uint32_t)n[0], .is_half = bits == 16, .flops = n[1], .bytes = n[2]};
    before = work.place;
    if (!TSR__VECTOR_PUSH(&r->graph->work, work)) return no_memory(r);
  }
  return !r->status && (list || assume_work(r));
}

/* The phase in which each op runs: the innermost. */
static void note_phases(tsr__step_graph *g) {
  tsr__phase_kind stack[PHASES + 1] = {TSR__PHASE_STEP};
  size_t depth = 0, next = 0;
  for (size_t i = 0; i <= g->instrs.count; i++) {
    for (; next < g->work.count && g->work.items[next].place == i; next++)
      g->work.items[next].phase = (uint8_t)stack[depth];
    if (i == g->instrs.count) break;
    const tsr__instr *instr = &g->instrs.items[i];
    if (instr->kind == TSR__INSTR_BEGIN) stack[++depth] = (tsr__phase_kind)instr->subject;
    if (instr->kind == TSR__INSTR_END) depth--;
    assert(depth <= PHASES);
  }
  assert(next == g->work.count);
}

/* ---- what kernels allocate while they run ---- */

#define CALL "'kernels', item"

/* The calls so far, and what the graph holds with their temporaries. */
typedef struct kernel_calls {
  TSR__VECTOR(tsr__kernel_call) items;
  uint64_t bytes;
  size_t slots, instructions;
} kernel_calls;

/* The op that allocates what the instructions from `begin` to `end` - 1 do; NULL if not all of them allocate. */
static const char *op_of(const tsr__step_graph *g, uint64_t begin, uint64_t end) {
  const tsr__instr *instrs = g->instrs.items;
  assert(begin < end && end <= g->instrs.count);
  for (uint64_t i = begin; i < end; i++)
    if (instrs[i].kind != TSR__INSTR_NEW && instrs[i].kind != TSR__INSTR_NEW_ONCE) return NULL;
  return op_of_stack(g, instrs[begin].stack);
}

/* The bytes of its temporaries. */
static bool measure(reader *r, kernel_calls *calls, size_t at, const uint64_t *sizes, uint64_t bits,
                    tsr__kernel_call *call) {
  for (size_t i = 0; i < call->row->count; i++) {
    uint64_t bytes = call->bytes[i] = call->row->items[i].bytes(sizes, bits);
    if (bytes >= MOST_SLOT_BYTES)
      return refuse(r, CALL " %zu: a temporary of %s has 2^48 bytes or more", at, call->row->op);
    calls->bytes += bytes;
    calls->slots += bytes != 0;
    calls->instructions += 2 * (size_t)(bytes != 0);
  }
  if (calls->bytes > MOST_BYTES)
    return refuse(r, CALL " %zu makes the sum of all sizes larger than 2^56 bytes", at);
  if (calls->slots > TSR__STEP_GRAPH_MOST_SLOTS || calls->instructions >= TSR__MOST_INSTRUCTIONS)
    return refuse(r, CALL " %zu: with temporaries there are more than %u slots or %u instructions",
                  at, (unsigned)TSR__STEP_GRAPH_MOST_SLOTS, (unsigned)TSR__MOST_INSTRUCTIONS - 1);
  return true;
}

static bool read_sizes(reader *r, size_t at, const json_t *list, const tsr__temporaries *row,
                       uint64_t *out) {
  char got[SHOWN_BYTES];
  const field size = {"a size", 0, MOST_SLOT_BYTES, NULL, false};
  assert(row->size_count <= TSR__KERNEL_SIZES && row->count <= TSR__KERNEL_TEMPORARIES);
  if (json_array_size(list) != row->size_count)
    return refuse(r, CALL " %zu: the sizes are %s, but %s has %u", at, shown(r, list, got), row->op,
                  (unsigned)row->size_count);
  for (size_t i = 0; i < row->size_count; i++)
    if (!read_field(r, CALL, at, &size, json_array_get(list, i), &out[i])) return false;
  return true;
}

/* Calls whose temporaries are not known are left out. */
static bool read_kernel(reader *r, kernel_calls *calls, const json_t *item, size_t at,
                        uint32_t *after) {
  char got[SHOWN_BYTES];
  const size_t places = r->graph->instrs.count + 1;
  const field fields[] = {{"the first instruction", 0, places, NULL, false},
                          {"the end", 0, places, NULL, false},
                          {"bits", 1, 129, NULL, false}};
  const row_form form = {CALL, "[begin, end, bits, [sizes]]", 4, 3, fields};
  uint64_t n[3] = {0}, sizes[TSR__KERNEL_SIZES] = {0};
  if (!read_row(r, &form, at, item, n)) return false;
  if (!json_is_array(json_array_get(item, 3)))
    return refuse(r, CALL " %zu: the sizes are %s, not a list", at,
                  shown(r, json_array_get(item, 3), got));
  if (n[0] < *after)
    return refuse(r, CALL " %zu begins at %zu, before the end of the one before it, %u", at,
                  (size_t)n[0], *after);
  if (n[1] <= n[0])
    return refuse(r, CALL " %zu ends at %zu, but begins at %zu", at, (size_t)n[1], (size_t)n[0]);
  const char *op = op_of(r->graph, n[0], n[1]);
  if (!op)
    return refuse(r, CALL " %zu: instructions %zu to %zu are not all new or once", at, (size_t)n[0],
                  (size_t)n[1] - 1);
  *after = (uint32_t)n[1];
  tsr__kernel_call call = {
      .begin = (uint32_t)n[0], .end = *after, .row = tsr__temporaries_of(op, n[2])};
  if (!call.row) return true;
  if (!read_sizes(r, at, json_array_get(item, 3), call.row, sizes) ||
      !measure(r, calls, at, sizes, n[2], &call))
    return false;
  return TSR__VECTOR_PUSH(&calls->items, call) || no_memory(r);
}

/* After all that has places in the schedule. */
static bool read_kernels(reader *r, const json_t *root) {
  const json_t *list = optional(r, root, "kernels", TSR__MOST_INSTRUCTIONS);
  kernel_calls calls = {.slots = r->graph->slots.count, .instructions = r->graph->instrs.count};
  uint32_t after = 0;
  bool ok = !r->status;
  r->graph->lacks_kernels = list == NULL;
  for (size_t i = 0; i < r->graph->slots.count; i++) calls.bytes += r->graph->slots.items[i].bytes;
  for (size_t i = 0; ok && i < json_array_size(list); i++)
    ok = read_kernel(r, &calls, json_array_get(list, i), i, &after);
  if (ok && !tsr__step_graph_add_temporaries(r->graph, calls.items.items, calls.items.count))
    ok = no_memory(r);
  TSR__VECTOR_FREE(&calls.items);
  return ok;
}

/* ---- the forms of optimizers ---- */

/* Read an instruction: each slot is made, and stays or is freed afterwards. */
static bool read_form_instruction(reader *r, tsr__graph_form *form, uint8_t *state,
                                  const json_t *item, size_t at) {
  static const char *const words[] = {"new", "once", "drop"};
  static const uint8_t kinds[] = {TSR__INSTR_NEW, TSR__INSTR_NEW_ONCE, TSR__INSTR_DROP};
  char got[SHOWN_BYTES];
  const char *word = json_string_value(json_array_get(item, 0));
  size_t which = 0;
  while (word && which < 3 && strcmp(word, words[which]) != 0) which++;
  bool makes = which < 2;
  if (!word || which == 3 || json_array_size(item) != 2 + (size_t)makes)
    return refuse(r,
                  "instruction %zu is %s, not [\"new\", slot, stack], [\"once\", slot, stack] or "
                  "[\"drop\", slot]",
                  at, shown(r, item, got));
  const field slots = {"the slot", 0, form->slot_count, "slots", false};
  const field stacks = {"the stack", 0, r->graph->first.count, "stacks", false};
  uint64_t slot, stack = 0;
  if (!read_field(r, "instruction", at, &slots, json_array_get(item, 1), &slot) ||
      (makes && !read_field(r, "instruction", at, &stacks, json_array_get(item, 2), &stack)))
    return false;
  if (state[slot] != (makes ? UNTOUCHED : TAKEN))
    return refuse(r, "instruction %zu %s slot %zu, which %s", at, makes ? "takes" : "gives back",
                  (size_t)slot, makes ? "was taken before" : state_text(state[slot]));
  state[slot] = which == 0 ? TAKEN : which == 1 ? TAKEN_ONCE : GIVEN_BACK;
  tsr__instr instr = {.kind = kinds[which],
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
      ok = refuse(r, "slot %zu %s", i,
                  state[i] == UNTOUCHED ? "is never taken by new or once"
                                        : "is taken in each step and not given back by drop");
  tsr__free(state);
  return ok;
}

static bool read_form(reader *r, tsr__graph_form form, const json_t *value) {
  const json_t *bytes = array_of(r, value, "bytes", TSR__STEP_GRAPH_MOST_SLOTS);
  const json_t *categories = array_of(r, value, "category", TSR__STEP_GRAPH_MOST_SLOTS);
  const json_t *list = array_of(r, value, "instructions", TSR__MOST_INSTRUCTIONS);
  if (r->status) return false;
  form.first_slot = (uint32_t)r->graph->form_slots.count;
  form.first_instr = (uint32_t)r->graph->form_instrs.count;
  form.slot_count = (uint32_t)json_array_size(bytes);
  form.instr_count = (uint32_t)json_array_size(list);
  if (!check_columns(r, "category", categories, form.slot_count)) return false;
  if (r->graph->form_slots.count + form.slot_count > TSR__STEP_GRAPH_MOST_SLOTS ||
      r->graph->form_instrs.count + form.instr_count > TSR__MOST_INSTRUCTIONS)
    return refuse(r, "all forms together have more than %u slots or %u instructions",
                  (unsigned)TSR__STEP_GRAPH_MOST_SLOTS, (unsigned)TSR__MOST_INSTRUCTIONS);
  for (size_t i = 0; i < form.slot_count; i++) {
    tsr__slot slot = {0};
    if (!read_slot(r, i, json_array_get(bytes, i), json_array_get(categories, i), &slot))
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
  const json_t *list = optional(r, root, "optimizers", TSR__MOST_INSTRUCTIONS);
  r->graph->optimizer_count = (uint32_t)json_array_size(list);
  for (size_t i = 0; i < json_array_size(list); i++) {
    (void)snprintf(r->within, sizeof r->within, "optimizer %zu: ", i);
    const json_t *forms = object_of(r, json_array_get(list, i), "forms");
    for (size_t k = 0; k < TSR__OPTIMIZER_FORMS; k++) {
      const json_t *value = json_object_get(forms, names[k]);
      tsr__graph_form form = {.optimizer = (uint32_t)i, .form = (tsr__form_kind)k};
      (void)snprintf(r->within, sizeof r->within, "optimizer %zu, %s: ", i, names[k]);
      if (value && !read_form(r, form, value)) return false;
    }
  }
  r->within[0] = '\0';
  return !r->status;
}

/* ---- all of it ---- */

bool tsr__step_graph_is(const json_t *root) {
  const char *schema = json_string_value(json_object_get(root, "schema"));
  bool has_steps = json_object_get(root, "instructions") && json_object_get(root, "slots");
  return has_steps || (schema && strncmp(schema, SCHEMA_FAMILY, strlen(SCHEMA_FAMILY)) == 0);
}

bool tsr__step_graph_begins(const char *text, size_t size_bytes) {
  static const char word[] = "\"" SCHEMA_FAMILY;
  enum { BEGINNING = 256 };
  size_t size = sizeof word - 1, most = size_bytes < BEGINNING ? size_bytes : BEGINNING;
  for (size_t i = 0; i + size <= most; i++)
    if (memcmp(text + i, word, size) == 0) return true;
  return false;
}

/* "" if the key is absent. */
static bool read_word(reader *r, const json_t *root, const char *key, char *out, size_t size) {
  char got[SHOWN_BYTES];
  const json_t *value = json_object_get(root, key);
  if (value && !json_is_string(value))
    return refuse(r, "'%s' is %s, not a text", key, shown(r, value, got));
  (void)snprintf(out, size, "%s", value ? json_string_value(value) : "");
  return true;
}

static void add_note(tsr__step_graph *graph, const char *note) {
  size_t count = 0, most = sizeof graph->notes / sizeof *graph->notes - 1;
  while (graph->notes[count]) count++;
  assert(count < most);
  if (count < most) graph->notes[count] = note;
}

/* Which experts of a mixture got how many tokens. */
static bool read_routing(reader *r, const json_t *root) {
  static const struct {
    const char *word, *note;
  } known[] = {
      {"balanced", "routing: balanced, so each expert gets the same share of the tokens"},
      {"worst", "routing: worst, so a few experts get almost all tokens, and the others one each"},
      {"given", "routing: given, so each expert gets the tokens that were given for the trace"},
  };
  char word[32], got[SHOWN_BYTES];
  if (!json_object_get(root, "routing")) return true;
  if (!read_word(r, root, "routing", word, sizeof word)) return false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(word, known[i].word) == 0) add_note(r->graph, known[i].note);
  return r->graph->notes[0] || refuse(r, "'routing' is %s, not balanced, worst or given",
                                      shown(r, json_object_get(root, "routing"), got));
}

/* Whether the program calls code of torch.compile. */
static bool read_compiled(reader *r, const json_t *root) {
  char got[SHOWN_BYTES];
  const json_t *value = json_object_get(root, "compiled");
  if (value && !json_is_boolean(value))
    return refuse(r, "'compiled' is %s, not true or false", shown(r, value, got));
  if (json_is_true(value))
    add_note(r->graph,
             "torch.compile: traced uncompiled, an upper bound for steps after compiling, "
             "because compiled code joins ops and keeps less");
  return true;
}

static bool read_parameters(reader *r, const json_t *root) {
  char got[SHOWN_BYTES];
  const json_t *value = json_object_get(root, "parameters");
  return number(value, UINT64_C(1) << 62, &r->graph->parameter_count) ||
         refuse(r, "'parameters' is %s, not a number of elements", shown(r, value, got));
}

int tsr__step_graph_read(const json_t *root, tsr__step_graph **out, tsr_error *error) {
  char got[SHOWN_BYTES];
  const json_t *schema = json_object_get(root, "schema");
  reader r = {.error = error};
  if (!json_is_string(schema) || strcmp(json_string_value(schema), SCHEMA) != 0) {
    const char *found = shown(&r, schema, got);
    if (r.status) return r.status;
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "step graph: 'schema' is %s; this tessera reads \"" SCHEMA "\"", found);
  }
  tsr__step_graph *graph = r.graph = TSR__NEW(tsr__step_graph);
  if (!graph) return tsr__fail_memory(error);
  bool ok = read_word(&r, root, "optimizer", graph->optimizer, sizeof graph->optimizer) &&
            read_word(&r, root, "gpu", graph->gpu, sizeof graph->gpu) && read_routing(&r, root) &&
            read_compiled(&r, root) && read_parameters(&r, root) && read_texts(&r, root) &&
            read_frames(&r, root) && read_stacks(&r, root) && read_slots(&r, root) &&
            read_schedule(&r, root) && read_saves(&r, root) && read_modules(&r, root) &&
            read_effects(&r, root) && read_unheld(&r, root) && read_ops(&r) &&
            read_work(&r, root) && read_kernels(&r, root) && read_optimizers(&r, root);
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
  TSR__VECTOR_FREE(&graph->instrs);
  TSR__VECTOR_FREE(&graph->saves);
  TSR__VECTOR_FREE(&graph->inputs);
  TSR__VECTOR_FREE(&graph->modules);
  TSR__VECTOR_FREE(&graph->unheld);
  TSR__VECTOR_FREE(&graph->form_slots);
  TSR__VECTOR_FREE(&graph->form_instrs);
  TSR__VECTOR_FREE(&graph->forms);
  tsr__free(graph);
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
  for (size_t i = 0; i < graph->instrs.count && count < MOST_WORKSPACES; i++) {
    const tsr__instr *instr = &graph->instrs.items[i];
    if (instr->kind != TSR__INSTR_NEW || !is_product(op_of_stack(graph, instr->stack))) continue;
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

/* ---- to a schedule ---- */

/* Where the instructions of a graph are in its schedule, in which products take their workspaces. */
typedef struct maker {
  const tsr__step_graph *g;
  tsr__schedule *s;
  const product *products; /* that take a workspace in the step, in order */
  size_t product_count;
} maker;

/* The place in the schedule. What happens before an instruction happens before the workspace that it takes, too. */
static uint32_t place_of(const maker *m, uint32_t place) {
  uint32_t more = 0;
  if (place == TSR_NONE) return TSR_NONE;
  while (more < m->product_count && m->products[more].at < place) more++;
  return place + more;
}

static bool add_slots(const maker *m, uint64_t workspace_bytes, const product *products,
                      size_t count) {
  const tsr__step_graph *g = m->g;
  tsr__slot none = {.is_static = true};
  bool ok = TSR__VECTOR_RESERVE(&m->s->slots, g->slots.count + count + 1) &&
            TSR__VECTOR_PUSH(&m->s->slots, none);
  for (size_t i = 0; ok && i < g->slots.count; i++)
    ok = TSR__VECTOR_PUSH(&m->s->slots, g->slots.items[i]);
  for (size_t i = 0; ok && i < count; i++) {
    tsr__slot slot = {.bytes = workspace_bytes,
                      .category = TSR_CATEGORY_WORKSPACE,
                      .stream = products[i].stream,
                      .is_static = !m->product_count};
    ok = TSR__VECTOR_PUSH(&m->s->slots, slot);
  }
  return ok;
}

/* A product takes its workspace before what it makes. */
static bool add_instrs(const maker *m) {
  const tsr__step_graph *g = m->g;
  uint32_t slot = (uint32_t)g->slots.count + 1;
  size_t next = 0;
  bool ok = TSR__VECTOR_RESERVE(&m->s->instrs, g->instrs.count + m->product_count + 1);
  for (size_t i = 0; ok && i < g->instrs.count; i++) {
    tsr__instr instr = g->instrs.items[i];
    if (next < m->product_count && m->products[next].at == i) {
      tsr__instr take = instr;
      take.kind = TSR__INSTR_NEW_ONCE;
      take.subject = slot + (uint32_t)next++;
      take.stack += (uint32_t)g->chain.count;
      ok = TSR__VECTOR_PUSH(&m->s->instrs, take);
    }
    ok = ok && TSR__VECTOR_PUSH(&m->s->instrs, instr);
  }
  return ok;
}

static bool add_work(const maker *m) {
  const tsr__step_graph *g = m->g;
  bool ok = true;
  for (size_t i = 0; ok && i < g->work.count; i++) {
    tsr__op_work work = g->work.items[i];
    work.place = place_of(m, work.place);
    ok = TSR__VECTOR_PUSH(&m->s->work, work);
  }
  return ok;
}

/* A graph counts slots from 0, a schedule from 1, because its 0 stands for none. */
static bool add_saves(const maker *m) {
  const tsr__step_graph *g = m->g;
  bool ok = true;
  if (g->origin) return true; /* places are those of the original */
  for (size_t i = 0; ok && i < g->saves.count; i++) {
    const tsr__save *from = &g->saves.items[i];
    tsr__save save = {.slot = from->slot == TSR_NONE ? TSR_NONE : from->slot + 1,
                      .made = place_of(m, from->made),
                      .used = place_of(m, from->used),
                      .left = place_of(m, from->left),
                      .gone = place_of(m, from->gone),
                      .bytes = from->bytes};
    ok = TSR__VECTOR_PUSH(&m->s->saves, save);
  }
  for (size_t i = 0; ok && i < m->s->slots.count; i++) {
    bool is_of_graph = i > 0 && i <= g->unheld.count;
    uint32_t place = is_of_graph ? place_of(m, g->unheld.items[i - 1]) : TSR_NONE;
    ok = TSR__VECTOR_PUSH(&m->s->unheld, place);
  }
  return ok;
}

int tsr__step_graph_schedule(const tsr__step_graph *graph, uint64_t workspace_bytes, bool is_fresh,
                             tsr__schedule *out) {
  product products[MOST_WORKSPACES];
  size_t count = find_products(graph, products);
  tsr__schedule s = {.labels = {.context = graph, .parent = parent, .op = op_of_stack},
                     .parameter_count = graph->parameter_count,
                     .waited_bytes = graph->copied_bytes,
                     .waits_for_copies = true};
  const maker m = {graph, &s, products, is_fresh ? count : 0};
  assert(workspace_bytes);
  bool ok = add_slots(&m, workspace_bytes, products, count) && add_instrs(&m) && add_work(&m) &&
            add_saves(&m);
  int status = ok ? tsr__schedule_check(&s) : TSR_ERROR_MEMORY;
  if (status)
    tsr__schedule_release(&s);
  else
    *out = s;
  return status;
}

bool tsr__step_graph_assumes_work(const tsr__step_graph *graph) {
  return graph->is_work_assumed;
}

bool tsr__step_graph_lacks_kernels(const tsr__step_graph *graph) {
  return graph->lacks_kernels;
}

uint64_t tsr__step_graph_parameters(const tsr__step_graph *graph) {
  return graph->parameter_count;
}

const char *tsr__step_graph_optimizer(const tsr__step_graph *graph) {
  return graph->optimizer;
}

const char *const *tsr__step_graph_notes(const tsr__step_graph *graph) {
  return graph->notes;
}

const char *tsr__step_graph_gpu(const tsr__step_graph *graph) {
  return graph->gpu;
}
