/* serve_request.c - see serve_request.h. */
#define _GNU_SOURCE

#include "serve_request.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum { FORBIDDEN = 403, NOT_FOUND = 404, NOT_ALLOWED = 405, HOST_BYTES = 80 };

bool cli_token_make(char token[CLI_TOKEN_DIGITS + 1]) {
  static const char digits[] = "0123456789abcdef";
  unsigned char bytes[CLI_TOKEN_DIGITS / 2];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
  for (size_t i = 0; i < sizeof bytes; i++) {
    token[2 * i] = digits[bytes[i] >> 4];
    token[2 * i + 1] = digits[bytes[i] & 15];
  }
  token[CLI_TOKEN_DIGITS] = '\0';
  return true;
}

static bool is_address(const char *name) {
  struct in6_addr address;
  return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

/* Does "name", "name:port" or "[address]:port" name this machine? The port may be another one: that
 * of a tunnel. */
static bool is_own(const cli_guard *guard, const char *header) {
  char name[HOST_BYTES];
  bool is_bracketed = header[0] == '[';
  const char *first = header + is_bracketed;
  size_t length = strcspn(first, is_bracketed ? "]" : ":");
  const char *port = first + length + (is_bracketed && first[length] == ']');
  if (length >= sizeof name || (*port && *port != ':')) return false;
  if (is_bracketed && first[length] != ']') return false;
  if (*port && strspn(port + 1, "0123456789") != strlen(port + 1)) return false;
  memcpy(name, first, length);
  name[length] = '\0';
  if (strcasecmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
      strcmp(name, "::1") == 0 || strcmp(name, guard->host) == 0)
    return true;
  return guard->is_any && is_address(name);
}

static bool is_from_here(const cli_request *request) {
  static const char scheme[] = "http://";
  const char *origin = request->origin;
  if (!origin) return true;
  return strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
         strcmp(origin + sizeof scheme - 1, request->host) == 0;
}

/* The path after "/TOKEN/", or NULL. */
static const char *behind_token(const cli_guard *guard, const char *path) {
  unsigned differs = 0;
  if (strlen(path) < CLI_TOKEN_DIGITS + 2) return NULL;
  for (size_t i = 0; i < CLI_TOKEN_DIGITS; i++)
    differs |= (unsigned char)path[i + 1] ^ (unsigned char)guard->token[i];
  if (differs || path[0] != '/' || path[CLI_TOKEN_DIGITS + 1] != '/') return NULL;
  return path + CLI_TOKEN_DIGITS + 2;
}

int cli_request_check(const cli_guard *guard, const cli_request *request, cli_wanted *wanted) {
  if (!request->host || !is_own(guard, request->host) || !is_from_here(request)) return FORBIDDEN;
  const char *rest = behind_token(guard, request->path);
  if (!rest) return FORBIDDEN;
  if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
    return NOT_ALLOWED;
  if (strcmp(rest, "") == 0)
    *wanted = CLI_WANTS_PAGE;
  else if (strcmp(rest, "part") == 0)
    *wanted = CLI_WANTS_PART;
  else if (strcmp(rest, "tessera.html") == 0)
    *wanted = CLI_WANTS_TESSERA;
  else
    return NOT_FOUND;
  return 0;
}

bool cli_request_number(const char *text, uint32_t *number) {
  uint64_t value = 0;
  if (!text || !*text || strlen(text) > 10) return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return false;
    value = value * 10 + (uint64_t)(*text - '0');
  }
  *number = (uint32_t)value;
  return value <= UINT32_MAX;
}
