/* plan_file.c - see tessera/unstable/plans.h: a plan as parameters and ranges of blocks.
 *
 *   file ──► JSON ──┐                      ┌─► options of a program
 *                   ├─► parameters, blocks ┤
 *   command line ───┘                      └─► JSON, canonical ──► hash
 *
 * The keys of the file are the rows of TSR_RUN_PARAMETERS by name, so an option that is added there is a key
 * here, with the same words and the same messages. "blocks" and "version" are the file's own, and so are lists of modules
 * in the place of the words of "checkpoint" and "offload".
 *
 * Invariant: a plan's parameters are given exactly if they are not default. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/json_load.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/vector.h"
#include "exec/measure.h"
#include "plan/plan_file.h"
#include "tessera/unstable/plans.h"
#include "tessera/unstable/runs.h"

enum {
  VERSION = 1,
  MOST_RANGES = 4096,
  MOST_SAVED = 256,
  MOST_MODULES = 65536,
  MODULE_BYTES = 1024, /* of a name */
  WORD_BYTES = 160
};

static const tsr_parameter rows[] = {TSR_RUN_PARAMETERS};
enum { ROWS = sizeof rows / sizeof *rows };

struct tsr_run_plan {
  tsr_params *params;
  tsr__arena arena; /* of what `blocks` points to */
  TSR__VECTOR(tsr_block_choice) blocks;
  TSR__VECTOR(tsr_module_choice) modules; /* sorted, without repetitions */
  tsr__buffer text;                       /* canonical, ends in a zero byte */
  char hash[TSR_RUN_PLAN_HASH_BYTES];
};

void tsr_run_plan_free(tsr_run_plan *plan) {
  if (!plan) return;
  tsr_params_free(plan->params);
  tsr__arena_release(&plan->arena);
  TSR__VECTOR_FREE(&plan->blocks);
  TSR__VECTOR_FREE(&plan->modules);
  tsr__buffer_release(&plan->text);
  tsr__free(plan);
}

static tsr_run_plan *new_plan(tsr_error *error) {
  tsr_run_plan *plan = TSR__NEW(tsr_run_plan);
  if (plan) tsr__arena_init(&plan->arena);
  if (plan && tsr_params_new(rows, ROWS, TSR_INTERFACE_PYTHON, &plan->params, error) == 0)
    return plan;
  if (!plan) (void)tsr__fail_memory(error);
  tsr_run_plan_free(plan);
  return NULL;
}

/* ---- values of parameters ---- */

/* A choice as it is typed: "chunked:64". At most `room` bytes; false if it was cut. */
static bool choice_text(const tsr_params *params, const tsr_parameter *row, char *out,
                        size_t room) {
  assert(row->kind == TSR_PARAMETER_CHOICE && tsr_params_choice(params, row->name) >= 0);
  const char *word = row->choices[tsr_params_choice(params, row->name)];
  const char *key = tsr_params_choice_key(params, row->name), *colon = strchr(word, ':');
  int length = colon ? (int)(colon - word) : (int)strlen(word), used;
  if (key)
    used = snprintf(out, room, "%.*s:%s", length, word, key);
  else if (colon)
    used = snprintf(out, room, "%.*s:%" PRIu64, length, word,
                    tsr_params_choice_number(params, row->name));
  else
    used = snprintf(out, room, "%s", word);
  return used >= 0 && (size_t)used < room;
}

static bool is_default(const tsr_params *params, const tsr_parameter *row) {
  switch (row->kind) {
  case TSR_PARAMETER_COUNT: return tsr_params_count(params, row->name) == (uint64_t)row->fallback;
  case TSR_PARAMETER_CHOICE: return tsr_params_choice(params, row->name) <= 0;
  case TSR_PARAMETER_FLAG: return !tsr_params_flag(params, row->name);
  case TSR_PARAMETER_TEXT: return !tsr_params_text(params, row->name);
  default: assert(false); return true; /* the rows of TSR_RUN_PARAMETERS are of these kinds */
  }
}

static int set_text(tsr_run_plan *plan, const tsr_parameter *row, const char *text,
                    tsr_error *error) {
  return tsr_params_set_text(plan->params, row->name, text, strlen(text), error);
}

/* What is offloaded, in its canonical form: the words in their order, without what is understood. */
static int set_offload(tsr_run_plan *plan, const tsr_parameter *row, const char *text,
                       tsr_error *error) {
  tsr_offload homes;
  char canonical[WORD_BYTES] = "";
  int status = tsr_offload_parse(text, &homes, error);
  if (status) return status;
  const struct {
    const char *word;
    tsr_space space;
  } words[] = {{"optimizer", homes.optimizer},
               {"gradients", homes.gradients},
               {"parameters", homes.parameters},
               {"activations", homes.activations}};
  assert(strcmp(row->name, "offload") == 0);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t used = strlen(canonical);
    if (words[i].space == TSR_SPACE_DEVICE) continue;
    (void)snprintf(canonical + used, sizeof canonical - used, "%s%s%s", used ? "," : "",
                   words[i].word, words[i].space == TSR_SPACE_DISK ? ":disk" : "");
  }
  return *canonical ? set_text(plan, row, canonical, error) : 0;
}

