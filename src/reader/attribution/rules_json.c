/* rules_json.c - rules in JSON. This file walks the values of tsr_json_load. Objects keep the
 * order of the text, and its depth is limited there (2048). */
#include "attribution/rules.h"
#include "base/json.h"

typedef struct walk {
  tsr_rules *rules;
  tsr_rules_mode mode;
  tsr_error *error;
} walk;

static int wrong(walk *w, const char *what) {
  return tsr__fail(w->error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "%s", what);
}

/* A member of a rule as text; NULL if it is absent. False if it is not text. */
static bool text_of(const json_t *rule, const char *key, const char **out) {
  const json_t *value = json_object_get(rule, key);
  *out = json_string_value(value);
  return !value || json_is_null(value) || *out;
}

/* A rule as an object; `name` is that of a mapping's key, or NULL. */
static int take_rule(walk *w, const json_t *value, const char *name) {
  tsr_rule rule = {0};
  if (!json_is_object(value)) return wrong(w, "a rule must be a pattern or an object");
  const json_t *priority = json_object_get(value, "priority");
  if (!text_of(value, "name", &rule.name) || !text_of(value, "pattern", &rule.pattern) ||
      !text_of(value, "description", &rule.description))
    return wrong(w, "name, pattern and description must be strings");
  if (priority && !json_is_integer(priority)) return wrong(w, "a priority must be an integer");
  rule.priority = json_integer_value(priority);
  if (name) rule.name = name;
  return tsr__rules_add(w->rules, &rule, name != NULL, w->mode, w->error);
}

static int take_list(walk *w, const json_t *list) {
  int status = 0;
  for (size_t i = 0; !status && i < json_array_size(list); i++)
    status = take_rule(w, json_array_get(list, i), NULL);
  return status;
}

static int take_mapping(walk *w, json_t *mapping) {
  int status = 0;
  for (void *at = json_object_iter(mapping); !status && at;
       at = json_object_iter_next(mapping, at)) {
    const json_t *value = json_object_iter_value(at);
    tsr_rule rule = {.name = json_object_iter_key(at), .pattern = json_string_value(value)};
    status = rule.pattern ? tsr__rules_add(w->rules, &rule, true, w->mode, w->error)
                          : take_rule(w, value, rule.name);
  }
  return status;
}

static int take_root(walk *w, json_t *root) {
  json_t *inner = json_object_get(root, "rules");
  if (inner && !json_is_string(inner)) root = inner;
  if (json_is_array(root)) return take_list(w, root);
  if (json_is_object(root)) return take_mapping(w, root);
  return wrong(w, "expected a mapping of names to patterns, or a list");
}

int tsr__rules_read_json(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules *rules,
                         tsr_error *error) {
  walk w = {rules, mode, error};
  json_t *root = NULL;
  size_t flags = mode == TSR_RULES_STRICT ? JSON_REJECT_DUPLICATES : 0;
  int status = tsr_json_load(text, size_bytes, flags, NULL, &root, error);
  if (!status) status = take_root(&w, root);
  json_decref(root);
  return status;
}
