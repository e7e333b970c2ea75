/* certificate.c - writes an answer as JSON with its proof: readers can check every sum, and simulate every plan again
 * (examples/check_certificate.py). The part of it that no search decides can also be written alone, for comparison.
 *
 * Times are in microseconds, rounded to nanoseconds. */
#include "plan/certificate.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/rates.h"
#include "plan/value.h"
#include "tessera/version.h"

const char *tsr__verdict_word(tsr_planning_verdict verdict) {
  static const char *const words[] = {"fits", "fits_with_changes", "does_not_fit"};
  return words[verdict];
}

/* In microseconds, rounded to nanoseconds. */
static tsr__cell microseconds(double seconds) {
  return tsr__real(round(seconds * 1e9) / 1e3);
}

static void emit_plan(tsr__emitter *e, const char *key, const tsr_run_plan *plan) {
  tsr__buffer text = {0};
  if (!tsr__run_plan_write(plan, &text)) e->out.failed = true;
  tsr__emit_json(e, key, (tsr_text){text.data, text.failed ? 0 : text.size});
  tsr__buffer_release(&text);
}

void tsr__emit_host_bytes(tsr__emitter *e, const tsr_run_plan_cost *cost) {
  tsr__emit_field(e, "host_bytes", NULL, tsr__bytes(cost->host_bytes));
  tsr__emit_field(e, "host_machine_bytes", NULL, tsr__bytes(cost->host_machine_bytes));
}

static void emit_cost(tsr__emitter *e, const char *key, const tsr_run_plan_cost *cost) {
  tsr__emit_object(e, key);
  tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(cost->peak_bytes));
  tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(cost->reserved_bytes));
  tsr__emit_field(e, "step_time_us", NULL, microseconds(cost->step_seconds));
  tsr__emit_field(e, "step_time_low_us", NULL, microseconds(cost->step_low_seconds));
  tsr__emit_field(e, "step_time_high_us", NULL, microseconds(cost->step_high_seconds));
  tsr__emit_field(e, "sent_bytes", NULL, tsr__bytes(cost->sent_bytes));
  tsr__emit_field(e, "stall_time_us", NULL, microseconds(cost->stall_seconds));
  tsr__emit_host_bytes(e, cost);
  tsr__emit_end(e);
}

const char *tsr__name_memory(char *out, size_t room_bytes, tsr_category category, const char *op,
                             const char *kernel) {
  (void)snprintf(out, room_bytes, "%s%s%s%s%s", tsr_category_name(category),
                 *op || *kernel ? ": " : "", op, *op && *kernel ? ", " : "", kernel);
  return out;
}

/* ---- the moment of the peak ---- */

static void emit_tensor(tsr__emitter *e, const char *name, uint64_t bytes) {
  tsr__emit_object(e, NULL);
  tsr__emit_field(e, "name", NULL, tsr__string(name));
  tsr__emit_field(e, "bytes", NULL, tsr__bytes(bytes));
  tsr__emit_end(e);
}

static void emit_peak(tsr__emitter *e, const tsr_memory_profile *profile) {
  char name[160];
  tsr__emit_object(e, "binding");
  tsr__emit_field(e, "phase", NULL, tsr__string(profile->peak.phase));
  tsr__emit_field(e, "op", NULL, tsr__string(profile->peak.op));
  tsr__emit_field(e, "step", NULL, tsr__count(profile->peak.step));
  tsr__emit_array(e, "tensors");
  for (size_t i = 0; i < profile->row_count; i++) {
    const tsr_memory_row *row = &profile->rows[i];
    int used = row->block == TSR_NONE ? 0 : snprintf(name, sizeof name, "block %u, ", row->block);
    tsr__name_memory(name + used, sizeof name - (size_t)used, row->category, row->op, row->kernel);
    emit_tensor(e, name, row->bytes);
  }
  if (profile->lost_bytes) emit_tensor(e, "rounding and tails", profile->lost_bytes);
  tsr__emit_end(e);
  tsr__emit_end(e);
}

/* ---- the changes, in order ---- */

