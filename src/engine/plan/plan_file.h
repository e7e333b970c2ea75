/* plan_file.h - what the planner needs of plans beyond tessera/unstable/plans.h. */
#ifndef TSR_PLAN_PLAN_FILE_H
#define TSR_PLAN_PLAN_FILE_H

#include "tessera/unstable/plans.h"

/* tsr_run_plan_measure that ends once more than `most_bytes` are reserved (0: never): `*over_bytes` is what was reserved then, else
 * 0, and `*out` has the figures until then. */
int tsr__run_plan_measure_within(const tsr_run_plan *plan, const tsr_model *model,
                                 const tsr_simulate_options *options, uint64_t most_bytes,
                                 tsr_run_plan_cost *out, uint64_t *over_bytes, tsr_error *error);

#endif
