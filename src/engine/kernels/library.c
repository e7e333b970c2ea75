/* library.c - see library.h. oneDNN is called through its public C interface, of which
 * only what is used here is declared: tessera is built without its headers.
 *
 * oneDNN compiles a primitive for each combination of sizes. They are kept in a list, to which a run's second
 * step adds nothing more. Its interface changed with version 3: descriptions of tensors became
 * objects; before, the caller had room for them. DESCRIPTION_BYTES is more than any version 2 needs.
 *
 * oneDNN would start threads. That is switched off in each thread that calls it, because OpenMP keeps the number by
 * thread. */
#include "kernels/library.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/os.h"
#include "base/vector.h"

/* Values of oneDNN's enumerations, the same in versions 2 and 3. */
enum {
  DNNL_CPU = 1,
  DNNL_BF16 = 2,
  DNNL_F32 = 3,
  DNNL_IN_ORDER = 1,
  DNNL_SCRATCHPAD_USER = 1,
  DNNL_QUERY_SCRATCHPAD = 136,
  DNNL_ARG_SRC = 1,
  DNNL_ARG_DST = 17,
  DNNL_ARG_WEIGHTS = 33,
  DNNL_ARG_SCRATCHPAD = 80,
  DNNL_RUNTIME_SEQUENTIAL = 1,
  DNNL_RUNTIME_OPENMP = 2
};

enum { DESCRIPTION_BYTES = 8192, SCRATCH_BYTES = 1 << 20, NAME_BYTES = 96 };

typedef struct dnnl_version {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime;
} dnnl_version;

typedef struct dnnl_argument {
  int argument;
  void *memory;
} dnnl_argument;

/* Functions of both versions; a function that differs has a name for each version. */
typedef struct dnnl {
  const dnnl_version *(*version)(void);
  int (*engine_create)(void **engine, int kind, size_t index);
  int (*engine_destroy)(void *engine);
  int (*stream_create)(void **stream, void *engine, unsigned flags);
  int (*stream_destroy)(void *stream);
  int (*stream_wait)(void *stream);
  int (*attr_create)(void **attr);
  int (*attr_destroy)(void *attr);
  int (*attr_set_scratchpad_mode)(void *attr, int mode);
  int (*attr_set_post_ops)(void *attr, const void *post_ops);
  int (*post_ops_create)(void **post_ops);
  int (*post_ops_destroy)(void *post_ops);
  const void *(*query_md)(const void *primitive_desc, int what, int index);
  int (*primitive_desc_destroy)(void *primitive_desc);
  int (*primitive_create)(void **primitive, const void *primitive_desc);
  int (*primitive_destroy)(void *primitive);
  int (*primitive_execute)(const void *primitive, void *stream, int count,
                           const dnnl_argument *arguments);
  size_t (*memory_desc_get_size)(const void *memory_desc);
  int (*memory_create)(void **memory, const void *memory_desc, void *engine, void *data);
  int (*memory_destroy)(void *memory);
  /* Version 2 */
  int (*sum_2)(void *post_ops, float scale);
  int (*describe_2)(void *memory_desc, int count, const int64_t *sizes, int type,
                    const int64_t *strides);
  int (*matmul_2)(void *matmul_desc, const void *a, const void *b, const void *bias,
                  const void *to);
  int (*primitive_desc_2)(void **primitive_desc, const void *matmul_desc, const void *attr,
                          void *engine, const void *hint);
  /* Version 3 */
  int (*sum_3)(void *post_ops, float scale, int32_t zero_point, int type);
  int (*describe_3)(void **memory_desc, int count, const int64_t *sizes, int type,
                    const int64_t *strides);
  int (*undescribe_3)(void *memory_desc);
  int (*matmul_3)(void **primitive_desc, void *engine, const void *a, const void *b,
                  const void *bias, const void *to, const void *attr);
} dnnl;

/* The product that a primitive was compiled for. */
typedef struct sizes {
  uint64_t rows, columns, depth, pitch[3];
  bool is_transposed[2], is_bf16, adds;
} sizes;

/* oneDNN's description of a tensor: stored in `room` for version 2, elsewhere for version 3. */
typedef struct description {
  _Alignas(16) unsigned char room[DESCRIPTION_BYTES];
  void *object;
} description;