/* Keep a copy of each plan on the way from one to another, without measuring it. */
static int keep_plan(void *context, const tsr_run_plan *plan, tsr_run_plan_cost *out,
                     tsr_error *error) {
  tsr__certificate *certificate = context;
  tsr_run_plan *copy = tsr__run_plan_copy(plan);
  *out = (tsr_run_plan_cost){.is_possible = true};
  if (copy && TSR__VECTOR_PUSH(&certificate->plans, copy)) return 0;
  tsr_run_plan_free(copy);
  return tsr__fail_memory(error);
}

/* The plan after each change, in the order of planned->changes. */
static int list_plans(const tsr_planning *p, const tsr_planned *planned, tsr__certificate *out,
                      tsr_error *error) {
  tsr_run_plan_cost ignored[TSR_PLANNED_CHANGES];
  tsr__plan_changes changes = {0};
  size_t ranges = planned->plan->blocks.count;
  tsr_run_plan *from = tsr__run_plan_copy(p->base);
  bool ok = from != NULL;
  if (ok && !tsr__run_plan_same_blocks(p->base, planned->plan)) tsr__run_plan_clear_blocks(from);
  ok = ok && tsr__list_changes(p->base, planned->plan, true, TSR_PLANNED_CHANGES, &changes);
  if (ok && changes.count > TSR_PLANNED_CHANGES) { /* all ranges as one */
    changes.count = 0;
    ok = tsr__list_changes(p->base, planned->plan, true, ranges ? ranges - 1 : 0, &changes);
  }
  int status = ok ? 0 : tsr__fail_memory(error);
  assert(!ok || changes.count == planned->change_count);
  if (status == 0)
    status = tsr__walk_changes(from, changes.items, changes.count, false, keep_plan, out, NULL,
                               ignored, error);
  TSR__VECTOR_FREE(&changes);
  tsr_run_plan_free(from);
  return status;
}

/* The memory that each change saves, and the time that it costs, compared with the plan before it; null if no plan
 * before it is possible. */
static void emit_changes(tsr__emitter *e, const tsr_planned *planned,
                         const tsr__certificate *certificate) {
  assert(planned->change_count <= TSR_PLANNED_CHANGES);
  const tsr_run_plan_cost *last = &planned->as_is;
  tsr__emit_array(e, "changes");
  for (size_t i = 0; i < planned->change_count; i++) {
    const tsr_run_plan_cost *now = &planned->changes[i].so_far;
    if (!now->is_possible) continue;
    tsr__cell saved = {.kind = TSR__CELL_INDEX,
                       .integer = (int64_t)last->peak_bytes - (int64_t)now->peak_bytes};
    bool has_last = last->is_possible;
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "technique", NULL, tsr__string(planned->changes[i].name));
    tsr__emit_field(e, "saved_bytes", NULL, has_last ? saved : tsr__nothing());
    tsr__emit_field(e, "cost_us", NULL,
                    has_last ? microseconds(now->step_seconds - last->step_seconds)
                             : tsr__nothing());
    if (i < certificate->plans.count) emit_plan(e, "plan", certificate->plans.items[i]);
    tsr__emit_host_bytes(e, now);
    tsr__emit_end(e);
    last = now;
  }
  tsr__emit_end(e);
}

/* ---- ways ---- */

static void emit_items(tsr__emitter *e, const tsr__survey *s) {
  uint64_t free_bytes = 0;
  for (size_t i = 0; i < s->items.count; i++)
    free_bytes += s->items.items[i].bytes * s->items.items[i].count;
  assert(free_bytes <= s->most_bytes);
  tsr__emit_field(e, "most_bytes", NULL, tsr__bytes(s->most_bytes));
  tsr__emit_field(e, "needed_bytes", NULL, tsr__bytes(s->most_bytes - free_bytes));
  tsr__emit_field(e, "repeats", NULL, tsr__count(s->repeats));
  tsr__emit_field(e, "sent_bytes", NULL, tsr__bytes(s->sent_bytes));
  tsr__emit_array(e, "could_be_made_again");
  for (size_t i = 0; i < s->items.count; i++) {
    const tsr__survey_item *item = &s->items.items[i];
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "op", NULL, tsr__string(item->op));
    tsr__emit_field(e, "kernel", NULL, tsr__string(item->kernel));
    tsr__emit_field(e, "bytes", NULL, tsr__bytes(item->bytes));
    tsr__emit_field(e, "count", NULL, tsr__count(item->count));
    tsr__emit_field(e, "us", NULL, microseconds(item->seconds));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
}

