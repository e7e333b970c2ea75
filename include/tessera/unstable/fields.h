/* tessera/unstable/fields.h - the fields that the JSON of an answer has.
 *
 * Every question declares them once, in its folder's fields.c. The reference in docs/json.md and the classes of
 * python/tessera/_answers.py are written from the declaration (cmd/docs/), and in builds with assertions the emitter
 * stops at a member that is not declared, or is declared as something else.
 *
 * All of it is constant data, which lives as long as the program. */
#ifndef TESSERA_UNSTABLE_FIELDS_H
#define TESSERA_UNSTABLE_FIELDS_H

#include "tessera/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the value of a field is. */
typedef enum tsr_field_kind {
  TSR_FIELD_BYTES,    /* a number of bytes, 0 or more */
  TSR_FIELD_COUNT,    /* a number of anything else, 0 or more */
  TSR_FIELD_EVENT,    /* the number of an event in its device's trace, -1 for "before the first" */
  TSR_FIELD_DELTA,    /* a difference in bytes, which may be negative */
  TSR_FIELD_TIME,     /* microseconds since 1970, UTC */
  TSR_FIELD_DURATION, /* microseconds */
  TSR_FIELD_REAL,     /* a number that need not be whole; null if it is not finite */
  TSR_FIELD_FLAG,     /* true or false */
  TSR_FIELD_TEXT,
  TSR_FIELD_DEVICE, /* the number of a GPU, "cpu" or "host" */
  TSR_FIELD_PAIR,   /* an array of two numbers */
  TSR_FIELD_MAP,    /* an object from names that depend on the file to numbers */
  TSR_FIELD_RECORD, /* an object with the fields of `record` */
  TSR_FIELD_JSON    /* an object in a format of its own: a plan file, a config.json */
} tsr_field_kind;

typedef struct tsr_record tsr_record;

typedef struct tsr_field {
  const char *key;
  tsr_field_kind kind;
  const char *about;        /* what it means, in Markdown, without a full stop at the end */
  const tsr_record *record; /* of a RECORD */
  bool is_list;             /* the field is an array of such values */
  bool is_nullable;         /* or null, where it does not apply */
  bool is_optional;         /* left out where it does not apply: `about` says where that is */
} tsr_field;

/* An object of the JSON, and a class in Python. */
struct tsr_record {
  const char *name;        /* in Python: "PeakMoment"; of a whole answer the question's: "peak" */
  const char *about;       /* one sentence, with its full stop */
  const tsr_record *base;  /* whose fields it has too, before its own; or NULL */
  bool may_lack_base;      /* where the base does not apply, all of its fields are left out */
  const tsr_field *fields; /* ends at a NULL key; NULL: none of its own */
  bool is_apart; /* several answers have it, or it is long: documented once, and referred to */
};

/* The fields of a question's answer, or NULL if it declares none. The fields about devices are those of the record
 * of "devices". */
const tsr_record *tsr_question_fields(const tsr_question *question);

/* The field of that key, in the record or in those that it is based on; NULL if no record has it. Linear in the number
 * of fields. */
const tsr_field *tsr_record_field(const tsr_record *record, const char *key, size_t size_bytes);

#ifdef __cplusplus
}
#endif
#endif
