/* simulate.c - a training run that has not run: an Answer, and the Snapshot it would have left.
 *
 * The simulation owns its snapshot; both Python objects keep it through one core_file.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

typedef struct simulated {
  core_file file; /* its snapshot is the simulation's */
  tsr_simulation *simulation;
  uint64_t capacity_bytes;
} simulated;

static void end_simulated(core_owner *owner) {
  simulated *run = (simulated *)(void *)owner;
  tsr_simulation_free(run->simulation);
  free(run->file.name);
  free(run);
}

static int print_simulated(core_report *report, const void *answer) {
  const simulated *run = answer;
  return tsr_report_simulate(report->inputs, run->simulation, run->capacity_bytes, report->options,
                             core_sink_write, report->sink, &report->error);
}

/* The value goes with the file, of which the Answer has a use. */
static void free_simulated(void *answer) {
  (void)answer;
}

static const core_face face = {"simulate", print_simulated, NULL, free_simulated};

/* ---- options ---- */

static bool read_settings(PyObject *options, PyObject *keep, tsr_allocator_settings *out) {
  const char *text = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (!core_option_text(options, "settings", keep, &text, NULL)) return false;
  int status = tsr_allocator_settings_parse(text, out, &error);
  if (status) core_raise(status, &error, NULL);
  return status == 0;
}

/* The Python half has turned words into the numbers of the enums. */
static bool read_options(PyObject *options, PyObject *keep, tsr_simulate_options *out) {
  long long optimizer = 0, dtype = 0, attention = 0, checkpoint = 0;
  bool ok = core_option_count(options, "batch", &out->batch) &&
            core_option_count(options, "sequence", &out->sequence) &&
            core_option_count(options, "steps", &out->steps) &&
            core_option_count(options, "accumulate", &out->accumulate) &&
            core_option_integer(options, "optimizer", &optimizer) &&
            core_option_integer(options, "dtype", &dtype) &&
            core_option_integer(options, "attention", &attention) &&
            core_option_count(options, "attention_chunk", &out->attention_chunk) &&
            core_option_integer(options, "checkpoint", &checkpoint) &&
            core_option_count(options, "checkpoint_every", &out->checkpoint_every) &&
            core_option_count(options, "loss_chunk", &out->loss_chunk) &&
            core_option_flag(options, "gelu_fused", &out->gelu_fused) &&
            core_option_flag(options, "no_kv_cache", &out->no_kv_cache) &&
            core_option_flag(options, "fresh_process", &out->fresh_process) &&
            core_option_flag(options, "categories", &out->categories) &&
            core_option_count(options, "capacity_bytes", &out->capacity_bytes) &&
            read_settings(options, keep, &out->settings);
  out->optimizer = (tsr_simulate_optimizer)optimizer;
  out->dtype = (tsr_simulate_dtype)dtype;
  out->attention = (tsr_simulate_attention)attention;
  out->checkpoint = (tsr_simulate_checkpoint)checkpoint;
  return ok;
}

/* ---- running ---- */

/* Takes the simulation, also when it fails. */
static simulated *hold(tsr_simulation *simulation, const char *name, uint64_t capacity_bytes) {
  simulated *run = calloc(1, sizeof *run);
  char *copy = strdup(name);
  if (!run || !copy) {
    free(run);
    free(copy);
    tsr_simulation_free(simulation);
    PyErr_NoMemory();
    return NULL;
  }
  *run = (simulated){.file = {.owner = {.uses = 1, .end = end_simulated},
                              .snapshot = simulation->snapshot,
                              .name = copy},
                     .simulation = simulation,
                     .capacity_bytes = capacity_bytes};
  return run;
}

static PyObject *pair_of(simulated *run) {
  if (!run) return NULL;
  core_file *const files[2] = {&run->file, NULL};
  PyObject *answer = core_answer_new(&face, files, run);
  PyObject *snapshot = core_snapshot_new(&run->file); /* takes the use that hold() made */
  PyObject *pair = answer && snapshot ? PyTuple_Pack(2, answer, snapshot) : NULL;
  Py_XDECREF(answer);
  Py_XDECREF(snapshot);
  return pair;
}

static int run(const char *text, Py_ssize_t size_bytes, bool is_name,
               const tsr_simulate_options *how, tsr_simulation **out, tsr_error *error) {
  tsr_model *model = NULL;
  int status = is_name ? tsr_model_named(text, &model, error)
                       : tsr_model_read(text, (size_t)size_bytes, &model, error);
  if (!status) status = tsr_simulate(model, how, out, error);
  tsr_model_free(model);
  return status;
}

PyObject *core_simulate(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *text, *name;
  Py_ssize_t size_bytes;
  int is_name, status;
  PyObject *options, *result = NULL, *keep = PyList_New(0);
  tsr_simulate_options how = {0};
  tsr_simulation *simulation = NULL;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (keep &&
      PyArg_ParseTuple(arguments, "s#spO!", &text, &size_bytes, &name, &is_name, &PyDict_Type,
                       &options) &&
      read_options(options, keep, &how)) {
    Py_BEGIN_ALLOW_THREADS;
    status = run(text, size_bytes, is_name, &how, &simulation, &error);
    Py_END_ALLOW_THREADS;
    result = status ? core_raise(status, &error, is_name ? NULL : name)
                    : pair_of(hold(simulation, name, how.capacity_bytes));
  }
  Py_XDECREF(keep);
  return result;
}
