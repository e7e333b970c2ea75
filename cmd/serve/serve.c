/* serve.c - `tessera serve FILE...`: serves the page, and the parts that it requests.
 *
 *   GET /TOKEN/                             the page, made once
 *   GET /TOKEN/part?track=T&from=M&to=N     a cut of a range of a track (tessera/unstable/view.h)
 *   GET /TOKEN/tessera.html                 tessera itself as a page, where it is installed
 *
 * Everything else is refused; see serve_request.h for which requests are allowed. What is served does
 * not change, so several threads answer requests without locks. All threads block signals; the first one
 * waits for those that end the program, and once a second ends connections that owe their request
 * (serve_crowd.h).
 *
 * Files are parsed and requests answered by a process that can open no socket, write no file, and, once it listens, read
 * none (core/confine.h). So what it needs is opened first. */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/view.h>
#include <time.h>
#include <unistd.h>

#include "core/browser.h"
#include "core/confine.h"
#include "core/monotonic.h"
#include "core/page.h"
#include "core/sandbox.h"
#include "http.h"
#include "serve_crowd.h"
#include "serve_request.h"

/* Allocations in a part: more than there are pixels, and few enough for a browser to load at once. */
enum { PART_ALLOCATIONS = 250000, PART_BUCKETS = 4096, THREADS = 4, IDLE_S = 60 };
/* Each thread has an equal share of the connections, and may get all visitors at once. */
enum { CONNECTIONS = THREADS * CLI_CROWD_MOST + 4 * THREADS, SWEEP_S = 1 };

/* Headers of every response: do not cache, do not frame, do not embed. The page also has its own
 * content security policy. */
static const struct {
  const char *name, *value;
} headers[] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy", "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
};

typedef struct body {
  char *data;
  size_t size, capacity;
} body;

typedef union endpoint {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} endpoint;

typedef struct server {
  cli_guard guard;
  endpoint where;
  int handle; /* a socket bound there, until the daemon has it; -1 without one */
  const cli_page *page;
  body document, tessera; /* the second is empty if it is not installed */
  cli_http http;
  cli_crowd crowd;
} server;

/* A tsr_write_fn. */
static int append(void *context, const char *data, size_t size_bytes) {
  body *out = context;
  if (size_bytes > out->capacity - out->size) {
    size_t larger = out->capacity + out->capacity / 2 + size_bytes + 4096;
    char *moved = realloc(out->data, larger);
    if (!moved) return -1;
    out->data = moved;
    out->capacity = larger;
  }
  memcpy(out->data + out->size, data, size_bytes);
  out->size += size_bytes;
  return 0;
}

/* ---- who is connected ---- */

