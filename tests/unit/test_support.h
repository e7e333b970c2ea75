/* test_support.h - cmocka, with what it needs included before it.
 *
 * Do not use its skip(): in TAP it is a failure. Omit a test that cannot run from the table
 * instead. */
#ifndef TSR_TEST_SUPPORT_H
#define TSR_TEST_SUPPORT_H

/* clang-format off */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#endif
