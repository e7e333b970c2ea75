/* study.c - see study.h.
 *
 *   study ──► shared: one slot for each derivation of the whole snapshot
 *         └─► devices[]: the same for each device, ascending like the snapshot's own list
 *
 * A slot is a value and the tsr__once that shows whether it has been made. A derivation that needs
 * others asks for them through their accessors inside its own `make`, so the arrows of study.h are
 * the order in which threads wait for each other; they form no circle, and nobody can wait forever.
 *
 * Invariant: a slot's value is zeroed until its once is ready, and constant from then on. Every value
 * may be released when zeroed, so that release needs no cases.
 *
 * Threads help only where they pay: a pool is made for snapshots with at least POOL_EVENTS_MIN
 * events, on the first tsr__study_prepare that has two things to do at once. */
#include "study/study.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "base/once.h"

/* Starting a thread costs about as much as replaying a few thousand events. */
enum { POOL_EVENTS_MIN = 1 << 16 };

enum { LABEL_KINDS = TSR__LABEL_STACK + 1 };

typedef enum shared_slot {
  SLOT_ROLES,
  SLOT_PLACES,
  SLOT_MOSAIC,
  SLOT_POOL,
  SLOT_LABELS, /* and so on, one for each kind */
  SHARED_SLOTS = SLOT_LABELS + LABEL_KINDS
} shared_slot;

typedef enum device_slot {
  SLOT_TIMELINE,
  SLOT_CHECK,
  SLOT_PHASES,
  SLOT_CYCLE,
  SLOT_NAMES,
  SLOT_CATEGORIES,
  SLOT_ANNOTATIONS,
  SLOT_FINDINGS,
  DEVICE_SLOTS
} device_slot;

typedef struct device_study {
  tsr_study *study;
  uint32_t device;
  _Atomic uint64_t replay_count;
  atomic_bool wants_check; /* somebody waits for `check`: the replay may as well find it */
  tsr__once once[DEVICE_SLOTS];
  size_t once_count; /* those initialised */
  tsr__timeline timeline;
  bool is_checked; /* the timeline's own check is filled; constant once the timeline is there */
  tsr_replay_check check;
  tsr__phases phases;
  tsr__cycle cycle;
  tsr__names names;
  tsr__categories categories;
  tsr__annotations annotations;
  tsr__findings findings;
} device_study;

struct tsr_study {
  const tsr_snapshot *snapshot; /* not owned */
  uint64_t event_count;         /* of all devices */
  tsr__once once[SHARED_SLOTS];
  size_t once_count; /* those initialised */
  tsr__roles roles;
  tsr__places places;
  tsr__mosaic_categories mosaic;
  tsr__labels labels[LABEL_KINDS];
  tsr__thread_pool *pool; /* or NULL, also when made: one processor, or too little to do */
  device_study *devices;
  size_t device_count;
};

/* ---- life ---- */

static bool init_onces(tsr__once *onces, size_t count, size_t *done) {
  while (*done < count && tsr__once_init(&onces[*done])) ++*done;
  return *done == count;
}

static void release_onces(tsr__once *onces, size_t count) {
  for (size_t i = 0; i < count; i++) tsr__once_release(&onces[i]);
}

static void release_device(device_study *d) {
  tsr__findings_release(&d->findings);
  tsr__annotations_release(&d->annotations);
  tsr__categories_release(&d->categories);
  tsr__names_release(&d->names);
  tsr__cycle_release(&d->cycle);
  tsr__phases_release(&d->phases);
  tsr__timeline_release(&d->timeline);
  release_onces(d->once, d->once_count);
}

void tsr_study_free(tsr_study *study) {
  if (!study) return;
  tsr__thread_pool_free(study->pool);
  for (size_t i = 0; i < study->device_count; i++) release_device(&study->devices[i]);
  for (size_t i = 0; i < LABEL_KINDS; i++) tsr__labels_release(&study->labels[i]);
  tsr__mosaic_categories_release(&study->mosaic);
  tsr__places_release(&study->places);
  tsr__roles_release(&study->roles);
  release_onces(study->once, study->once_count);
  tsr__free(study->devices);
  tsr__free(study);
}

int tsr_study_new(const tsr_snapshot *snapshot, tsr_study **out, tsr_error *error) {
  assert(snapshot && out);
  size_t count;
  const uint32_t *devices = tsr_snapshot_devices(snapshot, &count);
  tsr_study *study = TSR__NEW(tsr_study);
  if (!study) return tsr__fail_memory(error);
  study->snapshot = snapshot;
  study->devices = TSR__NEW_ARRAY(device_study, count);
  bool ok = study->devices && init_onces(study->once, SHARED_SLOTS, &study->once_count);
  for (size_t i = 0; ok && i < count; i++) {
    device_study *d = &study->devices[study->device_count++];
    assert(!i || devices[i - 1] < devices[i]); /* so that device_of may search */
    d->study = study;
    d->device = devices[i];
    study->event_count += tsr_snapshot_events(snapshot, devices[i]).count;
    ok = init_onces(d->once, DEVICE_SLOTS, &d->once_count);
  }
  if (!ok) {
    tsr_study_free(study);
    return tsr__fail_memory(error);
  }
  *out = study;
  return 0;
}

