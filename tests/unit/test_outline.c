/* The functions and classes of Python sources, well written, oddly written and not Python at all. */
#include "attribution/outline.h"

#include <stdio.h>
#include <string.h>

#include "test_support.h"

/* Each definition as "name first-last", with '.' for one that is direct and ':' for one in an inner
 * block, and as many of either as it has definitions around it and one. */
static void describe(const tsr__outline *outline, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < outline->definitions.count; i++) {
    const tsr__definition *d = &outline->definitions.items[i];
    int depth = 1;
    for (uint32_t p = d->parent; p != TSR_NONE; p = outline->definitions.items[p].parent) depth++;
    for (int k = 0; k < depth && used < size; k++) out[used++] = d->is_direct ? '.' : ':';
    used += (size_t)snprintf(out + used, size - used, "%s%.*s %u-%u\n", d->is_class ? "C " : "",
                             (int)d->name.size_bytes, d->name.data, d->first_line, d->last_line);
  }
}

static void check(const char *source, const char *expected) {
  tsr__outline outline;
  char described[1024];
  assert_int_equal(tsr__outline_read((tsr_text){source, strlen(source)}, &outline, NULL), 0);
  describe(&outline, described, sizeof described);
  assert_string_equal(described, expected);
  tsr__outline_release(&outline);
}

static void plain(void **state) {
  (void)state;
  check("", "");
  check("x = 1\n", "");
  check("def f():\n  return 1", ".f 1-2\n");
  check("def f(): return 1\nx = f()\n", ".f 1-1\n");
  check("class A:\n  x = 1\n\n  def f(self):\n    pass\n\n\n  # end\n\nclass B(A): pass\n",
        ".C A 1-5\n..f 4-5\n.C B 10-10\n");
  check("async def f():\n\tpass\nasync  def  g ():\n        pass\n", ".f 1-2\n.g 3-4\n");
  check("def f():\n  def g():\n    def h():\n      1\n    2\n  3\n", ".f 1-6\n..g 2-5\n...h 3-4\n");
}

static void blocks(void **state) {
  (void)state;
  check("if x:\n  def f():\n    pass\nelse:\n  class C:\n    def g(self): pass\n",
        ":f 2-3\n:C C 5-6\n..g 6-6\n");
  check("class A:\n  if x:\n    def f(self):\n      pass\n  def g(self): pass\n",
        ".C A 1-5\n::f 3-4\n..g 5-5\n");
  check("@one\n@two(\n 1)\ndef f():\n  pass\n", ".f 4-5\n");
}

static void lines(void **state) {
  (void)state;
  check("def f(a,\n      b=')',  # (\n      c=[1,\n2]):\n  return a\n", ".f 1-5\n");
  check("x = '''\ndef no():\n  pass\n'''\ndef f():\n  \"\"\"\n\nclass No:\n\"\"\"\n  y = 1\n",
        ".f 5-10\n");
  check("s = 'it\\'s' # '''\ndef f():\n  return \"\\\\\"\n", ".f 2-3\n");
  check("x = 1 + \\\n  2\ndef f():\n  return 1 + \\\n2\ny = 1\n", ".f 3-5\n");
  check("r'\\'\ndef f(): pass\n", ".f 2-2\n");
  check("x = 'a\\\ndef no(): pass'\ndef f(): pass\n", ".f 3-3\n");
  check("\xef\xbb\xbf"
        "def f():\r\n  pass\r\ndef \xc3\xa9():\r  pass\r",
        ".f 1-2\n.\xc3\xa9 3-4\n");
}

static void odd(void **state) {
  (void)state;
  check("x = (1,\ndef f():\n  pass\n", ".f 2-3\n"); /* a bracket that nobody closes */
  check("x = 'open\ndef f():\n  pass\n", ".f 2-3\n");
  check("x = '''open\ndef f():\n  pass\n", "");
  check("defer = 1\nclass_ = 2\ndef\nclass\ndef 1\n", "");
  check(")))]]}\ndef f(): pass\n", ".f 2-2\n");
}

static void owners(void **state) {
  static const char source[] =
      "import x\nclass A:\n  y = 1\n  def f(self):\n    a\n\n    b\n  z\nw\n";
  static const int expected[] = {-1, 0, 0, 1, 1, 1, 1, 0, -1};
  tsr__outline outline;
  (void)state;
  assert_int_equal(tsr__outline_read((tsr_text){source, sizeof source - 1}, &outline, NULL), 0);
  assert_int_equal(outline.lines.count, 9);
  for (uint32_t i = 0; i < 9; i++)
    assert_int_equal((int)tsr__outline_at(&outline, i + 1), expected[i]);
  assert_int_equal(tsr__outline_at(&outline, 0), TSR_NONE);
  assert_int_equal(tsr__outline_at(&outline, 10), TSR_NONE);
  assert_int_equal(outline.lines.items[4].size_bytes, 5);
  tsr__outline_release(&outline);
}

/* Any bytes: definitions nest, and are inside the source. */
static void check_nesting(const char *bytes, size_t size) {
  tsr__outline outline;
  assert_int_equal(tsr__outline_read((tsr_text){bytes, size}, &outline, NULL), 0);
  for (size_t i = 0; i < outline.definitions.count; i++) {
    const tsr__definition *d = &outline.definitions.items[i];
    assert_true(d->first_line >= 1 && d->first_line <= d->last_line);
    assert_true(d->last_line <= outline.lines.count);
    assert_true(i == 0 || d->first_line > outline.definitions.items[i - 1].first_line);
    if (d->parent == TSR_NONE) continue;
    assert_true(d->parent < i);
    assert_true(d->last_line <= outline.definitions.items[d->parent].last_line);
  }
  tsr__outline_release(&outline);
}

static void any_bytes(void **state) {
  static const char *const pieces[] = {"def f(", "class C",
                                       ":",      "\n",
                                       "\n  ",   "\n    ",
                                       "\n\t",   "'",
                                       "\"\"\"", "'''",
                                       "#",      "\\",
                                       "(",      ")",
                                       "async ", "@d",
                                       "\r",     "\r\n",
                                       "x",      "\xff",
                                       "\f",     "\n    def g():",
                                       "def ",   "[",
                                       "}"};
  uint64_t seed = 7;
  char bytes[600];
  (void)state;
  for (int round = 0; round < 20000; round++) {
    size_t size = 0;
    for (int i = 0; i < 40; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      const char *piece = pieces[(seed >> 33) % (sizeof pieces / sizeof *pieces)];
      memcpy(bytes + size, piece, strlen(piece));
      size += strlen(piece);
    }
    check_nesting(bytes, size);
  }
  for (int i = 0; i < 256; i++) {
    bytes[0] = (char)i;
    check_nesting(bytes, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain), cmocka_unit_test(blocks), cmocka_unit_test(lines),
      cmocka_unit_test(odd),   cmocka_unit_test(owners), cmocka_unit_test(any_bytes),
  };
  return cmocka_run_group_tests_name("outline", tests, NULL, NULL);
}
