/* Tests of layouts (kernels/layout.h) and of sets of elements (graph/coverage.h): by hand, and random
 * ones against element by element. */
#include <string.h>

#include "graph/coverage.h"
#include "test_support.h"

enum { MOST = 512 };

/* A small generator of numbers, the same on every machine. */
static uint64_t state_of_chance = 88172645463325252u;
static uint64_t pick(uint64_t below) {
  state_of_chance ^= state_of_chance << 13;
  state_of_chance ^= state_of_chance >> 7;
  state_of_chance ^= state_of_chance << 17;
  return state_of_chance % below;
}

/* The position of each element, in the order of the shape; returns their count. */
static uint64_t places_of(tsr__layout layout, uint64_t *places) {
  uint64_t count = tsr__shape_elements(layout.shape);
  assert_true(count <= MOST);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t rest = i, place = layout.offset;
    for (uint32_t d = layout.shape.rank; d-- > 0;) {
      place += rest % layout.shape.dim[d] * layout.stride[d];
      rest /= layout.shape.dim[d];
    }
    places[i] = place;
  }
  return count;
}

static tsr__shape random_shape(void) {
  tsr__shape shape = {.rank = (uint32_t)pick(5)};
  for (uint32_t i = 0; i < shape.rank; i++) shape.dim[i] = 1 + pick(4);
  return shape;
}

/* A dense layout, sliced, and with dimensions exchanged. */
static tsr__layout random_view(tsr__shape shape) {
  tsr__layout layout = tsr__layout_dense(shape);
  for (uint32_t i = 0; i < shape.rank; i++) {
    uint64_t first = pick(layout.shape.dim[i]), left = layout.shape.dim[i] - first;
    if (pick(2)) layout = tsr__layout_slice(layout, i, first, 1 + pick(left));
  }
  for (int i = 0; shape.rank && i < 2; i++)
    layout = tsr__layout_swap(layout, (uint32_t)pick(shape.rank), (uint32_t)pick(shape.rank));
  return layout;
}

static void by_hand(void **state) {
  tsr__layout out;
  (void)state;
  tsr__layout qkv = tsr__layout_dense(TSR__SHAPE(2, 5, 24));
  tsr__layout keys = tsr__layout_slice(qkv, 2, 8, 8), heads = tsr__layout_heads(keys, 4);
  assert_int_equal(heads.offset, 8);
  assert_true(tsr__shape_is_same(heads.shape, TSR__SHAPE(2, 4, 5, 2)));
  assert_int_equal(heads.stride[0], 120);
  assert_int_equal(heads.stride[1], 2);
  assert_int_equal(heads.stride[2], 24);
  assert_false(tsr__layout_is_dense(heads));
  assert_int_equal(tsr__layout_end(heads), 8 + 120 + 6 + 96 + 1 + 1);
  assert_false(tsr__layout_reshape(keys, TSR__SHAPE(80), &out)); /* there are gaps */
  assert_true(tsr__layout_reshape(keys, TSR__SHAPE(10, 2, 4), &out));
  assert_int_equal(out.stride[0], 24);
  assert_true(tsr__layout_reshape(tsr__layout_dense(TSR__SHAPE(3, 0)), TSR__SHAPE(0, 5), &out));
  assert_int_equal(tsr__layout_end(out), 0);
  assert_true(tsr__layout_is_dense(tsr__layout_dense(TSR__SCALAR)));
  assert_int_equal(tsr__layout_end(tsr__layout_dense(TSR__SCALAR)), 1);
  tsr__layout row = tsr__layout_broadcast(tsr__layout_dense(TSR__SHAPE(1, 7)), TSR__SHAPE(3, 7));
  assert_int_equal(row.stride[0], 0);
  assert_int_equal(tsr__layout_end(row), 7);
  /* Absurd sizes saturate. */
  tsr__layout huge = tsr__layout_dense(TSR__SHAPE(UINT64_MAX / 2, 16, 3));
  assert_true(tsr__layout_end(huge) == UINT64_MAX);
}

/* A reshaped view has the same elements in the same order; if none is possible, the runs differ. */
static void reshapes(void **state) {
  uint64_t a[MOST], b[MOST], done = 0;
  (void)state;
  for (int i = 0; i < 20000; i++) {
    tsr__layout layout = random_view(random_shape()), out;
    tsr__shape shape = random_shape();
    bool ok = tsr__layout_reshape(layout, shape, &out);
    if (tsr__shape_elements(shape) != tsr__shape_elements(layout.shape)) assert_false(ok);
    if (ok) assert_int_equal(places_of(layout, a), places_of(out, b));
    for (uint64_t n = 0; ok && n < tsr__shape_elements(shape); n++) assert_int_equal(a[n], b[n]);
    done += ok;
  }
  assert_true(done > 1000);
}

