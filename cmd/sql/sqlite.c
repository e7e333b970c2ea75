/* sqlite.c - see sqlite.h. */
#include "sqlite.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* The name is the same on all systems with an ELF linker; its interface has been compatible since 2004. The functions that
 * were added last are of version 3.31 (January 2020). */
#define LIBRARY "libsqlite3.so.0"

const char *sql_lib_load(sql_lib *lib) {
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;
  if (!library) return dlerror();
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
