/* pickle.h - the pickle machine: reads a pickle as data and never as a program.
 *
 * A pickle is a program for a small stack machine. This one knows every opcode of protocols 0 to 5,
 * but where CPython would import a name or call it, a short list of plain containers and numbers is
 * built (pickle_reduce.c) and everything else becomes an opaque value. */
#ifndef TSR_FORMATS_PICKLE_H
#define TSR_FORMATS_PICKLE_H

#include "formats/assemble.h"
#include "io/source.h"

/* A stack that was seen before, by its bytes; see pickle_run.c. */
typedef struct tsr__seen_stack tsr__seen_stack;

/* Invariants: source->data <= next <= end == source->data + source->size; marks hold ascending
 * depths of the stack, none above stack.count. */
typedef struct tsr__pickle {
  tsr__input *source;        /* not owned */
  tsr__assembler *assembler; /* not owned */
  tsr_error *error;
  const unsigned char *next, *end;
  const unsigned char *check_at; /* where in the window to look at the memory held */
  TSR__VECTOR(tsr__value) stack;
  TSR__VECTOR(size_t) marks;
  size_t memo_next; /* slot of the next MEMOIZE */
  bool is_done;     /* STOP was read */
  bool is_cut;      /* the input ended before STOP */

  /* Recognising what was seen before (pickle_run.c). */
  tsr__arena seen_arena;
  TSR__VECTOR(tsr__seen_stack) seen;
  uint32_t *seen_slots; /* hash table of index + 1 */
  uint32_t seen_mask;
  uint64_t seen_seed; /* of its hash */
  uint32_t last_seen; /* index of the stack met last */
  uint32_t last_text; /* string id of the short text met last */

  tsr_progress_fn *progress;
  void *progress_context;
  uint64_t progress_total;
} tsr__pickle;

/* Run the pickle that `source` holds, from its first byte, and finish the snapshot. A pickle that
 * is cut short gives what it holds, and a warning. Fails with _FORMAT, _LIMIT, _MEMORY or as
 * the source does. */
int tsr__pickle_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                     uint64_t total_bytes, tsr_error *error);

/* ---- between the files of the machine ---- */

/* Offset of the byte at `p`. */
static inline uint64_t tsr__pickle_offset(const tsr__pickle *m, const unsigned char *p) {
  return m->source->offset + (uint64_t)(p - m->source->data);
}

/* Have `size` unread bytes in the window. 0; 1 where the input ends before (is_cut is set); or a
 * negative tsr_status. */
int tsr__pickle_need(tsr__pickle *m, size_t size);
/* A line up to '\n': `*line`, `*size` without it; the cursor moves past it. As tsr__pickle_need.
 */
int tsr__pickle_line(tsr__pickle *m, const unsigned char **line, size_t *size);
/* Push a value; intern a text, of which `size` bytes are at `data`; store the top of the stack in
 * the memo. These keep to tsr_limits. */
int tsr__pickle_push(tsr__pickle *m, tsr__value value);
int tsr__pickle_intern(tsr__pickle *m, const void *data, size_t size, uint32_t *id);
int tsr__pickle_memo_put(tsr__pickle *m, uint64_t index);
/* Fail at the byte `p` of the window. */
int tsr__pickle_fail(tsr__pickle *m, const unsigned char *p, tsr_status status, const char *what);

/* The opcodes of protocol 0 that carry text: INT, LONG, FLOAT, STRING, UNICODE, GET, PUT. The
 * opcode byte is read already. */
int tsr__pickle_text(tsr__pickle *m, unsigned char opcode);
/* A little-endian two's complement integer of any length. */
tsr__value tsr__pickle_long(const unsigned char *data, size_t size);

/* A name that the pickle asks for, "module name". */
int tsr__pickle_global(tsr__pickle *m, const void *module, size_t module_size, const void *name,
                       size_t name_size, uint64_t offset);
/* The value of a call, for what is plain data; TSR__OPAQUE for everything else. */
int tsr__pickle_reduce(tsr__pickle *m, tsr__value callable, tsr__value arguments, tsr__value *out);
/* BUILD: give `state` to `*object`. */
void tsr__pickle_build(tsr__pickle *m, tsr__value *object, tsr__value state);

/* With the cursor on a dict inside the list of a trace: read as many events as have the usual form,
 * appending them to the list's trace, and stop before the first that has not. Returns 0 or a
 * status. */
int tsr__pickle_run_events(tsr__pickle *m, tsr__value list);
void tsr__pickle_run_release(tsr__pickle *m);
/* Bytes that recognising takes. */
uint64_t tsr__pickle_run_bytes(const tsr__pickle *m);

#endif
