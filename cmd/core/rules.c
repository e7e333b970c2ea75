/* rules.c - reads a user's rules and shows what is wrong with them:
 *
 *   tessera profile: --rules: rule 'attention': missing closing parenthesis, at offset 18
 *     attention|(softmax
 *                       ^
 */
#include "rules.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/terminal.h>
#include <unistd.h>

#include "message.h"
#include "textfile.h"

/* Columns of a pattern that are shown before and after the place. */
enum { SHOWN_BEFORE = 60, SHOWN_BEHIND = 12 };

/* Is it the rules themselves? */
static bool is_inline(const char *text) {
  const char *first = text + strspn(text, " \t\r\n");
  if (*first == '{' || *first == '[' || strchr(text, '\n')) return true;
  return strstr(text, ": ") && access(text, F_OK) != 0;
}

/* The file's text, allocated; NULL with errno set. One byte more than rules may have is enough to
 * see that there is too much of it. */
static char *read_file(const char *path, size_t *size_bytes) {
  const size_t room = (size_t)TSR_RULES_TEXT_BYTES + 1;
  FILE *file = cli_open_text(path, CLI_TEXTFILE_ANY);
  char *text = file ? malloc(room) : NULL;
  errno = file && !text ? ENOMEM : errno;
  if (text) *size_bytes = fread(text, 1, room, file);
  if (text && ferror(file)) {
    int reason = errno;
    free(text);
    text = NULL;
    errno = reason;
  }
  if (file) fclose(file);
  return text;
}

static bool continues_character(char byte) {
  return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Two lines: the pattern around the place, and a mark below it. */
static void show_place(const tsr_rule_problem *problem) {
  const char *pattern = problem->rule.pattern;
  size_t at = problem->offset_bytes, length = strlen(pattern), column = 0;
  if (at > length) at = length;
  size_t first = at > SHOWN_BEFORE ? at - SHOWN_BEFORE : 0;
  size_t end = length - at > SHOWN_BEHIND ? at + SHOWN_BEHIND : length;
  for (int i = 0; i < 3 && first && continues_character(pattern[first]); i++) first--;
  for (int i = 0; i < 3 && end < length && continues_character(pattern[end]); i++) end++;
  char shown[SHOWN_BEFORE + SHOWN_BEHIND + 16];
  size_t size = end - first;
  assert(size < sizeof shown);
  memcpy(shown, pattern + first, size);
  size = tsr_terminal_clean(shown, size, false);
  for (size_t i = first; i < at; i++) column += !continues_character(pattern[i]);
  fprintf(stderr, "  %.*s", (int)size, shown);
  fprintf(stderr, "\n%*s^\n", (int)column + 2, "");
}

/* `source`: the option, and the file where it names one. */
static int explain(const cli_session *session, const char *const source[2],
                   const tsr_rule_problem *problem, const tsr_error *error) {
  const char *name = session->options->command->about.name;
  const char *between = source[1] ? ": " : "", *file = source[1] ? source[1] : "";
  if (problem->message[0]) {
    cli_say(name, "--%s%s%s: rule '%s': %s, at offset %zu", source[0], between, file,
            problem->rule.name, problem->message, problem->offset_bytes);
    show_place(problem);
  } else {
    cli_say(name, "--%s%s%s: %s", source[0], between, file, error->message);
  }
  return error->status == TSR_ERROR_MEMORY ? CLI_FAULT : CLI_USAGE;
}

int cli_rules_load(const cli_session *session, const char *option, const char *text,
                   tsr_rules_mode mode, tsr_rules **out) {
  tsr_rule_problem problem = {0};
  tsr_error error = {0};
  size_t size_bytes = strlen(text);
  char *read = NULL;
  const char *source[2] = {option, NULL};
  if (!is_inline(text)) {
    source[1] = text;
    read = read_file(text, &size_bytes);
    if (!read) {
      int status = cli_open_status();
      cli_say(session->options->command->about.name, "--%s: %s: %s", option, text,
              cli_open_reason());
      return status;
    }
    text = read;
  }
  int status = tsr_rules_parse(text, size_bytes, mode, out, &problem, &error);
  if (status) status = explain(session, source, &problem, &error);
  tsr_rule_problem_release(&problem);
  free(read);
  return status;
}
