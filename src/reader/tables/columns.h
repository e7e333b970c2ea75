/* columns.h - the columns of each relation, a row each: X(enumerator, name, type, access, domain, needs, help). */
#ifndef TSR_TABLES_COLUMNS_H
#define TSR_TABLES_COLUMNS_H

#include "tables/relations.h"

/* clang-format off */
#define TSR__COLUMN_OF_DEVICE(X) \
  X(DEVICE, "device", INTEGER, PART, NONE, 0, "its number, or the text 'host' for pinned host memory")

#define TSR__COLUMNS_OF_DEVICES(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(EVENTS, "events", INTEGER, NONE, NONE, 0, "number of events in its trace") \
  X(ALLOCATIONS, "allocations", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "number of allocations that were ever live") \
  X(OOM_EVENTS, "oom_events", INTEGER, NONE, NONE, 0, "number of requests that failed for lack of memory") \
  X(START_ALLOCATED, "start_allocated_bytes", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "allocated before the first event") \
  X(END_ALLOCATED, "end_allocated_bytes", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "allocated after the last event") \
  X(END_RESERVED, "end_reserved_bytes", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "reserved after the last event") \
  X(PEAK_ALLOCATED, "peak_allocated_bytes", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "the most that was allocated") \
  X(PEAK_EVENT, "peak_event", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "the first event after which that was so; -1: before the first") \
  X(PEAK_US, "peak_us", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "its time") \
  X(PEAK_RESERVED, "peak_reserved_bytes", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "the most that was reserved") \
  X(PEAK_RESERVED_EVENT, "peak_reserved_event", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "the first event after which that was so; -1: before the first") \
  X(PEAK_REQUESTED, "peak_requested_bytes", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "the most that the program had asked for, of what was active") \
  X(PEAK_REQUESTED_EVENT, "peak_requested_event", INTEGER, NONE, NONE, TSR__FOR_TIMELINE, "the first event after which that was so; -1: before the first")

#define TSR__COLUMNS_OF_EVENTS(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(EVENT, "event", INTEGER, ROW, NONE, 0, "position in the device's trace, from 0") \
  X(ACTION, "action", TEXT, INDEX, ACTION, 0, "what the event did: alloc, free_requested, free_completed, segment_alloc, oom, ...") \
  X(ADDRESS, "address", INTEGER, FILTER, NONE, 0, "device address; of an oom event the bytes that the driver had free") \
  X(SIZE, "size_bytes", INTEGER, FILTER, NONE, 0, "bytes of the event: of an alloc or free those requested, of a segment its size") \
  X(TIME, "time_us", INTEGER, SORTED, NONE, 0, "microseconds since 1970 (UTC); NULL if not recorded") \
  X(TIME_MS, "time_ms", INTEGER, SORTED, NONE, 0, "the same in whole milliseconds, rounded down: to group by") \
  X(STREAM, "stream", INTEGER, FILTER, NONE, 0, "handle of the CUDA stream; 0 is the default stream") \
  X(STACK, "stack", INTEGER, INDEX, NONE, 0, "its call stack, of table stacks; NULL if not recorded") \
  X(ALLOCATED, "allocated_bytes", INTEGER, FILTER, NONE, TSR__FOR_ALLOCATED, "bytes allocated after the event, rounding included") \
  X(RESERVED, "reserved_bytes", INTEGER, FILTER, NONE, TSR__FOR_RESERVED, "bytes reserved after the event") \
  X(REQUESTED, "requested_bytes", INTEGER, FILTER, NONE, TSR__FOR_REQUESTED, "bytes that the program had asked for, of what is active after the event") \
  X(ACTIVE, "active_bytes", INTEGER, FILTER, NONE, TSR__FOR_ACTIVE, "allocated bytes, and those that wait for another stream") \
  X(PEAK, "peak_allocated_bytes", INTEGER, SORTED, NONE, TSR__FOR_PEAK, "the most that was allocated up to and including the event") \
  X(ALLOCATION, "allocation", INTEGER, FILTER, NONE, TSR__FOR_TIMELINE, "the allocation that it makes or frees, of table allocations; NULL if none") \
  X(STEP, "step", INTEGER, FILTER, NONE, TSR__FOR_CYCLE, "the step that it is in, from 1; NULL outside of steps") \
  X(ANNOTATION, "annotation", TEXT, NONE, NONE, TSR__FOR_ANNOTATIONS, "name of the innermost range that is open; NULL if none") \
  X(POOL, "pool", TEXT, NONE, NONE, 0, "private pool, as '(0, 1)'; '(0, 0)' is the default pool; NULL if not recorded") \
  X(METADATA, "metadata", TEXT, NONE, NONE, 0, "the program's user_metadata; NULL if not recorded")

