/* Tests of attribution/: programs other than a plain training loop. Each is a list of what happens, with
 * the category that every allocation must get. Stacks are lists of name|file|line, innermost first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attribution/category.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "study/study.h"
#include "study_support.h"
#include "test_support.h"

#define NATIVE(name) name "|??|0;"
#define MALLOC       NATIVE("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc")
#define TORCH        "/venv/lib/python3.12/site-packages/torch/"
#define MAIN(line)   "<module>|/work/run.py|" line ";"
#define CALL         "_call_impl|" TORCH "nn/modules/module.py|1750;"
#define FORWARD                                            \
  MALLOC "forward|" TORCH "nn/modules/linear.py|125;" CALL \
         "forward|/work/model.py|9;" CALL MAIN("20")
#define BUILD MALLOC "__init__|" TORCH "nn/modules/linear.py|106;" MAIN("3")
#define APPLY(line)                                             \
  "_apply|" TORCH "nn/modules/module.py|" line ";_apply|" TORCH \
  "nn/modules/module.py|928;half|" TORCH "nn/modules/module.py|1060;" MAIN("30")
#define ENGINE     NATIVE("torch::autograd::Engine::thread_main(torch::autograd::GraphTask const&)")
#define ACCUMULATE MALLOC NATIVE("torch::autograd::AccumulateGrad::apply") ENGINE
#define RELEASE    NATIVE("torch::autograd::generated::MmBackward0::release_variables()") ENGINE
#define ZERO_GRAD  "zero_grad|" TORCH "optim/optimizer.py|900;" MAIN("24")
#define PARALLEL   "forward|" TORCH "nn/parallel/data_parallel.py|185;" CALL MAIN("20")

enum { BLOCKS = 24, MIB = 1 << 20 };

/* Allocate (category set) or free (not set) the block `id`; without a stack it is there before the
 * recording. These come first, by id. With the category OOM the request fails. */
#define OOM "out of memory"

typedef struct happening {
  uint32_t id, size;
  const char *stack, *category, *metadata;
} happening;

typedef struct writer {
  tsr__buffer text;
  uint32_t size[BLOCKS], events;
  bool is_live[BLOCKS];
} writer;

static uint64_t address_of(uint32_t id) {
  return UINT64_C(0x7f0000000000) + (uint64_t)id * 128 * MIB;
}

static void put_frames(writer *w, const char *stack) {
  const char *comma = "";
  tsr__buffer_text(&w->text, "\"frames\": [");
  while (*stack) {
    size_t name = strcspn(stack, "|"), file = strcspn(stack + name + 1, "|");
    const char *file_at = stack + name + 1, *line = file_at + file + 1;
    tsr__buffer_printf(&w->text, "%s{\"name\": \"%.*s\", \"filename\": \"%.*s\", \"line\": %.*s}",
                       comma, (int)name, stack, (int)file, file_at, (int)strcspn(line, ";"), line);
    stack = line + strcspn(line, ";") + 1;
    comma = ", ";
  }
  tsr__buffer_text(&w->text, "]");
}

static void put_event(writer *w, const char *action, const happening *h) {
  tsr__buffer_printf(&w->text,
                     "%s{\"action\": \"%s\", \"addr\": %" PRIu64 ", \"size\": %" PRIu32
                     ", \"stream\": 0, \"time_us\": %" PRIu32 ", \"user_metadata\": \"%s\", ",
                     w->events ? ", " : "", action, address_of(h->id), w->size[h->id],
                     1000 + w->events, h->metadata ? h->metadata : "");
  put_frames(w, h->stack);
  tsr__buffer_text(&w->text, "}");
  w->events++;
}

