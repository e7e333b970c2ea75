/* fields.c - what the answers of "plan" have: those for a budget in `found`, all others in the answer's own record. */
#include "emit/fields.h"
#include "questions/outside.h"
#include "questions/reports.h"

#define PLAN_FIELD(KEY, ...) TSR__FIELD(JSON, KEY, __VA_ARGS__)
#define HOST_FIELDS                                                                     \
  TSR__FIELD(BYTES, "host_bytes",                                                       \
             "the most that a rank reserves on its host; 0 if it keeps nothing there"), \
      TSR__FIELD(BYTES, "host_machine_bytes", "the same of all ranks of a machine")

static const tsr_record tensor = {
    .name = "PlanTensor",
    .about = "Tensors of one sort.",
    TSR__FIELDS(TSR__FIELD(TEXT, "name", "their category, and what made them"),
                TSR__FIELD(BYTES, "bytes", "their memory")),
};

static const tsr_record cost = {
    .name = "PlanCost",
    .about = "What a training takes under some plan.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(BYTES, "peak_allocated_bytes", "allocated at the peak"),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
        TSR__FIELD(COUNT, "step_flops", "floating-point operations of a step"),
        TSR__FIELD(COUNT, "step_recomputed_flops", "of these, those that are recomputation"),
        TSR__FIELD(DURATION, "step_time_us", "the estimated time of a step"),
        TSR__FIELD(DURATION, "step_time_low_us", "what it really is at least"),
        TSR__FIELD(DURATION, "step_time_high_us", "and at most"), HOST_FIELDS),
};

static const tsr_record figures = {
    .name = "PlanFigures",
    .about = "What a training takes under a plan for a budget.",
    TSR__FIELDS(TSR__FIELD(BYTES, "peak_allocated_bytes", "allocated at the peak"),
                TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
                TSR__FIELD(REAL, "step_time_us", "the estimated time of a step, in microseconds"),
                TSR__FIELD(REAL, "step_time_low_us", "what it really is at least"),
                TSR__FIELD(REAL, "step_time_high_us", "and at most"),
                TSR__FIELD(BYTES, "sent_bytes",
                           "what each rank sends to others in a step; 0 without ranks"),
                TSR__FIELD(REAL, "stall_time_us",
                           "how long kernels wait for these transfers in a step, in microseconds"),
                HOST_FIELDS),
};

/* ---- For a budget ---- */

static const tsr_record model = {
    .name = "PlanModel",
    .about = "The model that was planned.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "its name"),
        TSR__FIELD(FLAG, "is_step_graph", "it is a step graph; all sizes below are then 0"),
        TSR__FIELD(COUNT, "layers", "blocks"), TSR__FIELD(COUNT, "width", "hidden size"),
        TSR__FIELD(COUNT, "heads", "attention heads"),
        TSR__FIELD(COUNT, "kv_heads", "heads of keys and values"),
        TSR__FIELD(COUNT, "inner", "width within a block's feed-forward part"),
        TSR__FIELD(COUNT, "vocabulary", "tokens that the model knows"),
        TSR__FIELD(TEXT, "sha256",
                   "of the description: the step graph's file, or the `config.json` that "
                   "`--write-model` would write"),
        PLAN_FIELD("config", "that `config.json`; null for a step graph", .is_nullable = true)),
};

static const tsr_record question = {
    .name = "PlanQuestion",
    .about = "Everything that the answer depends on.",
    TSR__FIELDS(
        TSR__PART(model, "model", "the model"),
        TSR__FIELD(TEXT, "allow", "the words of `--allow`", .is_list = true),
        TSR__FIELD(COUNT, "batch", "sequences per batch"),
        TSR__FIELD(COUNT, "sequence", "tokens per sequence"),
        TSR__FIELD(COUNT, "steps", "steps that were simulated"),
        TSR__FIELD(TEXT, "book", "which kernels are modelled: `torch` or `own`"),
        TSR__FIELD(TEXT, "gpu", "the card of the times", .is_nullable = true),
        TSR__FIELD(REAL, "link_bytes_per_s", "what `--link` has, in bytes per second",
                   .is_nullable = true),
        TSR__FIELD(COUNT, "gpus_per_node", "what `--gpus-per-node` has", .is_nullable = true),
        TSR__FIELD(REAL, "network_bytes_per_s", "what `--network` has, in bytes per second",
                   .is_nullable = true),
        TSR__FIELD(REAL, "latency_us", "what `--latency` has inside of machines, in microseconds",
                   .is_nullable = true),
        TSR__FIELD(REAL, "network_latency_us", "and between them", .is_nullable = true),
        TSR__FIELD(BYTES, "host_budget_bytes", "what `--host-budget` has", .is_nullable = true),
        TSR__FIELD(TEXT, "rates", "the machine of `--rates`", .is_nullable = true),
        PLAN_FIELD("rates_file", "what the file of `--rates` has", .is_nullable = true),
        PLAN_FIELD("options", "the options that were given, but for names of files"),
        PLAN_FIELD("begins_with", "the plan to begin with")),
};

