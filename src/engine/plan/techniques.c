/* techniques.c - see techniques.h: what techniques do to plans, what changes are called, and the one walk that measures
 * them. */
#include "plan/techniques.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ask/question.h"
#include "base/error.h"

/* ---- --allow ---- */

/* Whether the word occurs in no row before this one. */
static bool is_first(const tsr__technique_row *technique) {
  for (const tsr__technique_row *t = tsr__techniques; t != technique; t++)
    if (strcmp(t->allow, technique->allow) == 0) return false;
  return true;
}

/* The first row of the index-th word; NULL past the last. */
static const tsr__technique_row *first_of(size_t index) {
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (is_first(t) && index-- == 0) return t;
  return NULL;
}

const char *tsr_allow_word(size_t index) {
  const tsr__technique_row *first = first_of(index);
  return first ? first->allow : NULL;
}

const char *tsr_allow_about(size_t index) {
  assert(first_of(index) && first_of(index)->about);
  return first_of(index)->about;
}

unsigned tsr__allow_flag(size_t index) {
  assert(index < 32);
  return tsr_allow_word(index) ? 1u << index : 0;
}

unsigned tsr__technique_flag(const tsr__technique_row *technique) {
  size_t index = 0;
  while (strcmp(tsr_allow_word(index), technique->allow) != 0) index++;
  return tsr__allow_flag(index);
}

static bool sets(const tsr__technique_row *t, const char *option) {
  return (t->option && strcmp(t->option, option) == 0) ||
         (t->option2 && strcmp(t->option2, option) == 0);
}

unsigned tsr_allow_unset(const tsr_params *params, unsigned allow) {
  const tsr_parameter *row;
  for (size_t i = 0; (row = tsr_params_row(params, i)); i++) {
    if (!tsr_params_has(params, row->name)) continue;
    for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
      if (sets(t, row->name)) allow &= ~tsr__technique_flag(t);
  }
  return allow;
}

/* All techniques but those that need their own word, or those that leave results as they are. */
static unsigned flags_of_all(bool changes_results) {
  unsigned flags = 0;
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++)
    if (!t->is_named && (changes_results || !t->changes_results)) flags |= tsr__technique_flag(t);
  return flags;
}

unsigned tsr_allow_default(void) {
  return flags_of_all(false);
}

int tsr_allow_parse(const char *text, unsigned *out, tsr_error *error) {
  unsigned allow = 0;
  char words[256];
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ","), i = 0;
    bool is_all = length == 3 && strncmp(at, "all", 3) == 0;
    bool is_none = length == 4 && strncmp(at, "none", 4) == 0;
    while (tsr_allow_word(i) &&
           (strlen(tsr_allow_word(i)) != length || strncmp(tsr_allow_word(i), at, length) != 0))
      i++;
    if (!is_all && !is_none && !tsr_allow_word(i)) {
      tsr__list_words(tsr_allow_word, words, sizeof words);
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "unknown word '%.*s' in --allow: choose from %s, or all or none",
                       (int)(length < 40 ? length : 40), at, words);
    }
    if ((is_all || is_none) && (at != text || at[length]))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "'%.*s' cannot be combined with other words", (int)length, at);
    allow |= is_all ? flags_of_all(true) : is_none ? 0 : tsr__allow_flag(i);
    at += length;
    if (!*at) break;
  }
  *out = allow;
  return 0;
}

/* ---- applying ---- */

const tsr__technique_row *tsr__technique_of(const char *option) {
  const tsr__technique_row *t = tsr__techniques;
  while (t->allow && !sets(t, option)) t++;
  return t->allow ? t : NULL;
}

void tsr__technique_apply(const tsr__technique_row *t, tsr_run_plan *plan) {
  if (t->option) tsr__option_set(t->option, t->value, &plan->options);
  if (t->option2) tsr__option_set(t->option2, t->value2, &plan->options);
}

bool tsr__technique_may_apply(const tsr__technique_row *t, const tsr_run_plan *plan) {
  const tsr_simulate_options *o = &plan->options;
  if (t->needs_ranks && o->ranks < 2) return false;
  if (!t->option) return true;
  if (strcmp(t->option, "attention") == 0) return o->attention == TSR_ATTENTION_EAGER;
  if (strcmp(t->option, "optimizer") == 0)
    return o->optimizer < TSR_OPTIMIZER_SGD; /* forms of AdamW */
  /* Ranks sum gradients before the optimizer sees them. */
  if (strcmp(t->option, "optimizer_in_backward") == 0 && o->ranks) return false;
  if (strcmp(t->option, "micro_batch") == 0 && o->backward_once) return false;
  return tsr__option_is_default(tsr__option_find(t->option), o);
}

