/* codec.c - reads plans from files and parameters, and writes their canonical text.
 *
 *   file ──► JSON ──┐              ┌─► tsr_simulate_options
 *                   ├─► the value ─┤
 *   command line ───┘              └─► JSON, canonical ──► hash
 *
 * The keys of a file are the names of options (options.h). Files also have "blocks" and "version", and may have
 * lists of modules instead of words in "checkpoint" and "offload". */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/sort.h"
#include "plan/value.h"
#include "tessera/unstable/runs.h"

enum {
  VERSION = 1,
  MOST_RANGES = 4096,
  MOST_SAVED = 256,
  MOST_MODULES = 65536,
  MODULE_BYTES = 1024 /* in a name */
};

/* The keys that may have lists of modules, in the order of tsr_module_how. */
static const char *const module_keys[] = {"checkpoint", "offload"};
static_assert(TSR_MODULE_CHECKPOINT == 0 && TSR_MODULE_OFFLOAD == 1, "a key for each");

/* In the order of tsr_saved_place. */
static const char *const places[] = {"keep", "recompute", "host", "disk", "narrow16", "narrow8"};
enum { PLACES = sizeof places / sizeof *places };
static_assert(TSR_SAVED_NARROW8 == PLACES - 1, "a word for each place");

const char *tsr__saved_word(tsr_saved_place place) {
  return places[place];
}

const char *tsr__module_key(tsr_module_how how) {
  return module_keys[how];
}

/* ---- reading a file ---- */

static int refuse(tsr_error *error, const char *where, const char *what) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%.120s %s", where, what);
}

/* The setter of a parameter refused the value, so the file is invalid. */
static int refuse_value(int status, const char *where, const tsr_error *reason, tsr_error *error) {
  if (status == 0) return 0;
  if (status != TSR_ERROR_ARGUMENT) return tsr__fail_memory(error);
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%.80s%s%s", where, *where ? ": " : "",
                   reason->message);
}

/* Read the value of a key that is an option. `values` contains its row. */
static int read_option(const tsr_parameter *row, const json_t *value, tsr_params *values,
                       tsr_simulate_options *options, tsr_error *error) {
  json_int_t number = json_integer_value(value);
  const char *text = json_string_value(value);
  tsr_error reason;
  int status = 0;
  switch (row->kind) {
  case TSR_PARAMETER_COUNT:
    if (!json_is_integer(value) || number < row->least || number < 0)
      return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                       "%s is a number, at least %" PRId64, row->name, row->least);
    status = tsr_params_set_integer(values, row->name, number, &reason);
    break;
  case TSR_PARAMETER_FLAG:
    if (!json_is_boolean(value)) return refuse(error, row->name, "is neither true nor false");
    status = tsr_params_set_integer(values, row->name, json_is_true(value), &reason);
    break;
  default:
    if (!text) return refuse(error, row->name, "is not a text");
    status = tsr_params_set_text(values, row->name, text, strlen(text), &reason);
  }
  if (status == 0) status = tsr__option_take(row, values, options, &reason);
  if (status == 0 && row->kind == TSR_PARAMETER_CHOICE && tsr_params_choice_key(values, row->name))
    return refuse(error, row->name, "cannot list blocks in a plan file: use \"blocks\"");
  return refuse_value(status, "", &reason, error);
}

static int read_number(const json_t *value, const char *where, uint64_t *out, tsr_error *error) {
  json_int_t number = json_integer_value(value);
  if (!json_is_integer(value) || number < 0 || number > 9999999)
    return refuse(error, where, "is not the number of a block, from 0");
  *out = (uint64_t)number;
  return 0;
}

static int read_checkpoint(const json_t *value, const char *where, tsr_params *values,
                           tsr_block_choice *choice, tsr_error *error) {
  const char *word = json_string_value(value);
  const tsr_parameter *row = tsr__option_find("checkpoint");
  tsr_simulate_options one = {.checkpoint = TSR_CHECKPOINT_NONE};
  tsr_error reason;
  if (!word) return refuse(error, where, "is not a text");
  if (strncmp(word, "blocks:", 7) == 0) return refuse(error, where, "is within blocks already");
  int status = tsr_params_set_text(values, row->name, word, strlen(word), &reason);
  if (status == 0) status = tsr__option_take(row, values, &one, &reason);
  choice->checkpoint = one.checkpoint;
  choice->checkpoint_every = one.checkpoint_every;
  return refuse_value(status, where, &reason, error);
}

static int read_saved_one(const char *name, const json_t *value, const char *where,
                          tsr_saved_choice *out, tsr_error *error) {
  const char *word = json_string_value(value);
  for (int i = 0; word && i < PLACES; i++)
    if (strcmp(places[i], word) == 0) {
      *out = (tsr_saved_choice){name, (tsr_saved_place)i};
      return 0;
    }
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "%.80s.%.60s is not keep, recompute, host, disk, narrow16 or narrow8", where,
                   name);
}

