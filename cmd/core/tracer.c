/* tracer.c - see tracer.h.
 *
 *   request, archive ─► pipe ─► python -c START ─► pipe ─► a line, and the graph
 *
 * Python reads its code from the pipe, so nothing has to be installed besides PyTorch, and the tracer always belongs to this
 * command. For a description, Python runs isolated (-I): neither the current folder nor PYTHON variables decide what is imported, except
 * that the user's own packages are found: those of PYTHONPATH's absolute folders and of the user's site.
 *
 * A process that confines itself before it reads files cannot start Python afterwards. It starts a helper before, which waits:
 *
 *   helper ◄─ pipe ─ limit, request          which Python runs, and what of it, is decided before a file is read:
 *   helper ── pipe ─► end, note, graph       code that took over the command could trace descriptions, and no more */
#define _GNU_SOURCE

#include "tracer.h"
#include "monotonic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "system.h"
#include "textfile.h"
#include "tracer_archive.h"

extern char **environ; /* which no header of macOS declares */

/* Descriptors of the process, and the first one that does not collide with them. */
enum { TAKES = 10, GIVES = 11, ABOVE = 20 };

static const char start[] =
    "import sys\n"
    "if sys.path[:1] == ['']: del sys.path[0]\n"
    "import json, os, site\n"
    "if sys.flags.isolated:\n"
    "  sys.path[:0] = [p for p in os.environ.get('PYTHONPATH', '').split(os.pathsep) if "
    "os.path.isabs(p)]\n"
    "  if sys.prefix == sys.base_prefix: site.addsitedir(site.getusersitepackages())\n"
    "with os.fdopen(10, 'rb') as file: REQUEST, ARCHIVE, RESULTS = json.loads(file.readline()), "
    "file.read(), 11\n"
    "import io, zipfile\n"
    "code = zipfile.ZipFile(io.BytesIO(ARCHIVE)).read('start.py')\n"
    "sys.argv[:] = ['']\n"
    "exec(compile(code, '<command>/tessera/start.py', 'exec', dont_inherit=True))\n";

/* ---- which Python ---- */

static bool is_program(const char *folder, const char *name, char *room, size_t room_bytes) {
  int length = folder && *folder ? snprintf(room, room_bytes, "%s/%s", folder, name) : 0;
  return length > 0 && (size_t)length < room_bytes && access(room, X_OK) == 0;
}

/* The Python of the environment that tessera itself is installed in, also where that is not active. */
static bool is_beside(char *room, size_t room_bytes) {
  char program[4096];
  char *slash = cli_system_program(program, sizeof program) ? strrchr(program, '/') : NULL;
  if (!slash) return false;
  *slash = '\0';
  return is_program(program, "python3", room, room_bytes);
}

const char *cli_tracer_python(const cli_tracer *tracer, char *room, size_t room_bytes) {
  const char *own = getenv("TESSERA_PYTHON");
  if (tracer->python) return tracer->python;
  if (is_program(getenv("VIRTUAL_ENV"), "bin/python", room, room_bytes)) return room;
  if (is_program(getenv("CONDA_PREFIX"), "bin/python", room, room_bytes)) return room;
  if (own && *own) return own;
  return is_beside(room, room_bytes) ? room : "python3";
}

/* ---- the process ---- */

typedef struct child {
  pid_t id;
  int to, from; /* -1: closed */
} child;

static void close_end(int *end) {
  if (*end >= 0) (void)close(*end);
  *end = -1;
}

/* Both ends above the descriptors that the process gets them as, and closed in it. */
static bool make_pipe(int ends[2]) {
  int made[2];
  if (pipe(made)) return false;
  for (size_t i = 0; i < 2; i++) {
    ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, ABOVE);
    (void)close(made[i]);
  }
  if (ends[0] >= 0 && ends[1] >= 0) return true;
  close_end(&ends[0]);
  close_end(&ends[1]);
  return false;
}

/* Returns 0 or an errno. */
static int spawn(const cli_tracer *tracer, const char *python, int in, int out, pid_t *id) {
  const char *isolated[] = {python, "-I", "-c", start, NULL};
  const char *plain[] = {python, "-c", start, NULL};
  const char **words = tracer->is_script ? plain : isolated;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, ignored;
  if (posix_spawn_file_actions_init(&actions)) return ENOMEM;
  if (posix_spawnattr_init(&attributes)) {
    (void)posix_spawn_file_actions_destroy(&actions);
    return ENOMEM;
  }
  (void)sigemptyset(&none);
  (void)sigemptyset(&ignored);
  (void)sigaddset(&ignored, SIGPIPE);
  int status = posix_spawn_file_actions_adddup2(&actions, in, TAKES);
  if (!status) status = posix_spawn_file_actions_adddup2(&actions, out, GIVES);
  if (!status && !tracer->is_script)
    status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (!status && !tracer->is_script)
    status = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  if (!status) status = posix_spawn_file_actions_adddup2(&actions, 2, 1);
  if (!status) status = posix_spawnattr_setsigmask(&attributes, &none);
  if (!status) status = posix_spawnattr_setsigdefault(&attributes, &ignored);
  if (!status)
    status = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  if (!status)
    status =
        posix_spawnp(id, python, &actions, &attributes, (char *const *)(uintptr_t)words, environ);
  (void)posix_spawnattr_destroy(&attributes);
  (void)posix_spawn_file_actions_destroy(&actions);
  return status;
}

