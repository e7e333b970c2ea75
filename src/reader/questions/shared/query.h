/* query.h - which devices and which events a query selects. */
#ifndef TSR_QUESTIONS_SHARED_QUERY_H
#define TSR_QUESTIONS_SHARED_QUERY_H

#include "base/error.h"
#include "tessera/unstable/answers.h"

/* The devices that a query selects: those it names, or all of the snapshot, `*count` of them. The array
 * is the query's or the snapshot's. Fails with TSR_ERROR_ARGUMENT for a device the snapshot lacks.
 */
int tsr__query_devices(const tsr_snapshot *snapshot, const tsr_query *query,
                       const uint32_t **devices, size_t *count, tsr_error *error);

/* The same, where TSR_DEVICE_HOST is only meant if the query names it. */
int tsr__query_gpus(const tsr_snapshot *snapshot, const tsr_query *query, const uint32_t **devices,
                    size_t *count, tsr_error *error);

/* Whether these devices leave out pinned host memory that the snapshot has. */
bool tsr__query_leaves_host(const tsr_snapshot *snapshot, const uint32_t *devices, size_t count);

/* The first and last event of a device's trace in the window; false if absent. A
 * window of times is from the first event that is not before it to the last that is not after it,
 * and takes time linear in events. */
bool tsr__window_find(const tsr_events *events, const tsr_window *window, int64_t *first,
                      int64_t *last);

#endif
