/* Sidecars: which blocks they name, what fits nowhere, and files that mean harm. */
#define _XOPEN_SOURCE 700

#include "formats/sidecar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "snapshot_support.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"

#define HEAD "{\"schema\": \"tessera/capture/1\", "
/* Device 0: 4096..4608 allocated, ..5120 waiting, ..6144 free; 8192..9216 allocated, of the first
 * segment in memory but the last in the file. Device 1: 4096..4608 allocated. */
#define BLOCK(size, state) \
  "{\"size\": " size ", \"requested_size\": " size ", \"state\": \"" state "\"}"
#define SEGMENT(device, address, size, blocks)                                                   \
  "{\"device\": " device ", \"address\": " address ", \"total_size\": " size ", \"stream\": 0, " \
  "\"segment_type\": \"small\", \"blocks\": [" blocks "]}"
static const char text[] =
    "{\"segments\": [" SEGMENT("0", "8192", "1024", BLOCK("1024", "active_allocated")) ", " SEGMENT(
        "1", "4096", "512",
        BLOCK(
            "512",
            "active_allocated")) ", " SEGMENT("0", "4096", "2048",
                                              BLOCK("512", "active_allocated") ", " BLOCK(
                                                  "512",
                                                  "a"
                                                  "c"
                                                  "t"
                                                  "i"
                                                  "v"
                                                  "e"
                                                  "_"
                                                  "p"
                                                  "e"
                                                  "n"
                                                  "d"
                                                  "i"
                                                  "n"
                                                  "g"
                                                  "_"
                                                  "f"
                                                  "r"
                                                  "e"
                                                  "e") ", " BLOCK("1024",
                                                                  "inactive")) "], "
                                                                               "\"device_traces\": "
                                                                               "[[], []]}";

#define AT(pointer, bytes) "\"data_ptr\": " pointer ", \"nbytes\": " bytes
#define TENSOR(name, device, place) \
  "{\"name\": \"" name "\", \"device\": \"" device "\", " place "}"

static int read_named(const char *sidecar, tsr_snapshot **out, tsr_error *error) {
  return read_with_sidecar(text, sizeof text - 1, sidecar, out, error);
}

/* "device:block name type kind; ..." of all tensors that a sidecar names, and what it does not. */
static void expect(const char *sidecar, const char *expected, uint64_t lost) {
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  char got[2048] = "";
  if (read_named(sidecar, &snapshot, &error)) fail_msg("%s: %s", sidecar, error.message);
  size_t count;
  const tsr_tensor *tensors = tsr_snapshot_tensors(snapshot, &count);
  for (size_t i = 0; i < count; i++) {
    size_t used = strlen(got), in;
    (void)snprintf(got + used, sizeof got - used, "%u:%u %s|%s|%s; ", tensors[i].device,
                   (unsigned)tensors[i].block_address, tensors[i].name, tensors[i].type,
                   tsr_category_name(tensors[i].category));
    const tsr_tensor *found =
        tsr_snapshot_tensors_in(snapshot, tensors[i].device, tensors[i].block_address, &in);
    assert_true(found <= &tensors[i] && &tensors[i] < found + in);
  }
  assert_string_equal(got, expected);
  assert_int_equal(snapshot->tally[TSR__WARN_SIDECAR_MISFITS], lost);
  tsr_snapshot_free(snapshot);
}

#define MODELS(...) HEAD "\"models\": [{\"name\": \"m\", \"parameters\": [" __VA_ARGS__ "]}]}"

