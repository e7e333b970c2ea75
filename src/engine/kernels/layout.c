/* layout.c - see layout.h.
 *
 * Two functions compare nested dimensions. They read a layout as a list of runs, from the innermost outwards: a run
 * is a number of elements at one stride, and neighbouring dimensions that are nested without a gap belong to the
 * same run.
 *
 *   (2, 3, 4) with strides (12, 4, 1)     one run: 24 elements at stride 1
 *   (2, 3, 4) with strides (24, 8, 1)     two runs: 4 at stride 1, 6 at stride 8 */
#include "kernels/layout.h"

#include <assert.h>

bool tsr__shape_is_same(tsr__shape a, tsr__shape b) {
  bool is_same = a.rank == b.rank;
  for (uint32_t i = 0; is_same && i < a.rank; i++) is_same = a.dim[i] == b.dim[i];
  return is_same;
}

/* A layout without gaps, `order[0]` outermost. Strides of absurd shapes saturate, as their sizes do. */
static tsr__layout packed(tsr__shape shape, const uint32_t *order) {
  tsr__layout layout = {.shape = shape};
  uint64_t stride = 1;
  for (uint32_t i = shape.rank; i-- > 0;) {
    layout.stride[order[i]] = stride;
    stride = tsr__product_u64(stride, shape.dim[order[i]]);
  }
  return layout;
}

tsr__layout tsr__layout_dense(tsr__shape shape) {
  static const uint32_t order[TSR__SHAPE_RANK] = {0, 1, 2, 3};
  return packed(shape, order);
}

tsr__layout tsr__layout_like(tsr__layout model) {
  uint32_t order[TSR__SHAPE_RANK] = {0, 1, 2, 3};
  const uint64_t *stride = model.stride;
  assert(model.shape.rank <= TSR__SHAPE_RANK);
  for (uint32_t i = 1; i < model.shape.rank;
       i++) /* an insertion sort: equal strides keep their order */
    for (uint32_t j = i; j > 0; j--) {
      uint32_t a = order[j - 1], b = order[j];
      if (model.shape.dim[a] == 1 || model.shape.dim[b] == 1 || stride[a] >= stride[b]) break;
      order[j - 1] = b;
      order[j] = a;
    }
  return packed(model.shape, order);
}

tsr__layout tsr__layout_rows_first(tsr__shape shape) {
  static const uint32_t order[TSR__SHAPE_RANK] = {0, 2, 1, 3};
  return shape.rank == 4 ? packed(shape, order) : tsr__layout_dense(shape);
}

bool tsr__layout_is_same(tsr__layout a, tsr__layout b) {
  bool is_same = tsr__shape_is_same(a.shape, b.shape) && a.offset == b.offset;
  for (uint32_t i = 0; is_same && i < a.shape.rank; i++)
    is_same = a.shape.dim[i] == 1 || a.stride[i] == b.stride[i];
  return is_same;
}

bool tsr__layout_is_dense(tsr__layout layout) {
  uint64_t stride = 1;
  for (uint32_t i = layout.shape.rank; i-- > 0;) {
    if (layout.shape.dim[i] == 1) continue;
    if (layout.stride[i] != stride) return false;
    stride = tsr__product_u64(stride, layout.shape.dim[i]);
  }
  return true;
}

uint64_t tsr__layout_end(tsr__layout layout) {
  uint64_t end = layout.offset;
  for (uint32_t i = 0; i < layout.shape.rank; i++) {
    if (!layout.shape.dim[i]) return 0;
    uint64_t more = tsr__product_u64(layout.shape.dim[i] - 1, layout.stride[i]);
    end = end > UINT64_MAX - more ? UINT64_MAX : end + more;
  }
  return end == UINT64_MAX ? end : end + 1;
}

/* ---- views ---- */

typedef struct runs {
  uint64_t size[TSR__SHAPE_RANK], stride[TSR__SHAPE_RANK]; /* innermost first */
  uint32_t count;
} runs;

static runs runs_of(tsr__layout layout) {
  runs r = {.count = 0};
  for (uint32_t i = layout.shape.rank; i-- > 0;) {
    uint64_t size = layout.shape.dim[i], stride = layout.stride[i];
    uint32_t last = r.count - 1;
    if (size == 1) continue;
    if (r.count && stride == tsr__product_u64(r.size[last], r.stride[last])) {
      r.size[last] = tsr__product_u64(r.size[last], size);
    } else {
      r.size[r.count] = size;
      r.stride[r.count++] = stride;
    }
  }
  return r;
}

