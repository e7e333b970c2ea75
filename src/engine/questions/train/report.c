/* report.c - what `train` prints while it runs and at its end: lines, or events of JSON.
 *
 *   gpt2: 124,439,808 parameters, random; a peak of 3.02 GiB is predicted, 3.20 GiB reserved.
 *   step 1/100  loss 10.951200  312 tokens/s  1.40 GiB, peak 2.90 GiB (97 %)
 *   step 2/100  loss 10.801540  409 tokens/s  1.40 GiB, peak 3.02 GiB (100 %)  20 min left
 *   ...
 *   100 steps: loss from 10.951200 to 6.203400. Peak 3.02 GiB, as predicted.
 *
 * Each function emits one event as JSON and the lines that say the same as text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "base/options.h"
#include "emit/emitter.h"
#include "questions/plan/plan.h"
#include "questions/reports.h"
#include "questions/simulate/profile.h"
#include "questions/train/fields.h"
#include "tessera/unstable/train_report.h"

enum { LINES = 20, QUIET_SECONDS = 10 };

const char *const tsr_train_products_words[] = {"auto", "own", "onednn", NULL};
const char *const tsr_train_isa_words[] = {"plain", "avx2", "avx512", "avx512-bf16", NULL};

struct tsr_train_report {
  tsr__emitter emitter;
  double printed_s;       /* when a step was last printed as text, from the start of the run */
  double since_s, pace_s; /* the end of the last step; the running mean of the time between two */
  uint64_t step_count;    /* that were reported */
  uint64_t skipped_count; /* of these, steps whose gradients overflowed */
  tsr_train_products products; /* of the last step */
};

int tsr_train_report_new(const tsr_report_options *options, tsr_write_fn *write, void *context,
                         tsr_train_report **out, tsr_error *error) {
  tsr_report_options how;
  int status = tsr__options_read(options, &how, sizeof how, error);
  if (status) return status;
  tsr_train_report *report = TSR__NEW(tsr_train_report);
  if (!report) return tsr__fail_memory(error);
  tsr__emitter_init(&report->emitter, &how, write, context);
  *out = report;
  return 0;
}

int tsr_train_report_finish(tsr_train_report *report, tsr_error *error) {
  if (!report) return 0;
  int status = tsr__emitter_finish(&report->emitter, error);
  tsr__free(report);
  return status;
}

/* ---- pieces ---- */

/* Open the object of an event with the fields of `record`. */
static void begin(tsr__emitter *e, const tsr_record *record, const char *event) {
  e->fields = record;
  tsr__emit_json_line(e, NULL);
  tsr__emit_field(e, "event", NULL, tsr__string(event));
  if (tsr_record_field(record, "rank", strlen("rank")))
    tsr__emit_field(e, "rank", NULL, tsr__count(0));
}

/* Print `scratch` as one line, however long: a log has one line for each step. */
static void print(tsr__emitter *e) {
  tsr__emit_unbroken(e, TSR__PLAIN, 0);
}

static tsr__cell number(double value) {
  return tsr__real_as("%.9g", value);
}

static tsr__cell bytes_or_null(uint64_t bytes) {
  return bytes ? tsr__bytes(bytes) : tsr__nothing();
}

/* Six digits after the point, as llm.c prints them. The sign of a NaN means nothing. */
static void append_loss(tsr__buffer *out, double loss) {
  if (fabs(loss) >= 1e9)
    tsr__buffer_printf(out, "%.6g", loss);
  else
    tsr__buffer_printf(out, "%.6f", isnan(loss) ? fabs(loss) : loss);
}

static void append_size(tsr__buffer *out, uint64_t bytes) {
  char text[TSR__FORMAT_BYTES];
  tsr__buffer_text(out, tsr__format_size(bytes, text));
}

static void append_count(tsr__buffer *out, uint64_t count) {
  char text[TSR__FORMAT_BYTES];
  tsr__buffer_text(out, tsr__format_count(count, text));
}

