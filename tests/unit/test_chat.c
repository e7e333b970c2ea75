/* Chat templates: what Jinja makes of them (tests/torch/chats.py compares more), what is refused, and limits. */
#include "tokens/template.h"

#include <string.h>

#include "test_support.h"

static const tsr__template_message messages[] = {{{"system", 6}, {" Be brief. ", 11}},
                                                 {{"user", 4}, {"Hi \xC3\xA9", 5}},
                                                 {{"assistant", 9}, {"Yes", 3}}};
static const tsr__template_variable variables[] = {{{"bos_token", 9}, {"<s>", 3}},
                                                   {{"eos_token", 9}, {"</s>", 4}}};

static int render(const char *source, tsr__buffer *out, tsr_error *error) {
  const tsr__template_input input = {messages, 3, variables, 2, true};
  tsr__arena arena;
  tsr__template_node *first = NULL;
  tsr__arena_init(&arena);
  int status = tsr__template_parse(&arena, (tsr_text){source, strlen(source)}, &first, error);
  if (status == 0) status = tsr__template_run(first, &input, out, error);
  tsr__arena_release(&arena);
  return status;
}

static void test_renders_as_jinja(void **state) {
  static const struct {
    const char *source, *expected;
  } cases[] = {
      {"", ""},
      {"text\n", "text"},
      {"a\n\n", "a\n"},
      {"{{ bos_token }}{% for m in messages %}\n  {% if m.role == 'user' %}\n[{{ m['content'] }}]\n"
       "  {% endif %}\n{% endfor %}!",
       "<s>[Hi \xC3\xA9]\n!"},
      {"{%- for m in messages -%}  {{- m.role + ':' -}} {{ m.content | trim }};\n{%- endfor %}",
       "system:Be brief.;user:Hi \xC3\xA9;assistant:Yes;"},
      {"{% set ns = namespace(n=0) %}{% for m in messages[1:] %}{% set ns.n = ns.n + loop.index %}"
       "{% set gone = 1 %}{% endfor %}{{ ns.n }}{{ gone }}",
       "3"},
      {"{% if messages[0].role != 'system' or messages|length > 9 %}a{% elif false %}b{% else %}c"
       "{% endif %}",
       "c"},
      {"{{ 'x' if add_generation_prompt else eos_token }}{{ tools is none }}{{ other is defined }}",
       "xTrueFalse"},
      {"{{ messages[1].content[-1:] }}{{ 'a,b'.split(',')[-1] }}{{ '\\n'|length }}{{ 7 // 2 % 2 }}",
       "\xC3\xA9"
       "b11"},
      {"a {#- gone -#} b {# also #}\nc", "ab c"},
      {"{{ 'q\"\\\\' | tojson }}{{ 1 < 2 < 3 }}{{ 'b' not in 'abc' }}{{ none ~ 1 }}",
       "\"q\\\"\\\\\"TrueFalseNone1"},
      {"{% for m in missing %}x{% else %}none{% endfor %}", "none"},
      {"{% if false %}{{ x | reject('a') }}{% endif %}ok", "ok"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__buffer out = {0};
    tsr_error error = {0};
    if (render(cases[i].source, &out, &error)) fail_msg("%s: %s", cases[i].source, error.message);
    tsr__buffer_append(&out, "", 1);
    assert_string_equal(out.data, cases[i].expected);
    tsr__buffer_release(&out);
  }
}

static void test_refuses(void **state) {
  static const struct {
    const char *source;
    int status;
    const char *message;
  } cases[] = {
      {"{% macro f() %}{% endmacro %}", TSR_ERROR_UNSUPPORTED,
       "the chat template has the statement 'macro', which is not supported"},
      {"{{ messages | reject('a') }}", TSR_ERROR_UNSUPPORTED,
       "the chat template has a filter with arguments that are not supported: reject"},
      {"{{ strftime_now('%d') }}", TSR_ERROR_UNSUPPORTED,
       "the chat template calls a function that is not supported: strftime_now"},
      {"{{ raise_exception('roles must alternate') }}", TSR_ERROR_ARGUMENT,
       "the chat template refuses the conversation: roles must alternate"},
      {"{{ 'a' + 1 }}", TSR_ERROR_ARGUMENT,
       "the chat template computes with values that do not fit together: +"},
      {"{{ missing.role }}", TSR_ERROR_ARGUMENT,
       "the chat template looks into what is not defined"},
      {"{% if true %}", TSR_ERROR_FORMAT, "the chat template has a block without an end"},
      {"{{ 'a }}", TSR_ERROR_FORMAT, "the chat template has a text without an end"},
      {"{% for a in messages %}{% for b in messages * 2 %}{% endfor %}{% endfor %}",
       TSR_ERROR_ARGUMENT, "the chat template computes with values that do not fit together: *"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr__buffer out = {0};
    tsr_error error = {0};
    assert_int_equal(render(cases[i].source, &out, &error), cases[i].status);
    assert_string_equal(error.message, cases[i].message);
    tsr__buffer_release(&out);
  }
}

/* A few bytes that would take much memory, time or stack. */
static void test_is_limited(void **state) {
  tsr__buffer source = {0}, out = {0};
  (void)state;
  tsr__buffer_text(&source, "{% set x = 'aaaaaaaaaaaaaaaa' %}");
  for (int i = 0; i < 40; i++) tsr__buffer_text(&source, "{% set x = x + x %}");
  tsr__buffer_append(&source, "", 1);
  assert_int_equal(render(source.data, &out, NULL), TSR_ERROR_LIMIT);
  source.size = 0;
  for (int i = 0; i < 99; i++) tsr__buffer_text(&source, "{% for m in messages %}");
  for (int i = 0; i < 99; i++) tsr__buffer_text(&source, "{% endfor %}");
  tsr__buffer_append(&source, "", 1);
  assert_int_equal(render(source.data, &out, NULL), TSR_ERROR_LIMIT);
  source.size = 0;
  tsr__buffer_text(&source, "{{ ");
  tsr__buffer_fill(&source, '(', 100000);
  tsr__buffer_append(&source, "", 1);
  assert_int_equal(render(source.data, &out, NULL), TSR_ERROR_LIMIT);
  tsr__buffer_release(&source);
  tsr__buffer_release(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_renders_as_jinja),
      cmocka_unit_test(test_refuses),
      cmocka_unit_test(test_is_limited),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