#define TSR__COLUMNS_OF_ALLOCATIONS(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(ALLOCATION, "allocation", INTEGER, ROW, NONE, TSR__FOR_TIMELINE, "number in order of allocation, from 0; those from before the first event are first") \
  X(ADDRESS, "address", INTEGER, FILTER, NONE, 0, "device address") \
  X(SIZE, "size_bytes", INTEGER, FILTER, NONE, 0, "bytes of the block that served the request: what counts as allocated") \
  X(REQUESTED, "requested_bytes", INTEGER, FILTER, NONE, 0, "bytes that the program asked for") \
  X(BORN_EVENT, "born_event", INTEGER, SORTED, NONE, 0, "the event that allocated it; -1: before the first") \
  X(DIED_EVENT, "died_event", INTEGER, FILTER, NONE, 0, "the event after which its memory was free; NULL if live at the end") \
  X(BORN_US, "born_us", INTEGER, FILTER, NONE, 0, "time of that event; NULL if not recorded or before the first event") \
  X(DIED_US, "died_us", INTEGER, FILTER, NONE, 0, "time of that event; NULL if not recorded or live at the end") \
  X(LIFETIME, "lifetime_us", INTEGER, FILTER, NONE, 0, "from born_us to died_us; NULL if either is") \
  X(CATEGORY, "category", TEXT, INDEX, CATEGORY, TSR__FOR_CATEGORIES, "what it is for: parameter, gradient, optimizer_state, activation, ...") \
  X(CONFIDENCE, "confidence", TEXT, INDEX, CONFIDENCE, TSR__FOR_CATEGORIES, "how certain the category is: none, guess, likely, sure") \
  X(PHASE, "phase", TEXT, INDEX, PHASE, TSR__FOR_CATEGORIES, "what the program was doing: forward, backward, optimizer, ..., unknown") \
  X(STEP, "step", INTEGER, FILTER, NONE, TSR__FOR_CYCLE, "the step in which it was allocated, from 1; NULL outside of steps") \
  X(STACK, "stack", INTEGER, INDEX, NONE, 0, "its call stack, of table stacks; NULL if not recorded") \
  X(PLACE, "place", TEXT, INDEX, LINE, TSR__FOR_LINE, "the program's line that allocated it") \
  X(MODULE, "module", TEXT, INDEX, MODULE, TSR__FOR_MODULE, "the innermost nn.Module that was being called") \
  X(OPERATION, "operation", TEXT, INDEX, OPERATION, TSR__FOR_OPERATION, "the operation that requested it, such as aten::mm") \
  X(STREAM, "stream", INTEGER, FILTER, NONE, 0, "handle of the CUDA stream; NULL before the first event") \
  X(LIVE_AT_PEAK, "live_at_peak", INTEGER, FILTER, NONE, 0, "1 if it is live at the device's peak, otherwise 0") \
  X(NAME, "name", TEXT, NONE, NONE, TSR__FOR_NAMES, "what the program called it (sidecar, annotations, metadata); NULL if nothing")