/* Ops in place, in the order of their flags. */
static int set_in_place(tsr_run_plan *plan, const tsr_parameter *row, const char *text,
                        tsr_error *error) {
  unsigned flags;
  char canonical[WORD_BYTES] = "";
  int status = tsr_in_place_parse(text, &flags, error);
  if (status) return status;
  for (unsigned flag = 1; flag <= flags; flag <<= 1) {
    size_t used = strlen(canonical);
    if (flags & flag)
      (void)snprintf(canonical + used, sizeof canonical - used, "%s%s", used ? "," : "",
                     tsr_in_place_word((tsr_in_place)flag));
  }
  return *canonical ? set_text(plan, row, canonical, error) : 0;
}

/* A text, as it is unless it has a canonical form. */
static int set_words(tsr_run_plan *plan, const tsr_parameter *row, const char *text,
                     tsr_error *error) {
  if (strcmp(row->name, "offload") == 0) return set_offload(plan, row, text, error);
  if (strcmp(row->name, "in_place") == 0) return set_in_place(plan, row, text, error);
  return set_text(plan, row, text, error);
}

/* Take a value over, unless it is default. */
static int copy_value(tsr_run_plan *plan, const tsr_parameter *row, const tsr_params *from,
                      tsr_error *error) {
  char text[WORD_BYTES];
  if (is_default(from, row)) return 0;
  switch (row->kind) {
  case TSR_PARAMETER_COUNT:
    (void)snprintf(text, sizeof text, "%" PRIu64, tsr_params_count(from, row->name));
    return set_text(plan, row, text, error);
  case TSR_PARAMETER_CHOICE:
    if (choice_text(from, row, text, sizeof text)) return set_text(plan, row, text, error);
    return tsr_params_fail(from, error, "{=%s} is longer than %d bytes", row->name, WORD_BYTES - 1);
  case TSR_PARAMETER_TEXT: return set_words(plan, row, tsr_params_text(from, row->name), error);
  default: return tsr_params_set_integer(plan->params, row->name, 1, error);
  }
}

static const tsr_parameter *row_of(const char *name) {
  for (size_t i = 0; i < ROWS; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}

/* ---- checkpoints by blocks ---- */

/* The enum's value of a word of the option "checkpoint". */
static tsr_simulate_checkpoint checkpoint_of(const tsr_params *params, uint64_t *every) {
  int index = tsr_params_choice(params, "checkpoint");
  *every = tsr_params_choice_number(params, "checkpoint");
  assert(index <= TSR_CHECKPOINT_SQRT); /* lists of blocks are ranges by now */
  return index < 0 ? TSR_CHECKPOINT_NONE : (tsr_simulate_checkpoint)index;
}

static int add_blocks(tsr_run_plan *plan, tsr_block_choice choice, tsr_error *error) {
  return TSR__VECTOR_PUSH(&plan->blocks, choice) ? 0 : tsr__fail_memory(error);
}

/* A number of at most seven digits. */
static bool read_block(const char **at, uint64_t *out) {
  size_t digits = strspn(*at, "0123456789");
  if (!digits || digits > 7) return false;
  *out = strtoull(*at, NULL, 10);
  *at += digits;
  return true;
}

/* "0-5,8": each of these blocks is recomputed. */
static int read_list(tsr_run_plan *plan, const char *list, tsr_error *error) {
  for (const char *at = list; *at;) {
    tsr_block_choice choice = {.checkpoint = TSR_CHECKPOINT_FULL};
    bool ok = read_block(&at, &choice.first);
    choice.last = choice.first;
    if (ok && *at == '-') {
      at++;
      ok = read_block(&at, &choice.last);
    }
    ok = ok && choice.first <= choice.last && (!*at || (*at == ',' && at[1]));
    if (!ok)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "blocks are listed as in 0-5,8, not as '%.60s'", list);
    int status = add_blocks(plan, choice, error);
    if (status) return status;
    if (*at == ',') at++;
  }
  return 0;
}

/* ---- modules of a step graph ---- */

/* In the order of tsr_module_how: the keys that have lists of modules. */
static const char *const module_keys[] = {"checkpoint", "offload"};
static_assert(TSR_MODULE_CHECKPOINT == 0 && TSR_MODULE_OFFLOAD == 1, "a key for each");

static int compare_modules(const void *left, const void *right) {
  const tsr_module_choice *a = left, *b = right;
  if (a->how != b->how) return a->how < b->how ? -1 : 1;
  return strcmp(a->name, b->name);
}

