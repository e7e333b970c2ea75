/* core.h - the parts of tessera._core, the C half of the Python package.
 *
 *   module.c    the module: opening snapshots, the command line
 *   snapshot.c  the type Snapshot: what a file holds                 column.c  the type Column: arrays
 *   answer.c    the type Answer, and asking questions                select.c  comparing columns, choosing rows
 *   write.c     exports, trimmed snapshots                           arrow.c   the type Table, for Arrow
 *   view.c      the page                                             tables.c  events, blocks, allocations
 *   mosaic.c    Mosaic's questions                                   stacks.c  stacks and frames
 *   options.c   values out of a dict of keyword arguments            items.c   making columns, reading their items
 *   common.c    errors, texts, long calls                            owner.c   who keeps memory alive
 *
 * No two files call each other, directly or through others (tests/lint): module.c is at the top, common.c at the bottom.
 *
 * Built on the stable ABI of CPython 3.9, so that one build serves every later version. Nothing here
 * decides anything: it calls the public interface of the library and hands over what comes back.
 * Everything that takes time runs without the interpreter's lock (docs/decisions/017-python.md).
 */
#ifndef TESSERA_PYTHON_CORE_H
#define TESSERA_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <tessera/tessera.h>
#include <tessera/unstable/allocations.h>
#include <tessera/unstable/columns.h>
#include <tessera/unstable/formats.h>
#include <tessera/unstable/mosaic.h>
#include <tessera/unstable/sidecar.h>
#include <tessera/unstable/view.h>

/* ---- owner.c: memory that Python objects and Arrow arrays share ---- */

/* Counted in any thread, with or without the interpreter's lock; the last one to drop it ends it. */
typedef struct core_owner {
  atomic_size_t uses;
  void (*end)(struct core_owner *owner);
} core_owner;

core_owner *core_owner_take(core_owner *owner);
void core_owner_drop(core_owner *owner); /* NULL is fine */

/* An open snapshot, its study, and how reports name it. */
typedef struct core_file {
  core_owner owner;
  tsr_snapshot *snapshot;
  tsr_study *study;
  char *name;
} core_file;

/* Takes the snapshot, also when it fails, which is NULL with MemoryError set. */
core_file *core_file_new(tsr_snapshot *snapshot, const char *name);

/* Memory for `count` items of `size` bytes, zeroed. */
typedef struct core_block {
  core_owner owner;
  _Alignas(16) unsigned char data[];
} core_block;

/* NULL when there is not enough memory; sets no exception. */
core_block *core_block_new(size_t count, size_t size);

/* ---- common.c: errors, strings, long calls ---- */

/* Set the exception for a failed call of the library's; returns NULL. `path` may be NULL. */
PyObject *core_raise(int status, const tsr_error *error, const char *path);
/* The classes of exceptions for a wrong type or combination of arguments, and for a wrong value: tessera's, below TypeError and
 * ValueError. Borrowed. */
PyObject *core_usage_error(void);
PyObject *core_argument_error(void);
/* A text of a snapshot as a str; lone surrogates pass, bytes that are no UTF-8 are replaced. */
PyObject *core_text(tsr_text text);
/* A list of str, of an array that ends at NULL; a new reference, or NULL with an exception. */
PyObject *core_words(const char *const *words);
/* Put an object into a dict and take it; false where it is NULL, with an exception. */
bool core_put(PyObject *dict, const char *name, PyObject *object);

/* A call without the interpreter's lock, which is taken now and then. */
typedef struct core_call {
  PyThreadState *thread;
  PyObject *progress; /* called with what is done and in all, or NULL */
} core_call;

/* A tsr_progress_fn for a core_call whose thread has been set: false once Ctrl-C was pressed or `progress` raised;
 * the exception is set then. */
bool core_call_continues(void *context, uint64_t done_units, uint64_t total_units);

/* ---- what is written: into memory, or to a file, as the command writes its files ---- */

struct cli_output;