/* ", as predicted", or ", predicted 3.02 GiB". */
static void append_predicted(tsr__buffer *out, uint64_t value, uint64_t predicted,
                             void append(tsr__buffer *, uint64_t)) {
  tsr__buffer_text(out, value == predicted ? ", as predicted" : ", predicted ");
  if (value != predicted) append(out, predicted);
}

/* ---- the plan ---- */

bool tsr_train_report_plan(tsr_train_report *report, const char *model, const tsr_planned *p) {
  tsr__emitter *e = &report->emitter;
  begin(e, &tsr__fields_train_plan, "plan");
  tsr__emit_field(e, "verdict", NULL, tsr__string(tsr__verdict_word(p->verdict)));
  tsr__emit_field(e, "budget_bytes", NULL, tsr__bytes(p->budget_bytes));
  tsr__emit_field(e, "plan_hash", NULL, tsr__string(tsr_run_plan_hash(p->plan)));
  tsr__emit_field(e, "peak_allocated_bytes", NULL, tsr__bytes(p->with.peak_bytes));
  tsr__emit_field(e, "peak_reserved_bytes", NULL, tsr__bytes(p->with.reserved_bytes));
  tsr__emit_field(e, "bound_bytes", NULL, tsr__bytes(p->bound_bytes));
  tsr__emit_field(e, "is_proved", NULL, tsr__bool(p->is_proved));
  tsr__emit_end(e);
  tsr__emit_found(e, model, p, p->budget_bytes);
  if (p->verdict != TSR_PLANNING_DOES_NOT_FIT) tsr__emit_unbroken(e, TSR__PLAIN, 0);
  return tsr__emitter_flush(e);
}

/* ---- while it runs ---- */

bool tsr_train_report_begin(tsr_train_report *report, const char *model, bool has_weights,
                            const tsr_train_step *step) {
  tsr__emitter *e = &report->emitter;
  tsr__buffer *out = &e->scratch;
  tsr__buffer_printf(out, "%s: ", model);
  append_count(out, step->parameter_count);
  tsr__buffer_printf(out, " parameters%s", has_weights ? "" : ", random");
  if (step->trained_count < step->parameter_count) {
    tsr__buffer_text(out, ", of which ");
    append_count(out, step->trained_count);
    tsr__buffer_text(out, " are trained");
  }
  if (step->rank_count > 1) {
    tsr__buffer_printf(out, ", %" PRIu32 " ranks.", step->rank_count);
    print(e);
  }
  tsr__buffer_text(out, step->rank_count > 1 ? "For each rank a peak of " : "; a peak of ");
  append_size(out, step->predicted_peak_bytes);
  tsr__buffer_text(out, " is predicted");
  if (step->predicted_reserved_bytes > step->predicted_peak_bytes) {
    tsr__buffer_text(out, ", ");
    append_size(out, step->predicted_reserved_bytes);
    tsr__buffer_text(out, " reserved");
  }
  tsr__buffer_text(out, ".");
  print(e);
  if (*step->products_text)
    tsr__emit_printf(e, TSR__PLAIN, "Matrices are multiplied by %s.", step->products_text);
  return tsr__emitter_flush(e);
}

/* By the mean time between about the last fifty steps, which follows a run that slows down. The first step is left out: it touches
 * memory for the first time. NaN after the last step, and before there is a mean. */
static double seconds_left(tsr_train_report *report, const tsr_train_step *step, double since) {
  uint64_t between = report->step_count++; /* steps between which there was a time */
  double took = since - report->since_s, share = between < 50 ? 1 / (double)between : 0.02;
  report->since_s = since;
  if (!between) return (double)NAN;
  report->pace_s += (took - report->pace_s) * share;
  return step->is_last ? (double)NAN : report->pace_s * (double)(step->steps - step->step);
}