bool tsr__layout_reshape(tsr__layout layout, tsr__shape shape, tsr__layout *out) {
  tsr__layout made = {.shape = shape, .offset = layout.offset};
  runs r = runs_of(layout);
  uint32_t run = 0;
  uint64_t taken = 1; /* elements of the run that inner dimensions use */
  if (tsr__shape_elements(shape) != tsr__shape_elements(layout.shape)) return false;
  if (!tsr__shape_elements(shape)) { /* without elements, every layout fits */
    *out = tsr__layout_dense(shape);
    out->offset = layout.offset;
    return true;
  }
  for (uint32_t i = shape.rank; i-- > 0;) {
    if (shape.dim[i] <= 1) {
      made.stride[i] = 1;
      continue;
    }
    if (run < r.count && taken == r.size[run]) {
      run++;
      taken = 1;
    }
    assert(taken); /* there are elements, so a run was found */
    if (run == r.count || r.size[run] / taken % shape.dim[i]) return false;
    made.stride[i] = tsr__product_u64(r.stride[run], taken);
    taken = tsr__product_u64(taken, shape.dim[i]);
  }
  *out = made;
  return true;
}

tsr__layout tsr__layout_reshaped(tsr__layout layout, tsr__shape shape) {
  bool is_view = tsr__layout_reshape(layout, shape, &layout);
  assert(is_view);
  (void)is_view;
  return layout;
}

tsr__layout tsr__layout_heads(tsr__layout layout, uint64_t heads) {
  const uint64_t *dim = layout.shape.dim, *stride = layout.stride;
  assert(layout.shape.rank == 3 && heads && dim[2] % heads == 0);
  uint64_t width = dim[2] / heads;
  return (tsr__layout){
      .shape = TSR__SHAPE(dim[0], heads, dim[1], width),
      .stride = {stride[0], tsr__product_u64(width, stride[2]), stride[1], stride[2]},
      .offset = layout.offset};
}

tsr__layout tsr__layout_slice(tsr__layout layout, uint32_t dim, uint64_t first, uint64_t count) {
  assert(dim < layout.shape.rank && first <= layout.shape.dim[dim] &&
         count <= layout.shape.dim[dim] - first);
  layout.offset += first * layout.stride[dim];
  layout.shape.dim[dim] = count;
  return layout;
}

tsr__layout tsr__layout_swap(tsr__layout layout, uint32_t a, uint32_t b) {
  tsr__layout swapped = layout;
  assert(a < layout.shape.rank && b < layout.shape.rank);
  swapped.shape.dim[a] = layout.shape.dim[b];
  swapped.shape.dim[b] = layout.shape.dim[a];
  swapped.stride[a] = layout.stride[b];
  swapped.stride[b] = layout.stride[a];
  return swapped;
}

tsr__layout tsr__layout_broadcast(tsr__layout layout, tsr__shape shape) {
  tsr__layout made = {.shape = shape, .offset = layout.offset};
  assert(layout.shape.rank <= shape.rank);
  uint32_t missing = shape.rank - layout.shape.rank;
  for (uint32_t i = 0; i < layout.shape.rank; i++) {
    bool is_repeated = layout.shape.dim[i] == 1 && shape.dim[missing + i] != 1;
    assert(is_repeated || layout.shape.dim[i] == shape.dim[missing + i]);
    made.stride[missing + i] = is_repeated ? 0 : layout.stride[i];
  }
  return made;
}

/* The dimension of `view` that a step of `stride` elements walks along, or its rank. */
static uint32_t find_dim(const tsr__layout *view, uint64_t stride) {
  uint32_t best = view->shape.rank;
  for (uint32_t i = 0; i < view->shape.rank; i++) {
    uint64_t own = view->stride[i];
    if (view->shape.dim[i] == 1 || !own || stride % own || stride / own >= view->shape.dim[i])
      continue;
    if (best == view->shape.rank || own > view->stride[best]) best = i;
  }
  return best;
}

bool tsr__layout_unview(tsr__layout view, tsr__layout root, tsr__layout gradient,
                        tsr__layout *out) {
  tsr__layout made = {.shape = root.shape, .offset = gradient.offset};
  assert(tsr__shape_is_same(view.shape, gradient.shape));
  if (tsr__shape_elements(view.shape) != tsr__shape_elements(root.shape)) return false;
  for (uint32_t j = 0; j < root.shape.rank; j++) {
    made.stride[j] = 1;
    if (root.shape.dim[j] == 1) continue;
    uint32_t i = find_dim(&view, root.stride[j]);
    if (i == view.shape.rank) return false;
    uint64_t scale = root.stride[j] / view.stride[i], reach = view.shape.dim[i] / scale;
    made.stride[j] = tsr__product_u64(gradient.stride[i], scale);
    while (reach < root.shape.dim[j]) { /* continue into the dimension that this one is nested in */
      uint64_t outer = tsr__product_u64(view.stride[i], view.shape.dim[i]);
      uint64_t outer_gradient = tsr__product_u64(gradient.stride[i], view.shape.dim[i]);
      uint32_t next = find_dim(&view, outer);
      if (next == view.shape.rank || view.stride[next] != outer ||
          gradient.stride[next] != outer_gradient || view.shape.dim[i] % scale)
        return false;
      reach = tsr__product_u64(reach, view.shape.dim[next]);
      scale = 1;
      i = next;
    }
  }
  *out = made;
  return true;
}
