/* block_call.h - who calls a block of a model, and how is it checkpointed? By the frames of its stacks. */
#ifndef TSR_STUDY_BLOCK_CALL_H
#define TSR_STUDY_BLOCK_CALL_H

#include "tessera/unstable/columns.h"
#include "tessera/unstable/findings.h"

/* Whether a path has this part, whose slashes are those of either system. Linear in the path. */
bool tsr__path_has(tsr_text path, const char *part);
/* Whether a function only passes a module's call on: a hook of accelerate, a decorator around a forward. */
bool tsr__frame_passes_on(const tsr_snapshot *snapshot, uint32_t frame);
/* How to checkpoint the blocks that are called at the frame `caller` of a stack. */
tsr_finding_call tsr__checkpoint_call(const tsr_snapshot *snapshot, uint32_t stack,
                                      uint32_t caller);

#endif