static tsr_snapshot *snapshot_of(const happening *list, size_t count) {
  writer w = {.events = 0};
  tsr_snapshot *snapshot = NULL;
  tsr_error error = {0};
  tsr__buffer_text(&w.text, "{\"device_traces\": [[");
  for (size_t i = 0; i < count; i++) {
    if (list[i].category && !strcmp(list[i].category, OOM)) {
      put_event(&w, "oom", &list[i]);
      continue;
    }
    assert_true(list[i].id < BLOCKS && w.is_live[list[i].id] != (list[i].category != NULL));
    w.is_live[list[i].id] = list[i].category != NULL;
    if (list[i].category) w.size[list[i].id] = list[i].size;
    if (!list[i].stack) continue;
    put_event(&w, list[i].category ? "alloc" : "free_requested", &list[i]);
    if (!list[i].category) put_event(&w, "free_completed", &list[i]);
  }
  tsr__buffer_printf(&w.text,
                     "]], \"segments\": [{\"device\": 0, \"address\": %" PRIu64
                     ", \"total_size\": %" PRIu64 ", \"allocated_size\": 0, \"active_size\": 0, "
                     "\"requested_size\": 0, \"stream\": 0, \"segment_type\": \"large\", "
                     "\"is_expandable\": false, \"frames\": [], \"blocks\": [",
                     address_of(0), address_of(BLOCKS) - address_of(0));
  for (uint32_t id = 0; id < BLOCKS; id++) {
    uint64_t size = w.is_live[id] ? (w.size[id] + 511) / 512 * 512 : 0;
    if (size)
      tsr__buffer_printf(&w.text,
                         "{\"address\": %" PRIu64 ", \"size\": %" PRIu64
                         ", \"requested_size\": %" PRIu32
                         ", \"state\": \"active_allocated\", \"frames\": []}, ",
                         address_of(id), size, w.size[id]);
    tsr__buffer_printf(&w.text,
                       "{\"address\": %" PRIu64 ", \"size\": %" PRIu64
                       ", \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}%s",
                       address_of(id) + size, (uint64_t)128 * MIB - size,
                       id + 1 < BLOCKS ? ", " : "");
  }
  tsr__buffer_append(&w.text, "]}]}", 5);
  assert_false(w.text.failed);
  if (tsr_snapshot_read(w.text.data, strlen(w.text.data), NULL, &snapshot, &error))
    fail_msg("%s", error.message);
  tsr__buffer_release(&w.text);
  return snapshot;
}

static void check(const happening *list, size_t count) {
  tsr_snapshot *snapshot = snapshot_of(list, count);
  tsr__roles roles;
  tsr__timeline timeline;
  tsr__phases phases;
  tsr__names names;
  tsr__categories found;
  assert_int_equal(tsr__roles_compute(snapshot, &roles, NULL), 0);
  assert_int_equal(tsr__timeline_compute(snapshot, 0, false, NULL, &timeline, NULL), 0);
  assert_int_equal(tsr__phases_compute(snapshot, &roles, &timeline.events, &phases, NULL), 0);
  assert_int_equal(tsr__names_compute(&timeline, &names, NULL), 0);
  assert_int_equal(tsr__categories_compute(&timeline, &roles, &phases, NULL, &names, &found, NULL),
                   0);
  uint32_t allocation = 0;
  for (size_t i = 0; i < count; i++) allocation += !list[i].stack;
  assert_int_equal(allocation, timeline.initial.count);
  allocation = 0;
  for (size_t i = 0; i < count; i++) {
    if (!list[i].category || !strcmp(list[i].category, OOM)) continue;
    const char *said = tsr_category_name((tsr_category)found.category[allocation]);
    if (strcmp(said, list[i].category))
      fail_msg("row %zu is %s, not %s: %s", i, said, list[i].category,
               tsr_evidence_text((tsr_evidence)found.evidence[allocation]));
    allocation++;
  }
  assert_int_equal(allocation, found.count);
  tsr__categories_release(&found);
  tsr__names_release(&names);
  tsr__phases_release(&phases);
  tsr__timeline_release(&timeline);
  tsr__roles_release(&roles);
  tsr_snapshot_free(snapshot);
}

#define CHECK(list) check(list, sizeof(list) / sizeof *(list))