static const tsr_record bound = {
    .name = "PlanBound",
    .about = "Bounds for every schedule of these kernels, over all ways.",
    TSR__FIELDS(
        TSR__FIELD(REAL, "step_time_us",
                   "microseconds; null if it is proved that nothing fits, 0 if no bound is "
                   "known",
                   .is_nullable = true),
        TSR__FIELD(REAL, "gap_us",
                   "how much longer the plan takes than this bound; null if it does not "
                   "fit",
                   .is_nullable = true),
        TSR__FIELD(REAL, "gap_percent", "the same, as a percentage of the bound",
                   .is_nullable = true),
        TSR__FIELD(BYTES, "peak_bytes", "allocated; null if it is not known", .is_nullable = true)),
};

static const tsr_record searched = {
    .name = "PlanSearched",
    .about = "What the search compared.",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "combinations", "combinations of all choices but those for blocks"),
        TSR__FIELD(COUNT, "too_long",
                   "of these, those that were skipped, as their step is too long to be simulated"),
        TSR__FIELD(COUNT, "excluded", "others that the model or another choice excludes")),
};

static const tsr_record change = {
    .name = "PlanChange",
    .about = "One change, after those before it.",
    TSR__FIELDS(TSR__FIELD(TEXT, "technique", "what is changed"),
                TSR__FIELD(DELTA, "saved_bytes",
                           "memory that it saves; negative if it adds some. Null if no plan before "
                           "it is possible",
                           .is_nullable = true),
                TSR__FIELD(REAL, "cost_us",
                           "microseconds that a step takes longer; negative if it saves some",
                           .is_nullable = true),
                PLAN_FIELD("plan", "the plan with this change"), HOST_FIELDS),
};

static const tsr_record saving = {
    .name = "PlanSaving",
    .about = "A change that may cost no time, after those before it that were taken.",
    TSR__FIELDS(PLAN_FIELD("keys", "the change as keys of plan files; `{}`: no change"),
                TSR__FIELD(BYTES, "peak_allocated_bytes", "null if it is not possible",
                           .is_nullable = true),
                TSR__FIELD(REAL, "step_time_us", "microseconds", .is_nullable = true)),
};

static const tsr_record refused = {
    .name = "PlanRefused",
    .about = "A way that the model or another choice excludes.",
    TSR__FIELDS(PLAN_FIELD("plan", "its choices"), TSR__FIELD(FLAG, "narrows", "as in `ways`"),
                TSR__FIELD(TEXT, "reason", "why it is excluded")),
};

static const tsr_record phase = {
    .name = "PlanCalibratedPhase",
    .about = "The time of a phase.",
    TSR__FIELDS(TSR__FIELD(REAL, "measured_us", "microseconds; 0 if it is not known"),
                TSR__FIELD(REAL, "predicted_us", "microseconds")),
};

static const tsr_record phases = {
    .name = "PlanCalibratedPhases",
    .about = "The times of the phases of a step.",
    TSR__FIELDS(TSR__PART(phase, "forward", "of forward"),
                TSR__PART(phase, "backward", "of backward"),
                TSR__PART(phase, "optimizer", "of the optimizer")),
};

static const tsr_record unexplained = {
    .name = "PlanUnexplained",
    .about = "What a recorded run has at its peak beyond the prediction.",
    TSR__FIELDS(TSR__FIELD(TEXT, "category", "what it is for"),
                TSR__FIELD(TEXT, "place", "the program's line"),
                TSR__FIELD(COUNT, "allocations", "how many there are"),
                TSR__FIELD(BYTES, "bytes", "their memory")),
};