static void names(void **state) {
  (void)state;
  expect(HEAD "\"a\": 1}", "", 0);
  expect(MODELS(TENSOR("w", "cuda:0", AT("4096", "512"))), "0:4096 w||parameter; ", 0);
  expect(MODELS(TENSOR("w", "cuda:1", AT("4096", "512"))), "1:4096 w||parameter; ", 0);
  expect(MODELS(TENSOR("w", "xpu", AT("\"4096\"", "5"))), "0:4096 w||parameter; ", 0);
  expect(MODELS(TENSOR("w", "cuda:0", AT("\"0x1000\"", "5"))), "0:4096 w||parameter; ", 0);
  /* Two in one block, given in no order; once is enough. */
  expect(MODELS(TENSOR("b", "cuda:0", AT("8704", "512")) ", " TENSOR(
             "a", "cuda:0", AT("8192", "8")) ", " TENSOR("a", "cuda:0", AT("8192", "8"))),
         "0:8192 a||parameter; 0:8192 b||parameter; ", 0);
  expect(MODELS(TENSOR("w", "cuda:0",
                       "\"dtype\": \"torch.bfloat16\", \"shape\": [2, 128], "
                       "\"grad\": {" AT("8192", "512") "}, " AT("4096", "512"))),
         "0:4096 w|bfloat16 [2, 128]|parameter; 0:8192 w.grad|bfloat16 [2, 128]|gradient; ", 0);
  expect(HEAD "\"optimizers\": [{\"state\": [{\"parameter\": \"w\", \"key\": \"exp_avg\", "
              "\"device\": \"cuda:0\", " AT("8192", "4") "}, {\"parameter\": 3, \"key\": \"m\", "
                                                         "\"device\": \"cuda:0\", " AT("8196",
                                                                                       "4") "}]}]}",
         "0:8192 exp_avg of w||optimizer_state; 0:8192 m of parameter 3||optimizer_state; ", 0);
  expect(HEAD "\"other_parameters\": [{\"name\": null, \"index\": 2, \"device\": \"cuda:0\", " AT(
             "8192", "4") "}, {\"device\": \"cuda:0\", " AT("8196", "4") "}]}",
         "0:8192 parameter 2||parameter; 0:8192 (unnamed)||parameter; ", 0);
  expect(HEAD "\"models\": [{\"name\": \"g\", \"parameters\": [" TENSOR(
             "w", "cuda:0",
             AT("4096", "4")) "]}, {\"name\": \"d\", \"buffers\": [" TENSOR("w", "cuda:0",
                                                                            AT("4100", "4")) "]}]}",
         "0:4096 g.w||parameter; 0:4096 d.w||parameter; ", 0);
}

static void misfits(void **state) {
  (void)state;
#define W(device, place) MODELS(TENSOR("w", device, place))
  expect(W("cuda:0", AT("4095", "1")), "", 1);   /* before every block */
  expect(W("cuda:0", AT("4096", "513")), "", 1); /* longer than its block */
  expect(W("cuda:0", AT("4607", "2")), "", 1);
  expect(W("cuda:0", AT("4608", "4")), "", 1); /* waits for a stream */
  expect(W("cuda:0", AT("5120", "4")), "", 1); /* free */
  expect(W("cuda:0", AT("6144", "4")), "", 1); /* between segments */
  expect(W("cuda:0", AT("9216", "4")), "", 1); /* after the last */
  expect(W("cuda:2", AT("4096", "4")), "", 1); /* no such device */
  expect(W("cuda:0", AT("8192", "\"18446744073709551615\"")), "", 1);
  expect(W("cuda:0", AT("\"0xffffffffffffffff\"", "1")), "", 1);
  expect(W("cuda:0", AT("\"99999999999999999999\"", "1")), "", 1);
  expect(W("cuda:0", AT("-4096", "1")), "", 1);
  expect(W("cuda:0", AT("null", "null")), "", 1);
  expect(W("cuda:0", AT("4096.0", "4")), "", 1);
  /* Nowhere on a device, and so no misfit. */
  expect(W("cpu", AT("4096", "4")), "", 0);
  expect(W("meta", AT("4096", "4")), "", 0);
  expect(W("cuda:0", AT("0", "0")), "", 0);
  expect(W("cuda:4294967295", AT("4096", "4")), "", 0);
  /* A view that repeats its storage. */
  expect(W("cuda:0", "\"storage_nbytes\": 8, " AT("4096", "4000")), "0:4096 w||parameter; ", 0);
}

