/* What a client sends to `tessera mcp`: any lines. Each response is one line of JSON. The tools may open a
 * snapshot and a step graph in the current folder. */
#define _GNU_SOURCE /* memfd_create */
#include <jansson.h>

#include "folder.h"
#include "program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char snapshot[] =
    "{\"segments\": [{\"device\": 0, \"address\": 4096, \"total_size\": 8192, \"stream\": 0, "
    "\"segment_type\": \"small\", \"blocks\": [{\"size\": 8192, \"state\": "
    "\"active_allocated\"}]}], "
    "\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": 8192, \"frames\": "
    "[{\"name\": \"forward\", \"filename\": \"a\\u202e.py\", \"line\": 1}]}]]}";
static const char graph[] =
    "{\"schema\":\"tessera-step/1\",\"gpu\":\"a100\",\"parameters\":2,\"optimizer\":\"SGD\","
    "\"texts\":[\"f\"],\"frames\":[[0,0,1]],\"stacks\":[[0]],\"static\":1,"
    "\"slots\":{\"bytes\":[8,16,24],\"category\":[\"parameter\",\"activation\",\"gradient\"]},"
    "\"instructions\":[[\"begin\",0],[\"drop_previous\",2],[\"new\",1,0],[\"new\",2,0],[\"drop\",1]"
    ","
    "[\"end\",0]]}";

/* One response, or a batch of them. */
static void check_line(const char *line, size_t size) {
  json_t *message = json_loadb(line, size, JSON_DISABLE_EOF_CHECK, NULL);
  require(message != NULL, "a line of JSON");
  const json_t *one = json_is_array(message) ? json_array_get(message, 0) : message;
  require(json_object_get(one, "jsonrpc") != NULL, "a message of JSON-RPC");
  json_decref(message);
  for (size_t i = 0; i < size; i++)
    require((unsigned char)line[i] >= 0x20, "escaped control characters");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const words[] = {"tessera", "mcp"};
  if (!fuzz_root[0]) {
    fuzz_put_aside("s", snapshot, sizeof snapshot - 1);
    fuzz_put_aside("g.json", graph, sizeof graph - 1);
  }
  require(!fuzz_run(2, words, data, size), "nothing but its end ends the input");
  size_t length;
  char *text = fuzz_printed(fuzz_program_once(), &length);
  for (char *line = text, *end; (end = memchr(line, '\n', length - (size_t)(line - text))) != NULL;
       line = end + 1)
    check_line(line, (size_t)(end - line));
  require(!length || text[length - 1] == '\n', "whole lines");
  free(text);
  return 0;
}
