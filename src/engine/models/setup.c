/* setup.c - makes a program that can run from options: resolves and checks them, and declares everything that
 * exists before the recording.
 *
 * The order matters: the plan decides whether there is a cache, the cache decides whether attention needs a mask,
 * and the mask decides which attention kernel runs. Evaluation makes the same choices separately. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "models/program.h"
#include "traced/step_graph.h"

#define REFUSE(status, ...) tsr__fail(error, (status), TSR_OFFSET_NONE, __VA_ARGS__)

enum { LARGEST_BATCH = 1 << 20, LARGEST_SEQUENCE = 1 << 24, MOST_STEPS = 1000000 };

static uint64_t or_one(uint64_t value) {
  return value ? value : 1;
}

static int check_precision(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  bool is_half = o->dtype == TSR_SIMULATE_BF16 || o->dtype == TSR_SIMULATE_FP16;
  bool is_fp16 = o->dtype == TSR_SIMULATE_FP16 || o->dtype == TSR_SIMULATE_AUTOCAST_FP16;
  if (o->master_weights && !is_half)
    return REFUSE(TSR_ERROR_ARGUMENT, "master weights need parameters in bf16 or fp16");
  if ((o->loss_scale != 0 || o->loss_scale_window) && !is_fp16)
    return REFUSE(TSR_ERROR_ARGUMENT, "the loss is scaled only with fp16 and autocast-fp16");
  if (o->loss_scale != 0 && !(o->loss_scale > 0 && o->loss_scale <= 0x1p127))
    return REFUSE(TSR_ERROR_ARGUMENT, "the loss scale must be a number above 0, and at most 2^127");
  return 0;
}

/* What TransformerEngine asks for (pytorch/utils.py, assert_dim_for_fp8_exec): rows in eights, and columns, which are others'
 * rows once they are transposed, in sixteens. */
static bool suits_fp8(const tsr__program *p) {
  enum { ROWS = 8, COLUMNS = 16 };
  const tsr_model *m = p->model;
  bool has_columns = m->width % COLUMNS == 0 && m->inner % COLUMNS == 0 &&
                     m->heads * m->head_width % COLUMNS == 0 &&
                     m->kv_heads * m->head_width % COLUMNS == 0;
  return has_columns && tsr__product_u64(p->batch, p->sequence) % ROWS == 0;
}

static int check_fp8(tsr__program *p, tsr_error *error) {
  enum { FIRST = 89, BOTH_ORDERS = 100, BOTH_ORDERS_END = 110 };
  const tsr_simulate_options *o = p->options;
  unsigned capability = p->tape->capability;
  if (!o->fp8) return 0;
  p->fp8_takes_both_orders = capability >= BOTH_ORDERS && capability < BOTH_ORDERS_END;
  if (p->is_own)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "products in FP8 (--fp8) are only simulated, with the ops of PyTorch and "
                  "TransformerEngine: tessera's own ops have none");
  if (p->dtype == TSR__DTYPE_F32 && !p->is_autocast)
    return REFUSE(TSR_ERROR_ARGUMENT, "products in FP8 (--fp8) are modelled in runs with 16 bits: "
                                      "bf16, fp16, autocast-bf16 or autocast-fp16");
  if (o->lora_rank) return REFUSE(TSR_ERROR_UNSUPPORTED, "LoRA is not modelled in FP8 (--fp8)");
  if (capability && capability < FIRST)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "products in FP8 (--fp8) need compute capability 8.9, and the card has %u.%u",
                  capability / 10u, capability % 10u);
  if (!suits_fp8(p))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "products in FP8 (--fp8) need a number of tokens that 8 divides, and widths that "
                  "16 divides: %llu tokens, width %llu, heads %llu x %llu, inner width %llu",
                  (unsigned long long)tsr__product_u64(p->batch, p->sequence),
                  (unsigned long long)p->model->width, (unsigned long long)p->model->heads,
                  (unsigned long long)p->model->head_width, (unsigned long long)p->model->inner);
  return 0;
}

/* With fp16, a GradScaler is used under autocast, with master weights, and if the options request one. */
static bool scales_loss(const tsr_simulate_options *o) {
  if (o->dtype == TSR_SIMULATE_AUTOCAST_FP16) return true;
  return o->dtype == TSR_SIMULATE_FP16 && (o->master_weights || o->loss_scale > 0);
}