const tsr_snapshot *tsr_study_snapshot(const tsr_study *study) {
  return study->snapshot;
}

static device_study *device_of(const tsr_study *study, uint32_t device) {
  size_t low = 0, high = study->device_count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (study->devices[middle].device <= device)
      low = middle;
    else
      high = middle;
  }
  assert(high > low && study->devices[low].device == device);
  return &study->devices[low];
}

/* ---- of the whole snapshot ---- */

static int make_roles(void *context, tsr_error *error) {
  tsr_study *study = context;
  int status = tsr__roles_compute(study->snapshot, &study->roles, error);
  assert(status || study->roles.count == tsr_snapshot_stack_count(study->snapshot));
  return status;
}

int tsr__study_roles(tsr_study *study, const tsr__roles **out, tsr_error *error) {
  int status = tsr__once_run(&study->once[SLOT_ROLES], make_roles, study, error);
  if (!status) *out = &study->roles;
  return status;
}

static int make_places(void *context, tsr_error *error) {
  tsr_study *study = context;
  tsr__places places = {0};
  int status = tsr__places_compute(study->snapshot, &places, error);
  assert(status || places.stack_count == tsr_snapshot_stack_count(study->snapshot));
  if (status)
    tsr__places_release(&places);
  else
    study->places = places;
  return status;
}

int tsr__study_places(tsr_study *study, const tsr__places **out, tsr_error *error) {
  int status = tsr__once_run(&study->once[SLOT_PLACES], make_places, study, error);
  if (!status) *out = &study->places;
  return status;
}

static int make_mosaic(void *context, tsr_error *error) {
  tsr_study *study = context;
  int status = tsr__mosaic_categories_compute(study->snapshot, &study->mosaic, error);
  assert(status || study->mosaic.count == tsr_snapshot_stack_count(study->snapshot));
  return status;
}

int tsr__study_mosaic_categories(tsr_study *study, const tsr__mosaic_categories **out,
                                 tsr_error *error) {
  int status = tsr__once_run(&study->once[SLOT_MOSAIC], make_mosaic, study, error);
  if (!status) *out = &study->mosaic;
  return status;
}

static int make_label(tsr_study *study, tsr__label_kind kind, tsr_error *error) {
  const tsr__roles *roles;
  tsr__labels labels = {0};
  int status = tsr__study_roles(study, &roles, error);
  if (!status) status = tsr__labels_compute(study->snapshot, roles, kind, &labels, error);
  assert(status || labels.count == tsr_snapshot_stack_count(study->snapshot));
  if (status)
    tsr__labels_release(&labels);
  else
    study->labels[kind] = labels;
  return status;
}

static int make_ops(void *study, tsr_error *error) {
  return make_label(study, TSR__LABEL_OP, error);
}
static int make_modules(void *study, tsr_error *error) {
  return make_label(study, TSR__LABEL_MODULE, error);
}
static int make_lines(void *study, tsr_error *error) {
  return make_label(study, TSR__LABEL_LINE, error);
}
static int make_stacks(void *study, tsr_error *error) {
  return make_label(study, TSR__LABEL_STACK, error);
}

int tsr__study_labels(tsr_study *study, tsr__label_kind kind, const tsr__labels **out,
                      tsr_error *error) {
  static int (*const makers[LABEL_KINDS])(void *,
                                          tsr_error *) = {[TSR__LABEL_OP] = make_ops,
                                                          [TSR__LABEL_MODULE] = make_modules,
                                                          [TSR__LABEL_LINE] = make_lines,
                                                          [TSR__LABEL_STACK] = make_stacks};
  assert((unsigned)kind < LABEL_KINDS);
  int status = tsr__once_run(&study->once[SLOT_LABELS + kind], makers[kind], study, error);
  if (!status) *out = &study->labels[kind];
  return status;
}

/* ---- of a device ---- */

static int replay(device_study *d, bool checks_placement, tsr__timeline *out, tsr_error *error) {
  atomic_fetch_add_explicit(&d->replay_count, 1, memory_order_relaxed);
  int status = tsr__timeline_compute(d->study->snapshot, d->device, checks_placement,
                                     tsr__study_pool(d->study), out, error);
  assert(status || (out->device == d->device && out->birth.count == out->death.count &&
                    out->birth.count == out->block_bytes.count));
  return status;
}