#define TSR__COLUMNS_OF_STACKS(X) \
  X(STACK, "stack", INTEGER, ROW, NONE, 0, "number, from 0") \
  X(TOP, "top", TEXT, FILTER, LINE, TSR__FOR_LINE, "the program's line that represents it in lists") \
  X(MODULE, "module", TEXT, FILTER, MODULE, TSR__FOR_MODULE, "the innermost nn.Module that was being called") \
  X(OPERATION, "operation", TEXT, FILTER, OPERATION, TSR__FOR_OPERATION, "the operation, such as aten::mm") \
  X(DEPTH, "depth", INTEGER, FILTER, NONE, 0, "number of frames") \
  X(TEXT, "text", TEXT, NONE, NONE, 0, "all frames, outermost first: 'train.py:57 train > model.py:39 forward'")

#define TSR__COLUMNS_OF_FRAMES(X) \
  X(STACK, "stack", INTEGER, PART, NONE, 0, "the stack") \
  X(DEPTH, "depth", INTEGER, ROW, NONE, 0, "position in it: 0 is the innermost frame") \
  X(NAME, "name", TEXT, NONE, NONE, 0, "function") \
  X(FILE, "file", TEXT, NONE, NONE, 0, "file, as recorded") \
  X(LINE, "line", INTEGER, FILTER, NONE, 0, "line; NULL if unknown")

#define TSR__COLUMNS_OF_SEGMENTS(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(SEGMENT, "segment", INTEGER, ROW, NONE, 0, "position among the device's segments, from 0") \
  X(ADDRESS, "address", INTEGER, FILTER, NONE, 0, "device address") \
  X(SIZE, "size_bytes", INTEGER, FILTER, NONE, 0, "its size") \
  X(STREAM, "stream", INTEGER, FILTER, NONE, 0, "handle of the CUDA stream; 0 is the default stream") \
  X(POOL, "pool", TEXT, NONE, NONE, 0, "private pool, as '(0, 1)'; '(0, 0)' is the default pool; NULL if not recorded") \
  X(ALLOCATED, "allocated_bytes", INTEGER, FILTER, NONE, 0, "bytes of its allocated blocks, as in the file") \
  X(ACTIVE, "active_bytes", INTEGER, FILTER, NONE, 0, "the same with blocks that wait for another stream") \
  X(REQUESTED, "requested_bytes", INTEGER, FILTER, NONE, 0, "bytes that the program asked for, as in the file") \
  X(LARGE, "is_large", INTEGER, FILTER, NONE, 0, "1 for the large pool, 0 for the small one") \
  X(EXPANDABLE, "is_expandable", INTEGER, FILTER, NONE, 0, "1 if it can grow") \
  X(STACK, "stack", INTEGER, FILTER, NONE, 0, "call stack of the cudaMalloc; NULL if not recorded")

#define TSR__COLUMNS_OF_BLOCKS(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(BLOCK, "block", INTEGER, ROW, NONE, 0, "position among the device's blocks, from 0") \
  X(SEGMENT, "segment", INTEGER, FILTER, NONE, 0, "the segment that it is a part of") \
  X(ADDRESS, "address", INTEGER, FILTER, NONE, 0, "device address") \
  X(SIZE, "size_bytes", INTEGER, FILTER, NONE, 0, "its size") \
  X(REQUESTED, "requested_bytes", INTEGER, FILTER, NONE, 0, "bytes that the program asked for; NULL if it is free") \
  X(STATE, "state", TEXT, FILTER, STATE, 0, "active_allocated, active_pending_free (it waits for another stream) or inactive (free)") \
  X(STACK, "stack", INTEGER, FILTER, NONE, 0, "call stack of its allocation; NULL if not recorded")