/* `saved` has room for MOST_SAVED. */
static int read_saved(json_t *object, const char *where, tsr_saved_choice *saved,
                      tsr_block_choice *choice, tsr_error *error) {
  const char *name;
  json_t *value;
  if (!json_is_object(object)) return refuse(error, where, "is not an object");
  if (json_object_size(object) > MOST_SAVED) return refuse(error, where, "has more than 256 keys");
  choice->saved = saved;
  json_object_foreach(object, name, value) {
    int status = read_saved_one(name, value, where, &saved[choice->saved_count++], error);
    if (status) return status;
  }
  return 0;
}

static int read_range(json_t *object, size_t index, tsr_params *values, tsr_run_plan *plan,
                      tsr_error *error) {
  tsr_saved_choice saved[MOST_SAVED];
  tsr_block_choice choice = {0};
  char where[128];
  const char *key;
  json_t *value;
  (void)snprintf(where, sizeof where, "blocks[%zu]", index);
  if (!json_is_object(object)) return refuse(error, where, "is not an object");
  if (!json_object_get(object, "first") || !json_object_get(object, "last"))
    return refuse(error, where, "lacks first or last");
  json_object_foreach(object, key, value) {
    int status;
    (void)snprintf(where, sizeof where, "blocks[%zu].%.60s", index, key);
    if (strcmp(key, "first") == 0)
      status = read_number(value, where, &choice.first, error);
    else if (strcmp(key, "last") == 0)
      status = read_number(value, where, &choice.last, error);
    else if (strcmp(key, "checkpoint") == 0)
      status = read_checkpoint(value, where, values, &choice, error);
    else if (strcmp(key, "saved") == 0)
      status = read_saved(value, where, saved, &choice, error);
    else
      status = refuse(error, where, "is not a key of plans: first, last, checkpoint and saved are");
    if (status) return status;
  }
  (void)snprintf(where, sizeof where, "blocks[%zu].last", index);
  if (choice.last < choice.first) return refuse(error, where, "is below first");
  return tsr__run_plan_add_blocks(plan, &choice) ? 0 : tsr__fail_memory(error);
}

static int read_ranges(const json_t *list, tsr_params *values, tsr_run_plan *plan,
                       tsr_error *error) {
  if (!json_is_array(list)) return refuse(error, "blocks", "is not a list");
  if (json_array_size(list) > MOST_RANGES)
    return refuse(error, "blocks", "has more than 4096 entries");
  for (size_t i = 0; i < json_array_size(list); i++) {
    int status = read_range(json_array_get(list, i), i, values, plan, error);
    if (status) return status;
  }
  return 0;
}

static int compare_names(const void *left, const void *right) {
  return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Sorted names are each added in O(log n). */
static int read_modules(tsr_module_how how, const json_t *list, tsr_run_plan *plan,
                        tsr_error *error) {
  size_t count = json_array_size(list);
  char where[64];
  assert((size_t)how < sizeof module_keys / sizeof *module_keys);
  if (count > MOST_MODULES) return refuse(error, module_keys[how], "has more than 65536 entries");
  for (size_t i = 0; i < count; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    (void)snprintf(where, sizeof where, "%s[%zu]", module_keys[how], i);
    if (!name || !*name || strlen(name) > MODULE_BYTES)
      return refuse(error, where, "is not the name of a module");
  }
  const char **names = TSR__NEW_ARRAY(const char *, count + 1);
  bool ok = names != NULL;
  for (size_t i = 0; ok && i < count; i++) names[i] = json_string_value(json_array_get(list, i));
  if (ok) tsr__sort(names, count, sizeof *names, compare_names);
  for (size_t i = 0; ok && i < count; i++) ok = tsr__run_plan_add_module(plan, names[i], how);
  tsr__free(names);
  return ok ? 0 : tsr__fail_memory(error);
}

/* The index of a key that may have a list of modules, or -1. */
static int module_key(const char *key) {
  for (int i = 0; i <= TSR_MODULE_OFFLOAD; i++)
    if (strcmp(module_keys[i], key) == 0) return i;
  return -1;
}

static int read_key(const char *key, json_t *value, tsr_params *values, tsr_run_plan *plan,
                    tsr_error *error) {
  const tsr_parameter *row = tsr__option_find(key);
  if (module_key(key) >= 0 && json_is_array(value))
    return read_modules((tsr_module_how)module_key(key), value, plan, error);
  if (row) return read_option(row, value, values, &plan->options, error);
  if (strcmp(key, "blocks") == 0) return read_ranges(value, values, plan, error);
  if (strcmp(key, "version") == 0) return 0;
  return tsr__fail(
      error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
      "%.60s is not a key of plans, which are blocks, version and the names of options "
      "that 'tessera help simulate' explains",
      key);
}

static bool is_text(const json_t *root, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(root, key));
  return value && strcmp(value, text) == 0;
}