/* Whatever stands where something else should. */
static void odd_shapes(void **state) {
  (void)state;
  expect(HEAD "\"models\": 3, \"optimizers\": {}, \"other_parameters\": \"x\", \"devices\": null}",
         "", 0);
  expect(HEAD "\"models\": [[], null, {\"parameters\": [1, [], {}, {\"device\": 7}]}]}", "", 0);
  expect(HEAD "\"devices\": [{\"device\": -1}, {\"device\": \"x\"}, 4, {\"device\": 4294967295}]}",
         "", 0);
  expect(MODELS(TENSOR("w\\u0000x", "cuda:0", AT("4096", "4"))), "0:4096 w||parameter; ", 0);
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  assert_int_equal(read_named("", &snapshot, &error), TSR_ERROR_FORMAT);
  assert_int_equal(read_named("[]", &snapshot, &error), TSR_ERROR_FORMAT);
  assert_int_equal(read_named("{\"schema\": \"tessera/1\"}", &snapshot, &error), TSR_ERROR_FORMAT);
  assert_int_equal(read_named(HEAD "\"x\": [", &snapshot, &error), TSR_ERROR_FORMAT);
  assert_int_equal(read_named(HEAD "\"x\": 99999999999999999999}", &snapshot, &error),
                   TSR_ERROR_FORMAT);
  assert_int_equal(read_named("{\"schema\": \"tessera/capture/2\"}", &snapshot, &error), 0);
  assert_int_equal(snapshot->tally[TSR__WARN_SIDECAR_SCHEMA], 1);
  tsr_snapshot_free(snapshot);
}

/* Cut at 512 bytes, and never within a character. */
static void long_names(void **state) {
  (void)state;
  char sidecar[4096] = HEAD "\"models\": [{\"parameters\": [{\"name\": \"x";
  for (int i = 0; i < 400; i++) strcat(sidecar, "\xc3\xa9");
  strcat(sidecar, "\", \"device\": \"cuda:0\", " AT("4096", "4") "}]}]}");
  tsr_snapshot *snapshot = NULL;
  size_t count;
  assert_int_equal(read_named(sidecar, &snapshot, NULL), 0);
  const tsr_tensor *tensors = tsr_snapshot_tensors(snapshot, &count);
  assert_int_equal(count, 1);
  assert_int_equal(strlen(tensors->name), 511);
  assert_int_equal((unsigned char)tensors->name[510], 0xa9);
  tsr_snapshot_free(snapshot);
}

static void cards(void **state) {
  (void)state;
  tsr_snapshot *snapshot = NULL;
  assert_int_equal(read_named(HEAD "\"devices\": [{\"device\": 1, \"total_bytes\": 100, "
                                   "\"free_bytes\": 30, \"outside_pytorch_bytes\": null}]}",
                              &snapshot, NULL),
                   0);
  assert_int_equal(tsr_snapshot_card(snapshot, 1).total_bytes, 100);
  assert_int_equal(tsr_snapshot_card(snapshot, 1).free_bytes, 30);
  assert_int_equal(tsr_snapshot_card(snapshot, 1).outside_bytes, 0);
  assert_int_equal(tsr_snapshot_card(snapshot, 0).total_bytes, 0);
  tsr_snapshot_free(snapshot);
}

/* ---- the ledger ---- */

#define LEDGER(device, samples)                                                          \
  HEAD "\"process\": {\"pid\": 7, \"host\": \"node1\"}, \"card\": {\"period_ms\": 500, " \
       "\"devices\": [{" device ", \"samples\": {" samples "}}]}}"

static uint64_t lost_of(const tsr_snapshot *snapshot) {
  return snapshot->tally[TSR__WARN_SIDECAR_CARD];
}