/* Returns 0 or an errno. */
static int begin(const cli_tracer *tracer, const char *python, child *out) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  int status = make_pipe(to) && make_pipe(from) ? 0 : errno ? errno : EMFILE;
  if (!status) status = spawn(tracer, python, to[0], from[1], &out->id);
  close_end(&to[0]);
  close_end(&from[1]);
  if (status) {
    close_end(&to[1]);
    close_end(&from[0]);
    return status;
  }
  out->to = to[1];
  out->from = from[0];
  (void)fcntl(out->to, F_SETFL, O_NONBLOCK);
  return 0;
}

/* ---- what goes in, and what comes out ---- */

typedef struct traffic {
  const char *parts[3]; /* the request, its end, the archive */
  size_t sizes[3];
  size_t part, done; /* sent so far */
  char *data;        /* received */
  size_t size, room;
} traffic;

/* Send what the pipe takes; once all is sent, or the process has closed its end, this end is closed. */
static void send_some(traffic *t, int *to) {
  ssize_t sent = write(*to, t->parts[t->part] + t->done, t->sizes[t->part] - t->done);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (sent > 0) t->done += (size_t)sent;
  while (t->part < 3 && t->done == t->sizes[t->part]) {
    t->part++;
    t->done = 0;
  }
  if (sent < 0 || t->part == 3) close_end(to);
}

/* One byte stays free, for the end of a text. False if memory ran out; at the end, the descriptor is closed. */
static bool receive_some(traffic *t, int *from) {
  if (t->size + 1 >= t->room) {
    size_t room = t->room ? 2 * t->room : 1u << 16;
    char *grown = room > 4 * CLI_TEXTFILE_MAX ? NULL : realloc(t->data, room);
    if (!grown) return false;
    t->data = grown;
    t->room = room;
  }
  ssize_t got = read(*from, t->data + t->size, t->room - 1 - t->size);
  if (got > 0) t->size += (size_t)got;
  if (got == 0 || (got < 0 && errno != EINTR)) close_end(from);
  return true;
}

typedef enum talk_end { TALKED, TOO_LONG, NO_MEMORY } talk_end;

static talk_end talk(child *c, traffic *t, unsigned limit_s) {
  int64_t end_ms = cli_now_ms() + (int64_t)limit_s * 1000;
  while (c->from >= 0) {
    struct pollfd both[] = {{.fd = c->from, .events = POLLIN}, {.fd = c->to, .events = POLLOUT}};
    int64_t left_ms = limit_s ? end_ms - cli_now_ms() : 1000;
    if (left_ms <= 0) return TOO_LONG;
    if (poll(both, 2, left_ms > 1000 ? 1000 : (int)left_ms) <= 0) continue;
    if (both[1].revents) send_some(t, &c->to);
    if (both[0].revents && !receive_some(t, &c->from)) return NO_MEMORY;
  }
  return TALKED;
}

/* ---- the answer ---- */

static bool take_word(const char **at, const char *word) {
  size_t length = strlen(word);
  if (strncmp(*at, word, length) != 0 || (*at)[length] != ' ') return false;
  *at += length + 1;
  return true;
}

/* The first line is a word and its note; the rest is the graph. */
static void read_answer(cli_traced *out, size_t size, int how) {
  const char *line = out->data ? out->data : "";
  char *end = out->data ? memchr(out->data, '\n', size) : NULL;
  out->end = CLI_TRACE_ENDED;
  out->note = out->text;
  if (!end) {
    if (WIFSIGNALED(how))
      (void)snprintf(out->text, sizeof out->text, "signal %d", WTERMSIG(how));
    else
      (void)snprintf(out->text, sizeof out->text, "exit status %d", WEXITSTATUS(how));
    return;
  }
  *end = '\0';
  if (take_word(&line, "graph"))
    out->end = CLI_TRACE_GRAPH;
  else if (take_word(&line, "lacks"))
    out->end = CLI_TRACE_LACKS;
  else if (take_word(&line, "refused"))
    out->end = CLI_TRACE_REFUSED;
  out->note = line;
  out->graph = end + 1;
  out->graph_size = size - (size_t)(end + 1 - out->data);
}

static void not_started(cli_traced *out, int reason) {
  (void)snprintf(out->text, sizeof out->text, "%s", strerror(reason));
  out->end = reason == ENOMEM ? CLI_TRACE_MEMORY : CLI_TRACE_ABSENT;
  out->note = out->text;
}

