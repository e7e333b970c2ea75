/* changes.c - the changes of a plan, in sequence, and the effect of each change after the ones before it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "plan/planner.h"

/* Changes that affect most of the later ones come first; choices for blocks come last. */
static const struct {
  const char *key, *name;                               /* NULL: its value says it */
} keys[] = {{"master_weights", "weights in fp32, too"}, /* means nothing before dtype */
            {"dtype", NULL},
            {"zero", NULL},
            {"gelu", "GELU as one kernel"},
            {"attention", "fused attention kernel"},
            {"no_kv_cache", "no key-value cache"},
            {"optimizer", "fused optimizer"},
            {"loss", NULL},
            {"in_place", NULL},
            {"micro_batch", NULL},
            {"offload", NULL},
            {"optimizer_in_backward", "optimizer in backward"},
            {"checkpoint", "all blocks computed again"}};

/* Two absent values are the same. */
static bool is_same(const json_t *a, const json_t *b) {
  return a == b || json_equal(a, b);
}

static void name_key(const char *key, const json_t *value, char *out, size_t room) {
  const char *word = json_string_value(value), *colon = word ? strchr(word, ':') : NULL;
  size_t count = json_array_size(value);
  if (json_is_array(value)) {
    (void)snprintf(out, room, "%s: %zu module%s",
                   strcmp(key, "checkpoint") == 0 ? "computed again" : "on the host", count,
                   count == 1 ? "" : "s");
    return;
  }
  if (strcmp(key, "loss") == 0 && colon)
    (void)snprintf(out, room, "loss of %s tokens at a time", colon + 1);
  else if (strcmp(key, "zero") == 0)
    (void)snprintf(out, room, "ZeRO stage %lld", (long long)json_integer_value(value));
  else if (strcmp(key, "micro_batch") == 0)
    (void)snprintf(out, room, "%lld sequence%s at a time", (long long)json_integer_value(value),
                   json_integer_value(value) == 1 ? "" : "s");
  else if (strcmp(key, "in_place") == 0)
    (void)snprintf(out, room, "in place: %s", word);
  else if (strcmp(key, "offload") == 0)
    (void)snprintf(out, room, "on the host: %s", word);
  else
    (void)snprintf(out, room, "%s %s", key, word ? word : "");
}

/* " 4 tensors again, 7 in 8 bits". */
static void name_saved(json_t *saved, char *out, size_t room) {
  static const char *const places[][2] = {
      {"recompute", "again"}, {"narrow16", "in 16 bits"}, {"narrow8", "in 8 bits"}};
  size_t used = 0;
  assert(room);
  out[0] = '\0';
  for (size_t i = 0; i < sizeof places / sizeof *places && used < room; i++) {
    const char *key, *last = NULL;
    json_t *value;
    size_t count = 0;
    json_object_foreach(saved, key, value) {
      if (strcmp(json_string_value(value), places[i][0]) != 0) continue;
      last = key;
      count++;
    }
    int more = 0;
    if (count == 1)
      more = snprintf(out + used, room - used, "%s %s %s", used ? "," : "", last, places[i][1]);
    else if (count)
      more = snprintf(out + used, room - used, "%s %zu %s%s", used ? "," : "", count,
                      used ? "" : "tensors ", places[i][1]);
    if (more > 0) used += (size_t)more;
  }
}

/* "blocks 0-3: computed again". */
static void name_range(const json_t *range, char *out, size_t room) {
  long long first = json_integer_value(json_object_get(range, "first"));
  long long last = json_integer_value(json_object_get(range, "last"));
  const char *checkpoint = json_string_value(json_object_get(range, "checkpoint"));
  json_t *saved = json_object_get(range, "saved");
  int used = first == last ? snprintf(out, room, "block %lld:", first)
                           : snprintf(out, room, "blocks %lld-%lld:", first, last);
  assert(used > 0 && (size_t)used < room);
  if (checkpoint)
    (void)snprintf(out + used, room - (size_t)used, " computed again%s%s",
                   strcmp(checkpoint, "full") == 0 ? "" : ", ",
                   strcmp(checkpoint, "full") == 0 ? "" : checkpoint);
  if (json_object_size(saved)) name_saved(saved, out + used, room - (size_t)used);
}

static int add(tsr_planning *p, const json_t *root, tsr_planned *out, tsr_error *error) {
  assert(out->change_count < TSR_PLANNED_CHANGES);
  return tsr__planner_measure(p, root, &out->changes[out->change_count++].so_far, error);
}

static int add_keys(tsr_planning *p, const json_t *plan, json_t *root, tsr_planned *out,
                    tsr_error *error) {
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    json_t *value = json_object_get(plan, keys[i].key);
    json_t *before = json_object_get(root, keys[i].key);
    if (is_same(value, before)) continue;
    tsr_planned_change *change = &out->changes[out->change_count];
    if (keys[i].name && !json_is_array(value))
      (void)snprintf(change->name, sizeof change->name, "%s", keys[i].name);
    else if (!value)
      (void)snprintf(change->name, sizeof change->name, "not %s", keys[i].key);
    else
      name_key(keys[i].key, value, change->name, sizeof change->name);
    int failed =
        value ? json_object_set(root, keys[i].key, value) : json_object_del(root, keys[i].key);
    int status = failed ? tsr__fail_memory(error) : add(p, root, out, error);
    if (status) return status;
  }
  return 0;
}

/* Each range, or all at once if there are too many. */
static int add_ranges(tsr_planning *p, const json_t *plan, json_t *root, tsr_planned *out,
                      tsr_error *error) {
  json_t *all = json_object_get(plan, "blocks");
  size_t count = json_array_size(all), room = TSR_PLANNED_CHANGES - out->change_count;
  if (is_same(all, json_object_get(root, "blocks"))) return 0;
  json_t *list = json_array();
  int status = list && json_object_set(root, "blocks", list) == 0 ? 0 : tsr__fail_memory(error);
  for (size_t i = 0; status == 0 && i < count; i++) {
    tsr_planned_change *change = &out->changes[out->change_count];
    if (json_array_append(list, json_array_get(all, i))) status = tsr__fail_memory(error);
    bool is_shown = count <= room || i + 1 == count;
    if (status || !is_shown) continue;
    if (count > room)
      (void)snprintf(change->name, sizeof change->name, "choices for %zu ranges of blocks", count);
    else
      name_range(json_array_get(all, i), change->name, sizeof change->name);
    status = add(p, root, out, error);
  }
  json_decref(list);
  return status;
}

int tsr__planner_list_changes(tsr_planning *p, const json_t *plan, tsr_planned *out,
                              tsr_error *error) {
  json_t *root = json_deep_copy(p->base);
  out->change_count = 0;
  int status = root ? 0 : tsr__fail_memory(error);
  /* What the planner chooses for blocks replaces what was there. */
  if (status == 0 && !is_same(json_object_get(root, "blocks"), json_object_get(plan, "blocks")))
    (void)json_object_del(root, "blocks");
  if (status == 0) status = add_keys(p, plan, root, out, error);
  if (status == 0) status = add_ranges(p, plan, root, out, error);
  json_decref(root);
  return status;
}
