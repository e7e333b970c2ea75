/* csv_file.h - reads a list of allocations as comma-separated values (RFC 4180), which any program can write of its
 * own allocator.
 *
 * The first line names the columns, in any order and in upper or lower case:
 *
 *   action            alloc or free, or oom for an allocation that failed; needed
 *   bytes, size       needed but for a free with an address
 *   address, addr     decimal, or hexadecimal after 0x; without it a free is that of the newest allocation of its size
 *   device            a number, perhaps after "cuda:"; "cpu" or "host"; 0 if absent
 *   time_us           or time_ns, time_ms, time_s; a fraction is allowed. Without it rows are in order
 *   stream            a handle
 *   stack             frames separated by semicolons, outermost first, each `function (file:line)` or `function`
 *   category          a category, or any text that says what the memory is
 *   allocated_bytes   in all on the device, after the row
 *   reserved_bytes    likewise
 *
 * Other columns are ignored and counted. Lines that cannot be read are ignored and counted. */
#ifndef TSR_FORMATS_CSV_FILE_H
#define TSR_FORMATS_CSV_FILE_H

#include "formats/assemble.h"

/* Does a text begin here whose first line has two of these columns? */
bool tsr__csv_looks_like(const unsigned char *data, size_t size);

/* Read it. Fails with TSR_ERROR_FORMAT if a needed column is absent, with _LIMIT, _MEMORY or as the source does.
 * O(n log n) in rows, because they are sorted by time. */
int tsr__csv_read(tsr__input *source, tsr__assembler *assembler, const tsr_open_options *options,
                  uint64_t total_bytes, tsr_error *error);

#endif