/* "45 s left", "12 min left", "3 h 20 min left", "2 d 4 h left"; nothing below a second. */
static void append_left(tsr__buffer *out, double seconds) {
  if (!(seconds >= 1) || seconds > 1e9) return;
  uint64_t s = (uint64_t)seconds, minutes = (s + 30) / 60, hours = (s + 1800) / 3600;
  if (s < 90)
    tsr__buffer_printf(out, "  %" PRIu64 " s left", s);
  else if (minutes < 90)
    tsr__buffer_printf(out, "  %" PRIu64 " min left", minutes);
  else if (hours < 48)
    tsr__buffer_printf(out, "  %" PRIu64 " h %" PRIu64 " min left", minutes / 60, minutes % 60);
  else
    tsr__buffer_printf(out, "  %" PRIu64 " d %" PRIu64 " h left", hours / 24, hours % 24);
}

static void print_step(tsr__emitter *e, const tsr_train_step *step, double seconds, double left) {
  tsr__buffer *out = &e->scratch;
  tsr__buffer_printf(out, "step %" PRIu64 "/%" PRIu64 "  loss ", step->step, step->steps);
  append_loss(out, step->loss);
  if (!isnan(step->validation_loss)) {
    tsr__buffer_text(out, "  val ");
    append_loss(out, step->validation_loss);
  }
  if (!isnan(step->gradient_norm)) tsr__buffer_printf(out, "  norm %.4f", step->gradient_norm);
  tsr__buffer_text(out, "  ");
  append_count(out, seconds > 0 ? (uint64_t)((double)step->token_count / seconds) : 0);
  tsr__buffer_text(out, " tokens/s  ");
  append_size(out, step->allocated_bytes);
  tsr__buffer_text(out, ", peak ");
  append_size(out, step->peak_bytes);
  tsr__buffer_printf(out, " (%.0f %%)",
                     100 * (double)step->peak_bytes / (double)step->predicted_peak_bytes);
  append_left(out, left);
  if (step->is_skipped) tsr__buffer_text(out, "  (overflow: step skipped)");
  print(e);
}

bool tsr_train_report_step(tsr_train_report *report, const tsr_train_step *step,
                           const tsr_train_times *times) {
  tsr__emitter *e = &report->emitter;
  double seconds = times->step;
  bool is_due = !report->step_count || step->is_last || step->is_skipped ||
                !isnan(step->validation_loss) || step->warning ||
                step->step % (step->steps / LINES + 1) == 0 ||
                times->since - report->printed_s >= QUIET_SECONDS;
  double left = seconds_left(report, step, times->since);
  report->skipped_count += step->is_skipped;
  report->products = step->products;
  begin(e, &tsr__fields_train_step, "step");
  tsr__emit_field(e, "step", NULL, tsr__count(step->step));
  tsr__emit_field(e, "loss", NULL, number(step->loss));
  tsr__emit_field(e, "validation_loss", NULL, number(step->validation_loss));
  tsr__emit_field(e, "gradient_norm", NULL, number(step->gradient_norm));
  tsr__emit_field(e, "learning_rate", NULL, number(step->learning_rate));
  tsr__emit_field(e, "skipped", NULL, tsr__bool(step->is_skipped));
  tsr__emit_field(e, "tokens", NULL, tsr__count(step->token_count));
  tsr__emit_field(e, "seconds", NULL, number(seconds));
  tsr__emit_field(e, "tokens_per_second", NULL,
                  number(seconds > 0 ? (double)step->token_count / seconds : (double)NAN));
  tsr__emit_field(e, "seconds_left", NULL, number(left));
  tsr__emit_field(e, "warning", NULL, step->warning ? tsr__string(step->warning) : tsr__nothing());
  tsr__emit_field(e, "allocated_bytes", NULL, tsr__bytes(step->allocated_bytes));
  tsr__emit_field(e, "peak_bytes", NULL, tsr__bytes(step->peak_bytes));
  tsr__emit_end(e);
  if (is_due) {
    print_step(e, step, seconds, left);
    report->printed_s = times->since;
  }
  return tsr__emitter_flush(e);
}

/* ---- samples ---- */

/* Append a text, and print its lines but the last, indented. */
static void append_lines(tsr__emitter *e, const char *text, size_t size_bytes) {
  for (const char *end = text + size_bytes; text < end;) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    tsr__buffer_append(&e->scratch, text, (size_t)((stop ? stop : end) - text));
    if (!stop) return;
    print(e);
    tsr__buffer_text(&e->scratch, "  ");
    text = stop + 1;
  }
}

