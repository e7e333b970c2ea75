/* traced.h - what can still be chosen for a step that was traced. */
#ifndef TSR_QUESTIONS_SIMULATE_TRACED_H
#define TSR_QUESTIONS_SIMULATE_TRACED_H

#include <stdbool.h>

/* Whether a step graph leaves the parameter `name` of `simulate` open; it fixes all others. */
bool tsr__simulate_is_open_to_traced(const char *name);

#endif
