/* Every allocation fails once on the way from lists of allocations in other programs' forms to a snapshot. The files
 * are seeds of the fuzz target, after the byte that is not theirs; each is read from memory and from a file, which a
 * database is read in place of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/test_support.h"
#include "oom.h"
#include "tessera/tessera.h"

typedef struct bytes {
  unsigned char data[1 << 16];
  size_t size;
  const char *path; /* or NULL: from memory */
} bytes;

static bytes file;

static int open_file(void *context) {
  const bytes *b = context;
  tsr_snapshot *read = NULL;
  tsr_error error = {0};
  int status = b->path ? tsr_snapshot_open(b->path, NULL, &read, &error)
                       : tsr_snapshot_read(b->data, b->size, NULL, &read, &error);
  assert_int_equal(error.status, status);
  if (status) assert_null(read);
  tsr_snapshot_free(read);
  return status;
}

/* Sorting does without memory, and the second thread of a file that is not needed is not started. */
enum { AT_LEAST = 30, SPARED = 16 };

static void both_ways(const char *seed) {
  char path[1024];
  (void)snprintf(path, sizeof path, "%s/%s", TSR_SEEDS, seed);
  FILE *stream = fopen(path, "rb");
  assert_non_null(stream);
  assert_int_equal(fseek(stream, 1, SEEK_SET), 0);
  file.size = fread(file.data, 1, sizeof file.data, stream);
  assert_int_equal(fclose(stream), 0);
  file.path = NULL;
  tsr_test_oom_sparing(open_file, &file, AT_LEAST, SPARED);
  file.path = "oom-list.tmp";
  stream = fopen(file.path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(file.data, 1, file.size, stream), file.size);
  assert_int_equal(fclose(stream), 0);
  tsr_test_oom_sparing(open_file, &file, AT_LEAST, SPARED);
  assert_int_equal(remove(file.path), 0);
}

static void nsight(void **state) {
  (void)state;
  both_ways("nsight-3");
  both_ways("nsight-8");
}

static void csv(void **state) {
  (void)state;
  both_ways("csv-3");
}

static void pprof(void **state) {
  (void)state;
  both_ways("pprof-12");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nsight),
      cmocka_unit_test(csv),
      cmocka_unit_test(pprof),
  };
  return cmocka_run_group_tests_name("oom lists", tests, NULL, NULL);
}