bool tsr_train_report_sample(tsr_train_report *report, uint64_t step, const char *prompt,
                             const char *text, size_t size_bytes) {
  tsr__emitter *e = &report->emitter;
  begin(e, &tsr__fields_train_sample, "sample");
  tsr__emit_field(e, "step", NULL, tsr__count(step));
  tsr__emit_field(e, "prompt", NULL, tsr__string(prompt));
  tsr__emit_field(e, "text", NULL, tsr__text((tsr_text){text, size_bytes}));
  tsr__emit_end(e);
  tsr__emit_printf(e, TSR__PLAIN, "sample after step %" PRIu64 ":", step);
  tsr__buffer_text(&e->scratch, "  ");
  append_lines(e, prompt, strlen(prompt));
  append_lines(e, text, size_bytes);
  print(e);
  return tsr__emitter_flush(e);
}

/* ---- the time of each op ---- */

static void print_op(tsr__emitter *e, const tsr_train_op *op, double total_s, double steps) {
  char size[TSR__FORMAT_BYTES];
  double each_s = op->seconds / steps, giga = (double)op->flops * 1e-9;
  tsr__buffer_printf(&e->scratch, "%-26.26s %-9s %7.2f ms %4.1f %% %10s %6.2f %7.1f", op->name,
                     op->phase, each_s * 1e3, total_s > 0 ? 100 * op->seconds / total_s : 0,
                     tsr__format_size(op->bytes, size), giga, each_s > 0 ? giga / each_s : 0);
  print(e);
}

/* Averages of a step. Ops that took less than a thousandth of the time are one line. */
static void print_ops(tsr__emitter *e, const tsr_training *t, const tsr_train_op *ops) {
  double total_s = 0, steps = (double)(t->timed_steps ? t->timed_steps : 1);
  tsr_train_op others = {.name = "others", .phase = ""};
  for (size_t i = 0; i < t->op_count; i++) total_s += ops[i].seconds;
  tsr__buffer_text(
      &e->scratch,
      "op                         phase      time/step  share      bytes  GFLOP GFLOP/s");
  print(e);
  for (size_t i = 0; i < t->op_count; i++) {
    if (ops[i].seconds * 1000 >= total_s) {
      print_op(e, &ops[i], total_s, steps);
      continue;
    }
    others.seconds += ops[i].seconds;
    others.bytes += ops[i].bytes;
    others.flops += ops[i].flops;
    others.run_count++;
  }
  if (others.run_count) print_op(e, &others, total_s, steps);
}

bool tsr_train_report_ops(tsr_train_report *report, const tsr_training *training,
                          const tsr_train_op *ops) {
  tsr__emitter *e = &report->emitter;
  begin(e, &tsr__fields_train_ops, "ops");
  tsr__emit_array(e, "ops");
  for (size_t i = 0; i < training->op_count; i++) {
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "op", NULL, tsr__string(ops[i].name));
    tsr__emit_field(e, "phase", NULL, tsr__string(ops[i].phase));
    tsr__emit_field(e, "kernels", NULL, tsr__count(ops[i].run_count));
    tsr__emit_field(e, "seconds", NULL, number(ops[i].seconds));
    tsr__emit_field(e, "bytes", NULL, tsr__bytes(ops[i].bytes));
    tsr__emit_field(e, "flops", NULL, tsr__count(ops[i].flops));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
  tsr__emit_end(e);
  print_ops(e, training, ops);
  return tsr__emitter_flush(e);
}

/* ---- memory ---- */

bool tsr_train_report_profile(tsr_train_report *report, const tsr_memory_profile *profile,
                              uint64_t top) {
  tsr__emitter *e = &report->emitter;
  e->fields = &tsr__fields_train_profile;
  tsr__emit_inline_object(e, NULL);
  tsr__emit_object(e, "profile");
  bool ok = tsr__emit_memory_profile(e, profile, top);
  tsr__emit_end(e);
  tsr__emit_end(e);
  e->scratch.failed |= !ok;
  return tsr__emitter_flush(e);
}

