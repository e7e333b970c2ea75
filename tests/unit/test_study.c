/* Tests of study/study.c: each derivation is made once, whatever asks for it, in however many threads.
 *
 * Under ThreadSanitizer (./run test) the tests with threads also look for races. */
#include "study/study.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "tessera/tessera.h"
#include "tessera/unstable/unstable.h"
#include "training_trace.h"

/* Long enough for a study to make a pool: several thousand steps of a small model. */
enum { LONG_STEPS = 4000 };

static tsr_study *study_of(const tsr_snapshot *snapshot) {
  tsr_study *study = NULL;
  assert_int_equal(tsr_study_new(snapshot, &study, NULL), 0);
  assert_ptr_equal(tsr_study_snapshot(study), snapshot);
  return study;
}

static tsr_snapshot *short_run(void) {
  return training_snapshot(&(training){.layers = 3, .steps = 4, .annotates = true});
}

/* ---- every question ---- */

#define ASK(name, ...)                                                            \
  static void ask_##name(tsr_study *study) {                                      \
    tsr_##name *answer = NULL;                                                    \
    assert_int_equal(tsr_##name##_compute(study, __VA_ARGS__, &answer, NULL), 0); \
    tsr_##name##_free(answer);                                                    \
  }
static const tsr_at_where third_event = {.kind = TSR_AT_EVENT, .event = 3};
static const tsr_weigh_options first_events = {.what = TSR_WEIGH_WINDOW,
                                               .window = {.first = 0, .last = 20}};
static const tsr_check_limit limits[] = {{TSR_CHECK_MAX_CATEGORY, TSR_CATEGORY_ACTIVATION, 1}};
static const tsr_check_options budget = {.limits = limits, .limit_count = 1};
static const tsr_source_file source_file = {"train.py", "def f():\n  pass\n", 17};
static const tsr_profile_options by_annotation = {.by = TSR_PROFILE_BY_ANNOTATION};
ASK(info, NULL)
ASK(peak, NULL)
ASK(at, &third_event, NULL)
ASK(why, NULL, NULL)
ASK(whatif, NULL, NULL)
ASK(stages, NULL, NULL)
ASK(steps, NULL)
ASK(leaks, NULL)
ASK(profile, NULL, NULL)
ASK(check, &budget, NULL)
ASK(source, &source_file, NULL)
ASK(lives, NULL)
ASK(weights, &first_events, NULL)
ASK(view, NULL, NULL)
ASK(mosaic_peak, NULL)

static void ask_diff(tsr_study *study) {
  tsr_diff *answer = NULL;
  assert_int_equal(tsr_diff_compute(study, study, TSR_DIFF_BY_LINE, NULL, &answer, NULL), 0);
  tsr_diff_free(answer);
}

static void ask_annotations(tsr_study *study) {
  tsr_profile *answer = NULL;
  assert_int_equal(tsr_profile_compute(study, &by_annotation, NULL, &answer, NULL), 0);
  tsr_profile_free(answer);
}

static void ask_trim(tsr_study *study) {
  tsr_window window = {.first = 2, .last = 30};
  tsr_snapshot *part = NULL;
  assert_int_equal(tsr_snapshot_trim(study, &window, NULL, &part, NULL), 0);
  tsr_snapshot_free(part);
}

typedef void question(tsr_study *study);

static question *const questions[] = {
    ask_info,    ask_peak,  ask_at,      ask_why,         ask_whatif, ask_stages,
    ask_steps,   ask_leaks, ask_profile, ask_check,       ask_source, ask_lives,
    ask_weights, ask_view,  ask_diff,    ask_annotations, ask_trim,   ask_mosaic_peak,
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

/* Mosaic counts for itself, by its own rules: the last question replays nothing. */
static void one_replay_a_question(void **state) {
  (void)state;
  tsr_snapshot *snapshot = short_run();
  for (size_t i = 0; i < QUESTIONS; i++) {
    tsr_study *study = study_of(snapshot);
    questions[i](study);
    assert_int_equal(tsr__study_replay_count(study, 0), questions[i] != ask_mosaic_peak);
    questions[i](study);
    assert_int_equal(tsr__study_replay_total(study), questions[i] != ask_mosaic_peak);
    tsr_study_free(study);
  }
  tsr_snapshot_free(snapshot);
}

/* `info` needs more than others: as the first it has its replay shared, later it adds one. */
static void one_replay_for_all(void **state) {
  (void)state;
  tsr_snapshot *snapshot = short_run();
  tsr_study *study = study_of(snapshot);
  for (size_t i = 0; i < QUESTIONS; i++) questions[i](study);
  assert_int_equal(tsr__study_replay_count(study, 0), 1);
  tsr_study_free(study);
  study = study_of(snapshot);
  for (size_t i = QUESTIONS; i-- > 0;) questions[i](study);
  assert_int_equal(tsr__study_replay_count(study, 0), 2);
  tsr_study_free(study);
  tsr_snapshot_free(snapshot);
}

/* The check of a replay is the same, whether it came with the timeline or after it. */
static void the_check_of_either_replay(void **state) {
  (void)state;
  tsr_snapshot *snapshot = short_run();
  tsr_study *first = study_of(snapshot), *later = study_of(snapshot);
  tsr_replay_check checks[2];
  const tsr__timeline *timeline;
  assert_int_equal(tsr__study_replay_check(first, 0, &checks[0], NULL), 0);
  assert_int_equal(tsr__study_timeline(later, 0, &timeline, NULL), 0);
  assert_int_equal(tsr__study_replay_check(later, 0, &checks[1], NULL), 0);
  assert_memory_equal(&checks[0], &checks[1], sizeof checks[0]);
  assert_true(checks[0].reused + checks[0].segments_new > 0);
  tsr_study_free(first);
  tsr_study_free(later);
  tsr_snapshot_free(snapshot);
}

/* ---- what is kept ---- */

/* Asking again returns the same object, and studies of one snapshot do not share. */
static void values_are_kept(void **state) {
  (void)state;
  tsr_snapshot *snapshot = short_run();
  tsr_study *study = study_of(snapshot), *other = study_of(snapshot);
  const tsr__roles *roles[3];
  const tsr__categories *categories[3];
  const tsr__labels *labels[2];
  tsr_study *const asked[3] = {study, study, other};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(tsr__study_categories(asked[i], 0, &categories[i], NULL), 0);
    assert_int_equal(tsr__study_roles(asked[i], &roles[i], NULL), 0);
  }
  assert_ptr_equal(roles[0], roles[1]);
  assert_ptr_equal(categories[0], categories[1]);
  assert_ptr_not_equal(roles[0], roles[2]);
  assert_ptr_not_equal(categories[0], categories[2]);
  assert_int_equal(tsr__study_labels(study, TSR__LABEL_OP, &labels[0], NULL), 0);
  assert_int_equal(tsr__study_labels(study, TSR__LABEL_LINE, &labels[1], NULL), 0);
  assert_ptr_not_equal(labels[0], labels[1]);
  tsr_study_free(study);
  tsr_study_free(other);
  tsr_snapshot_free(snapshot);
}

