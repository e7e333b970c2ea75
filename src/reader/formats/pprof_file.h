/* pprof_file.h - reads a profile of live memory in pprof's format, as JAX writes it
 * (jax.profiler.save_device_memory_profile): arrays and executables with their stacks, at one moment.
 *
 * The snapshot has a state and no trace. Each sample becomes blocks of a device, whose addresses are made up,
 * because the file has none. The labels are those of jaxlib (HeapProfile in py_client.cc): `kind`, "buffer" or
 * "executable", and `device` such as "cuda:0". Devices whose name contains "cpu" are TSR_DEVICE_CPU. */
#ifndef TSR_FORMATS_PPROF_FILE_H
#define TSR_FORMATS_PPROF_FILE_H

#include "formats/assemble.h"

/* Does a profile begin here, with its types of samples? */
bool tsr__pprof_looks_like(const unsigned char *data, size_t size);

/* Read it. Fails with TSR_ERROR_FORMAT if it is damaged or has no sizes of live memory, with _LIMIT, _MEMORY or
 * as the source does. Time is linear in the file. */
int tsr__pprof_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                    uint64_t total_bytes, tsr_error *error);

#endif
