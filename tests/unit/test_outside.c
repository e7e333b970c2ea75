/* What is outside of PyTorch's allocator: NCCL's formula against counted connections and public figures, the table, limits, and files of
 * what was measured. */
#include "exec/outside.h"

#include <stdio.h>
#include <string.h>

#include "test_support.h"

#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)

static uint64_t next(uint64_t *random) {
  *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407U;
  return *random >> 33;
}

/* ---- NCCL ---- */

enum { MOST_RANKS = 72 };

static uint64_t granules(uint64_t bytes) {
  uint64_t whole = 0;
  while (whole < bytes + 4096) whole += 2 * MiB;
  return whole;
}

/* Count connections rank by rank, as NCCL makes them: `sends[a][b]` for each channel, which rings and trees share. */
typedef struct counted {
  uint64_t ring, mean_times_ranks, most; /* bytes of a channel: of rings alone; with trees */
} counted;

static counted count_channel(uint64_t ranks, uint64_t in_bytes, uint64_t out_bytes) {
  static bool sends[MOST_RANKS][MOST_RANKS];
  counted out = {0, 0, 0};
  memset(sends, 0, sizeof sends);
  for (uint64_t i = 0; i < ranks; i++) sends[i][(i + 1) % ranks] = true;
  out.ring = in_bytes + out_bytes;
  for (uint64_t i = 0; i + 1 < ranks; i++) sends[i][i + 1] = sends[i + 1][i] = true;
  for (uint64_t i = 0; i < ranks; i++) {
    uint64_t bytes = 0;
    for (uint64_t k = 0; k < ranks; k++) bytes += sends[i][k] * out_bytes + sends[k][i] * in_bytes;
    out.mean_times_ranks += bytes;
    if (bytes > out.most) out.most = bytes;
  }
  return out;
}

/* Random machines and settings: the formula is what counting finds. */
static void test_counted(void **state) {
  (void)state;
  uint64_t random = 7;
  for (size_t i = 0; i < 3000; i++) {
    bool reads = next(&random) % 2;
    uint64_t ranks = 2 + next(&random) % 7, channels = 1 + next(&random) % 64;
    uint64_t simple = next(&random) % 2 ? 0 : 1 + next(&random) % (16 * MiB);
    uint64_t ll = next(&random) % 2 ? 0 : 1 + next(&random) % (2 * MiB);
    uint64_t ll128 = next(&random) % 2 ? 0 : 1 + next(&random) % (8 * MiB);
    uint64_t peers = next(&random) % ranks;
    tsr__nccl_job job = {.capability = reads ? 80 : 90,
                         .has_links = true,
                         .ranks = ranks,
                         .peers = peers,
                         .channels = channels,
                         .simple_bytes = simple,
                         .ll_bytes = ll,
                         .ll128_bytes = ll128};
    uint64_t small = (ll ? ll : 524288) + (ll128 ? ll128 : 4915200);
    uint64_t large = simple ? simple : 4194304;
    uint64_t in = granules(small + (reads ? 0 : large)), out = granules(reads ? large : 0);
    counted one = count_channel(ranks, in, out);
    uint64_t shared = 32 * 16 * 512 * 1024, direct = peers * 32 * (in + out);
    uint64_t sharp = !reads && ranks > 2 ? 2 * 16 * 8 * 128 * 1024 * ranks : 0;
    tsr_outside_range got = tsr__nccl_bytes(&job);
    assert_int_equal(got.low_bytes, shared + direct / 2 + channels * one.ring);
    uint64_t mean = (channels * one.mean_times_ranks + ranks - 1) / ranks;
    assert_int_equal(got.likely_bytes, shared + direct + mean);
    assert_int_equal(got.high_bytes, shared + direct + channels * one.most + sharp);
  }
}

