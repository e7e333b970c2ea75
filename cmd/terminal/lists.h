/* lists.h - the lower part of the screen: what each group holds, and stacks, differences, events, or one stack. */
#ifndef CLI_TERMINAL_LISTS_H
#define CLI_TERMINAL_LISTS_H

#include "chart.h"

/* Draw groups on the left and the list on the right. The first row of the box is for headings. Fails with TSR_ERROR_MEMORY. */
int terminal_lists_draw(terminal_model *m, terminal_grid *grid, terminal_box box);

/* ---- Words that other parts of the screen share ---- */

enum { TERMINAL_NUMBER_BYTES = 32 };
/* "22,331"; returns `out`. */
const char *terminal_count_text(uint64_t value, char out[TERMINAL_NUMBER_BYTES]);
/* "19.9 %" of a whole. */
const char *terminal_share_text(uint64_t part, uint64_t whole, char out[TERMINAL_NUMBER_BYTES]);
/* What an event did: "alloc 48.00 MiB"; an absent event is "before the first event". */
void terminal_event_text(const tsr_snapshot *snapshot, uint32_t device, int64_t event, char *out,
                         size_t room);

#endif
