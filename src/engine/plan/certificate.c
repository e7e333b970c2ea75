/* certificate.c - an answer as JSON, with its proof: a reader can check every sum (examples/check_certificate.py).
 *
 * Times are rounded to nanoseconds, and bounds are computed from them again, so that the file is consistent. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "exec/rates.h"
#include "plan/planner.h"

static const char *const verdicts[] = {"fits", "fits_with_changes", "does_not_fit"};

static json_t *integer(uint64_t value) {
  return json_integer((json_int_t)value);
}

/* Microseconds, to nanoseconds. */
static json_t *microseconds(double seconds) {
  return json_real(round(seconds * 1e9) / 1e3);
}

/* Append to a list, or set in an object; all of them take `value` over and are false when out of memory. */
static bool put(json_t *object, const char *key, json_t *value) {
  return value && json_object_set_new(object, key, value) == 0;
}

static json_t *cost_json(const tsr_run_plan_cost *cost) {
  return json_pack("{s:I,s:I,s:o,s:I,s:o}", "peak_allocated_bytes", (json_int_t)cost->peak_bytes,
                   "peak_reserved_bytes", (json_int_t)cost->reserved_bytes, "step_time_us",
                   microseconds(cost->step_seconds), "sent_bytes", (json_int_t)cost->sent_bytes,
                   "stall_time_us", microseconds(cost->stall_seconds));
}

/* "activation: eager GELU, tanh". */
static void name_of(char *out, size_t room, tsr_category category, const char *op,
                    const char *kernel) {
  (void)snprintf(out, room, "%s%s%s%s%s", tsr_category_name(category), *op || *kernel ? ": " : "",
                 op, *op && *kernel ? ", " : "", kernel);
}

/* ---- the moment of the peak ---- */

static json_t *tensor_json(const char *name, uint64_t bytes) {
  return json_pack("{s:s,s:I}", "name", name, "bytes", (json_int_t)bytes);
}

static bool put_rows(const tsr_memory_profile *profile, json_t *list) {
  bool ok = true;
  char name[160];
  for (size_t i = 0; ok && i < profile->row_count; i++) {
    const tsr_memory_row *row = &profile->rows[i];
    char block[32] = "";
    if (row->block != TSR_NONE) (void)snprintf(block, sizeof block, "block %u, ", row->block);
    int used = snprintf(name, sizeof name, "%s", block);
    name_of(name + used, sizeof name - (size_t)used, row->category, row->op, row->kernel);
    ok = json_array_append_new(list, tensor_json(name, row->bytes)) == 0;
  }
  if (ok && profile->lost_bytes)
    ok = json_array_append_new(list, tensor_json("rounding and tails", profile->lost_bytes)) == 0;
  return ok;
}

static json_t *binding_json(const tsr_memory_profile *profile) {
  json_t *binding = json_object(), *list = json_array();
  bool ok = binding && list && put(binding, "phase", json_string(profile->peak.phase));
  ok = ok && put(binding, "op", json_string(profile->peak.op));
  ok = ok && put(binding, "step", integer(profile->peak.step));
  ok = ok && put_rows(profile, list) && json_object_set(binding, "tensors", list) == 0;
  json_decref(list);
  if (ok) return binding;
  json_decref(binding);
  return NULL;
}

static int add_binding(tsr_planning *p, const tsr_planned *planned, json_t *root,
                       tsr_error *error) {
  tsr_simulate_options how = p->how;
  tsr_simulation *simulation = NULL;
  tsr_run_plan_options(planned->plan, &how);
  how.profile = true;
  int status = tsr_simulate(p->model, &how, &simulation, error);
  if (status == 0) {
    assert(simulation->peak.totals.allocated_bytes == planned->with.peak_bytes);
    assert(simulation->peak_reserved_bytes == planned->with.reserved_bytes);
    if (!put(root, "binding", binding_json(simulation->profile))) status = tsr__fail_memory(error);
  }
  tsr_simulation_free(simulation);
  return status;
}

/* ---- the changes, one after another ---- */

/* The memory that a change saves, and the time that it costs, compared with the plan before it; null if no plan
 * before it is possible. */
static json_t *change_json(const tsr_planned_change *change, const tsr_run_plan_cost *last) {
  const tsr_run_plan_cost *now = &change->so_far;
  bool has_last = last->is_possible;
  json_t *saved = json_integer((json_int_t)last->peak_bytes - (json_int_t)now->peak_bytes);
  json_t *cost = microseconds(now->step_seconds - last->step_seconds);
  json_t *row = json_pack("{s:s,s:O,s:O}", "technique", change->name, "saved_bytes",
                          has_last ? saved : json_null(), "cost_us", has_last ? cost : json_null());
  json_decref(saved);
  json_decref(cost);
  return row;
}