/* Optimizers after SGD are only simulated: on one card, with PyTorch's ops. */
static int check_optimizer(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  if (o->nesterov && o->optimizer != TSR_OPTIMIZER_SGD_MOMENTUM)
    return REFUSE(TSR_ERROR_ARGUMENT, "Nesterov's momentum is of sgd with momentum");
  if (o->no_decay && o->optimizer > TSR_OPTIMIZER_ADAMW_LOOP)
    return REFUSE(TSR_ERROR_ARGUMENT, "only adamw, in its forms, has weight decay to leave out");
  if (o->no_decay && o->zero)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "weight decay is left out of whole parameters, and ZeRO's parts have pieces of "
                  "several");
  if (o->optimizer <= TSR_OPTIMIZER_SGD_MOMENTUM) return 0;
  if (o->book == TSR_BOOK_OWN || o->ranks || o->offload.optimizer || o->offload.gradients)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "this optimizer is simulated on one card with PyTorch's ops: tessera's own ops, "
                  "ranks and offloading have adamw and sgd");
  return 0;
}

/* Refuse an optimizer in backward, which sees one gradient at a time, together with options that need all gradients
 * or all micro-batches. */
static int check_update(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  if (!o->update_in_backward) return 0;
  if (o->clip_norm != 0)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "clipping needs the norm of all gradients, which an optimizer in backward does "
                  "not keep");
  if (p->accumulate > 1)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "an optimizer in backward updates after each backward pass: gradients of several "
                  "micro-batches cannot be added up");
  if (scales_loss(o))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "scaling the loss needs all gradients to see whether one overflowed, which an "
                  "optimizer in backward does not keep");
  return 0;
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
      return REFUSE(TSR_ERROR_LIMIT, "%s of %llu is too large: at most %llu", bounds[i].what,
                    (unsigned long long)bounds[i].given, (unsigned long long)bounds[i].most);
  if (p->family->has_position_table && p->sequence > p->model->positions)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "a sequence of %llu tokens is longer than the model's %llu positions",
                  (unsigned long long)p->sequence, (unsigned long long)p->model->positions);
  if (o->clip_norm != 0 && !(o->clip_norm > 0 && isfinite(o->clip_norm)))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "the norm to which gradients are clipped must be a number above 0");
  if (o->attention == TSR_ATTENTION_CHUNKED && !o->attention_chunk)
    return REFUSE(TSR_ERROR_ARGUMENT, "chunked attention needs a number of query rows");
  if (o->accumulation == TSR_ACCUMULATION_FLAT && p->accumulate > 1 && !p->tape->book->sums_flat)
    return REFUSE(
        TSR_ERROR_UNSUPPORTED,
        "PyTorch computes each micro-batch's gradients separately: flat accumulation needs "
        "tessera's own ops");
  if (o->checkpoint == TSR_CHECKPOINT_EVERY && !o->checkpoint_every)
    return REFUSE(TSR_ERROR_ARGUMENT, "checkpointing every K blocks needs a K");
  if (o->gelu_fused && p->model->activation == TSR__MODEL_SILU)
    return REFUSE(TSR_ERROR_ARGUMENT, "the model's activation function is SiLU: it has no GELU");
  return 0;
}

/* Split the batch into micro-batches. */
static int split_batch(tsr__program *p, tsr_error *error) {
  uint64_t micro = p->options->micro_batch, parts;
  if (!micro || micro == p->batch) return 0;
  if (micro > p->batch || p->batch % micro)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "a batch of %llu sequences cannot be divided into micro-batches of %llu",
                  (unsigned long long)p->batch, (unsigned long long)micro);
  parts = p->batch / micro;
  p->batch = micro;
  p->accumulate = p->accumulate > UINT64_MAX / parts ? UINT64_MAX : p->accumulate * parts;
  return 0;
}

static void choose_types(tsr__program *p) {
  tsr_simulate_dtype dtype = p->options->dtype;
  p->is_autocast = dtype == TSR_SIMULATE_AUTOCAST_BF16 || dtype == TSR_SIMULATE_AUTOCAST_FP16;
  p->dtype = dtype == TSR_SIMULATE_BF16   ? TSR__DTYPE_BF16
             : dtype == TSR_SIMULATE_FP16 ? TSR__DTYPE_F16
                                          : TSR__DTYPE_F32;
  p->tape->low_dtype = dtype == TSR_SIMULATE_AUTOCAST_FP16 ? TSR__DTYPE_F16 : TSR__DTYPE_BF16;
  tsr__program_choose_adapter_types(p);
}

