/* prompt.c - see prompt.h. The editor of lines is libedit, loaded on demand: its licence is BSD's, where readline's is the GPL.
 *
 * While a line is edited, Ctrl-C is a key like others, which drops the line. While a query runs, it is a signal, which sets a flag that
 * SQLite's progress handler looks at (engine.c). So no code is left in the middle.
 */
#define _GNU_SOURCE

#include "prompt.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY CLI_LIBRARY_EDIT /* cmd/meson.build */

enum { HISTORY_LINES = 2000, MATCHES_SHOWN = 200, WORD_BYTES = 128 };

/* ---- The editor ---- */

typedef struct editor {
#define EDIT_FUNCTIONS(X) \
  X(el_init)              \
  X(el_end)               \
  X(el_set) X(el_gets) X(el_line) X(el_insertstr) X(history_init) X(history_end) X(history)
#define EDIT_FIELD(name) __typeof__(name) *name;
  EDIT_FUNCTIONS(EDIT_FIELD)
#undef EDIT_FIELD
  EditLine *line;
  History *past;
  sql_shell *shell;
  const char *prompt;
  bool is_dropped; /* by Ctrl-C */
} editor;

static bool load_editor(editor *e) {
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;
  if (!library) return false;
#define LOAD(name)               \
  found = dlsym(library, #name); \
  if (!found) return false;      \
  memcpy(&e->name, &found, sizeof found); /* no cast from data to functions */
  EDIT_FUNCTIONS(LOAD)
#undef LOAD
  return true;
}

/* Functions that libedit calls get its own object; this is what they need besides. One prompt, one thread. */
static editor *current;

static char *prompt_of(EditLine *line) {
  (void)line;
  return (char *)(uintptr_t)current->prompt;
}

static unsigned char drop_line(EditLine *line, int key) {
  (void)line, (void)key;
  current->is_dropped = true;
  return CC_NEWLINE;
}

/* ---- Completion ---- */

static const char *const keywords[] = {
    "SELECT",   "FROM",    "WHERE", "GROUP",     "ORDER", "LIMIT",  "JOIN", "USING",  "HAVING",
    "DISTINCT", "BETWEEN", "LIKE",  "count",     "sum",   "max",    "min",  "avg",    "total",
    "round",    "substr",  "WITH",  "RECURSIVE", "UNION", "EXISTS", "DESC", "printf", NULL};

typedef struct matches {
  const char *prefix;
  size_t length;
  const char *found[MATCHES_SHOWN];
  size_t count;
} matches;

static void offer(matches *m, const char *name) {
  if (strncasecmp(name, m->prefix, m->length) != 0) return;
  for (size_t i = 0; i < m->count; i++)
    if (strcmp(m->found[i], name) == 0) return;
  if (m->count < MATCHES_SHOWN) m->found[m->count++] = name;
}

static bool is_word(char byte) {
  return isalnum((unsigned char)byte) || byte == '_';
}

/* Whether the word before `from` is one that tables follow. */
static bool is_table_next(const char *text, const char *from) {
  while (from > text && from[-1] == ' ') from--;
  size_t length = (size_t)(from - text);
  bool is_from = length >= 5 && strncasecmp(from - 4, "FROM", 4) == 0 && !is_word(from[-5]);
  return is_from || (length >= 5 && strncasecmp(from - 4, "JOIN", 4) == 0 && !is_word(from[-5]));
}

static void find_matches(matches *m, bool only_tables) {
  const char *name;
  if (m->prefix[0] == '.') {
    for (size_t i = 0; (name = sql_shell_command_at(i)) != NULL; i++) offer(m, name);
    return;
  }
  for (size_t i = 0; i < tsr_relation_count(); i++) {
    const tsr_relation *relation = tsr_relation_at(i);
    offer(m, relation->name);
    for (size_t c = 0; !only_tables && c < relation->column_count; c++)
      offer(m, relation->columns[c].name);
  }
  for (size_t i = 0; !only_tables && keywords[i]; i++) offer(m, keywords[i]);
}

/* How far all matches agree. */
static size_t common_length(const matches *m) {
  size_t length = strlen(m->found[0]);
  for (size_t i = 1; i < m->count; i++) {
    size_t same = 0;
    while (same < length &&
           tolower((unsigned char)m->found[0][same]) == tolower((unsigned char)m->found[i][same]))
      same++;
    length = same;
  }
  return length;
}

static void show_matches(const matches *m) {
  printf("\n");
  for (size_t i = 0; i < m->count; i++)
    printf("%-24s%s", m->found[i], i % 4 == 3 || i + 1 == m->count ? "\n" : "");
  fflush(stdout);
}

static unsigned char complete_word(EditLine *line, int key) {
  const editor *e = current;
  const LineInfo *info = e->el_line(line);
  const char *from = info->cursor;
  char word[WORD_BYTES];
  (void)key;
  while (from > info->buffer && is_word(from[-1])) from--;
  if (from == info->buffer + 1 && from[-1] == '.')
    from--; /* a dot command; after a table's name the word is a column */
  size_t length = (size_t)(info->cursor - from);
  if (length >= sizeof word) return CC_ERROR;
  memcpy(word, from, length);
  word[length] = '\0';
  matches m = {.prefix = word, .length = length};
  find_matches(&m, is_table_next(info->buffer, from));
  if (!m.count) return CC_ERROR;
  size_t common = common_length(&m);
  if (common == length && m.count > 1) {
    show_matches(&m);
    return CC_REDISPLAY;
  }
  (void)snprintf(word, sizeof word, "%.*s%s", (int)(common - length), m.found[0] + length,
                 m.count == 1 ? " " : "");
  return e->el_insertstr(line, word) ? CC_ERROR : CC_REFRESH;
}

/* ---- History ---- */

static void remember(const editor *e, const char *text) {
  HistEvent event;
  if (text[strspn(text, " \t\r\n")]) (void)e->history(e->past, &event, H_ENTER, text);
}

static void load_history(const editor *e, const char *path) {
  FILE *file = path ? fopen(path, "re") : NULL;
  char *text = NULL;
  size_t room = 0;
  while (file && getline(&text, &room, file) > 0) remember(e, text);
  free(text);
  if (file) fclose(file);
}

/* Only the user may read what was asked. */
static FILE *open_history(const char *path) {
  if (!path) return NULL;
  char *folder = strdup(path);
  if (folder) *strrchr(folder, '/') = '\0';
  if (folder) (void)mkdir(folder, 0700);
  free(folder);
  int handle = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  FILE *file = handle < 0 ? NULL : fdopen(handle, "a");
  if (!file && handle >= 0) close(handle);
  return file;
}

/* ---- Lines ---- */

static bool start_editor(editor *e) {
  HistEvent event;
  setlocale(LC_CTYPE, "");
  if (!load_editor(e)) return false;
  e->line = e->el_init("tessera", stdin, stdout, stderr);
  e->past = e->history_init();
  if (!e->line || !e->past) return false;
  current = e;
  (void)e->history(e->past, &event, H_SETSIZE, HISTORY_LINES);
  (void)e->history(e->past, &event, H_SETUNIQUE, 1);
  (void)e->el_set(e->line, EL_PROMPT, prompt_of);
  (void)e->el_set(e->line, EL_EDITOR, "emacs");
  (void)e->el_set(e->line, EL_SIGNAL, 1);
  (void)e->el_set(e->line, EL_HIST, e->history, e->past);
  (void)e->el_set(e->line, EL_ADDFN, "sql-complete", "complete a name", complete_word);
  (void)e->el_set(e->line, EL_ADDFN, "sql-drop", "drop the line", drop_line);
  (void)e->el_set(e->line, EL_SETTY, "-d", "-isig", NULL);
  (void)e->el_set(e->line, EL_BIND, "^I", "sql-complete", NULL);
  (void)e->el_set(e->line, EL_BIND, "^C", "sql-drop", NULL);
  (void)e->el_set(e->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
  return true;
}

static void stop_editor(editor *e) {
  if (e->line) e->el_end(e->line);
  if (e->past) e->history_end(e->past);
  current = NULL;
}

/* A line from the editor, or from the terminal without one; NULL at the end. */
static const char *read_line(editor *e, bool has_editor, char **plain, size_t *room) {
  int count;
  e->is_dropped = false;
  if (has_editor) return e->el_gets(e->line, &count);
  printf("%s", e->prompt);
  fflush(stdout);
  return getline(plain, room, stdin) > 0 ? *plain : NULL;
}

static volatile int is_interrupted;

static void note_interrupt(int signal) {
  (void)signal;
  is_interrupted = 1;
}

/* A failure of a query is explained already; what the session explains ends the prompt. */
static int run_text(sql_shell *shell, cli_text *text) {
  is_interrupted = 0;
  int status = sql_shell_run(shell, text->data);
  text->size = 0;
  shell->result_count = 0;
  return status < 0 ? status : 0;
}

int sql_prompt(sql_shell *shell, const char *history) {
  editor e = {.shell = shell};
  cli_text text = {0};
  char *plain = NULL;
  size_t room = 0;
  const char *line;
  struct sigaction before, noted = {.sa_handler = note_interrupt};
  int status = 0;
  bool has_editor = start_editor(&e);
  FILE *kept = has_editor ? open_history(history) : NULL;
  if (has_editor) load_history(&e, history);
  sigaction(SIGINT, &noted, &before);
  shell->engine->is_cancelled = &is_interrupted;
  printf("Queries end with a semicolon; .help explains, .tables and .schema list what there is.\n");
  while (!status && !shell->has_ended) {
    e.prompt = text.size ? "    ...> " : "tessera> ";
    line = read_line(&e, has_editor, &plain, &room);
    /* A line that is dropped when it is empty comes as none. */
    if (!line && !e.is_dropped && !(is_interrupted && errno == EINTR)) break;
    if (!line) clearerr(stdin);
    if (e.is_dropped || !line) {
      printf("^C\n");
      text.size = 0;
    }
    is_interrupted = 0;
    if (e.is_dropped || !line) continue;
    bool is_kept = line[strspn(line, " \t\r\n")] && strncmp(line, ".quit", 5) != 0;
    if (has_editor && is_kept) remember(&e, line);
    if (kept && is_kept && fputs(line, kept) >= 0) (void)fflush(kept);
    if (cli_text_append(&text, line, strlen(line))) status = TSR_ERROR_MEMORY;
    if (!status && sql_shell_is_whole(shell, text.data)) status = run_text(shell, &text);
  }
  if (!shell->has_ended) printf("\n");
  sigaction(SIGINT, &before, NULL);
  shell->engine->is_cancelled = NULL;
  stop_editor(&e);
  if (kept) fclose(kept);
  free(plain);
  free(text.data);
  return status;
}

int sql_script(sql_shell *shell, FILE *stream) {
  cli_text text = {0};
  char *line = NULL;
  size_t room = 0;
  int status = 0;
  bool has_run = false;
  while (!status && !shell->has_ended && getline(&line, &room, stream) > 0) {
    if (cli_text_append(&text, line, strlen(line))) status = TSR_ERROR_MEMORY;
    if (status || !sql_shell_is_whole(shell, text.data)) continue;
    has_run |= text.data[strspn(text.data, " \t\r\n")] != '\0';
    status = sql_shell_run(shell, text.data);
    text.size = 0;
  }
  if (!status && text.size) status = sql_shell_run(shell, text.data);
  if (!status && !has_run && !shell->result_count)
    status = cli_usage_error(shell->session->options->command,
                             "no query: pass one after FILE, or on standard input");
  free(line);
  free(text.data);
  return status;
}