static void emit_needs(tsr__emitter *e, const tsr__survey *s) {
  char name[160];
  tsr__emit_object(e, "floor");
  tsr__emit_field(e, "phase", NULL, tsr__string(s->floor_phase));
  tsr__emit_field(e, "op", NULL, tsr__string(s->floor_op));
  tsr__emit_field(e, "bytes", NULL, tsr__bytes(s->floor_bytes));
  tsr__emit_array(e, "tensors");
  for (size_t i = 0; i < s->needs.count; i++) {
    const tsr__survey_need *need = &s->needs.items[i];
    tsr__name_memory(name, sizeof name, need->category, need->op, need->kernel);
    emit_tensor(e, name, need->bytes);
  }
  tsr__emit_end(e);
  tsr__emit_end(e);
}

static void emit_way(tsr__emitter *e, const tsr__way *way, uint64_t budget) {
  double bound = way->is_surveyed ? tsr__planner_bound(way, budget) : way->step_s;
  tsr__emit_object(e, NULL);
  emit_plan(e, "plan", way->plan);
  tsr__emit_field(e, "narrows", NULL, tsr__bool(way->narrows));
  tsr__emit_field(e, "kernels_us", NULL, microseconds(way->kernels_s));
  tsr__emit_field(e, "copies_us", NULL, microseconds(way->copies_s));
  tsr__emit_field(e, "waited_us", NULL, microseconds(way->waited_s));
  tsr__emit_field(e, "links_us", NULL, microseconds(way->links_s));
  if (way->is_surveyed) {
    emit_items(e, &way->survey);
    emit_needs(e, &way->survey);
  }
  tsr__emit_field(e, "bound_us", NULL, microseconds(bound));
  tsr__emit_end(e);
}

/* Emit every way that was considered, and the way of the plan itself. */
static void emit_ways(tsr__emitter *e, const tsr_planning *p, uint64_t budget,
                      const tsr__certificate *certificate) {
  tsr__emit_array(e, "ways");
  for (size_t i = 0; i < p->ways.count; i++) emit_way(e, &p->ways.items[i], budget);
  if (certificate->has_other) emit_way(e, &certificate->other, budget);
  tsr__emit_end(e);
}

/* ---- the certificate ---- */

void tsr__emit_config(tsr__emitter *e, const char *key, const char *config) {
  tsr__buffer line = {0};
  for (; *config; config += strcspn(config, "\n")) {
    config += strspn(config, " \n");
    tsr__buffer_append(&line, config, strcspn(config, "\n"));
  }
  tsr__emit_json(e, key, (tsr_text){line.data, line.failed ? 0 : line.size});
  if (line.failed) e->out.failed = true;
  tsr__buffer_release(&line);
}

static void emit_model(tsr__emitter *e, const tsr_model *m) {
  tsr__emit_object(e, "model");
  tsr__emit_field(e, "name", NULL, tsr__string(m->name));
  tsr__emit_field(e, "is_step_graph", NULL, tsr__bool(m->graph != NULL));
  tsr__emit_field(e, "layers", NULL, tsr__count(m->layers));
  tsr__emit_field(e, "width", NULL, tsr__count(m->width));
  tsr__emit_field(e, "heads", NULL, tsr__count(m->heads));
  tsr__emit_field(e, "kv_heads", NULL, tsr__count(m->kv_heads));
  tsr__emit_field(e, "inner", NULL, tsr__count(m->inner));
  tsr__emit_field(e, "vocabulary", NULL, tsr__count(m->vocabulary));
  tsr__emit_field(e, "sha256", NULL, tsr__string(m->sha256));
  if (m->config)
    tsr__emit_config(e, "config", m->config);
  else
    tsr__emit_field(e, "config", NULL, tsr__nothing());
  tsr__emit_end(e);
}

/* Emit the techniques that were tried because they may cost no time; their figures are null if the plan is
 * impossible. */
