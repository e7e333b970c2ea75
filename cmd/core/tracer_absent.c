/* tracer_absent.c - tracer.h where this command starts no Python: on Windows, where what is handed to it would need another way
 * than descriptors that a process inherits, and in a browser, which has no processes. Models by name, configurations and step
 * graphs need no tracer. */
#include "tracer.h"

#include <stdlib.h>

struct cli_tracer_helper {
  char unused;
};

const char *cli_tracer_python(const cli_tracer *tracer, char *room, size_t room_bytes) {
  (void)room, (void)room_bytes;
  return tracer->python ? tracer->python : "python";
}

cli_tracer_helper *cli_tracer_helper_start(const char *python) {
  (void)python;
  return calloc(1, sizeof(cli_tracer_helper));
}

void cli_tracer_helper_end(cli_tracer_helper *helper) {
  free(helper);
}

void cli_tracer_run(const cli_tracer *tracer, cli_traced *out) {
  (void)tracer;
  *out = (cli_traced){.end = CLI_TRACE_REFUSED,
                      .note = "this model is traced with PyTorch, and this tessera (for Windows or "
                              "the browser) starts no Python: call "
                              "tessera.trace in Python, or tessera trace on Linux or macOS, and "
                              "give the step graph here"};
}

void cli_traced_release(cli_traced *traced) {
  *traced = (cli_traced){.note = ""};
}