/* What preserves the order of dimensions is a permutation of a dense tensor, without gaps. */
static void likes(void **state) {
  uint64_t places[MOST];
  (void)state;
  for (int i = 0; i < 5000; i++) {
    tsr__layout model = random_view(random_shape()), made = tsr__layout_like(model);
    bool is_there[MOST] = {false};
    uint64_t count = places_of(made, places);
    assert_true(tsr__shape_is_same(model.shape, made.shape));
    for (uint64_t n = 0; n < count; n++) {
      assert_true(places[n] < count && !is_there[places[n]]);
      is_there[places[n]] = true;
    }
  }
}

/* The gradient of a view by head, laid as the view is, is the gradient of the projection. */
static void unviews(void **state) {
  (void)state;
  for (int i = 0; i < 2000; i++) {
    uint64_t heads = 1 + pick(4), width = 1 + pick(4);
    tsr__layout root = tsr__layout_dense(TSR__SHAPE(1 + pick(3), 1 + pick(4), heads * width));
    if (pick(2)) { /* one of three parts */
      tsr__shape packed = root.shape;
      packed.dim[2] *= 3;
      root =
          tsr__layout_slice(tsr__layout_dense(packed), 2, heads * width * pick(3), heads * width);
    }
    tsr__layout view = tsr__layout_heads(root, heads), as_root;
    tsr__layout gradient = tsr__layout_like(view);
    uint64_t in_view[MOST], in_root[MOST], in_gradient[MOST], in_result[MOST];
    assert_true(tsr__layout_unview(view, root, gradient, &as_root));
    assert_true(tsr__shape_is_same(as_root.shape, root.shape));
    uint64_t count = places_of(view, in_view);
    assert_int_equal(places_of(root, in_root), count);
    (void)places_of(gradient, in_gradient);
    (void)places_of(as_root, in_result);
    for (uint64_t a = 0; a < count; a++)
      for (uint64_t b = 0; b < count; b++)
        if (in_view[a] == in_root[b]) assert_int_equal(in_gradient[a], in_result[b]);
  }
  /* Heads with another layout than rows cannot be viewed as rows. */
  tsr__layout root = tsr__layout_dense(TSR__SHAPE(2, 5, 8)), view = tsr__layout_heads(root, 4), out;
  assert_false(tsr__layout_unview(view, root, tsr__layout_dense(view.shape), &out));
}

/* Random layouts of one storage, added one after another, against a bit for each element. */
static void coverage(void **state) {
  (void)state;
  for (int i = 0; i < 5000; i++) {
    tsr__shape shape = random_shape();
    uint64_t elements = tsr__shape_elements(shape), places[MOST];
    tsr__coverage set = {.elements = elements};
    bool bits[MOST] = {false};
    for (int n = 0; n < 6; n++) {
      tsr__layout more = random_view(shape), asked = random_view(shape);
      bool has = true, is_full = true, meets = false, told, in_more[MOST] = {false};
      uint64_t count = places_of(more, places), gap = elements;
      for (uint64_t e = 0; e < count; e++) bits[places[e]] = in_more[places[e]] = true;
      assert_true(tsr__coverage_add(&set, &more));
      count = places_of(asked, places);
      for (uint64_t e = 0; e < count; e++) {
        has &= bits[places[e]];
        meets |= in_more[places[e]];
      }
      for (uint64_t e = elements; e-- > 0;)
        if (!bits[e]) gap = e;
      is_full = gap == elements;
      assert_true(tsr__coverage_has(&set, &asked, &told));
      assert_int_equal(told, has);
      assert_int_equal(tsr__coverage_is_full(&set), is_full);
      assert_true(tsr__coverage_overlap(elements, &more, &asked, &told));
      assert_int_equal(told, meets);
      assert_int_equal(tsr__coverage_first_gap(&set), gap);
    }
    tsr__coverage_release(&set);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_hand), cmocka_unit_test(reshapes), cmocka_unit_test(likes),
      cmocka_unit_test(unviews), cmocka_unit_test(coverage),
  };
  return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
