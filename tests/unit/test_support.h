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

/* Sanitizers make kernels slow: fewer trials then, and none that only compare numbers. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

#endif