typedef struct entry {
  sizes of;
  void *primitive;     /* NULL if it cannot be computed */
  description *parts;  /* a, b, to */
  const void *scratch; /* its description, owned by `primitive_desc` */
  void *primitive_desc;
} entry;

typedef TSR__VECTOR(entry *) entries;

struct tsr__library {
  char name[NAME_BYTES];
  void (*omp_set_num_threads)(int count); /* or NULL */
  dnnl dnnl;
  int major;
  int isa; /* dnnl_cpu_isa_t, of the kernels that it chooses here; 0 if it does not tell */
  void *engine;
  tsr__os_mutex mutex; /* guards the fields below */
  entries entries;
};

/* Store the address of a function in a pointer to it, which avoids a cast from data to functions. */
static bool find(void *handle, const char *name, void *pointer) {
  void *found = tsr__os_library_find(handle, name);
  memcpy(pointer, &found, sizeof found);
  return found != NULL;
}

static bool find_dnnl(void *handle, tsr__library *l) {
  dnnl *d = &l->dnnl;
  bool has =
      find(handle, "dnnl_version", &d->version) &&
      find(handle, "dnnl_engine_create", &d->engine_create) &&
      find(handle, "dnnl_engine_destroy", &d->engine_destroy) &&
      find(handle, "dnnl_stream_create", &d->stream_create) &&
      find(handle, "dnnl_stream_destroy", &d->stream_destroy) &&
      find(handle, "dnnl_stream_wait", &d->stream_wait) &&
      find(handle, "dnnl_primitive_attr_create", &d->attr_create) &&
      find(handle, "dnnl_primitive_attr_destroy", &d->attr_destroy) &&
      find(handle, "dnnl_primitive_attr_set_scratchpad_mode", &d->attr_set_scratchpad_mode) &&
      find(handle, "dnnl_primitive_attr_set_post_ops", &d->attr_set_post_ops) &&
      find(handle, "dnnl_post_ops_create", &d->post_ops_create) &&
      find(handle, "dnnl_post_ops_destroy", &d->post_ops_destroy) &&
      find(handle, "dnnl_primitive_desc_query_md", &d->query_md) &&
      find(handle, "dnnl_primitive_desc_destroy", &d->primitive_desc_destroy) &&
      find(handle, "dnnl_primitive_create", &d->primitive_create) &&
      find(handle, "dnnl_primitive_destroy", &d->primitive_destroy) &&
      find(handle, "dnnl_primitive_execute", &d->primitive_execute) &&
      find(handle, "dnnl_memory_desc_get_size", &d->memory_desc_get_size) &&
      find(handle, "dnnl_memory_create", &d->memory_create) &&
      find(handle, "dnnl_memory_destroy", &d->memory_destroy);
  if (!has) return false;
  l->major = d->version()->major;
  if (l->major == 2)
    return find(handle, "dnnl_post_ops_append_sum", &d->sum_2) &&
           find(handle, "dnnl_memory_desc_init_by_strides", &d->describe_2) &&
           find(handle, "dnnl_matmul_desc_init", &d->matmul_2) &&
           find(handle, "dnnl_primitive_desc_create", &d->primitive_desc_2);
  return l->major == 3 && find(handle, "dnnl_post_ops_append_sum", &d->sum_3) &&
         find(handle, "dnnl_memory_desc_create_with_strides", &d->describe_3) &&
         find(handle, "dnnl_memory_desc_destroy", &d->undescribe_3) &&
         find(handle, "dnnl_matmul_primitive_desc_create", &d->matmul_3);
}

static int open_dnnl(tsr__library *l, tsr_error *error) {
  void *handle = tsr__os_library_open("libdnnl.so.3");
  if (!handle) handle = tsr__os_library_open("libdnnl.so.2");
  if (!handle)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "oneDNN is not installed (libdnnl.so.3 or libdnnl.so.2)");
  if (!find_dnnl(handle, l))
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "this version of oneDNN is not known: 2 and 3 are");
  const dnnl_version *version = l->dnnl.version();
  (void)snprintf(l->name, sizeof l->name, "oneDNN %d.%d.%d", version->major, version->minor,
                 version->patch);
  int (*effective_isa)(void);
  if (find(handle, "dnnl_get_effective_cpu_isa", &effective_isa)) l->isa = effective_isa();
  bool has_threads = version->cpu_runtime == DNNL_RUNTIME_OPENMP;
  if (has_threads && !find(handle, "omp_set_num_threads", &l->omp_set_num_threads))
    has_threads = false;
  if (!has_threads && version->cpu_runtime != DNNL_RUNTIME_SEQUENTIAL)
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE,
                     "%s was built with threads that are not OpenMP's", l->name);
  if (l->dnnl.engine_create(&l->engine, DNNL_CPU, 0))
    return tsr__fail(error, TSR_ERROR_UNSUPPORTED, TSR_OFFSET_NONE, "%s did not start", l->name);
  return 0;
}