void tsr__technique_keys(const tsr__technique_row *t, char keys[TSR__TECHNIQUE_KEYS]) {
  const tsr_parameter *row = tsr__option_find(t->option);
  const char *quote =
      row->kind == TSR_PARAMETER_COUNT || row->kind == TSR_PARAMETER_FLAG ? "" : "\"";
  assert(!t->option2); /* a technique that is listed sets one option */
  (void)snprintf(keys, TSR__TECHNIQUE_KEYS, "{\"%s\":%s%s%s}", t->option, quote, t->value, quote);
}

/* ---- names ---- */

/* The value of an option as names contain it: "512" of a loss in chunks, "1 sequence" of a micro-batch. */
static void value_text(const tsr_parameter *row, const tsr_simulate_options *options,
                       char text[TSR__OPTION_BYTES]) {
  char whole[TSR__OPTION_BYTES];
  tsr__option_text(row, options, whole);
  const char *colon = strchr(whole, ':');
  const char *unit = strcmp(row->name, "micro_batch") == 0      ? "sequence"
                     : strcmp(row->name, "offload_blocks") == 0 ? "block"
                                                                : NULL;
  if (unit)
    (void)snprintf(text, TSR__OPTION_BYTES, "%.100s %s%s", whole, unit,
                   strcmp(whole, "1") == 0 ? "" : "s");
  else
    (void)snprintf(text, TSR__OPTION_BYTES, "%s",
                   colon && row->stored == TSR_STORED_COUNT ? colon + 1 : whole);
}

static bool has_value(const tsr__technique_row *t, const tsr_parameter *row,
                      const tsr_simulate_options *options) {
  tsr_simulate_options own = {.batch = 0};
  if (strchr(t->name, '%')) return true;
  tsr__option_set(t->option, t->value, &own);
  return tsr__option_equal(row, &own, options);
}

/* A technique's name, with the value of its option in place of %s. */
static void put_name(const char *name, const char *value, char *out, size_t room) {
  const char *percent = strchr(name, '%');
  if (percent)
    (void)snprintf(out, room, "%.*s%s%s", (int)(percent - name), name, value, percent + 2);
  else
    (void)snprintf(out, room, "%s", name);
}

/* The name of the technique that sets the option so; else the option as it is typed. */
static void name_option(const tsr_parameter *row, const tsr_simulate_options *options, char *out,
                        size_t room) {
  char text[TSR__OPTION_BYTES];
  value_text(row, options, text);
  if (tsr__option_is_default(row, options)) { /* the change takes it back */
    if (row->kind == TSR_PARAMETER_CHOICE)
      (void)snprintf(out, room, "%s %s", row->name, text);
    else
      (void)snprintf(out, room, "not %s", row->name);
    return;
  }
  for (const tsr__technique_row *t = tsr__techniques; t->allow; t++) {
    if (!t->option || strcmp(t->option, row->name) != 0 || !has_value(t, row, options)) continue;
    put_name(t->name, text, out, room);
    return;
  }
  (void)snprintf(out, room, "%s%s%s", row->name, *text ? " " : "", text);
}

/* " 4 tensors again, 7 in 8 bits". */
static void name_saved(const tsr_block_choice *choice, char *out, size_t room) {
  static const struct {
    tsr_saved_place place;
    const char *words;
  } places[] = {{TSR_SAVED_RECOMPUTE, "again"},   {TSR_SAVED_NARROW16, "in 16 bits"},
                {TSR_SAVED_NARROW8, "in 8 bits"}, {TSR_SAVED_HOST, "on the host"},
                {TSR_SAVED_DISK, "on the disk"},  {TSR_SAVED_KEEP, "kept"}};
  size_t used = 0;
  assert(room);
  out[0] = '\0';
  for (size_t i = 0; i < sizeof places / sizeof *places && used < room; i++) {
    const char *last = NULL;
    size_t count = 0;
    for (size_t k = 0; k < choice->saved_count; k++) {
      if (choice->saved[k].place != places[i].place) continue;
      last = choice->saved[k].name;
      count++;
    }
    int more = 0;
    if (count == 1)
      more = snprintf(out + used, room - used, "%s %s %s", used ? "," : "", last, places[i].words);
    else if (count)
      more = snprintf(out + used, room - used, "%s %zu %s%s", used ? "," : "", count,
                      used ? "" : "tensors ", places[i].words);
    if (more > 0) used += (size_t)more;
  }
}