static const tsr_record calibration = {
    .name = "PlanCalibration",
    .about = "What the recorded run of `--from` shows "
             "([plan.md](plan.md#from-a-recorded-run)).",
    TSR__FIELDS(
        TSR__FIELD(COUNT, "steps", "steady steps that were measured"),
        TSR__FIELD(REAL, "measured_step_us", "their median, in microseconds; 0 if none was"),
        TSR__FIELD(REAL, "estimated_step_us", "what is estimated for a step"),
        TSR__FIELD(REAL, "factor", "by which times are multiplied; null if no time was measured",
                   .is_nullable = true),
        TSR__PART(phases, "phases", "the times of the phases"),
        TSR__FIELD(BYTES, "unexplained_bytes", "memory at the recorded peak that is not predicted"),
        TSR__FIELD(COUNT, "unexplained_allocations", "its allocations"),
        TSR__LIST(unexplained, "unexplained", "the largest of it")),
};

static const tsr_record candidate = {
    .name = "PlanCandidate",
    .about = "Tensors that could be dropped and computed again.",
    TSR__FIELDS(TSR__FIELD(TEXT, "op", "the op that made them"),
                TSR__FIELD(TEXT, "kernel", "its kernel"),
                TSR__FIELD(BYTES, "bytes", "the size of one"),
                TSR__FIELD(COUNT, "count", "how many there are"),
                TSR__FIELD(REAL, "us", "the time of the kernel, in microseconds")),
};

static const tsr_record lowest = {
    .name = "PlanFloor",
    .about = "A moment whose required tensors alone are a lower bound.",
    TSR__FIELDS(TSR__FIELD(TEXT, "phase", "the phase"), TSR__FIELD(TEXT, "op", "what is running"),
                TSR__FIELD(BYTES, "bytes", "required then"),
                TSR__LIST(tensor, "tensors", "what is required")),
};

static const tsr_record way = {
    .name = "PlanWay",
    .about = "One way to run the model, with the data of its bounds "
             "([plan.md](plan.md#the-certificate)).",
    TSR__FIELDS(
        PLAN_FIELD("plan", "its types, kernels, micro-batches and places"),
        TSR__FIELD(FLAG, "narrows", "blocks may keep saved tensors in 8 or 16 bits"),
        TSR__FIELD(REAL, "kernels_us", "microseconds of the kernels of a step"),
        TSR__FIELD(REAL, "copies_us", "of copies between the card and the host"),
        TSR__FIELD(REAL, "waited_us", "of transfers between ranks that nothing can hide"),
        TSR__FIELD(REAL, "links_us", "a lower bound on the time of kernels and transfers together"),
        TSR__FIELD(BYTES, "most_bytes",
                   "at its own peak if all is kept. This and what follows up to `floor` are left "
                   "out for a way that takes longer than the plan even so",
                   .is_optional = true),
        TSR__FIELD(BYTES, "needed_bytes", "of these, what cannot be dropped", .is_optional = true),
        TSR__FIELD(COUNT, "repeats", "micro-batches", .is_optional = true),
        TSR__FIELD(BYTES, "sent_bytes", "by each rank in a step", .is_optional = true),
        TSR__LIST(candidate, "could_be_made_again", "what can be dropped", .is_optional = true),
        TSR__PART(lowest, "floor", "the moment that needs most", .is_optional = true),
        TSR__FIELD(REAL, "bound_us",
                   "microseconds that a step takes at least, within the budget; null if it cannot "
                   "be met",
                   .is_nullable = true)),
};

static const tsr_record binding = {
    .name = "PlanBinding",
    .about = "The moment of the peak.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "phase", "the phase"), TSR__FIELD(TEXT, "op", "what is running"),
        TSR__FIELD(COUNT, "step", "the step"),
        TSR__LIST(tensor, "tensors",
                  "what is in memory; the bytes add up to `predicted.peak_allocated_bytes`")),
};

static const tsr_record pasted = {
    .name = "PlanPasted",
    .about = "The plan in the words of another program.",
    TSR__FIELDS(TSR__FIELD(TEXT, "target", "the program"),
                TSR__FIELD(TEXT, "file", "what the text is called in a folder: `hf.py`"),
                TSR__FIELD(TEXT, "text", "what is pasted into it"),
                TSR__FIELD(TEXT, "notes",
                           "a line for each choice that the text lacks, if its format has no "
                           "comments, as JSON; null if comments in the text contain them",
                           .is_nullable = true),
                TSR__FIELD(BYTES, "reserved_bytes",
                           "reserved with what the program can express; null if that is all of the "
                           "plan",
                           .is_nullable = true)),
};