static json_t *changes_json(const tsr_planned *planned) {
  assert(planned->change_count <= TSR_PLANNED_CHANGES);
  json_t *list = json_array();
  tsr_run_plan_cost last = planned->as_is;
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < planned->change_count; i++) {
    const tsr_planned_change *change = &planned->changes[i];
    if (!change->so_far.is_possible) continue;
    ok = json_array_append_new(list, change_json(change, &last)) == 0;
    last = change->so_far;
  }
  if (ok) return list;
  json_decref(list);
  return NULL;
}

/* ---- ways ---- */

static bool put_items(const tsr__survey *s, json_t *way) {
  json_t *list = json_array();
  uint64_t free_bytes = 0;
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < s->items.count; i++) {
    const tsr__survey_item *item = &s->items.items[i];
    free_bytes += item->bytes * item->count;
    ok = json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:I,s:o}", "op", item->op, "kernel",
                                               item->kernel, "bytes", (json_int_t)item->bytes,
                                               "count", (json_int_t)item->count, "us",
                                               microseconds(item->seconds))) == 0;
  }
  assert(free_bytes <= s->most_bytes);
  ok = ok && put(way, "most_bytes", integer(s->most_bytes));
  ok = ok && put(way, "needed_bytes", integer(s->most_bytes - free_bytes));
  ok = ok && put(way, "repeats", integer(s->repeats));
  ok = ok && put(way, "sent_bytes", integer(s->sent_bytes));
  ok = ok && json_object_set(way, "could_be_made_again", list) == 0;
  json_decref(list);
  return ok;
}

static bool put_needs(const tsr__survey *s, json_t *way) {
  json_t *list = json_array(), *floor = NULL;
  char name[160];
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < s->needs.count; i++) {
    const tsr__survey_need *need = &s->needs.items[i];
    name_of(name, sizeof name, need->category, need->op, need->kernel);
    ok = json_array_append_new(list, tensor_json(name, need->bytes)) == 0;
  }
  if (ok)
    floor = json_pack("{s:s,s:s,s:I,s:O}", "phase", s->floor_phase, "op", s->floor_op, "bytes",
                      (json_int_t)s->floor_bytes, "tensors", list);
  json_decref(list);
  return ok && put(way, "floor", floor);
}

static json_t *way_json(const tsr__way *way, uint64_t budget) {
  json_t *out = json_object();
  bool ok = out && json_object_set(out, "plan", way->root) == 0;
  ok = ok && put(out, "narrows", json_boolean(way->narrows));
  ok = ok && put(out, "kernels_us", microseconds(way->kernels_s));
  ok = ok && put(out, "copies_us", microseconds(way->copies_s));
  ok = ok && put(out, "waited_us", microseconds(way->waited_s));
  ok = ok && put(out, "links_us", microseconds(way->links_s));
  if (ok && way->is_surveyed) ok = put_items(&way->survey, out) && put_needs(&way->survey, out);
  if (ok) {
    double bound = way->is_surveyed ? tsr__planner_bound(way, budget) : way->step_s;
    ok = put(out, "bound_us", isinf(bound) ? json_null() : microseconds(bound));
  }
  if (ok) return out;
  json_decref(out);
  return NULL;
}

/* Writes every way that was considered; the plan's own is appended if it was not among them. */
static int put_ways(tsr_planning *p, const tsr_planned *planned, json_t *root, tsr_error *error) {
  json_t *list = json_array();
  const tsr__way *own;
  tsr__way other;
  int status = tsr__planner_own_way(p, planned->plan, &own, &other, error);
  if (status) {
    json_decref(list);
    return status;
  }
  bool ok = list != NULL;
  for (size_t i = 0; ok && i < p->ways.count; i++)
    ok = json_array_append_new(list, way_json(&p->ways.items[i], planned->budget_bytes)) == 0;
  if (ok && own == &other)
    ok = json_array_append_new(list, way_json(&other, planned->budget_bytes)) == 0;
  if (ok) ok = json_object_set(root, "ways", list) == 0;
  json_decref(list);
  tsr__way_release(&other);
  return ok ? 0 : tsr__fail_memory(error);
}

/* ---- all of it ---- */

static json_t *model_json(const tsr_model *m) {
  return json_pack("{s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "name", m->name, "is_step_graph",
                   m->graph != NULL, "layers", (json_int_t)m->layers, "width", (json_int_t)m->width,
                   "heads", (json_int_t)m->heads, "kv_heads", (json_int_t)m->kv_heads, "inner",
                   (json_int_t)m->inner, "vocabulary", (json_int_t)m->vocabulary);
}

