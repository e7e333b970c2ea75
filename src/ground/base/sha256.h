/* sha256.h - SHA-256 (FIPS 180-4), so that a file's hash can be compared with what `sha256sum` prints. */
#ifndef TSR_BASE_SHA256_H
#define TSR_BASE_SHA256_H

#include <stddef.h>

enum { TSR__SHA256_TEXT_BYTES = 65 };

/* The hash of `size_bytes` bytes as 64 hexadecimal digits and a zero byte. O(size). */
void tsr__sha256_text(const void *data, size_t size_bytes, char text[TSR__SHA256_TEXT_BYTES]);

#endif