/* Of an answer of `tessera plan --json`, take the plan that it contains. */
static int take_answer(json_t **root, tsr_error *error) {
  json_t *plan = json_object_get(*root, "plan");
  if (!is_text(*root, "command", "plan") || json_object_get(*root, "version")) return 0;
  if (is_text(*root, "verdict", "does_not_fit"))
    return refuse(error, "this answer of 'tessera plan'", "has no plan that fits");
  if (!json_is_object(plan))
    return refuse(error, "this answer of 'tessera plan'",
                  "contains no plan; --write-plan FILE writes one");
  *root = plan;
  return 0;
}

static int read_root(json_t *root, tsr_params *values, tsr_run_plan *plan, tsr_error *error) {
  const char *key;
  json_t *value;
  if (!json_is_object(root)) return refuse(error, "a plan", "must be a JSON object");
  int chosen = take_answer(&root, error);
  if (chosen) return chosen;
  const json_t *version = json_object_get(root, "version");
  if (!version) return refuse(error, "version", "is missing");
  if (!json_is_integer(version) || json_integer_value(version) != VERSION)
    return refuse(error, "version", "is not 1, the only version that this program reads");
  json_object_foreach(root, key, value) {
    int status = read_key(key, value, values, plan, error);
    if (status) return status;
  }
  return 0;
}

int tsr_run_plan_parse(const char *text, size_t size_bytes, tsr_run_plan **out, tsr_error *error) {
  json_t *root = NULL;
  tsr_params *values = NULL;
  static const tsr_parameter rows[] = {{.rows = tsr_run_options}};
  int status = tsr_json_load(text, size_bytes, JSON_REJECT_DUPLICATES, NULL, &root, error);
  if (status) return status;
  tsr_run_plan *plan = tsr__run_plan_new();
  if (!plan) status = tsr__fail_memory(error);
  if (status == 0) status = tsr_params_new(rows, 1, TSR_INTERFACE_PYTHON, &values, error);
  if (status == 0) status = read_root(root, values, plan, error);
  if (status == 0) status = tsr__run_plan_seal(plan, error);
  tsr_params_free(values);
  json_decref(root);
  if (status)
    tsr_run_plan_free(plan);
  else
    *out = plan;
  return status;
}

/* ---- from parameters ---- */

/* Read a number of at most seven digits. */
static bool read_block(const char **at, uint64_t *out) {
  size_t digits = strspn(*at, "0123456789");
  if (!digits || digits > 7) return false;
  *out = strtoull(*at, NULL, 10);
  *at += digits;
  return true;
}

/* Read "0-5,8": these blocks are recomputed. */
static int read_list(const char *list, tsr_run_plan *plan, tsr_error *error) {
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
    if (!tsr__run_plan_add_blocks(plan, &choice)) return tsr__fail_memory(error);
    if (*at == ',') at++;
  }
  return 0;
}

/* Take each option from `params` if set there, or else from `base`, which may be NULL. */
static int merge(const tsr_params *params, const tsr_run_plan *base, tsr_run_plan *plan,
                 tsr_error *error) {
  bool has_own = tsr_params_has(params, "checkpoint");
  const char *list = has_own ? tsr_params_choice_key(params, "checkpoint") : NULL;
  bool ok = true;
  int status = list ? read_list(list, plan, error) : 0;
  for (size_t i = 0; status == 0 && tsr__option_at(i); i++) {
    const tsr_parameter *row = tsr__option_at(i);
    if (tsr_params_has(params, row->name))
      status = tsr__option_take(row, params, &plan->options, error);
    else if (base)
      tsr__option_copy(row, &base->options, &plan->options);
  }
  if (status || !base) return status;
  if (!has_own) ok = tsr__run_plan_add_ranges_of(plan, base);
  for (int how = 0; ok && how <= TSR_MODULE_OFFLOAD; how++)
    if (!tsr_params_has(params, module_keys[how]))
      ok = tsr__run_plan_add_modules_of(plan, base, (tsr_module_how)how);
  return ok ? 0 : tsr__fail_memory(error);
}

int tsr_run_plan_of(const tsr_params *params, tsr_run_plan **out, tsr_error *error) {
  tsr_run_plan *plan = tsr__run_plan_new();
  int status =
      plan ? merge(params, tsr_params_object(params, "plan", &tsr_run_plan_type), plan, error)
           : tsr__fail_memory(error);
  if (status == 0) status = tsr__run_plan_seal(plan, error);
  if (status)
    tsr_run_plan_free(plan);
  else
    *out = plan;
  return status;
}