static int add_module(tsr_run_plan *plan, const char *name, tsr_module_how how, tsr_error *error) {
  tsr_module_choice choice = {tsr__arena_copy(&plan->arena, name, strlen(name) + 1, 1), how};
  if (choice.name && TSR__VECTOR_PUSH(&plan->modules, choice)) return 0;
  return tsr__fail_memory(error);
}

static int copy_modules(tsr_run_plan *plan, const tsr_run_plan *from, tsr_module_how how,
                        tsr_error *error) {
  for (size_t i = 0; i < from->modules.count; i++) {
    const tsr_module_choice *choice = &from->modules.items[i];
    int status = choice->how == how ? add_module(plan, choice->name, how, error) : 0;
    if (status) return status;
  }
  return 0;
}

static void sort_modules(tsr_run_plan *plan) {
  size_t count = 0;
  if (!plan->modules.count) return;
  tsr_module_choice *items = plan->modules.items;
  qsort(items, plan->modules.count, sizeof *items, compare_modules);
  for (size_t i = 0; i < plan->modules.count; i++)
    if (!count || compare_modules(&items[count - 1], &items[i]) != 0) items[count++] = items[i];
  assert(count && count <= plan->modules.count);
  plan->modules.count = count;
}

/* ---- reading a file ---- */

static int refuse(tsr_error *error, const char *where, const char *what) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%.120s %s", where, what);
}

/* The value of a key that is a parameter. */
static int read_value(tsr_run_plan *plan, const tsr_parameter *row, const json_t *value,
                      tsr_error *error) {
  json_int_t number = json_integer_value(value);
  tsr_error reason;
  int status = 0;
  switch (row->kind) {
  case TSR_PARAMETER_COUNT:
    if (!json_is_integer(value) || number < row->least || number < 0)
      return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "%s is a number, at least %" PRId64, row->name, row->least);
    status = tsr_params_set_integer(plan->params, row->name, number, &reason);
    break;
  case TSR_PARAMETER_FLAG:
    if (!json_is_boolean(value)) return refuse(error, row->name, "is neither true nor false");
    status = tsr_params_set_integer(plan->params, row->name, json_is_true(value), &reason);
    break;
  default:
    if (!json_is_string(value)) return refuse(error, row->name, "is not a text");
    status = row->kind == TSR_PARAMETER_TEXT
                 ? set_words(plan, row, json_string_value(value), &reason)
                 : set_text(plan, row, json_string_value(value), &reason);
  }
  if (status == TSR_ERROR_ARGUMENT)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%s", reason.message);
  return status ? tsr__fail_memory(error) : 0;
}

static int read_number(const json_t *value, const char *where, uint64_t *out, tsr_error *error) {
  json_int_t number = json_integer_value(value);
  if (!json_is_integer(value) || number < 0 || number > 9999999)
    return refuse(error, where, "is not the number of a block, from 0");
  *out = (uint64_t)number;
  return 0;
}

static int read_checkpoint(const json_t *value, const char *where, tsr_block_choice *choice,
                           tsr_error *error) {
  const char *word = json_string_value(value);
  tsr_params *params = NULL;
  if (!word) return refuse(error, where, "is not a text");
  if (strncmp(word, "blocks:", 7) == 0) return refuse(error, where, "is within blocks already");
  int status = tsr_params_new(row_of("checkpoint"), 1, TSR_INTERFACE_PYTHON, &params, error);
  if (status) return status;
  tsr_error reason;
  status = tsr_params_set_text(params, "checkpoint", word, strlen(word), &reason);
  if (status == 0)
    choice->checkpoint = checkpoint_of(params, &choice->checkpoint_every);
  else if (status == TSR_ERROR_ARGUMENT)
    status =
        tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%.80s: %s", where, reason.message);
  else
    status = tsr__fail_memory(error);
  tsr_params_free(params);
  return status;
}

/* In the order of tsr_saved_place. */
static const char *const places[] = {"keep", "recompute", "host", "disk", "narrow16", "narrow8"};
enum { PLACES = sizeof places / sizeof *places };
static_assert(TSR_SAVED_NARROW8 == PLACES - 1, "a word for each place");

static int read_saved_one(tsr_run_plan *plan, const char *name, const json_t *value,
                          const char *where, tsr_saved_choice *out, tsr_error *error) {
  const char *word = json_string_value(value);
  out->name = tsr__arena_copy(&plan->arena, name, strlen(name) + 1, 1);
  if (!out->name) return tsr__fail_memory(error);
  for (int i = 0; word && i < PLACES; i++)
    if (strcmp(places[i], word) == 0) {
      out->place = (tsr_saved_place)i;
      return 0;
    }
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "%.80s.%.60s is not keep, recompute, host, disk, narrow16 or narrow8", where,
                   name);
}