/* Every public figure whose machine is known. */
static void test_published(void **state) {
  (void)state;
  /* NVIDIA/nccl#964: 4 A100s with NVLink, rank 0: 544 MB for a group of two, 688 MB for three and more */
  tsr__nccl_job a100 = {.capability = 80, .has_links = true, .ranks = 2};
  tsr_outside_range two = tsr__nccl_bytes(&a100);
  assert_int_equal(two.low_bytes, 544 * MiB);
  assert_int_equal(two.likely_bytes, 544 * MiB);
  assert_int_equal(two.high_bytes, 544 * MiB);
  for (a100.ranks = 3; a100.ranks <= 4; a100.ranks++) {
    tsr_outside_range more = tsr__nccl_bytes(&a100);
    assert_true(more.low_bytes <= 688 * MiB && 688 * MiB <= more.high_bytes);
    /* Rank 0 is the end of each chain: a ring, and what comes back on the chain. */
    assert_int_equal(688 * MiB, 256 * MiB + 24 * (12 + 6) * MiB);
  }
  /* NVIDIA/nccl#1685: 8 H100s: buffers of 10,485,760 and of 2,097,152 bytes; the first all-to-all takes 3.28 GB */
  tsr__nccl_job h100 = {.capability = 90, .has_links = true, .ranks = 8};
  uint64_t before = tsr__nccl_bytes(&h100).likely_bytes;
  h100.peers = 7;
  uint64_t grown = tsr__nccl_bytes(&h100).likely_bytes - before;
  assert_int_equal(grown, UINT64_C(7) * 32 * (10485760 + 2097152));
  assert_true((double)grown > 0.75 * 3.28e9 && (double)grown < 1.25 * 3.28e9);
  /* NVIDIA/nccl#2363: B300s: the buffer for sends of a communicator has 536,870,912 bytes */
  tsr__nccl_job b300 = {.capability = 103, .has_links = true, .ranks = 2, .channels = 1};
  assert_int_equal(tsr__nccl_bytes(&b300).low_bytes, 536870912 + 10485760 + 2097152);
  /* vllm-project/vllm#51485: about 1 GiB a rank of 4: communicators for tensors and for everybody. Cards are not named. */
  /* LUMI-AI-Guide#111: 0.65 GiB for each further communicator of RCCL on 8 MI250Xs */
  tsr__nccl_job amd = {.capability = 94, .has_links = true, .ranks = 8};
  tsr_outside_range rccl = tsr__nccl_bytes(&amd);
  double measured = 0.65 * (double)GiB;
  assert_true((double)rccl.low_bytes < measured && measured < (double)rccl.high_bytes);
}

static void check_order(tsr_outside_range r) {
  assert_true(r.low_bytes <= r.likely_bytes && r.likely_bytes <= r.high_bytes);
}

static void check_grows(tsr__nccl_job before, tsr__nccl_job after) {
  tsr_outside_range a = tsr__nccl_bytes(&before), b = tsr__nccl_bytes(&after);
  check_order(a);
  check_order(b);
  assert_true(a.low_bytes <= b.low_bytes && a.likely_bytes <= b.likely_bytes &&
              a.high_bytes <= b.high_bytes);
}

/* More ranks, peers, channels or larger buffers never take less; fewer than two ranks take nothing. */
static void test_monotone(void **state) {
  (void)state;
  static const uint8_t capabilities[] = {70, 75, 80, 86, 89, 90, 94, 100, 120, 254};
  uint64_t random = 23;
  for (size_t i = 0; i < 4000; i++) {
    tsr__nccl_job job = {.capability = capabilities[next(&random) % sizeof capabilities],
                         .has_links = next(&random) % 2,
                         .ranks = 1 + next(&random) % 7,
                         .peers = next(&random) % 8,
                         .channels = 1 + next(&random) % 31,
                         .simple_bytes = 1 + next(&random) % (8 * MiB),
                         .ll_bytes = 1 + next(&random) % MiB,
                         .ll128_bytes = 1 + next(&random) % (8 * MiB)};
    tsr__nccl_job more = job;
    more.ranks += next(&random) % 2;
    check_grows(job, more);
    more.peers += next(&random) % 3;
    check_grows(job, more);
    more.channels += next(&random) % 3;
    check_grows(job, more);
    more.simple_bytes += next(&random) % MiB;
    check_grows(job, more);
    more.ll_bytes += next(&random) % MiB;
    more.ll128_bytes += next(&random) % MiB;
    check_grows(job, more);
    /* Another machine adds the network. */
    tsr__nccl_job far = more;
    more.ranks_a_machine = far.ranks_a_machine = far.ranks = more.ranks;
    far.ranks *= 2;
    check_grows(more, far);
    job.ranks = next(&random) % 2;
    assert_int_equal(tsr__nccl_bytes(&job).high_bytes, 0);
  }
  /* Numbers without bounds have an end. */
  tsr__nccl_job all = {.capability = 90,
                       .has_links = true,
                       .ranks = UINT64_MAX,
                       .ranks_a_machine = UINT64_MAX,
                       .peers = UINT64_MAX,
                       .channels = UINT64_MAX,
                       .simple_bytes = UINT64_MAX,
                       .ll_bytes = UINT64_MAX,
                       .ll128_bytes = UINT64_MAX};
  check_order(tsr__nccl_bytes(&all));
}

