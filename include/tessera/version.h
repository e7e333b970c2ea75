/* tessera/version.h - the version of the library: of the headers, when a program is compiled, and of
 * what it is linked with, when it runs. Versions of one major version are compatible (docs/stability.md).
 */
#ifndef TESSERA_VERSION_H
#define TESSERA_VERSION_H

#define TESSERA_VERSION_MAJOR 1
#define TESSERA_VERSION_MINOR 0
#define TESSERA_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "MAJOR.MINOR.PATCH". Static text. */
const char *tsr_version(void);

#ifdef __cplusplus
}
#endif
#endif
