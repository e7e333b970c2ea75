/* values.h - the JSON of an answer as values that are found by path.
 *
 * The JSON is a report's own, so it is well formed; it is read here instead of by jansson because a report can contain what jansson
 * rejects: integers of 64 bits without a sign, lone surrogates, and zero bytes in names. */
#ifndef TSR_ASK_VALUES_H
#define TSR_ASK_VALUES_H

#include "base/buffer.h"
#include "base/vector.h"
#include "tessera/types.h"
#include "tessera/unstable/fields.h"

/* A value, in the order of the text; those within an object or array follow it. */
typedef struct tsr__node {
  char kind;          /* the first character of its text: { [ " t f n, and 0 for a number */
  tsr_text key, text; /* the member's name; the text of a string, without escapes, or of a number */
  size_t parent, next; /* the container; the node after this one and all within it */
  size_t count;        /* of a container: values that are directly within it */
} tsr__node;

/* Zeroed: not read yet. */
typedef struct tsr__values {
  tsr__buffer json; /* strings have been replaced by their characters in place */
  TSR__VECTOR(tsr__node) nodes;
} tsr__values;

/* Read the values of `values->json`. Linear. False when out of memory. */
bool tsr__values_read(tsr__values *values);
void tsr__values_release(tsr__values *values);

/* The value at a path from the first one (tsr_answer_number). `record` is what is declared of the answer, or NULL. A name that is not
 * among the answer's own fields may be one of its first device. Fails with TSR_ERROR_ARGUMENT for what is no path, or has a name that is
 * not declared; TSR_ERROR_ABSENT, TSR_ERROR_NULL or TSR_ERROR_TYPE if the path ends early at such a value. Linear in the entries that it
 * passes. */
int tsr__values_find(const tsr__values *values, const tsr_record *record, const char *path,
                     const tsr__node **out, tsr_error *error);

/* The value as an integer (true is 1), any number, a text, or the length of a list. Fails with TSR_ERROR_NULL, _TYPE, or
 * _LIMIT for an integer beyond 63 bits, with outputs untouched. `path` is for the message. */
int tsr__node_number(const tsr__node *node, const char *path, int64_t *out, tsr_error *error);
int tsr__node_real(const tsr__node *node, const char *path, double *out, tsr_error *error);
int tsr__node_text(const tsr__node *node, const char *path, tsr_text *out, tsr_error *error);
int tsr__node_count(const tsr__node *node, const char *path, uint64_t *out, tsr_error *error);

#endif
