/* mcp_memory.c - notices that memory ran out while a message was answered.
 *
 * A message is made of some hundred values of jansson's, and a value that could not be made is merely absent from it. To
 * check each call would double the code, and one that was forgotten would send an answer with a hole. So jansson's
 * allocation functions note that one of them failed, and the answer is then replaced by an error. They are those that
 * jansson had before, but for this note: values that it made before or makes afterwards may be freed at any time.
 *
 * They are global, which is why the library cannot have them. This command is the program as long as it runs.
 */
#include <jansson.h>
#include <stdatomic.h>

#include "mcp.h"

static atomic_bool is_out;
static json_malloc_t before;
static json_free_t free_before;

static void *allocate(size_t size_bytes) {
  void *memory = before(size_bytes);
  if (!memory) mcp_memory_note();
  return memory;
}

void mcp_memory_begin(void) {
  json_get_alloc_funcs(&before, &free_before);
  json_set_alloc_funcs(allocate, free_before);
}

void mcp_memory_end(void) {
  json_set_alloc_funcs(before, free_before);
}

void mcp_memory_note(void) {
  atomic_store(&is_out, true);
}

bool mcp_memory_ran_out(void) {
  return atomic_exchange(&is_out, false);
}
