/* common.c - what all models share: the script, modules of torch.nn, the loss, autograd, optimizers,
 * as PyTorch 2.9 and transformers 4.57 spell them. See listing.h.
 *
 * Native frames carry what a wheel without debug information gives: the name of a source file, "??"
 * or nothing, and line 0. */
#include "torch/spell.h"

#define SCRIPT             "train.py"
#define LORA               "/usr/local/lib/python3.12/dist-packages/peft/tuners/lora/layer.py"
#define LORA_4BIT          "/usr/local/lib/python3.12/dist-packages/peft/tuners/lora/bnb.py"
#define AUTOGRAD           TORCH("autograd/__init__.py")
#define GRAPH              TORCH("autograd/graph.py")
#define CHECKPOINT         TORCH("utils/checkpoint.py")
#define CLIP_GRAD          TORCH("nn/utils/clip_grad.py")
#define ADAM               TORCH("optim/adam.py")
#define BITSANDBYTES(file) "/usr/local/lib/python3.12/dist-packages/bitsandbytes/" file
#define OPTIMIZER          TORCH("optim/optimizer.py")
#define FUNCTIONAL         TORCH("nn/functional.py")
#define LOSS_UTILS         TRANSFORMERS("loss/loss_utils.py")
#define MASKING            TRANSFORMERS("masking_utils.py")
#define CACHE              TRANSFORMERS("cache_utils.py")

#define LINEAR \
  { MODULE, FRAMES({"forward", TORCH("nn/modules/linear.py"), 134}), NULL }
#define EMBEDDING                                                                                 \
  {                                                                                               \
    MODULE,                                                                                       \
        FRAMES({"forward", TORCH("nn/modules/sparse.py"), 192}, {"embedding", FUNCTIONAL, 2542}), \
        NULL                                                                                      \
  }
/* What torch.utils.checkpoint puts between the caller and the part. */
#define CHECKPOINT_FRAMES                                                           \
  {"checkpoint", CHECKPOINT, 496}, {"apply", TORCH("autograd/function.py"), 581}, { \
    "forward", CHECKPOINT, 262                                                      \
  }
#define UPDATE(function, line)                                                                   \
  {                                                                                              \
    FUNCTION,                                                                                    \
        FRAMES({"maybe_fallback", OPTIMIZER, 150}, {"adam", ADAM, 953}, {function, ADAM, line}), \
        NULL                                                                                     \
  }