static tsr__memory_space space_of(tsr_space space) {
  static const tsr__memory_space spaces[] = {[TSR_SPACE_DEVICE] = TSR__SPACE_DEVICE,
                                             [TSR_SPACE_HOST] = TSR__SPACE_HOST,
                                             [TSR_SPACE_DISK] = TSR__SPACE_DISK};
  assert(space < sizeof spaces / sizeof *spaces);
  return spaces[space];
}

/* Check that ranks, and those of each replica, fill machines. */
static int check_machines(const tsr_simulate_options *o, tsr_error *error) {
  uint64_t a_machine = o->ranks_per_node, shared = o->ranks / (o->replicas ? o->replicas : 1);
  if (!a_machine || a_machine >= o->ranks) return 0;
  bool is_even = shared % a_machine == 0 || a_machine % shared == 0;
  if (o->ranks % a_machine)
    return REFUSE(TSR_ERROR_ARGUMENT, "%llu ranks do not fill machines of %llu",
                  (unsigned long long)o->ranks, (unsigned long long)a_machine);
  if (!is_even)
    return REFUSE(
        TSR_ERROR_ARGUMENT,
        "replicas of %llu ranks are neither whole machines of %llu, nor equal parts of one",
        (unsigned long long)shared, (unsigned long long)a_machine);
  if (!(o->network_bytes_per_s > 0))
    return REFUSE(
        TSR_ERROR_ARGUMENT,
        "%llu ranks are on several machines of %llu: say what each sends over the network "
        "(--network 50GB/s)",
        (unsigned long long)o->ranks, (unsigned long long)a_machine);
  return 0;
}

/* Check that ranks can run the program. */
static int check_ranks(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  enum { MOST_RANKS = 1024 };
  int status;
  if (o->zero > 3) return REFUSE(TSR_ERROR_ARGUMENT, "ZeRO has stages 0 to 3");
  if (o->zero && !o->ranks)
    return REFUSE(TSR_ERROR_ARGUMENT, "ZeRO spreads state over ranks: say how many (--ranks N)");
  if (o->ranks > MOST_RANKS)
    return REFUSE(TSR_ERROR_LIMIT, "%llu ranks are too many: at most %d",
                  (unsigned long long)o->ranks, MOST_RANKS);
  if (o->replicas > 1 && (!o->ranks || o->ranks % o->replicas))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "%llu ranks cannot be divided into %llu equal groups, one for each replica",
                  (unsigned long long)o->ranks, (unsigned long long)o->replicas);
  if (!o->ranks) return 0;
  status = check_machines(o, error);
  if (status) return status;
  if (o->rank >= o->ranks)
    return REFUSE(TSR_ERROR_ARGUMENT, "%llu ranks have numbers up to %llu: there is no rank %llu",
                  (unsigned long long)o->ranks, (unsigned long long)(o->ranks - 1),
                  (unsigned long long)o->rank);
  if (o->update_in_backward)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "ranks sum gradients before they are used: an optimizer in backward would only "
                  "see one rank's");
  if (p->model->module_count)
    return REFUSE(TSR_ERROR_UNSUPPORTED, "ranks cannot share added modules");
  return 0;
}

/* Check where tensors are kept. Kernels use all tensors except activations in place, which is impossible on a
 * disk. */
static int choose_spaces(tsr__program *p, tsr_error *error) {
  const tsr_offload *o = &p->options->offload;
  uint64_t blocks = p->options->offload_blocks;
  p->tape->homes = (tsr__homes){.optimizer = (uint8_t)space_of(o->optimizer),
                                .gradients = (uint8_t)space_of(o->gradients),
                                .parameters = (uint8_t)space_of(o->parameters),
                                .activations = (uint8_t)space_of(o->activations),
                                .blocks = (uint32_t)blocks};
  if (blocks > p->model->layers)
    return REFUSE(TSR_ERROR_ARGUMENT, "--offload-blocks %llu is more than the model's %llu blocks",
                  (unsigned long long)blocks, (unsigned long long)p->model->layers);
  if (blocks && !o->optimizer && !o->gradients && !o->parameters && !o->activations)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "--offload-blocks needs --offload, which says what is kept on the host");
  if (o->optimizer == TSR_SPACE_DISK || o->gradients == TSR_SPACE_DISK ||
      o->parameters == TSR_SPACE_DISK)
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "only activations can be kept on a disk; optimizer state, gradients and "
                  "parameters go to the host's memory");
  return 0;
}

