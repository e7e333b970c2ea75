/* reports.h - prints answers of the engine, as text or as JSON. */
#ifndef TSR_ENGINE_QUESTIONS_REPORTS_H
#define TSR_ENGINE_QUESTIONS_REPORTS_H

#include "emit/fields.h"
#include "tessera/output.h"
#include "tessera/unstable/input.h"
#include "tessera/unstable/simulation.h"

extern const tsr_record tsr__fields_simulate, tsr__fields_plan;
extern const tsr_record tsr__fields_memory_profile; /* of tsr__emit_memory_profile */

/* The categories that hold memory at a moment, largest first, of which there are at most TSR_CATEGORY_COUNT; returns
 * their count. */
size_t tsr__sort_categories(const tsr_simulate_moment *moment, tsr_category *categories);

/* `input` contains the model's name and the simulation's snapshot; `capacity_bytes` is the limit of
 * the simulation, 0 for none. */
int tsr__report_simulate(const tsr_report_input *input, const tsr_simulation *simulation,
                         uint64_t capacity_bytes, uint64_t top, const tsr_report_options *options,
                         tsr_write_fn *write, void *context, tsr_error *error);

#endif
