/* chart.h - memory over time as a picture of cells: areas by group, with a line of allocated and a dashed line of reserved memory.
 *
 * A cell has two columns of four dots, as braille has them. Each column of dots shows the moment of its range at which most is
 * allocated, so no zoom level loses a peak. In ASCII a cell is one letter.
 */
#ifndef CLI_TERMINAL_CHART_H
#define CLI_TERMINAL_CHART_H

#include "grid.h"
#include "model.h"

/* A place on the grid. */
typedef struct terminal_box {
  uint32_t row, column, rows, columns;
} terminal_box;

/* The bytes at the lower and the upper border. */
typedef struct terminal_scale {
  uint64_t low, high; /* low < high */
} terminal_scale;

/* The scale for all tracks that are shown, `columns` wide. */
terminal_scale terminal_chart_scale(const terminal_model *m, uint32_t columns);
/* Draw a track. Fails with TSR_ERROR_MEMORY. */
int terminal_chart_draw(const terminal_model *m, const terminal_track *track, terminal_scale scale,
                        terminal_grid *grid, terminal_box box);

/* The column, of `columns`, in which a moment is; false if it is not in view. */
bool terminal_chart_column(const terminal_model *m, uint32_t moment, uint32_t columns,
                           uint32_t *column);
/* How a group looks: its colour, and the letter that stands for it in ASCII. */
uint8_t terminal_group_color(const tsr_view_grouping *grouping, size_t group);
char terminal_group_letter(const tsr_view_grouping *grouping, size_t group);
/* Draw the sign of a group in the first column of a span. */
void terminal_group_sign(terminal_span span, const tsr_view_grouping *grouping, size_t group);

#endif