/* Choose tessera's own attention: flash, or chunked; eager is chunked with one chunk. These kernels need no mask,
 * and do not copy keys for heads that share them. */
static void choose_own_attention(tsr__program *p) {
  tsr_simulate_attention attention = p->options->attention;
  p->attention = TSR__OP_ATTENTION_FLASH;
  if (attention == TSR_ATTENTION_CHUNKED || attention == TSR_ATTENTION_EAGER)
    p->attention = TSR__OP_ATTENTION_CHUNKED;
  if (attention == TSR_ATTENTION_EAGER) p->query_rows = p->sequence;
}

/* Choose the kernel that attends, whether it gets a mask, and whether heads are copied for it:
 * transformers/integrations/sdpa_attention.py, masking_utils.py and, in PyTorch,
 * aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. */
static int choose_attention(tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  p->query_rows = o->attention_chunk;
  if (p->is_own) {
    choose_own_attention(p);
    return 0;
  }
  const tsr_model *m = p->model;
  bool is_half = p->is_autocast || p->dtype != TSR__DTYPE_F32, is_grouped = m->kv_heads != m->heads;
  bool is_windowed = m->window && p->sequence >= m->window;
  bool has_kernel_mask = (!p->uses_cache && !p->has_attention_mask) || is_windowed;
  bool is_masked = o->attention == TSR_ATTENTION_SDPA || o->attention == TSR_ATTENTION_EFFICIENT;
  assert(m->kv_heads && m->heads % m->kv_heads == 0);
  p->is_eager = o->attention == TSR_ATTENTION_EAGER;
  p->has_mask = p->is_eager || (is_masked && has_kernel_mask);
  p->checks_mask = p->has_attention_mask && !p->is_eager && o->attention != TSR_ATTENTION_CHUNKED;
  p->repeats_heads = is_grouped && (p->is_eager || p->has_mask);
  p->attention = TSR__OP_ATTENTION_FLASH;
  if (is_masked && (!is_half || p->has_mask || o->attention == TSR_ATTENTION_EFFICIENT))
    p->attention = TSR__OP_ATTENTION_EFFICIENT;
  bool is_unaligned = m->head_width % (is_half ? 8 : 4) != 0;
  if (p->attention == TSR__OP_ATTENTION_EFFICIENT && (is_grouped || is_unaligned) && !p->has_mask)
    p->attention =
        TSR__OP_ATTENTION_MATH; /* it needs heads of whole 16 bytes that are not shared */
  if (o->attention == TSR_ATTENTION_CHUNKED) p->attention = TSR__OP_ATTENTION_CHUNKED;
  if (p->is_eager) p->attention = p->family->eager_attention;
  if (o->attention == TSR_ATTENTION_FLASH && !is_half)
    return REFUSE(TSR_ERROR_ARGUMENT, "flash attention works in fp16 and bf16, not in fp32");
  if (p->attention == TSR__OP_ATTENTION_FLASH && m->head_width > 256)
    return REFUSE(TSR_ERROR_UNSUPPORTED, "flash attention takes heads up to 256 wide");
  return 0;
}

/* ---- the plan ---- */

/* The rounded square root: 3 for 8 and 12, 4 for 13. */
static uint64_t nearest_root(uint64_t number) {
  uint64_t root = 1;
  while (root * (root + 1) < number) root++;
  return root;
}

/* Apply what --checkpoint names to blocks first to end - 1. */
static void plan_checkpoints(tsr__plan *plan, tsr_simulate_checkpoint checkpoint, uint64_t every,
                             uint64_t first, uint64_t end) {
  switch (checkpoint) {
  case TSR_CHECKPOINT_NONE: tsr__plan_choose(plan, first, end, TSR__PLAN_KEEP); break;
  case TSR_CHECKPOINT_FULL: tsr__plan_choose(plan, first, end, TSR__PLAN_RECOMPUTE); break;
  case TSR_CHECKPOINT_SELECTIVE:
    tsr__plan_choose(plan, first, end, TSR__PLAN_RECOMPUTE_ATTENTION);
    break;
  case TSR_CHECKPOINT_EVERY: tsr__plan_choose_runs(plan, first, end, every); break;
  case TSR_CHECKPOINT_SQRT:
    tsr__plan_choose_runs(plan, first, end, nearest_root(end - first));
    break;
  }
}

