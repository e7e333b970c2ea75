/* marks.c - the rules that assign a mark to a frame.
 *
 * One table for Python, whose frames have a function and a file, one for C++, whose frames have the
 * whole signature as name. The first rule that matches decides. A pattern is a list of words; `*` at
 * the ends of a word matches anything:
 *
 *   "step _step *adam*"    exactly step, exactly _step, or adam anywhere
 *
 * The names are those of PyTorch 2.0 to 2.14 and of the libraries that people train with; a path is
 * searched inside the file's, with either kind of slash. */
#include "attribution/marks.h"

#include <string.h>

typedef struct rule {
  const char *file; /* inside the path; "" matches every file */
  const char *names;
  tsr__mark mark;
} rule;

/* Functions that allocate keys and values, in files that are about caches of them. */
#define KV_CACHE_FUNCTIONS                                                                        \
  "__init__ update* _update* lazy_init* early_init* allocate* _allocate* create* _create* init* " \
  "_init* setup* append* insert* reorder_cache batch_* crop"

static const rule python_rules[] = {
    {"torch/utils/checkpoint.py", "unpack_hook recompute_fn backward", TSR__MARK_RECOMPUTE},
    {"checkpoint", "unpack_hook recompute* backward", TSR__MARK_RECOMPUTE},
    {"tensor_parallel/random.py", "backward", TSR__MARK_RECOMPUTE},
    {"", "zero_grad zero_grad_*", TSR__MARK_ZERO_GRAD},
    {"torch/optim/lr_scheduler.py", "*", TSR__MARK_PYTHON},
    {"torch/optim/swa_utils.py", "*", TSR__MARK_PYTHON},
    {"optim", "_init_group _init_state init_state* initialize_state*", TSR__MARK_STATE},
    {"torch/optim/", "__init__ add_param_group load_state_dict __setstate__ _process_value*",
     TSR__MARK_OPTIMIZER_SETUP},
    {"torch/optim/", "*", TSR__MARK_OPTIMIZER},
    {"optim", "__init__", TSR__MARK_OPTIMIZER_SETUP},
    {"optim", "step step_* _step* *_step *adam* *sgd* *_tensor_*", TSR__MARK_OPTIMIZER},
    {"clip_grad.py", "*", TSR__MARK_GRADIENT_TOOL},
    {"grad_scaler.py", "*unscale* step update _maybe_opt_step", TSR__MARK_GRADIENT_TOOL},
    {"", "clip_grad* calc_grad_norm gradient_clipping", TSR__MARK_GRADIENT_TOOL},
    {"torch/autograd/", "grad _engine_run_backward _make_grads _autograd_grad", TSR__MARK_GRAD},
    {"", "backward", TSR__MARK_BACKWARD},
    {"torch/distributed/distributed_c10d.py", "*", TSR__MARK_COLLECTIVE},
    {"torch/distributed/_functional_collectives", "*", TSR__MARK_COLLECTIVE},
    {"torch/distributed/fsdp/", "*all_gather* *reduce_scatter* *unshard* _alloc_storage",
     TSR__MARK_COLLECTIVE},
    {"", "*workspace_buffer* *allocate_workspace*", TSR__MARK_WORKSPACE},
    {"torch/amp/autocast_mode.py", "__exit__", TSR__MARK_AUTOCAST_EXIT},
    {"torch/cuda/amp/autocast_mode.py", "__exit__", TSR__MARK_AUTOCAST_EXIT},
    {"torch/nn/parallel/", "replicate broadcast_coalesced _broadcast_coalesced_reshape",
     TSR__MARK_REPLICA},
    {"torch/nn/parallel/", "scatter scatter_map scatter_kwargs", TSR__MARK_SCATTER},
    {"",
     "*allocate_kv_cache* *alloc_kv_cache* *initialize_kv_cache *initialize_kv_cache_tensors "
     "*init_kv_cache* *create_kv_cache* *setup_kv_cache* allocate_gpu_cache setup_cache "
     "setup_caches *init_memory_pool *insert_kv *update_kv_cache *append_kv*",
     TSR__MARK_KV_CACHE},
    {"cache_engine.py", KV_CACHE_FUNCTIONS, TSR__MARK_KV_CACHE},
    {"kv_cache.py", KV_CACHE_FUNCTIONS, TSR__MARK_KV_CACHE},
    {"kvcache.py", KV_CACHE_FUNCTIONS, TSR__MARK_KV_CACHE},
    {"cache_utils", KV_CACHE_FUNCTIONS, TSR__MARK_KV_CACHE},
    {"static_cache.py", KV_CACHE_FUNCTIONS, TSR__MARK_KV_CACHE},
    {"mem_cache/memory_pool", KV_CACHE_FUNCTIONS, TSR__MARK_KV_CACHE},
    {"torch/utils/data/", "*", TSR__MARK_DATA},
    {"",
     "get_batch next_batch load_batch collate* pin_memory send_to_device _prepare_inputs "
     "batch_to_device move_to_device",
     TSR__MARK_DATA},
    {"torch/functional.py", "einsum", TSR__MARK_LIST},
    {"", "*_ops::einsum::call*", TSR__MARK_LIST},
    {"torch/nn/modules/module.py", "_apply", TSR__MARK_APPLY},
    {"torch/nn/modules/module.py",
     "to cuda half bfloat16 float double load_state_dict _load_from_state_dict convert "
     "to_empty",
     TSR__MARK_MODULE_SETUP},
    {"torch/nn/modules/module.py", "_call_impl _wrapped_call_impl __call__", TSR__MARK_CALL},
    {"torch/nn/", "reset_parameters __init__", TSR__MARK_MODULE_SETUP},
    {"torch/nn/init.py", "*", TSR__MARK_MODULE_SETUP},
    {"torch/nn/parameter.py", "__new__", TSR__MARK_MODULE_SETUP},
    {"", "from_pretrained load_checkpoint load_pretrained* _load_state_dict*",
     TSR__MARK_MODULE_SETUP},
    {"torch/nn/functional.py", "multi_head_attention_forward", TSR__MARK_FORWARD}, /* linear too */
    {"", "*attention_forward scaled_dot_product_attention softmax", TSR__MARK_ATTENTION},
    {"", "forward forward_* *_forward", TSR__MARK_FORWARD},
    {"param_and_grad_buffer.py", "__init__", TSR__MARK_GRAD_BUFFER},
    {"", "__init__", TSR__MARK_CONSTRUCTOR},
    {"",
     "generate generate_* _generate* evaluate evaluate_* evaluation_* predict prediction_step "
     "inference infer infer_* rollout* generate_sequences *_search",
     TSR__MARK_INFERENCE},
    {"",
     "train train_* _train* *_train training_* _training_* *_training_loop fit fit_* _fit* "
     "finetune* fine_tune* pretrain*",
     TSR__MARK_TRAINING},
};