/* model.half() after a backward pass: each copy takes the place of a parameter or of its gradient. */
static void halved_model(void **state) {
  (void)state;
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 4 * MIB, BUILD, "parameter", NULL},
      {2, 3 * MIB, FORWARD, "activation", NULL},
      {3, 4 * MIB, ACCUMULATE, "gradient", NULL},
      {4, 8 * MIB, ACCUMULATE, "gradient", NULL},
      {2, 0, RELEASE, NULL, NULL},
      {5, 4 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {0, 0, APPLY("957"), NULL, NULL},
      {6, 4 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {4, 0, APPLY("987"), NULL, NULL},
      {7, 2 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {1, 0, APPLY("957"), NULL, NULL},
      {8, 2 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {3, 0, APPLY("987"), NULL, NULL},
  };
  CHECK(list);
}

/* model.cuda() of a model that has gradients on the host: nothing is freed, and only lines and sizes
 * show what is a gradient. Buffers of the sizes of parameters are not taken for gradients. */
static void moved_model(void **state) {
  (void)state;
  static const happening with_gradients[] = {
      {0, 8 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {1, 8 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {2, 4 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {3, 4 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {4, 4 * MIB, MALLOC APPLY("1000"), "parameter", NULL},
      {5, 4 * MIB, MALLOC APPLY("1000"), "parameter", NULL},
      {6, 2 * MIB, FORWARD, "activation", NULL},
  };
  static const happening with_buffers[] = {
      {0, 8 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {1, 8 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {2, 8 * MIB, MALLOC APPLY("1000"), "parameter", NULL},
      {3, 8 * MIB, MALLOC APPLY("1000"), "parameter", NULL},
      {4, 4 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {5, 4 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {6, 4 * MIB, MALLOC APPLY("1000"), "parameter", NULL},
      {7, 4 * MIB, MALLOC APPLY("1000"), "parameter", NULL},
      {8, 2 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(with_gradients);
  CHECK(with_buffers);
}

/* The same to another type, which takes a copy on the way; and where zero_grad frees the only one. */
static void moved_and_cast(void **state) {
  (void)state;
  static const happening to_float[] = {
      {0, 8 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {1, 4 * MIB, MALLOC APPLY("955"), "temporary", NULL},
      {1, 0, APPLY("955"), NULL, NULL},
      {2, 8 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {3, 4 * MIB, MALLOC APPLY("985"), "temporary", NULL},
      {3, 0, APPLY("985"), NULL, NULL},
      {4, 4 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {5, 2 * MIB, MALLOC APPLY("955"), "temporary", NULL},
      {5, 0, APPLY("955"), NULL, NULL},
      {6, 4 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {7, 2 * MIB, MALLOC APPLY("985"), "temporary", NULL},
      {7, 0, APPLY("985"), NULL, NULL},
      {8, 2 * MIB, FORWARD, "activation", NULL},
  };
  static const happening zeroed[] = {
      {0, 8 * MIB, MALLOC APPLY("955"), "parameter", NULL},
      {1, 8 * MIB, MALLOC APPLY("985"), "gradient", NULL},
      {1, 0, ZERO_GRAD, NULL, NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(to_float);
  CHECK(zeroed);
}

/* What one line makes before each forward pass: a batch that the next replaces, a batch of a loader that is two
 * ahead, and what is never freed. */
static void leaked_is_no_input(void **state) {
  (void)state;
#define BATCH "next|/work/run.py|15;" MAIN("18")
#define NOTE  "note|/work/run.py|16;" MAIN("19")
  static const happening list[] = {
      {0, 1 * MIB, BATCH, "input", NULL},
      {1, 2 * MIB, FORWARD, "activation", NULL},
      {2, 1 * MIB, RELEASE, "temporary", NULL},
      {2, 0, RELEASE, NULL, NULL},
      {1, 0, RELEASE, NULL, NULL},
      {3, 1 * MIB, NOTE, "unknown", NULL},
      {4, 1 * MIB, BATCH, "input", NULL},
      {0, 0, MAIN("18"), NULL, NULL},
      {5, 2 * MIB, FORWARD, "activation", NULL},
      {6, 1 * MIB, RELEASE, "temporary", NULL},
      {6, 0, RELEASE, NULL, NULL},
      {5, 0, RELEASE, NULL, NULL},
      {7, 1 * MIB, NOTE, "unknown", NULL},
      {8, 1 * MIB, BATCH, "input", NULL},
      {4, 0, MAIN("18"), NULL, NULL},
      {9, 2 * MIB, FORWARD, "activation", NULL},
      {10, 1 * MIB, RELEASE, "temporary", NULL},
      {10, 0, RELEASE, NULL, NULL},
      {9, 0, RELEASE, NULL, NULL},
      {11, 1 * MIB, NOTE, "unknown", NULL},
      {12, 1 * MIB, BATCH, "input", NULL},
      {8, 0, MAIN("18"), NULL, NULL},
      {13, 2 * MIB, FORWARD, "activation", NULL},
      {14, 1 * MIB, RELEASE, "temporary", NULL},
      {14, 0, RELEASE, NULL, NULL},
      {13, 0, RELEASE, NULL, NULL},
  };
  CHECK(list);
}

/* Without a backward pass the first batch is before any forward, and the others are between two. */
static void one_line_one_category(void **state) {
  (void)state;
  static const happening list[] = {
      {0, 1 * MIB, BATCH, "input", NULL},        {1, 2 * MIB, FORWARD, "activation", NULL},
      {2, 1 * MIB, BATCH, "input", NULL},        {0, 0, MAIN("18"), NULL, NULL},
      {3, 2 * MIB, FORWARD, "activation", NULL}, {1, 0, MAIN("19"), NULL, NULL},
      {4, 1 * MIB, BATCH, "input", NULL},        {2, 0, MAIN("18"), NULL, NULL},
      {5, 2 * MIB, FORWARD, "activation", NULL}, {3, 0, MAIN("19"), NULL, NULL},
  };
  CHECK(list);
}

/* A product with a Jacobian runs autograd's engine within forward, on the engine's own thread or not. */
static void gradient_within_forward(void **state) {
  (void)state;
#define INNER                                                                                \
  "_engine_run_backward|" TORCH "autograd/graph.py|829;grad|" TORCH "autograd/__init__.py|5" \
  "03;jvp|" TORCH "autograd/functional.py|410;forward|/work/model.py|12;" CALL MAIN("20")
#define PRODUCT MALLOC "MulBackward0::apply|torch|0;" ENGINE
#define CALLED                                                                             \
  "_make_grads|" TORCH "autograd/__init__.py|200;backward|" TORCH "autograd/__init__.py|3" \
  "47;backward|" TORCH "_tensor.py|581;" MAIN("21")
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 2 * MIB, FORWARD, "activation", NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},
      {3, 2 * MIB, FORWARD, "activation", NULL},
      {4, 2 * MIB, FORWARD, "activation", NULL},
      {5, 1 * MIB, PRODUCT, "activation", NULL},
      {6, 1 * MIB, PRODUCT INNER, "activation", NULL},
      {7, 1 * MIB, PRODUCT, "activation", NULL},
      {8, 2 * MIB, FORWARD, "activation", NULL},
      {9, 4096, CALLED, "temporary", NULL},
      {10, 8 * MIB, PRODUCT, "gradient", NULL},
      {8, 0, RELEASE, NULL, NULL},
      {7, 0, ENGINE, NULL, NULL},
      {6, 0, ENGINE, NULL, NULL},
      {5, 0, ENGINE, NULL, NULL},
      {4, 0, ENGINE, NULL, NULL},
      {3, 0, ENGINE, NULL, NULL},
      {2, 0, ENGINE, NULL, NULL},
      {1, 0, ENGINE, NULL, NULL},
      {9, 0, MAIN("21"), NULL, NULL},
      {11, 2 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(list);
}

/* Of two copies that one call of linear makes, the weight's is the first; of einsum's, which takes a list, the second. An
 * activation's copy as large as half a parameter is an activation all the same. */
static void autocast(void **state) {
  (void)state;
#define CAST                                                                                   \
  MALLOC NATIVE("at::_ops::_to_copy::call")                                                    \
      NATIVE("at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType)") \
          NATIVE("at::_ops::linear::call") "forward|" TORCH                                    \
                                           "nn/modules/linear.py|125;" CALL MAIN("20")
#define EINSUM                                                                                  \
  MALLOC NATIVE("at::_ops::_to_copy::call") NATIVE(                                             \
      "at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType)")         \
      NATIVE("at::_ops::einsum::call") "einsum|" TORCH                                          \
                                       "functional.py|422;forward|/work/model.py|9;" CALL MAIN( \
                                           "20")
#define ATTENTION                                                                                  \
  MALLOC NATIVE("at::_ops::_to_copy::call")                                                        \
      NATIVE("at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType)")     \
          NATIVE("at::_ops::scaled_dot_product_attention::call") "forward|/work/model.py|12;" CALL \
              MAIN("20")
#define LEAVE \
  NATIVE("at::autocast::clear_cache()") "__exit__|" TORCH "amp/autocast_mode.py|398;" MAIN("19")
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 8 * MIB, BUILD, "parameter", NULL},
      {2, 64 * 1024, BUILD, "parameter", NULL},
      {5, 32 * 1024, CAST, "cast", NULL},
      {4, 4 * MIB, CAST, "cast", NULL},
      {3, 4 * MIB, CAST, "activation", NULL},
      {6, 2 * MIB, FORWARD, "activation", NULL},
      {7, 4 * MIB, ATTENTION, "activation", NULL},
      {8, 5 * MIB, CAST, "activation", NULL},
      {10, 4 * MIB, EINSUM, "activation", NULL},
      {11, 4 * MIB, EINSUM, "cast", NULL},
      {5, 0, LEAVE, NULL, NULL},
      {9, 8 * MIB, ACCUMULATE, "gradient", NULL},
      {3, 0, RELEASE, NULL, NULL},
      {4, 0, RELEASE, NULL, NULL},
      {7, 0, RELEASE, NULL, NULL},
      {8, 0, RELEASE, NULL, NULL},
      {10, 0, RELEASE, NULL, NULL},
      {11, 0, RELEASE, NULL, NULL},
      {6, 0, RELEASE, NULL, NULL},
  };
  CHECK(list);
}

static void data_parallel(void **state) {
  (void)state;
#define REPLICATE                                                                       \
  MALLOC "broadcast_coalesced|" TORCH "nn/parallel/comm.py|57;forward|" TORCH           \
         "nn/parallel/_functions.py|23;_broadcast_coalesced_reshape|" TORCH             \
         "nn/parallel/replicate.py|88;replicate|" TORCH "nn/parallel/replicate.py|107;" \
         "replicate|" TORCH "nn/parallel/data_parallel.py|200;" PARALLEL
#define SCATTER                                                    \
  MALLOC "scatter|" TORCH "nn/parallel/comm.py|205;forward|" TORCH \
         "nn/parallel/_functions.py|96;scatter_kwargs|" TORCH      \
         "nn/parallel/scatter_gather.py|73;" PARALLEL
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 1 * MIB, SCATTER, "input", NULL},
      {2, 9 * MIB, REPLICATE, "communication", NULL},
      {3, 8 * MIB, REPLICATE, "parameter", NULL},
      {2, 0, REPLICATE, NULL, NULL},
      {4, 2 * MIB, FORWARD, "activation", NULL},
      {5, 8 * MIB, ACCUMULATE, "gradient", NULL},
      {4, 0, RELEASE, NULL, NULL},
      {3, 0, RELEASE, NULL, NULL},
      {1, 0, MAIN("22"), NULL, NULL},
  };
  CHECK(list);
}

/* Libraries' workspaces, with C++ frames and without. */
static void workspaces(void **state) {
  (void)state;
#define UNDER_LINEAR "forward|" TORCH "nn/modules/linear.py|125;" CALL MAIN("20")
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 8519680, MALLOC NATIVE("at::cuda::getCurrentCUDABlasHandle()") UNDER_LINEAR, "workspace",
       NULL},
      {2, 1 * MIB,
       MALLOC NATIVE("void at::cuda::blas::gemm_and_bias<float>(bool, bool)") UNDER_LINEAR,
       "workspace", NULL},
      {3, 5 * MIB,
       MALLOC NATIVE("at_npu::native::allocate_workspace(unsigned long, void*)") UNDER_LINEAR,
       "workspace", NULL},
      {4, 32 * MIB, UNDER_LINEAR, "workspace", NULL},
      {5, 32 * MIB, FORWARD, "activation", NULL},
      {6, 8 * MIB, ACCUMULATE, "gradient", NULL},
      {5, 0, RELEASE, NULL, NULL},
      {7, 2 * MIB, FORWARD, "activation", NULL},
      {8, 8 * MIB, MALLOC ENGINE, "temporary", NULL},
      {8, 0, ENGINE, NULL, NULL},
      {7, 0, RELEASE, NULL, NULL},
  };
  CHECK(list);
}

/* A server allocates its cache at once; generate() makes it longer with every token. */
static tsr_confidence confidence_of(const happening *list, size_t count, uint32_t allocation) {
  tsr_snapshot *snapshot = snapshot_of(list, count);
  const tsr__categories *found;
  assert_int_equal(tsr__study_categories(test_study(snapshot), 0, &found, NULL), 0);
  tsr_confidence confidence = tsr_evidence_confidence((tsr_evidence)found->evidence[allocation]);
  tsr_snapshot_free(snapshot);
  return confidence;
}

/* What a script allocates itself may be a leaf as well as an activation, whatever lives until backward. */
static void outside_of_modules(void **state) {
  (void)state;
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 4 * MIB, FORWARD, "activation", NULL},
      {2, 3 * MIB, MALLOC MAIN("21"), "activation", NULL},
      {3, 8 * MIB, ACCUMULATE, "gradient", NULL},
  };
  CHECK(list);
  assert_int_equal(confidence_of(list, 4, 1), TSR_CONFIDENCE_SURE);
  assert_int_equal(confidence_of(list, 4, 2), TSR_CONFIDENCE_LIKELY);
}

static void key_value_caches(void **state) {
  (void)state;
#define SERVER(function, file, line)                                   \
  MALLOC function "|/venv/lib/python3.12/site-packages/" file "|" line \
                  ";__init__|/work/serve.py|8;" MAIN("3")
#define UPDATE                                                                                 \
  MALLOC NATIVE("at::_ops::cat::call") "update|/venv/lib/python3.12/site-packages/"            \
                                       "transformers/cache_utils.py|120;forward|/venv/lib/"    \
                                       "python3.12/site-packages/"                             \
                                       "transformers/models/llama/modeling_llama.py|251;" CALL \
                                       "generate|/work/run.py|20;" MAIN("20")
#define GENERATE MALLOC "forward|/work/model.py|9;" CALL "generate|/work/run.py|20;" MAIN("20")
  static const happening servers[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 64 * MIB, SERVER("_allocate_kv_cache", "vllm/worker/cache_engine.py", "83"), "kv_cache",
       NULL},
      {2, 64 * MIB, SERVER("_create_buffers", "sglang/srt/mem_cache/memory_pool.py", "300"),
       "kv_cache", NULL},
      {3, 64 * MIB,
       SERVER("initialize_kv_cache_tensors", "vllm/v1/worker/gpu_model_runner.py", "9"), "kv_cache",
       NULL},
      {4, 64 * MIB, SERVER("allocate_buffers", "mine/buffers.py", "3"), "parameter", NULL},
      {5, 2 * MIB, GENERATE, "temporary", NULL},
      {5, 0, GENERATE, NULL, NULL},
      {6, 2 * MIB, GENERATE, "activation", NULL},
  };
  static const happening generation[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},    {1, 1 * MIB, UPDATE, "kv_cache", NULL},
      {2, 2 * MIB, GENERATE, "temporary", NULL}, {2, 0, GENERATE, NULL, NULL},
      {3, 2 * MIB, UPDATE, "kv_cache", NULL},    {1, 0, UPDATE, NULL, NULL},
      {2, 2 * MIB, GENERATE, "temporary", NULL}, {2, 0, GENERATE, NULL, NULL},
      {4, 3 * MIB, UPDATE, "kv_cache", NULL},    {3, 0, UPDATE, NULL, NULL},
  };
#define CACHED(caller)                                                                             \
  MALLOC "update|/venv/lib/python3.12/site-packages/transformers/cache_utils.py|120;forward|/"     \
         "venv/lib/python3.12/site-packages/transformers/models/llama/modeling_llama.py|251;" CALL \
             caller MAIN("20")
  /* In training, attention saves what the cache returns. */
  static const happening training[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 1 * MIB, UPDATE, "activation", NULL},
      {2, 2 * MIB, GENERATE, "activation", NULL},
      {3, 8 * MIB, ACCUMULATE, "gradient", NULL},
      {2, 0, RELEASE, NULL, NULL},
      {1, 0, RELEASE, NULL, NULL},
  };
  /* A loss that is taken from the outputs at once frees the cache before backward begins. */
  static const happening dropped[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},     {1, 1 * MIB, CACHED(""), "temporary", NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},  {1, 0, FORWARD, NULL, NULL},
      {3, 8 * MIB, ACCUMULATE, "gradient", NULL}, {2, 0, RELEASE, NULL, NULL},
  };
  CHECK(servers);
  CHECK(generation);
  CHECK(training);
  CHECK(dropped);
}

#define STATE \
  MALLOC "_init_group|" TORCH "optim/sgd.py|90;step|" TORCH "optim/sgd.py|120;" MAIN("25")

/* Running averages have the sizes of weights. If the recording has the optimizer's first step, they are no
 * state of it; otherwise they can be. */
static void batch_norm(void **state) {
  (void)state;
  static const happening first_step[] = {
      {0, 8 * MIB, NULL, "parameter", NULL},        {1, 8 * MIB, NULL, "parameter", NULL},
      {2, 8 * MIB, NULL, "parameter", NULL},        {3, 2 * MIB, FORWARD, "activation", NULL},
      {4, 8 * MIB, ACCUMULATE, "gradient", NULL},   {3, 0, RELEASE, NULL, NULL},
      {5, 8 * MIB, STATE, "optimizer_state", NULL}, {6, 2 * MIB, FORWARD, "activation", NULL},
  };
  static const happening later_step[] = {
      {0, 8 * MIB, NULL, "parameter", NULL},       {1, 8 * MIB, NULL, "optimizer_state", NULL},
      {2, 8 * MIB, NULL, "optimizer_state", NULL}, {3, 2 * MIB, FORWARD, "activation", NULL},
      {4, 8 * MIB, ACCUMULATE, "gradient", NULL},  {3, 0, RELEASE, NULL, NULL},
      {5, 2 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(first_step);
  CHECK(later_step);
}

/* A training run that ends in its first forward pass has no backward pass to show that it trains. */
static void training_that_dies_in_forward(void **state) {
  (void)state;
  static const happening loop[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 1 * MIB, CACHED("train|/work/run.py|20;"), "activation", NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},
  };
  static const happening optimizer[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 8 * MIB, MALLOC "__init__|/work/optim/adam.py|9;" MAIN("9"), "optimizer_state", NULL},
      {2, 1 * MIB, CACHED(""), "activation", NULL},
  };
  static const happening script[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},        {1, 1 * MIB, CACHED(""), "activation", NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},     {3, 2 * MIB, FORWARD, "activation", NULL},
      {4, 2 * MIB, FORWARD, "activation", NULL},     {5, 2 * MIB, FORWARD, "activation", NULL},
      {6, 2 * MIB, FORWARD, "activation", NULL},     {7, 2 * MIB, FORWARD, "activation", NULL},
      {8, 2 * MIB, FORWARD, "activation", NULL},     {9, 2 * MIB, FORWARD, "activation", NULL},
      {10, 1 * MIB, CACHED(""), "activation", NULL}, {11, 2 * MIB, FORWARD, "activation", NULL},
      {12, 2 * MIB, FORWARD, "activation", NULL},    {13, 2 * MIB, FORWARD, "activation", NULL},
      {14, 2 * MIB, FORWARD, "activation", NULL},    {15, 2 * MIB, FORWARD, "activation", NULL},
      {16, 2 * MIB, FORWARD, "activation", NULL},    {17, 2 * MIB, FORWARD, "activation", NULL},
      {18, 2 * MIB, FORWARD, "activation", NULL},
  };
  /* The same where nothing shows training, and within training where it generates. */
  static const happening inference[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 1 * MIB, CACHED(""), "kv_cache", NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},
  };
  static const happening rollout[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 1 * MIB, CACHED("generate|/work/run.py|9;train|/work/run.py|20;"), "kv_cache", NULL},
      {2, 2 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(loop);
  CHECK(optimizer);
  CHECK(script);
  CHECK(inference);
  CHECK(rollout);
}

/* An optimizer's step that runs out of memory holds temporaries, which are neither state nor evidence of
 * parameters that have no gradient. */
static void optimizer_that_dies(void **state) {
  (void)state;
#define INIT_GROUP \
  MALLOC "_init_group|" TORCH "optim/adamw.py|180;step|" TORCH "optim/adamw.py|215;" MAIN("25")
#define FOREACH                                                        \
  MALLOC "_multi_tensor_adamw|" TORCH "optim/adamw.py|500;step|" TORCH \
         "optim/adamw.py|243;" MAIN("25")
  static const happening list[] = {
      {0, 8 * MIB, NULL, "parameter", NULL},
      {1, 8 * MIB, CACHED("train|/work/run.py|20;"), "activation", NULL},
      {2, 8 * MIB, ACCUMULATE, "gradient", NULL},
      {3, 8 * MIB, INIT_GROUP, "optimizer_state", NULL},
      {4, 8 * MIB, INIT_GROUP, "optimizer_state", NULL},
      {5, 8 * MIB, FOREACH, "temporary", NULL},
      {6, 8 * MIB, FOREACH, "temporary", NULL},
      {7, 8 * MIB, FOREACH, OOM, NULL},
  };
  CHECK(list);
}

/* Megatron keeps all gradients in a few buffers, and parameters too if the optimizer is distributed; its
 * constructor allocates the parameters' first. */
static void megatron_buffers(void **state) {
  (void)state;
#define BUFFERS(line)                                                                           \
  MALLOC "__init__|/work/megatron/core/distributed/param_and_grad_buffer.py|" line ";__init__|" \
         "/work/megatron/core/distributed/distributed_data_parallel.py|246;" MAIN("4")
  static const happening distributed[] = {
      {0, 8 * MIB, BUFFERS("586"), "parameter", NULL},
      {1, 16 * MIB, BUFFERS("592"), "gradient", NULL},
      {2, 4 * MIB, BUFFERS("586"), "parameter", NULL},
      {3, 8 * MIB, BUFFERS("592"), "gradient", NULL},
      {4, 1 * MIB, FORWARD, "activation", NULL},
  };
  static const happening plain[] = {
      {0, 8 * MIB, BUILD, "parameter", NULL},
      {1, 16 * MIB, BUFFERS("311"), "gradient", NULL},
      {2, 1 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(distributed);
  CHECK(plain);
}

/* A forward pass from before the recording that is still held kept copies of weights too. */
static void casts_from_before(void **state) {
  (void)state;
  static const happening list[] = {
      {0, 3 * MIB, NULL, "activation", NULL},
      {1, 4 * MIB, NULL, "cast", NULL},
      {2, 5 * MIB, NULL, "activation", NULL},
      {3, 8 * MIB, BUILD, "parameter", NULL},
      {4, 4 * MIB, CAST, "cast", NULL},
      {5, 3 * MIB, FORWARD, "activation", NULL},
      {6, 5 * MIB, FORWARD, "activation", NULL},
      {0, 0, RELEASE, NULL, NULL},
      {1, 0, RELEASE, NULL, NULL},
      {2, 0, RELEASE, NULL, NULL},
  };
  CHECK(list);
}

/* Since PyTorch 2.10 a program can say itself what it allocates. */
static void named_by_metadata(void **state) {
  (void)state;
  static const happening list[] = {
      {0, 8 * MIB, BUILD, "parameter", "layer 3"},
      {1, 8 * MIB, BUILD, "kv_cache", "KV cache"},
      {2, 4 * MIB, BUILD, "optimizer_state", "optimizer_state"},
      {3, 4 * MIB, BUILD, "parameter", "unknown"},
      {4, 4 * MIB, BUILD, "parameter", "cast of a weight"},
      {5, 2 * MIB, FORWARD, "activation", NULL},
  };
  CHECK(list);
}

/* Weights can be as large as cuBLAS's workspace, 8,519,680 bytes. Stacks show what they are, and the last gradient is made like one
 * that was freed. Of the old blocks, what no gradient explains is a workspace. */
static void weights_as_large_as_workspaces(void **state) {
  (void)state;
  static const happening list[] = {
      {0, 8519680, NULL, "parameter", NULL},
      {1, 8519680, NULL, "workspace", NULL},
      {2, 8519680, BUILD, "parameter", NULL},
      {3, 2 * MIB, FORWARD, "activation", NULL},
      {4, 8519680, FORWARD, "workspace", NULL},
      {5, 8519680, MALLOC ENGINE, "gradient", NULL},
      {3, 0, RELEASE, NULL, NULL},
      {6, 8519680, STATE, "optimizer_state", NULL},
      {7, 8519680, STATE, "optimizer_state", NULL},
      {5, 0, ZERO_GRAD, NULL, NULL},
      {8, 2 * MIB, FORWARD, "activation", NULL},
      {9, 8519680, MALLOC ENGINE, "gradient", NULL},
      {8, 0, RELEASE, NULL, NULL},
      {10, 1 * MIB, STATE, "optimizer_state", NULL},
  };
  CHECK(list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halved_model),
      cmocka_unit_test(moved_model),
      cmocka_unit_test(moved_and_cast),
      cmocka_unit_test(leaked_is_no_input),
      cmocka_unit_test(one_line_one_category),
      cmocka_unit_test(gradient_within_forward),
      cmocka_unit_test(autocast),
      cmocka_unit_test(data_parallel),
      cmocka_unit_test(workspaces),
      cmocka_unit_test(weights_as_large_as_workspaces),
      cmocka_unit_test(outside_of_modules),
      cmocka_unit_test(key_value_caches),
      cmocka_unit_test(batch_norm),
      cmocka_unit_test(training_that_dies_in_forward),
      cmocka_unit_test(optimizer_that_dies),
      cmocka_unit_test(megatron_buffers),
      cmocka_unit_test(casts_from_before),
      cmocka_unit_test(named_by_metadata),
  };
  return cmocka_run_group_tests_name("categories", tests, NULL, NULL);
}