static_assert((int)TSR__PLACED_KEEP == (int)TSR_SAVED_KEEP &&
                  (int)TSR__PLACED_NARROW16 == (int)TSR_SAVED_NARROW16 &&
                  (int)TSR__PLACED_NARROW8 == (int)TSR_SAVED_NARROW8,
              "places are in the order of tsr_saved_place");

/* Split the name of a saved tensor, such as "linear#1.0": returns the length of the op's name, and sets the op's number in its block and the
 * tensor's index, which both may be missing. */
static size_t read_saved_name(const char *name, uint8_t *number, uint8_t *index) {
  const char *dot = strrchr(name, '.'), *hash = strrchr(name, '#');
  bool has_index = dot && dot[1] >= '0' && dot[1] < '0' + TSR__OP_SAVED && !dot[2];
  size_t length = has_index ? (size_t)(dot - name) : strlen(name), digits;
  *index = has_index ? (uint8_t)(dot[1] - '0') : TSR__PLAN_ANY;
  *number = TSR__PLAN_ANY;
  if (!hash) return length;
  digits = strspn(hash + 1, "0123456789");
  bool is_spelled_once = digits && digits <= 2 && (digits == 1 || hash[1] != '0'); /* not #01 */
  if (!is_spelled_once || hash + 1 + digits != name + length) return length;
  *number = (uint8_t)strtoul(hash + 1, NULL, 10);
  return (size_t)(hash - name);
}

/* How many tensors an op can save, by its row: which of them it does depends on what needs gradients. */
static unsigned saved_by(const tsr__op_row *row) {
  unsigned count = 0;
  for (const tsr__op_step *step = row->forward; step->action != TSR__DO_END; step++)
    if (step->action == TSR__DO_SAVE && step->to - TSR__REG_SAVED + 1u > count)
      count = step->to - TSR__REG_SAVED + 1u;
  return count;
}

/* Apply a choice to all ops with that name. */
static int plan_saved_one(tsr__program *p, const tsr_saved_choice *choice, tsr__plan_saved one,
                          tsr_error *error) {
  size_t length = read_saved_name(choice->name, &one.number, &one.index);
  bool is_found = false;
  unsigned most = 0;
  one.place = (uint8_t)choice->place;
  for (int kind = 0; kind < TSR__OP_KIND_COUNT; kind++) {
    const tsr__op_row *row = p->tape->book->rows[kind];
    if (!row || !row->node || row->run_forward || strlen(row->name) != length ||
        memcmp(row->name, choice->name, length) != 0)
      continue;
    is_found = true;
    if (saved_by(row) > most) most = saved_by(row);
    one.op = (uint8_t)kind;
    if (!tsr__plan_choose_saved(&p->plan, one)) return tsr__fail_memory(error);
  }
  if (is_found && (one.index == TSR__PLAN_ANY || one.index < most)) return 0;
  if (is_found)
    return REFUSE(
        TSR_ERROR_ARGUMENT,
        "the plan chooses what happens to '%.60s', but such an op saves at most %u tensor%s, "
        "counted from 0",
        choice->name, most, most == 1 ? "" : "s");
  return REFUSE(TSR_ERROR_ARGUMENT,
                "the plan chooses what happens to tensors saved by '%.60s', but the %s ops have no "
                "such op",
                choice->name, p->tape->book->name);
}

/* The most ops with that name that a block has: a kind may have several forms, of which a model has one. */
static unsigned most_named(const tsr__tape *tape, const char *name) {
  unsigned most = 0;
  for (int kind = 0; kind < TSR__OP_KIND_COUNT; kind++) {
    const tsr__op_row *row = tape->book->rows[kind];
    if (row && strcmp(row->name, name) == 0 && tape->most_of_kind[kind] > most)
      most = tape->most_of_kind[kind];
  }
  return most;
}

int tsr__program_check_saved(const tsr__program *p, tsr_error *error) {
  const tsr__tape *tape = p->tape;
  if (tape->status) return 0; /* which finishing the tape explains */
  for (size_t i = 0; i < p->plan.saved.count; i++) {
    const tsr__plan_saved *s = &p->plan.saved.items[i];
    if (s->op == TSR__PLAN_ANY || s->number == TSR__PLAN_ANY) continue;
    const char *name = tape->book->rows[s->op]->name;
    if (s->number < most_named(tape, name)) continue;
    return REFUSE(
        TSR_ERROR_ARGUMENT,
        "the plan chooses what happens to tensors saved by '%s#%u', but a block has %u of "
        "these ops, counted from 0",
        name, s->number, most_named(tape, name));
  }
  return 0;
}

