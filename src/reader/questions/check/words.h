/* words.h - the texts that all formats of a check share, and the formats in separate files. */
#ifndef TSR_QUESTIONS_CHECK_WORDS_H
#define TSR_QUESTIONS_CHECK_WORDS_H

#include "emit/heading.h"
#include "stacks/stacks.h"
#include "tessera/unstable/check.h"

/* What is checked: "peak", "reserved" or a kind. Static text. */
const char *tsr__check_subject(const tsr_check_result *result);
/* "at most 18.00 GiB", "20.55 GiB +- 210.44 MiB", "in the lock". */
void tsr__check_allowed(tsr__buffer *out, const tsr_check_result *result);
/* "+4.55 GiB", "-1.20 GiB": measured less allowed or locked; empty for LOCK_DEVICE. */
void tsr__check_difference(tsr__buffer *out, const tsr_check_result *result);
/* One sentence without a full stop: "peak memory of device 0 is 22.55 GiB, 4.55 GiB above its budget
 * of 18.00 GiB". */
void tsr__check_sentence(tsr__buffer *out, const tsr_check_result *result);
/* Where to look, without a newline: "6.00 GiB of activation, 3.00 GiB more than the lock's 3.00 GiB, in
 * nn_utils.py:6 softmax". */
void tsr__check_cause_words(tsr__stack_printer *printer, tsr__buffer *out,
                            const tsr_check_device *device, const tsr_check_result *result,
                            const tsr_check_cause *cause);
/* The function, by the line that holds most of it, and what the program called the memory:
 * `nn_utils.py:6 softmax: "scores"`; or the lock's name if the snapshot does not have it. Appends to the
 * emitter's scratch. */
void tsr__check_append_place(tsr__stack_printer *printer, const tsr_check_device *device,
                             const tsr_check_cause *cause);
/* "... and 3 more functions, 1.20 GiB (--top 0 shows all)", or nothing if none were omitted. */
void tsr__check_omitted(tsr__buffer *out, const tsr_check_result *result);

/* "the file is truncated"; empty for TSR_CHECK_CERTAIN. Static text. */
const char *tsr__check_doubt_fact(tsr_check_doubt doubt);

/* The device of a result, or NULL if only the lock has it. */
const tsr_check_device *tsr__check_device_of(const tsr_check *check,
                                             const tsr_check_result *result);
/* "passed: 4 checks", "failed: 2 of 4 checks". */
void tsr__check_verdict(tsr__buffer *out, const tsr_check *check);

/* What a format that does not use the emitter needs. */
typedef struct tsr__check_page {
  const tsr_report_input *input;
  const tsr_check *check;
  const char *root;                  /* as in tsr_check_face */
  const tsr__warning_list *warnings; /* about the file: what was checked may be less than the run */
  tsr__stack_printer *printer;       /* of a text emitter, whose scratch is free for use */
  tsr__buffer *out;
} tsr__check_page;

void tsr__check_junit(const tsr__check_page *page);
void tsr__check_sarif(const tsr__check_page *page);
void tsr__check_markdown(const tsr__check_page *page);

#endif
