/* size.h - sizes as people type them. */
#ifndef CLI_SIZE_H
#define CLI_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* "40GiB", "40 GB" (both binary, as PyTorch's messages use them), "512M", or bytes. False where it
 * is none of these, or 0. */
bool cli_parse_size(const char *text, uint64_t *bytes);

#endif
