/* train.c - `tessera train MODEL --data FILE`: the training that `simulate` predicts, run on the CPU.
 *
 *   gpt2: 124,439,808 parameters, at most 3.02 GiB predicted.
 *   step 1/100  loss 10.9512  312 tokens/s  1.4 GiB
 *   ...
 *   100 steps: loss from 10.9512 to 6.2034. Peak 3.02 GiB, as predicted.
 *
 * Lines are printed for the first and the last step, for about twenty between, and at least every ten
 * seconds; --json prints each step. Ctrl-C ends the run after the step that is running.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/params.h>
#include <tessera/unstable/runs.h>
#include <tessera/unstable/training.h>
#include <time.h>

#include "export.h"
#include "session.h"
#include "textfile.h"

enum { LINES = 20, QUIET_SECONDS = 10, SIZE_BYTES = 32 };

static const tsr_parameter train_parameters[] = {
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_MODEL,
     .argument = "MODEL",
     .help = "A model's name, or its config.json."},
    {.name = "data",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "What to learn: any text, whose bytes are the tokens, or a file of tokens. '-' is "
             "standard input, for texts up to 64 MiB."},
    {.name = "tokens",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "TYPE",
     .help = "What FILE holds: bytes, u16 or u32 (little-endian numbers), or auto (default): what "
             "llm.c's header says, else u16 if its name ends in .bin, else bytes.",
     .choices = (const char *const[]){"auto", "bytes", "u16", "u32", NULL}},
    {.name = "steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Optimizer steps (default: 100).",
     .fallback = 100,
     .least = 1},
    {.name = "batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch (default: 4).",
     .fallback = 4,
     .least = 1},
    {.name = "seq",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Tokens per sequence (default: 64).",
     .fallback = 64,
     .least = 2},
    {.name = "lr",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "RATE",
     .help = "The learning rate, which stays the same (default: 0.001)."},
    {.name = "seed",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "What weights, batches and dropout are drawn from (default: 0). The same seed gives "
             "the same run."},
    TSR_RUN_PARAMETERS,
    {.name = "threads",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Threads that compute (default: one for each processor). No number depends on it."},
    {.name = "capacity",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .help = "Memory that the run may use, such as 4GiB (default: unlimited). A run that needs "
             "more ends where it was predicted to."},
    {.name = "snapshot",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "Write the run's memory to FILE, a snapshot (.pickle or .json) as PyTorch writes "
             "them."},
};

const cli_command cli_train_row = {
    .about =
        {.name = "train",
         .summary = "run the training that simulate predicts, on the CPU",
         .description =
             "Trains a model on a text, from random weights, in C and without a GPU. Each step "
             "allocates exactly what simulate predicts for it, and prints the loss, the speed "
             "and the memory in use.\n\nMODEL is the config.json of a GPT-2, Llama, Mistral "
             "or Qwen2 model with a vocabulary of at least 256, or a name that simulate "
             "knows. Ctrl-C ends the run after the current step. The exit status is 1 if the "
             "loss became infinite or memory did not suffice.",
         .parameters = train_parameters,
         .parameter_count = sizeof train_parameters / sizeof *train_parameters,
         .examples = {{"tessera train config.json --data book.txt --steps 500",
                       "learn to predict a book's next byte"},
                      {"tessera train gpt2 --data book.txt --steps 3 --snapshot run.pickle",
                       "three steps, and a snapshot of their memory"}}},
    .operands = "MODEL",
    .operand_min = 1,
    .operand_max = 1,
    .answers = true,
    .lacks = "output color",
    .run = cli_train,
};

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t is_interrupted;

/* The second one ends the program. */
static void interrupt(int signal) {
  (void)signal;
  is_interrupted = 1;
}

static void watch_interrupts(struct sigaction *before) {
  struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
  sigemptyset(&action.sa_mask);
  is_interrupted = 0;
  sigaction(SIGINT, &action, before);
}

/* ---- Progress ---- */

typedef struct run {
  cli_session *session;
  const char *model;
  double started_s, printed_s, last_s; /* seconds of the monotonic clock */
  bool is_json, has_failed;
} run;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void put(run *r, const char *text) {
  cli_output *output = &r->session->output;
  if (cli_output_write(output, text, strlen(text)) || fflush(output->stream) != 0)
    r->has_failed = true;
}

/* A number as JSON; what is not finite is null. */
static const char *json_number(double number, char text[SIZE_BYTES]) {
  if (isfinite(number))
    (void)snprintf(text, SIZE_BYTES, "%.9g", number);
  else
    (void)snprintf(text, SIZE_BYTES, "null");
  return text;
}

/* 1,234,567. */
static const char *count_text(uint64_t count, char text[SIZE_BYTES]) {
  char digits[SIZE_BYTES];
  size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, count), at = 0;
  for (size_t i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) text[at++] = ',';
    text[at++] = digits[i];
  }
  text[at] = '\0';
  return text;
}

/* Four digits; a minus before what is no number means nothing. */
static const char *loss_text(double loss, char text[SIZE_BYTES]) {
  (void)snprintf(text, SIZE_BYTES, "%.4f", isnan(loss) ? fabs(loss) : loss);
  return text;
}