bool tsr_train_report_out_of_memory(tsr_train_report *report, const tsr_training *training,
                                    uint64_t budget_bytes) {
  tsr__emitter *e = &report->emitter;
  const tsr_simulate_moment *m = &training->out_of_memory;
  tsr_category categories[TSR_CATEGORY_COUNT];
  char asked[TSR__FORMAT_BYTES], used[TSR__FORMAT_BYTES], budget[TSR__FORMAT_BYTES],
      size[TSR__FORMAT_BYTES];
  if (m->step)
    tsr__emit_printf(e, TSR__PLAIN, "Out of memory in step %" PRIu64 ", %s%s%s%s:",
                     m->step + training->steps_before, m->phase, *m->op ? " (" : "", m->op,
                     *m->op ? ")" : "");
  else
    tsr__emit_printf(e, TSR__PLAIN, "Out of memory before the first step:");
  tsr__emit_printf(
      e, TSR__PLAIN, "%s more do not fit in %s, of which %s are reserved and %s allocated.",
      tsr__format_size(training->oom_request_bytes, asked), tsr__format_size(budget_bytes, budget),
      tsr__format_size(m->totals.reserved_bytes, size),
      tsr__format_size(m->totals.allocated_bytes, used));
  size_t count = tsr__sort_categories(m, categories);
  for (size_t i = 0; i < count; i++)
    tsr__emit_printf(e, TSR__PLAIN, "  %-16s %10s", tsr_category_name(categories[i]),
                     tsr__format_size(m->category_bytes[categories[i]], size));
  return tsr__emitter_flush(e);
}

/* ---- the end: text ---- */

static void print_space(tsr__emitter *e, const char *name, const tsr_space_peak *peak,
                        const tsr_space_peak *predicted) {
  if (!predicted->allocated_bytes) return;
  tsr__buffer_printf(&e->scratch, "%s: ", name);
  append_size(&e->scratch, peak->allocated_bytes);
  append_predicted(&e->scratch, peak->allocated_bytes, predicted->allocated_bytes, append_size);
  tsr__buffer_text(&e->scratch, ".");
  print(e);
}

static void append_speed(tsr__buffer *out, double bytes_per_second, const char *with) {
  if (!(bytes_per_second > 0)) return;
  tsr__buffer_text(out, ", ");
  append_size(out, (uint64_t)bytes_per_second);
  tsr__buffer_printf(out, "/s with the %s", with);
}

/* What was offloaded, and the time for copying it. */
static void print_spaces(tsr__emitter *e, const tsr_training *t) {
  print_space(e, "On the host", &t->host, &t->predicted_host);
  print_space(e, "On disk", &t->disk, &t->predicted_disk);
  if (!(t->copied_bytes > 0)) return;
  tsr__buffer_text(&e->scratch, "Copied ");
  append_size(&e->scratch, (uint64_t)t->copied_bytes);
  append_speed(&e->scratch, t->host_copy_bytes_per_second, "host");
  append_speed(&e->scratch, t->disk_copy_bytes_per_second, "disk");
  tsr__buffer_printf(&e->scratch, "; kernels waited %.2f s for it.", t->copy_wait_seconds);
  print(e);
}

/* What ranks sent, and how many of them took what was predicted. */
static void print_ranks(tsr__emitter *e, const tsr_train_ending *ending) {
  const uint32_t count = ending->training->rank_count;
  uint32_t same = 0;
  uint64_t sent = 0, predicted = 0;
  for (uint32_t i = 0; i < count; i++) {
    const tsr_train_rank *k = &ending->ranks[i];
    same += k->peak_bytes == k->predicted_peak_bytes && k->host_bytes == k->predicted_host_bytes;
    sent += k->sent_bytes;
    predicted += k->predicted_sent_bytes;
  }
  tsr__emit_printf(e, TSR__PLAIN, "%" PRIu32 " of %" PRIu32 " ranks took what was predicted.", same,
                   count);
  tsr__buffer_text(&e->scratch, "All together they sent ");
  append_count(&e->scratch, sent);
  tsr__buffer_text(&e->scratch, " bytes");
  append_predicted(&e->scratch, sent, predicted, append_count);
  tsr__buffer_text(&e->scratch, ".");
  print(e);
}

