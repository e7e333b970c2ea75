/* kineto.h - traces of torch.profiler (Kineto) that were recorded with profile_memory=True.
 *
 * Chrome's trace format: an object with a list under "traceEvents", or that list alone. What matters of it:
 *
 *   [memory]          an allocation or, with negative Bytes, a free, and what is allocated and reserved then
 *   [OutOfMemory]     an allocation that failed
 *   python_function   slices of time, one inside the other on each thread: what encloses an allocation
 *   cpu_op            is its stack
 *   user_annotation   ranges of the program, which become annotations; ProfilerStep#N among them
 *
 * Memory of device type 0 is TSR_DEVICE_CPU, that of any other is a GPU's. Events come in any order, and are put
 * in that of their times. Besides the events and slices themselves nothing is kept, so a trace takes about a sixth
 * of its size in memory.
 *
 * Where this comes from: PyTorch's torch/csrc/profiler/kineto_shim.cpp and collection.cpp, and Kineto's
 * libkineto/src/output_json.cpp. Traces of 2021 have no addresses and no totals (formats/flat.h). */
#ifndef TSR_FORMATS_KINETO_H
#define TSR_FORMATS_KINETO_H

#include "formats/flat.h"
#include "formats/json_scan.h"

/* Does such a trace begin here? It is an object with one of the keys that Kineto writes before "traceEvents", or a list
 * of objects with a key "ph". */
bool tsr__kineto_looks_like(const unsigned char *data, size_t size);
/* Read it and finish the snapshot. A text that is cut short gives what it holds, and a warning. Time is
 * n log n in events. Fails with _FORMAT, _LIMIT, _MEMORY or as the source does. */
int tsr__kineto_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                     uint64_t total_bytes, tsr_error *error);

/* ---- kineto_stacks.c: from slices of time to stacks ---- */

/* A slice of time on a thread: from `start_ns` to before `end_ns`. */
typedef struct tsr__slice {
  int64_t start_ns, end_ns;
  uint32_t thread, name; /* ids of tsr__slices */
  uint32_t order;        /* in the file */
} tsr__slice;

/* Invariant: frame_of has an entry for each name. */
typedef struct tsr__slices {
  tsr__builder *builder; /* not owned */
  TSR__VECTOR(tsr__slice) items;
  tsr__intern names, threads;
  TSR__VECTOR(uint32_t) frame_of; /* by name: a frame, or TSR_NONE before it is needed */
  uint64_t python_count;          /* slices of Python functions */
} tsr__slices;

void tsr__slices_init(tsr__slices *slices, tsr__builder *builder);
void tsr__slices_release(tsr__slices *slices);
uint64_t tsr__slices_bytes(const tsr__slices *slices);
/* Give each row of `flat` the stack that its time and thread have; rows are sorted by time. `j` is the text, which has been read: stacks
 * keep to its limits on memory. TSR_ERROR_MEMORY or _LIMIT. */
int tsr__slices_join(tsr__slices *slices, tsr__flat *flat, const tsr__json *j);

/* ---- memory_timeline.c: what torch.profiler's export_memory_timeline writes ----
 *
 *   .raw.json   [[time in ns, action, bytes, category], ...]
 *   .json       [[time in us, ...], [[0, bytes of each category ...], ...]]
 *
 * They have no addresses, no stacks and no device; what they have is PyTorch's own category of everything. It becomes
 * the category of the answer. */

bool tsr__memory_timeline_looks_like(const unsigned char *data, size_t size);
int tsr__memory_timeline_read(tsr__input *source, tsr__assembler *assembler,
                              const tsr_open_options *options, uint64_t total_bytes,
                              tsr_error *error);

#endif