#define TSR__COLUMNS_OF_SPANS(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(SPAN, "span", INTEGER, ROW, NONE, TSR__FOR_TIMELINE, "number, from 0") \
  X(ADDRESS, "address", INTEGER, FILTER, NONE, 0, "device address") \
  X(SIZE, "size_bytes", INTEGER, FILTER, NONE, 0, "its size") \
  X(BORN_EVENT, "born_event", INTEGER, FILTER, NONE, 0, "the event that reserved it; -1: before the first") \
  X(DIED_EVENT, "died_event", INTEGER, FILTER, NONE, 0, "the event that released, extended or split it; NULL if reserved at the end") \
  X(BORN_US, "born_us", INTEGER, FILTER, NONE, 0, "time of that event; NULL if not recorded or before the first event") \
  X(DIED_US, "died_us", INTEGER, FILTER, NONE, 0, "time of that event; NULL if not recorded or reserved at the end") \
  X(STREAM, "stream", INTEGER, FILTER, NONE, 0, "handle of the CUDA stream; 0 is the default stream") \
  X(POOL, "pool", TEXT, NONE, NONE, 0, "private pool, as '(0, 1)'; '(0, 0)' is the default pool; NULL if not recorded") \
  X(LARGE, "is_large", INTEGER, FILTER, NONE, 0, "1 for the large pool, 0 for the small one") \
  X(EXPANDABLE, "is_expandable", INTEGER, FILTER, NONE, 0, "1 if it is a range of an expandable segment")

#define TSR__COLUMNS_OF_STEPS(X) \
  TSR__COLUMN_OF_DEVICE(X) \
  X(STEP, "step", INTEGER, ROW, NONE, TSR__FOR_STEPS, "number, from 1") \
  X(FIRST_EVENT, "first_event", INTEGER, SORTED, NONE, 0, "its first event") \
  X(LAST_EVENT, "last_event", INTEGER, SORTED, NONE, 0, "its last event, included") \
  X(FIRST_US, "first_us", INTEGER, FILTER, NONE, 0, "time of the first event; NULL if not recorded") \
  X(LAST_US, "last_us", INTEGER, FILTER, NONE, 0, "time of the last event; NULL if not recorded") \
  X(START_ALLOCATED, "start_allocated_bytes", INTEGER, FILTER, NONE, 0, "allocated before it") \
  X(END_ALLOCATED, "end_allocated_bytes", INTEGER, FILTER, NONE, 0, "allocated after it") \
  X(PEAK, "peak_allocated_bytes", INTEGER, FILTER, NONE, 0, "the most that was allocated in it") \
  X(PEAK_EVENT, "peak_event", INTEGER, FILTER, NONE, 0, "the first event of the step after which that was so") \
  X(ALLOCATIONS, "allocations", INTEGER, FILTER, NONE, 0, "number of allocations") \
  X(WHOLE, "is_whole", INTEGER, FILTER, NONE, 0, "1 if the recording contains all of it") \
  X(STEADY, "is_steady", INTEGER, FILTER, NONE, 0, "1 if it is whole and after the warm-up")

#define TSR__COLUMNS_OF_ANNOTATIONS(X) \
  X(DEVICE, "device", INTEGER, PART, NONE, 0, "the recording thread's current device") \
  X(ANNOTATION, "annotation", INTEGER, ROW, NONE, 0, "position among the device's annotations, from 0") \
  X(NAME, "name", TEXT, NONE, NONE, 0, "name of the range") \
  X(STAGE, "stage", TEXT, NONE, NONE, 0, "START or END") \
  X(TIME, "time_us", INTEGER, FILTER, NONE, 0, "microseconds since 1970 (UTC); NULL if not recorded")