static int plan_saved(tsr__program *p, const tsr_block_choice *choice, tsr_error *error) {
  tsr__plan_saved all = {.first = choice->first,
                         .end = choice->last + 1,
                         .op = TSR__PLAN_ANY,
                         .number = TSR__PLAN_ANY,
                         .index = TSR__PLAN_ANY,
                         .place = TSR__PLACED_KEEP};
  if (!tsr__plan_choose_saved(&p->plan, all)) return tsr__fail_memory(error);
  for (size_t i = 0; i < choice->saved_count; i++) {
    int status = plan_saved_one(p, &choice->saved[i], all, error);
    if (status) return status;
  }
  return 0;
}

/* Apply the options' choices for ranges of blocks. */
static int plan_blocks(tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  uint64_t layers = p->plan.block_count;
  for (size_t i = 0; i < o->block_count; i++) {
    const tsr_block_choice *c = &o->blocks[i];
    if (c->first > c->last || c->last >= layers)
      return REFUSE(
          TSR_ERROR_ARGUMENT,
          "the plan has choices for blocks %llu to %llu, but the model has blocks 0 to %llu",
          (unsigned long long)c->first, (unsigned long long)c->last,
          (unsigned long long)(layers - 1));
    if (c->checkpoint == TSR_CHECKPOINT_EVERY && !c->checkpoint_every)
      return REFUSE(TSR_ERROR_ARGUMENT, "checkpointing every K blocks needs a K");
    plan_checkpoints(&p->plan, c->checkpoint, c->checkpoint_every, c->first, c->last + 1);
    int status = plan_saved(p, c, error);
    if (status) return status;
  }
  return 0;
}

/* Choose the plan. transformers turns the cache off if any block is recomputed. */
static int choose_plan(tsr__program *p, const tsr__plan *plan, tsr_error *error) {
  uint64_t layers = p->model->layers;
  assert(!plan || plan->block_count == layers);
  if (!(plan ? tsr__plan_copy(&p->plan, plan) : tsr__plan_init(&p->plan, layers)))
    return tsr__fail_memory(error);
  if (!plan) {
    tsr_simulate_checkpoint checkpoint = p->options->checkpoint;
    if (p->options->kbit_training == TSR_KBIT_CHECKPOINTING && checkpoint == TSR_CHECKPOINT_NONE)
      checkpoint = TSR_CHECKPOINT_FULL;
    plan_checkpoints(&p->plan, checkpoint, p->options->checkpoint_every, 0, layers);
    int status = plan_blocks(p, error);
    if (status) return status;
  }
  p->tape->plan = &p->plan;
  p->uses_cache = p->model->uses_cache && !p->options->no_kv_cache && !p->is_own &&
                  !tsr__program_recomputes_blocks(p);
  p->has_attention_mask = p->options->no_kv_cache && !p->is_own;
  if (p->model->module_count && tsr__plan_has(&p->plan, TSR__PLAN_RECOMPUTE_RUN))
    return REFUSE(
        TSR_ERROR_UNSUPPORTED,
        "added modules need every hidden state, which checkpoints of several blocks do not keep");
  return 0;
}

static int check_evaluation(const tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  if (!o->eval_steps && o->eval_batch)
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "a batch to evaluate needs a number of steps after which that is done");
  if (o->eval_batch > LARGEST_BATCH)
    return REFUSE(TSR_ERROR_LIMIT, "a batch of %llu is too large: at most %d",
                  (unsigned long long)o->eval_batch, LARGEST_BATCH);
  if (o->eval_steps > or_one(o->steps))
    return REFUSE(TSR_ERROR_ARGUMENT,
                  "a run of %llu steps does not get to an evaluation after %llu",
                  (unsigned long long)or_one(o->steps), (unsigned long long)o->eval_steps);
  if (o->eval_steps && !p->is_own && (o->ranks || o->offload.parameters))
    return REFUSE(TSR_ERROR_UNSUPPORTED,
                  "PyTorch's evaluation between steps is not modelled with ranks or offloaded "
                  "parameters; tessera's own is: --book own");
  return 0;
}

