/* chat.c - the chat template of a model, and the texts that it is run with. Rule: transformers, tokenization_utils_base.py
 * (apply_chat_template): chat_template.jinja, else "chat_template" of tokenizer_config.json. */
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "tokens/template.h"
#include "tokens/tokenizer.h"

enum { VARIABLES_MOST = 8 };

struct tsr_chat {
  tsr__arena arena;
  tsr__template_node *first; /* NULL: an empty template */
  tsr__template_variable variables[VARIABLES_MOST];
  size_t variable_count;
};

static int keep_variables(tsr_chat *chat, const json_t *config, tsr_error *error) {
  static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const json_t *value = json_object_get(config, names[i]);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) continue;
    size_t size = json_string_length(value);
    char *text = tsr__arena_copy(&chat->arena, json_string_value(value), size, 1);
    if (!text) return tsr__fail_memory(error);
    chat->variables[chat->variable_count++] =
        (tsr__template_variable){{names[i], strlen(names[i])}, {text, size}};
  }
  return 0;
}

/* A text, or a list of named templates, of which the "default" counts; NULL if absent. */
static const json_t *find_template(const json_t *config) {
  const json_t *found = json_object_get(config, "chat_template");
  for (size_t i = 0; json_is_array(found) && i < json_array_size(found); i++) {
    const json_t *item = json_array_get(found, i);
    const char *name = json_string_value(json_object_get(item, "name"));
    if (name && strcmp(name, "default") == 0) return json_object_get(item, "template");
  }
  return found;
}

static int read_chat(tsr_chat *chat, const json_t *config, tsr_text file, tsr_error *error) {
  const json_t *found = find_template(config);
  int status = keep_variables(chat, config, error);
  if (status) return status;
  if (!file.data && !json_is_string(found))
    return tsr__fail(error, TSR_ERROR_ABSENT, TSR_OFFSET_NONE, "the model has no chat template");
  if (!file.data) file = (tsr_text){json_string_value(found), json_string_length(found)};
  if (!tsr__utf8_is_text(file.data, file.size_bytes))
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE, "the chat template is not UTF-8");
  return tsr__template_parse(&chat->arena, file, &chat->first, error);
}

int tsr_chat_open(const char *path, tsr_chat **out, tsr_error *error) {
  char *file = NULL, *text = NULL;
  size_t file_bytes = 0, text_bytes = 0;
  json_t *config = NULL;
  tsr_chat *chat = TSR__NEW(tsr_chat);
  int status = chat ? 0 : tsr__fail_memory(error);
  if (chat) tsr__arena_init(&chat->arena);
  if (!status) status = tsr__read_beside(path, "chat_template.jinja", &file, &file_bytes, error);
  if (!status) status = tsr__read_beside(path, "tokenizer_config.json", &text, &text_bytes, error);
  if (!status && text)
    status = tsr_json_load(text, text_bytes, JSON_DECODE_INT_AS_REAL, "tokenizer_config.json",
                           &config, error); /* model_max_length may have 31 digits */
  if (!status) status = read_chat(chat, config, (tsr_text){file, file_bytes}, error);
  json_decref(config);
  tsr__free(file);
  tsr__free(text);
  if (status)
    tsr_chat_free(chat);
  else
    *out = chat;
  return status;
}

void tsr_chat_free(tsr_chat *chat) {
  if (!chat) return;
  tsr__arena_release(&chat->arena);
  tsr__free(chat);
}

int tsr_chat_render(const tsr_chat *chat, const tsr_chat_message *messages, size_t count,
                    bool adds_prompt, tsr_write_fn *write, void *context, tsr_error *error) {
  tsr__template_message *all = TSR__NEW_ARRAY(tsr__template_message, count);
  tsr__buffer out = {0};
  if (!all) return tsr__fail_memory(error);
  for (size_t i = 0; i < count; i++)
    all[i] = (tsr__template_message){{messages[i].role, strlen(messages[i].role)},
                                     {messages[i].content, strlen(messages[i].content)}};
  const tsr__template_input input = {all, count, chat->variables, chat->variable_count,
                                     adds_prompt};
  int status = tsr__template_run(chat->first, &input, &out, error);
  if (status == 0 && out.size && write(context, out.data, out.size))
    status = tsr__fail(error, TSR_ERROR_WRITE, TSR_OFFSET_NONE, "the prompt cannot be written");
  tsr__buffer_release(&out);
  tsr__free(all);
  return status;
}
