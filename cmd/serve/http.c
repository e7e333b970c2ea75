/* http.c - see http.h. */
#include "http.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* Debian's name for the library of that header; its functions have not changed since 0.9.71. */
#define LIBRARY "libmicrohttpd.so.12"

const char *cli_http_load(cli_http *http) {
  void *found;
  errno = 0;
  http->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!http->library) return errno == ENOMEM ? "out of memory" : dlerror();
#define LOAD(name)                                \
  found = dlsym(http->library, "MHD_" #name);     \
  if (!found) return LIBRARY " lacks MHD_" #name; \
  memcpy(&http->name, &found, sizeof found); /* no cast from data to functions */
  CLI_HTTP_FUNCTIONS(LOAD)
#undef LOAD
  return NULL;
}

void cli_http_unload(cli_http *http) {
  if (http->library) dlclose(http->library);
  *http = (cli_http){0};
}