const tsr__listing tsr__listings[TSR__PLACE_COUNT] = {
    /* the script */
    [TSR__PLACE_MAIN] = {FUNCTION, FRAMES({"<module>", SCRIPT, 71}), NULL},
    [TSR__PLACE_TRAIN] = {FUNCTION, FRAMES({"train", SCRIPT, 0}),
                          LINES({52, AT(LOAD_BATCH)}, {54, PHASE(ZERO_GRAD)}, {57, PHASE(FORWARD)},
                                {59, PHASE(BACKWARD)}, {62, PHASE(OPTIMIZER)},
                                {64, PHASE(EVALUATION)})},
    [TSR__PLACE_EVALUATION] = {FUNCTION, FRAMES({"evaluate", SCRIPT, 0}),
                               LINES({76, AT(LOAD_BATCH)}, {77, AT(MODEL)}, {77, AT(WRAPPER)})},
    [TSR__PLACE_WRAPPER] = {MODULE, FRAMES({"forward", SCRIPT, 22}),
                            LINES({22, AT(MODEL)}, {29, AT(ADDED)}, {31, AT(ADDED_MEANS)},
                                  {33, AT(ADDED_LOSS)})},
    [TSR__PLACE_ADDED] = LINEAR,
    [TSR__PLACE_ADAPTED] = {MODULE, FRAMES({"forward", LORA, 1102}), NULL},
    [TSR__PLACE_ADAPTED_4BIT] = {MODULE, FRAMES({"forward", LORA_4BIT, 0}),
                                 LINES({528, AT(QUANTISED)}, {533, OP(CLONE)}, {549, AT(ADDED)},
                                       {549, AT(DROPOUT)}, {549, OP(SCALE)}, {551, OP(CAST)},
                                       {552, OP(ADD)})},
    [TSR__PLACE_QUANTISED] = {MODULE, FRAMES({"forward", BITSANDBYTES("nn/modules.py"), 637}),
                              NULL},
    [TSR__PLACE_CHUNKED_LOSS] =
        {FUNCTION, FRAMES({"chunked_cross_entropy", SCRIPT, 12}, {"forward", SCRIPT, 7}), NULL},

    /* parts of models */
    [TSR__PLACE_TOKEN_EMBEDDING] = EMBEDDING,
    [TSR__PLACE_POSITION_EMBEDDING] = EMBEDDING,
    [TSR__PLACE_HEAD] = LINEAR,
    [TSR__PLACE_Q] = LINEAR,
    [TSR__PLACE_K] = LINEAR,
    [TSR__PLACE_V] = LINEAR,
    [TSR__PLACE_OUT] = LINEAR,
    [TSR__PLACE_GATE] = LINEAR,
    [TSR__PLACE_UP] = LINEAR,
    [TSR__PLACE_DOWN] = LINEAR,
    [TSR__PLACE_DROPOUT] = {MODULE,
                            FRAMES({"forward", TORCH("nn/modules/dropout.py"), 73},
                                   {"dropout", FUNCTIONAL, 1418}),
                            NULL},
    [TSR__PLACE_MASK] = {FUNCTION,
                         FRAMES({"create_causal_mask", MASKING, 825},
                                {"sdpa_mask_recent_torch", MASKING, 391}),
                         NULL},
    [TSR__PLACE_MASK_EAGER] = {FUNCTION,
                               FRAMES({"create_causal_mask", MASKING, 825},
                                      {"eager_mask", MASKING, 508}),
                               NULL},
    [TSR__PLACE_CACHE_KEYS] = {FUNCTION, FRAMES({"update", CACHE, 776}, {"update", CACHE, 119}),
                               NULL},
    [TSR__PLACE_CACHE_VALUES] = {FUNCTION, FRAMES({"update", CACHE, 776}, {"update", CACHE, 120}),
                                 NULL},
    [TSR__PLACE_ATTEND] = {FUNCTION,
                           FRAMES({"sdpa_attention_forward",
                                   TRANSFORMERS("integrations/sdpa_attention.py"), 96}),
                           NULL},
    [TSR__PLACE_LOSS] = {FUNCTION, FRAMES({"ForCausalLMLoss", LOSS_UTILS, 55}),
                         LINES({55, OP(CAST)}, {59, OP(SHIFT_LABELS)}, {67, AT(CROSS_ENTROPY)})},
    [TSR__PLACE_CROSS_ENTROPY] = {FUNCTION,
                                  FRAMES({"fixed_cross_entropy", LOSS_UTILS, 36},
                                         {"cross_entropy", FUNCTIONAL, 3458}),
                                  NULL},

    /* autocast */
    [TSR__PLACE_AUTOCAST_CAST] = {FUNCTION,
                                  FRAMES({"at::autocast::cached_cast(c10::ScalarType, at::Tensor "
                                          "const&, c10::DeviceType)",
                                          "??", 0}),
                                  NULL},
    [TSR__PLACE_AUTOCAST_EXIT] = {FUNCTION,
                                  FRAMES({"__exit__", TORCH("amp/autocast_mode.py"), 398},
                                         {"torch::autograd::clear_autocast_cache", "init.cpp", 0},
                                         {"at::autocast::clear_cache()", "??", 0}),
                                  NULL},

    /* recomputation */
    [TSR__PLACE_CHECKPOINT] = {FUNCTION, FRAMES(CHECKPOINT_FRAMES), NULL},
    [TSR__PLACE_CHECKPOINT_BLOCK] = {FUNCTION,
                                     FRAMES({"__call__", TRANSFORMERS("modeling_layers.py"), 93},
                                            CHECKPOINT_FRAMES),
                                     NULL},
    [TSR__PLACE_CHECKPOINT_KEPT] = {FUNCTION, FRAMES({"checkpoint", CHECKPOINT, 503}), NULL},
    [TSR__PLACE_CHECKPOINT_KEPT_BLOCK] = {FUNCTION,
                                          FRAMES(
                                              {"__call__", TRANSFORMERS("modeling_layers.py"), 93},
                                              {"checkpoint", CHECKPOINT, 503}),
                                          NULL},
    [TSR__PLACE_REFILL] = {FUNCTION,
                           FRAMES(
                               {"torch::autograd::PySavedVariableHooks::call_unpack_hook()", "", 0},
                               {"unpack_hook", CHECKPOINT, 1154},
                               {"_run_fn_with_dynamo_disabled", CHECKPOINT, 1124},
                               {"recompute_fn", CHECKPOINT, 1555}),
                           NULL},
    [TSR__PLACE_RECOMPUTE] = {FUNCTION,
                              FRAMES({"apply", TORCH("autograd/function.py"), 311},
                                     {"backward", CHECKPOINT, 302}),
                              LINES({302, AT(BLOCK)}, {319, AT(RECOMPUTE_BACKWARD)})},
    /* The engine runs a backward pass that a node asks for on the thread of that node (engine.cpp). */
    [TSR__PLACE_RECOMPUTE_BACKWARD] =
        {FUNCTION,
         FRAMES({"backward", AUTOGRAD, 354}, {"_engine_run_backward", GRAPH, 841},
                {"THPEngine_run_backward(_object*, _object*, _object*)", "", 0},
                {"torch::autograd::python::PythonEngine::execute", "", 0},
                {"torch::autograd::Engine::execute", "??", 0},
                {"torch::autograd::python::PythonEngine::execute_with_graph_task", "", 0},
                {"torch::autograd::Engine::execute_with_graph_task", "??", 0},
                {"torch::autograd::Engine::thread_main", "??", 0}),
         NULL},

    /* the backward pass */
    [TSR__PLACE_BACKWARD] = {FUNCTION,
                             FRAMES({"backward", TORCH("_tensor.py"), 625},
                                    {"backward", AUTOGRAD, 347}),
                             LINES({347, AT(BACKWARD_SEED)}, {354, AT(BACKWARD_ENGINE)})},
    [TSR__PLACE_BACKWARD_SEED] = {FUNCTION, FRAMES({"_make_grads", AUTOGRAD, 221}), NULL},
    [TSR__PLACE_BACKWARD_ENGINE] = {FUNCTION, FRAMES({"_engine_run_backward", GRAPH, 841}), NULL},
    [TSR__PLACE_BACKWARD_THREAD] = {THREAD,
                                    FRAMES({"clone3", "??", 0},
                                           {"start_thread", "./nptl/pthread_create.c", 442},
                                           {"execute_native_thread_routine", "thread48.o", 0},
                                           {"torch::autograd::python::PythonEngine::thread_init",
                                            "??", 0},
                                           {"torch::autograd::Engine::thread_init", "??", 0},
                                           {"torch::autograd::Engine::thread_main", "??", 0}),
                                    NULL},
    [TSR__PLACE_EVALUATE] = {FUNCTION,
                             FRAMES({"torch::autograd::Engine::evaluate_function", "??", 0}), NULL},
    [TSR__PLACE_NODE] = {FUNCTION, FRAMES({"torch::autograd::Node::operator()", "??", 0}), NULL},
    [TSR__PLACE_MATCH_GRADIENT] = {FUNCTION,
                                   FRAMES({"torch::autograd::validate_outputs", "engine.cpp", 0}),
                                   NULL},
    [TSR__PLACE_SUM_GRADIENTS] = {FUNCTION,
                                  FRAMES({"torch::autograd::InputBuffer::accumulate",
                                          "input_buffer.cpp", 0}),
                                  NULL},
    [TSR__PLACE_STORE_GRADIENT] = {FUNCTION,
                                   FRAMES({"torch::autograd::AccumulateGrad::apply",
                                           "accumulate_grad.cpp", 0}),
                                   NULL},

    /* the optimizer */
    [TSR__PLACE_UPDATE_HOOK] = {FUNCTION, FRAMES({"update_parameter", SCRIPT, 46}),
                                LINES({46, AT(ADAMW)}, {46, AT(SGD)}, {46, AT(ADAFACTOR)},
                                      {46, AT(MUON)}, {46, AT(BITSANDBYTES)})},
    [TSR__PLACE_UNSCALE] = {FUNCTION, FRAMES({"unscale_", TORCH("amp/grad_scaler.py"), 343}), NULL},
    [TSR__PLACE_CLIP] = {FUNCTION,
                         FRAMES({"_no_grad_wrapper", CLIP_GRAD, 0},
                                {"clip_grad_norm_", CLIP_GRAD, 0}),
                         NULL},
    [TSR__PLACE_TOTAL_NORM] = {FUNCTION,
                               FRAMES({"_no_grad_wrapper", CLIP_GRAD, 0},
                                      {"_get_total_norm", CLIP_GRAD, 0}),
                               NULL},
    [TSR__PLACE_CLIP_GRADIENTS] = {FUNCTION,
                                   FRAMES({"_no_grad_wrapper", CLIP_GRAD, 0},
                                          {"_clip_grads_with_norm_", CLIP_GRAD, 0}),
                                   NULL},
    [TSR__PLACE_ADAMW] = {FUNCTION,
                          FRAMES({"wrapper", OPTIMIZER, 517}, {"_use_grad", OPTIMIZER, 81},
                                 {"step", ADAM, 237}),
                          LINES({237, AT(ADAMW_STATE)}, {247, AT(UPDATE_FOREACH)},
                                {247, AT(UPDATE_LOOP)}, {247, AT(UPDATE_FUSED)})},
    [TSR__PLACE_ADAMW_STATE] = {FUNCTION, FRAMES({"_init_group", ADAM, 0}),
                                LINES({168, AT(STATE_COUNT)}, {177, AT(STATE_FIRST)},
                                      {181, AT(STATE_SECOND)})},
    [TSR__PLACE_UPDATE_FOREACH] = UPDATE("_multi_tensor_adam", 777),
    [TSR__PLACE_UPDATE_LOOP] = UPDATE("_single_tensor_adam", 535),
    [TSR__PLACE_UPDATE_FUSED] = UPDATE("_fused_adam", 0),
    [TSR__PLACE_SGD] = {FUNCTION, FRAMES({"step", TORCH("optim/sgd.py"), 0}), NULL},
    [TSR__PLACE_ADAFACTOR] = {FUNCTION,
                              FRAMES({"step", TORCH("optim/_adafactor.py"), 0},
                                     {"_single_tensor_adafactor", TORCH("optim/_adafactor.py"), 0}),
                              NULL},
    [TSR__PLACE_MUON] = {FUNCTION,
                         FRAMES({"step", TORCH("optim/_muon.py"), 0},
                                {"_single_tensor_muon", TORCH("optim/_muon.py"), 315}),
                         LINES({315, AT(MUON_ORTHOGONAL)})},
    [TSR__PLACE_MUON_ORTHOGONAL] =
        {FUNCTION, FRAMES({"_zeropower_via_newtonschulz", TORCH("optim/_muon.py"), 0}), NULL},
    [TSR__PLACE_BITSANDBYTES] = {FUNCTION,
                                 FRAMES({"step", BITSANDBYTES("optim/optimizer.py"), 0},
                                        {"update_step", BITSANDBYTES("optim/optimizer.py"), 0}),
                                 NULL},
};