static const tsr_record found = {
    .name = "PlanFound",
    .about = "A plan for a budget, which is also a certificate.",
    .is_apart = true,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "schema", "`tessera/1`"), TSR__FIELD(TEXT, "command", "`plan`"),
        TSR__FIELD(TEXT, "tessera", "the version of tessera that wrote it"),
        TSR__FIELD(TEXT, "verdict", "`fits` (as it is), `fits_with_changes` or `does_not_fit`"),
        TSR__FIELD(BYTES, "budget_bytes",
                   "the budget, without what `--from` and `outside` take from it"),
        TSR__FIELD(FLAG, "is_proved", "it is proved that nothing fits"),
        TSR__FIELD(
            TEXT, "stopped_by",
            "`work_limit` or `time_limit`, if the search reached it: the plan is the best so "
            "far, without `changes`, and another may be faster, or fit; with `--largest` a "
            "larger size may fit, and with `--front` a plan that needs less may exist",
            .is_optional = true),
        TSR__FIELD(COUNT, "plans_tried", "plans that were simulated"),
        TSR__PART(searched, "searched", "what the search compared"),
        TSR__PART(question, "question", "everything that the answer depends on"),
        TSR__FIELD(REAL, "exposed", "the share of copies that is not hidden"),
        TSR__PART(figures, "as_is", "without changes; null if that is not possible",
                  .is_nullable = true),
        TSR__PART(figures, "predicted", "with the plan"),
        TSR__PART(bound, "lower_bound", "bounds for every schedule of these kernels"),
        PLAN_FIELD("plan",
                   "the plan file. If nothing fits, the plan with the least memory of those "
                   "that were tried"),
        TSR__FIELD(TEXT, "plan_hash", "its hash"),
        TSR__LIST(change, "changes", "what is changed, one after another"),
        TSR__LIST(saving, "savings", "changes that may cost no time"),
        TSR__LIST(refused, "refused", "ways that are not possible"),
        TSR__FIELD(COUNT, "blocks", "of a step graph: blocks of its chain", .is_optional = true),
        TSR__FIELD(COUNT, "blocks_out_of_chain",
                   "of a step graph: blocks that read results of others than the one before",
                   .is_optional = true),
        TSR__PART(calibration, "calibration", "with `--from`", .is_optional = true),
        TSR__LIST(way, "ways", "every way that was considered"),
        TSR__PART(binding, "binding", "the moment of the peak"),
        TSR__PART(
            tsr__fields_outside, "outside",
            "with a model: what is outside of PyTorch's allocator on the card of `--gpu`, or on "
            "one whose memory is the budget; else null",
            .is_optional = true, .is_nullable = true),
        TSR__PART(pasted, "for", "with `--for`: the plan in the words of that program",
                  .is_optional = true),
        TSR__LIST(pasted, "also_for",
                  "with more than one `--for`: the plan in the words of the other programs",
                  .is_optional = true)),
};

static const tsr_record listing = {
    .name = "PlanListing",
    .about = "What a search compares, with the names and values that a certificate has.",
    TSR__FIELDS(TSR__FIELD(TEXT, "tessera", "the version of tessera"),
                TSR__PART(question, "question", "everything that the list depends on"),
                TSR__FIELD(REAL, "exposed", "the share of copies that is not hidden"),
                TSR__PART(figures, "as_is", "the plan to begin with; null if it is not possible",
                          .is_nullable = true),
                TSR__LIST(saving, "savings", "changes that may cost no time"),
                TSR__LIST(refused, "refused", "ways that are not possible"),
                TSR__PART(calibration, "calibration", "with `--from`", .is_optional = true),
                TSR__LIST(way, "ways",
                          "all ways, with estimates, and after them that of the plan to begin "
                          "with, simulated, which alone has the fields up to `floor`. `bound_us` "
                          "is for a budget that is not limited"),
                TSR__PART(binding, "binding", "the moment of the peak of the plan to begin with",
                          .is_optional = true)),
};

/* ---- Other answers ---- */

static const tsr_record technique = {
    .name = "PlanTechnique",
    .about = "What a technique saves and costs.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "technique", "its name"),
        PLAN_FIELD("choice", "the technique as keys of plan files"),
        TSR__FIELD(FLAG, "is_free", "it costs no time"),
        TSR__PART(cost, "alone", "with this technique; null if it is not possible",
                  .is_nullable = true),
        TSR__PART(cost, "so_far", "with this one and those before it", .is_nullable = true)),
};

static const tsr_record choice = {
    .name = "PlanChoice",
    .about = "What a choice of a plan saves and costs.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "choice", "its name"),
        TSR__PART(cost, "alone", "with this choice; null if it is not possible",
                  .is_nullable = true),
        TSR__PART(cost, "so_far", "with this one and those before it", .is_nullable = true)),
};