static int make_timeline(void *context, tsr_error *error) {
  device_study *d = context;
  d->is_checked = atomic_load(&d->wants_check);
  return replay(d, d->is_checked, &d->timeline, error);
}

int tsr__study_timeline(tsr_study *study, uint32_t device, const tsr__timeline **out,
                        tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_TIMELINE], make_timeline, d, error);
  if (!status) *out = &d->timeline;
  return status;
}

static int make_check(void *context, tsr_error *error) {
  device_study *d = context;
  const tsr__timeline *timeline;
  tsr__timeline again = {0};
  atomic_store(&d->wants_check, true);
  int status = tsr__study_timeline(d->study, d->device, &timeline, error);
  if (status) return status;
  if (d->is_checked) {
    d->check = timeline->check;
    return 0;
  }
  status = replay(d, true, &again, error);
  if (status) return status;
  d->check = again.check;
  assert(d->check.final_blocks == timeline->check.final_blocks);
  tsr__timeline_release(&again);
  return 0;
}

int tsr__study_replay_check(tsr_study *study, uint32_t device, tsr_replay_check *out,
                            tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_CHECK], make_check, d, error);
  if (!status) *out = d->check;
  return status;
}

static int make_phases(void *context, tsr_error *error) {
  device_study *d = context;
  const tsr__roles *roles;
  tsr_events events = tsr_snapshot_events(d->study->snapshot, d->device);
  int status = tsr__study_roles(d->study, &roles, error);
  if (status) return status;
  return tsr__phases_compute(d->study->snapshot, roles, &events, &d->phases, error);
}

int tsr__study_phases(tsr_study *study, uint32_t device, const tsr__phases **out,
                      tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_PHASES], make_phases, d, error);
  if (!status) *out = &d->phases;
  return status;
}

/* What categories and steps are computed from. */
typedef struct sources {
  const tsr__timeline *timeline;
  const tsr__roles *roles;
  const tsr__phases *phases;
} sources;

/* The longest first: while another thread makes the roles, this one replays instead of waiting. */
static int ask_sources(device_study *d, sources *out, tsr_error *error) {
  int status = tsr__study_timeline(d->study, d->device, &out->timeline, error);
  if (!status) status = tsr__study_roles(d->study, &out->roles, error);
  if (!status) status = tsr__study_phases(d->study, d->device, &out->phases, error);
  return status;
}

static int make_cycle(void *context, tsr_error *error) {
  device_study *d = context;
  sources from;
  int status = ask_sources(d, &from, error);
  if (status) return status;
  return tsr__cycle_compute(from.timeline, from.roles, from.phases, &d->cycle, error);
}

int tsr__study_cycle(tsr_study *study, uint32_t device, const tsr__cycle **out, tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_CYCLE], make_cycle, d, error);
  if (!status) *out = &d->cycle;
  return status;
}

static int make_names(void *context, tsr_error *error) {
  device_study *d = context;
  const tsr__timeline *timeline;
  int status = tsr__study_timeline(d->study, d->device, &timeline, error);
  return status ? status : tsr__names_compute(timeline, &d->names, error);
}

int tsr__study_names(tsr_study *study, uint32_t device, const tsr__names **out, tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_NAMES], make_names, d, error);
  if (!status) *out = &d->names;
  return status;
}

static int make_categories(void *context, tsr_error *error) {
  device_study *d = context;
  const tsr__names *names;
  const tsr__cycle *cycle = NULL;
  sources from;
  int status = ask_sources(d, &from, error);
  if (!status) status = tsr__study_names(d->study, d->device, &names, error);
  /* Iterations matter only if nothing trains; otherwise both can be made at the same time. */
  if (!status && !tsr__phases_train(from.phases))
    status = tsr__study_cycle(d->study, d->device, &cycle, error);
  if (!status)
    status = tsr__categories_compute(from.timeline, from.roles, from.phases, cycle, names,
                                     &d->categories, error);
  assert(status || d->categories.count == from.timeline->birth.count);
  return status;
}

int tsr__study_categories(tsr_study *study, uint32_t device, const tsr__categories **out,
                          tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_CATEGORIES], make_categories, d, error);
  if (!status) *out = &d->categories;
  return status;
}

static int make_annotations(void *context, tsr_error *error) {
  device_study *d = context;
  tsr_events events = tsr_snapshot_events(d->study->snapshot, d->device);
  int status = tsr__annotations_compute(d->study->snapshot, &events, &d->annotations, error);
  assert(status || d->annotations.spans.count);
  return status;
}

int tsr__study_annotations(tsr_study *study, uint32_t device, const tsr__annotations **out,
                           tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_ANNOTATIONS], make_annotations, d, error);
  if (!status) *out = &d->annotations;
  return status;
}

