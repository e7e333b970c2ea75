/* llama.c - Llama, Mistral and Qwen2 as transformers spells them: their modules differ, here, in line
 * numbers alone. See listing.h. */
#include "torch/spell.h"

#define OWN NULL /* the class's file */

/* What stands on a line of each class's file. */
enum {
  MODEL_BODY,
  MODEL_HEAD,
  MODEL_LOSS,
  BODY_EMBEDDING,
  BODY_POSITIONS,
  BODY_MASK,
  BODY_ROTARY,
  BODY_BLOCK,
  BODY_NORM,
  BLOCK_NORM_1,
  BLOCK_ATTENTION,
  BLOCK_ADD_1,
  BLOCK_NORM_2,
  BLOCK_MLP,
  BLOCK_ADD_2,
  ATTENTION_Q,
  ATTENTION_K,
  ATTENTION_V,
  ATTENTION_ROTARY,
  ATTENTION_CACHE,
  ATTENTION_ATTEND,
  ATTENTION_OUT,
  MLP_FORWARD,
  ROTARY_TURN,
  ROTARY_TABLE,
  NORM_SCALE,
  EAGER_ATTENTION,
  LINE_COUNT
};

static const uint16_t llama_lines[LINE_COUNT] = {
    [MODEL_BODY] = 459,       [MODEL_HEAD] = 473,      [MODEL_LOSS] = 477,
    [BODY_EMBEDDING] = 368,   [BODY_POSITIONS] = 375,  [BODY_MASK] = 382,
    [BODY_ROTARY] = 392,      [BODY_BLOCK] = 395,      [BODY_NORM] = 405,
    [BLOCK_NORM_1] = 292,     [BLOCK_ATTENTION] = 294, [BLOCK_ADD_1] = 304,
    [BLOCK_NORM_2] = 308,     [BLOCK_MLP] = 309,       [BLOCK_ADD_2] = 310,
    [ATTENTION_Q] = 236,      [ATTENTION_K] = 237,     [ATTENTION_V] = 238,
    [ATTENTION_ROTARY] = 241, [ATTENTION_CACHE] = 246, [ATTENTION_ATTEND] = 252,
    [ATTENTION_OUT] = 264,    [MLP_FORWARD] = 155,     [ROTARY_TURN] = 138,
    [ROTARY_TABLE] = 103,     [NORM_SCALE] = 67,       [EAGER_ATTENTION] = 191,
};

static const uint16_t mistral_lines[LINE_COUNT] = {
    [MODEL_BODY] = 433,       [MODEL_HEAD] = 447,      [MODEL_LOSS] = 451,
    [BODY_EMBEDDING] = 341,   [BODY_POSITIONS] = 348,  [BODY_MASK] = 356,
    [BODY_ROTARY] = 366,      [BODY_BLOCK] = 369,      [BODY_NORM] = 379,
    [BLOCK_NORM_1] = 229,     [BLOCK_ATTENTION] = 231, [BLOCK_ADD_1] = 241,
    [BLOCK_NORM_2] = 245,     [BLOCK_MLP] = 246,       [BLOCK_ADD_2] = 247,
    [ATTENTION_Q] = 153,      [ATTENTION_K] = 154,     [ATTENTION_V] = 155,
    [ATTENTION_ROTARY] = 158, [ATTENTION_CACHE] = 163, [ATTENTION_ATTEND] = 169,
    [ATTENTION_OUT] = 182,    [MLP_FORWARD] = 47,      [ROTARY_TURN] = 75,
    [ROTARY_TABLE] = 300,     [NORM_SCALE] = 201,      [EAGER_ATTENTION] = 191,
};

static const uint16_t qwen2_lines[LINE_COUNT] = {
    [MODEL_BODY] = 449,       [MODEL_HEAD] = 463,      [MODEL_LOSS] = 467,
    [BODY_EMBEDDING] = 345,   [BODY_POSITIONS] = 352,  [BODY_MASK] = 372,
    [BODY_ROTARY] = 381,      [BODY_BLOCK] = 384,      [BODY_NORM] = 395,
    [BLOCK_NORM_1] = 232,     [BLOCK_ATTENTION] = 234, [BLOCK_ADD_1] = 244,
    [BLOCK_NORM_2] = 248,     [BLOCK_MLP] = 249,       [BLOCK_ADD_2] = 250,
    [ATTENTION_Q] = 153,      [ATTENTION_K] = 154,     [ATTENTION_V] = 155,
    [ATTENTION_ROTARY] = 158, [ATTENTION_CACHE] = 163, [ATTENTION_ATTEND] = 169,
    [ATTENTION_OUT] = 182,    [MLP_FORWARD] = 46,      [ROTARY_TURN] = 74,
    [ROTARY_TABLE] = 303,     [NORM_SCALE] = 201,      [EAGER_ATTENTION] = 191,
};