static const rule native_rules[] = {
    {"", "*torch::autograd::AccumulateGrad*", TSR__MARK_ACCUMULATE},
    {"", "*call_unpack_hook*", TSR__MARK_UNPACK},
    {"", "*torch::autograd::deleteNode* *::release_variables* *SavedVariable::reset_data*",
     TSR__MARK_RELEASE},
    {"", "*torch::autograd::PyNode::*", TSR__MARK_PYTHON_NODE},
    {"",
     "*torch::autograd::Engine::* *torch::autograd::Node::operator()* "
     "autograd::engine::evaluate_function*",
     TSR__MARK_ENGINE},
    {"", "torch::optim::*::zero_grad*", TSR__MARK_ZERO_GRAD},
    {"", "torch::optim::*", TSR__MARK_OPTIMIZER},
    {"", "*_fused_adam* *_fused_sgd* *_fused_adagrad* *FusedAdam* *_foreach_*",
     TSR__MARK_OPTIMIZER_KERNEL},
    {"",
     "*Workspace* *getCurrentCUDABlasHandle* *cublasLt* *at::cuda::blas::gemm* "
     "*at::cuda::blas::bgemm* *at::cuda::blas::scaled_gemm* *at::cuda::solver::* "
     "*allocate_workspace*",
     TSR__MARK_WORKSPACE},
    {"", "*torch::cuda::broadcast*", TSR__MARK_REPLICA},
    {"", "*torch::cuda::scatter*", TSR__MARK_SCATTER},
    {"", "*autocast::cached_cast*", TSR__MARK_AUTOCAST},
    {"", "*autocast::clear_cache*", TSR__MARK_AUTOCAST_EXIT},
    {"", "*c10d::* *ncclComm*", TSR__MARK_COLLECTIVE},
    {"",
     "at::_ops::*softmax* at::_ops::*attention* at::_ops::tanh* at::_ops::sigmoid* at::_ops::exp* "
     "at::_ops::relu* at::_ops::sqrt* at::_ops::rsqrt* aten::*softmax* aten::*attention* "
     "aten::tanh* "
     "aten::sigmoid* aten::exp* aten::relu* aten::sqrt* aten::rsqrt*",
     TSR__MARK_SAVES_OUTPUT},
    {"", "torch::nn::*::reset*", TSR__MARK_MODULE_SETUP},
    {"", "torch::nn::*::forward*", TSR__MARK_FORWARD},
};