/* Samples are in the order of their times, and what cannot be right counts as unknown. */
static void ledgers(void **state) {
  (void)state;
  tsr_snapshot *snapshot = NULL;
  const char *host;
  assert_int_equal(
      read_named(LEDGER("\"device\": 3, \"total_bytes\": 100, \"marks\": [\"a\", \"b\"], "
                        "\"communicators\": [{\"name\": \"dp\", \"ranks\": 8}, {}]",
                        "\"time_us\": [30, 10, 20], \"mark\": [1, null, 9], "
                        "\"total_used_bytes\": [5, null, -1], \"allocated_bytes\": [1, 2], "
                        "\"reserved_bytes\": [null, null, null], "
                        "\"communicator_bytes\": [[7, 8, 9]]"),
                 &snapshot, NULL),
      0);
  const tsr_ledger *ledger = tsr_snapshot_ledger(snapshot, 3);
  assert_null(tsr_snapshot_ledger(snapshot, 0));
  assert_int_equal(ledger->sample_count, 3);
  assert_int_equal(ledger->time_us[0], 10);
  assert_int_equal(ledger->time_us[2], 30);
  assert_int_equal(ledger->mark[0], TSR_NONE);
  assert_int_equal(ledger->mark[1], TSR_NONE); /* there is no mark 9 */
  assert_string_equal(ledger->marks[ledger->mark[2]], "b");
  assert_true(ledger->used_bytes[0] == TSR_LEDGER_UNKNOWN);
  assert_true(ledger->used_bytes[1] == TSR_LEDGER_UNKNOWN); /* below 0 */
  assert_int_equal(ledger->used_bytes[2], 5);
  assert_null(ledger->allocated_bytes); /* of another length */
  assert_null(ledger->reserved_bytes);  /* without a value */
  assert_int_equal(ledger->communicator_count, 2);
  assert_int_equal(ledger->communicators[0].bytes[0], 8);
  assert_null(ledger->communicators[1].bytes);
  assert_int_equal(ledger->total_bytes, 100);
  assert_true(ledger->driver_bytes == TSR_LEDGER_UNKNOWN);
  assert_int_equal(lost_of(snapshot), 3);
  assert_int_equal(tsr_ledger_sample_at(ledger, 9), TSR_NONE);
  assert_int_equal(tsr_ledger_sample_at(ledger, 10), 0);
  assert_int_equal(tsr_ledger_sample_at(ledger, 29), 1);
  assert_int_equal(tsr_ledger_sample_at(ledger, INT64_MAX), 2);
  assert_int_equal(tsr_snapshot_process(snapshot, &host), 7);
  assert_string_equal(host, "node1");
  assert_int_equal(tsr_snapshot_ledger_recording(snapshot).period_ms, 500);
  tsr_snapshot_free(snapshot);
}

/* What is no ledger is none; times that are no times are no samples. */
static void odd_ledgers(void **state) {
  (void)state;
  static const char *const texts[] = {
      HEAD "\"card\": 3}", HEAD "\"card\": {\"devices\": {}, \"host\": 4, \"notes\": 5}}",
      HEAD "\"card\": {\"devices\": [null, {\"device\": -1}, {\"device\": \"x\"}]}}"};
  tsr_snapshot *snapshot = NULL;
  size_t count;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_int_equal(read_named(texts[i], &snapshot, NULL), 0);
    (void)tsr_snapshot_ledgers(snapshot, &count);
    assert_int_equal(count, 0);
    assert_true(lost_of(snapshot) > 0);
    tsr_snapshot_free(snapshot);
  }
  assert_int_equal(read_named(LEDGER("\"device\": 0", "\"time_us\": [0, \"5\", null, 4], "
                                                      "\"total_used_bytes\": [1, 2, 3, 4]"),
                              &snapshot, NULL),
                   0);
  const tsr_ledger *ledger = tsr_snapshot_ledger(snapshot, 0);
  assert_int_equal(ledger->sample_count, 1);
  assert_int_equal(ledger->used_bytes[0], 4);
  assert_int_equal(lost_of(snapshot), 3);
  tsr_snapshot_free(snapshot);
  assert_int_equal(read_named(HEAD "\"a\": 1}", &snapshot, NULL), 0);
  assert_false(tsr_snapshot_ledger_recording(snapshot).is_there);
  assert_int_equal(tsr_snapshot_host_ledger(snapshot).sample_count, 0);
  tsr_snapshot_free(snapshot);
}

