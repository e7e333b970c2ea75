/* tessera/rates.h - what a machine does in a second, as a training run measured it.
 *
 * `train --write-rates` writes them, and `simulate` and `plan` predict times from them: of the same model under another
 * plan, or of one like it. In a file they are one JSON object (docs/plan.md). */
#ifndef TESSERA_RATES_H
#define TESSERA_RATES_H

#include <stddef.h>

#include "tessera/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_rates tsr_rates;

/* Read rates. The caller owns `*out`. Fails with TSR_ERROR_FORMAT, whose message names the key, or with
 * TSR_ERROR_MEMORY. */
int tsr_rates_parse(const char *text, size_t size_bytes, tsr_rates **out, tsr_error *error);
/* Their JSON, which ends in a newline; lives as long as the rates. */
const char *tsr_rates_text(const tsr_rates *rates);
/* NULL is fine. */
void tsr_rates_free(tsr_rates *rates);

#ifdef __cplusplus
}
#endif
#endif