/* Evaluation recomputes nothing, so it has the cache that the model requests. */
static int choose_evaluation(tsr__program *p, tsr_error *error) {
  const tsr_simulate_options *o = p->options;
  int status = check_evaluation(p, error);
  if (status || !o->eval_steps) return status;
  p->tape->schedule.evaluation_interval = o->eval_steps;
  p->evaluation.batch = o->eval_batch ? o->eval_batch : p->batch;
  p->evaluation.uses_cache = p->model->uses_cache && !o->no_kv_cache && !p->is_own;
  if (!tsr__plan_init(&p->evaluation.plan, p->model->layers)) return tsr__fail_memory(error);
  tsr__program_swap_modes(p);
  status = choose_attention(p, error);
  tsr__program_swap_modes(p);
  return status;
}

static void declare_workspaces(tsr__program *p) {
  for (size_t i = 0; i < 2 && !p->options->fresh_process && !p->is_own; i++)
    p->tape->workspace[i] = tsr__tensor_declare(
        p->tape, TSR__DTYPE_BOOL, TSR__SHAPE(p->tape->workspace_bytes), TSR_CATEGORY_WORKSPACE);
  if (!p->options->fp8) return;
  /* TransformerEngine's, for cublasLt (get_cublas_workspace_size_bytes): larger from compute capability 9.0 on. */
  uint64_t bytes = p->tape->capability && p->tape->capability < 90 ? 4u << 20 : 32u << 20;
  (void)tsr__tensor_declare(p->tape, TSR__DTYPE_BOOL, TSR__SHAPE(bytes), TSR_CATEGORY_WORKSPACE);
}

/* A parameter of a block, which is kept where the options say; embeddings, the last norm and the head stay on the
 * device. */
static void put_in_block(tsr__tape *tape, tsr__tensor_id tensor, uint32_t block) {
  uint8_t home = tsr__home_in_block(&tape->homes, tape->homes.parameters, block);
  tsr__tensor_set_block(tape, tensor, block);
  if (tensor) tsr__tensor_set_home(tape, tensor, (tsr__memory_space)home);
}

static void put_linear(tsr__tape *tape, const tsr__model_linear *linear, uint32_t block) {
  put_in_block(tape, linear->weight, block);
  put_in_block(tape, linear->bias, block);
  tsr__tensor_set_block(tape, linear->scales, block);
  tsr__tensor_set_block(tape, linear->nested_scales, block);
}

void tsr__program_put_in_block(tsr__program *p, tsr__tensor_id tensor, uint32_t block) {
  put_in_block(p->tape, tensor, block);
}

static void put_norm(tsr__tape *tape, const tsr__model_norm *norm, uint32_t block) {
  put_in_block(tape, norm->weight, block);
  put_in_block(tape, norm->bias, block);
}

enum { BLOCK_LINEARS = 8 };

static void put_blocks(tsr__program *p) {
  for (uint32_t i = 0; i < p->model->layers && !p->tape->status; i++) {
    const tsr__model_layer *l = &p->layers[i];
    const tsr__model_linear *linears[BLOCK_LINEARS] = {&l->qkv, &l->q,  &l->k,    &l->v,
                                                       &l->out, &l->up, &l->gate, &l->down};
    for (size_t k = 0; k < BLOCK_LINEARS; k++) put_linear(p->tape, linears[k], i);
    put_norm(p->tape, &l->norm_1, i);
    put_norm(p->tape, &l->norm_2, i);
    tsr__tensor_set_block(p->tape, l->causal, i);
  }
}

/* What belongs to a parameter, or to a part of a unit, is where its block's is. */
static void choose_near(tsr__program *p) {
  tsr__tape *t = p->tape;
  const tsr__schedule *s = &t->schedule;
  uint32_t blocks = t->homes.blocks;
  if (!blocks) return;
  for (size_t i = 0; i < s->parameters.count; i++)
    tsr__tensor_at(t, s->parameters.items[i])->stays_near = true;
  for (size_t i = 0; i < s->blocks.count; i++)
    if (s->blocks.items[i].block < blocks)
      tsr__tensor_at(t, s->blocks.items[i].tensor)->stays_near = false;
  for (size_t i = 0; i < s->sharding.owned.count; i++) /* the first unit has the embeddings */
    tsr__tensor_at(t, s->sharding.owned.items[i])->stays_near =
        !s->sharding.units.items[i].is_block || i - 1 >= blocks;
}

