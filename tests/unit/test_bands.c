/* Bands equal those of a naive model, which keeps every allocation of every band in a list and
 * looks through all of it each time. */
#include "questions/profile/bands.h"

#include "test_support.h"

enum { OPERATIONS = 4000, ALLOCATIONS_MOST = OPERATIONS };

/* ---- the naive model ---- */

typedef struct naive_band {
  uint32_t group;
  int64_t birth_event;
  uint32_t members[ALLOCATIONS_MOST];
  size_t member_count;
} naive_band;

typedef struct naive {
  naive_band *bands[ALLOCATIONS_MOST]; /* bottom first */
  size_t count;
} naive;

static void naive_take(naive *n, uint32_t allocation, uint32_t group, int64_t event) {
  if (!n->count || n->bands[n->count - 1]->group != group) {
    naive_band *band = TSR__NEW(naive_band);
    assert_non_null(band);
    band->group = group;
    band->birth_event = event;
    n->bands[n->count++] = band;
  }
  naive_band *top = n->bands[n->count - 1];
  top->members[top->member_count++] = allocation;
}

static void naive_drop_band(naive *n, size_t at) {
  tsr__free(n->bands[at]);
  n->count--;
  for (size_t i = at; i < n->count; i++) n->bands[i] = n->bands[i + 1];
}

static void naive_join(naive *n, size_t lower) {
  naive_band *into = n->bands[lower], *part = n->bands[lower + 1];
  for (size_t i = 0; i < part->member_count; i++)
    into->members[into->member_count++] = part->members[i];
  naive_drop_band(n, lower + 1);
}

static void naive_free(naive *n, uint32_t allocation) {
  for (size_t b = 0; b < n->count; b++)
    for (size_t i = 0; i < n->bands[b]->member_count; i++) {
      naive_band *band = n->bands[b];
      if (band->members[i] != allocation) continue;
      band->members[i] = band->members[--band->member_count];
      if (band->member_count) return;
      naive_drop_band(n, b);
      if (b > 0 && b < n->count && n->bands[b - 1]->group == n->bands[b]->group)
        naive_join(n, b - 1);
      return;
    }
  fail_msg("the model lost an allocation");
}

/* ---- the two together ---- */

typedef struct run {
  tsr__bands bands;
  naive naive;
  uint32_t ticket[ALLOCATIONS_MOST], live[ALLOCATIONS_MOST];
  uint64_t bytes[ALLOCATIONS_MOST];
  size_t made, live_count, ends;
  uint64_t random;
} run;

static uint32_t dice(run *r, uint32_t sides) {
  r->random = r->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (uint32_t)(r->random >> 33) % sides;
}

static void compare(const run *r) {
  uint32_t b = r->bands.bottom, below = TSR_NONE;
  for (size_t i = 0; i < r->naive.count; i++) {
    const naive_band *want = r->naive.bands[i];
    assert_true(b != TSR_NONE);
    const tsr__band *got = &r->bands.items.items[b];
    uint64_t bytes = 0;
    for (size_t k = 0; k < want->member_count; k++) bytes += r->bytes[want->members[k]];
    assert_int_equal(got->group, want->group);
    assert_int_equal(got->allocations, want->member_count);
    assert_int_equal(got->bytes, bytes);
    assert_int_equal(got->birth_event, want->birth_event);
    assert_true(got->peak_bytes >= bytes);
    assert_int_equal(got->below, below);
    below = b;
    b = got->above;
  }
  assert_int_equal(b, TSR_NONE);
  assert_int_equal(r->bands.top, below);
}

static void count_end(void *context, const tsr__band *band, int64_t event) {
  run *r = context;
  assert_true(band->birth_event <= event);
  r->ends++;
}

/* Take one, or free one of those that are live; with a target of 0, free one. */
static void step(run *r, int64_t event, uint32_t groups, uint32_t live_target) {
  if (live_target && (r->live_count == 0 || dice(r, 2 * live_target) > r->live_count)) {
    uint32_t allocation = (uint32_t)r->made++, group = dice(r, groups);
    r->bytes[allocation] = 1 + dice(r, 1000);
    r->ticket[allocation] = tsr__bands_take(&r->bands, group, r->bytes[allocation], event);
    assert_int_not_equal(r->ticket[allocation], TSR_NONE);
    naive_take(&r->naive, allocation, group, event);
    r->live[r->live_count++] = allocation;
    return;
  }
  uint32_t at = dice(r, (uint32_t)r->live_count), allocation = r->live[at];
  r->live[at] = r->live[--r->live_count];
  tsr__bands_free(&r->bands, r->ticket[allocation], r->bytes[allocation], event);
  naive_free(&r->naive, allocation);
}

static void as_the_naive_model(void **state) {
  (void)state;
  for (uint32_t seed = 0; seed < 6; seed++) {
    run *r = TSR__NEW(run);
    assert_non_null(r);
    r->random = seed + 1;
    r->bands = TSR__BANDS_EMPTY;
    r->bands.on_end = count_end;
    r->bands.context = r;
    size_t most = 0;
    for (int64_t event = 0; event < OPERATIONS; event++) {
      step(r, event, 2 + seed % 3, seed < 3 ? 12 : 200);
      compare(r);
      if (r->naive.count > most) most = r->naive.count;
    }
    while (r->live_count) step(r, OPERATIONS, 1, 0);
    compare(r);
    assert_true(r->ends > 100);
    /* Bands that ended are used again: absorbed ones only wait for the last of their tree. */
    assert_true(r->bands.items.count < r->ends);
    if (seed < 3) assert_true(r->bands.items.count <= 3 * most);
    tsr__bands_release(&r->bands);
    tsr__free(r);
  }
}

/* One and the same allocation, freed and taken a million times, needs one band. */
static void memory_does_not_grow(void **state) {
  (void)state;
  tsr__bands bands = TSR__BANDS_EMPTY;
  uint32_t base = tsr__bands_take(&bands, 0, 5, 0);
  for (int64_t event = 1; event < 100000; event++)
    tsr__bands_free(&bands, tsr__bands_take(&bands, 1 + (uint32_t)event % 2, 7, event), 7, event);
  assert_int_equal(bands.items.count, 2);
  tsr__bands_free(&bands, base, 5, 100000);
  assert_int_equal(bands.bottom, TSR_NONE);
  assert_int_equal(bands.top, TSR_NONE);
  tsr__bands_release(&bands);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_the_naive_model),
      cmocka_unit_test(memory_does_not_grow),
  };
  return cmocka_run_group_tests_name("bands", tests, NULL, NULL);
}