static void put_heading(run *r, const tsr_train_step *step) {
  char line[256], count[SIZE_BYTES], size[SIZE_BYTES];
  (void)snprintf(line, sizeof line, "%s: %s parameters; a peak of %s is predicted.\n", r->model,
                 count_text(step->parameter_count, count),
                 tsr_size_text(step->predicted_peak_bytes, size, sizeof size));
  put(r, line);
}

static void put_step(run *r, const tsr_train_step *step, double seconds) {
  char line[256], count[SIZE_BYTES], size[SIZE_BYTES], loss[SIZE_BYTES];
  double speed = seconds > 0 ? (double)step->token_count / seconds : 0;
  (void)snprintf(line, sizeof line, "step %" PRIu64 "/%" PRIu64 "  loss %s  %s tokens/s  %s%s\n",
                 step->step, step->steps, loss_text(step->loss, loss),
                 count_text((uint64_t)speed, count),
                 tsr_size_text(step->allocated_bytes, size, sizeof size),
                 step->is_skipped ? "  (overflow: step skipped)" : "");
  put(r, line);
}

static void put_json_step(run *r, const tsr_train_step *step, double seconds) {
  char line[384], loss[SIZE_BYTES], time[SIZE_BYTES];
  (void)snprintf(line, sizeof line,
                 "{\"step\":%" PRIu64 ",\"loss\":%s,\"skipped\":%s,\"tokens\":%" PRIu64
                 ",\"seconds\":%s,\"allocated_bytes\":%" PRIu64 "}\n",
                 step->step, json_number(step->loss, loss), step->is_skipped ? "true" : "false",
                 step->token_count, json_number(seconds, time), step->allocated_bytes);
  put(r, line);
}

static bool see_step(void *context, const tsr_train_step *step) {
  run *r = context;
  double now = now_s(), seconds = now - r->last_s;
  uint64_t every = step->steps / LINES + 1;
  bool is_due = step->step == 1 || step->step == step->steps || step->step % every == 0 ||
                step->is_skipped || now - r->printed_s >= QUIET_SECONDS || !isfinite(step->loss);
  if (step->step == 1 && !r->is_json) put_heading(r, step);
  if (r->is_json)
    put_json_step(r, step, seconds);
  else if (is_due)
    put_step(r, step, seconds);
  if (is_due) r->printed_s = now;
  r->last_s = now;
  return !is_interrupted && !r->has_failed;
}

/* ---- The end ---- */

static void put_json_end(run *r, const tsr_training *t) {
  char line[768], first[SIZE_BYTES], last[SIZE_BYTES], time[SIZE_BYTES];
  (void)snprintf(
      line, sizeof line,
      "{\"steps_done\":%" PRIu64 ",\"parameters\":%" PRIu64 ",\"tokens\":%" PRIu64
      ",\"seconds\":%s,\"step_flops\":%" PRIu64
      ",\"first_loss\":%s,\"last_loss\":%s,\"diverged\":%s,\"out_of_memory\":%s,"
      "\"interrupted\":%s,\"peak_bytes\":%" PRIu64 ",\"predicted_peak_bytes\":%" PRIu64
      ",\"reserved_bytes\":%" PRIu64 ",\"predicted_reserved_bytes\":%" PRIu64 "}\n",
      t->steps_done, t->parameter_count, t->token_count, json_number(now_s() - r->started_s, time),
      t->step_flops, json_number(t->steps_done ? t->first_loss : NAN, first),
      json_number(t->steps_done ? t->last_loss : NAN, last), t->is_diverged ? "true" : "false",
      t->is_out_of_memory ? "true" : "false", is_interrupted ? "true" : "false", t->peak_bytes,
      t->predicted_peak_bytes, t->reserved_bytes, t->predicted_reserved_bytes);
  put(r, line);
}

static void put_end(run *r, const tsr_training *t) {
  char line[512], peak[SIZE_BYTES], predicted[SIZE_BYTES], count[SIZE_BYTES];
  char first[SIZE_BYTES], last[SIZE_BYTES];
  tsr_size_text(t->peak_bytes, peak, sizeof peak);
  tsr_size_text(t->predicted_peak_bytes, predicted, sizeof predicted);
  if (!t->steps_done) return;
  (void)snprintf(line, sizeof line, "%s%s step%s: loss from %s to %s. Peak %s, %s%s.\n",
                 is_interrupted ? "Interrupted after " : "", count_text(t->steps_done, count),
                 t->steps_done == 1 ? "" : "s", loss_text(t->first_loss, first),
                 loss_text(t->last_loss, last), peak,
                 t->peak_bytes == t->predicted_peak_bytes ? "as predicted" : "predicted ",
                 t->peak_bytes == t->predicted_peak_bytes ? "" : predicted);
  put(r, line);
}

