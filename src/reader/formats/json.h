/* json.h - reads a snapshot that was written as JSON, straight into rows.
 *
 * JSON has no memo: a list of frames is spelled out at every event, so such a file is some thirty
 * times as long as the pickle it was made from, and nearly all of it repeats. Nothing is kept of
 * the text but one window and a bounded collection of stacks, and no tree of it is built.
 *
 * Beyond RFC 8259 it takes what Python's json module writes: NaN, Infinity, -Infinity, and escapes
 * of lone surrogates, which are kept in three bytes as Python's surrogatepass does. Bytes that are
 * not UTF-8 stay as they are. A byte order mark is skipped. Integers are exact up to 64 bits.
 *
 * Between the files of the reader, a function returns 0, a negative tsr_status, or 1 if the
 * input ends in the midst of what it reads. */
#ifndef TSR_FORMATS_JSON_H
#define TSR_FORMATS_JSON_H

#include "base/buffer.h"
#include "formats/assemble.h"
#include "io/source.h"

/* An object or array whose end has not come yet. */
typedef struct tsr__json_open {
  size_t first;        /* its values are in `values` from here on; a dict's keys among them */
  size_t first_opened; /* the assembler's containers opened inside it are in `opened` from here */
  uint32_t list;       /* the container that takes a list's values, or TSR_NONE before the first */
  uint32_t key;        /* a dict's last key, where it is a tsr__name; else TSR__KEY_COUNT */
  uint8_t kind;        /* TSR__LIST or TSR__DICT */
} tsr__json_open;

/* What is known of a text that was met as `"frames": [...]`; see json_seen.c. */
typedef struct tsr__json_seen {
  uint32_t stack;   /* id, or TSR_NONE while it is not known to be one */
  uint32_t next[2]; /* ids of the texts that followed it last */
} tsr__json_seen;

/* Invariants: source->data <= next <= end == source->data + source->size; `first` and
 * `first_opened` ascend along `open`; seen.count == texts.count. */
typedef struct tsr__json {
  tsr__input *source;        /* not owned */
  tsr__assembler *assembler; /* not owned */
  tsr_error *error;
  const unsigned char *next, *end;
  const unsigned char *check_at; /* where in the window to look at the memory held */
  int expect;                    /* what may come next, see json.c */

  TSR__VECTOR(tsr__value) values;
  TSR__VECTOR(tsr__json_open) open;
  TSR__VECTOR(uint32_t) opened; /* containers that nothing has released yet */
  tsr__buffer text;             /* scratch: a string without its escapes, a number */

  uint32_t next_key[TSR__KEY_COUNT + 1]; /* the key that followed this one last; [KEY_COUNT]: the
                                            first of an object */
  uint32_t last_text[TSR__KEY_COUNT];    /* the last text of this key, or TSR_NONE */

  tsr__intern texts; /* lists of frames, by their bytes */
  TSR__VECTOR(tsr__json_seen) seen;
  uint32_t last_seen;   /* the text met last, or TSR_NONE */
  uint32_t learning;    /* the text being read as values, or TSR_NONE */
  uint64_t left_behind; /* what reading had left before it, see json_seen.c */
  size_t frames_depth;  /* open containers up to the list of frames being read; 0: none is */

  tsr_progress_fn *progress;
  void *progress_context;
  uint64_t progress_total;
} tsr__json;

/* Does a JSON text of an object or array begin here? `size` may be less than the whole; what is
 * after it counts as fitting. */
bool tsr__json_looks_like(const unsigned char *data, size_t size);

/* Read the text that `source` holds, from its first byte, and finish the snapshot. What follows a
 * complete snapshot is not read. A text that is cut short gives what it holds, and a
 * warning. `total_bytes` is for the progress call: the input's size, 0 where unknown. Time is
 * linear in the text. Fails with _FORMAT, _LIMIT, _MEMORY or as the source does. */
int tsr__json_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                   uint64_t total_bytes, tsr_error *error);

/* ---- between the files of the reader ---- */

/* Set what every reader of JSON begins with: the window's bytes, and the progress call. */
void tsr__json_begin(tsr__json *j, tsr__input *source, tsr__assembler *assembler,
                     const tsr_open_options *options, uint64_t total_bytes, tsr_error *error);

/* Offset of the byte at `p`. */
static inline uint64_t tsr__json_offset(const tsr__json *j, const unsigned char *p) {
  return j->source->offset + (uint64_t)(p - j->source->data);
}

/* Have `size` unread bytes in the window. */
int tsr__json_need(tsr__json *j, size_t size);
/* Fail at the byte `p` of the window: a defect of the text. */
int tsr__json_damaged(tsr__json *j, const unsigned char *p, const char *what);
/* Fail at the cursor: a bound of tsr_limits. */
int tsr__json_limit(tsr__json *j, const char *what);

/* The first byte from `p` on that is a quote, a backslash or a control character, or `end`. */
const unsigned char *tsr__json_find_special(const unsigned char *p, const unsigned char *end);
/* The string whose quote is at the cursor: its id. */
int tsr__json_string(tsr__json *j, uint32_t *string);
/* The number at the cursor, which is on its sign or first digit. */
int tsr__json_number(tsr__json *j, tsr__value *out);
/* null, true, false, NaN, Infinity or -Infinity; anything else is no value. */
int tsr__json_word(tsr__json *j, tsr__value *out);

/* With the cursor on the list under a key "frames": where it is one that was read before, move
 * past it and return its stack; otherwise return TSR_NONE, with `learning` set where it is worth
 * remembering. */
uint32_t tsr__json_recognise(tsr__json *j);
/* The list being read turned out to be `stack`, or TSR_NONE. */
void tsr__json_learnt(tsr__json *j, uint32_t stack);

#endif
