/* report.h - shared by reports about source files. */
#ifndef TSR_QUESTIONS_SOURCE_REPORT_H
#define TSR_QUESTIONS_SOURCE_REPORT_H

#include "emit/heading.h"
#include "tessera/unstable/source.h"

/* A line of the source without its indentation; empty where the text does not have it. */
tsr_text tsr__source_line_text(const tsr_source *source, uint32_t line);

/* The name of a definition; NULL for TSR_NONE, which is the module. */
const char *tsr__source_definition_name(const tsr_source *source, uint32_t definition);

/* JSON: the members "file", "other_files", "mentioned_lines", "lines_beyond", "lines_elsewhere". */
void tsr__source_emit_match(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                            const tsr_source *source);

/* Text: one line each where the text does not seem to be what ran, and where other files of the
 * snapshot have the same name. */
void tsr__source_print_doubts(tsr__emitter *emitter, const tsr_snapshot *snapshot,
                              const tsr_source *source);

/* JSON: the same as warnings. */
void tsr__source_warn(const tsr__emitter *emitter, const tsr_source *source,
                      tsr__warning_list *warnings);

/* Text: "  ... and 3 more WHAT (--top 0 shows all)", unless `omitted` is 0. */
void tsr__source_print_omitted(tsr__emitter *emitter, uint64_t omitted, const char *what);

/* JSON: the members "self_bytes" ... "inclusive_allocations". */
void tsr__source_emit_use(tsr__emitter *emitter, const tsr_source_use *use);

#endif
