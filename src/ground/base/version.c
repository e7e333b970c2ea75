/* version.c - the library's version, as the build names it. */
#include "tessera/version.h"

const char *tsr_version(void) {
  return TESSERA_VERSION;
}
