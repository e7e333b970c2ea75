/* setup.c - a program's choices, resolved and checked, and what is there before it runs. */
#include "base/memory.h"
#include "engine/program.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

enum { LARGEST_BATCH = 1 << 20, LARGEST_SEQUENCE = 1 << 24, MOST_STEPS = 1000000 };

static uint64_t or_one(uint64_t value) {
  return value ? value : 1;
}

static int check_sizes(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  const struct {
    const char *what;
    uint64_t given, most;
  } bounds[] = {{"a batch", p->batch, LARGEST_BATCH},
                {"a sequence", p->sequence, LARGEST_SEQUENCE},
                {"a number of steps", o->steps, MOST_STEPS},
                {"a number of micro-batches", p->accumulate, LARGEST_BATCH}};
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
    if (bounds[i].given > bounds[i].most)
      return REFUSE(TSR_ERROR_LIMIT, "%s of %llu is beyond reason: the most is %llu",
                    bounds[i].what, (unsigned long long)bounds[i].given,
                    (unsigned long long)bounds[i].most);
  if (p->model->class == TSR__GPT2 && p->sequence > p->model->positions)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "a sequence of %llu tokens is longer than the %llu positions the model has",
                  (unsigned long long)p->sequence, (unsigned long long)p->model->positions);
  if (o->attention == TSR_ATTENTION_CHUNKED && !o->attention_chunk)
    return REFUSE(TSR_ERROR_ARGUMENT, "chunked attention needs a number of query rows");
  if (o->checkpoint == TSR_CHECKPOINT_EVERY && !o->checkpoint_every)
    return REFUSE(TSR_ERROR_ARGUMENT, "checkpointing every K blocks needs a K");
  if (o->gelu_fused && p->model->activation == TSR__ACTIVATION_SILU)
    return REFUSE(TSR_ERROR_ARGUMENT, "the model's activation function is SiLU: it has no GELU");
  if (p->model->module_count && o->checkpoint == TSR_CHECKPOINT_EVERY)
    return REFUSE(
        TSR_ERROR_UNSUPPORTED,
        "added modules want every hidden state, which checkpoints of several blocks hide");
  return 0;
}

static void choose_types(tsr__program *p) {
  tsr_simulate_dtype dtype = p->options->dtype;
  p->is_autocast = dtype == TSR_SIMULATE_AUTOCAST_BF16 || dtype == TSR_SIMULATE_AUTOCAST_FP16;
  p->dtype = dtype == TSR_SIMULATE_BF16   ? TSR__BF16
             : dtype == TSR_SIMULATE_FP16 ? TSR__F16
                                          : TSR__F32;
  p->tape->low_dtype = dtype == TSR_SIMULATE_AUTOCAST_FP16 ? TSR__F16 : TSR__BF16;
}

/* Which kernel attends, whether a mask is made for it, and whether heads are copied for it:
 * transformers/integrations/sdpa_attention.py, masking_utils.py and, in PyTorch,
 * aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. */
static int choose_attention(tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  const tsr_model *m = p->model;
  bool is_half = p->is_autocast || p->dtype != TSR__F32, is_grouped = m->kv_heads != m->heads;
  bool is_windowed = m->window && p->sequence >= m->window;
  bool has_kernel_mask = (!p->uses_cache && !p->has_attention_mask) || is_windowed;
  bool is_masked = o->attention == TSR_ATTENTION_SDPA || o->attention == TSR_ATTENTION_EFFICIENT;
  p->is_eager = o->attention == TSR_ATTENTION_EAGER;
  p->has_mask = p->is_eager || (is_masked && has_kernel_mask);
  p->repeats_heads = is_grouped && (p->is_eager || p->has_mask);
  p->attention = TSR__OP_ATTENTION_FLASH;
  if (is_masked && (!is_half || p->has_mask || o->attention == TSR_ATTENTION_EFFICIENT))
    p->attention = TSR__OP_ATTENTION_EFFICIENT;
  if (o->attention == TSR_ATTENTION_CHUNKED) p->attention = TSR__OP_ATTENTION_CHUNKED;
  if (p->is_eager)
    p->attention =
        tsr__family_of(m) == TSR__FAMILY_GPT2 ? TSR__OP_ATTENTION_GPT2 : TSR__OP_ATTENTION_LLAMA;
  if (o->attention == TSR_ATTENTION_FLASH && !is_half)
    return REFUSE(TSR_ERROR_ARGUMENT, "flash attention works in fp16 and bf16, not in fp32");
  if (p->attention == TSR__OP_ATTENTION_FLASH && m->head_width > 256)
    return REFUSE(TSR_ERROR_UNSUPPORTED, "flash attention takes heads up to 256 wide");
  if (p->attention == TSR__OP_ATTENTION_EFFICIENT && is_grouped && !p->has_mask)
    return REFUSE(
        TSR_ERROR_UNSUPPORTED,
        "the memory-efficient kernel, which fp32 needs, takes no grouped queries, and the math "
        "kernel that PyTorch chooses then is not modelled; choose eager or chunked attention, or "
        "a 16-bit type");
  return 0;
}

