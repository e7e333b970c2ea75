/* exports.h - what libtessera.map is to Linux, for macOS, where not all linkers know such lists: everything is compiled to be
 * invisible outside the library, with this header in front of each file, which excepts what the public headers declare. */
#ifndef TSR_EXPORTS_H
#define TSR_EXPORTS_H

#pragma GCC visibility push(default)
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"
#pragma GCC visibility pop

#endif
