/* nsight.h - reads an export of Nsight Systems to SQLite (nsys export --type sqlite) that was recorded with
 * --cuda-memory-usage=true: allocations and frees as the CUDA driver saw them.
 *
 * The tables, as far as they exist and have these columns (versions differ):
 *
 *   CUDA_GPU_MEMORY_USAGE_EVENTS   start, globalPid, deviceId, address, bytes, memKind, memoryOperationType (0 is
 *                                  an allocation), name, correlationId, localMemoryPoolAddress
 *   CUPTI_ACTIVITY_KIND_RUNTIME    the call: correlationId and process -> nameId, callchainId
 *   CUDA_CALLCHAINS                its stack: id, stackDepth (0 is innermost), symbol, module
 *   NVTX_EVENTS                    ranges: start, end, text or textId, globalTid
 *   StringIds                      id -> value
 *   PROCESSES                      globalPid -> name
 *   TARGET_INFO_SESSION_START_TIME utcEpochNs, to which times are relative
 *
 * A process is globalPid / 0x1000000 % 0x1000000, a thread's globalTid has it too. Memory of the kinds device, array,
 * managed and static (2 to 6) counts for its device; pageable and pinned (0, 1) is host memory. */
#ifndef TSR_FORMATS_NSIGHT_H
#define TSR_FORMATS_NSIGHT_H

#include "formats/assemble.h"

/* Read the database that `source` contains. Fails with TSR_ERROR_FORMAT if it is damaged or no such export, with
 * _UNSUPPORTED, _LIMIT, _MEMORY or as the source does. O(n log n) in the events, linear in the other tables. */
int tsr__nsight_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                     uint64_t total_bytes, tsr_error *error);

#endif