static const void *description_of(const tsr__library *l, const description *d) {
  return l->major == 2 ? d->room : d->object;
}

static bool describe(const tsr__library *l, uint64_t rows, uint64_t columns, uint64_t pitch,
                     bool is_transposed, int type, description *out) {
  const int64_t all[] = {(int64_t)rows, (int64_t)columns};
  const int64_t strides[] = {is_transposed ? 1 : (int64_t)pitch,
                             is_transposed ? (int64_t)pitch : 1};
  if (l->major == 2) return l->dnnl.describe_2(out->room, 2, all, type, strides) == 0;
  return l->dnnl.describe_3(&out->object, 2, all, type, strides) == 0;
}

/* Set what a primitive does besides the product: whether it adds to the result, and which memory it uses. */
static bool set_attributes(const tsr__library *l, bool adds, void *attr) {
  const dnnl *d = &l->dnnl;
  void *post_ops = NULL;
  if (d->attr_set_scratchpad_mode(attr, DNNL_SCRATCHPAD_USER)) return false;
  if (!adds) return true;
  if (d->post_ops_create(&post_ops)) return false;
  bool ok = l->major == 2 ? d->sum_2(post_ops, 1) == 0 : d->sum_3(post_ops, 1, 0, 0) == 0;
  ok = ok && d->attr_set_post_ops(attr, post_ops) == 0;
  d->post_ops_destroy(post_ops);
  return ok;
}

static bool describe_product(const tsr__library *l, entry *e, const void *attr) {
  const dnnl *d = &l->dnnl;
  const void *a = description_of(l, &e->parts[0]), *b = description_of(l, &e->parts[1]);
  const void *to = description_of(l, &e->parts[2]);
  if (l->major == 3) return d->matmul_3(&e->primitive_desc, l->engine, a, b, NULL, to, attr) == 0;
  description *room = TSR__NEW(description);
  bool ok = room && d->matmul_2(room->room, a, b, NULL, to) == 0 &&
            d->primitive_desc_2(&e->primitive_desc, room->room, attr, l->engine, NULL) == 0;
  tsr__free(room);
  return ok;
}

/* Compile a primitive for such products. */
static bool compile(const tsr__library *l, entry *e) {
  const dnnl *d = &l->dnnl;
  const sizes *s = &e->of;
  int type = s->is_bf16 ? DNNL_BF16 : DNNL_F32;
  void *attr = NULL;
  e->parts = TSR__NEW_ARRAY(description, 3);
  if (!e->parts || d->attr_create(&attr)) return false;
  bool ok =
      set_attributes(l, s->adds, attr) &&
      describe(l, s->rows, s->depth, s->pitch[0], s->is_transposed[0], type, &e->parts[0]) &&
      describe(l, s->depth, s->columns, s->pitch[1], s->is_transposed[1], type, &e->parts[1]) &&
      describe(l, s->rows, s->columns, s->pitch[2], false, DNNL_F32, &e->parts[2]) &&
      describe_product(l, e, attr);
  d->attr_destroy(attr);
  if (!ok) return false;
  e->scratch = d->query_md(e->primitive_desc, DNNL_QUERY_SCRATCHPAD, 0);
  if (e->scratch && d->memory_desc_get_size(e->scratch) > SCRATCH_BYTES) return false;
  return d->primitive_create(&e->primitive, e->primitive_desc) == 0;
}

static void release_entry(const tsr__library *l, entry *e) {
  const dnnl *d = &l->dnnl;
  if (e->primitive) d->primitive_destroy(e->primitive);
  if (e->primitive_desc) d->primitive_desc_destroy(e->primitive_desc);
  for (size_t i = 0; l->major == 3 && e->parts && i < 3; i++)
    if (e->parts[i].object) d->undescribe_3(e->parts[i].object);
  tsr__free(e->parts);
  tsr__free(e);
}