static int read_saved(tsr_run_plan *plan, json_t *object, const char *where,
                      tsr_block_choice *choice, tsr_error *error) {
  size_t count = json_object_size(object), used = 0;
  const char *name;
  json_t *value;
  if (!json_is_object(object)) return refuse(error, where, "is not an object");
  if (count > MOST_SAVED) return refuse(error, where, "has more than 256 keys");
  tsr_saved_choice *saved =
      tsr__arena_alloc(&plan->arena, count * sizeof *saved, _Alignof(tsr_saved_choice));
  if (!saved) return tsr__fail_memory(error);
  json_object_foreach(object, name, value) {
    int status = read_saved_one(plan, name, value, where, &saved[used++], error);
    if (status) return status;
  }
  choice->saved = saved;
  choice->saved_count = count;
  return 0;
}

static int read_range_key(tsr_run_plan *plan, const char *key, json_t *value, const char *where,
                          tsr_block_choice *choice, tsr_error *error) {
  if (strcmp(key, "first") == 0) return read_number(value, where, &choice->first, error);
  if (strcmp(key, "last") == 0) return read_number(value, where, &choice->last, error);
  if (strcmp(key, "checkpoint") == 0) return read_checkpoint(value, where, choice, error);
  if (strcmp(key, "saved") == 0) return read_saved(plan, value, where, choice, error);
  return refuse(error, where, "is not a key of plans: first, last, checkpoint and saved are");
}

static int read_range(tsr_run_plan *plan, json_t *object, size_t index, tsr_error *error) {
  tsr_block_choice choice = {0};
  char where[128];
  const char *key;
  json_t *value;
  (void)snprintf(where, sizeof where, "blocks[%zu]", index);
  if (!json_is_object(object)) return refuse(error, where, "is not an object");
  if (!json_object_get(object, "first") || !json_object_get(object, "last"))
    return refuse(error, where, "lacks first or last");
  json_object_foreach(object, key, value) {
    (void)snprintf(where, sizeof where, "blocks[%zu].%.60s", index, key);
    int status = read_range_key(plan, key, value, where, &choice, error);
    if (status) return status;
  }
  (void)snprintf(where, sizeof where, "blocks[%zu].last", index);
  if (choice.last < choice.first) return refuse(error, where, "is below first");
  return add_blocks(plan, choice, error);
}

static int read_ranges(tsr_run_plan *plan, const json_t *list, tsr_error *error) {
  if (!json_is_array(list)) return refuse(error, "blocks", "is not a list");
  if (json_array_size(list) > MOST_RANGES)
    return refuse(error, "blocks", "has more than 4096 entries");
  for (size_t i = 0; i < json_array_size(list); i++) {
    int status = read_range(plan, json_array_get(list, i), i, error);
    if (status) return status;
  }
  return 0;
}

/* Which of the keys that may have a list of modules this is, or -1. */
static int module_key(const char *key) {
  for (int i = 0; i <= TSR_MODULE_OFFLOAD; i++)
    if (strcmp(module_keys[i], key) == 0) return i;
  return -1;
}

static int read_modules(tsr_run_plan *plan, tsr_module_how how, const json_t *list,
                        tsr_error *error) {
  char where[64];
  assert((size_t)how < sizeof module_keys / sizeof *module_keys);
  if (json_array_size(list) > MOST_MODULES)
    return refuse(error, module_keys[how], "has more than 65536 entries");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    const char *name = json_string_value(item);
    (void)snprintf(where, sizeof where, "%s[%zu]", module_keys[how], i);
    if (!name || !*name || strlen(name) > MODULE_BYTES)
      return refuse(error, where, "is not the name of a module");
    int status = add_module(plan, name, how, error);
    if (status) return status;
  }
  return 0;
}

static int fail_key(const char *key, tsr_error *error) {
  return tsr__fail(
      error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
      "%.60s is not a key of plans, which are blocks, version and the names of options "
      "that 'tessera help simulate' explains",
      key);
}

static int read_root(tsr_run_plan *plan, json_t *root, tsr_error *error) {
  const json_t *version = json_object_get(root, "version");
  const char *key;
  json_t *value;
  if (!json_is_object(root)) return refuse(error, "a plan", "is one object");
  if (!version) return refuse(error, "version", "is missing");
  if (!json_is_integer(version) || json_integer_value(version) != VERSION)
    return refuse(error, "version", "is not 1, the only version that this program reads");
  json_object_foreach(root, key, value) {
    const tsr_parameter *row = row_of(key);
    int status = 0;
    if (module_key(key) >= 0 && json_is_array(value))
      status = read_modules(plan, (tsr_module_how)module_key(key), value, error);
    else if (row)
      status = read_value(plan, row, value, error);
    else if (strcmp(key, "blocks") == 0)
      status = read_ranges(plan, value, error);
    else if (strcmp(key, "version") != 0)
      status = fail_key(key, error);
    if (status) return status;
  }
  return 0;
}

/* ---- writing ---- */

static json_t *saved_json(const tsr_block_choice *choice) {
  json_t *saved = json_object();
  for (size_t i = 0; saved && i < choice->saved_count; i++)
    if (json_object_set_new(saved, choice->saved[i].name,
                            json_string(places[choice->saved[i].place])))
      goto lost;
  return saved;
lost:
  json_decref(saved);
  return NULL;
}

