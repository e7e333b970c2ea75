/* Tests of questions/diff/pairing.c: which allocations of two lists are pairs, and how they became so. */
#include <stdio.h>
#include <string.h>

#include "questions/diff/pairing.h"
#include "test_support.h"

enum { MOST = 8192 };

typedef struct side {
  tsr__pairing_item items[MOST];
  uint32_t count;
} side;

/* Items from a text: a letter is a stack, "?" has none; a capital letter that may follow is the category; digits are a size; ' marks
 * an older one, * a static one, which may have an owner after it, a letter. "a12 b3 ?P7*w" */
static void parse(const char *text, side *out) {
  memset(out, 0, sizeof *out);
  while (*text) {
    tsr__pairing_item item = {.has_place = *text != '?', .place = (uint32_t)*text, .category = 1};
    text++;
    if (*text >= 'A' && *text <= 'Z') item.category = (uint8_t)*text++;
    for (; *text >= '0' && *text <= '9'; text++)
      item.size = 10 * item.size + (uint64_t)(*text - '0');
    item.is_static = *text == '*';
    item.is_older = *text == '\'' || item.is_static;
    text += item.is_older;
    if (item.is_static && *text >= 'a' && *text <= 'z') item.owner = (uint64_t)*text++;
    text += *text == ' ';
    out->items[out->count++] = item;
  }
}

static void check_mutual(const side *a, const side *b) {
  for (uint32_t i = 0; i < a->count; i++) {
    if (a->items[i].how == TSR__PAIRING_NONE) continue;
    assert_in_range(a->items[i].mate, 0, b->count - 1);
    const tsr__pairing_item *mate = &b->items[a->items[i].mate];
    assert_int_equal(mate->mate, i);
    assert_int_equal(mate->how, a->items[i].how);
    if (mate->how != TSR__PAIRING_RESIZED) assert_int_equal(mate->size, a->items[i].size);
  }
}

/* "=3" same as the third, "~1" moved, "#0" resized, "-" none. */
static void check(const char *before, const char *after, const char *expected) {
  static side a, b;
  char got[256] = "";
  parse(before, &a);
  parse(after, &b);
  assert_true(tsr__pairing_find(a.items, a.count, b.items, b.count));
  check_mutual(&a, &b);
  for (uint32_t i = 0; i < a.count; i++) {
    static const char marks[] = {'-', '=', '~', '#'};
    size_t used = strlen(got);
    if (a.items[i].how == TSR__PAIRING_NONE)
      (void)snprintf(got + used, sizeof got - used, "- ");
    else
      (void)snprintf(got + used, sizeof got - used, "%c%u ", marks[a.items[i].how],
                     a.items[i].mate);
  }
  if (*got) got[strlen(got) - 1] = '\0';
  assert_string_equal(got, expected);
}

static void sequences(void **state) {
  (void)state;
  check("", "", "");
  check("a1", "", "-");
  check("", "a1", "");
  check("a1 b2 c3", "a1 b2 c3", "=0 =1 =2");
  check("a1 b2 c3", "a1 c3", "=0 - =1");
  check("a1 c3", "a1 b2 c3", "=0 =2");
  check("a1 b2 a1 b2", "b2 a1 b2 a1", "~3 =0 =1 =2");
  check("a1 a1 a1", "a1 a1", "=0 =1 -");
}

static void changes(void **state) {
  (void)state;
  check("a1 b2 c3", "a1 b9 c3", "=0 #1 =2");          /* another size */
  check("a1 b2 c3", "a1 x2 c3", "=0 =1 =2");          /* another stack */
  check("a1 b2 c3 d4", "b2 c3 d4 a1", "~3 =0 =1 =2"); /* another order */
  check("a1 b2 c3", "x7 y8 z9", "- - -");             /* nothing in common */
  check("a1 b2 b3 c4", "a1 b3 c4", "=0 - =1 =2");     /* one of a loop is missing */
  check("a1 b2 c4", "a1 c4 b9", "=0 #2 =1");          /* both */
}

