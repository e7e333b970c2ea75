/* trim.c - `tessera trim FILE -o OUT --events A..B`: a part of a trace as its own snapshot.
 *
 * For viewers that cannot hold the whole, and for showing someone one step: PyTorch's own tools
 * read what is written, and every answer about a moment is the same as for the whole trace.
 */
#include <tessera/unstable/formats.h>

#include "export.h"
#include "session.h"
#include "when.h"

static const tsr_parameter trim_parameters[] = {
    {.name = "time",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "A..B",
     .help = "The events between two times, both included; either may be left out. A time is "
             "microseconds since 1970, or as reports print it, '2026-07-12 16:40:22'."},
    CLI_EVENTS_PARAMETER,
    CLI_FORMAT_PARAMETER(tsr_snapshot_format_words),
};

const cli_command cli_trim_row = {
    .about =
        {.name = "trim",
         .summary = "write a part of a trace as a separate snapshot",
         .situation = TSR_SITUATION_PROGRAMS,
         .description =
             "Writes the events of a window, with the segments and blocks after the last of them: "
             "a small snapshot that PyTorch's own viewer can open, for example one step of a trace "
             "that is too large for it. Bytes and stacks at a moment are the same in the part and "
             "the whole; steps and categories are inferred from the part alone. Names are kept for "
             "memory that is allocated in the window or live at its end.\n\n"
             "With --device the other devices are omitted. A device without events in the window "
             "is written in its state at the end of the trace.\n\n"
             "The format follows the name given with -o: .json, or .pickle (also .pkl, .pt and "
             ".bin, and names without an ending).",
         .parameters = trim_parameters,
         .parameter_count = sizeof trim_parameters / sizeof *trim_parameters,
         .examples = {{"tessera trim --events 3000..4000 -o step.pickle snapshot.pickle",
                       "a thousand and one events"},
                      {"tessera trim --device 1 -o one.pickle snapshot.pickle",
                       "one device, whole"},
                      {"tessera trim --time ..1783874422365713 -o start.json snapshot.pickle",
                       "all up to a time, as JSON"}}},
    .operands = "FILE",
    .operand_min = 1,
    .operand_max = 1,
    .reads_files = true,
    .lacks = "top full_stacks verbose",
    .run = cli_trim,
};

int cli_trim(cli_session *session) {
  cli_input input = {0};
  tsr_snapshot *part = NULL;
  tsr_window window;
  int status = cli_read_window(session->options, &window);
  if (status == 0) status = cli_export_check(session->options);
  if (status == 0) status = cli_open(session, 0, &input);
  if (status == 0)
    status = tsr_snapshot_trim(input.study, &window, &session->query, &part, &session->error);
  if (status == 0) status = cli_export_write(session, part);
  if (status == 0) cli_warn_of_file(session, &input);
  tsr_snapshot_free(part);
  cli_close(&input);
  return status;
}
