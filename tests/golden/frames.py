"""frames.py: traces whose stacks lack half of their frames, and which categories are right in them."""
# Where another category than the true one is right as well: a recording does not tell buffers from
# parameters, nor what a step keeps for its backward pass from what it computes again.
ALSO = {'buffer': ['parameter'], 'activation': ['recomputed'], 'recomputed': ['activation']}
UNPACK = ('torch::autograd::PySavedVariableHooks::call_unpack_hook()',
          'torch::autograd::SavedVariable::unpack(std::shared_ptr<torch::autograd::Node>) const',
          'torch::autograd::generated::AddBackward0::apply(std::vector<at::Tensor>&&)')


def is_python(frame):
    return frame['filename'].endswith('.py')


def python_alone(frames):
    return [frame for frame in frames if is_python(frame)]


def native_alone(frames):
    return [frame for frame in frames if not is_python(frame)]


def not_reentrant(frames):
    """The same work as a hook of a saved tensor does it: the engine within a node is the one outside, and
    what a node computes again it computes while it unpacks what it saved."""
    frames = native_alone(frames)
    nodes = [i for i, frame in enumerate(frames) if '::PyNode::apply' in frame['name']]
    if not nodes:
        return frames
    inside, outside = frames[:nodes[-1]], frames[nodes[-1] + 1:]
    engine = [i for i, frame in enumerate(inside) if frame['name'].startswith('THPEngine')]
    if engine:
        return inside[:engine[0]] + outside
    return inside + [{'name': name, 'filename': '??', 'line': 0} for name in UNPACK] + outside


def changed(snapshot, change):
    """The snapshot with other frames. Events share their stacks, before and after."""
    stacks = {}
    for trace in snapshot['device_traces']:
        for event in trace:
            frames = event['frames']
            if id(frames) not in stacks:
                stacks[id(frames)] = change(frames)
    return {**snapshot, 'device_traces': [[{**event, 'frames': stacks[id(event['frames'])]}
                                           for event in trace]
                                          for trace in snapshot['device_traces']]}