static int make_findings(void *context, tsr_error *error) {
  device_study *d = context;
  tsr__finding_sources from;
  int status = tsr__study_categories(d->study, d->device, &from.categories, error);
  if (!status) status = tsr__study_timeline(d->study, d->device, &from.timeline, error);
  if (!status) status = tsr__study_phases(d->study, d->device, &from.phases, error);
  if (!status) status = tsr__study_cycle(d->study, d->device, &from.cycle, error);
  return status ? status : tsr__findings_compute(&from, &d->findings, error);
}

int tsr__study_findings(tsr_study *study, uint32_t device, const tsr__findings **out,
                        tsr_error *error) {
  device_study *d = device_of(study, device);
  int status = tsr__once_run(&d->once[SLOT_FINDINGS], make_findings, d, error);
  if (!status) *out = &d->findings;
  return status;
}

/* ---- many at once ---- */

static int make_pool(void *context, tsr_error *error) {
  tsr_study *study = context;
  (void)error;
  if (study->event_count >= POOL_EVENTS_MIN) study->pool = tsr__thread_pool_new(0);
  return 0;
}

tsr__thread_pool *tsr__study_pool(tsr_study *study) {
  (void)tsr__once_run(&study->once[SLOT_POOL], make_pool, study, NULL); /* cannot fail */
  return study->pool;
}

/* One thing to do: a derivation of a device, or of the snapshot (`device` unused). */
typedef struct errand {
  tsr__task task;
  tsr_study *study;
  uint32_t device;
} errand;

static int run_timeline(void *context, tsr_error *error) {
  const errand *e = context;
  const tsr__timeline *ignored;
  return tsr__study_timeline(e->study, e->device, &ignored, error);
}

static int run_phases(void *context, tsr_error *error) {
  const errand *e = context;
  const tsr__phases *ignored;
  return tsr__study_phases(e->study, e->device, &ignored, error);
}

static int run_categories(void *context, tsr_error *error) {
  const errand *e = context;
  const tsr__categories *ignored;
  return tsr__study_categories(e->study, e->device, &ignored, error);
}

static int run_cycle(void *context, tsr_error *error) {
  const errand *e = context;
  const tsr__cycle *ignored;
  return tsr__study_cycle(e->study, e->device, &ignored, error);
}

static int run_places(void *context, tsr_error *error) {
  const errand *e = context;
  const tsr__places *ignored;
  return tsr__study_places(e->study, &ignored, error);
}

typedef struct errands {
  errand *items;
  size_t count;
  tsr__group group;
} errands;

static void send(errands *all, tsr_study *study, uint32_t device, tsr__task_run *run) {
  errand *e = &all->items[all->count++];
  e->study = study;
  e->device = device;
  tsr__group_submit(&all->group, &e->task, run, e);
}

int tsr__study_prepare(tsr_study *study, const uint32_t *devices, size_t count, unsigned needs,
                       tsr_error *error) {
  enum { ROUND_ERRANDS = 2 }; /* of each device in each of the two rounds */
  bool has_phases = needs & (TSR__NEED_CATEGORIES | TSR__NEED_CYCLE);
  tsr_error ignored;
  if (!error) error = &ignored; /* tasks report through it */
  tsr__thread_pool *pool = tsr__study_pool(study);
  if (!pool) return 0; /* the accessors do the same, one after the other */
  errands all = {.items = TSR__NEW_ARRAY(errand, count * ROUND_ERRANDS + 1)};
  if (!all.items) return tsr__fail_memory(error);
  /* First what depends on the snapshot alone: replays, longest of all, before what is quick. */
  tsr__group_init(&all.group, pool, NULL);
  for (size_t i = 0; i < count; i++) send(&all, study, devices[i], run_timeline);
  for (size_t i = 0; has_phases && i < count; i++) send(&all, study, devices[i], run_phases);
  if (needs & TSR__NEED_PLACES) send(&all, study, 0, run_places);
  int status = tsr__group_wait(&all.group, error);
  /* Then what needs both. */
  all.count = 0;
  for (size_t i = 0; !status && i < count; i++) {
    if (needs & TSR__NEED_CATEGORIES) send(&all, study, devices[i], run_categories);
    if (needs & TSR__NEED_CYCLE) send(&all, study, devices[i], run_cycle);
  }
  int later = tsr__group_wait(&all.group, status ? &ignored : error);
  tsr__free(all.items);
  return status ? status : later;
}

/* ---- for tests ---- */

uint64_t tsr__study_replay_count(const tsr_study *study, uint32_t device) {
  return atomic_load(&device_of(study, device)->replay_count);
}

uint64_t tsr__study_replay_total(const tsr_study *study) {
  uint64_t total = 0;
  for (size_t i = 0; i < study->device_count; i++)
    total += atomic_load(&study->devices[i].replay_count);
  return total;
}