#define TSR__COLUMNS_OF_RANKS(X) \
  X(RANK, "rank", INTEGER, FILTER, NONE, 0, "number of the rank") \
  X(PATH, "path", TEXT, NONE, NONE, 0, "its last snapshot") \
  X(DEVICE, "device", INTEGER, NONE, NONE, 0, "its number, or the text 'host' for pinned host memory") \
  X(GROUP, "group_name", TEXT, NONE, NONE, 0, "the ranks of equal role that it belongs to") \
  X(PEAK, "peak_allocated_bytes", INTEGER, FILTER, NONE, 0, "the most that was allocated") \
  X(PEAK_RESERVED, "peak_reserved_bytes", INTEGER, FILTER, NONE, 0, "the most that was reserved") \
  X(PEAK_US, "peak_us", INTEGER, FILTER, NONE, 0, "time of the peak; NULL if not recorded") \
  X(OUT_OF_MEMORY, "out_of_memory", INTEGER, FILTER, NONE, 0, "1 if it ran out of memory") \
  X(STOP_US, "out_of_memory_time_us", INTEGER, FILTER, NONE, 0, "when it ran out; NULL if unknown, or if it did not") \
  X(STOP_BYTES, "out_of_memory_bytes", INTEGER, FILTER, NONE, 0, "the request that failed; NULL if it did not run out") \
  X(STOP_STACK, "out_of_memory_stack", INTEGER, FILTER, NONE, 0, "its call stack, of table stacks; NULL if not recorded") \
  X(STEP, "step", INTEGER, FILTER, NONE, 0, "step of the snapshot, by the name of the file; NULL if that has none") \
  X(OTHER, "is_other", INTEGER, FILTER, NONE, 0, "1 if this is not the device with most of the rank's memory") \
  X(PARTIAL, "partial", INTEGER, FILTER, NONE, 0, "1 if its file is truncated or damaged: it may have held more") \
  X(CLOCK, "clock_ahead_us", INTEGER, FILTER, NONE, 0, "how far its clock is ahead of the median one; NULL if by a step or less, or unknown") \
  X(PARAMETERS, "parameter_bytes", INTEGER, FILTER, NONE, 0, "of the peak, parameters") \
  X(GRADIENTS, "gradient_bytes", INTEGER, FILTER, NONE, 0, "of the peak, gradients") \
  X(OPTIMIZER, "optimizer_state_bytes", INTEGER, FILTER, NONE, 0, "of the peak, the state of the optimizer") \
  X(ACTIVATIONS, "activation_bytes", INTEGER, FILTER, NONE, 0, "of the peak, activations")

#define TSR__COLUMNS_OF_OUTLIERS(X) \
  X(OUTLIER, "outlier", INTEGER, ROW, NONE, 0, "number, from 0, the most telling first") \
  X(RANK, "rank", INTEGER, FILTER, NONE, 0, "number of the rank") \
  X(DEVICE, "device", INTEGER, NONE, NONE, 0, "its device") \
  X(GROUP, "group_name", TEXT, NONE, NONE, 0, "the ranks of equal role that it belongs to") \
  X(COMPARED, "compared_with", INTEGER, FILTER, NONE, 0, "the rank of the group that it is compared with; NULL if with nothing") \
  X(DELTA, "delta_bytes", INTEGER, FILTER, NONE, 0, "by how much its peak is higher than that one's") \
  X(EXCESS, "excess_bytes", INTEGER, FILTER, NONE, 0, "what is beyond the spread of its equals") \
  X(CAUSE, "cause_code", TEXT, FILTER, CAUSE, 0, "why, as far as the memory shows: leak, optimizer_state, longer_sequences, ...") \
  X(TEXT, "cause", TEXT, NONE, NONE, 0, "the same in words") \
  X(STACK, "stack", INTEGER, FILTER, NONE, 0, "where most of the excess was allocated, of table stacks; NULL if unknown")

