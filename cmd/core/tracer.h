/* tracer.h - runs the tracer (python/tracer) in the user's Python, a process that gets a request and returns a step graph. */
#ifndef CLI_TRACER_H
#define CLI_TRACER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum cli_trace_end {
  CLI_TRACE_GRAPH,   /* `graph` */
  CLI_TRACE_LACKS,   /* packages are missing: `note` names them, blanks between */
  CLI_TRACE_REFUSED, /* `note` is a sentence that says why */
  CLI_TRACE_ENDED,   /* the process ended without an answer, by what `note` says */
  CLI_TRACE_LATE,    /* it was ended at its limit */
  CLI_TRACE_ABSENT,  /* no Python could be started: `note` says why */
  CLI_TRACE_MEMORY   /* out of memory */
} cli_trace_end;

/* A process that runs the tracer for this one, which may not start programs any more (confine.h). It has been told which Python before
 * the first file was read, and runs nothing but the tracer, for descriptions only. */
typedef struct cli_tracer_helper cli_tracer_helper;

typedef struct cli_tracer {
  const char
      *python; /* a program, by its path or as PATH finds it; NULL: the active environment's */
  const char *request; /* one JSON object, without line breaks (python/tessera/_child.py) */
  bool
      is_script; /* a program of the user, which runs as if the user had started it; else nothing of the current
                          folder is imported, and nothing is printed */
  unsigned limit_s;          /* the longest that it may take; 0: unlimited */
  cli_tracer_helper *helper; /* NULL: this process starts it */
} cli_tracer;

/* What a trace returned. */
typedef struct cli_traced {
  cli_trace_end end;
  const char *note;  /* never NULL */
  const char *graph; /* `graph_size` bytes, for CLI_TRACE_GRAPH */
  size_t graph_size;
  char *data;     /* what both point into */
  char text[160]; /* the same */
} cli_traced;

/* The program that `tracer` would start. Lives as long as `room`. */
const char *cli_tracer_python(const cli_tracer *tracer, char *room, size_t room_bytes);
/* Start a helper, while the process has one thread. `python` as in cli_tracer. NULL if memory ran out; another failure is that of its
 * run. */
cli_tracer_helper *cli_tracer_helper_start(const char *python);
/* End it. NULL is fine. */
void cli_tracer_helper_end(cli_tracer_helper *helper);
/* Run the tracer to its end. The result is to be released. */
void cli_tracer_run(const cli_tracer *tracer, cli_traced *out);
void cli_traced_release(cli_traced *traced);

#endif
