/* serve_crowd.h - who is connected, and who has to go. Independent of the HTTP library.
 *
 * The library ends a connection after a minute without a byte, which a client that sends one now and
 * then never reaches; and as many as the library allows would keep everyone else out. So a connection has
 * PATIENCE_MS for a request, from its first byte to its last, and when there are too many, in all or of one
 * address, one is ended for each that comes: of those that had an answer and asked nothing since, or else
 * of those that owe their first request, the one that has waited longest, of the address that has most. A
 * browser sends its request at once, so it is served in any crowd. Those that had an answer go first
 * because most of them are gone: on a busy machine the library reads the end of a connection late, and
 * would in their stead end one whose request has come but is not read yet. */
#ifndef CLI_SERVE_CROWD_H
#define CLI_SERVE_CROWD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  CLI_CROWD_ROOM = 256,          /* connections that are known at all */
  CLI_CROWD_MOST = 64,           /* before one has to go for each that comes */
  CLI_CROWD_OF_ADDRESS = 48,     /* the same, of one address */
  CLI_CROWD_PATIENCE_MS = 10000, /* for a request */
  CLI_CROWD_ARGUMENTS = 64,      /* names and values of a query; the page sends 6 */
  CLI_CROWD_ANSWER_MS = 30000 /* for an answer, if the room is needed and nobody owes a request */
};

typedef struct cli_visitor {
  int handle; /* of the socket */
  unsigned char address[16];
  int64_t since_ms;        /* when it came, asked, or had its last answer */
  unsigned argument_count; /* names and values of the request's query so far */
  bool is_answered;        /* its request is complete, and the answer is under way */
  bool is_served;          /* had an answer before */
  bool is_ended;           /* asked to close, but the library has not closed it yet */
} cli_visitor;

/* Zeroed but for the lock, nobody is there. Thread safe. Invariant: no two visitors have one handle. */
typedef struct cli_crowd {
  pthread_mutex_t lock;
  cli_visitor visitors[CLI_CROWD_ROOM];
  size_t count;
} cli_crowd;

/* A socket was accepted. If that is one too many, one is shut down, perhaps this one. */
void cli_crowd_enter(cli_crowd *crowd, int handle, const unsigned char address[16], int64_t now_ms);
/* Its request is complete; its answer is. */
void cli_crowd_ask(cli_crowd *crowd, int handle, int64_t now_ms);
void cli_crowd_finish(cli_crowd *crowd, int handle, int64_t now_ms);
/* Its request has one more name or value in its query. The library runs out of memory for a connection at some hundred of them and then
 * is silent, so too many are answered here: 414, and the visitor is ended. */
void cli_crowd_argument(cli_crowd *crowd, int handle);
/* It is about to be closed. */
void cli_crowd_leave(cli_crowd *crowd, int handle);
/* End those that have owed a request for too long. To be called now and then. */
void cli_crowd_sweep(cli_crowd *crowd, int64_t now_ms);

#endif
