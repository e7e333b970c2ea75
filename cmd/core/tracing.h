/* tracing.h - traces a training step of a model that is not built in, from its config.json, with the options of the command line. */
#ifndef CLI_TRACING_H
#define CLI_TRACING_H

#include "session.h"
#include "tracer.h"

/* Trace the description in `size_bytes` of `text`, which `path` contains, with the options of the command: batch, seq and those of tsr_run_options, as far as the
 * command has them. The step graph is in `*out`, which is to be released. Returns as a cli_command_fn does; a failure has been explained. */
int cli_trace_config(cli_session *session, const char *path, const char *text, size_t size_bytes,
                     cli_traced *out);
/* Trace a training script, with the arguments after it, by the options of `tessera trace`. As above. */
int cli_trace_script(cli_session *session, const char *script, const char *const *arguments,
                     size_t count, cli_traced *out);
/* Forget the options that went into the trace: what follows is about its step graph. Returns 0, or TSR_ERROR_MEMORY. */
int cli_trace_clear(cli_session *session);

#endif