/* Everything that the answer depends on. */
static json_t *question_json(const tsr_planning *p) {
  const tsr_simulate_options *how = &p->how;
  json_t *allow = json_array(), *out = json_object();
  const char *word;
  bool ok = allow && out;
  for (size_t i = 0; ok && (word = tsr__allow_word(i)); i++)
    if (p->allow & tsr__allow_flag(i)) ok = json_array_append_new(allow, json_string(word)) == 0;
  ok = ok && put(out, "model", model_json(p->model)) && json_object_set(out, "allow", allow) == 0;
  ok = ok && put(out, "batch", integer(how->batch ? how->batch : 1));
  ok = ok && put(out, "sequence", integer(how->sequence ? how->sequence : 1));
  ok = ok && put(out, "steps", integer(how->steps));
  ok = ok && put(out, "book", json_string(how->book == TSR_BOOK_OWN ? "own" : "torch"));
  ok = ok && put(out, "gpu", how->gpu ? json_string(how->gpu) : json_null());
  double link = how->link_bytes_per_s;
  ok = ok && put(out, "link_bytes_per_s", link > 0 ? json_real(link) : json_null());
  ok =
      ok && put(out, "rates", how->rates ? json_string(tsr__rates_title(how->rates)) : json_null());
  ok = ok && json_object_set(out, "begins_with", p->base) == 0;
  json_decref(allow);
  if (ok) return out;
  json_decref(out);
  return NULL;
}

static json_t *bound_json(const tsr_planned *planned) {
  bool is_known = !isinf(planned->bound_seconds);
  bool fits = planned->verdict != TSR_PLANNING_DOES_NOT_FIT;
  json_t *time = is_known ? microseconds(planned->bound_seconds) : json_null();
  json_t *gap = is_known && fits
                    ? microseconds(fmax(planned->with.step_seconds - planned->bound_seconds, 0))
                    : json_null();
  json_t *bytes = planned->bound_bytes == UINT64_MAX ? json_null() : integer(planned->bound_bytes);
  return json_pack("{s:o,s:o,s:o}", "step_time_us", time, "gap_us", gap, "peak_bytes", bytes);
}

static json_t *answer_json(tsr_planning *p, const tsr_planned *planned) {
  json_t *root =
      json_pack("{s:s,s:s,s:s,s:I,s:b,s:I}", "schema", "tessera/1", "command", "plan", "verdict",
                verdicts[planned->verdict], "budget_bytes", (json_int_t)planned->budget_bytes,
                "is_proved", planned->is_proved, "plans_tried", (json_int_t)planned->tried);
  bool ok = root && put(root, "question", question_json(p));
  double exposed = p->ways.count ? p->ways.items[0].exposed : 0;
  ok = ok && put(root, "exposed", json_real(exposed));
  ok = ok &&
       put(root, "as_is", planned->as_is.is_possible ? cost_json(&planned->as_is) : json_null());
  ok = ok && put(root, "predicted", cost_json(&planned->with));
  ok = ok && put(root, "lower_bound", bound_json(planned));
  ok = ok && put(root, "plan", json_loads(tsr_run_plan_text(planned->plan), 0, NULL));
  ok = ok && put(root, "plan_hash", json_string(tsr_run_plan_hash(planned->plan)));
  ok = ok && put(root, "changes", changes_json(planned));
  ok = ok && json_object_set(root, "savings", p->savings) == 0;
  ok = ok && json_object_set(root, "refused", p->refused) == 0;
  if (ok && p->unit_count)
    ok = put(root, "blocks", integer(p->unit_count)) &&
         put(root, "blocks_out_of_chain", integer(p->far_count));
  if (ok && p->calibration) ok = put(root, "calibration", tsr__calibration_json(p->calibration));
  if (ok) return root;
  json_decref(root);
  return NULL;
}

typedef struct output {
  tsr_write_fn *write;
  void *context;
} output;

static int append(const char *text, size_t size_bytes, void *context) {
  const output *out = context;
  return out->write(out->context, text, size_bytes);
}

int tsr_planning_write_json(tsr_planning *p, const tsr_planned *planned, tsr_write_fn *write,
                            void *context, tsr_error *error) {
  output out = {write, context};
  json_t *root = answer_json(p, planned);
  int status = root ? 0 : tsr__fail_memory(error);
  if (status == 0) status = put_ways(p, planned, root, error);
  if (status == 0) status = add_binding(p, planned, root, error);
  if (status == 0 &&
      (json_dump_callback(root, append, &out, JSON_COMPACT) || write(context, "\n", 1)))
    status = TSR_ERROR_WRITE;
  json_decref(root);
  return status;
}
