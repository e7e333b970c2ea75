/* train_log.c - see train_log.h.
 *
 *   step,loss,val_loss,learning_rate,gradient_norm,tokens_per_second,seconds,peak_bytes
 *   1,5.50649214,,0.001,,6871.2,0.0372,3139584
 *
 *   {"step": 1, "loss": 5.50649214, "val_loss": null, ...}
 *
 * A row is written in one piece, and one that fails is cut away, so the file never ends within a row unless the system has
 * failed. A run that is resumed cuts such a row off, with those of steps that it makes again: the rows to keep are copied to
 * a new file, which then replaces the old one. */
#define _POSIX_C_SOURCE 200809L

#include "train_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "output.h"

#ifndef O_BINARY
#define O_BINARY 0
#endif

enum { WAITING_MOST = 16 << 20, ROW_BYTES = 512 };

static const char header[] =
    "step,loss,val_loss,learning_rate,gradient_norm,tokens_per_second,seconds,peak_bytes\n";

/* The step of a row; 0 for a line that is not a complete row. */
static uint64_t step_of(const char *line, bool is_json) {
  uint64_t step = 0;
  if (!*line || line[strlen(line) - 1] != '\n') return 0;
  if (sscanf(line, is_json ? "{\"step\": %" SCNu64 "," : "%" SCNu64 ",", &step) != 1) return 0;
  return step;
}

/* Read a line, without its rest if it is too long for a row; false at the end. */
static bool next_line(FILE *in, char line[ROW_BYTES]) {
  return fgets(line, ROW_BYTES, in) != NULL;
}

int cli_train_log_open(cli_train_log *log, const cli_session *session, const char *path,
                       bool is_resumed) {
  const cli_command *command = session->options->command;
  const char *dot = path ? strrchr(path, '.') : NULL;
  char line[ROW_BYTES];
  if (!path) return 0;
  bool is_json = dot && strcmp(dot, ".jsonl") == 0;
  if (!dot || (!is_json && strcmp(dot, ".csv") != 0))
    return cli_usage_error(command, "--log writes .csv or .jsonl, not '%s'", path);
  *log = (cli_train_log){
      .path = path, .command = command->about.name, .is_json = is_json, .is_resumed = is_resumed};
  if (cli_output_try(path) != 0) {
    cli_say(log->command, "%s: %s", path, cli_reason(errno));
    return CLI_FAULT;
  }
  FILE *in = is_resumed ? fopen(path, "rb") : NULL;
  bool is_other =
      in && next_line(in, line) && (is_json ? step_of(line, true) == 0 : strcmp(line, header) != 0);
  if (in) (void)fclose(in);
  if (is_other)
    return cli_usage_error(
        command, "'%s' is not a log that train has written: the run cannot be added to it", path);
  return 0;
}

/* Copy the rows before a step. */
static void copy_rows(const cli_train_log *log, FILE *in, uint64_t first_step, cli_output *out) {
  char line[ROW_BYTES];
  while (in && next_line(in, line)) {
    uint64_t step = step_of(line, log->is_json);
    if (step && step < first_step) (void)cli_output_write(out, line, strlen(line));
  }
}

/* Begin the file: with its header, and with the rows to keep. */
static bool begin(cli_train_log *log, uint64_t first_step) {
  cli_output out = {.path = log->path};
  FILE *in = log->is_resumed ? fopen(log->path, "rb") : NULL;
  (void)cli_output_write(&out, header, log->is_json ? 0 : sizeof header - 1);
  copy_rows(log, in, first_step, &out);
  if (in) (void)fclose(in);
  bool ok = cli_output_finish(&out) == 0;
  log->written = out.size_bytes;
  int failed_with = out.error_number;
  cli_output_abandon(&out);
  errno = failed_with;
  if (!ok) return false;
  log->handle = open(log->path, O_WRONLY | O_APPEND | O_BINARY);
  log->is_open = log->handle >= 0;
  return log->is_open;
}

/* Write all of it, or nothing. */
static bool put_all(cli_train_log *log, const char *data, size_t size_bytes) {
  size_t done = 0;
  while (done < size_bytes) {
    ssize_t wrote = write(log->handle, data + done, size_bytes - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      int failed_with = wrote < 0 ? errno : ENOSPC;
      if (done) (void)!ftruncate(log->handle, (off_t)log->written);
      errno = failed_with;
      return false;
    }
    done += (size_t)wrote;
  }
  log->written += done;
  return true;
}

/* Write what waits. */
static bool catch_up(cli_train_log *log, uint64_t first_step) {
  if (!log->is_open && !begin(log, first_step)) return false;
  if (!put_all(log, log->waiting.data, log->waiting.size)) return false;
  log->waiting.size = 0;
  return true;
}

/* Append a value to a row: a cell, or a member of an object. */
static void put(char row[ROW_BYTES], const char *key, double value, bool is_json) {
  size_t length = strlen(row), room = ROW_BYTES - length;
  char text[32] = "";
  if (isfinite(value))
    (void)snprintf(text, sizeof text, "%.9g", value);
  else if (is_json)
    (void)snprintf(text, sizeof text, "null");
  if (is_json)
    (void)snprintf(row + length, room, ", \"%s\": %s", key, text);
  else
    (void)snprintf(row + length, room, ",%s", text);
}

static void make_row(char row[ROW_BYTES], const tsr_train_step *step, double seconds,
                     bool is_json) {
  double speed = seconds > 0 ? (double)step->token_count / seconds : (double)NAN;
  (void)snprintf(row, ROW_BYTES, is_json ? "{\"step\": %" PRIu64 : "%" PRIu64, step->step);
  put(row, "loss", step->loss, is_json);
  put(row, "val_loss", step->validation_loss, is_json);
  put(row, "learning_rate", step->learning_rate, is_json);
  put(row, "gradient_norm", step->gradient_norm, is_json);
  put(row, "tokens_per_second", speed, is_json);
  put(row, "seconds", seconds, is_json);
  size_t length = strlen(row);
  (void)snprintf(row + length, ROW_BYTES - length,
                 is_json ? ", \"peak_bytes\": %" PRIu64 "}\n" : ",%" PRIu64 "\n", step->peak_bytes);
}

/* A row that cannot be written waits in memory, unless too many do. */
static void let_wait(cli_train_log *log, const char *row) {
  if (log->waiting.size < WAITING_MOST) (void)cli_text_append(&log->waiting, row, strlen(row));
  log->waiting.is_lost = false;
}

void cli_train_log_step(cli_train_log *log, const tsr_train_step *step, double seconds) {
  char row[ROW_BYTES];
  if (!log->path) return;
  if (!log->first_step) log->first_step = step->step;
  make_row(row, step, seconds, log->is_json);
  if (catch_up(log, log->first_step) && put_all(log, row, strlen(row))) return;
  int failed_with = errno;
  let_wait(log, row);
  if (log->is_said) return;
  log->is_said = true;
  cli_say(log->command, "%s: %s; the run goes on, and its rows are written when that is possible",
          log->path, cli_reason(failed_with));
}

void cli_train_log_close(cli_train_log *log) {
  if (log->waiting.size) (void)catch_up(log, log->first_step);
  if (log->is_open) (void)close(log->handle);
  free(log->waiting.data);
  *log = (cli_train_log){.path = NULL};
}
