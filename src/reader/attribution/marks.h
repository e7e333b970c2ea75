/* marks.h - what the name and the file of one frame show about what the program was doing. */
#ifndef TSR_ATTRIBUTION_MARKS_H
#define TSR_ATTRIBUTION_MARKS_H

#include "tessera/unstable/columns.h"

typedef enum tsr__mark {
  TSR__MARK_NONE,
  TSR__MARK_PYTHON,    /* Python without any of the meanings below */
  TSR__MARK_FORWARD,   /* some forward function */
  TSR__MARK_CALL,      /* a module is called */
  TSR__MARK_RECOMPUTE, /* checkpointing runs forward again */
  TSR__MARK_UNPACK,    /* C++: a hook returns a saved tensor, as in checkpointing */
  TSR__MARK_BACKWARD,  /* Python that runs, or is run by, autograd's engine */
  TSR__MARK_GRAD,      /* Python that computes some gradient and returns it: torch.autograd.grad */
  TSR__MARK_ENGINE,    /* autograd's engine or a node it runs */
  TSR__MARK_PYTHON_NODE,      /* C++: a node that is a function written in Python */
  TSR__MARK_ACCUMULATE,       /* AccumulateGrad: the gradient of a parameter */
  TSR__MARK_RELEASE,          /* autograd releases what it had saved */
  TSR__MARK_OPTIMIZER,        /* an optimizer's step */
  TSR__MARK_OPTIMIZER_KERNEL, /* C++ that hardly anything but optimizers calls */
  TSR__MARK_STATE,            /* an optimizer creates its state */
  TSR__MARK_OPTIMIZER_SETUP,  /* an optimizer is built or loaded */
  TSR__MARK_GRADIENT_TOOL,    /* clipping, unscaling */
  TSR__MARK_ZERO_GRAD,
  TSR__MARK_DATA,         /* a batch is created or moved */
  TSR__MARK_MODULE_SETUP, /* parameters are created, moved or loaded */
  TSR__MARK_APPLY,        /* Module._apply moves parameters, their gradients, and buffers */
  TSR__MARK_CONSTRUCTOR,  /* some __init__ */
  TSR__MARK_COLLECTIVE,
  TSR__MARK_WORKSPACE,
  TSR__MARK_REPLICA,       /* DataParallel copies the model to the other devices */
  TSR__MARK_SCATTER,       /* DataParallel divides the batch among them */
  TSR__MARK_KV_CACHE,      /* a cache of keys and values is allocated, or added to */
  TSR__MARK_AUTOCAST,      /* C++: autocast casts an operation's input */
  TSR__MARK_AUTOCAST_EXIT, /* autocast ends, and releases the casts that it cached */
  TSR__MARK_SAVES_OUTPUT,  /* C++: an operation whose backward needs its own result */
  TSR__MARK_LIST,          /* a function of a list of tensors */
  TSR__MARK_ATTENTION,     /* Python that ends in such an operation */
  TSR__MARK_TRAINING,      /* a loop or a step of training */
  TSR__MARK_INFERENCE,     /* a loop that generates or evaluates */
  TSR__MARK_GRAD_BUFFER, /* Megatron allocates one buffer of all parameters, one of all gradients */
  TSR__MARK_COUNT
} tsr__mark;

/* Linear in the two texts. */
tsr__mark tsr__mark_of(tsr_text name, tsr_text file);

#endif
