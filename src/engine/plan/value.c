/* value.c - see value.h. */
#include "plan/value.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/sort.h"

tsr_run_plan *tsr__run_plan_new(void) {
  tsr_run_plan *plan = TSR__NEW(tsr_run_plan);
  if (!plan) return NULL;
  tsr__arena_init(&plan->arena);
  tsr__options_default(&plan->options);
  return plan;
}

void tsr_run_plan_free(tsr_run_plan *plan) {
  if (!plan) return;
  tsr__arena_release(&plan->arena);
  TSR__VECTOR_FREE(&plan->blocks);
  TSR__VECTOR_FREE(&plan->modules);
  tsr__buffer_release(&plan->text);
  tsr__free(plan);
}

tsr_run_plan *tsr__run_plan_copy(const tsr_run_plan *plan) {
  tsr_run_plan *copy = plan ? tsr__run_plan_new() : NULL;
  if (!copy) return NULL;
  copy->options = plan->options;
  bool ok = tsr__run_plan_add_ranges_of(copy, plan);
  for (int how = 0; ok && how <= TSR_MODULE_OFFLOAD; how++)
    ok = tsr__run_plan_add_modules_of(copy, plan, (tsr_module_how)how);
  if (ok) return copy;
  tsr_run_plan_free(copy);
  return NULL;
}

/* ---- equality ---- */

static bool blocks_equal(const tsr_block_choice *a, const tsr_block_choice *b) {
  if (a->first != b->first || a->last != b->last || a->checkpoint != b->checkpoint ||
      a->checkpoint_every != b->checkpoint_every || a->saved_count != b->saved_count)
    return false;
  for (size_t i = 0; i < a->saved_count; i++)
    if (a->saved[i].place != b->saved[i].place || strcmp(a->saved[i].name, b->saved[i].name) != 0)
      return false;
  return true;
}

bool tsr__run_plan_same_blocks(const tsr_run_plan *a, const tsr_run_plan *b) {
  if (a->blocks.count != b->blocks.count) return false;
  for (size_t i = 0; i < a->blocks.count; i++)
    if (!blocks_equal(&a->blocks.items[i], &b->blocks.items[i])) return false;
  return true;
}

/* The index of the first module with that choice, or the number of modules. */
static size_t first_module(const tsr_run_plan *plan, tsr_module_how how) {
  size_t i = 0;
  while (i < plan->modules.count && plan->modules.items[i].how < how) i++;
  return i;
}

bool tsr__run_plan_same_modules(const tsr_run_plan *a, const tsr_run_plan *b, tsr_module_how how) {
  size_t count = tsr__run_plan_modules(a, how);
  if (count != tsr__run_plan_modules(b, how)) return false;
  if (!count) return true;
  const tsr_module_choice *left = a->modules.items + first_module(a, how);
  const tsr_module_choice *right = b->modules.items + first_module(b, how);
  for (size_t i = 0; i < count; i++)
    if (strcmp(left[i].name, right[i].name) != 0) return false;
  return true;
}

bool tsr__run_plan_equal(const tsr_run_plan *a, const tsr_run_plan *b) {
  for (size_t i = 0; tsr__option_at(i); i++)
    if (!tsr__option_equal(tsr__option_at(i), &a->options, &b->options)) return false;
  return tsr__run_plan_same_blocks(a, b) &&
         tsr__run_plan_same_modules(a, b, TSR_MODULE_CHECKPOINT) &&
         tsr__run_plan_same_modules(a, b, TSR_MODULE_OFFLOAD);
}

static uint64_t mix_text(uint64_t number, const char *text) {
  return tsr__mix(number, tsr__hash_bytes(text, strlen(text), 0));
}

uint64_t tsr__run_plan_number(const tsr_run_plan *plan) {
  char text[TSR__OPTION_BYTES];
  uint64_t number = plan->blocks.count;
  for (size_t i = 0; tsr__option_at(i); i++) {
    const tsr_parameter *row = tsr__option_at(i);
    if (tsr__option_is_default(row, &plan->options)) continue;
    tsr__option_text(row, &plan->options, text);
    number = mix_text(tsr__mix(number, i), text);
  }
  for (size_t i = 0; i < plan->blocks.count; i++) {
    const tsr_block_choice *c = &plan->blocks.items[i];
    const uint64_t parts[] = {c->first, c->last, c->checkpoint, c->checkpoint_every};
    number = tsr__mix(number, tsr__hash_bytes(parts, sizeof parts, 0));
    for (size_t k = 0; k < c->saved_count; k++)
      number = tsr__mix(mix_text(number, c->saved[k].name), c->saved[k].place);
  }
  for (size_t i = 0; i < plan->modules.count; i++)
    number = tsr__mix(mix_text(number, plan->modules.items[i].name), plan->modules.items[i].how);
  return number;
}

