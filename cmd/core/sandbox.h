/* sandbox.h - what the kernel lets this process do from now on. Nothing of this can be taken back.
 *
 * Both functions concern the calling thread and the threads that it starts afterwards. Where the kernel lacks what they need,
 * they do less or nothing: confinement is a second line, and no command depends on it. */
#ifndef CLI_SANDBOX_H
#define CLI_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this build looks for leaks when it ends, which reads /proc and stops its own threads. */
#ifdef __SANITIZE_ADDRESS__
#define CLI_CHECKS_LEAKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CLI_CHECKS_LEAKS 1
#endif
#endif
#ifndef CLI_CHECKS_LEAKS
#define CLI_CHECKS_LEAKS 0
#endif

/* Where files may be written. */
typedef struct cli_place {
  const char
      *path; /* a folder, with all that is below it, or a file that is not regular; it exists */
  bool makes_folders; /* folders may be made and removed there, too */
} cli_place;

/* From now on files are written at these places only, no program is executed, and no TCP connection is made. Unless `reads`, no
 * file is opened for reading either. Returns whether the kernel has Landlock. */
bool cli_sandbox_files(const cli_place *places, size_t count, bool reads);

/* What system calls are still for. */
typedef struct cli_sandbox_use {
  bool accepts; /* connections at a socket that is bound already */
  bool writes;  /* the permissions of a file that is written */
} cli_sandbox_use;

/* From now on system calls that make or connect sockets, execute programs, change what a file is (owner, permissions, times,
 * attributes), type into a terminal, concern other processes, or configure the system fail with EPERM. Returns whether the
 * kernel and the processor are known and have seccomp. */
bool cli_sandbox_calls(const cli_sandbox_use *use);

/* The version of the kernel's Landlock, 0 without it. */
unsigned cli_sandbox_landlock(void);
/* Whether cli_sandbox_calls has an effect here. */
bool cli_sandbox_has_seccomp(void);

#endif