/* ---- files ---- */

static void write_file(const char *path, const char *contents) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(contents, 1, strlen(contents), file), strlen(contents));
  assert_int_equal(fclose(file), 0);
}

static char folder[] = "/tmp/tessera-sidecar-XXXXXX";

/* Opens `name` in the folder; the snapshot is the caller's. */
static tsr_snapshot *open_name(const char *name, const char *sidecar) {
  char path[256];
  tsr_snapshot *snapshot = NULL;
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  tsr_open_options how = {.sidecar = sidecar};
  write_file(path, text);
  assert_int_equal(tsr_snapshot_open(path, &how, &snapshot, NULL), 0);
  assert_int_equal(unlink(path), 0);
  return snapshot;
}

static void expect_beside(const char *name, bool is_found) {
  tsr_snapshot *snapshot = open_name(name, NULL);
  assert_int_equal(tsr_snapshot_sidecar(snapshot) != NULL, is_found);
  tsr_snapshot_free(snapshot);
  snapshot = open_name(name, "");
  assert_null(tsr_snapshot_sidecar(snapshot));
  tsr_snapshot_free(snapshot);
}

static void beside(void **state) {
  (void)state;
  char path[256];
  assert_non_null(mkdtemp(folder));
  (void)snprintf(path, sizeof path, "%s/a.json", folder);
  write_file(path, HEAD "\"models\": []}");
  expect_beside("a.pickle", true);
  expect_beside("a.pickle.gz", true);
  expect_beside("a.pkl", true);
  expect_beside("a", true);
  expect_beside("b.pickle", false);
  expect_beside("a.b.pickle", false);
  /* A pipe is not waited for; folders, and files that begin differently, are not sidecars. */
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_beside("a.pickle", false);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkdir(path, 0700), 0);
  expect_beside("a.pickle", false);
  assert_int_equal(rmdir(path), 0);
  write_file(path, text);
  expect_beside("a.pickle", false);
  tsr_snapshot *snapshot = open_name("a.pickle", NULL);
  size_t count;
  tsr_snapshot_warnings(snapshot, &count);
  assert_int_equal(count, 0);
  tsr_snapshot_free(snapshot);
  /* A snapshot is not its own sidecar. */
  assert_int_equal(unlink(path), 0);
  expect_beside("a.json", false);
  /* A broken one is reported, and nothing else changes. */
  write_file(path, HEAD);
  snapshot = open_name("a.pickle", NULL);
  assert_int_equal(warned(snapshot, "sidecar-unreadable"), 1);
  tsr_snapshot_free(snapshot);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
}

static void chosen(void **state) {
  (void)state;
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  tsr_open_options how = {.sidecar = "/nowhere/a.json"};
  assert_int_equal(tsr_snapshot_read(text, sizeof text - 1, &how, &snapshot, &error), TSR_ERROR_IO);
  assert_null(snapshot);
  assert_non_null(strstr(error.message, "/nowhere/a.json"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names),      cmocka_unit_test(misfits), cmocka_unit_test(odd_shapes),
      cmocka_unit_test(long_names), cmocka_unit_test(cards),   cmocka_unit_test(beside),
      cmocka_unit_test(chosen),     cmocka_unit_test(ledgers), cmocka_unit_test(odd_ledgers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