static void run_here(const cli_tracer *tracer, cli_traced *out) {
  char room[4096];
  int how = 0;
  child c = {.to = -1, .from = -1};
  const char *python = cli_tracer_python(tracer, room, sizeof room);
  traffic t = {.parts = {tracer->request, "\n", (const char *)cli_tracer_archive},
               .sizes = {strlen(tracer->request), 1, cli_tracer_archive_size}};
  *out = (cli_traced){.note = ""};
  int failed = begin(tracer, python, &c);
  if (failed) {
    not_started(out, failed);
    return;
  }
  talk_end ended = talk(&c, &t, tracer->limit_s);
  if (ended != TALKED) (void)kill(c.id, SIGKILL);
  close_end(&c.to);
  close_end(&c.from);
  while (waitpid(c.id, &how, 0) < 0 && errno == EINTR) {}
  out->data = t.data;
  if (t.data) t.data[t.size] = '\0';
  if (ended == TALKED) {
    read_answer(out, t.size, how);
    return;
  }
  out->end = ended == TOO_LONG ? CLI_TRACE_LATE : CLI_TRACE_MEMORY;
}

/* ---- the helper ---- */

struct cli_tracer_helper {
  pid_t id;
  int to, from;
  int failed; /* the reason why it did not start, or 0 */
};

/* What goes to the helper before the request, and comes back before the note and the graph. */
typedef struct helper_call {
  unsigned limit_s;
  size_t request_bytes;
} helper_call;
typedef struct helper_answer {
  cli_trace_end end;
  size_t note_bytes, graph_bytes;
} helper_answer;

/* Both transfer all of the bytes, or fail. */
static bool put(int to, const void *bytes, size_t size) {
  const char *at = bytes;
  while (size) {
    ssize_t done = write(to, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    size -= (size_t)done;
  }
  return true;
}

static bool take(int from, void *bytes, size_t size) {
  char *at = bytes;
  while (size) {
    ssize_t done = read(from, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    size -= (size_t)done;
  }
  return true;
}

/* Answer one request, or end with the process that would make it. */
static void serve_one(const char *python, int from, int to) {
  helper_call call;
  cli_traced traced;
  if (!take(from, &call, sizeof call) || call.request_bytes > 2 * CLI_TEXTFILE_MAX) return;
  char *request = malloc(call.request_bytes + 1);
  if (!request || !take(from, request, call.request_bytes)) return;
  request[call.request_bytes] = '\0';
  run_here(&(cli_tracer){.python = python, .request = request, .limit_s = call.limit_s}, &traced);
  helper_answer answer = {traced.end, strlen(traced.note), traced.graph_size};
  (void)(put(to, &answer, sizeof answer) && put(to, traced.note, answer.note_bytes) &&
         put(to, traced.graph, answer.graph_bytes));
}

cli_tracer_helper *cli_tracer_helper_start(const char *python) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  cli_tracer_helper *helper = malloc(sizeof *helper);
  if (!helper) return NULL;
  pid_t id = make_pipe(to) && make_pipe(from) ? fork() : -1;
  int reason = errno;
  if (id == 0) {
    close_end(&to[1]);
    close_end(&from[0]);
    cli_system_end_with_parent();
    serve_one(python, to[0], from[1]);
    _exit(0);
  }
  close_end(&to[0]);
  close_end(&from[1]);
  *helper = (cli_tracer_helper){.id = id, .to = to[1], .from = from[0]};
  if (id > 0) return helper;
  helper->failed = reason;
  close_end(&helper->to);
  close_end(&helper->from);
  return helper;
}

void cli_tracer_helper_end(cli_tracer_helper *helper) {
  if (!helper) return;
  close_end(&helper->to);
  close_end(&helper->from);
  while (helper->id > 0 && waitpid(helper->id, NULL, 0) < 0 && errno == EINTR) {}
  free(helper);
}

static void run_there(const cli_tracer *tracer, cli_traced *out) {
  cli_tracer_helper *helper = tracer->helper;
  helper_call call = {tracer->limit_s, strlen(tracer->request)};
  helper_answer answer;
  *out = (cli_traced){.end = CLI_TRACE_MEMORY, .note = ""};
  if (helper->failed) {
    not_started(out, helper->failed);
    return;
  }
  if (!put(helper->to, &call, sizeof call) ||
      !put(helper->to, tracer->request, call.request_bytes) ||
      !take(helper->from, &answer, sizeof answer))
    return;
  out->data = malloc(answer.note_bytes + answer.graph_bytes + 1);
  if (!out->data || !take(helper->from, out->data, answer.note_bytes) ||
      !take(helper->from, out->data + answer.note_bytes + 1, answer.graph_bytes))
    return;
  out->data[answer.note_bytes] = '\0';
  out->end = answer.end;
  out->note = out->data;
  out->graph = out->data + answer.note_bytes + 1;
  out->graph_size = answer.graph_bytes;
}

void cli_tracer_run(const cli_tracer *tracer, cli_traced *out) {
  if (tracer->helper)
    run_there(tracer, out);
  else
    run_here(tracer, out);
}

void cli_traced_release(cli_traced *traced) {
  free(traced->data);
  *traced = (cli_traced){.note = ""};
}