typedef struct core_sink {
  PyObject *path;            /* bytes, borrowed; NULL: into memory */
  struct cli_output *output; /* of a path */
  bool gathers;              /* into memory first, because a signal has interrupted the writing */
  int error_number;
  char *data;
  size_t size_bytes, room_bytes;
} core_sink;

/* Prepare a sink for a path as bytes, or for None, which is memory. False with an exception set. */
bool core_sink_init(core_sink *sink, PyObject *target);
/* A tsr_write_fn; `context` is the core_sink. */
int core_sink_write(void *context, const char *data, size_t size_bytes);
/* Whether a signal whose handler raised nothing stopped the writing, which then has to be repeated: the
 * sink is as new. Call it with the status of the writing before core_sink_finish. */
bool core_sink_restarts(core_sink *sink, int status);
/* The end of a call that wrote: bytes for a sink in memory, None for one to a file, or NULL with an
 * exception for a status other than 0; the file is then as it was. Releases the sink. */
PyObject *core_sink_finish(core_sink *sink, int status, const tsr_error *error);

/* ---- options.c: keyword arguments, as a dict; absent or None leaves `*out` alone ---- */

PyObject *core_size(PyObject *module, PyObject *value);

/* Each returns false with an exception set for a value of the wrong kind. */
bool core_option_integer(PyObject *options, const char *key, long long *out);
bool core_option_count(PyObject *options, const char *key, uint64_t *out);
bool core_option_flag(PyObject *options, const char *key, bool *out);
/* UTF-8; lives as long as `keep`, a list that takes what it points into. */
bool core_option_text(PyObject *options, const char *key, PyObject *keep, const char **out,
                      size_t *size_bytes);
/* A sequence of str, as an array in PyMem memory that the caller frees. */
bool core_option_texts(PyObject *options, const char *key, PyObject *keep, const char ***out,
                       size_t *count);
/* `devices` and `top`. The numbers are PyMem memory that the caller frees. */
bool core_option_query(PyObject *options, tsr_query *query, uint32_t **devices);
/* `event`, `time_us`, or `address` with `version` and `action`. */
bool core_option_where(PyObject *options, tsr_at_where *where, bool *is_given);
/* `events` or `times`: a pair. */
bool core_option_window(PyObject *options, tsr_window *window, bool *is_given);

/* All that are parameters of the question; `devices`, `top` and `lenient` (of rules) are not. A value of
 * the wrong type is a TypeError, also an unknown name; a wrong value is an ArgumentError. */
bool core_option_params(PyObject *options, const tsr_question *question, tsr_params *params);

/* `rules`, a text, and `lenient`; the caller frees them. */
bool core_option_rules(PyObject *options, PyObject *keep, tsr_rules **out);

/* ---- the types ---- */

typedef struct core_snapshot {
  PyObject_HEAD core_file *file;
} core_snapshot;

/* Which value of an item stands for nothing: none, the largest (TSR_NONE, TSR_LINE_UNKNOWN), or
 * TSR_TIME_NONE. */
typedef enum core_absent { CORE_ABSENT_NONE, CORE_ABSENT_MAX, CORE_ABSENT_TIME } core_absent;

typedef struct core_column {
  PyObject_HEAD core_owner *owner;
  const char *data;
  Py_ssize_t count, stride, size; /* stride: from one item to the next; size: of an item */
  char format[2];                 /* of struct: B, I, q, Q, ? */
  core_absent absent;
  PyObject *names; /* a list of str of which the items are indexes, or NULL */
} core_column;

typedef struct core_types {
  PyObject *snapshot, *answer, *column, *table;
  PyObject *make_error; /* called with status, offset, message and path, returns an exception */
  PyObject *usage_error, *argument_error; /* classes of exceptions */
  PyObject *
      calculator; /* called with the name of an operation and two operands, of which one is a column */
} core_types;
extern core_types core;

/* The tp_new of types that only this module makes objects of. */
PyObject *core_refuse_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords);
/* Make each type, once; false with an exception set. */
bool core_snapshot_ready(PyObject *module);
bool core_answer_ready(PyObject *module);
bool core_column_ready(PyObject *module);
bool core_table_ready(PyObject *module);

