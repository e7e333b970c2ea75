/* serve_crowd.c - see serve_crowd.h. Some hundred visitors at most, so every search is a plain loop.
 *
 * A visitor is ended with shutdown(2), which the library's thread sees as the end of its input. The
 * library closes the socket itself, after cli_crowd_leave, so a handle here is always open. */
#include "serve_crowd.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

static cli_visitor *find(cli_crowd *crowd, int handle) {
  for (size_t i = 0; i < crowd->count; i++)
    if (crowd->visitors[i].handle == handle) return &crowd->visitors[i];
  return NULL;
}

static void end(cli_visitor *visitor) {
  assert(!visitor->is_ended);
  visitor->is_ended = true;
  (void)shutdown(visitor->handle, SHUT_RDWR);
}

/* Visitors that stay; of one address unless it is NULL. */
static size_t count_of(const cli_crowd *crowd, const unsigned char *address) {
  size_t count = 0;
  for (size_t i = 0; i < crowd->count; i++) {
    const cli_visitor *visitor = &crowd->visitors[i];
    bool is_of = !address || memcmp(visitor->address, address, sizeof visitor->address) == 0;
    count += is_of && !visitor->is_ended;
  }
  return count;
}

/* The lower goes first: idle since an answer, a first request owed, an answer that takes long. */
static int rank_of(const cli_visitor *visitor) {
  if (visitor->is_answered) return 2;
  return visitor->is_served ? 0 : 1;
}

/* Who goes first; NULL if nobody can. The newcomer is the last of those that owe a request. */
static cli_visitor *choose(cli_crowd *crowd, const unsigned char *address, int64_t now_ms) {
  cli_visitor *found = NULL;
  size_t found_count = 0;
  for (size_t i = 0; i < crowd->count; i++) {
    cli_visitor *visitor = &crowd->visitors[i];
    bool is_of = !address || memcmp(visitor->address, address, sizeof visitor->address) == 0;
    bool is_slow = now_ms - visitor->since_ms > CLI_CROWD_ANSWER_MS;
    if (!is_of || visitor->is_ended || (visitor->is_answered && !is_slow)) continue;
    size_t count = count_of(crowd, visitor->address);
    bool is_first = !found;
    if (found && rank_of(visitor) != rank_of(found))
      is_first = rank_of(visitor) < rank_of(found);
    else if (found && count != found_count)
      is_first = count > found_count;
    else if (found)
      is_first = visitor->since_ms < found->since_ms;
    if (is_first) found_count = count;
    if (is_first) found = visitor;
  }
  return found;
}

void cli_crowd_enter(cli_crowd *crowd, int handle, const unsigned char address[16],
                     int64_t now_ms) {
  pthread_mutex_lock(&crowd->lock);
  assert(!find(crowd, handle));
  if (crowd->count == CLI_CROWD_ROOM) {
    (void)shutdown(handle, SHUT_RDWR);
  } else {
    cli_visitor *newcomer = &crowd->visitors[crowd->count++];
    *newcomer = (cli_visitor){.handle = handle, .since_ms = now_ms};
    memcpy(newcomer->address, address, sizeof newcomer->address);
    const unsigned char *crowded = NULL;
    bool is_full = count_of(crowd, NULL) > CLI_CROWD_MOST;
    if (count_of(crowd, newcomer->address) > CLI_CROWD_OF_ADDRESS) crowded = newcomer->address;
    cli_visitor *first = is_full || crowded ? choose(crowd, crowded, now_ms) : NULL;
    if (first) end(first);
  }
  pthread_mutex_unlock(&crowd->lock);
}

static void note(cli_crowd *crowd, int handle, bool is_answered, int64_t now_ms) {
  pthread_mutex_lock(&crowd->lock);
  cli_visitor *visitor = find(crowd, handle);
  if (visitor) {
    visitor->is_served |= !is_answered;
    visitor->is_answered = is_answered;
    visitor->since_ms = now_ms;
    visitor->argument_count = 0;
  }
  pthread_mutex_unlock(&crowd->lock);
}

void cli_crowd_ask(cli_crowd *crowd, int handle, int64_t now_ms) {
  note(crowd, handle, true, now_ms);
}

void cli_crowd_finish(cli_crowd *crowd, int handle, int64_t now_ms) {
  note(crowd, handle, false, now_ms);
}

void cli_crowd_argument(cli_crowd *crowd, int handle) {
  static const char refusal[] = "HTTP/1.1 414 URI Too Long\r\nContent-Type: text/plain\r\n"
                                "Content-Length: 4\r\nConnection: close\r\n\r\n414\n";
  pthread_mutex_lock(&crowd->lock);
  cli_visitor *visitor = find(crowd, handle);
  if (visitor && ++visitor->argument_count > CLI_CROWD_ARGUMENTS && !visitor->is_ended) {
    (void)send(handle, refusal, sizeof refusal - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    end(visitor);
  }
  pthread_mutex_unlock(&crowd->lock);
}

void cli_crowd_leave(cli_crowd *crowd, int handle) {
  pthread_mutex_lock(&crowd->lock);
  cli_visitor *visitor = find(crowd, handle);
  if (visitor) *visitor = crowd->visitors[--crowd->count];
  pthread_mutex_unlock(&crowd->lock);
}

void cli_crowd_sweep(cli_crowd *crowd, int64_t now_ms) {
  pthread_mutex_lock(&crowd->lock);
  for (size_t i = 0; i < crowd->count; i++) {
    cli_visitor *visitor = &crowd->visitors[i];
    bool is_late = now_ms - visitor->since_ms > CLI_CROWD_PATIENCE_MS;
    if (is_late && !visitor->is_answered && !visitor->is_ended) end(visitor);
  }
  pthread_mutex_unlock(&crowd->lock);
}