/* ---- writing a plan ---- */

/* These functions return false when out of memory. jansson's setters refuse NULL, and own their value even if they
 * fail. */
static bool put_options(const tsr_run_plan *plan, json_t *root) {
  char text[TSR__OPTION_BYTES];
  bool ok = true;
  for (size_t i = 0; ok && tsr__option_at(i); i++) {
    const tsr_parameter *row = tsr__option_at(i);
    if (tsr__option_is_default(row, &plan->options)) continue;
    tsr__option_text(row, &plan->options, text);
    json_t *value = row->kind == TSR_PARAMETER_FLAG    ? json_true()
                    : row->kind == TSR_PARAMETER_COUNT ? json_integer(strtoll(text, NULL, 10))
                                                       : json_string(text);
    ok = json_object_set_new(root, row->name, value) == 0;
  }
  return ok;
}

static json_t *saved_json(const tsr_block_choice *choice) {
  json_t *saved = json_object();
  for (size_t i = 0; saved && i < choice->saved_count; i++)
    if (json_object_set_new(saved, choice->saved[i].name,
                            json_string(places[choice->saved[i].place]))) {
      json_decref(saved);
      return NULL;
    }
  return saved;
}

static json_t *range_json(const tsr_block_choice *choice) {
  char text[TSR__OPTION_BYTES];
  const tsr_simulate_options one = {.checkpoint = choice->checkpoint,
                                    .checkpoint_every = choice->checkpoint_every};
  json_t *range =
      json_pack("{s:I,s:I}", "first", (json_int_t)choice->first, "last", (json_int_t)choice->last);
  bool ok = range != NULL;
  tsr__option_text(tsr__option_find("checkpoint"), &one, text);
  if (ok && choice->checkpoint != TSR_CHECKPOINT_NONE)
    ok = json_object_set_new(range, "checkpoint", json_string(text)) == 0;
  if (ok && choice->saved_count) ok = json_object_set_new(range, "saved", saved_json(choice)) == 0;
  if (ok) return range;
  json_decref(range);
  return NULL;
}

static bool put_ranges(const tsr_run_plan *plan, json_t *root) {
  json_t *list = plan->blocks.count ? json_array() : NULL;
  bool ok = true;
  for (size_t i = 0; ok && i < plan->blocks.count; i++)
    ok = json_array_append_new(list, range_json(&plan->blocks.items[i])) == 0;
  if (ok && plan->blocks.count) ok = json_object_set(root, "blocks", list) == 0;
  json_decref(list);
  return ok;
}

static bool put_modules(const tsr_run_plan *plan, json_t *root) {
  for (size_t i = 0; i < plan->modules.count; i++) {
    const tsr_module_choice *choice = &plan->modules.items[i];
    const char *key = module_keys[choice->how];
    if (!json_is_array(json_object_get(root, key)) && json_object_set_new(root, key, json_array()))
      return false;
    if (json_array_append_new(json_object_get(root, key), json_string(choice->name))) return false;
  }
  return true;
}

static json_t *tree_of(const tsr_run_plan *plan) {
  json_t *root = json_pack("{s:i}", "version", VERSION);
  if (root && put_options(plan, root) && put_ranges(plan, root) && put_modules(plan, root))
    return root;
  json_decref(root);
  return NULL;
}

bool tsr__run_plan_write(const tsr_run_plan *plan, tsr__buffer *out) {
  json_t *root = tree_of(plan);
  bool ok = tsr__json_append(out, root, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENSURE_ASCII);
  json_decref(root);
  return ok;
}

int tsr__run_plan_seal(tsr_run_plan *plan, tsr_error *error) {
  assert(!plan->text.size);
  bool ok = tsr__run_plan_write(plan, &plan->text);
  tsr__buffer_append(&plan->text, "\n", 2);
  if (!ok || plan->text.failed) return tsr__fail_memory(error);
  tsr__sha256_text(plan->text.data, plan->text.size - 1, plan->hash);
  return 0;
}

const char *tsr_run_plan_text(const tsr_run_plan *plan) {
  assert(plan->text.size);
  return plan->text.data;
}

const char *tsr_run_plan_hash(const tsr_run_plan *plan) {
  assert(plan->text.size);
  return plan->hash;
}

void tsr_run_plan_options(const tsr_run_plan *plan, tsr_simulate_options *out) {
  for (size_t i = 0; tsr__option_at(i); i++)
    tsr__option_copy(tsr__option_at(i), &plan->options, out);
  out->blocks = plan->blocks.items;
  out->block_count = plan->blocks.count;
  out->modules = plan->modules.items;
  out->module_count = plan->modules.count;
  out->plan_hash = plan->text.size ? plan->hash : NULL;
}

/* ---- a plan as a parameter ---- */

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