/* ---- Patterns ---- */

static bool same_at(tsr_text text, size_t at, const char *part, size_t size) {
  for (size_t i = 0; i < size; i++) {
    char byte = text.data[at + i] == '\\' ? '/' : text.data[at + i];
    if (byte != part[i]) return false;
  }
  return true;
}

/* Where `part` begins in the text, from byte `from` on; SIZE_MAX if it is absent. */
static size_t find(tsr_text text, size_t from, const char *part, size_t size) {
  if (!size) return from;
  for (size_t at = from; size <= text.size_bytes && at <= text.size_bytes - size; at++) {
    if (part[0] != '/') { /* a slash may also be a backslash */
      const char *next = memchr(text.data + at, part[0], text.size_bytes - size - at + 1);
      if (!next) return SIZE_MAX;
      at = (size_t)(next - text.data);
    }
    if (same_at(text, at, part, size)) return at;
  }
  return SIZE_MAX;
}

/* Match one word of a pattern: pieces between stars, in order; without a star at an end, the piece there
 * must be at that end of the text. */
static bool word_holds(tsr_text text, const char *word, size_t size) {
  size_t at = 0, from = 0;
  while (true) {
    const char *star = memchr(word + from, '*', size - from);
    size_t piece = star ? (size_t)(star - (word + from)) : size - from;
    size_t found = find(text, at, word + from, piece);
    if (!star && from) { /* the last piece ends the text */
      if (piece > text.size_bytes - at) return false;
      found = text.size_bytes - piece;
      return same_at(text, found, word + from, piece);
    }
    if (found == SIZE_MAX || (!from && found)) return false;
    if (!star) return piece == text.size_bytes;
    at = found + piece;
    from += piece + 1;
  }
}

static bool any_word_holds(tsr_text text, const char *words) {
  while (*words) {
    size_t size = strcspn(words, " ");
    if (word_holds(text, words, size)) return true;
    words += size;
    words += strspn(words, " ");
  }
  return false;
}

static tsr__mark first_rule(const rule *rules, size_t count, tsr_text name, tsr_text file,
                            tsr__mark otherwise) {
  for (size_t i = 0; i < count; i++)
    if (find(file, 0, rules[i].file, strlen(rules[i].file)) != SIZE_MAX &&
        any_word_holds(name, rules[i].names))
      return rules[i].mark;
  return otherwise;
}

/* Python's files end in .py, or are cells and prompts in angle or square brackets. */
static bool is_python(tsr_text file) {
  size_t size = file.size_bytes;
  if (size >= 3 && !memcmp(file.data + size - 3, ".py", 3)) return true;
  return size && file.data[0] == '<';
}

tsr__mark tsr__mark_of(tsr_text name, tsr_text file) {
  if (is_python(file))
    return first_rule(python_rules, sizeof python_rules / sizeof *python_rules, name, file,
                      TSR__MARK_PYTHON);
  return first_rule(native_rules, sizeof native_rules / sizeof *native_rules, name, file,
                    TSR__MARK_NONE);
}
