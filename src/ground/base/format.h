/* format.h - numbers as people read them: binary sizes, grouped counts. */
#ifndef TSR_BASE_FORMAT_H
#define TSR_BASE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

/* Enough for any text below, including its zero. */
#define TSR__FORMAT_BYTES 64

/* "512 B", "32.0 KiB", "785.27 MiB", "17.80 GiB", "1.50 TiB": bytes whole, KiB with one decimal,
 * larger units with two; rounded to nearest, with a point in any locale. Fills `text` and returns it. */
const char *tsr__format_size(uint64_t bytes, char text[TSR__FORMAT_BYTES]);
/* "22,331". */
const char *tsr__format_count(uint64_t count, char text[TSR__FORMAT_BYTES]);
/* "73.1 %" for part of whole, "0.0 %" if whole is 0. */
const char *tsr__format_percent(uint64_t part, uint64_t whole, char text[TSR__FORMAT_BYTES]);
/* "1.21 s", "412 ms", "48.21 ms"; "-" for what takes no time, which is unknown. */
const char *tsr__format_duration(double seconds, char text[TSR__FORMAT_BYTES]);
/* "2026-07-12 14:33:42.365713" (UTC) for microseconds since the Unix epoch. */
const char *tsr__format_time(int64_t time_us, char text[TSR__FORMAT_BYTES]);
/* The inverse: a time as tsr__format_time prints it, in UTC. Also accepted: 'T' for the space, fewer
 * digits of the fraction or none, "Z" or " UTC" at the end. False for anything else; `*time_us` is
 * then untouched. */
bool tsr__read_time(const char *text, int64_t *time_us);

#endif
