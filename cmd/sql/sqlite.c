/* sqlite.c - see sqlite.h. */
#include "sqlite.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <tessera/status.h>

/* Its interface has been compatible since 2004. The functions that
 * were added last are of version 3.31 (January 2020). */
#define LIBRARY CLI_LIBRARY_SQLITE /* cmd/meson.build */

/* What is missing; NULL if nothing is. */
static const char *find_functions(sql_lib *lib, void *library) {
  void *found;
#define LOAD(name)                                                           \
  found = dlsym(library, "sqlite3_" #name);                                  \
  if (!found) return LIBRARY " is older than 3.31: it lacks sqlite3_" #name; \
  memcpy(&lib->name, &found, sizeof found); /* no cast from data to functions */
  SQL_FUNCTIONS(LOAD)
#undef LOAD
  found = dlsym(library, "sqlite3_vtab_distinct");
  memcpy(&lib->vtab_distinct, &found, sizeof found);
  return NULL;
}

int sql_lib_load(sql_lib *lib, const char **why) {
  errno = 0;
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library && errno == ENOMEM) return TSR_ERROR_MEMORY;
  *why = library ? find_functions(lib, library) : dlerror();
  /* Some builds of it do not begin by themselves, such as that of Python for Windows. */
  if (!*why && lib->initialize() != SQLITE_OK) return TSR_ERROR_MEMORY;
  return *why ? TSR_ERROR_UNSUPPORTED : 0;
}
