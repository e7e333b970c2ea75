/* reentrant.c - see reentrant.h.
 *
 * torch.utils.checkpoint in its reentrant form is an autograd function written in Python. Its
 * backward runs forward again and then its own backward pass. C++ frames do not name it: any
 * such function is a PyNode. But only one that recomputed something needs the engine, so
 * the order of events decides:
 *
 *   at::_ops::mm::call                PyNode::apply  Engine::...   within the node: it recomputes
 *   MmBackward0::apply  Engine::...   PyNode::apply  Engine::...   the engine within the node
 *   at::_ops::sum::call                              Engine::...   outside of it
 *
 * A range of events directly within a node is recomputation if the engine runs within the node just
 * before or after. A user's own function inside a checkpointed block is one node deeper, and has no
 * engine in it. The ranges of a stack vote with their number of events, because two functions may
 * have the same C++ stack. */
#include "attribution/reentrant.h"

#include "base/memory.h"

enum { OUTSIDE = 0 };

/* The depth of a stack in such nodes, and whether the engine runs within the innermost: 2 x depth, + 1
 * if it does. The absent stack is outside. */
typedef struct depths {
  uint32_t *of_stack;
  bool has_engine; /* some stack has the engine within a node */
} depths;

static uint32_t place_of(tsr_stack stack, const uint8_t *mark_of_frame) {
  uint32_t nodes = 0;
  bool is_engine_within = false;
  for (uint32_t i = 0; i < stack.depth; i++) {
    uint8_t mark = mark_of_frame[stack.frames[i]];
    nodes += mark == TSR__MARK_PYTHON_NODE;
    is_engine_within |= mark == TSR__MARK_ENGINE && !nodes;
  }
  return nodes ? 2 * nodes + is_engine_within : OUTSIDE;
}

static bool find_depths(const tsr_snapshot *snapshot, const uint8_t *mark_of_frame, uint32_t count,
                        depths *out) {
  out->of_stack = TSR__NEW_ARRAY(uint32_t, (size_t)count + 1);
  for (uint32_t i = 0; out->of_stack && i < count; i++) {
    out->of_stack[i] = place_of(tsr_snapshot_stack(snapshot, i), mark_of_frame);
    out->has_engine |= out->of_stack[i] % 2;
  }
  return out->of_stack != NULL;
}

/* A range of events of one place has ended, between two others. */
static void vote(const tsr_events *events, uint32_t count, uint64_t first, uint64_t past,
                 bool is_again, int64_t *votes) {
  for (uint64_t i = first; i < past; i++)
    if (events->stack[i] < count) votes[events->stack[i]] += is_again ? 1 : -1;
}

static void count_votes(const tsr_events *events, uint32_t count, const depths *depth,
                        int64_t *votes) {
  uint32_t before = OUTSIDE, now = OUTSIDE;
  uint64_t first = 0;
  for (uint64_t i = 0; i <= events->count; i++) {
    bool is_end = i == events->count;
    uint32_t stack = is_end ? count : events->stack[i];
    if (!is_end && stack >= count) continue; /* no evidence */
    uint32_t place = depth->of_stack[stack];
    if (place == now && !is_end) continue;
    if (now != OUTSIDE && now % 2 == 0)
      vote(events, count, first, i, before == now + 1 || place == now + 1, votes);
    before = now;
    now = place;
    first = i;
  }
}

int tsr__reentrant_find(const tsr_snapshot *snapshot, const uint8_t *mark_of_frame,
                        tsr__roles *roles, tsr_error *error) {
  depths found = {0};
  int64_t *votes = NULL;
  bool ok = find_depths(snapshot, mark_of_frame, roles->count, &found);
  if (ok && found.has_engine) {
    votes = TSR__NEW_ARRAY(int64_t, (size_t)roles->count + 1);
    ok = votes != NULL;
    size_t device_count;
    const uint32_t *devices = tsr_snapshot_devices(snapshot, &device_count);
    for (size_t d = 0; ok && d < device_count; d++) {
      tsr_events events = tsr_snapshot_events(snapshot, devices[d]);
      count_votes(&events, roles->count, &found, votes);
    }
    for (uint32_t i = 0; ok && i < roles->count; i++)
      if (votes[i] > 0 && roles->stacks[i].phase == TSR_PHASE_BACKWARD)
        roles->stacks[i].phase = TSR_PHASE_RECOMPUTE;
  }
  tsr__free(found.of_stack);
  tsr__free(votes);
  return ok ? 0 : tsr__fail_memory(error);
}