static void emit_savings(tsr__emitter *e, const tsr_planning *p) {
  tsr__emit_array(e, "savings");
  for (size_t i = 0; i < p->savings.count; i++) {
    const tsr__saving *s = &p->savings.items[i];
    char keys[TSR__TECHNIQUE_KEYS] = "{}";
    bool ok = s->cost.is_possible;
    if (s->technique) tsr__technique_keys(s->technique, keys);
    tsr__emit_object(e, NULL);
    tsr__emit_json(e, "keys", (tsr_text){keys, strlen(keys)});
    tsr__emit_field(e, "peak_allocated_bytes", NULL,
                    ok ? tsr__bytes(s->cost.peak_bytes) : tsr__nothing());
    tsr__emit_field(e, "step_time_us", NULL,
                    ok ? tsr__real(s->cost.step_seconds * 1e6) : tsr__nothing());
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
}

static void emit_refused(tsr__emitter *e, const tsr_planning *p) {
  tsr__emit_array(e, "refused");
  for (size_t i = 0; i < p->refused.count; i++) {
    const tsr__refused_way *way = &p->refused.items[i];
    tsr__emit_object(e, NULL);
    emit_plan(e, "plan", way->plan);
    tsr__emit_field(e, "narrows", NULL, tsr__bool(way->narrows));
    tsr__emit_field(e, "reason", NULL, tsr__string(way->reason));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
}

/* Where ranks are, and what messages take, if the user has said so. */
static void emit_network(tsr__emitter *e, const tsr_simulate_options *how) {
  double rate = how->network_bytes_per_s;
  bool has = how->has_latency;
  tsr__emit_field(e, "gpus_per_node", NULL,
                  how->ranks_per_node ? tsr__count(how->ranks_per_node) : tsr__nothing());
  tsr__emit_field(e, "network_bytes_per_s", NULL, rate > 0 ? tsr__real(rate) : tsr__nothing());
  tsr__emit_field(e, "latency_us", NULL,
                  has ? tsr__real_as("%.3f", how->latency_s * 1e6) : tsr__nothing());
  tsr__emit_field(e, "network_latency_us", NULL,
                  has ? tsr__real_as("%.3f", how->network_latency_s * 1e6) : tsr__nothing());
}

/* Emit everything that the answer depends on. */
static void emit_question(tsr__emitter *e, const tsr_planning *p, const tsr__asked_text *asked) {
  const tsr_simulate_options *how = &p->how;
  double link = how->link_bytes_per_s;
  const char *word;
  tsr__emit_object(e, "question");
  emit_model(e, p->model);
  tsr__emit_array(e, "allow");
  for (size_t i = 0; (word = tsr_allow_word(i)); i++)
    if (p->allow & tsr__allow_flag(i)) tsr__emit_item(e, tsr__string(word));
  tsr__emit_end(e);
  tsr__emit_field(e, "batch", NULL, tsr__count(how->batch ? how->batch : 1));
  tsr__emit_field(e, "sequence", NULL, tsr__count(how->sequence ? how->sequence : 1));
  tsr__emit_field(e, "steps", NULL, tsr__count(how->steps));
  tsr__emit_field(e, "book", NULL, tsr__string(how->book == TSR_BOOK_OWN ? "own" : "torch"));
  tsr__emit_field(e, "gpu", NULL, how->gpu ? tsr__string(how->gpu) : tsr__nothing());
  tsr__emit_field(e, "link_bytes_per_s", NULL, link > 0 ? tsr__real(link) : tsr__nothing());
  emit_network(e, how);
  tsr__emit_field(e, "rates", NULL,
                  how->rates ? tsr__string(tsr__rates_title(how->rates)) : tsr__nothing());
  if (asked->rates.size_bytes)
    tsr__emit_json(e, "rates_file", asked->rates);
  else
    tsr__emit_field(e, "rates_file", NULL, tsr__nothing());
  tsr__emit_json(e, "options", asked->options);
  tsr__emit_field(e, "host_budget_bytes", NULL,
                  p->host_budget_bytes ? tsr__bytes(p->host_budget_bytes) : tsr__nothing());
  emit_plan(e, "begins_with", p->base);
  tsr__emit_end(e);
}

static void emit_bound(tsr__emitter *e, const tsr_planned *planned) {
  bool has_gap = !isinf(planned->bound_seconds) && planned->verdict != TSR_PLANNING_DOES_NOT_FIT;
  double gap = fmax(planned->with.step_seconds - planned->bound_seconds, 0);
  tsr__emit_object(e, "lower_bound");
  tsr__emit_field(e, "step_time_us", NULL, microseconds(planned->bound_seconds));
  tsr__emit_field(e, "gap_us", NULL, has_gap ? microseconds(gap) : tsr__nothing());
  tsr__emit_field(e, "gap_percent", NULL,
                  has_gap && planned->bound_seconds > 0
                      ? tsr__real(100 * gap / planned->bound_seconds)
                      : tsr__nothing());
  tsr__emit_field(e, "peak_bytes", NULL,
                  planned->bound_bytes == UINT64_MAX ? tsr__nothing()
                                                     : tsr__bytes(planned->bound_bytes));
  tsr__emit_end(e);
}

static void emit_calibration(tsr__emitter *e, const tsr_calibration *c) {
  tsr__emit_object(e, "calibration");
  tsr__emit_field(e, "steps", NULL, tsr__count(c->steps));
  tsr__emit_field(e, "measured_step_us", NULL, tsr__real(c->measured_s * 1e6));
  tsr__emit_field(e, "estimated_step_us", NULL, tsr__real(c->predicted_s * 1e6));
  tsr__emit_field(e, "factor", NULL, c->factor > 0 ? tsr__real(c->factor) : tsr__nothing());
  tsr__emit_object(e, "phases");
  for (size_t i = 0; i < TSR_CALIBRATION_PHASES; i++) {
    tsr__emit_object(e, tsr_calibration_phase(i));
    tsr__emit_field(e, "measured_us", NULL, tsr__real(c->phases[i].measured_s * 1e6));
    tsr__emit_field(e, "predicted_us", NULL, tsr__real(c->phases[i].predicted_s * 1e6));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
  tsr__emit_field(e, "unexplained_bytes", NULL, tsr__bytes(c->unexplained_bytes));
  tsr__emit_field(e, "unexplained_allocations", NULL, tsr__count(c->unexplained_allocations));
  tsr__emit_array(e, "unexplained");
  for (size_t i = 0; i < c->row_count; i++) {
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "category", NULL, tsr__string(tsr_category_name(c->rows[i].category)));
    tsr__emit_field(e, "place", NULL, tsr__string(c->rows[i].place));
    tsr__emit_field(e, "allocations", NULL, tsr__count(c->rows[i].count));
    tsr__emit_field(e, "bytes", NULL, tsr__bytes(c->rows[i].bytes));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
  tsr__emit_end(e);
}

void tsr__emit_stopped(tsr__emitter *e, tsr_effort_end stopped_by) {
  if (tsr__emitter_is_text(e) || !stopped_by) return;
  tsr__emit_field(e, "stopped_by", NULL,
                  tsr__string(stopped_by == TSR_EFFORT_TIME ? "time_limit" : "work_limit"));
}

int tsr__certify(tsr_planning *p, const tsr_planned *planned, tsr__certificate *out,
                 tsr_error *error) {
  tsr_simulate_options how = p->how;
  tsr_run_plan_cost cost;
  const tsr__way *own;
  *out = (tsr__certificate){.peak = NULL};
  int status = tsr__planner_own_way(p, planned->plan, &own, &out->other, error);
  if (status) return status;
  out->has_other = own == &out->other;
  tsr_run_plan_options(planned->plan, &how);
  status = tsr__measure_peak(p->model, &how, &cost, &out->peak, error);
  if (status == 0 && !planned->stopped_by) status = list_plans(p, planned, out, error);
  if (status) {
    tsr__certificate_release(out);
    return status;
  }
  assert(cost.peak_bytes == planned->with.peak_bytes);
  assert(cost.reserved_bytes == planned->with.reserved_bytes);
  assert(cost.host_bytes == planned->with.host_bytes);
  return 0;
}

/* Survey the way of the plan to begin with, apart from the list, which keeps the estimate that is compared with others. A step graph
 * has one way, whose survey is in the list. */
static int survey_own(tsr_planning *p, tsr__certificate *out, tsr_error *error) {
  const tsr__way *own;
  int status = tsr__planner_own_way(p, p->base, &own, &out->other, error);
  if (status || !own || own->is_surveyed) {
    out->has_other = status == 0 && own == &out->other;
    return status;
  }
  status = tsr__planner_survey_way(p, &out->other, error);
  out->has_other = status == 0;
  return status;
}

int tsr__certify_ways(tsr_planning *p, tsr__certificate *out, tsr_error *error) {
  tsr_simulate_options how = p->how;
  tsr_run_plan_cost cost;
  *out = (tsr__certificate){.peak = NULL};
  int status = p->has_ways ? 0 : tsr__planner_list_ways(p, error);
  if (status || !p->as_is.is_possible) return status;
  tsr_run_plan_options(p->base, &how);
  status = survey_own(p, out, error);
  if (status == 0) status = tsr__measure_peak(p->model, &how, &cost, &out->peak, error);
  if (status) tsr__certificate_release(out);
  return status;
}

void tsr__certificate_release(tsr__certificate *certificate) {
  tsr_memory_profile_free(certificate->peak);
  tsr__way_release(&certificate->other);
  for (size_t i = 0; i < certificate->plans.count; i++)
    tsr_run_plan_free(certificate->plans.items[i]);
  TSR__VECTOR_FREE(&certificate->plans);
  *certificate = (tsr__certificate){.peak = NULL};
}

/* Emit what is the same for every budget: which question it is, and how copies count. */
static void emit_heading(tsr__emitter *e, const tsr_planning *p,
                         const tsr__certificate *certificate, const tsr__asked_text *asked) {
  double exposed = p->ways.count            ? p->ways.items[0].exposed
                   : certificate->has_other ? certificate->other.exposed
                                            : 0;
  tsr__emit_field(e, "tessera", NULL, tsr__string(tsr_version()));
  emit_question(e, p, asked);
  tsr__emit_field(e, "exposed", NULL, tsr__real(exposed));
  if (p->as_is.is_possible)
    emit_cost(e, "as_is", &p->as_is);
  else
    tsr__emit_field(e, "as_is", NULL, tsr__nothing());
}

void tsr__emit_ways(tsr__emitter *e, const tsr_planning *p, const tsr__certificate *certificate,
                    const tsr__asked_text *asked) {
  if (tsr__emitter_is_text(e)) return;
  emit_heading(e, p, certificate, asked);
  emit_savings(e, p);
  emit_refused(e, p);
  if (p->calibration) emit_calibration(e, p->calibration);
  emit_ways(e, p, UINT64_MAX, certificate);
  if (certificate->peak) emit_peak(e, certificate->peak);
}

void tsr__emit_certificate(tsr__emitter *e, const tsr_planning *p, const tsr_planned *planned,
                           const tsr__certificate *certificate, const tsr__asked_text *asked) {
  if (tsr__emitter_is_text(e)) return;
  tsr__emit_field(e, "schema", NULL, tsr__string("tessera/1"));
  tsr__emit_field(e, "command", NULL, tsr__string("plan"));
  emit_heading(e, p, certificate, asked);
  tsr__emit_field(e, "verdict", NULL, tsr__string(tsr__verdict_word(planned->verdict)));
  tsr__emit_field(e, "budget_bytes", NULL, tsr__bytes(planned->budget_bytes));
  tsr__emit_field(e, "is_proved", NULL, tsr__bool(planned->is_proved));
  tsr__emit_stopped(e, planned->stopped_by);
  tsr__emit_field(e, "plans_tried", NULL, tsr__count(planned->tried));
  tsr__emit_object(e, "searched");
  tsr__emit_field(e, "combinations", NULL, tsr__count(planned->way_count));
  tsr__emit_field(e, "too_long", NULL, tsr__count(planned->skipped_count));
  tsr__emit_field(e, "excluded", NULL, tsr__count(planned->refused_count));
  tsr__emit_end(e);
  emit_cost(e, "predicted", &planned->with);
  emit_bound(e, planned);
  emit_plan(e, "plan", planned->plan);
  tsr__emit_field(e, "plan_hash", NULL, tsr__string(tsr_run_plan_hash(planned->plan)));
  emit_changes(e, planned, certificate);
  emit_savings(e, p);
  emit_refused(e, p);
  if (p->unit_count) {
    tsr__emit_field(e, "blocks", NULL, tsr__count(p->unit_count));
    tsr__emit_field(e, "blocks_out_of_chain", NULL, tsr__count(p->far_count));
  }
  if (p->calibration) emit_calibration(e, p->calibration);
  emit_ways(e, p, planned->budget_bytes, certificate);
  emit_peak(e, certificate->peak);
}