static int explain_end(const tsr_training *t, const cli_command *command) {
  char size[SIZE_BYTES];
  if (t->is_diverged)
    cli_say(command->about.name,
            "the loss of step %" PRIu64 " is not a finite number; a smaller --lr may help",
            t->steps_done);
  else if (t->is_out_of_memory)
    cli_say(command->about.name,
            "out of memory after %" PRIu64 " steps, with %s allocated: --capacity is too small",
            t->steps_done, tsr_size_text(t->peak_bytes, size, sizeof size));
  return t->is_diverged || t->is_out_of_memory ? CLI_CHECK_FAILED : 0;
}

/* ---- The command ---- */

static int check(const cli_options *options, double *rate, const tsr_format **format) {
  const tsr_params *own = options->own;
  const char *lr = tsr_params_text(own, "lr"), *ending = "",
             *path = tsr_params_text(own, "snapshot");
  char *end = NULL;
  *rate = lr ? strtod(lr, &end) : 0;
  if (lr && (*end || end == lr || !(*rate > 0) || !isfinite(*rate)))
    return cli_usage_error(options->command, "--lr needs a number above 0, not '%s'", lr);
  if (!tsr_params_has(own, "data"))
    return cli_usage_error(options->command, "--data is missing: the text to train on");
  if (!tsr_params_count(own, "steps") || !tsr_params_count(own, "batch") ||
      !tsr_params_count(own, "accumulate") || tsr_params_count(own, "seq") < 2)
    return cli_usage_error(options->command,
                           "--steps, --batch and --accumulate must be at least 1, and --seq 2");
  *format = tsr_format_for(path ? path : "", &ending);
  if (path && (!*format || (*format)->content != TSR_FORMAT_SNAPSHOT))
    return cli_usage_error(options->command, "--snapshot writes .pickle or .json, not '%s'",
                           *format ? (*format)->endings[0] : ending);
  return 0;
}

static int write_snapshot(cli_session *session, const tsr_snapshot *snapshot,
                          const tsr_format *format) {
  cli_output output = {.path = tsr_params_text(session->options->own, "snapshot")};
  if (!snapshot) return 0;
  int status = cli_export_snapshot(session, snapshot, format, &output);
  return cli_finish_aside(session, &output, output.error_number ? TSR_ERROR_WRITE : status);
}

/* Train, and print what comes of it. */
static int train(cli_session *session, const tsr_train_options *how, run *r, tsr_training *out) {
  const tsr_params *own = session->options->own;
  tsr_simulate_options options;
  struct sigaction before;
  tsr_simulate_options_of(own, &options);
  watch_interrupts(&before);
  r->started_s = r->last_s = now_s();
  int status = tsr_train(tsr_params_model(own, "model"), &options, how, out, &session->error);
  sigaction(SIGINT, &before, NULL);
  if (status == TSR_ERROR_ARGUMENT || status == TSR_ERROR_UNSUPPORTED || status == TSR_ERROR_LIMIT)
    return cli_usage_error(session->options->command, "%s", session->error.message);
  if (status) return status;
  if (r->is_json)
    put_json_end(r, out);
  else
    put_end(r, out);
  return r->has_failed ? TSR_ERROR_WRITE : 0;
}

/* Standard input and pipes are read here; files by the library, while it trains. */
static int find_data(cli_session *session, tsr_train_options *how, char **text) {
  const tsr_params *own = session->options->own;
  const char *path = tsr_params_text(own, "data");
  int tokens = tsr_params_choice(own, "tokens");
  struct stat found;
  how->data = path;
  how->tokens = tokens < 0 ? TSR_TRAIN_TOKENS_AUTO : (tsr_train_tokens)tokens;
  bool is_stream = strcmp(path, "-") == 0 || (stat(path, &found) == 0 && S_ISFIFO(found.st_mode));
  session->path = path;
  if (!is_stream) return 0;
  if (how->tokens > TSR_TRAIN_TOKENS_BYTES)
    return cli_usage_error(session->options->command, "--tokens needs a file: a stream is bytes");
  int status = cli_read_text(path, CLI_TEXTFILE_ANY, text, &how->text_bytes, &session->error);
  how->data = NULL;
  how->text = *text;
  return status;
}

int cli_train(cli_session *session) {
  const cli_options *options = session->options;
  tsr_training out = {0};
  tsr_train_options how = {.struct_bytes = sizeof how};
  const tsr_format *format = NULL;
  const char *subject = NULL;
  char *text = NULL;
  int status = check(options, &how.learning_rate, &format);
  if (status == 0) status = cli_read_parameters(session);
  if (status) return status;
  run r = {.session = session, .is_json = options->json, .model = session->path};
  status = find_data(session, &how, &text);
  if (status) return status;
  how.seed = tsr_params_count(options->own, "seed");
  uint64_t threads = tsr_params_count(options->own, "threads");
  how.threads = threads > 1024 ? 1024 : (unsigned)threads;
  how.is_recorded = tsr_params_has(options->own, "snapshot");
  how.step = see_step;
  how.context = &r;
  how.subject = &subject;
  status = train(session, &how, &r, &out);
  if (subject) session->path = subject;
  free(text);
  if (status == 0) status = write_snapshot(session, out.snapshot, format);
  if (status == 0) status = explain_end(&out, options->command);
  tsr_snapshot_free(out.snapshot);
  return status;
}
