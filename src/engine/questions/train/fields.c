/* fields.c - what the events of "train" have. */
#include "questions/train/fields.h"

#include "questions/reports.h"
#include "tessera/unstable/train_report.h"

#define RANK TSR__FIELD(COUNT, "rank", "0, the rank that reports for all")

static const tsr_record event = {
    .name = "TrainEvent",
    .about = "One line that train prints.",
    TSR__FIELDS(TSR__FIELD(TEXT, "event", "`plan`, `step`, `sample`, `ops` or `end`")),
};

const tsr_record tsr__fields_train_plan = {
    .name = "TrainPlan",
    .about = "The plan that was found for a budget.",
    .base = &event,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "verdict", "`fits_with_changes` or `does_not_fit`"),
        TSR__FIELD(BYTES, "budget_bytes", "`--budget`, for each rank"),
        TSR__FIELD(TEXT, "plan_hash", "the plan's hash ([plan.md](plan.md))"),
        TSR__FIELD(BYTES, "peak_allocated_bytes", "allocated at its predicted peak"),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
        TSR__FIELD(BYTES, "bound_bytes", "what every plan needs at once, at least"),
        TSR__FIELD(FLAG, "is_proved", "if nothing fits: whether it is proved that nothing can")),
};

const tsr_record tsr__fields_train_step = {
    .name = "TrainStep",
    .about = "A finished step.",
    .base = &event,
    TSR__FIELDS(RANK, TSR__FIELD(COUNT, "step", "its number, from 1"),
                TSR__FIELD(REAL, "loss",
                           "the mean over the step's tokens; null if it is not finite",
                           .is_nullable = true),
                TSR__FIELD(REAL, "validation_loss",
                           "the mean loss over the batches of `--val`, after the step; null if it "
                           "was not evaluated",
                           .is_nullable = true),
                TSR__FIELD(REAL, "gradient_norm",
                           "the norm of all gradients before `--clip`; null without `--clip`",
                           .is_nullable = true),
                TSR__FIELD(REAL, "learning_rate", "the learning rate of the step"),
                TSR__FIELD(FLAG, "skipped", "whether an overflow left the parameters unchanged"),
                TSR__FIELD(COUNT, "tokens", "tokens of the step"),
                TSR__FIELD(REAL, "seconds", "what the step took, without an evaluation"),
                TSR__FIELD(REAL, "tokens_per_second", "tokens by seconds", .is_nullable = true),
                TSR__FIELD(REAL, "seconds_left",
                           "until the last step, by a running mean of the time between steps, "
                           "evaluations and saves included; null after the first step and the last",
                           .is_nullable = true),
                TSR__FIELD(TEXT, "warning", "that the loss rises, and what to try; else null",
                           .is_nullable = true),
                TSR__FIELD(BYTES, "allocated_bytes", "live after the step, as requested"),
                TSR__FIELD(BYTES, "peak_bytes", "peak allocated so far")),
};

const tsr_record tsr__fields_train_sample = {
    .name = "TrainSample",
    .about = "A text that the saved weights continue (`--sample`).",
    .base = &event,
    TSR__FIELDS(RANK, TSR__FIELD(COUNT, "step", "the step after which they were saved"),
                TSR__FIELD(TEXT, "prompt", "the text to continue"),
                TSR__FIELD(TEXT, "text", "what follows it")),
};

static const tsr_record op = {
    .name = "TrainOp",
    .about = "The kernels of an op in one phase.",
    TSR__FIELDS(TSR__FIELD(TEXT, "op", "the op, or a kernel that belongs to none"),
                TSR__FIELD(TEXT, "phase", "`forward`, `backward`, `optimizer`, ..."),
                TSR__FIELD(COUNT, "kernels", "kernels of one step"),
                TSR__FIELD(REAL, "seconds", "their time in all steps"),
                TSR__FIELD(BYTES, "bytes", "bytes read and written in one step"),
                TSR__FIELD(COUNT, "flops", "floating-point operations of one step")),
};

const tsr_record tsr__fields_train_ops = {
    .name = "TrainOps",
    .about = "The time of each op.",
    .base = &event,
    TSR__FIELDS(RANK, TSR__LIST(op, "ops", "every op in each of its phases, the longest first")),
};

const tsr_record tsr__fields_train_profile = {
    .name = "TrainProfile",
    .about = "What is in memory at the peak.",
    TSR__FIELDS(TSR__PART(tsr__fields_memory_profile, "profile",
                          "what is in memory at the peak, as in `simulate --profile`")),
};

static const tsr_record rank = {
    .name = "TrainRank",
    .about = "What a rank took.",
    TSR__FIELDS(TSR__FIELD(COUNT, "rank", "its number, from 0"),
                TSR__FIELD(BYTES, "peak_bytes", "its peak, allocated"),
                TSR__FIELD(BYTES, "predicted_peak_bytes", "the same, predicted"),
                TSR__FIELD(BYTES, "host_bytes", "what it kept on the host"),
                TSR__FIELD(BYTES, "predicted_host_bytes", "the same, predicted"),
                TSR__FIELD(BYTES, "sent_bytes", "what it sent to other ranks in all steps"),
                TSR__FIELD(BYTES, "predicted_sent_bytes", "the same, predicted")),
};