static void choose_checkpoints(tsr__program *p) {
  const tsr_simulate_options *o = p->options;
  p->checkpoint = o->checkpoint;
  p->segment_blocks = o->checkpoint == TSR_CHECKPOINT_EVERY ? o->checkpoint_every : 1;
  if (p->segment_blocks > p->model->layers) p->segment_blocks = p->model->layers;
  bool has_blocks = p->checkpoint == TSR_CHECKPOINT_FULL || p->checkpoint == TSR_CHECKPOINT_EVERY;
  p->uses_cache = p->model->uses_cache && !o->no_kv_cache && !has_blocks;
  p->has_attention_mask = o->no_kv_cache;
}

static void declare_workspaces(tsr__program *p) {
  for (size_t i = 0; i < 2 && !p->options->fresh_process; i++)
    p->tape->workspace[i] =
        tsr__declare(p->tape, TSR__BOOL8, TSR__SHAPE(TSR__WORKSPACE_BYTES), TSR_ROLE_WORKSPACE);
}

static int declare(tsr__program *p, tsr_error *error) {
  const tsr_model *m = p->model;
  size_t added = m->module_count * m->layers;
  p->layers = TSR__NEW_ARRAY(tsr__layer, m->layers);
  p->added = TSR__NEW_ARRAY(tsr__linear, added);
  if (!p->layers || !p->added) return tsr__fail_memory(error);
  declare_workspaces(p);
  p->family->declare(p);
  for (size_t i = 0; i < added; i++) {
    const tsr__module *module = &m->modules[i / m->layers];
    p->added[i] = tsr__declare_linear(p, m->width, module->features, module->has_bias);
  }
  if (p->options->dtype == TSR_SIMULATE_AUTOCAST_FP16) /* GradScaler's scale and count */
    for (size_t i = 0; i < 2; i++)
      (void)tsr__declare(p->tape, TSR__F32, TSR__SCALAR, TSR_ROLE_BUFFER);
  return p->tape->status ? tsr__fail_memory(error) : 0;
}

int tsr__program_init(tsr__program *p, const tsr_model *model, const tsr_simulate_options *options,
                      tsr__tape *tape, tsr_error *error) {
  *p = (tsr__program){.model = model,
                      .options = options,
                      .tape = tape,
                      .batch = or_one(options->batch),
                      .sequence = or_one(options->sequence),
                      .accumulate = or_one(options->accumulate)};
  p->family = tsr__family_of(model) == TSR__FAMILY_GPT2 ? &tsr__gpt2_family : &tsr__llama_family;
  int status = check_sizes(p, error);
  choose_types(p);
  choose_checkpoints(p);
  if (status == 0) status = choose_attention(p, error);
  if (status == 0) status = declare(p, error);
  return status;
}

void tsr__program_release(tsr__program *p) {
  tsr__free(p->layers);
  tsr__free(p->added);
  TSR__VECTOR_FREE(&p->outputs);
  TSR__VECTOR_FREE(&p->cache);
  TSR__VECTOR_FREE(&p->hidden);
}

uint64_t tsr_model_parameter_count(const tsr_model *model) {
  static const tsr_simulate_options options = {
      .batch = 1, .sequence = 1, .attention = TSR_ATTENTION_EAGER};
  tsr__tape tape;
  tsr__program program = {0};
  uint64_t count = 0;
  bool ok =
      tsr__tape_init(&tape, NULL) && tsr__program_init(&program, model, &options, &tape, NULL) == 0;
  for (size_t i = 0; ok && i < tape.parameters.count; i++)
    count += tsr__elements(tsr__shape_of(&tape, tape.parameters.items[i]));
  tsr__program_release(&program);
  tsr__tape_release(&tape);
  return count;
}
