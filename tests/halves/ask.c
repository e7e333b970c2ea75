/* ask.c - QUESTION [NAME=VALUE...] [FILE]: asks one question, with whichever half of the library this is linked to.
 *
 * The program knows the registry and how a snapshot is opened; the latter is open.h's, which the half decides. So each half
 * links, and answers its own questions, without the other. Without arguments it lists the questions that it has. */
#include <stdio.h>
#include <string.h>

#include "open.h"
#include "tessera/registry.h"

static int write_out(void *context, const char *text, size_t size_bytes) {
  return fwrite(text, 1, size_bytes, context) == size_bytes ? 0 : TSR_ERROR_WRITE;
}

static int ask(const tsr_question *question, int argc, char **argv, tsr_subject *subject,
               tsr_error *error) {
  tsr_report_options how = TSR_OPTIONS_INIT(tsr_report_options);
  how.format = TSR_REPORT_JSON;
  tsr_params *params = NULL;
  tsr_answer *answer = NULL;
  int status = tsr_question_params(question, TSR_INTERFACE_PYTHON, &params, error);
  for (int i = 2; status == 0 && i < argc; i++) {
    char *value = strchr(argv[i], '=');
    if (!value) {
      subject->name = argv[i];
      status = half_open(argv[i], &subject->study, error);
      continue;
    }
    *value++ = '\0';
    status = tsr_params_set_text(params, argv[i], value, strlen(value), error);
    if (strcmp(argv[i], "model") == 0) subject->name = value;
  }
  if (status == 0) status = tsr_ask(question, subject, 1, params, NULL, &answer, error);
  if (status == 0) status = tsr_answer_write(answer, &how, write_out, stdout, error);
  tsr_answer_free(answer);
  tsr_params_free(params);
  return status;
}

int main(int argc, char **argv) {
  tsr_error error = {.status = TSR_OK};
  tsr_subject subject = {.name = ""};
  for (size_t i = 0; argc < 2 && i < tsr_question_count(); i++) puts(tsr_question_at(i)->name);
  if (argc < 2) return 0;
  const tsr_question *question = tsr_question_find(argv[1]);
  if (!question) {
    fprintf(stderr, "no question '%s' in this half\n", argv[1]);
    return 2;
  }
  int status = ask(question, argc, argv, &subject, &error);
  half_close(subject.study);
  if (status) fprintf(stderr, "%s\n", error.message);
  return status ? 1 : 0;
}
