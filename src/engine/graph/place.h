/* place.h - the named places of a training program.
 *
 * A program (src/engine/models) reports where it is: in which function, calling which part of the model. Lifetimes need the
 * functions, since a function's variables are released when it returns; plans and stacks (tracer.h) need the parts.
 * The names are the model's own. Only src/engine/torch knows PyTorch's name, file and line of a place. */
#ifndef TSR_GRAPH_PLACE_H
#define TSR_GRAPH_PLACE_H

typedef enum tsr__program_place {
  TSR__PLACE_NONE,
  /* The script around the model. */
  TSR__PLACE_MAIN,
  TSR__PLACE_TRAIN, /* the loop over batches */
  TSR__PLACE_LOAD_BATCH,
  TSR__PLACE_EVALUATION,   /* the loop over batches that are not trained on */
  TSR__PLACE_WRAPPER,      /* a model around the model, with added modules: */
  TSR__PLACE_ADDED,        /* one of them, */
  TSR__PLACE_ADDED_MEANS,  /* the means of their results, */
  TSR__PLACE_ADDED_LOSS,   /* which join the loss */
  TSR__PLACE_ADAPTED,      /* a linear layer with an adapter, */
  TSR__PLACE_ADAPTED_4BIT, /* the same, whose weights are in 4 bits, */
  TSR__PLACE_QUANTISED,    /* and a layer with such weights */
  /* The model. */
  TSR__PLACE_MODEL, /* body, head and loss */
  TSR__PLACE_BODY,  /* embedding, blocks, last norm */
  TSR__PLACE_TOKEN_EMBEDDING,
  TSR__PLACE_POSITION_EMBEDDING,
  TSR__PLACE_MASK,       /* made for an attention kernel */
  TSR__PLACE_MASK_EAGER, /* made for attention that is written out */
  TSR__PLACE_ROTARY_TABLE,
  TSR__PLACE_LAST_NORM,
  TSR__PLACE_HEAD,
  TSR__PLACE_LOSS,
  TSR__PLACE_CROSS_ENTROPY,
  TSR__PLACE_CHUNKED_LOSS, /* head and loss at once, some tokens at a time */
  /* Around ops, under autocast. */
  TSR__PLACE_AUTOCAST_CAST, /* an op's input is cast */
  TSR__PLACE_AUTOCAST_EXIT, /* autocast ends, and its cache of casts with it */
  /* A block. */
  TSR__PLACE_BLOCK,
  TSR__PLACE_NORM_1,
  TSR__PLACE_ATTENTION,
  TSR__PLACE_QKV, /* three projections in one */
  TSR__PLACE_Q,
  TSR__PLACE_K,
  TSR__PLACE_V,
  TSR__PLACE_ROTARY,
  TSR__PLACE_CACHE_KEYS,
  TSR__PLACE_CACHE_VALUES,
  TSR__PLACE_ATTEND, /* in one kernel */
  TSR__PLACE_ATTEND_EAGER,
  TSR__PLACE_OUT,
  TSR__PLACE_NORM_2,
  TSR__PLACE_MLP,
  TSR__PLACE_GATE,
  TSR__PLACE_UP,
  TSR__PLACE_ACTIVATION,
  TSR__PLACE_ACTIVATION_EAGER, /* written out as eight operations */
  TSR__PLACE_DOWN,
  TSR__PLACE_DROPOUT,
  /* Recomputation. */
  TSR__PLACE_CHECKPOINT,       /* of any part of the model */
  TSR__PLACE_CHECKPOINT_BLOCK, /* of one block, which its own layer class does */
  TSR__PLACE_CHECKPOINT_KEPT,  /* the same two, not reentrant */
  TSR__PLACE_CHECKPOINT_KEPT_BLOCK,
  TSR__PLACE_REFILL,             /* forward again, as soon as something of it is needed */
  TSR__PLACE_RECOMPUTE,          /* backward of a reentrant one: forward again, */
  TSR__PLACE_RECOMPUTE_BACKWARD, /* and a backward pass through that */
  /* The backward pass. */
  TSR__PLACE_BACKWARD,
  TSR__PLACE_BACKWARD_SEED,   /* the gradient of the loss, which is one */
  TSR__PLACE_BACKWARD_ENGINE, /* waits for the other thread */
  TSR__PLACE_BACKWARD_THREAD, /* has its own stack */
  TSR__PLACE_EVALUATE,        /* one op's turn: */
  TSR__PLACE_NODE,            /* its backward, */
  TSR__PLACE_MATCH_GRADIENT,  /* its gradients brought to the shape and type of its inputs, */
  TSR__PLACE_SUM_GRADIENTS,   /* and added to others; */
  TSR__PLACE_STORE_GRADIENT,  /* or stored in a leaf */
  /* The optimizer. */
  TSR__PLACE_UPDATE_HOOK, /* in backward, of one parameter */
  TSR__PLACE_UNSCALE,     /* the gradient scaler */
  TSR__PLACE_CLIP,        /* gradients are clipped by their norm: */
  TSR__PLACE_TOTAL_NORM,
  TSR__PLACE_CLIP_GRADIENTS,
  TSR__PLACE_ADAMW,
  TSR__PLACE_ADAMW_STATE, /* made in the first step: */
  TSR__PLACE_STATE_COUNT,
  TSR__PLACE_STATE_FIRST,
  TSR__PLACE_STATE_SECOND,
  TSR__PLACE_UPDATE_FOREACH,
  TSR__PLACE_UPDATE_LOOP,
  TSR__PLACE_UPDATE_FUSED,
  TSR__PLACE_SGD,
  TSR__PLACE_ADAFACTOR,
  TSR__PLACE_MUON,
  TSR__PLACE_MUON_ORTHOGONAL,
  TSR__PLACE_BITSANDBYTES,
  TSR__PLACE_COUNT
} tsr__program_place;

#endif
