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

/* How to print; the default is plain text at 100 columns (tessera/options.h). */
typedef struct tsr_report_options {
  size_t struct_bytes;
  tsr_report_format format;
  bool color;       /* ANSI colours, text only */
  bool full_stacks; /* show framework and interpreter frames, text only */
  bool quiet;       /* omit warnings from text (JSON always has them) */
  bool verbose;     /* more columns in text */
  /* JSON: fold stacks as text does, keep at most this many innermost frames of those that text shows,
   * and count the rest in "folded_frames"; 0 = whole stacks. */
  uint32_t stack_frames;
  uint32_t width; /* columns of the terminal, 0 = 100 */
} tsr_report_options;

#ifdef __cplusplus
}
#endif
#endif