const tsr_record tsr__fields_train_end = {
    .name = "TrainEnd",
    .about = "The summary of a run.",
    .base = &event,
    TSR__FIELDS(
        RANK, TSR__FIELD(TEXT, "plan_hash", "of the run's [plan](plan.md)"),
        TSR__FIELD(COUNT, "steps", "`steps_before` and `steps_done` together"),
        TSR__FIELD(COUNT, "steps_done", "steps of this run"),
        TSR__FIELD(COUNT, "steps_skipped",
                   "of these, steps that were skipped because scaled gradients overflowed"),
        TSR__FIELD(COUNT, "steps_before", "steps before `--resume`"),
        TSR__FIELD(COUNT, "parameters",
                   "number of elements in `model.parameters()`, tied weights counted once"),
        TSR__FIELD(COUNT, "trained_parameters",
                   "those of them that are trained: fewer with `--lora`, whose adapters are then "
                   "among `parameters`"),
        TSR__FIELD(COUNT, "tokens", "tokens of all steps of this run"),
        TSR__FIELD(REAL, "seconds", "what the run took"),
        TSR__FIELD(COUNT, "step_flops", "floating-point operations of one step"),
        TSR__FIELD(REAL, "first_loss",
                   "of the first step of this run; null if no step was completed",
                   .is_nullable = true),
        TSR__FIELD(REAL, "last_loss", "of the last completed step", .is_nullable = true),
        TSR__FIELD(REAL, "validation_loss", "of the last evaluation; null without any",
                   .is_nullable = true),
        TSR__FIELD(REAL, "best_validation_loss", "the smallest of this run", .is_nullable = true),
        TSR__FIELD(COUNT, "best_validation_step", "the step that it followed", .is_nullable = true),
        TSR__FIELD(FLAG, "diverged", "the run ended because a loss or gradient was not finite"),
        TSR__FIELD(FLAG, "out_of_memory", "the run ended because `--budget` was too small"),
        TSR__FIELD(FLAG, "interrupted", "the run was ended by a signal, such as Ctrl-C"),
        TSR__FIELD(FLAG, "saved", "whether `--save` has written its folder"),
        TSR__FIELD(BYTES, "peak_bytes", "the peak, allocated"),
        TSR__FIELD(BYTES, "predicted_peak_bytes", "the same, predicted"),
        TSR__FIELD(BYTES, "reserved_bytes",
                   "segments: the most memory that was usable at one time. With `--memory placed`, "
                   "the single range"),
        TSR__FIELD(BYTES, "predicted_reserved_bytes", "the same, predicted"),
        TSR__FIELD(BYTES, "bound_bytes",
                   "with `--memory placed`, the largest sum of live tensors; else null",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "host_bytes", "the most that `--offload` kept on the host, allocated"),
        TSR__FIELD(BYTES, "predicted_host_bytes", "the same, predicted"),
        TSR__FIELD(BYTES, "disk_bytes", "the most that `--offload` kept on disk, allocated"),
        TSR__FIELD(BYTES, "predicted_disk_bytes", "the same, predicted"),
        TSR__FIELD(BYTES, "data_bytes",
                   "tokens of one step in the process's own memory: accumulate × batch × sequence "
                   "× 8 bytes. They are read one step ahead, piece by piece; the rest of the data "
                   "stays in its file, however large it is. With `--val` also the batches of an "
                   "evaluation"),
        TSR__FIELD(BYTES, "predicted_data_bytes", "the same, predicted"),
        TSR__FIELD(BYTES, "copied_bytes", "copied for `--offload` in all steps"),
        TSR__FIELD(REAL, "host_copy_bytes_per_second",
                   "the speed of copies between the GPU's memory and the host; 0 without any"),
        TSR__FIELD(REAL, "disk_copy_bytes_per_second", "the same for the disk"),
        TSR__FIELD(REAL, "copy_wait_seconds", "how long kernels waited for copies"),
        TSR__FIELD(TEXT, "products",
                   "what computed matrix products, as in `--products`; null if no step was "
                   "completed",
                   .is_nullable = true),
        TSR__LIST(rank, "ranks",
                  "what each rank allocated and sent ([distributed.md](distributed.md)); null for "
                  "a single process",
                  .is_nullable = true)),
};

const tsr_record *tsr_train_event_fields(size_t index) {
  static const tsr_record *const all[] = {&tsr__fields_train_plan,    &tsr__fields_train_step,
                                          &tsr__fields_train_sample,  &tsr__fields_train_ops,
                                          &tsr__fields_train_profile, &tsr__fields_train_end};
  return index < sizeof all / sizeof *all ? all[index] : NULL;
}
