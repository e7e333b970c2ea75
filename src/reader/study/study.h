/* study.h - one loaded snapshot and everything that is derived from it.
 *
 * Each derivation is computed once, on first use, and then shared by all questions and threads. See
 * tessera/study.h for the rules of use. What depends on what:
 *
 *   snapshot ─┬─► roles ─┬─► labels (by kind)
 *             │          └─► phases of a device ─┬─► cycle of a device
 *             ├─► timeline of a device ─┬────────┴─► categories of a device
 *             │                         └─► names of a device ─┘
 *             ├─► annotations of a device
 *             └─► places, Mosaic's categories
 *
 * Every accessor sets `*out` to what the study keeps, which lives as long as the study, and fails with
 * TSR_ERROR_MEMORY; a failure is not kept, so that a later call tries again. `device` is one that the
 * snapshot has. The first call costs what the derivation's own header says, later calls a look-up.
 * Any number of threads may call them at once.
 */
#ifndef TSR_STUDY_STUDY_H
#define TSR_STUDY_STUDY_H

#include "attribution/annotations.h"
#include "attribution/category.h"
#include "attribution/cycle.h"
#include "attribution/labels.h"
#include "attribution/mosaic_category.h"
#include "attribution/named.h"
#include "attribution/phase.h"
#include "attribution/places.h"
#include "base/pool.h"
#include "study/findings.h"
#include "tessera/study.h"
#include "timeline/timeline.h"

/* ---- of the whole snapshot ---- */

/* What each stack suggests about the phase of the program. */
int tsr__study_roles(tsr_study *study, const tsr__roles **out, tsr_error *error);
/* The line of the program that each stack stands for. */
int tsr__study_places(tsr_study *study, const tsr__places **out, tsr_error *error);
/* A name for each stack: its operation, module or line, or the stack itself. */
int tsr__study_labels(tsr_study *study, tsr__label_kind kind, const tsr__labels **out,
                      tsr_error *error);
/* What each stack makes by Mosaic's rules. */
int tsr__study_mosaic_categories(tsr_study *study, const tsr__mosaic_categories **out,
                                 tsr_error *error);

/* ---- of a device ---- */

/* The trace replayed. */
int tsr__study_timeline(tsr_study *study, uint32_t device, const tsr__timeline **out,
                        tsr_error *error);
/* How far the replay agrees with the allocator model and with the final segments. Only a replay
 * that asks the model for every allocation finds that, so ask for it before the timeline: the same
 * replay then serves both. After the timeline it costs its own replay. */
int tsr__study_replay_check(tsr_study *study, uint32_t device, tsr_replay_check *out,
                            tsr_error *error);
/* What the program was doing, by ranges of the trace. */
int tsr__study_phases(tsr_study *study, uint32_t device, const tsr__phases **out, tsr_error *error);
/* The steps of the program. */
int tsr__study_cycle(tsr_study *study, uint32_t device, const tsr__cycle **out, tsr_error *error);
/* What the program itself called its allocations. */
int tsr__study_names(tsr_study *study, uint32_t device, const tsr__names **out, tsr_error *error);
/* What each allocation of the timeline is for. */
int tsr__study_categories(tsr_study *study, uint32_t device, const tsr__categories **out,
                          tsr_error *error);
/* Which annotation each event falls under. */
int tsr__study_annotations(tsr_study *study, uint32_t device, const tsr__annotations **out,
                           tsr_error *error);

/* Habits of the program that cost memory at the peak. */
int tsr__study_findings(tsr_study *study, uint32_t device, const tsr__findings **out,
                        tsr_error *error);

/* ---- many at once ---- */

/* What a question is going to ask of every device. */
typedef enum tsr__study_need {
  TSR__NEED_TIMELINE = 1,
  TSR__NEED_CATEGORIES = 2, /* and so timelines and phases */
  TSR__NEED_CYCLE = 4,      /* likewise */
  TSR__NEED_PLACES = 8
} tsr__study_need;

/* Compute what `needs` (of tsr__study_need) lists for these devices, independent parts at the same
 * time if the machine has several processors and the traces are long enough to be worth it. Questions
 * call it before they go through their devices one by one; it changes nothing but the time taken.
 * Fails as the accessors do. */
int tsr__study_prepare(tsr_study *study, const uint32_t *devices, size_t count, unsigned needs,
                       tsr_error *error);

/* The study's threads, for parts of a question that do not depend on each other. NULL, a pool without
 * threads, if the traces are too short to be worth it. */
tsr__thread_pool *tsr__study_pool(tsr_study *study);

/* ---- for tests ---- */

/* How many times the trace of a device has been replayed, for whatever reason. */
uint64_t tsr__study_replay_count(const tsr_study *study, uint32_t device);
/* The same for all devices together. */
uint64_t tsr__study_replay_total(const tsr_study *study);

#endif