/* "blocks 0-3: computed again". */
static void name_range(const tsr_block_choice *choice, char *out, size_t room) {
  char word[TSR__OPTION_BYTES];
  const tsr_simulate_options one = {.checkpoint = choice->checkpoint,
                                    .checkpoint_every = choice->checkpoint_every};
  int used =
      choice->first == choice->last
          ? snprintf(out, room, "block %" PRIu64 ":", choice->first)
          : snprintf(out, room, "blocks %" PRIu64 "-%" PRIu64 ":", choice->first, choice->last);
  assert(used > 0 && (size_t)used < room);
  tsr__option_text(tsr__option_find("checkpoint"), &one, word);
  bool is_full = choice->checkpoint == TSR_CHECKPOINT_FULL;
  if (choice->checkpoint != TSR_CHECKPOINT_NONE)
    (void)snprintf(out + used, room - (size_t)used, " computed again%s%s", is_full ? "" : ", ",
                   is_full ? "" : word);
  else if (!choice->saved_count)
    (void)snprintf(out + used, room - (size_t)used, " kept");
  size_t length = strlen(out);
  if (choice->saved_count) name_saved(choice, out + length, room - length);
}

/* ---- changes ---- */

static bool add_option(const tsr_run_plan *from, const tsr_run_plan *to, size_t index,
                       tsr__plan_changes *out) {
  const tsr_parameter *row = tsr__option_at(index);
  bool is_same = from ? tsr__option_equal(row, &from->options, &to->options)
                      : tsr__option_is_default(row, &to->options);
  tsr__plan_change change = {.to = to, .options = UINT64_C(1) << index};
  if (is_same) return true;
  assert(index < 64);
  name_option(row, &to->options, change.name, sizeof change.name);
  return TSR__VECTOR_PUSH(out, change);
}

static uint64_t bit_of(const char *option) {
  size_t i = 0;
  while (strcmp(tsr__option_at(i)->name, option) != 0) i++;
  assert(i < 64);
  return UINT64_C(1) << i;
}

void tsr__technique_change(const tsr__technique_row *t, tsr_run_plan *to, tsr__plan_change *out) {
  char text[TSR__OPTION_BYTES];
  tsr__technique_apply(t, to);
  *out = (tsr__plan_change){.to = to, .options = bit_of(t->option)};
  if (t->option2) out->options |= bit_of(t->option2);
  value_text(tsr__option_find(t->option), &to->options, text);
  put_name(t->name, text, out->name, sizeof out->name);
}

/* Modules with one choice, taken together. */
static bool add_modules(const tsr_run_plan *from, const tsr_run_plan *to, tsr_module_how how,
                        tsr__plan_changes *out) {
  static const char *const names[] = {"computed again", "on the host"};
  size_t count = tsr__run_plan_modules(to, how);
  tsr__plan_change change = {.to = to, .modules = 1u << how};
  if (from ? tsr__run_plan_same_modules(from, to, how) : !count) return true;
  (void)snprintf(change.name, sizeof change.name, "%s: %zu module%s", names[how], count,
                 count == 1 ? "" : "s");
  return TSR__VECTOR_PUSH(out, change);
}

/* An option, and the lists of modules that may stand in its place. */
static bool add_key(const tsr_run_plan *from, const tsr_run_plan *to, size_t index,
                    tsr__plan_changes *out) {
  bool ok = add_option(from, to, index, out);
  for (int how = 0; ok && how <= TSR_MODULE_OFFLOAD; how++)
    if (strcmp(tsr__module_key((tsr_module_how)how), tsr__option_at(index)->name) == 0)
      ok = add_modules(from, to, (tsr_module_how)how, out);
  return ok;
}

