/* rules_yaml.c - rules in YAML. libyaml parses them into a document, a flat array of nodes; this file
 * walks three levels of it, so nodes that contain themselves, or one another many times over,
 * do no harm. Every scalar is used as text, as it is written: a pattern may be 123. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "attribution/rules.h"

typedef struct walk {
  yaml_document_t *document;
  tsr_rules *rules;
  tsr_rules_mode mode;
  tsr_error *error;
} walk;

static int wrong(walk *w, const yaml_node_t *node, const char *what) {
  return tsr__fail(w->error, TSR_ERROR_FORMAT,
                   node ? (uint64_t)node->start_mark.index : TSR_OFFSET_NONE, "line %zu: %s",
                   node ? node->start_mark.line + 1 : 1, what);
}

/* The text of a scalar, which libyaml terminates with a zero; NULL for other nodes, and for texts that
 * contain a zero. */
static const char *text_of(const yaml_node_t *node) {
  if (!node || node->type != YAML_SCALAR_NODE) return NULL;
  const char *text = (const char *)node->data.scalar.value;
  return strlen(text) == node->data.scalar.length ? text : NULL;
}

static bool read_priority(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno) return false;
  *out = number;
  return true;
}

static int take_member(walk *w, const yaml_node_t *key, const yaml_node_t *value, tsr_rule *rule) {
  const char *name = text_of(key), *text = text_of(value);
  if (!name || !text) return wrong(w, key, "a rule must be a mapping of strings");
  if (!strcmp(name, "name")) rule->name = text;
  if (!strcmp(name, "pattern")) rule->pattern = text;
  if (!strcmp(name, "description")) rule->description = text;
  if (!strcmp(name, "priority") && !read_priority(text, &rule->priority))
    return wrong(w, value, "a priority must be an integer");
  return 0;
}

static yaml_node_t *node_at(walk *w, int index) {
  return yaml_document_get_node(w->document, index);
}

static int take_rule(walk *w, const yaml_node_t *node, const char *name) {
  tsr_rule rule = {0};
  int status = 0;
  if (!node || node->type != YAML_MAPPING_NODE)
    return wrong(w, node, "a rule must be a pattern or a mapping");
  for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
       !status && pair < node->data.mapping.pairs.top; pair++)
    status = take_member(w, node_at(w, pair->key), node_at(w, pair->value), &rule);
  if (name) rule.name = name;
  return status ? status : tsr__rules_add(w->rules, &rule, name != NULL, w->mode, w->error);
}

static int take_list(walk *w, const yaml_node_t *node) {
  int status = 0;
  for (yaml_node_item_t *item = node->data.sequence.items.start;
       !status && item < node->data.sequence.items.top; item++)
    status = take_rule(w, node_at(w, *item), NULL);
  return status;
}

static int take_mapping(walk *w, const yaml_node_t *node) {
  int status = 0;
  for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
       !status && pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = node_at(w, pair->key), *value = node_at(w, pair->value);
    tsr_rule rule = {.name = text_of(key), .pattern = text_of(value)};
    if (!rule.name) return wrong(w, key, "a name must be a string");
    status = rule.pattern ? tsr__rules_add(w->rules, &rule, true, w->mode, w->error)
                          : take_rule(w, value, rule.name);
  }
  return status;
}

/* The value of `rules:`, unless that is itself a rule of that name; otherwise the node. */
static yaml_node_t *inner(walk *w, yaml_node_t *root) {
  if (!root || root->type != YAML_MAPPING_NODE) return root;
  for (yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top;
       pair++) {
    const char *key = text_of(node_at(w, pair->key));
    yaml_node_t *value = node_at(w, pair->value);
    if (key && value && !strcmp(key, "rules") && value->type != YAML_SCALAR_NODE) return value;
  }
  return root;
}

static int take_root(walk *w) {
  yaml_node_t *root = inner(w, yaml_document_get_root_node(w->document));
  if (root && root->type == YAML_SEQUENCE_NODE) return take_list(w, root);
  if (root && root->type == YAML_MAPPING_NODE) return take_mapping(w, root);
  return wrong(w, root, "expected a mapping of names to patterns, or a list");
}

int tsr__rules_read_yaml(const char *text, size_t size_bytes, tsr_rules_mode mode, tsr_rules *rules,
                         tsr_error *error) {
  yaml_parser_t parser;
  yaml_document_t document;
  walk w = {&document, rules, mode, error};
  int status;
  if (!yaml_parser_initialize(&parser)) return tsr__fail_memory(error);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size_bytes);
  if (!yaml_parser_load(&parser, &document)) {
    /* libyaml does not note every copy of a text that it could not make. */
    bool is_lost = parser.error == YAML_MEMORY_ERROR || parser.error == YAML_NO_ERROR;
    status = is_lost ? tsr__fail_memory(error)
                     : tsr__fail(error, TSR_ERROR_FORMAT, parser.problem_mark.index, "line %zu: %s",
                                 parser.problem_mark.line + 1,
                                 parser.problem ? parser.problem : "no YAML");
  } else {
    status = take_root(&w);
    yaml_document_delete(&document);
  }
  yaml_parser_delete(&parser);
  return status;
}
