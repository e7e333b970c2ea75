/* template.h - chat templates: a part of Jinja, as transformers runs it (trim_blocks, lstrip_blocks).
 *
 * A template is parsed into a tree (template_parse.c), which is then run with the messages of a conversation (template_run.c). Statements:
 * for, if, set, generation. Expressions: texts, whole numbers, lists, comparisons, arithmetic, slices, attributes, calls, filters, tests. What is
 * parsed but not implemented, such as a filter, is an error only where the template gets to it: most templates have parts about tools.
 * A template may come from a stranger: it can call nothing outside of this file, and memory and steps are limited. */
#ifndef TSR_TOKENS_TEMPLATE_H
#define TSR_TOKENS_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "tessera/types.h"

typedef enum tsr__template_kind {
  TSR__NODE_DATA, /* text of the template */
  TSR__NODE_OUTPUT,
  TSR__NODE_FOR,
  TSR__NODE_IF,
  TSR__NODE_SET,
  TSR__NODE_TEXT,
  TSR__NODE_INTEGER,
  TSR__NODE_TRUTH,
  TSR__NODE_NONE,
  TSR__NODE_NAME,
  TSR__NODE_LIST,
  TSR__NODE_ATTRIBUTE, /* a.text */
  TSR__NODE_ITEM,      /* a[b] */
  TSR__NODE_SLICE,     /* a[b:c] */
  TSR__NODE_CALL,
  TSR__NODE_NAMED, /* an argument text=a */
  TSR__NODE_FILTER,
  TSR__NODE_TEST,
  TSR__NODE_NOT,
  TSR__NODE_NEGATIVE,
  TSR__NODE_BINARY,
  TSR__NODE_CHOICE,     /* b if a else c */
  TSR__NODE_UNSUPPORTED /* an error when it is run */
} tsr__template_kind;

typedef struct tsr__template_node tsr__template_node;
struct tsr__template_node {
  tsr__template_kind kind;
  tsr_text text;   /* a name, an operator, a text */
  int64_t integer; /* INTEGER, TRUTH; TEST: whether it is negated */
  tsr__template_node *a, *b, *c;
  tsr__template_node *body;      /* the first statement, item or argument */
  tsr__template_node *otherwise; /* of FOR and IF */
  tsr__template_node *next;      /* statement, item or argument */
};

/* Parse a template into nodes of the arena; `*out` is the first statement, or NULL. Fails with TSR_ERROR_UNSUPPORTED or _FORMAT and the
 * offset, or TSR_ERROR_MEMORY. */
int tsr__template_parse(tsr__arena *arena, tsr_text source, tsr__template_node **out,
                        tsr_error *error);

typedef struct tsr__template_message {
  tsr_text role, content;
} tsr__template_message;

typedef struct tsr__template_variable {
  tsr_text name, value;
} tsr__template_variable;

typedef struct tsr__template_input {
  const tsr__template_message *messages;
  size_t message_count;
  const tsr__template_variable *variables; /* texts, such as bos_token */
  size_t variable_count;
  bool adds_prompt; /* "add_generation_prompt" */
} tsr__template_input;

/* Run a template and append what it writes. Fails with TSR_ERROR_UNSUPPORTED for what is not implemented, TSR_ERROR_ARGUMENT for what the
 * template itself refuses (raise_exception) or does wrong, TSR_ERROR_LIMIT, TSR_ERROR_MEMORY. */
int tsr__template_run(const tsr__template_node *first, const tsr__template_input *input,
                      tsr__buffer *out, tsr_error *error);

#endif