static int handle_of(const server *s, struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      s->http.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

/* As 16 bytes; zero if unknown. */
static void address_of(const server *s, struct MHD_Connection *connection,
                       unsigned char address[16]) {
  const union MHD_ConnectionInfo *info =
      s->http.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  memset(address, 0, 16);
  if (!info || !info->client_addr) return;
  const struct sockaddr *from = info->client_addr;
  if (from->sa_family == AF_INET)
    memcpy(address, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
  if (from->sa_family == AF_INET6)
    memcpy(address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
}

/* A connection begins or ends. */
static void notice(void *context, struct MHD_Connection *connection, void **own,
                   enum MHD_ConnectionNotificationCode what) {
  server *s = context;
  unsigned char address[16];
  int handle = handle_of(s, connection);
  (void)own;
  if (handle < 0) return;
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    cli_crowd_leave(&s->crowd, handle);
    return;
  }
  address_of(s, connection, address);
  cli_crowd_enter(&s->crowd, handle, address, cli_now_ms());
}

/* An answer is sent, or could not be. */
static void complete(void *context, struct MHD_Connection *connection, void **begun,
                     enum MHD_RequestTerminationCode how) {
  server *s = context;
  (void)begun, (void)how;
  cli_crowd_finish(&s->crowd, handle_of(s, connection), cli_now_ms());
}

/* ---- answering ---- */

static enum MHD_Result respond(const server *s, struct MHD_Connection *connection, unsigned status,
                               const char *type, const body *text,
                               enum MHD_ResponseMemoryMode mode) {
  struct MHD_Response *response = s->http.create_response_from_buffer(text->size, text->data, mode);
  if (!response) {
    if (mode == MHD_RESPMEM_MUST_FREE) free(text->data);
    return MHD_NO;
  }
  enum MHD_Result ok = s->http.add_response_header(response, "Content-Type", type);
  for (size_t i = 0; ok == MHD_YES && i < sizeof headers / sizeof *headers; i++)
    ok = s->http.add_response_header(response, headers[i].name, headers[i].value);
  if (ok == MHD_YES) ok = s->http.queue_response(connection, status, response);
  s->http.destroy_response(response);
  return ok;
}

static enum MHD_Result refuse(const server *s, struct MHD_Connection *connection, unsigned status) {
  char text[32];
  int length = snprintf(text, sizeof text, "%u\n", status);
  body plain = {.data = text, .size = (size_t)length};
  return respond(s, connection, status, "text/plain", &plain, MHD_RESPMEM_MUST_COPY);
}

/* The device of a track, which counts the devices of all inputs; NULL if absent. */
static const tsr_view_device *device_of(const cli_page *page, size_t track) {
  for (size_t i = 0; i < page->count; i++) {
    if (track < page->views[i]->device_count) return &page->views[i]->devices[track];
    track -= page->views[i]->device_count;
  }
  return NULL;
}

static bool argument(const server *s, struct MHD_Connection *connection, const char *name,
                     uint32_t *number) {
  return cli_request_number(
      s->http.lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name), number);
}

static enum MHD_Result send_part(const server *s, struct MHD_Connection *connection) {
  uint32_t track = 0, from = 0, to = 0;
  if (!argument(s, connection, "track", &track) || !argument(s, connection, "from", &from) ||
      !argument(s, connection, "to", &to) || from > to)
    return refuse(s, connection, MHD_HTTP_BAD_REQUEST);
  const tsr_view_device *device = device_of(s->page, track);
  if (!device || from > device->event_count) return refuse(s, connection, MHD_HTTP_NOT_FOUND);
  tsr_view_stretch stretch = {from, to ? to : 1, PART_ALLOCATIONS, PART_BUCKETS};
  tsr_view_cut cut = {0};
  body part = {0};
  int status = tsr_view_cut_compute(device, &stretch, &cut, NULL);
  if (status == 0) status = tsr_page_write_part(s->page->page, track, &cut, append, &part, NULL);
  tsr_view_cut_release(&cut);
  if (status == 0)
    return respond(s, connection, MHD_HTTP_OK, "application/octet-stream", &part,
                   MHD_RESPMEM_MUST_FREE);
  free(part.data);
  return refuse(s, connection, MHD_HTTP_INTERNAL_SERVER_ERROR);
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **begun) {
  static char is_begun;
  server *s = context;
  (void)version, (void)upload;
  if (*begun != &is_begun) { /* the first call has only the headers */
    *begun = &is_begun;
    return MHD_YES;
  }
  if (*upload_size) { /* no request has a body */
    *upload_size = 0;
    return MHD_YES;
  }
  cli_crowd_ask(&s->crowd, handle_of(s, connection), cli_now_ms());
  cli_request request = {method, path,
                         s->http.lookup_connection_value(connection, MHD_HEADER_KIND, "Host"),
                         s->http.lookup_connection_value(connection, MHD_HEADER_KIND, "Origin")};
  cli_wanted wanted;
  int status = cli_request_check(&s->guard, &request, &wanted);
  if (status) return refuse(s, connection, (unsigned)status);
  if (wanted == CLI_WANTS_PART) return send_part(s, connection);
  const body *page = wanted == CLI_WANTS_PAGE ? &s->document : &s->tessera;
  if (!page->size) return refuse(s, connection, MHD_HTTP_NOT_FOUND);
  return respond(s, connection, MHD_HTTP_OK, "text/html; charset=utf-8", page,
                 MHD_RESPMEM_PERSISTENT);
}

/* ---- listening ---- */

static int refuse_address(const cli_session *session, const server *s) {
  cli_say(NULL, "cannot listen at %s, port %u: %s", s->guard.host,
          (unsigned)tsr_params_count(session->options->own, "port"), strerror(errno));
  return CLI_FAULT;
}

/* A thread whose stack finds no memory fails as one too many does. */
static int refuse_start(void) {
  bool is_short = errno == ENOMEM || errno == EAGAIN;
  cli_say(NULL, "cannot serve: %s", is_short ? "out of memory or threads" : strerror(errno));
  return CLI_FAULT;
}

static int read_address(const cli_options *options, cli_guard *guard, endpoint *out) {
  const char *given = tsr_params_text(options->own, "host");
  uint64_t port = tsr_params_count(options->own, "port");
  guard->host = given && strcmp(given, "localhost") != 0 ? given : "127.0.0.1";
  if (port > UINT16_MAX)
    return cli_usage_error(options->command, "option '--port' takes a number up to 65535");
  if (inet_pton(AF_INET, guard->host, &out->v4.sin_addr) == 1) {
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    guard->is_any = out->v4.sin_addr.s_addr == htonl(INADDR_ANY);
    return 0;
  }
  if (inet_pton(AF_INET6, guard->host, &out->v6.sin6_addr) != 1)
    return cli_usage_error(options->command,
                           "option '--host' takes an address such as 127.0.0.1, not '%s'", given);
  out->v6.sin6_family = AF_INET6;
  out->v6.sin6_port = htons((uint16_t)port);
  guard->is_any = IN6_IS_ADDR_UNSPECIFIED(&out->v6.sin6_addr);
  return 0;
}

static bool is_loopback(const endpoint *where) {
  return where->any.sa_family == AF_INET
             ? ntohl(where->v4.sin_addr.s_addr) >> 24 == 127
             : memcmp(&where->v6.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

/* No valid request needs an escape, so none is decoded. Called for the path and for each name and value of the query. */
static size_t keep_escapes(void *context, struct MHD_Connection *connection, char *text) {
  server *s = context;
  cli_crowd_argument(&s->crowd, handle_of(s, connection));
  return strlen(text);
}

/* A socket bound to the address, which becomes the one that the system chose; -1 with errno set. Not listening yet, it refuses
 * connections. */
static int bind_socket(endpoint *where) {
  const int on = 1, family = where->any.sa_family;
  socklen_t size = family == AF_INET6 ? sizeof where->v6 : sizeof where->v4;
  int handle = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool is_bound =
      handle >= 0 && setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      (family != AF_INET6 || setsockopt(handle, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
      bind(handle, &where->any, size) == 0 && getsockname(handle, &where->any, &size) == 0;
  if (is_bound || handle < 0) return handle;
  int reason = errno;
  (void)close(handle);
  errno = reason;
  return -1;
}

/* The daemon closes the socket. `*listens` if it is the daemon that fails. */
static struct MHD_Daemon *start(server *s, bool *listens) {
  const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD;
  const int handle = s->handle;
  *listens = listen(handle, SOMAXCONN) == 0;
  if (!*listens) return NULL;
  s->handle = -1;
  return s->http.start_daemon(
      flags, 0, NULL, NULL, answer, s, MHD_OPTION_LISTEN_SOCKET, handle,
      MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, s, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
      MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
      (unsigned)IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, notice, s, MHD_OPTION_NOTIFY_COMPLETED,
      complete, s, MHD_OPTION_END);
}

static void tell(cli_session *session, const server *s) {
  FILE *stream = cli_output_stream(&session->output);
  bool is_v6 = s->where.any.sa_family == AF_INET6;
  unsigned port = ntohs(is_v6 ? s->where.v6.sin6_port : s->where.v4.sin_port);
  if (!is_loopback(&s->where) && !session->options->quiet)
    cli_say(NULL, "other machines can reach this address: everyone who knows it can read the page");
  if (!cli_sandbox_landlock() && !session->options->quiet)
    cli_say(NULL, "this kernel has no Landlock: the server may read what you may");
  if (!stream) return;
  fprintf(stream, "http://%s%s%s:%u/%s/\n", is_v6 ? "[" : "",
          s->guard.is_any ? (is_v6 ? "::1" : "127.0.0.1") : s->guard.host, is_v6 ? "]" : "", port,
          s->guard.token);
  fflush(stream);
}

/* Serve until a signal ends it. */
static int listen_and_wait(cli_session *session, server *s) {
  sigset_t ends, before;
  const struct timespec pause = {.tv_sec = SWEEP_S};
  int status = 0;
  bool listens = false;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  cli_confine_no_files(session->options);
  struct MHD_Daemon *daemon = start(s, &listens);
  if (daemon) {
    tell(session, s);
    if (!session->options->quiet) cli_say(NULL, "serving; press Ctrl-C to stop");
    while (sigtimedwait(&ends, NULL, &pause) < 0) cli_crowd_sweep(&s->crowd, cli_now_ms());
    s->http.stop_daemon(daemon);
  } else {
    status = listens ? refuse_start() : refuse_address(session, s);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

/* A cli_page_fn. */
static int serve(cli_session *session, const cli_page *page, void *context) {
  server *s = context;
  s->page = page;
  if (tsr_page_write(page->page, append, &s->document, &session->error)) return TSR_ERROR_MEMORY;
  return listen_and_wait(session, s);
}

/* Without it, there is no such page. */
static void read_tessera(server *s) {
  FILE *file = cli_browser_open();
  char chunk[4096];
  size_t size = 0;
  bool ok = file != NULL;
  while (ok && (size = fread(chunk, 1, sizeof chunk, file)) > 0)
    ok = append(&s->tessera, chunk, size) == 0;
  if (!ok || ferror(file)) s->tessera.size = 0;
  if (file) (void)fclose(file);
}

/* What has to be opened, before files are read: afterwards nothing can be. Returns 0, or an exit status. */
static int get_ready(cli_session *session, server *s) {
  const char *lacking = NULL;
  int status = read_address(session->options, &s->guard, &s->where);
  if (status) return status;
  if (!cli_token_make(s->guard.token))
    lacking = "the system provides no random numbers for a secret address";
  if (!lacking) lacking = cli_http_load(&s->http);
  if (lacking) cli_say(NULL, "cannot serve: %s", lacking);
  if (lacking) return CLI_FAULT;
  s->handle = bind_socket(&s->where);
  if (s->handle < 0) return refuse_address(session, s);
  read_tessera(s);
  cli_confine(session->options, &(cli_needs){.accepts = true});
  return 0;
}

int cli_serve(cli_session *session) {
  server s = {.handle = -1, .crowd.lock = PTHREAD_MUTEX_INITIALIZER};
  int status = get_ready(session, &s);
  if (status == 0) status = cli_with_page(session, true, serve, &s);
  if (s.handle >= 0) (void)close(s.handle);
  cli_http_unload(&s.http);
  free(s.document.data);
  free(s.tessera.data);
  return status;
}
