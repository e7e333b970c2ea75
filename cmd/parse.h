/* parse.h - values that users write in several places, from text. */
#ifndef CLI_PARSE_H
#define CLI_PARSE_H

#include <tessera/tessera.h>

/* "40GiB", "40 GB" (both binary, as PyTorch's messages use them), "512M", or bytes. False where it
 * is no size or 0. */
bool cli_parse_size(const char *text, uint64_t *bytes);
/* "cd1000000_1", an address in hexadecimal and its version, as PyTorch's viewer names a block. */
bool cli_parse_allocation(const char *text, tsr_at_where *where);

#endif
