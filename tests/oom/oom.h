/* oom.h - make the n-th allocation fail, for n = 1, 2, ... until the operation succeeds.
 *
 * The linker sends malloc, calloc and realloc of everything linked into the test program here
 * (--wrap), so no code under test knows. Leaks on the way out of a failure are
 * AddressSanitizer's to find. */
#ifndef TSR_TEST_OOM_H
#define TSR_TEST_OOM_H

#include "tessera/status.h"

/* The operation under test, with its own set-up and clean-up: 0, or a negative tsr_status. What it
 * must find out for itself on failure is that its outputs are untouched. */
typedef int tsr_test_operation(void *context);

/* Run `operation` with one allocation after another failing until it succeeds. Every failure must
 * be TSR_ERROR_MEMORY, success must need no allocation that failed, and at least `at_least`
 * different allocations must have been made to fail: a test that never failed one tests nothing. */
void tsr_test_oom(tsr_test_operation *operation, void *context, unsigned at_least);
/* The same for an operation that does without some allocations, of caches: up to `spared` of them
 * may fail unnoticed, and the operation then succeeds. */
void tsr_test_oom_sparing(tsr_test_operation *operation, void *context, unsigned at_least,
                          unsigned spared);

#endif