static int declare(tsr__program *p, tsr_error *error) {
  const tsr_model *m = p->model;
  size_t added = m->module_count * m->layers;
  assert(m->layers && p->plan.block_count == m->layers);
  p->layers = TSR__NEW_ARRAY(tsr__model_layer, m->layers);
  p->added = TSR__NEW_ARRAY(tsr__model_linear, added);
  if (!p->layers || !p->added) return tsr__fail_memory(error);
  p->tape->schedule.block_count = (uint32_t)m->layers;
  declare_workspaces(p);
  p->family->declare(p);
  put_blocks(p);
  tsr__program_declare_adapters(p);
  for (size_t i = 0; i < added; i++) {
    const tsr__model_module *module = &m->modules[i / m->layers];
    p->added[i] = tsr__program_declare_linear(p, TSR__PLACE_ADDED, m->width, module->features,
                                              module->has_bias);
  }
  if (scales_loss(p->options)) {
    p->loss_scale = tsr__tensor_declare(p->tape, TSR__DTYPE_F32, TSR__SCALAR, TSR_CATEGORY_BUFFER);
    p->good_steps = tsr__tensor_declare(p->tape, TSR__DTYPE_F32, TSR__SCALAR, TSR_CATEGORY_BUFFER);
  }
  if (p->tape->status) return tsr__tape_explain(p->tape, p->tape->status, error);
  int status = tsr__program_shard(p, error);
  if (status == 0) choose_near(p);
  return status;
}

int tsr__program_init(tsr__program *p, const tsr_model *model, const tsr_simulate_options *options,
                      const tsr__plan *plan, tsr__tape *tape, tsr_error *error) {
  *p = (tsr__program){.model = model,
                      .options = options,
                      .tape = tape,
                      .schedule = &tape->schedule,
                      .batch = or_one(options->batch),
                      .sequence = or_one(options->sequence),
                      .accumulate = or_one(options->accumulate)};
  int status = split_batch(p, error);
  if (status) return status;
  p->family = tsr__model_class_row_of(model->class)->family;
  tape->book = options->book == TSR_BOOK_OWN ? &tsr__book_own : &tsr__book_torch;
  p->is_own = !tape->book->is_torch;
  p->divides_loss = p->is_own && !model->module_count && !options->backward_once;
  if (options->update_in_backward) tape->gradient_stored = tsr__program_update;
  tape->program = p;
  tape->is_grouped = options->accumulation == TSR_ACCUMULATION_GROUPED;
  status = check_sizes(p, error);
  choose_types(p);
  if (status == 0) status = check_precision(p, error);
  if (status == 0) status = check_fp8(p, error);
  if (status == 0) status = check_update(p, error);
  if (status == 0) status = check_optimizer(p, error);
  if (status == 0) status = check_ranks(p, error);
  if (status == 0) status = tsr__program_check_adapters(p, error);
  if (status == 0) status = choose_spaces(p, error);
  if (status == 0) status = choose_plan(p, plan, error);
  if (status == 0) status = choose_attention(p, error);
  if (status == 0) status = choose_evaluation(p, error);
  if (status == 0) status = declare(p, error);
  return status;
}

void tsr__program_release(tsr__program *p) {
  tsr__plan_release(&p->plan);
  tsr__plan_release(&p->evaluation.plan);
  tsr__free(p->layers);
  tsr__free(p->added);
  tsr__free(p->stored);
  tsr__free(p->numbers);
  TSR__VECTOR_FREE(&p->outputs);
  TSR__VECTOR_FREE(&p->cache);
  TSR__VECTOR_FREE(&p->hidden);
  TSR__VECTOR_FREE(&p->losses);
  TSR__VECTOR_FREE(&p->evaluation_losses);
}

uint64_t tsr_model_parameter_count(const tsr_model *model) {
  if (model->graph) return tsr__step_graph_parameters(model->graph);
  static const tsr_simulate_options options = {
      .batch = 1, .sequence = 1, .attention = TSR_ATTENTION_EAGER};
  tsr__tape tape;
  tsr__program program = {0};
  uint64_t count = 0;
  bool ok = tsr__tape_init(&tape, &tsr__book_torch, NULL) &&
            tsr__program_init(&program, model, &options, NULL, &tape, NULL) == 0;
  for (size_t i = 0; ok && i < tape.schedule.parameters.count; i++)
    count += tsr__shape_elements(tsr__tensor_shape(&tape, tape.schedule.parameters.items[i]));
  tsr__program_release(&program);
  tsr__tape_release(&tape);
  return count;
}