/* ---- cards and limits ---- */

static void test_cards(void **state) {
  (void)state;
  tsr_simulate_options how = {.ranks = 0};
  for (size_t i = 0; tsr__data_sheet_at(i); i++) {
    const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
    uint64_t last = 0;
    assert_true(strlen(tsr__outside_card_source(gpu)) > 0);
    for (how.ranks = 0; how.ranks <= 64; how.ranks++) {
      tsr_outside o = tsr__outside_by_table(gpu, &how);
      check_order(o.whole);
      assert_int_equal(o.whole.high_bytes,
                       o.parts[0].high_bytes + o.parts[1].high_bytes + o.parts[2].high_bytes);
      assert_true(o.whole.high_bytes < o.visible_bytes / 2);
      assert_true((o.parts[TSR_OUTSIDE_NCCL].high_bytes > 0) == (how.ranks > 1));
      if (how.ranks <= 8) assert_true(o.whole.high_bytes >= last);
      last = o.whole.high_bytes;
    }
    how.ranks = 16;
    uint64_t one = tsr__outside_by_table(gpu, &how).whole.likely_bytes;
    how.replicas = 2; /* two communicators */
    assert_true(tsr__outside_by_table(gpu, &how).whole.likely_bytes > one);
    how.replicas = 0;
  }
}

/* A limit is lowered to what a card leaves, and only then. */
static void test_limits(void **state) {
  (void)state;
  uint64_t random = 5;
  size_t count = 0;
  while (tsr__data_sheet_at(count)) count++;
  for (size_t i = 0; i < 6000; i++) {
    const tsr__data_sheet *gpu = tsr__data_sheet_at(next(&random) % count);
    tsr_simulate_options how = {.ranks = next(&random) % 10};
    tsr__outside_question q = {.gpu = gpu, .how = &how};
    tsr_outside o, again;
    char size[32];
    q.limit_bytes = gpu->memory_bytes / 1000 * (1 + next(&random) % 1000);
    assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
    uint64_t left = (uint64_t)gpu->visible_bytes - o.whole.high_bytes;
    assert_int_equal(o.share_bytes, q.limit_bytes < left ? q.limit_bytes : left);
    assert_int_equal(o.asked_bytes, q.limit_bytes);
    /* What is left fits, and is not lowered again. */
    q.limit_bytes = o.share_bytes;
    assert_int_equal(tsr__outside_of(&q, &again, NULL), 0);
    assert_int_equal(again.share_bytes, o.share_bytes);
    /* A size of what was counted is the same question. */
    (void)snprintf(size, sizeof size, "%lluB", (unsigned long long)o.whole.high_bytes);
    q.text = size;
    q.limit_bytes = o.asked_bytes;
    assert_int_equal(tsr__outside_of(&q, &again, NULL), 0);
    assert_int_equal(again.share_bytes, o.share_bytes);
    q.text = "none";
    assert_int_equal(tsr__outside_of(&q, &again, NULL), 0);
    assert_int_equal(again.source, TSR_OUTSIDE_NOT_COUNTED);
    assert_int_equal(again.share_bytes, q.limit_bytes);
  }
}

static void test_inferred(void **state) {
  (void)state;
  tsr_simulate_options how = {.ranks = 0};
  const tsr__data_sheet *a100 = tsr__data_sheet_of_name("a100"),
                        *t4 = tsr__data_sheet_of_name("t4");
  tsr__outside_question q = {.how = &how, .limit_bytes = 24 * GiB};
  tsr_outside o;
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_true(o.is_card_inferred && o.share_bytes < 23 * GiB && o.share_bytes > 22 * GiB);
  for (size_t i = 0; tsr__data_sheet_at(i); i++) { /* no card of that size leaves more */
    const tsr__data_sheet *gpu = tsr__data_sheet_at(i);
    tsr_outside own = tsr__outside_by_table(gpu, &how);
    if (gpu->memory_bytes == 24 * GiB)
      assert_true(own.visible_bytes - own.whole.high_bytes <= o.share_bytes);
  }
  q.limit_bytes = 23 * GiB; /* no card has that */
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_true(o.source == TSR_OUTSIDE_NOT_COUNTED && o.share_bytes == 23 * GiB);
  q.limit_bytes = 80000000000; /* 80GB */
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_true(o.is_card_inferred && o.share_bytes == q.limit_bytes);
  /* The card that a step was traced for counts, unless the limit is that of other cards. */
  q.traced_gpu = a100;
  q.limit_bytes = 24 * GiB;
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_true(o.is_card_inferred && strcmp(o.card, a100->title) != 0);
  q.limit_bytes = 79 * GiB;
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_true(!o.is_card_inferred && strcmp(o.card, a100->title) == 0 && o.share_bytes < 79 * GiB);
  q.limit_bytes = 100 * GiB; /* it is another card */
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_int_equal(o.source, TSR_OUTSIDE_NOT_COUNTED);
  q.limit_bytes = 0;
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_int_equal(o.source, TSR_OUTSIDE_NOT_COUNTED);
  q.gpu = t4;
  how.book = TSR_BOOK_OWN; /* runs on a processor */
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_int_equal(o.source, TSR_OUTSIDE_NOT_COUNTED);
}