static bool add_ranges(const tsr_run_plan *to, size_t most, tsr__plan_changes *out) {
  size_t count = to->blocks.count;
  tsr__plan_change change = {.to = to, .range_count = count};
  if (count > most) {
    (void)snprintf(change.name, sizeof change.name, "choices for %zu ranges of blocks", count);
    return TSR__VECTOR_PUSH(out, change);
  }
  change.range_count = 1;
  for (size_t i = 0; i < count; i++) {
    change.first_range = i;
    name_range(&to->blocks.items[i], change.name, sizeof change.name);
    if (!TSR__VECTOR_PUSH(out, change)) return false;
  }
  return true;
}

/* Options that affect most of the later ones come first. "master_weights" means nothing before dtype. */
static const char *const by_effect_first[] = {"master_weights",
                                              "dtype",
                                              "ranks", /* without it "zero" means nothing */
                                              "zero",
                                              "gelu",
                                              "attention",
                                              "no_kv_cache",
                                              "optimizer",
                                              "loss",
                                              "in_place",
                                              "micro_batch",
                                              "offload",
                                              "offload_blocks",
                                              "optimizer_in_backward",
                                              "checkpoint"};
enum { FIRST = sizeof by_effect_first / sizeof *by_effect_first };

static size_t index_of(const char *name) {
  size_t i = 0;
  while (strcmp(tsr__option_at(i)->name, name) != 0) i++;
  return i;
}

static bool is_among_first(const char *name) {
  for (size_t i = 0; i < FIRST; i++)
    if (strcmp(by_effect_first[i], name) == 0) return true;
  return false;
}

bool tsr__list_changes(const tsr_run_plan *from, const tsr_run_plan *to, bool by_effect,
                       size_t most_ranges, tsr__plan_changes *out) {
  bool ok = true;
  for (size_t i = 0; ok && by_effect && i < FIRST; i++)
    ok = add_key(from, to, index_of(by_effect_first[i]), out);
  for (size_t i = 0; ok && tsr__option_at(i); i++)
    if (!by_effect || !is_among_first(tsr__option_at(i)->name)) ok = add_key(from, to, i, out);
  if (!ok || (from && tsr__run_plan_same_blocks(from, to))) return ok;
  return add_ranges(to, most_ranges, out);
}

bool tsr__change_apply(const tsr__plan_change *change, tsr_run_plan *plan) {
  bool ok = true;
  for (size_t i = 0; tsr__option_at(i); i++)
    if (change->options >> i & 1)
      tsr__option_copy(tsr__option_at(i), &change->to->options, &plan->options);
  for (size_t i = 0; ok && i < change->range_count; i++)
    ok = tsr__run_plan_add_blocks(plan, &change->to->blocks.items[change->first_range + i]);
  for (int how = 0; ok && how <= TSR_MODULE_OFFLOAD; how++) {
    if (!(change->modules >> how & 1)) continue;
    tsr__run_plan_clear_modules(plan, (tsr_module_how)how);
    ok = tsr__run_plan_add_modules_of(plan, change->to, (tsr_module_how)how);
  }
  return ok;
}

int tsr__walk_changes(const tsr_run_plan *base, const tsr__plan_change *changes, size_t count,
                      bool skips_impossible, tsr__measure_plan_fn *measure, void *context,
                      tsr_run_plan_cost *alone, tsr_run_plan_cost *so_far, tsr_error *error) {
  tsr_run_plan *all = tsr__run_plan_copy(base);
  int status = all ? 0 : tsr__fail_memory(error);
  for (size_t i = 0; status == 0 && i < count; i++) {
    tsr_run_plan *one = alone ? tsr__run_plan_copy(base) : NULL, *more = tsr__run_plan_copy(all);
    bool ok = more && tsr__change_apply(&changes[i], more);
    if (ok && alone) ok = one && tsr__change_apply(&changes[i], one);
    if (!ok) status = tsr__fail_memory(error);
    if (status == 0 && alone) status = measure(context, one, &alone[i], error);
    if (status == 0) status = measure(context, more, &so_far[i], error);
    bool is_kept = status == 0 && (so_far[i].is_possible || !skips_impossible);
    tsr_run_plan_free(one);
    tsr_run_plan_free(is_kept ? all : more);
    if (is_kept) all = more;
  }
  tsr_run_plan_free(all);
  return status;
}
