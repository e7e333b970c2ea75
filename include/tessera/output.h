/* tessera/output.h - how answers are written.
 */
#ifndef TESSERA_OUTPUT_H
#define TESSERA_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_report_format {
  TSR_REPORT_TEXT,
  TSR_REPORT_JSON,
  TSR_REPORT_VERDICT /* of the text, only the lines that say what was found */
} tsr_report_format;

/* Receives one warning about the file or the answer: a stable code, how often it was seen, and one
 * sentence. The texts are those of JSON: not safe to print on a terminal, and valid during the call. */
typedef void tsr_warn_fn(void *context, const char *code, uint64_t count, const char *message);

/* How to print; the default is plain text in which nothing is shortened (tessera/options.h). */
typedef struct tsr_report_options {
  size_t struct_bytes;
  tsr_report_format format;
  bool color;       /* ANSI colours, text only */
  bool full_stacks; /* show framework and interpreter frames, text only */
  bool quiet;       /* omit warnings, except from JSON, which always has them */
  bool verbose;     /* more columns in text */
  /* JSON: fold stacks as text does, keep at most this many innermost frames of those that text shows,
   * and count the rest in "folded_frames"; 0 = whole stacks. */
  uint32_t stack_frames;
  /* Columns of the terminal, to which text is shortened; 0 = unlimited. peak and at: 100 at most, unless verbose or
   * full_stacks. */
  uint32_t width;
  /* Receives each warning after the answer is written, in any format. NULL: text ends with the
   * warnings instead, one per line. */
  tsr_warn_fn *warn;
  void *warn_context;
  /* Text: leave out the verdict, which the caller has shown already. Where several devices are reported, of "Device 1: ..." the
   * name is left. */
  bool omits_verdict, keeps_device_names;
  /* Text: one of the answers on a page that also has those of why and peak: leave out what another of these shows, and hints at
   * options. */
  bool is_on_page;
} tsr_report_options;

#ifdef __cplusplus
}
#endif
#endif
