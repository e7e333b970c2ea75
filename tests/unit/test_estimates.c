/* Formulas of others give what they print. */
#include "tessera/unstable/estimates.h"

#include <math.h>
#include <string.h>

#include "test_support.h"

static const double giga = 1e9, gib = 1 << 30, mib = 1 << 20;

static tsr_estimate of(const char *source, const char *what, double parameters, double largest,
                       uint64_t cards) {
  tsr_estimate all[TSR_ESTIMATES];
  tsr_estimate_question q = {.parameters = (uint64_t)parameters,
                             .largest_layer = (uint64_t)largest,
                             .cards = cards,
                             .cards_a_node = cards};
  tsr_estimates(&q, all);
  for (size_t i = 0; i < TSR_ESTIMATES; i++)
    if (strcmp(all[i].source, source) == 0 && strcmp(all[i].what, what) == 0) return all[i];
  fail_msg("no estimate %s, %s", source, what);
  return all[0];
}

/* To the digits that are printed. */
static void same(double found, double printed, double last_digit) {
  if (!(fabs(found - printed) <= last_digit * 0.5000001))
    fail_msg("%.4f is not %.4f", found, printed);
}

/* Table 1 of the paper: GB for each card, stages 1, 2 and 3. */
static void test_zero(void **state) {
  static const struct {
    double parameters;
    uint64_t cards;
    double stages[3], digits[3];
  } rows[] = {{7.5e9, 4, {52.5, 41.3, 30}, {0.1, 0.1, 1}},
              {7.5e9, 16, {35.6, 21.6, 7.5}, {0.1, 0.1, 0.1}},
              {7.5e9, 64, {31.4, 16.6, 1.88}, {0.1, 0.1, 0.01}},
              {7.5e9, 1024, {30.1, 15.1, 0.12}, {0.1, 0.1, 0.01}},
              {1e12, 64, {4187, 2218, 250}, {1, 2, 1}}, /* the paper cuts 2218.75 */
              {1e12, 1024, {4011, 2013, 15.6}, {2, 2, 0.1}}};
  static const char *const names[] = {"stage 1", "stage 2", "stage 3"};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (size_t k = 0; k < 3; k++)
      same(of("ZeRO paper", names[k], rows[i].parameters, 0, rows[i].cards).device_bytes / giga,
           rows[i].stages[k], rows[i].digits[k]);
  same(of("ZeRO paper", "no sharding", 7.5e9, 0, 64).device_bytes / giga, 120, 1);
  same(of("ZeRO paper", "stage 2", 1e9, 0, 4).device_bytes / giga, 5.5, 0.1);
}

/* What DeepSpeed's documentation prints for 2851 M parameters, the largest layer 32 M, on 8 cards. */
static void test_deepspeed(void **state) {
  (void)state;
  tsr_estimate all = of("DeepSpeed", "ZeRO-3, all on the host", 2851e6, 32e6, 8);
  tsr_estimate some = of("DeepSpeed", "ZeRO-3, optimizer on the host", 2851e6, 32e6, 8);
  tsr_estimate none = of("DeepSpeed", "ZeRO-3", 2851e6, 32e6, 8);
  same(all.host_bytes / gib, 71.69, 0.02); /* their count of parameters is rounded in print */
  same(all.device_bytes / gib, 0.12, 0.01);
  same(some.host_bytes / gib, 63.72, 0.02);
  same(some.device_bytes / gib, 0.78, 0.01);
  same(none.host_bytes / gib, 1.43, 0.01);
  same(none.device_bytes / gib, 6.09, 0.01);
  same(of("DeepSpeed", "ZeRO-2", 2851e6, 32e6, 8).device_bytes / gib, 11.28, 0.02);
}

/* Another of its examples: 737.67 M parameters, the largest layer 32.90 M, on 4 cards. */
static void test_deepspeed_small(void **state) {
  (void)state;
  const double parameters = 737.67e6, largest = 32.90e6;
  same(of("DeepSpeed", "ZeRO-3", parameters, largest, 4).device_bytes / mib, 3291, 2);
  same(of("DeepSpeed", "ZeRO-3, all on the host", parameters, largest, 4).device_bytes / mib, 125.5,
       1);
  same(of("DeepSpeed", "ZeRO-3, optimizer on the host", parameters, largest, 4).device_bytes / mib,
       477, 1);
}

static void test_others(void **state) {
  (void)state;
  same(of("Megatron-LM", "bf16, fp32 gradients", 1e9, 0, 8).device_bytes / giga, 18, 1);
  same(of("Megatron-LM", "the same, distributed optimizer", 1e9, 0, 8).device_bytes / giga, 7.5,
       0.1);
  same(of("ZeRO-Offload", "optimizer and gradients", 1e9, 0, 1).device_bytes / giga, 2, 1);
  same(of("DeepSpeed", "buckets of ZeRO-1 and 2", 1e9, 0, 8).device_bytes / giga, 9, 1);
}

/* GPT-3's shape, for which Korthikanti et al. give 34 + 80 and, with 8 cards for each layer, 23 and 14.25. */
static void test_activations(void **state) {
  tsr_estimate all[TSR_ESTIMATES];
  tsr_estimate_question q = {.parameters = 1,
                             .cards = 8,
                             .cards_a_node = 8,
                             .sizes = {.vocabulary = 50257,
                                       .layers = 96,
                                       .width = 12288,
                                       .inner = 4 * 12288,
                                       .heads = 96,
                                       .kv_heads = 96,
                                       .head_width = 128},
                             .batch = 1,
                             .sequence = 2048,
                             .tensor_cards = 8,
                             .adapter_rank = 4};
  const double unit = 2048.0 * 12288 * 96, expected[] = {114, 34, 23, 14.25, 13, 4.25, 2};
  size_t found = 0;
  (void)state;
  tsr_estimates(&q, all);
  for (size_t i = 0; i < TSR_ESTIMATES; i++) {
    assert_true(all[i].device_bytes > 0 || all[i].host_bytes > 0);
    if (strcmp(all[i].source, "Megatron paper") == 0)
      same(all[i].device_bytes / unit, expected[found++], 1e-9);
  }
  assert_int_equal(found, 7);
  q.tensor_cards = 0; /* nothing is divided, and four rows are gone */
  q.adapter_rank = 0; /* one more */
  tsr_estimates(&q, all);
  size_t absent = 0;
  for (size_t i = 0; i < TSR_ESTIMATES; i++)
    absent += !(all[i].device_bytes > 0) && !(all[i].host_bytes > 0);
  assert_int_equal(absent, 4 + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zero),
      cmocka_unit_test(test_deepspeed),
      cmocka_unit_test(test_deepspeed_small),
      cmocka_unit_test(test_others),
      cmocka_unit_test(test_activations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
