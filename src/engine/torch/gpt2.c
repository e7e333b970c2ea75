/* gpt2.c - GPT-2 as transformers/models/gpt2/modeling_gpt2.py spells it. See listing.h. */
#include "torch/spell.h"

#define OWN NULL /* the class's file */

/* Its linear layers are Conv1D. */
#define CONV1D \
  { MODULE, FRAMES({"forward", TRANSFORMERS("pytorch_utils.py"), 122}), NULL }

#define NORM                                                           \
  {                                                                    \
    MODULE,                                                            \
        FRAMES({"forward", TORCH("nn/modules/normalization.py"), 229}, \
               {"layer_norm", TORCH("nn/functional.py"), 2901}),       \
        NULL                                                           \
  }

static const tsr__listing listings[TSR__PLACE_COUNT] = {
    [TSR__PLACE_MODEL] = {MODULE, FRAMES({"forward", OWN, 1068}),
                          LINES({1068, AT(BODY)}, {1092, AT(HEAD)}, {1097, AT(LOSS)},
                                {1097, AT(CHUNKED_LOSS)})},
    [TSR__PLACE_BODY] = {MODULE, FRAMES({"forward", OWN, 855}),
                         LINES({855, AT(TOKEN_EMBEDDING)}, {859, OP(ARANGE)},
                               {865, AT(POSITION_EMBEDDING)}, {866, OP(ADD)}, {873, AT(MASK)},
                               {873, AT(MASK_EAGER)}, {909, AT(DROPOUT)}, {925, AT(BLOCK)},
                               {925, AT(CHECKPOINT)}, {925, AT(CHECKPOINT_BLOCK)},
                               {925, AT(CHECKPOINT_KEPT)}, {925, AT(CHECKPOINT_KEPT_BLOCK)},
                               {951, AT(LAST_NORM)})},
    [TSR__PLACE_BLOCK] = {MODULE, FRAMES({"forward", OWN, 412}),
                          LINES({412, AT(NORM_1)}, {413, AT(ATTENTION)}, {424, OP(ADD)},
                                {448, AT(NORM_2)}, {449, AT(MLP)}, {451, OP(ADD)})},
    [TSR__PLACE_ATTENTION] = {MODULE, FRAMES({"forward", OWN, 313}),
                              LINES({313, AT(QKV)}, {326, AT(CACHE_KEYS)}, {326, AT(CACHE_VALUES)},
                                    {345, AT(ATTEND)}, {345, AT(ATTEND_EAGER)},
                                    {345, AT(CHECKPOINT)}, {345, AT(CHECKPOINT_KEPT)},
                                    {358, AT(OUT)}, {359, AT(DROPOUT)})},
    [TSR__PLACE_ATTEND_EAGER] = {FUNCTION, FRAMES({"eager_attention_forward", OWN, 98}), NULL},
    [TSR__PLACE_MLP] = {MODULE, FRAMES({"forward", OWN, 374}),
                        LINES({374, AT(UP)}, {375, AT(ACTIVATION)}, {375, AT(ACTIVATION_EAGER)},
                              {376, AT(DOWN)}, {377, AT(DROPOUT)})},
    [TSR__PLACE_ACTIVATION] = {MODULE, FRAMES({"forward", TRANSFORMERS("activations.py"), 51}),
                               NULL},
    [TSR__PLACE_ACTIVATION_EAGER] = {MODULE,
                                     FRAMES({"forward", TRANSFORMERS("activations.py"), 62}), NULL},
    [TSR__PLACE_NORM_1] = NORM,
    [TSR__PLACE_NORM_2] = NORM,
    [TSR__PLACE_LAST_NORM] = NORM,
    [TSR__PLACE_QKV] = CONV1D,
    [TSR__PLACE_OUT] = CONV1D,
    [TSR__PLACE_UP] = CONV1D,
    [TSR__PLACE_DOWN] = CONV1D,
};

const tsr__listed_class tsr__listed_gpt2 = {TRANSFORMERS("models/gpt2/modeling_gpt2.py"), NULL,
                                            listings};
