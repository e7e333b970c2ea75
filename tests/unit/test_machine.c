/* How much memory is left: a machine's, and what control groups of both versions allow. */
#define _XOPEN_SOURCE 700

#include "base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_support.h"

enum { PATH_BYTES = 256, MIB = 1 << 20 };

/* Files below a folder that stands for the root of a file system. */
typedef struct place {
  char root[64];
} place;

static int setup(void **state) {
  static place p;
  strcpy(p.root, "/tmp/tessera-machine-XXXXXX");
  if (!mkdtemp(p.root)) return 1;
  *state = &p;
  return 0;
}

static int teardown(void **state) {
  char command[128];
  const place *p = *state;
  (void)snprintf(command, sizeof command, "rm -r '%s'", p->root);
  return system(command);
}

static void put(void **state, const char *name, const char *text) {
  char path[PATH_BYTES];
  const place *p = *state;
  (void)snprintf(path, sizeof path, "%s%s", p->root, name);
  for (char *slash = path + strlen(p->root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fputs(text, file) >= 0, 1);
  assert_int_equal(fclose(file), 0);
}

static void expect(void **state, uint64_t available_bytes, bool is_limited) {
  const place *p = *state;
  tsr__machine_memory memory = tsr__machine_memory_below(p->root);
  assert_int_equal(memory.available_bytes, available_bytes);
  assert_int_equal(memory.is_limited, is_limited);
}

static const char meminfo[] = "MemTotal:       16777216 kB\nMemFree:          100 kB\n"
                              "MemAvailable:    8192 kB\nSwapTotal:   9 kB\nSwapFree:  1024 kB\n";

static void test_nothing_is_known(void **state) {
  expect(state, UINT64_MAX, false);
  put(state, "/proc/meminfo", "MemTotal: 1 kB\nMemAvailable: many\n");
  expect(state, UINT64_MAX, false);
}

static void test_a_machine(void **state) {
  put(state, "/proc/meminfo", meminfo);
  put(state, "/proc/self/cgroup", "0::/\n");
  put(state, "/sys/fs/cgroup/memory.max", "max\n");
  expect(state, 9 * MIB, false);
}

/* The least limit of all groups up to the root counts; caches of files do not. */
static void test_version_2(void **state) {
  put(state, "/proc/meminfo", meminfo);
  put(state, "/proc/self/cgroup", "1:name=systemd:/elsewhere\n0::/a/b\n");
  put(state, "/sys/fs/cgroup/a/b/memory.max", "max\n");
  put(state, "/sys/fs/cgroup/a/memory.max", "6291456\n");
  put(state, "/sys/fs/cgroup/elsewhere/memory.max", "1\n");
  expect(state, 6 * MIB, true);
  put(state, "/sys/fs/cgroup/a/memory.current", "4194304\n");
  expect(state, 2 * MIB, true);
  put(state, "/sys/fs/cgroup/a/memory.stat",
      "anon 1\nfile 3145728\nactive_file 1048576\ninactive_file 2097152\n");
  expect(state, 5 * MIB, true);
  put(state, "/sys/fs/cgroup/a/memory.stat", "inactive_file 99999999999999\nactive_file 7\n");
  expect(state, 6 * MIB, true);
  put(state, "/sys/fs/cgroup/a/memory.current", "7340032\n");
  put(state, "/sys/fs/cgroup/a/memory.stat", "");
  expect(state, 0, true);
  put(state, "/sys/fs/cgroup/a/memory.max", "99999999999999\n");
  expect(state, 9 * MIB, false);
}

/* A container that sees the host's path, but only its own files. */
static void test_version_1(void **state) {
  put(state, "/proc/meminfo", meminfo);
  put(state, "/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/0123\n0::/\n");
  put(state, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect(state, 9 * MIB, false);
  put(state, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "4194304\n");
  put(state, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "2097152\n");
  put(state, "/sys/fs/cgroup/memory/memory.stat",
      "inactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
  expect(state, 3 * MIB, true);
  put(state, "/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "1048576\n");
  expect(state, MIB, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_nothing_is_known, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_machine, setup, teardown),
      cmocka_unit_test_setup_teardown(test_version_2, setup, teardown),
      cmocka_unit_test_setup_teardown(test_version_1, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