static void print_placed(tsr__emitter *e, const tsr_training *t) {
  char size[TSR__FORMAT_BYTES], bound[TSR__FORMAT_BYTES];
  tsr__emit_printf(e, TSR__PLAIN,
                   "Placed memory: %s, %.1f %% more than the %s that are live at once.",
                   tsr__format_size(t->reserved_bytes, size),
                   100 * ((double)t->reserved_bytes / (double)t->bound_bytes - 1),
                   tsr__format_size(t->bound_bytes, bound));
}

static void print_end(tsr_train_report *report, const tsr_train_ending *ending) {
  tsr__emitter *e = &report->emitter;
  tsr__buffer *out = &e->scratch;
  const tsr_training *t = ending->training;
  if (!t->steps_done) return;
  tsr__buffer_text(out, ending->was_interrupted ? "Interrupted after " : "");
  append_count(out, t->steps_done);
  tsr__buffer_text(out, t->steps_done == 1 ? " step" : " steps");
  if (report->skipped_count) {
    tsr__buffer_text(out, ", ");
    append_count(out, report->skipped_count);
    tsr__buffer_text(out, " skipped");
  }
  tsr__buffer_text(out, ": loss from ");
  append_loss(out, t->first_loss);
  tsr__buffer_text(out, " to ");
  append_loss(out, t->last_loss);
  tsr__buffer_text(out, ". Peak ");
  append_size(out, t->peak_bytes);
  append_predicted(out, t->peak_bytes, t->predicted_peak_bytes, append_size);
  tsr__buffer_text(out, ".");
  print(e);
  if (t->best_validation_step) {
    tsr__buffer_text(out, "Validation: loss ");
    append_loss(out, t->validation_loss);
    tsr__buffer_text(out, ", the best ");
    append_loss(out, t->best_validation_loss);
    tsr__buffer_printf(out, " after step %" PRIu64 ".", t->best_validation_step);
    print(e);
  }
  if (t->bound_bytes) print_placed(e, t);
  print_spaces(e, t);
  if (ending->ranks) print_ranks(e, ending);
}

/* ---- the end: JSON ---- */

static void emit_memory(tsr__emitter *e, const tsr_training *t) {
  tsr__emit_field(e, "peak_bytes", NULL, tsr__bytes(t->peak_bytes));
  tsr__emit_field(e, "predicted_peak_bytes", NULL, tsr__bytes(t->predicted_peak_bytes));
  tsr__emit_field(e, "reserved_bytes", NULL, tsr__bytes(t->reserved_bytes));
  tsr__emit_field(e, "predicted_reserved_bytes", NULL, tsr__bytes(t->predicted_reserved_bytes));
  tsr__emit_field(e, "bound_bytes", NULL, bytes_or_null(t->bound_bytes));
  tsr__emit_field(e, "host_bytes", NULL, tsr__bytes(t->host.allocated_bytes));
  tsr__emit_field(e, "predicted_host_bytes", NULL, tsr__bytes(t->predicted_host.allocated_bytes));
  tsr__emit_field(e, "disk_bytes", NULL, tsr__bytes(t->disk.allocated_bytes));
  tsr__emit_field(e, "predicted_disk_bytes", NULL, tsr__bytes(t->predicted_disk.allocated_bytes));
  tsr__emit_field(e, "data_bytes", NULL, tsr__bytes(t->data_bytes));
  tsr__emit_field(e, "predicted_data_bytes", NULL, tsr__bytes(t->predicted_data_bytes));
  tsr__emit_field(e, "copied_bytes", NULL, tsr__bytes((uint64_t)t->copied_bytes));
  tsr__emit_field(e, "host_copy_bytes_per_second", NULL, number(t->host_copy_bytes_per_second));
  tsr__emit_field(e, "disk_copy_bytes_per_second", NULL, number(t->disk_copy_bytes_per_second));
  tsr__emit_field(e, "copy_wait_seconds", NULL, number(t->copy_wait_seconds));
}

