/* program.h - for fuzz targets: a command of tessera in this process, with what it prints. Its current folder is that of folder.h.
 *
 * The command does not confine the process, which goes on to run other inputs, so a target may only let an input choose what is
 * read. Its standard output is a file in memory; its messages stay on standard error. */
#ifndef TSR_FUZZ_PROGRAM_H
#define TSR_FUZZ_PROGRAM_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/program.h"
#include "folder.h"

typedef struct fuzz_program {
  int input, output; /* files in memory */
  /* While a command runs: its standard output, which it may close, and what the process itself had. */
  FILE *stream, *kept_stream;
  bool is_closed;
  int kept_input, kept_folder;
} fuzz_program;

static inline fuzz_program *fuzz_program_once(void) {
  static fuzz_program program = {.input = -1, .output = -1};
  if (program.input >= 0) return &program;
  program.input = memfd_create("input", MFD_CLOEXEC);
  program.output = memfd_create("output", MFD_CLOEXEC);
  require(program.input >= 0 && program.output >= 0, "files in memory");
  return &program;
}

static inline ssize_t fuzz_print(void *context, const char *text, size_t size) {
  return write(((const fuzz_program *)context)->output, text, size);
}

static inline int fuzz_end_printing(void *context) {
  ((fuzz_program *)context)->is_closed = true;
  return 0;
}

/* Give the command that follows its own standard streams and folder. */
static inline void fuzz_program_begin(fuzz_program *program, const void *data, size_t size) {
  const cookie_io_functions_t calls = {.write = fuzz_print, .close = fuzz_end_printing};
  require(!ftruncate(program->input, 0) && !ftruncate(program->output, 0), "empty files");
  require(pwrite(program->input, data, size, 0) == (ssize_t)size, "an input");
  (void)lseek(program->input, 0, SEEK_SET);
  (void)lseek(program->output, 0, SEEK_SET);
  program->is_closed = false;
  program->stream = fopencookie(program, "w", calls);
  require(program->stream != NULL, "a stream");
  program->kept_stream = stdout;
  stdout = program->stream;
  program->kept_input = dup(STDIN_FILENO);
  require(dup2(program->input, STDIN_FILENO) >= 0, "a standard input");
  program->kept_folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(program->kept_folder >= 0 && !chdir(fuzz_root), "the folder");
}

/* A command that goes on in a thread keeps its standard output. */
static inline void fuzz_program_end(fuzz_program *program, bool goes_on) {
  require(!fchdir(program->kept_folder), "the folder before");
  (void)close(program->kept_folder);
  if (program->kept_input >= 0)
    (void)dup2(program->kept_input, STDIN_FILENO);
  else
    (void)close(STDIN_FILENO);
  if (program->kept_input >= 0) (void)close(program->kept_input);
  stdout = program->kept_stream;
  if (!program->is_closed && !goes_on) (void)fclose(program->stream);
}

/* What the last command printed, which the caller frees. */
static inline char *fuzz_printed(const fuzz_program *program, size_t *size) {
  off_t end = lseek(program->output, 0, SEEK_END);
  char *text = malloc((size_t)end + 1);
  require(text && pread(program->output, text, (size_t)end, 0) == end, "what was printed");
  text[end] = '\0';
  *size = (size_t)end;
  return text;
}

/* Run the command with `data` as its standard input; returns its exit status, which no input makes that of a failed machine. */
static inline int fuzz_run(int count, const char *const *words, const void *data, size_t size) {
  enum { MOST_WORDS = 32, FAULT = 4 };
  char *argv[MOST_WORDS + 1] = {NULL};
  fuzz_program *program = fuzz_program_once();
  require(count <= MOST_WORDS, "few words");
  for (int i = 0; i < count; i++) require((argv[i] = strdup(words[i])) != NULL, "a word");
  char *owned[MOST_WORDS];
  memcpy(owned, argv, sizeof owned); /* the parser rearranges them */
  fuzz_program_begin(program, data, size);
  int status = cli_program(count, argv, false);
  fuzz_program_end(program, false);
  for (int i = 0; i < count; i++) free(owned[i]);
  require(status >= 0 && status < FAULT, "an exit status of an input");
  return status;
}

#endif
