/* mcp_input.c - lines of standard input, bounded, and what arrives while a question is answered.
 *
 * One buffer holds what was read and not used. It grows to two messages of the largest size; what
 * does not fit waits in the pipe. A line that is too long is discarded while it is read, up to its
 * end.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mcp.h"

#define PIECE_BYTES ((size_t)64 << 10)

/* Read once into the buffer. Returns 1, 0 at the end or when there is no room, -1 on failure. */
static int read_more(mcp_input *input) {
  if (input->start == input->size) input->start = input->size = input->scanned = 0;
  if (input->capacity - input->size < PIECE_BYTES && input->start) {
    memmove(input->data, input->data + input->start, input->size - input->start);
    input->size -= input->start;
    input->scanned -= input->start;
    input->start = 0;
  }
  if (input->capacity - input->size < PIECE_BYTES) {
    size_t larger = input->capacity ? 2 * input->capacity : 2 * PIECE_BYTES;
    if (larger > 4 * MCP_LINE_BYTES) return 0;
    char *moved = realloc(input->data, larger);
    if (!moved) return -1;
    input->data = moved;
    input->capacity = larger;
  }
  ssize_t got;
  do got = read(input->handle, input->data + input->size, input->capacity - input->size);
  while (got < 0 && errno == EINTR);
  if (got > 0) input->size += (size_t)got;
  if (got == 0) input->at_end = true;
  return got > 0 ? 1 : (int)got;
}

/* Throw away what there is of a line that is too long. */
static void skip(mcp_input *input) {
  input->is_skipping = true;
  input->start = input->scanned = input->size;
}

static mcp_line take(mcp_input *input, size_t end, size_t next, const char **line,
                     size_t *size_bytes) {
  bool was_skipping = input->is_skipping;
  *line = input->data + input->start;
  *size_bytes = end - input->start;
  input->start = input->scanned = next;
  input->is_skipping = false;
  return was_skipping || *size_bytes > MCP_LINE_BYTES ? MCP_LINE_TOO_LONG : MCP_LINE;
}

mcp_line mcp_input_next(mcp_input *input, const char **line, size_t *size_bytes) {
  for (;;) {
    const char *from = input->size ? input->data + input->scanned : NULL;
    const char *end = from ? memchr(from, '\n', input->size - input->scanned) : NULL;
    if (end) {
      size_t at = (size_t)(end - input->data);
      return take(input, at, at + 1, line, size_bytes);
    }
    input->scanned = input->size;
    if (input->is_skipping || input->size - input->start > MCP_LINE_BYTES) skip(input);
    if (input->at_end && input->start == input->size && !input->is_skipping) return MCP_LINE_END;
    if (input->at_end) return take(input, input->size, input->size, line, size_bytes);
    if (read_more(input) < 0) return MCP_LINE_FAILED;
  }
}

static void read_what_is_there(mcp_input *input) {
  struct pollfd wait = {.fd = input->handle, .events = POLLIN};
  while (!input->at_end && poll(&wait, 1, 0) > 0 && read_more(input) > 0) continue;
}

static bool cancels(const char *line, size_t size_bytes, const json_t *id) {
  json_t *message = NULL;
  (void)mcp_load(line, size_bytes, JSON_ALLOW_NUL, &message, NULL);
  const json_t *method = json_object_get(message, "method");
  const json_t *request = json_object_get(json_object_get(message, "params"), "requestId");
  bool does = json_is_string(method) &&
              strcmp(json_string_value(method), "notifications/cancelled") == 0 &&
              json_equal(request, id);
  json_decref(message);
  return does;
}

bool mcp_input_cancels(mcp_input *input, const json_t *id) {
  read_what_is_there(input);
  size_t at = input->start;
  while (at < input->size && !input->is_skipping) {
    const char *line = input->data + at;
    const char *end = memchr(line, '\n', input->size - at);
    if (!end) break;
    size_t size = (size_t)(end - line);
    /* Such a message is short; whatever else waits here need not be parsed twice. */
    if (size < 4096 && cancels(line, size, id)) return true;
    at += size + 1;
  }
  return false;
}

void mcp_input_release(mcp_input *input) {
  free(input->data);
  *input = (mcp_input){.handle = input->handle};
}