static void emit_ranks(tsr__emitter *e, const tsr_train_ending *ending) {
  if (!ending->ranks) {
    tsr__emit_field(e, "ranks", NULL, tsr__nothing());
    return;
  }
  tsr__emit_array(e, "ranks");
  for (uint32_t i = 0; i < ending->training->rank_count; i++) {
    const tsr_train_rank *k = &ending->ranks[i];
    tsr__emit_object(e, NULL);
    tsr__emit_field(e, "rank", NULL, tsr__count(i));
    tsr__emit_field(e, "peak_bytes", NULL, tsr__bytes(k->peak_bytes));
    tsr__emit_field(e, "predicted_peak_bytes", NULL, tsr__bytes(k->predicted_peak_bytes));
    tsr__emit_field(e, "host_bytes", NULL, tsr__bytes(k->host_bytes));
    tsr__emit_field(e, "predicted_host_bytes", NULL, tsr__bytes(k->predicted_host_bytes));
    tsr__emit_field(e, "sent_bytes", NULL, tsr__bytes(k->sent_bytes));
    tsr__emit_field(e, "predicted_sent_bytes", NULL, tsr__bytes(k->predicted_sent_bytes));
    tsr__emit_end(e);
  }
  tsr__emit_end(e);
}

bool tsr_train_report_end(tsr_train_report *report, const tsr_train_ending *ending) {
  tsr__emitter *e = &report->emitter;
  const tsr_training *t = ending->training;
  begin(e, &tsr__fields_train_end, "end");
  tsr__emit_field(e, "plan_hash", NULL, tsr__string(ending->plan_hash));
  tsr__emit_field(e, "steps", NULL, tsr__count(t->steps_before + t->steps_done));
  tsr__emit_field(e, "steps_done", NULL, tsr__count(t->steps_done));
  tsr__emit_field(e, "steps_skipped", NULL, tsr__count(report->skipped_count));
  tsr__emit_field(e, "steps_before", NULL, tsr__count(t->steps_before));
  tsr__emit_field(e, "parameters", NULL, tsr__count(t->parameter_count));
  tsr__emit_field(e, "trained_parameters", NULL, tsr__count(t->trained_count));
  tsr__emit_field(e, "tokens", NULL, tsr__count(t->token_count));
  tsr__emit_field(e, "seconds", NULL, number(ending->seconds));
  tsr__emit_field(e, "step_flops", NULL, tsr__count(t->step_flops));
  tsr__emit_field(e, "first_loss", NULL, t->steps_done ? number(t->first_loss) : tsr__nothing());
  tsr__emit_field(e, "last_loss", NULL, t->steps_done ? number(t->last_loss) : tsr__nothing());
  tsr__emit_field(e, "validation_loss", NULL, number(t->validation_loss));
  tsr__emit_field(e, "best_validation_loss", NULL, number(t->best_validation_loss));
  tsr__emit_field(e, "best_validation_step", NULL,
                  t->best_validation_step ? tsr__count(t->best_validation_step) : tsr__nothing());
  tsr__emit_field(e, "diverged", NULL, tsr__bool(t->is_diverged));
  tsr__emit_field(e, "out_of_memory", NULL, tsr__bool(t->is_out_of_memory));
  tsr__emit_field(e, "interrupted", NULL, tsr__bool(ending->was_interrupted));
  tsr__emit_field(e, "saved", NULL, tsr__bool(ending->is_saved));
  emit_memory(e, t);
  tsr__emit_field(e, "products", NULL,
                  report->step_count ? tsr__string(tsr_train_products_words[report->products])
                                     : tsr__nothing());
  emit_ranks(e, ending);
  tsr__emit_end(e);
  print_end(report, ending);
  return tsr__emitter_flush(e);
}