static void test_refused(void **state) {
  (void)state;
  static const char *const words[] = {"", "3", "0", "most", "-1GiB", "1GiB,2GiB", "AUTO"};
  tsr_simulate_options how = {.ranks = 0};
  tsr__outside_question q = {.how = &how, .limit_bytes = GiB};
  tsr_outside o = {.asked_bytes = 17};
  tsr_error error;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    q.text = words[i];
    assert_int_equal(tsr__outside_of(&q, &o, &error), TSR_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "takes a size such as"));
  }
  q.text = "1GiB";
  assert_int_equal(tsr__outside_of(&q, &o, &error), TSR_ERROR_ARGUMENT);
  assert_non_null(strstr(error.message, "leaves nothing"));
  assert_int_equal(o.asked_bytes, 17); /* untouched */
}

/* ---- files of what was measured ---- */

#define HEAD "{\"schema\":\"tessera/machine/1\",\"devices\":["

static int parse(const char *text, tsr__machine **out, tsr_error *error) {
  *out = NULL;
  return tsr__machine_parse(text, strlen(text), out, error);
}

static void test_machine(void **state) {
  (void)state;
  static const char text[] = HEAD
      "{\"name\":\"Some other card\",\"context_bytes\":1},"
      "{\"name\":\"Tesla T4\",\"driver\":\"550.54\",\"cuda\":\"12.4\",\"context_bytes\":111,"
      "\"libraries_bytes\":null,\"nccl_bytes_per_communicator\":1000,\"measured_at\":\"today\","
      "\"more\":[1]}]}";
  const tsr__data_sheet *t4 = tsr__data_sheet_of_name("t4");
  tsr_simulate_options how = {.ranks = 4, .replicas = 2};
  tsr__outside_question q = {.how = &how, .gpu = t4};
  tsr_outside o, table = tsr__outside_by_table(t4, &how);
  tsr__machine *machine;
  assert_int_equal(parse(text, &machine, NULL), 0);
  q.machine = machine;
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_int_equal(o.source, TSR_OUTSIDE_MEASURED);
  assert_int_equal(o.parts[TSR_OUTSIDE_CONTEXT].high_bytes, 111);
  assert_int_equal(o.parts[TSR_OUTSIDE_LIBRARIES].high_bytes,
                   table.parts[TSR_OUTSIDE_LIBRARIES].high_bytes); /* null: by the table */
  assert_int_equal(o.parts[TSR_OUTSIDE_NCCL].low_bytes, 2000);
  assert_int_equal(o.parts[TSR_OUTSIDE_NCCL].high_bytes, 3000);
  assert_string_equal(o.measured_at, "today");
  q.gpu = tsr__data_sheet_of_name("l4"); /* another card: by the table */
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_int_equal(o.source, TSR_OUTSIDE_TABLE);
  tsr__machine_free(machine);
  tsr__machine_free(NULL);
}

/* More than the card has is not believed. */
static void test_too_much(void **state) {
  (void)state;
  const tsr__data_sheet *t4 = tsr__data_sheet_of_name("t4");
  tsr_simulate_options how = {.ranks = 0};
  tsr__outside_question q = {.how = &how, .gpu = t4, .limit_bytes = 16 * GiB};
  tsr__machine *machine;
  tsr_outside o;
  assert_int_equal(
      parse(HEAD "{\"name\":\"Tesla T4\",\"context_bytes\":17592186044416}]}", &machine, NULL), 0);
  q.machine = machine;
  assert_int_equal(tsr__outside_of(&q, &o, NULL), 0);
  assert_int_equal(o.source, TSR_OUTSIDE_TABLE);
  tsr__machine_free(machine);
}