static void a_study_without_questions(void **state) {
  (void)state;
  tsr_snapshot *snapshot = NULL;
  const char *empty = "{\"segments\": [], \"device_traces\": []}";
  assert_int_equal(tsr_snapshot_read(empty, strlen(empty), NULL, &snapshot, NULL), 0);
  tsr_study *study = study_of(snapshot);
  assert_int_equal(tsr__study_replay_total(study), 0);
  ask_peak(study); /* of no device */
  assert_int_equal(tsr__study_replay_total(study), 0);
  tsr_study_free(study);
  tsr_study_free(NULL);
  tsr_snapshot_free(snapshot);
}

/* ---- threads ---- */

typedef struct asker {
  tsr_study *study;
  size_t first;
} asker;

static void ask_all(void *context) {
  const asker *a = context;
  for (size_t i = 0; i < QUESTIONS; i++)
    if (questions[(a->first + i) % QUESTIONS] != ask_info)
      questions[(a->first + i) % QUESTIONS](a->study);
}

static void check_threads(const tsr_snapshot *snapshot) {
  enum { THREADS = 4 };
  tsr_study *study = study_of(snapshot);
  asker askers[THREADS];
  tsr__os_thread *threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    askers[i] = (asker){study, i * 5};
    threads[i] = tsr__os_thread_start(ask_all, &askers[i]);
    assert_non_null(threads[i]);
  }
  for (size_t i = 0; i < THREADS; i++) tsr__os_thread_join(threads[i]);
  assert_int_equal(tsr__study_replay_count(study, 0), 1);
  tsr_study_free(study);
}

static void threads_share_a_study(void **state) {
  (void)state;
  tsr_snapshot *snapshot = short_run();
  for (int round = 0; round < 10; round++) check_threads(snapshot);
  tsr_snapshot_free(snapshot);
}

/* A long trace brings the study's own threads in. What they make is what one thread makes. */
static void a_pool_makes_the_same(void **state) {
  (void)state;
  tsr_snapshot *snapshot = training_snapshot(&(training){.layers = 2, .steps = LONG_STEPS});
  assert_true(tsr_snapshot_events(snapshot, 0).count > 1 << 16);
  const uint32_t device = 0;
  const tsr__categories *a, *b;
  const tsr__cycle *with, *without;
  tsr_study *alone = study_of(snapshot), *pooled = study_of(snapshot);
  unsigned needs = TSR__NEED_CATEGORIES | TSR__NEED_CYCLE | TSR__NEED_PLACES;
  assert_int_equal(tsr__study_prepare(pooled, &device, 1, needs, NULL), 0);
  assert_int_equal(tsr__study_replay_total(pooled), 1);
  assert_int_equal(tsr__study_categories(pooled, 0, &a, NULL), 0);
  assert_int_equal(tsr__study_categories(alone, 0, &b, NULL), 0);
  assert_int_equal(a->count, b->count);
  assert_memory_equal(a->category, b->category, a->count);
  assert_memory_equal(a->evidence, b->evidence, a->count);
  assert_int_equal(tsr__study_cycle(pooled, 0, &with, NULL), 0);
  assert_int_equal(tsr__study_cycle(alone, 0, &without, NULL), 0);
  assert_int_equal(with->steps.count, without->steps.count);
  assert_int_equal(tsr__study_replay_total(pooled), 1);
  tsr_study_free(alone);
  tsr_study_free(pooled);
  tsr_snapshot_free(snapshot);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_replay_a_question),      cmocka_unit_test(one_replay_for_all),
      cmocka_unit_test(the_check_of_either_replay), cmocka_unit_test(values_are_kept),
      cmocka_unit_test(a_study_without_questions),  cmocka_unit_test(threads_share_a_study),
      cmocka_unit_test(a_pool_makes_the_same),
  };
  return cmocka_run_group_tests_name("study", tests, NULL, NULL);
}