#define NORM \
  { MODULE, FRAMES({"forward", OWN, NORM_SCALE}), NULL }

static const tsr__listing listings[TSR__PLACE_COUNT] = {
    [TSR__PLACE_MODEL] = {MODULE, FRAMES({"forward", OWN, MODEL_BODY}),
                          LINES({MODEL_BODY, AT(BODY)}, {MODEL_HEAD, AT(HEAD)},
                                {MODEL_LOSS, AT(LOSS)}, {MODEL_LOSS, AT(CHUNKED_LOSS)})},
    [TSR__PLACE_BODY] = {MODULE, FRAMES({"forward", OWN, BODY_EMBEDDING}),
                         LINES({BODY_EMBEDDING, AT(TOKEN_EMBEDDING)}, {BODY_POSITIONS, OP(ARANGE)},
                               {BODY_MASK, AT(MASK)}, {BODY_MASK, AT(MASK_EAGER)},
                               {BODY_ROTARY, AT(ROTARY_TABLE)}, {BODY_BLOCK, AT(BLOCK)},
                               {BODY_BLOCK, AT(CHECKPOINT)}, {BODY_BLOCK, AT(CHECKPOINT_BLOCK)},
                               {BODY_BLOCK, AT(CHECKPOINT_KEPT)},
                               {BODY_BLOCK, AT(CHECKPOINT_KEPT_BLOCK)},
                               {BODY_NORM, AT(LAST_NORM)})},
    [TSR__PLACE_ROTARY_TABLE] = {MODULE, FRAMES({"forward", OWN, ROTARY_TABLE}), NULL},
    [TSR__PLACE_BLOCK] = {MODULE, FRAMES({"forward", OWN, BLOCK_NORM_1}),
                          LINES({BLOCK_NORM_1, AT(NORM_1)}, {BLOCK_ATTENTION, AT(ATTENTION)},
                                {BLOCK_ADD_1, OP(ADD)}, {BLOCK_NORM_2, AT(NORM_2)},
                                {BLOCK_MLP, AT(MLP)}, {BLOCK_ADD_2, OP(ADD)})},
    [TSR__PLACE_ATTENTION] =
        {MODULE, FRAMES({"forward", OWN, ATTENTION_Q}),
         LINES({ATTENTION_Q, AT(Q)}, {ATTENTION_K, AT(K)}, {ATTENTION_V, AT(V)},
               {ATTENTION_ROTARY, AT(ROTARY)}, {ATTENTION_CACHE, AT(CACHE_KEYS)},
               {ATTENTION_CACHE, AT(CACHE_VALUES)}, {ATTENTION_ATTEND, AT(ATTEND)},
               {ATTENTION_ATTEND, AT(ATTEND_EAGER)}, {ATTENTION_ATTEND, AT(CHECKPOINT)},
               {ATTENTION_ATTEND, AT(CHECKPOINT_KEPT)}, {ATTENTION_OUT, AT(OUT)})},
    [TSR__PLACE_ROTARY] = {FUNCTION, FRAMES({"apply_rotary_pos_emb", OWN, ROTARY_TURN}), NULL},
    [TSR__PLACE_ATTEND_EAGER] = {FUNCTION,
                                 FRAMES({"eager_attention_forward", OWN, EAGER_ATTENTION}), NULL},
    [TSR__PLACE_MLP] = {MODULE, FRAMES({"forward", OWN, MLP_FORWARD}), NULL},
    [TSR__PLACE_ACTIVATION] = {MODULE,
                               FRAMES({"forward", TORCH("nn/modules/activation.py"), 473},
                                      {"silu", TORCH("nn/functional.py"), 2371}),
                               NULL},
    [TSR__PLACE_NORM_1] = NORM,
    [TSR__PLACE_NORM_2] = NORM,
    [TSR__PLACE_LAST_NORM] = NORM,
};

#define FILE_OF(name) TRANSFORMERS("models/" name "/modeling_" name ".py")
const tsr__listed_class tsr__listed_llama = {FILE_OF("llama"), llama_lines, listings};
const tsr__listed_class tsr__listed_mistral = {FILE_OF("mistral"), mistral_lines, listings};
const tsr__listed_class tsr__listed_qwen2 = {FILE_OF("qwen2"), qwen2_lines, listings};