#define TSR__COLUMNS_OF_CHANGES(X) \
  X(OUTLIER, "outlier", INTEGER, PART, NONE, 0, "the outlier, of table outliers; its changes add up to its delta_bytes") \
  X(CHANGE, "change", INTEGER, ROW, NONE, 0, "number, from 0, the largest first") \
  X(DELTA, "delta_bytes", INTEGER, FILTER, NONE, 0, "how much more it holds than the rank that it is compared with") \
  X(MEDIAN, "median_bytes", INTEGER, FILTER, NONE, 0, "bytes of the rank that it is compared with") \
  X(BYTES, "bytes", INTEGER, FILTER, NONE, 0, "bytes of the outlier") \
  X(CATEGORY, "category", TEXT, FILTER, CATEGORY, 0, "what they are for") \
  X(STACK, "stack", INTEGER, FILTER, NONE, 0, "their call stack, of table stacks; NULL for all others together")
/* clang-format on */

/* The position of each column: TSR__EVENTS_ACTION, ... */
#define TSR__COLUMN_DEVICES_ID(id, name, type, access, domain, needs, help) TSR__DEVICES_##id,
#define TSR__COLUMN_EVENTS_ID(id, name, type, access, domain, needs, help)  TSR__EVENTS_##id,
#define TSR__COLUMN_ALLOCATIONS_ID(id, name, type, access, domain, needs, help) \
  TSR__ALLOCATIONS_##id,
#define TSR__COLUMN_STACKS_ID(id, name, type, access, domain, needs, help)   TSR__STACKS_##id,
#define TSR__COLUMN_FRAMES_ID(id, name, type, access, domain, needs, help)   TSR__FRAMES_##id,
#define TSR__COLUMN_SEGMENTS_ID(id, name, type, access, domain, needs, help) TSR__SEGMENTS_##id,
#define TSR__COLUMN_BLOCKS_ID(id, name, type, access, domain, needs, help)   TSR__BLOCKS_##id,
#define TSR__COLUMN_SPANS_ID(id, name, type, access, domain, needs, help)    TSR__SPANS_##id,
#define TSR__COLUMN_STEPS_ID(id, name, type, access, domain, needs, help)    TSR__STEPS_##id,
#define TSR__COLUMN_ANNOTATIONS_ID(id, name, type, access, domain, needs, help) \
  TSR__ANNOTATIONS_##id,
#define TSR__COLUMN_RANKS_ID(id, name, type, access, domain, needs, help)    TSR__RANKS_##id,
#define TSR__COLUMN_OUTLIERS_ID(id, name, type, access, domain, needs, help) TSR__OUTLIERS_##id,
#define TSR__COLUMN_CHANGES_ID(id, name, type, access, domain, needs, help)  TSR__CHANGES_##id,

enum { TSR__COLUMNS_OF_RANKS(TSR__COLUMN_RANKS_ID) };
enum { TSR__COLUMNS_OF_OUTLIERS(TSR__COLUMN_OUTLIERS_ID) };
enum { TSR__COLUMNS_OF_CHANGES(TSR__COLUMN_CHANGES_ID) };
enum { TSR__COLUMNS_OF_DEVICES(TSR__COLUMN_DEVICES_ID) };
enum { TSR__COLUMNS_OF_EVENTS(TSR__COLUMN_EVENTS_ID) };
enum { TSR__COLUMNS_OF_ALLOCATIONS(TSR__COLUMN_ALLOCATIONS_ID) };
enum { TSR__COLUMNS_OF_STACKS(TSR__COLUMN_STACKS_ID) };
enum { TSR__COLUMNS_OF_FRAMES(TSR__COLUMN_FRAMES_ID) };
enum { TSR__COLUMNS_OF_SEGMENTS(TSR__COLUMN_SEGMENTS_ID) };
enum { TSR__COLUMNS_OF_BLOCKS(TSR__COLUMN_BLOCKS_ID) };
enum { TSR__COLUMNS_OF_SPANS(TSR__COLUMN_SPANS_ID) };
enum { TSR__COLUMNS_OF_STEPS(TSR__COLUMN_STEPS_ID) };
enum { TSR__COLUMNS_OF_ANNOTATIONS(TSR__COLUMN_ANNOTATIONS_ID) };

#endif
