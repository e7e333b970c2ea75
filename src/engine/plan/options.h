/* options.h - the options of a run that a plan decides, read and written by their rows.
 *
 * A row (option_rows.def) declares an option once: its words, its help, and the field of
 * tsr_simulate_options that it is kept in. Everything here walks the rows, so that an option that is added there is parsed, compared, copied,
 * written into plan files and read from them without another line.
 *
 * All functions are O(1) per row; those that take `options` touch the row's field alone. */
#ifndef TSR_PLAN_OPTIONS_H
#define TSR_PLAN_OPTIONS_H

#include <stddef.h>

#include "tessera/simulate.h"
#include "tessera/unstable/params.h"

/* The field of tsr_simulate_options that a row's option is kept in. */
#define TSR__OPTION_FIELD(kind, name) \
  .stored = TSR_STORED_##kind, .stored_at = offsetof(tsr_simulate_options, name)
#define TSR__OPTION_NUMBER(name) .number_at = offsetof(tsr_simulate_options, name)

/* Room for any option's text. */
enum { TSR__OPTION_BYTES = 160 };

/* The i-th row; NULL for the number of rows, which `index` must not exceed. */
const tsr_parameter *tsr__option_at(size_t index);
/* The row of that name, or NULL. */
const tsr_parameter *tsr__option_find(const char *name);

/* Set every option to its default. */
void tsr__options_default(tsr_simulate_options *options);
void tsr__option_reset(const tsr_parameter *row, tsr_simulate_options *options);
bool tsr__option_is_default(const tsr_parameter *row, const tsr_simulate_options *options);
bool tsr__option_equal(const tsr_parameter *row, const tsr_simulate_options *a,
                       const tsr_simulate_options *b);
void tsr__option_copy(const tsr_parameter *row, const tsr_simulate_options *from,
                      tsr_simulate_options *to);

/* The value as it is typed, in its canonical form: "chunked:64", "optimizer,activations:disk"; "" for a flag. */
void tsr__option_text(const tsr_parameter *row, const tsr_simulate_options *options,
                      char text[TSR__OPTION_BYTES]);
/* Set the option to the value of the parameter of that name, which is among the rows of `params`. A list of blocks in "checkpoint" is
 * no option of all blocks: it leaves the default. TSR_ERROR_ARGUMENT for a text that is none of the option's words. */
int tsr__option_take(const tsr_parameter *row, const tsr_params *params,
                     tsr_simulate_options *options, tsr_error *error);
/* Set an option to a text of the program's own: "fused", "chunked:512", "1"; "true" for a flag. The text must be one of the option's. */
void tsr__option_set(const char *name, const char *text, tsr_simulate_options *options);

#endif
