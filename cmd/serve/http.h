/* http.h - libmicrohttpd, loaded on demand.
 *
 * If it were linked, it and its TLS library would add 3 ms to the start of every other command, twice what
 * the rest of the program takes. */
#ifndef CLI_HTTP_H
#define CLI_HTTP_H

#include <microhttpd.h>

/* Its functions, each under its own name without the prefix. */
typedef struct cli_http {
  void *library;
#define CLI_HTTP_FUNCTIONS(X)    \
  X(start_daemon)                \
  X(stop_daemon)                 \
  X(get_connection_info)         \
  X(create_response_from_buffer) \
  X(add_response_header) X(queue_response) X(destroy_response) X(lookup_connection_value)
#define CLI_HTTP_FIELD(name) __typeof__(MHD_##name) *name;
  CLI_HTTP_FUNCTIONS(CLI_HTTP_FIELD)
#undef CLI_HTTP_FIELD
} cli_http;

/* Load it. Returns NULL, or why it cannot be loaded: a static text or dlerror's. */
const char *cli_http_load(cli_http *http);
/* A zeroed one is fine. */
void cli_http_unload(cli_http *http);

#endif