static bool is_same(const sizes *a, const sizes *b) {
  return a->rows == b->rows && a->columns == b->columns && a->depth == b->depth &&
         memcmp(a->pitch, b->pitch, sizeof a->pitch) == 0 &&
         a->is_transposed[0] == b->is_transposed[0] && a->is_transposed[1] == b->is_transposed[1] &&
         a->is_bf16 == b->is_bf16 && a->adds == b->adds;
}

/* Find or make the entry for such products, which is kept. NULL when out of memory. The caller holds the mutex. */
static const entry *entry_of(tsr__library *l, const sizes *s) {
  for (size_t i = 0; i < l->entries.count; i++)
    if (is_same(&l->entries.items[i]->of, s)) return l->entries.items[i];
  entry *e = TSR__NEW(entry);
  if (!e) return NULL;
  e->of = *s;
  (void)compile(l, e); /* an entry without a primitive records that it failed */
  if (TSR__VECTOR_PUSH(&l->entries, e)) return e;
  release_entry(l, e);
  return NULL;
}

static bool execute(const tsr__library *l, const entry *e, const tsr__library_product *p) {
  const dnnl *d = &l->dnnl;
  _Alignas(64) unsigned char scratch[SCRATCH_BYTES];
  /* The interface has no pointers to const. */
  void *data[4] = {NULL, NULL, p->to, scratch}, *stream = NULL;
  memcpy(&data[0], &p->a.data, sizeof data[0]);
  memcpy(&data[1], &p->b.data, sizeof data[1]);
  static const int names[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
  dnnl_argument arguments[4] = {{0, NULL}};
  int count = e->scratch && d->memory_desc_get_size(e->scratch) ? 4 : 3;
  bool ok = d->stream_create(&stream, l->engine, DNNL_IN_ORDER) == 0;
  for (int i = 0; i < count && ok; i++) {
    const void *what = i < 3 ? description_of(l, &e->parts[i]) : e->scratch;
    arguments[i].argument = names[i];
    ok = d->memory_create(&arguments[i].memory, what, l->engine, data[i]) == 0;
  }
  ok = ok && d->primitive_execute(e->primitive, stream, count, arguments) == 0 &&
       d->stream_wait(stream) == 0;
  for (int i = 0; i < count; i++)
    if (arguments[i].memory) d->memory_destroy(arguments[i].memory);
  if (stream) d->stream_destroy(stream);
  return ok;
}

int tsr__library_open(tsr__library **out, tsr_error *error) {
  tsr__library *l = TSR__NEW(tsr__library);
  if (!l) return tsr__fail_memory(error);
  if (!tsr__os_mutex_init(&l->mutex)) {
    tsr__free(l);
    return tsr__fail_memory(error);
  }
  int status = open_dnnl(l, error);
  if (status)
    tsr__library_free(l);
  else
    *out = l;
  return status;
}

void tsr__library_free(tsr__library *l) {
  if (!l) return;
  for (size_t i = 0; i < l->entries.count; i++) release_entry(l, l->entries.items[i]);
  TSR__VECTOR_FREE(&l->entries);
  if (l->engine) l->dnnl.engine_destroy(l->engine);
  tsr__os_mutex_release(&l->mutex);
  tsr__free(l);
}

const char *tsr__library_name(const tsr__library *l) {
  return l->name;
}

int tsr__library_isa(const tsr__library *l) {
  return l->isa;
}

bool tsr__library_multiply(tsr__library *l, const tsr__library_product *p) {
  assert(p->rows && p->columns && p->depth && p->to);
  sizes s = {.rows = p->rows,
             .columns = p->columns,
             .depth = p->depth,
             .pitch = {p->a.pitch, p->b.pitch, p->to_pitch},
             .is_transposed = {p->a.is_transposed, p->b.is_transposed},
             .is_bf16 = p->is_bf16,
             .adds = p->adds};
  if (l->omp_set_num_threads) l->omp_set_num_threads(1);
  tsr__os_mutex_lock(&l->mutex);
  const entry *e = entry_of(l, &s);
  tsr__os_mutex_unlock(&l->mutex);
  return e && e->primitive && execute(l, e, p);
}