/* What was there before has no order. It is the same as what was made if nothing else is. */
static void older(void **state) {
  (void)state;
  check("?5' ?6' a1", "?6' ?5' a1", "~1 =0 =2");
  check("?5'", "?5", "~0");
  check("?5' b5'", "b5' a5 ?5", "~2 =0");
  check("?5' ?5", "?5' ?5", "=0 =1");
  check("?5' a1", "?7' a1", "#0 =1");
}

/* What is older than the recording has no order: owners tell more than categories, and these more than sizes. */
static void fixed(void **state) {
  (void)state;
  check("?P5* ?W5*", "?W5* ?P5*", "=1 =0");
  check("?W5* ?W5* ?P5*", "?P5*", "- - =0");
  check("?P5* ?P6* ?P7*", "?P7* ?P6* ?P5*", "=2 =1 =0");
  check("?P5* ?P1* ?P9* ?P2*", "?P9* ?P1* ?P5* ?P2*", "=2 =1 =0 =3");
  check("?P5*a ?P5*b", "?P5*b ?P5*a", "=1 =0"); /* the same names */
  check("?P5*a ?G5*b", "?G5*a ?P5*b", "=0 =1"); /* with other categories */
  check("?P5*a ?P5*b", "?P5* ?P5*", "=0 =1");   /* on one side only */
  check("?P5*a ?P5*b", "?P5*b ?P5*c", "=1 =0");
  check("a5* b5*", "b5* a5*", "=1 =0");
  check("?P5* ?W5*", "?P5* w5' a1", "=0 -"); /* unlike w, which is of another category */
  check("?P5* ?W5*", "?P5* wW5' a1", "=0 ~1");
  check("?P5* a1", "?W5* a1", "=0 =1");        /* a guess of one side is wrong */
  check("?P5* a1", "?W5* bP5", "~1 -");        /* which is no better than what was made later */
  check("?P5* ?P6* a1", "?P9* a1", "#0 - =1"); /* no size is left */
}

/* Too many differences to look at the order of all: everything is found by its stack and size. */
static void too_different(void **state) {
  (void)state;
  static side a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  for (uint32_t i = 0; i < MOST; i++) {
    a.items[i] = (tsr__pairing_item){.place = i, .size = i + 1, .has_place = true};
    b.items[i] = (tsr__pairing_item){.place = MOST - 1 - i, .size = MOST - i, .has_place = true};
  }
  a.count = b.count = MOST;
  assert_true(tsr__pairing_find(a.items, a.count, b.items, b.count));
  check_mutual(&a, &b);
  for (uint32_t i = 0; i < MOST; i++) {
    assert_int_equal(a.items[i].how, TSR__PAIRING_MOVED);
    assert_int_equal(a.items[i].mate, MOST - 1 - i);
  }
}

/* Random lists, of which one is the other with some items left out: none of the rest is lost. */
static void random_deletions(void **state) {
  (void)state;
  static side a, b;
  uint64_t seed = 1;
  for (int round = 0; round < 200; round++) {
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    for (uint32_t i = 0; i < 300; i++) {
      seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
      tsr__pairing_item item = {
          .place = (uint32_t)(seed >> 60), .size = (seed >> 50) % 4 + 1, .has_place = true};
      a.items[a.count++] = item;
      if ((seed >> 40) % 10) b.items[b.count++] = item;
    }
    assert_true(tsr__pairing_find(a.items, a.count, b.items, b.count));
    check_mutual(&a, &b);
    uint32_t missing = 0;
    for (uint32_t i = 0; i < a.count; i++) missing += a.items[i].how == TSR__PAIRING_NONE;
    assert_int_equal(missing, a.count - b.count);
    for (uint32_t i = 0; i < b.count; i++) assert_int_equal(b.items[i].how, TSR__PAIRING_SAME);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sequences),     cmocka_unit_test(changes),
      cmocka_unit_test(older),         cmocka_unit_test(fixed),
      cmocka_unit_test(too_different), cmocka_unit_test(random_deletions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