size_t tsr__run_plan_size(const tsr_run_plan *plan) {
  size_t count = plan->blocks.count + plan->modules.count;
  for (size_t i = 0; tsr__option_at(i); i++)
    count += !tsr__option_is_default(tsr__option_at(i), &plan->options);
  return count;
}

/* ---- lists ---- */

static const char *keep_text(tsr_run_plan *plan, const char *text) {
  return tsr__arena_copy(&plan->arena, text, strlen(text) + 1, 1);
}

static int compare_saved(const void *left, const void *right) {
  const tsr_saved_choice *a = left, *b = right;
  return strcmp(a->name, b->name);
}

bool tsr__run_plan_add_blocks(tsr_run_plan *plan, const tsr_block_choice *choice) {
  tsr_block_choice copy = *choice;
  assert(choice->first <= choice->last && !plan->text.size);
  tsr_saved_choice *saved = tsr__arena_copy(
      &plan->arena, choice->saved, choice->saved_count * sizeof *saved, _Alignof(tsr_saved_choice));
  if (!saved) return false;
  for (size_t i = 0; i < choice->saved_count; i++)
    if (!(saved[i].name = keep_text(plan, saved[i].name))) return false;
  tsr__sort(saved, choice->saved_count, sizeof *saved, compare_saved);
  copy.saved = saved;
  return TSR__VECTOR_PUSH(&plan->blocks, copy);
}

bool tsr__run_plan_add_ranges_of(tsr_run_plan *plan, const tsr_run_plan *from) {
  bool ok = true;
  for (size_t i = 0; ok && i < from->blocks.count; i++)
    ok = tsr__run_plan_add_blocks(plan, &from->blocks.items[i]);
  return ok;
}

/* The index of a module in the sorted list, or where it would be inserted. */
static size_t place_of(const tsr_run_plan *plan, const char *name, tsr_module_how how) {
  size_t low = 0, high = plan->modules.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const tsr_module_choice *item = &plan->modules.items[middle];
    bool is_before = item->how != how ? item->how < how : strcmp(item->name, name) < 0;
    if (is_before)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool tsr__run_plan_add_module(tsr_run_plan *plan, const char *name, tsr_module_how how) {
  size_t at = place_of(plan, name, how), count = plan->modules.count;
  assert(!plan->text.size);
  if (at < count && plan->modules.items[at].how == how &&
      strcmp(plan->modules.items[at].name, name) == 0)
    return true;
  tsr_module_choice choice = {keep_text(plan, name), how};
  if (!choice.name || !TSR__VECTOR_PUSH(&plan->modules, choice)) return false;
  tsr_module_choice *items = plan->modules.items;
  memmove(items + at + 1, items + at, (count - at) * sizeof *items);
  items[at] = choice;
  return true;
}

bool tsr__run_plan_add_modules_of(tsr_run_plan *plan, const tsr_run_plan *from,
                                  tsr_module_how how) {
  bool ok = true;
  for (size_t i = 0; ok && i < from->modules.count; i++)
    if (from->modules.items[i].how == how)
      ok = tsr__run_plan_add_module(plan, from->modules.items[i].name, how);
  return ok;
}

size_t tsr__run_plan_modules(const tsr_run_plan *plan, tsr_module_how how) {
  size_t count = 0;
  for (size_t i = 0; i < plan->modules.count; i++) count += plan->modules.items[i].how == how;
  return count;
}

void tsr__run_plan_clear_blocks(tsr_run_plan *plan) {
  assert(!plan->text.size);
  plan->blocks.count = 0;
}

void tsr__run_plan_clear_modules(tsr_run_plan *plan, tsr_module_how how) {
  size_t kept = 0;
  assert(!plan->text.size);
  for (size_t i = 0; i < plan->modules.count; i++)
    if (plan->modules.items[i].how != how) plan->modules.items[kept++] = plan->modules.items[i];
  plan->modules.count = kept;
}
