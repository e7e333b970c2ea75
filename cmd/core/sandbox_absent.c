/* sandbox_absent.c - sandbox.h on systems other than Linux, whose kernels offer nothing of the kind to any program. */
#include "sandbox.h"

unsigned cli_sandbox_landlock(void) {
  return 0;
}

bool cli_sandbox_files(const cli_place *places, size_t count, bool reads) {
  (void)places, (void)count, (void)reads;
  return false;
}

bool cli_sandbox_calls(const cli_sandbox_use *use) {
  (void)use;
  return false;
}

bool cli_sandbox_has_seccomp(void) {
  return false;
}
