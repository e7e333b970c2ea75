/* serve_request.h - may a request be answered, and what does it ask for? Knows no HTTP library.
 *
 * A page that is served at 127.0.0.1 is reachable by every program of the machine, and by every web
 * site that the user's browser has open. The secret in the path keeps both out. The Host header must
 * be a name of this machine, so that a site cannot point its own name here and read the answers as
 * its own (DNS rebinding); a request that says which site it comes from must come from here. */
#ifndef CLI_SERVE_REQUEST_H
#define CLI_SERVE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

enum { CLI_TOKEN_DIGITS = 32 };

typedef struct cli_guard {
  const char *host; /* as the user named it, numeric; no brackets */
  bool is_any;      /* it stands for all addresses of this machine */
  char token[CLI_TOKEN_DIGITS + 1];
} cli_guard;

/* Headers are NULL where they are absent. */
typedef struct cli_request {
  const char *method, *path, *host, *origin;
} cli_request;

typedef enum cli_wanted { CLI_WANTS_PAGE, CLI_WANTS_PART } cli_wanted;

/* Answers 0 with what is wanted, or the status of HTTP with which to refuse. Compares the token in a
 * time that does not tell how much of it was right. */
int cli_request_check(const cli_guard *guard, const cli_request *request, cli_wanted *wanted);

/* A decimal number that is all of the text and at most UINT32_MAX. */
bool cli_request_number(const char *text, uint32_t *number);

/* A new secret, of the system's random numbers. False when it has none to give. */
bool cli_token_make(char token[CLI_TOKEN_DIGITS + 1]);

#endif