/* "every:4". */
static json_t *checkpoint_json(const tsr_block_choice *choice) {
  const char *word = row_of("checkpoint")->choices[choice->checkpoint];
  if (choice->checkpoint == TSR_CHECKPOINT_EVERY)
    return json_sprintf("every:%" PRIu64, choice->checkpoint_every);
  return json_string(word);
}

static json_t *range_json(const tsr_block_choice *choice) {
  json_t *range =
      json_pack("{s:I,s:I}", "first", (json_int_t)choice->first, "last", (json_int_t)choice->last);
  bool ok = range != NULL;
  if (ok && choice->checkpoint != TSR_CHECKPOINT_NONE)
    ok = json_object_set_new(range, "checkpoint", checkpoint_json(choice)) == 0;
  if (ok && choice->saved_count) ok = json_object_set_new(range, "saved", saved_json(choice)) == 0;
  if (ok) return range;
  json_decref(range);
  return NULL;
}

static json_t *value_json(const tsr_params *params, const tsr_parameter *row) {
  char text[WORD_BYTES];
  switch (row->kind) {
  case TSR_PARAMETER_COUNT: return json_integer((json_int_t)tsr_params_count(params, row->name));
  case TSR_PARAMETER_FLAG: return json_true();
  case TSR_PARAMETER_TEXT: return json_string(tsr_params_text(params, row->name));
  default: (void)choice_text(params, row, text, sizeof text); return json_string(text);
  }
}

static bool add_values(const tsr_run_plan *plan, json_t *root) {
  bool ok = json_object_set_new(root, "version", json_integer(VERSION)) == 0;
  for (size_t i = 0; ok && i < ROWS; i++)
    if (!is_default(plan->params, &rows[i]))
      ok = json_object_set_new(root, rows[i].name, value_json(plan->params, &rows[i])) == 0;
  return ok;
}

static bool add_ranges(const tsr_run_plan *plan, json_t *root) {
  json_t *list = json_array();
  bool ok = list != NULL;
  if (!plan->blocks.count) {
    json_decref(list);
    return ok;
  }
  for (size_t i = 0; ok && i < plan->blocks.count; i++)
    ok = json_array_append_new(list, range_json(&plan->blocks.items[i])) == 0;
  if (ok) return json_object_set_new(root, "blocks", list) == 0;
  json_decref(list);
  return false;
}

static bool add_modules(const tsr_run_plan *plan, json_t *root) {
  for (size_t i = 0; i < plan->modules.count; i++) {
    const tsr_module_choice *choice = &plan->modules.items[i];
    const char *key = module_keys[choice->how];
    json_t *list = json_object_get(root, key);
    if (!list && json_object_set_new(root, key, json_array())) return false;
    list = json_object_get(root, key);
    if (json_array_append_new(list, json_string(choice->name))) return false;
  }
  return true;
}

static int append(const char *text, size_t size_bytes, void *context) {
  tsr__buffer *out = context;
  tsr__buffer_append(out, text, size_bytes);
  return out->failed ? -1 : 0;
}