static void test_bad_machines(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      "[]",
      "{}",
      "null",
      "{\"schema\":\"tessera/machine/2\",\"devices\":[]}",
      "{\"schema\":\"tessera/machine/1\"}",
      "{\"schema\":\"tessera/machine/1\",\"devices\":{}}",
      HEAD "1]}",
      HEAD "{}]}",
      HEAD "{\"name\":7}]}",
      HEAD "{\"name\":\"a\\nb\"}]}",
      HEAD "{\"name\":\"a\\u0000b\"}]}",
      HEAD "{\"name\":\"T4\",\"context_bytes\":-1}]}",
      HEAD "{\"name\":\"T4\",\"context_bytes\":1.5}]}",
      HEAD "{\"name\":\"T4\",\"context_bytes\":\"1\"}]}",
      HEAD "{\"name\":\"T4\",\"libraries_bytes\":17592186044417}]}",
      HEAD "{\"name\":\"T4\",\"nccl_bytes_per_communicator\":99999999999999999999}]}",
      HEAD "{\"name\":\"T4\",\"measured_at\":3}]}",
      HEAD "{\"name\":\"T4\",\"measured_at\":\"0123456789012345678901234567890123456789\"}]}",
      HEAD "{\"name\":\"T4\"},{\"name\":\"T4\",\"name\":\"T4\"}]}",
      "\xff\xfe"};
  tsr__machine *machine;
  tsr_error error;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int status = parse(texts[i], &machine, &error);
    if (status != TSR_ERROR_FORMAT) fail_msg("%s: %d", texts[i], status);
    assert_null(machine);
    assert_true(strlen(error.message) > 0);
    assert_int_equal(tsr_machine_file_check(texts[i], strlen(texts[i]), NULL), TSR_ERROR_FORMAT);
  }
  static char large[TSR_MACHINE_MOST_BYTES + 1];
  assert_int_equal(tsr__machine_parse(large, sizeof large, &machine, &error), TSR_ERROR_LIMIT);
  char many[TSR_MACHINE_MOST_DEVICES * 20 + 100] = HEAD;
  for (size_t i = 0; i <= TSR_MACHINE_MOST_DEVICES; i++)
    strcat(many, i ? ",{\"name\":\"T4\"}" : "{\"name\":\"T4\"}");
  strcat(many, "]}");
  assert_int_equal(parse(many, &machine, &error), TSR_ERROR_FORMAT);
}

static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *card, *name;
    bool is_same;
  } rows[] = {{"t4", "Tesla T4", true},
              {"t4", "NVIDIA T4", true},
              {"t4", "NVIDIA T400", false},
              {"v100", "Tesla V100-SXM2-32GB", true},
              {"v100", "Tesla V100-SXM2-16GB", false},
              {"l4", "NVIDIA L4", true},
              {"l4", "NVIDIA L40S", false},
              {"a10", "NVIDIA A10", true},
              {"a10", "NVIDIA A10G", false},
              {"a100-40", "NVIDIA A100-SXM4-40GB", true},
              {"a100", "NVIDIA A100-SXM4-40GB", false},
              {"a100", "NVIDIA A100-SXM4-80GB", true},
              {"a100", "NVIDIA A100 80GB PCIe", false},
              {"h100", "NVIDIA H100 80GB HBM3", true},
              {"h100", "NVIDIA H100 NVL", false},
              {"h100", "NVIDIA H100 PCIe", false},
              {"h200", "NVIDIA H200", true},
              {"b200", "NVIDIA B200", true},
              {"mi300x", "AMD Instinct MI300X", true},
              {"rtx4090", "NVIDIA GeForce RTX 4090", true},
              {"rtx4090", "NVIDIA GeForce RTX 4090 Laptop GPU", false},
              {"rtx5070", "NVIDIA GeForce RTX 5070 Ti", false},
              {"rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", true},
              {"rtx5090", "", false},
              {"h100", "", false},
              {"h100", "a-very-long-word-without-any-end-that-goes-on-and-on h100", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (tsr__card_is_called(tsr__data_sheet_of_name(rows[i].card), rows[i].name) != rows[i].is_same)
      fail_msg("%s: %s", rows[i].card, rows[i].name);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_counted),  cmocka_unit_test(test_published),
      cmocka_unit_test(test_monotone), cmocka_unit_test(test_cards),
      cmocka_unit_test(test_limits),   cmocka_unit_test(test_inferred),
      cmocka_unit_test(test_refused),  cmocka_unit_test(test_machine),
      cmocka_unit_test(test_too_much), cmocka_unit_test(test_bad_machines),
      cmocka_unit_test(test_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