static const tsr_record point = {
    .name = "PlanPoint",
    .about = "The fastest plan for some memory.",
    TSR__FIELDS(TSR__FIELD(BYTES, "peak_allocated_bytes", "allocated at the peak"),
                TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved"),
                TSR__FIELD(REAL, "step_time_us", "the estimated time of a step, in microseconds"),
                TSR__FIELD(REAL, "step_time_low_us", "what it really is at least"),
                TSR__FIELD(REAL, "step_time_high_us", "and at most"), HOST_FIELDS,
                TSR__FIELD(TEXT, "plan_hash", "the plan's hash"), PLAN_FIELD("plan", "the plan")),
};

static const tsr_record estimate = {
    .name = "PlanEstimate",
    .about = "What a paper or another tool estimates.",
    TSR__FIELDS(TSR__FIELD(TEXT, "source", "the paper or tool"),
                TSR__FIELD(TEXT, "what", "what the formula is for"),
                TSR__FIELD(TEXT, "counts",
                           "`states`: parameters, gradients and optimizer; `activations`: what is "
                           "saved for backward"),
                TSR__FIELD(BYTES, "device_bytes", "on each card"),
                TSR__FIELD(BYTES, "host_bytes", "on each machine"),
                TSR__FIELD(TEXT, "remark", "what the formula assumes", .is_nullable = true)),
};

static const tsr_record note = {
    .name = "PlanNote",
    .about = "What the answer assumes, or what cannot be on the card.",
    TSR__FIELDS(TSR__FIELD(TEXT, "message", "the note in words")),
};

const tsr_record tsr__fields_plan = {
    .name = "plan",
    .about = "What to change so that a training fits, and what each technique saves and costs.",
    .base = &found,
    .may_lack_base = true,
    TSR__FIELDS(
        TSR__FIELD(TEXT, "gpu", "without an action: the card of the times", .is_optional = true),
        TSR__LIST(technique, "techniques",
                  "without an action: each technique; free ones first, then the cheaper ones",
                  .is_optional = true),
        TSR__PART(cost, "without",
                  "without an action, the model as it is; with `plan show`, without the plan",
                  .is_optional = true),
        TSR__PART(cost, "with", "with `plan show` and a model: with the plan", .is_optional = true),
        TSR__LIST(choice, "choices", "with `plan show` and a model: each choice of the plan",
                  .is_optional = true),
        TSR__PART(listing, "listing", "with `--ways`", .is_optional = true),
        TSR__LIST(point, "front", "with `--front`: the fastest plan first", .is_optional = true),
        TSR__FIELD(TEXT, "largest", "with `--largest`: `batch`, `seq` or `model`",
                   .is_optional = true),
        TSR__FIELD(COUNT, "size",
                   "with `--largest`: sequences, tokens or parameters; 0 if not even one fits",
                   .is_optional = true),
        TSR__FIELD(COUNT, "size_as_is", "the same without changes", .is_optional = true),
        TSR__FIELD(JSON, "model", "with `--largest model`: its `config.json`", .is_optional = true),
        TSR__PART(found, "answer", "with `--largest`: as for `--budget`, of that size",
                  .is_optional = true, .is_nullable = true),
        TSR__FIELD(COUNT, "parameters", "with `--compare`: elements of all parameters",
                   .is_optional = true),
        TSR__FIELD(COUNT, "largest_layer_parameters", "of these, those of the largest layer",
                   .is_optional = true),
        TSR__FIELD(COUNT, "cards", "with `--compare`: cards that train together",
                   .is_optional = true),
        TSR__FIELD(COUNT, "cards_per_node", "cards in each machine", .is_optional = true),
        TSR__FIELD(BYTES, "peak_allocated_bytes",
                   "with `--compare` and a model: the predicted peak of one card",
                   .is_optional = true),
        TSR__FIELD(BYTES, "peak_reserved_bytes", "the most that is reserved there",
                   .is_optional = true),
        TSR__LIST(estimate, "estimates", "with `--compare`: what formulas give",
                  .is_optional = true),
        TSR__FIELD(TEXT, "step_time_source",
                   "with a model: what the lows and highs of times are from: `the card's data "
                   "sheet`, `measured rates`, `the recorded run`, or `rates without a known error`",
                   .is_optional = true),
        TSR__LIST(note, "notes",
                  "of a step graph with experts: how tokens are distributed to them; of the card "
                  "of `--gpu`: a budget that leaves no room for its context, or types that it "
                  "has no hardware for",
                  .is_optional = true)),
};