/* Make the text and its hash. */
static int finish(tsr_run_plan *plan, tsr_error *error) {
  json_t *root = json_object();
  sort_modules(plan);
  bool ok = root && add_values(plan, root) && add_ranges(plan, root) && add_modules(plan, root);
  ok = ok && json_dump_callback(root, append, &plan->text,
                                JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
  json_decref(root);
  tsr__buffer_append(&plan->text, "\n", 2);
  if (!ok || plan->text.failed) return tsr__fail_memory(error);
  tsr__sha256_text(plan->text.data, plan->text.size - 1, plan->hash);
  return 0;
}

/* ---- from outside ---- */

/* The list that a choice of "blocks:LIST" has, as ranges; the choice itself is "none" then. */
static int spread_list(tsr_run_plan *plan, const tsr_params *from, tsr_error *error) {
  const char *list = tsr_params_choice_key(from, "checkpoint");
  return list ? read_list(plan, list, error) : 0;
}

/* The plan of a JSON object; a list of blocks at its top is written out. */
static int parse(tsr_run_plan *plan, const char *text, size_t size_bytes, tsr_error *error) {
  json_t *root = NULL;
  int status = tsr__json_load(text, size_bytes, JSON_REJECT_DUPLICATES, NULL, &root, error);
  if (status) return status;
  status = read_root(plan, root, error);
  json_decref(root);
  if (status) return status;
  if (tsr_params_choice_key(plan->params, "checkpoint"))
    return refuse(error, "checkpoint", "lists blocks: name them in the key blocks");
  return finish(plan, error);
}

int tsr_run_plan_parse(const char *text, size_t size_bytes, tsr_run_plan **out, tsr_error *error) {
  tsr_run_plan *plan = new_plan(error);
  if (!plan) return TSR_ERROR_MEMORY;
  int status = parse(plan, text, size_bytes, error);
  if (status)
    tsr_run_plan_free(plan);
  else
    *out = plan;
  return status;
}

static int copy_range(tsr_run_plan *plan, const tsr_block_choice *from, tsr_error *error) {
  tsr_block_choice copy = *from;
  assert(from->first <= from->last);
  tsr_saved_choice *saved = tsr__arena_copy(
      &plan->arena, from->saved, from->saved_count * sizeof *saved, _Alignof(tsr_saved_choice));
  if (!saved) return tsr__fail_memory(error);
  for (size_t i = 0; i < from->saved_count; i++) {
    saved[i].name = tsr__arena_copy(&plan->arena, saved[i].name, strlen(saved[i].name) + 1, 1);
    if (!saved[i].name) return tsr__fail_memory(error);
  }
  copy.saved = saved;
  return add_blocks(plan, copy, error);
}

/* Each parameter, from `params` where it is given, else from `base`, which may be NULL. */
static int merge(tsr_run_plan *plan, const tsr_params *params, const tsr_run_plan *base,
                 tsr_error *error) {
  bool has_own = tsr_params_has(params, "checkpoint");
  assert(!plan->blocks.count && !plan->modules.count);
  int status = has_own ? spread_list(plan, params, error) : 0;
  for (size_t i = 0; status == 0 && i < ROWS; i++) {
    bool is_own = tsr_params_has(params, rows[i].name);
    bool is_list = strcmp(rows[i].name, "checkpoint") == 0 && is_own &&
                   tsr_params_choice_key(params, "checkpoint");
    if ((is_own || base) && !is_list)
      status = copy_value(plan, &rows[i], is_own ? params : base->params, error);
  }
  for (size_t i = 0; status == 0 && base && !has_own && i < base->blocks.count; i++)
    status = copy_range(plan, &base->blocks.items[i], error);
  for (int i = 0; status == 0 && base && i <= TSR_MODULE_OFFLOAD; i++)
    if (!tsr_params_has(params, module_keys[i]))
      status = copy_modules(plan, base, (tsr_module_how)i, error);
  return status ? status : finish(plan, error);
}

int tsr_run_plan_of(const tsr_params *params, tsr_run_plan **out, tsr_error *error) {
  tsr_run_plan *plan = new_plan(error);
  if (!plan) return TSR_ERROR_MEMORY;
  int status = merge(plan, params, tsr_params_object(params, "plan", &tsr_run_plan_type), error);
  if (status)
    tsr_run_plan_free(plan);
  else
    *out = plan;
  return status;
}

const char *tsr_run_plan_text(const tsr_run_plan *plan) {
  return plan->text.data;
}

const char *tsr_run_plan_hash(const tsr_run_plan *plan) {
  return plan->hash;
}

/* ---- the options of a plan ---- */

static_assert(TSR_OPTIMIZER_ADAMW == 0 && TSR_OPTIMIZER_ADAMW_FOREACH == 1 &&
                  TSR_OPTIMIZER_ADAMW_FUSED == 2 && TSR_OPTIMIZER_ADAMW_LOOP == 3 &&
                  TSR_OPTIMIZER_SGD == 4,
              "the words of `optimizer` are in the order of its enum");
static_assert(TSR_SIMULATE_FP32 == 0 && TSR_SIMULATE_BF16 == 1 && TSR_SIMULATE_FP16 == 2 &&
                  TSR_SIMULATE_AUTOCAST_BF16 == 3 && TSR_SIMULATE_AUTOCAST_FP16 == 4,
              "the words of `dtype` are in the order of its enum");
static_assert(TSR_CHECKPOINT_NONE == 0 && TSR_CHECKPOINT_FULL == 1 &&
                  TSR_CHECKPOINT_SELECTIVE == 2 && TSR_CHECKPOINT_EVERY == 3 &&
                  TSR_CHECKPOINT_SQRT == 4,
              "the words of `checkpoint` are in the order of its enum");
static_assert(TSR_ACCUMULATION_AUTO == 0 && TSR_ACCUMULATION_FLAT == 1 &&
                  TSR_ACCUMULATION_GROUPED == 2,
              "the words of `accumulation` are in the order of its enum");

/* In the order of the words of `attention`. */
static const tsr_simulate_attention attentions[] = {TSR_ATTENTION_SDPA, TSR_ATTENTION_EAGER,
                                                    TSR_ATTENTION_FLASH, TSR_ATTENTION_EFFICIENT,
                                                    TSR_ATTENTION_CHUNKED};

/* The index of the word, 0 unless one was given: the first word is the default. */
static int choice(const tsr_params *params, const char *name) {
  int index = tsr_params_choice(params, name);
  return index < 0 ? 0 : index;
}

/* What is no number above 0 becomes one that runs refuse. */
static double clip_norm(const tsr_params *params) {
  const char *text = tsr_params_text(params, "clip");
  char *end = NULL;
  double norm = text ? strtod(text, &end) : 0;
  return !text || (*text && !*end && norm > 0) ? norm : -1;
}

void tsr_run_plan_options(const tsr_run_plan *plan, tsr_simulate_options *out) {
  const tsr_params *p = plan->params;
  out->accumulate = tsr_params_count(p, "accumulate");
  out->micro_batch = tsr_params_count(p, "micro_batch");
  out->accumulation = (tsr_simulate_accumulation)choice(p, "accumulation");
  out->backward_once = choice(p, "backward") == 1;
  out->optimizer = (tsr_simulate_optimizer)choice(p, "optimizer");
  out->update_in_backward = tsr_params_flag(p, "optimizer_in_backward");
  out->dtype = (tsr_simulate_dtype)choice(p, "dtype");
  assert((size_t)choice(p, "attention") < sizeof attentions / sizeof *attentions);
  out->attention = attentions[choice(p, "attention")];
  out->attention_chunk = tsr_params_choice_number(p, "attention");
  out->checkpoint = checkpoint_of(p, &out->checkpoint_every);
  out->non_reentrant = choice(p, "checkpoint_form") == 1;
  out->loss_chunk = tsr_params_choice_number(p, "loss");
  out->gelu_fused = choice(p, "gelu") == 1;
  out->master_weights = tsr_params_flag(p, "master_weights");
  out->loss_scale = (double)tsr_params_count(p, "loss_scale");
  out->loss_scale_window = tsr_params_count(p, "loss_scale_window");
  out->no_kv_cache = tsr_params_flag(p, "no_kv_cache");
  out->clip_norm = clip_norm(p);
  out->ranks = tsr_params_count(p, "ranks");
  out->zero = tsr_params_count(p, "zero");
  out->bucket_elements = tsr_params_count(p, "bucket");
  out->no_overlap = tsr_params_flag(p, "no_overlap");
  (void)tsr_offload_parse(tsr_params_text(p, "offload"), &out->offload, NULL);
  (void)tsr_in_place_parse(tsr_params_text(p, "in_place"), &out->in_place, NULL);
  out->blocks = plan->blocks.items;
  out->block_count = plan->blocks.count;
  out->modules = plan->modules.items;
  out->module_count = plan->modules.count;
  out->plan_hash = plan->hash;
}

/* ---- what each choice does ---- */

static size_t count_modules(const tsr_run_plan *plan, tsr_module_how how) {
  size_t count = 0;
  for (size_t i = 0; i < plan->modules.count; i++) count += plan->modules.items[i].how == how;
  return count;
}

/* The choices of a plan: its parameters that are given, in the order of their rows, then its ranges, then its lists of
 * modules. */
static size_t count_choices(const tsr_run_plan *plan) {
  size_t count = plan->blocks.count;
  for (int i = 0; i <= TSR_MODULE_OFFLOAD; i++)
    count += count_modules(plan, (tsr_module_how)i) != 0;
  for (size_t i = 0; i < ROWS; i++) count += !is_default(plan->params, &rows[i]);
  return count;
}

/* "dtype bf16"; "blocks 0-5: full, gelu narrow16". */
static void name_choice(const tsr_run_plan *plan, size_t index, char *out, size_t room) {
  char text[WORD_BYTES] = "";
  assert(index < count_choices(plan) && room);
  for (size_t i = 0; i < ROWS; i++) {
    if (is_default(plan->params, &rows[i]) || index-- > 0) continue;
    if (rows[i].kind == TSR_PARAMETER_TEXT)
      (void)snprintf(text, sizeof text, "%s", tsr_params_text(plan->params, rows[i].name));
    else if (rows[i].kind == TSR_PARAMETER_CHOICE)
      (void)choice_text(plan->params, &rows[i], text, sizeof text);
    else if (rows[i].kind == TSR_PARAMETER_COUNT)
      (void)snprintf(text, sizeof text, "%" PRIu64, tsr_params_count(plan->params, rows[i].name));
    (void)snprintf(out, room, "%s%s%s", rows[i].name, *text ? " " : "", text);
    return;
  }
  for (int i = 0; index >= plan->blocks.count && i <= TSR_MODULE_OFFLOAD; i++) {
    size_t count = count_modules(plan, (tsr_module_how)i);
    if (!count || index-- > plan->blocks.count) continue;
    (void)snprintf(out, room, "%s: %zu module%s", module_keys[i], count, count == 1 ? "" : "s");
    return;
  }
  assert(index < plan->blocks.count);
  const tsr_block_choice *c = &plan->blocks.items[index];
  int used = snprintf(out, room, "blocks %" PRIu64 "-%" PRIu64 ": %s", c->first, c->last,
                      row_of("checkpoint")->choices[c->checkpoint]);
  for (size_t i = 0; i < c->saved_count && used > 0 && (size_t)used < room; i++)
    used += snprintf(out + used, room - (size_t)used, ", %s %s", c->saved[i].name,
                     places[c->saved[i].place]);
}

/* A plan with choices `first` to `end` - 1 of another. */
static int take_choices(tsr_run_plan *plan, const tsr_run_plan *from, size_t first, size_t end,
                        tsr_error *error) {
  size_t at = 0;
  int status = 0;
  assert(first <= end && end <= count_choices(from));
  for (size_t i = 0; status == 0 && i < ROWS; i++) {
    if (is_default(from->params, &rows[i])) continue;
    if (at >= first && at < end) status = copy_value(plan, &rows[i], from->params, error);
    at++;
  }
  for (size_t i = 0; status == 0 && i < from->blocks.count; i++, at++)
    if (at >= first && at < end) status = copy_range(plan, &from->blocks.items[i], error);
  for (int i = 0; status == 0 && i <= TSR_MODULE_OFFLOAD; i++) {
    if (!count_modules(from, (tsr_module_how)i)) continue;
    if (at >= first && at < end) status = copy_modules(plan, from, (tsr_module_how)i, error);
    at++;
  }
  return status ? status : finish(plan, error);
}

int tsr__run_plan_measure_within(const tsr_run_plan *plan, const tsr_model *model,
                                 const tsr_simulate_options *options, uint64_t most_bytes,
                                 tsr_run_plan_cost *out, uint64_t *over_bytes, tsr_error *error) {
  tsr_simulate_options own = *options;
  tsr__figures figures;
  *out = (tsr_run_plan_cost){.is_possible = false};
  *over_bytes = 0;
  tsr_run_plan_options(plan, &own);
  int status = tsr__measure_within(model, &own, most_bytes, &figures, error);
  if (status) return status;
  assert(!figures.is_over || figures.reserved_bytes > most_bytes);
  if (figures.is_over) *over_bytes = figures.reserved_bytes;
  *out = (tsr_run_plan_cost){.is_possible = true,
                             .peak_bytes = figures.peak_bytes,
                             .reserved_bytes = figures.reserved_bytes,
                             .step_flops = figures.step_flops,
                             .recomputed_flops = figures.recomputed_flops,
                             .step_seconds = figures.step_seconds,
                             .sent_bytes = figures.sent_bytes,
                             .stall_seconds = figures.stall_seconds};
  return 0;
}

int tsr_run_plan_measure(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_cost *out,
                         tsr_error *error) {
  uint64_t over_bytes;
  return tsr__run_plan_measure_within(plan, model, options, 0, out, &over_bytes, error);
}

/* Simulate with some of the choices. A choice that cannot stand alone has no figures. */
static int measure(const tsr_run_plan *from, size_t first, size_t end, const tsr_model *model,
                   const tsr_simulate_options *how, tsr_run_plan_cost *out, tsr_error *error) {
  tsr_run_plan *plan = new_plan(error);
  *out = (tsr_run_plan_cost){.is_possible = false};
  if (!plan) return TSR_ERROR_MEMORY;
  int status = take_choices(plan, from, first, end, error);
  if (status == 0) status = tsr_run_plan_measure(plan, model, how, out, error);
  tsr_run_plan_free(plan);
  return status;
}

static bool is_fault(int status) {
  return status && status != TSR_ERROR_ARGUMENT && status != TSR_ERROR_UNSUPPORTED;
}

int tsr_run_plan_explain(const tsr_run_plan *plan, const tsr_model *model,
                         const tsr_simulate_options *options, tsr_run_plan_effects *out,
                         tsr_error *error) {
  tsr_run_plan_effects effects = {.count = count_choices(plan)};
  tsr_error alone;
  int status = 0;
  if (effects.count > TSR_RUN_PLAN_EFFECTS)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "the plan has %zu choices, and %d can be explained", effects.count,
                     TSR_RUN_PLAN_EFFECTS);
  status = measure(plan, 0, 0, model, options, &effects.without, error);
  if (status == 0) status = measure(plan, 0, effects.count, model, options, &effects.with, error);
  for (size_t i = 0; status == 0 && i < effects.count; i++) {
    tsr_run_plan_effect *e = &effects.choices[i];
    name_choice(plan, i, e->name, sizeof e->name);
    int one = measure(plan, i, i + 1, model, options, &e->alone, &alone);
    if (one == 0 || !is_fault(one))
      one = measure(plan, 0, i + 1, model, options, &e->so_far, &alone);
    if (is_fault(one)) {
      status = one;
      if (error) *error = alone;
    }
  }
  if (status == 0) *out = effects;
  return status;
}

static int parse_object(const char *text, size_t size_bytes, void **out, tsr_error *error) {
  tsr_run_plan *plan = NULL;
  int status = tsr_run_plan_parse(text, size_bytes, &plan, error);
  if (status == 0) *out = plan;
  return status;
}

static void free_object(void *plan) {
  tsr_run_plan_free(plan);
}

const tsr_parameter_type tsr_run_plan_type = {
    .name = "plan", .parse = parse_object, .free = free_object};
