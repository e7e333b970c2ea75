/* tessera/unstable/params.h - what a program needs to have parameters of its own, as the command line does for
 * commands that are not questions, and a question to read its values. */
#ifndef TESSERA_UNSTABLE_PARAMS_H
#define TESSERA_UNSTABLE_PARAMS_H

#include "tessera/allocator.h"
#include "tessera/registry.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Names ---- */

/* Whether `typed`, of `length` bytes, is `name`, where '-' and '_' are the same. */
bool tsr_word_is(const char *typed, size_t length, const char *name);
/* How `interface` spells the parameter's name, without dashes: its option or its name. */
const char *tsr_parameter_spelling(const tsr_parameter *parameter, tsr_interface interface);

/* ---- Values for rows of the program's own ---- */

/* Values for `count` rows, all at their defaults; a row may stand for a table. The rows must outlive them. `*out` is the
 * caller's, for tsr_params_free. Fails with TSR_ERROR_MEMORY. */
int tsr_params_new(const tsr_parameter *rows, size_t count, tsr_interface interface,
                   tsr_params **out, tsr_error *error);

/* The index-th row that it has values for, none of which stands for a table; NULL past the last. O(1). */
const tsr_parameter *tsr_params_row(const tsr_params *params, size_t index);

/* Make a parameter as if it had not been given. Does nothing if no row has the name. */
void tsr_params_clear(tsr_params *params, const char *name);

/* ---- Reading ---- */

/* Readers. `name` is tsr_parameter.name, which the rows must have; the kind must be the function's.
 * What points into the parameters lives as long as they do, or until the value is set again. */
bool tsr_params_has(const tsr_params *params, const char *name); /* it was given */
/* FLAG and TRUTH. */
bool tsr_params_flag(const tsr_params *params, const char *name);
/* COUNT, and BYTES (0 where not given). */
uint64_t tsr_params_count(const tsr_params *params, const char *name);
/* INTEGER. */
int64_t tsr_params_integer(const tsr_params *params, const char *name);
/* CHOICE: the index of the word, or -1 where none was given. */
int tsr_params_choice(const tsr_params *params, const char *name);
/* CHOICE: the number of "word:N"; 0 for other words. */
uint64_t tsr_params_choice_number(const tsr_params *params, const char *name);
/* CHOICE: the text that was given for the KEY of "word:KEY"; NULL for other words. */
const char *tsr_params_choice_key(const tsr_params *params, const char *name);
/* TEXT, PATH and SNAPSHOT, and the path of FILE and OBJECT; NULL where not given. */
const char *tsr_params_text(const tsr_params *params, const char *name);
/* TEXTS, and CHOICES: the words of `choices`, each once, in the order in which they were given. */
const char *const *tsr_params_texts(const tsr_params *params, const char *name, size_t *count);
/* DEVICES: each once; none of them for "all". */
const uint32_t *tsr_params_devices(const tsr_params *params, const char *name, size_t *count);
/* FILE: NULL before its contents are set. `path` is "" where it has no name. */
const char *tsr_params_file(const tsr_params *params, const char *name, const char **path,
                            size_t *size_bytes);
/* SETTING and SETTINGS. */
const tsr_allocator_settings *tsr_params_settings(const tsr_params *params, const char *name,
                                                  size_t *count);
/* OBJECT, and FILE that is parsed: the value of this type (a tsr_model for tsr_model_type), or NULL. */
const void *tsr_params_object(const tsr_params *params, const char *name,
                              const tsr_parameter_type *type);

#if defined(__GNUC__)
#define TSR_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define TSR_PRINTF(format_index, first_arg)
#endif
/* Fill `error` with a message about parameters and return TSR_ERROR_ARGUMENT. "{name}" in the
 * finished message becomes the parameter's name as the user types it ("--time"), and "{=name}" a
 * subject for what follows ("option '--time'"). */
int tsr_params_fail(const tsr_params *params, tsr_error *error, const char *format, ...)
    TSR_PRINTF(3, 4);

/* Parse a size such as "18GiB", "1.5 gb" or "4096B"; false for anything else, and for sizes that are not above 0. Units with an i
 * or without a B are binary ("24GiB", "24Gi", "24G"), as users of PyTorch mean them; with a B alone they are decimal: "24GB" is
 * 24 * 10^9 bytes. A number without a unit is one of bytes, and at least 2^19: "3" typed for "3GiB", or "81920" for MiB, would be a
 * budget that every run exceeds. */
bool tsr_size_parse(const char *text, uint64_t *bytes);
/* The size as reports print it, "5.3 KiB", truncated to `room_bytes`, of which 16 are enough. Returns
 * `text`. */
const char *tsr_size_text(uint64_t bytes, char *text, size_t room_bytes);

/* Parse a time: microseconds since 1970, or as reports print it, in UTC ("2026-07-12
 * 16:40:22.365713", also with 'T', "Z" or " UTC", and fewer digits of the fraction). False for
 * anything else; `*time_us` is then untouched. */
bool tsr_time_parse(const char *text, int64_t *time_us);

/* ---- Typed answers ---- */

/* The typed value: a tsr_peak for "peak", a tsr_check for "check"; src/reader/questions/NAME/question.c
 * says which. */
const void *tsr_answer_value(const tsr_answer *answer);

#ifdef __cplusplus
}
#endif
#endif
