/* draw.h - the whole screen of a model, as cells. */
#ifndef CLI_TERMINAL_DRAW_H
#define CLI_TERMINAL_DRAW_H

#include "grid.h"
#include "model.h"

/* The smallest screen that is drawn. */
enum { TERMINAL_LEAST_ROWS = 14, TERMINAL_LEAST_COLUMNS = 60 };

/* Fill the grid, whatever its size, and note in the model what keys move by. Fails with TSR_ERROR_MEMORY. */
int terminal_draw(terminal_model *model, terminal_grid *grid);

#endif
