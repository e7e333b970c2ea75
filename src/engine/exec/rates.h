/* rates.h - rates as a value with a text: see tessera/rates.h. */
#ifndef TSR_EXEC_RATES_H
#define TSR_EXEC_RATES_H

#include "exec/cost.h"
#include "tessera/rates.h"

/* Rates that were measured. `title` says where: "AMD EPYC, 2 threads". The caller owns the result; NULL when out of
 * memory. */
tsr_rates *tsr__rates_new(const tsr__machine_rates *numbers, const char *title);
const tsr__machine_rates *tsr__rates_numbers(const tsr_rates *rates);
/* Lives as long as the rates. */
const char *tsr__rates_title(const tsr_rates *rates);

#endif