/* Takes the file, also when it fails. */
PyObject *core_snapshot_new(core_file *file);
/* A column of `count` items at `data`, which `owner` keeps alive; takes a use of it. */
PyObject *core_column_new(core_owner *owner, const void *data, size_t count, size_t stride,
                          char format, core_absent absent);
/* The same for a block's own data, which it takes; NULL (no memory) sets MemoryError. */
PyObject *core_column_of(core_block *block, size_t count, char format, core_absent absent);
/* Bytes of an item of that format. */
size_t core_format_size(char format);
/* Its value in a row: of an unsigned format, or a signed one as its bits. */
uint64_t core_column_at(const core_column *column, Py_ssize_t row);
/* Whether there is no value in that row. */
bool core_column_is_absent(const core_column *column, Py_ssize_t row);

/* ---- select.c: slots and methods of Column ---- */

PyObject *core_column_compare(PyObject *self, PyObject *other, int operation);
PyObject *core_column_is_null(PyObject *self, PyObject *nothing);
PyObject *core_column_and(PyObject *left, PyObject *right);
PyObject *core_column_or(PyObject *left, PyObject *right);
PyObject *core_column_xor(PyObject *left, PyObject *right);
PyObject *core_column_invert(PyObject *self);
int core_column_truth(PyObject *self); /* always ValueError */
/* The part that a slice, a mask or numbers of rows choose: a view for a slice, else a copy. */
PyObject *core_column_part(PyObject *self, PyObject *key);
/* The rows that a key chooses of `count`, as a column of int64. */
PyObject *core_rows(PyObject *key, Py_ssize_t count);
PyObject *core_chosen_rows(PyObject *module, PyObject *arguments);
PyObject *core_range(PyObject *module, PyObject *arguments);

/* ---- arrow.c: methods of Column ---- */

PyObject *core_column_arrow_schema(PyObject *self, PyObject *nothing);
PyObject *core_column_arrow_array(PyObject *self, PyObject *requested, PyObject *keywords);

/* ---- methods of Snapshot that live elsewhere; as PyCFunctions ---- */

PyObject *core_ask(PyObject *self, PyObject *arguments);
PyObject *core_events(PyObject *self, PyObject *arguments);
PyObject *core_segments(PyObject *self, PyObject *nothing);
PyObject *core_blocks(PyObject *self, PyObject *nothing);
PyObject *core_allocations(PyObject *self, PyObject *arguments);
PyObject *core_totals(PyObject *self, PyObject *arguments);
PyObject *core_stacks(PyObject *self, PyObject *nothing);
PyObject *core_frames(PyObject *self, PyObject *nothing);
PyObject *core_export(PyObject *self, PyObject *arguments);
PyObject *core_cuda_functions(PyObject *module, PyObject *nothing);
PyObject *core_formats(PyObject *module, PyObject *nothing);
PyObject *core_format_for(PyObject *module, PyObject *path);
PyObject *core_trim(PyObject *self, PyObject *arguments);
PyObject *core_view(PyObject *self, PyObject *arguments);
PyObject *core_mosaic_peak(PyObject *self, PyObject *arguments);
PyObject *core_mosaic_usage(PyObject *self, PyObject *arguments);
PyObject *core_mosaic_stages(PyObject *self, PyObject *arguments);

/* ---- functions of the module that live in answer.c ---- */

PyObject *core_questions(PyObject *module, PyObject *nothing);
PyObject *core_question(PyObject *module, PyObject *name);
PyObject *core_groupings(PyObject *module, PyObject *nothing);
PyObject *core_ask_alone(PyObject *module, PyObject *arguments);

/* Zeroed memory for PyMem_Free; NULL if absent. PyMem_Calloc is in the stable ABI, but not
 * in the headers of 3.9 and 3.10. */
void *core_zeroed(size_t count, size_t size_bytes);

/* The file of a Snapshot; NULL with ValueError where it is closed. */
core_file *core_open_file(PyObject *self);

#endif
