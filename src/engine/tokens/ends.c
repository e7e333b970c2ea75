/* ends.c - which tokens end a text, as the files next to a tokenizer.json state it. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/os.h"
#include "tokens/tokenizer.h"

enum { FILE_BYTES_MOST = 16 << 20 };

int tsr__read_beside(const char *path, const char *name, char **out, size_t *size_bytes,
                     tsr_error *error) {
  const char *slash = strrchr(path, '/');
  bool is_folder = tsr__os_is_folder(path);
  size_t length = is_folder ? strlen(path) : slash ? (size_t)(slash - path) : 1;
  size_t size = length + strlen(name) + 2;
  char *whole = TSR__NEW_ARRAY(char, size), *text = NULL;
  uint64_t bytes = 0;
  int handle = -1;
  *out = NULL;
  if (!whole) return tsr__fail_memory(error);
  (void)snprintf(whole, size, "%.*s/%s", (int)length, is_folder || slash ? path : ".", name);
  int status = tsr__os_open_sized(whole, &handle, &bytes, NULL);
  tsr__free(whole);
  if (status) return status == TSR_ERROR_MEMORY ? tsr__fail_memory(error) : 0;
  if (bytes <= FILE_BYTES_MOST) {
    text = TSR__NEW_ARRAY(char, (size_t)bytes + 1);
    status = text ? tsr__os_read_exactly(handle, 0, text, (size_t)bytes, NULL) : TSR_ERROR_MEMORY;
  }
  tsr__os_close(handle);
  if (status) {
    tsr__free(text);
    return status == TSR_ERROR_MEMORY ? tsr__fail_memory(error) : 0;
  }
  *out = text;
  *size_bytes = (size_t)bytes;
  return 0;
}

typedef struct ends {
  const tsr_tokenizer *t;
  uint32_t *ids;
  size_t room, count;
} ends;

static void add(ends *e, int64_t id) {
  if (id < 0 || id >= (int64_t)TSR__TOKEN_ID_MOST) return;
  for (size_t i = 0; i < e->count; i++)
    if (e->ids[i] == (uint32_t)id) return;
  if (e->count < e->room) e->ids[e->count++] = (uint32_t)id;
}

/* -1 unless the value is one that an id can have. Numbers are read as reals, because model_max_length may have 31 digits. */
static int64_t read_id(const json_t *value) {
  double id = json_is_number(value) ? json_number_value(value) : -1;
  return id >= 0 && id < (double)TSR__TOKEN_ID_MOST ? (int64_t)id : -1;
}

/* A name, or an added token as an object; an id, or several. */
static void read_end(ends *e, const json_t *root) {
  const json_t *name = json_object_get(root, "eos_token"),
               *id = json_object_get(root, "eos_token_id");
  if (json_is_object(name)) name = json_object_get(name, "content");
  if (e->t && json_is_string(name)) add(e, tsr_tokenizer_id(e->t, json_string_value(name)));
  add(e, read_id(id));
  for (size_t i = 0; i < json_array_size(id); i++) add(e, read_id(json_array_get(id, i)));
}

/* Read a file of the folder. */
static int read_file(ends *e, const char *path, const char *name, tsr_error *error) {
  char *text = NULL;
  size_t size = 0;
  json_t *root = NULL;
  int status = tsr__read_beside(path, name, &text, &size, error);
  if (status == 0 && text)
    status = tsr_json_load(text, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL, &root, NULL);
  if (status == 0 && root) read_end(e, root);
  json_decref(root);
  tsr__free(text);
  return status == TSR_ERROR_MEMORY ? tsr__fail_memory(error) : 0;
}

int tsr_tokenizer_ends(const tsr_tokenizer *tokenizer, const char *path, uint32_t *ids, size_t room,
                       size_t *count, tsr_error *error) {
  static const char *const files[] = {"tokenizer_config.json", "generation_config.json",
                                      "config.json"};
  static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
  ends e = {tokenizer, ids, room, 0};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    int status = read_file(&e, path, files[i], error);
    if (status) return status;
  }
  for (size_t i = 0; tokenizer && !e.count && i < sizeof usual / sizeof *usual; i++)
    add(&e, tsr_tokenizer_id(tokenizer, usual[i]));
  *count = e.count;
  return 0;
}
