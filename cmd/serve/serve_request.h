/* serve_request.h - is a request allowed, and what does it ask for? Independent of the HTTP library.
 *
 * A page that is served at 127.0.0.1 is reachable by every program on the machine, and by every web
 * site that the user's browser has open. The secret in the path keeps both out. The Host header must
 * be a name of this machine, so that a site cannot point its own name here and read the responses as
 * its own (DNS rebinding). If a request has an Origin header, it must be this server's. */
#ifndef CLI_SERVE_REQUEST_H
#define CLI_SERVE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum { CLI_TOKEN_DIGITS = 32 };

typedef struct cli_guard {
  const char *host; /* as the user gave it, numeric; no brackets */
  bool is_any;      /* it stands for all addresses of this machine */
  char token[CLI_TOKEN_DIGITS + 1];
} cli_guard;

/* Headers are NULL if absent. */
typedef struct cli_request {
  const char *method, *path, *host, *origin;
} cli_request;

typedef enum cli_wanted { CLI_WANTS_PAGE, CLI_WANTS_PART, CLI_WANTS_TESSERA } cli_wanted;

/* Returns 0 and the request, or the HTTP status with which to refuse it. Compares the token in
 * constant time, so that timing does not reveal how much of it was right. */
int cli_request_check(const cli_guard *guard, const cli_request *request, cli_wanted *wanted);

/* Parse a decimal number of at most UINT32_MAX; the whole text must be digits. */
bool cli_request_number(const char *text, uint32_t *number);

/* A new secret, from the system's random numbers. False if they are unavailable. */
bool cli_token_make(char token[CLI_TOKEN_DIGITS + 1]);

#endif
