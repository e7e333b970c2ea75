/* finding_names.c - the words for the rules of findings. */
#include <assert.h>

#include "tessera/unstable/findings.h"

static const char *const names[] = {[TSR_FINDING_NO_GRAD] = "no_grad",
                                    [TSR_FINDING_CHECKPOINT] = "checkpoint",
                                    [TSR_FINDING_TWO_FORWARDS] = "two_forwards",
                                    [TSR_FINDING_OLD_GRADIENTS] = "old_gradients",
                                    [TSR_FINDING_CACHED] = "cached"};
static_assert(sizeof names / sizeof *names == TSR_FINDING_RULE_COUNT, "a name for each rule");

const char *tsr_finding_rule_name(tsr_finding_rule rule) {
  return (unsigned)rule < TSR_FINDING_RULE_COUNT ? names[rule] : "unknown";
}
