/* A chat template: any bytes that are UTF-8, run with a conversation. */
#include "base/utf8.h"
#include "require.h"
#include "tokens/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tsr__template_message messages[] = {{{"user", 4}, {" Hi \xC3\xA9", 6}},
                                                   {{"assistant", 9}, {"Yes", 3}}};
  static const tsr__template_variable variables[] = {{{"bos_token", 9}, {"<s>", 3}}};
  const tsr__template_input input = {messages, 2, variables, 1, true};
  tsr__arena arena;
  tsr__buffer out = {0};
  tsr__template_node *first = NULL;
  tsr_error error = {0};
  if (!tsr__utf8_is_text((const char *)data, size)) return 0;
  tsr__arena_init(&arena);
  int status = tsr__template_parse(&arena, (tsr_text){(const char *)data, size}, &first, &error);
  if (status == 0) status = tsr__template_run(first, &input, &out, &error);
  check_error(status, &error);
  require(tsr__utf8_is_text(out.data, out.size), "a template writes text");
  tsr__buffer_release(&out);
  tsr__arena_release(&arena);
  return 0;
}
