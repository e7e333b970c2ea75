"""What kernels allocate while they run, put into step graphs a second time: in Python, from docs/step-graph.md and not from the code in C.

MemTracker sees fake tensors, and therefore none of this: it is compared with graphs without the key `kernels`.
"""


def _up(value, unit):
    return -(-value // unit) * unit


def _efficient(bits, batch, heads, _kv_heads, rows, _columns, width, value_width):
    sums = 4 * batch * heads * rows
    if bits == 16:
        return [], [sums, 4 * batch * heads * rows * width, -2, -1]
    return [], [4 * batch * heads * rows * value_width, sums, -1, sums, -2, -3]


def _flash(bits, batch, heads, kv_heads, rows, columns, width, _value_width):
    made = [4 * batch * heads * _up(rows, 128), 4 * batch * heads * _up(rows, 128) * _up(width, 32)]
    made += [batch * heads * columns * width * bits // 8] * 2 * (heads != kv_heads)
    return [], [*made, *range(-len(made), 0)]


def _embedding(_bits, indices, features, index_bits):
    if indices <= 3072:
        return [], []
    each = indices * index_bits // 8
    return [each, each], [each, 4 * indices * features, -4, -3, -2, -1]


def _reduction(bits, outputs, inputs, at_once, along, processors, threads):
    """Blocks of up to 512 threads, 32 wide if that suffices. Each thread takes 16 to 256 inputs, and if that leaves processors idle, blocks
    share outputs."""
    def floor(number, most):
        return min(most, 1 << (max(number, 1).bit_length() - 1))
    most = 512 // at_once
    columns, rows = (inputs // along, outputs) if along else (outputs // at_once, inputs)
    columns, rows = floor(columns, most), floor(rows, most)
    height = min(rows, most // min(columns, 32))
    width = min(columns, most // height)
    before = _up(inputs, width) // width if along else inputs
    values = _up(inputs, width * height if along else height) // (width * height if along else height)
    groups = outputs if along else _up(outputs // at_once, width) // width
    places = processors * (threads // (width * height))
    if before < min(16 * height, 256) or values < 256 or groups > places:
        return [], []
    blocks = max(min(-(-places // groups), -(-values // 16)), -(-values // 256))
    if blocks == 1:
        return [], []
    return [], [bits // 8 * outputs * blocks * (1 if along else width * at_once), 4 * groups, -2, -1]


def _norms(bits, tensors, chunks):
    return [bits // 8 * tensors * chunks], [-1]


def _copies(bits, *elements):
    made = [bits // 8 * number for number in elements if number]
    return [], [*made, *range(-len(made), 0)]


# By op: what is made before and after its results. A size makes a temporary, and -n frees the n-th.
TABLE = {
    '_scaled_dot_product_efficient_attention_backward': _efficient,
    '_scaled_dot_product_flash_attention_backward': _flash,
    'embedding_dense_backward': _embedding,
    **dict.fromkeys(('sum', 'sum_dim_IntList', 'mean', 'mean_dim', 'linalg_vector_norm', 'amax', 'amin'), _reduction),
    '_foreach_norm_Scalar': _norms,
    **dict.fromkeys(('mm', 'bmm', 'addmm', 'baddbmm', 'mse_loss', 'smooth_l1_loss', 'binary_cross_entropy'), _copies),
    'huber_loss': lambda bits, elements: ([bits // 8 * elements], [-1]),
}


def without(graph):
    """The graph as fake tensors show it."""
    return {key: value for key, value in graph.items() if key != 'kernels'}


def _op(graph, stack):
    name, _, _ = graph['frames'][graph['stacks'][stack][0]]
    return graph['texts'][name].removeprefix('at::_ops::').removesuffix('::call')


def added(graph):
    """A graph whose slots and instructions have the temporaries. Its places mean nothing any more."""
    slots = {key: list(values) for key, values in graph['slots'].items()}
    inserted = {}  # by place
    for begin, end, bits, sizes in graph['kernels']:
        _, result, stack = graph['instructions'][begin]
        made = []
        for place, steps in zip((begin, end), TABLE[_op(graph, stack)](bits, *sizes)):
            for step in steps:
                if step > 0:
                    made.append(len(slots['bytes']))
                    slots['bytes'].append(step)
                    slots['category'].append('temporary')
                    if 'stream' in slots:
                        slots['stream'].append(slots['stream'][result])
                    inserted.setdefault(place, []).append(['new', made[-1], stack])
                else:
                    inserted.setdefault(place, []).append(['drop', made[-step - 1]])
    instructions = []
    for place, word in enumerate([*graph['instructions'], None]):
        instructions += [*inserted.get(place, []), *([word] if word else [])]
    return {**without(graph), 'slots': slots, 'instructions': instructions}
