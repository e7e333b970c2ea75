"""habits.py: programs with the habits that `peak` advises against, and programs that look similar."""
from runs import CALL, MAIN, TORCH, Caching, Fleet, Run, at

UNIT = 4 << 20
ENGINE = ('torch::autograd::Engine::evaluate_function(torch::autograd::Node*)', '??', 0)
GRADIENT = ('torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)', '??', 0)


def forwards(count, held=1, keeps=True, layers=26):
    """Calls of a model, of which `held` are alive at a time, under autograd if it `keeps`."""
    run, alive = Run(UNIT), []
    for _ in range(count):
        while len(alive) >= held:
            for address in alive.pop(0):
                run.give(address)
        alive.append(run.forward([*MAIN, at(40)], layers, keeps=keeps))
    for made in alive:
        for address in made:
            run.give(address)
    return run


def hidden_states(count):
    """Without autograd, but each layer's output is kept until the call is over."""
    run = Run(UNIT)
    for _ in range(count):
        made = []
        for _ in range(26):
            new = run.layer([*MAIN, at(40), CALL, at(12, 'forward', '/work/model.py')])
            for address in new[:-1]:
                run.give(address)
            made.append(new[-1])
        for address in made:
            run.give(address)
    return run


def unfinished():
    """The recording ends with the first forward pass: a backward pass may follow."""
    run = Run(UNIT)
    run.forward([*MAIN, at(40)], keeps=True)
    return run


def died():
    run = Run(UNIT)
    run.forward([*MAIN, at(40)], keeps=True, dies=True)
    return run


def training(steps=3, layers=12, kept_of_last=0):
    """Of each step's graph, the part from `kept_of_last` layers on is freed by its backward pass."""
    run, earlier = Run(UNIT), []
    for _ in range(steps):
        made = run.forward([*MAIN, at(40)], layers, keeps=True)
        cut = 3 * kept_of_last
        run.backward([*MAIN, at(41)], made[cut:])
        run.optimize([*MAIN, at(42)])
        for address in earlier:
            run.give(address)
        earlier = made[:cut]
    return run


def blocks(inner, outer=(10, 20), loop=12, layers=6):
    """Training of a model whose forward calls each block on the line `loop`, and allocates on the lines `outer` itself. `inner`: for
    each tensor that a block keeps, its frames from there on."""
    run = Run(UNIT)
    model = [*MAIN, at(40), CALL]
    for _ in range(3):
        made = [run.take([*model, at(line, 'forward', '/work/model.py')]) for line in outer[:1]]
        for _ in range(layers):
            made += [run.take([*model, at(loop, 'forward', '/work/model.py'), *frames]) for frames in inner]
        made += [run.take([*model, at(line, 'forward', '/work/model.py')]) for line in outer[1:]]
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
    return run


def kept_outputs(steps=4, layers=12, drops=False):
    """Each step's outputs, a few large tensors, live until those of the next step are made, or only for the step."""
    run, outputs = Run(UNIT), []
    for _ in range(steps):
        if drops:
            clear(run, outputs)
        made = run.forward([*MAIN, at(40)], layers, keeps=True)
        new = [run.take([*MAIN, at(40), CALL, at(20, 'forward', '/work/model.py')], 20 * UNIT)]
        for address in outputs:
            run.give(address)
        outputs = new
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
    return run


def retrained(keeps_gradients, makes_model=True, is_average=False):
    """A model is built, trained for a step, and dropped; and another one trained."""
    run = Run(UNIT)

    def build(line, count=6):
        stack = [*MAIN, at(line), ('__init__', TORCH + 'nn/modules/linear.py', 106)]
        return [run.take(stack, 4 * UNIT) for _ in range(count)]

    def step(line, gradients):
        made = run.forward([*MAIN, at(line)], 4, keeps=True)
        for address in reversed(made):
            if len(gradients) < 6:
                gradients.append(run.take([ENGINE, GRADIENT], 4 * UNIT))
            run.give(run.take([ENGINE, ('at::_ops::mm::call', '??', 0)]))
            run.give(address)
        run.optimize([*MAIN, at(line + 2)])

    model, gradients = build(30), []
    step(40, gradients)
    if not keeps_gradients:
        for address in gradients:
            run.give(address)
        gradients = []
    if is_average:
        build(35)
    elif makes_model:
        for address in model:
            run.give(address)
        build(50)
        gradients = []
    for _ in range(2):
        step(60, gradients)
    return run


def caching(spare):
    run = training()
    run.spare_bytes = spare
    return run


STEP = ('step', TORCH + 'optim/adamw.py', 220)
BUILD = [*MAIN, at(30), ('__init__', TORCH + 'nn/modules/linear.py', 106)]
OUTPUT = [*MAIN, at(40), CALL, at(20, 'forward', '/work/model.py')]


def gradients_kept(steps=4, layers=6, clears='after forward', weight=8, block=4):
    """Training of `layers` layers, each with a weight and its gradient. zero_grad() is called right after forward, after
    the optimizer's step, or not at all, in which case gradients are added to."""
    run = Run(UNIT)
    for _ in range(layers):
        run.take(BUILD, weight * UNIT)
    gradients = []
    for _ in range(steps):
        made = run.forward([*MAIN, at(40)], layers * block, keeps=True)
        if clears == 'after forward':
            clear(run, gradients)
        backward_into(run, made, gradients, layers, weight)
        run.optimize([*MAIN, at(43)])
        if clears == 'after step':
            clear(run, gradients)
    return run


def clear(run, gradients):
    while gradients:
        run.give(gradients.pop())


def backward_into(run, made, gradients, layers, weight):
    """A backward pass that makes the gradients that are not there."""
    caller = [*MAIN, at(41), ('backward', TORCH + '_tensor.py', 522)]
    for i, address in enumerate(reversed(made)):
        if len(gradients) < layers and i * layers >= len(gradients) * len(made):
            gradients.append(run.take([*caller, ENGINE, GRADIENT], weight * UNIT))
        run.give(run.take([*caller, ENGINE, ('at::_ops::mm::call', '??', 0)]))
        run.give(address)


def accumulated(steps=3, parts=3, layers=6):
    """Gradients are added up over several forward passes in each step, and dropped after it."""
    run, gradients = Run(UNIT), []
    for _ in range(layers):
        run.take(BUILD, 8 * UNIT)
    for _ in range(steps):
        for _ in range(parts):
            backward_into(run, run.forward([*MAIN, at(40)], layers, keeps=True), gradients, layers, 8)
        run.optimize([*MAIN, at(43)])
        clear(run, gradients)
    return run


def leaking(steps=6, size=8):
    """Each step appends a tensor to a list."""
    run = Run(UNIT)
    for _ in range(steps):
        made = run.forward([*MAIN, at(40)], 6, keeps=True)
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
        run.take([*MAIN, at(44)], int(size * UNIT))
    return run


def states(steps=3, layers=12, weight=8, activation=1, has_state=True):
    """A large model with Adam, or an optimizer without state, and a small batch."""
    run, gradients = Run(UNIT), []
    for _ in range(layers):
        run.take(BUILD, weight * UNIT)
    for step in range(steps):
        made = [run.take(OUTPUT, activation * UNIT) for _ in range(3)]
        clear(run, gradients)
        backward_into(run, made, gradients, 3, weight)
        while len(gradients) < layers:
            gradients.append(run.take([*MAIN, at(41), ENGINE, GRADIENT], weight * UNIT))
        for _ in range(layers if has_state and not step else 0):
            for line in (140, 141):
                run.take([*MAIN, at(43), STEP, ('_init_group', TORCH + 'optim/adamw.py', line)], weight * UNIT)
        run.optimize([*MAIN, at(43)])
    return run


def uneven(outputs=(0, 40, 4), layers=6, is_data_parallel=True):
    """A model on several devices, of which one holds far larger outputs."""
    runs = []
    for size in outputs:
        run = Run(UNIT)
        made = run.forward([*MAIN, at(40)], layers, keeps=True)
        if size:
            gather = [('gather', TORCH + 'nn/parallel/scatter_gather.py', 80)] if is_data_parallel else []
            made.append(run.take([*MAIN, at(40), *gather], size * UNIT))
        run.backward([*MAIN, at(41)], made)
        runs.append(run)
    return Fleet(*runs)


def attending(kind='own', layers=8, steps=2):
    """Attention by a function of the program that calls softmax ('own') or has it fused ('fused'), by PyTorch's, which chose a
    kernel with a softmax ('torch'), and a softmax of something else ('router', 'log')."""
    run = Run(UNIT)
    block = [*MAIN, at(40), CALL, at(12, 'forward', '/work/model.py'), CALL, at(21, 'forward', '/work/layer.py')]
    function = {'router': 'route', 'torch': 'sdpa'}.get(kind, 'multi_head_attention')
    inner = [*block, at(50, function, '/work/layer.py')]
    softmax = {'torch': ('at::_ops::_softmax::call(at::Tensor const&, long, bool)', '??', 0),
               'log': ('log_softmax', TORCH + 'nn/functional.py', 2250)}.get(kind, ('softmax', TORCH + 'nn/functional.py', 2140))
    around = [('at::native::scaled_dot_product_attention(at::Tensor const&)', '??', 0)] if kind == 'torch' else []
    for _ in range(steps):
        made = []
        for _ in range(layers):
            made.append(run.take([*block, CALL, at(30, 'forward', '/work/linear.py')], 3 * UNIT))
            if kind != 'fused':
                made.append(run.take([*inner, *around, softmax], 8 * UNIT))
                made.append(run.take([*inner[:-1], at(51, function, '/work/layer.py')], 4 * UNIT))
            made.append(run.take([*inner[:-1], at(52, function, '/work/layer.py')]))
            made.append(run.take([*block, CALL, at(32, 'forward', '/work/linear.py')], 2 * UNIT))
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
    return run


HOOK = ('new_forward', '/venv/lib/python3.12/site-packages/accelerate/hooks.py', 166)
LLAMA = '/venv/lib/python3.12/site-packages/transformers/models/llama/modeling_llama.py'


def library(trainer=False, hooks=True, qualified=True, layers=12, steps=2, sharded=None):
    """Training of a model of a library, through accelerate's hooks or not. Newer frames have qualified names."""
    run = Run(UNIT)
    main = [*MAIN, at(40)]
    if trainer:
        main.append(('training_step', '/venv/lib/python3.12/site-packages/transformers/trainer.py', 3700))
    if sharded:
        main += [('training_step', f'/venv/lib/python3.12/site-packages/{sharded}', 300),
                 ('forward', TORCH + 'distributed/fsdp/fully_sharded_data_parallel.py', 850)]
    file = '/work/model.py' if sharded else LLAMA
    model = 'LlamaModel.forward' if qualified else 'forward'
    block = 'LlamaDecoderLayer.forward' if qualified else 'forward'
    for _ in range(steps):
        made = []
        for _ in range(layers):
            for line in (301, 305, 309):
                stack = [*main, CALL, (model, file, 412), CALL, *([HOOK] if hooks else []), (block, file, line)]
                made.append(run.take(stack, 2 * UNIT))
        run.backward([*MAIN, at(41)], made)
        run.optimize([*MAIN, at(42)])
    return run


def growing(steps=6, kept=32 << 20, stream=0):
    """Requests that grow: no cached block serves the next, and what is kept of each cuts one."""
    run = Caching(stream=stream)
    for i in range(steps):
        run.give(run.take([*MAIN, at(40)], (100 + 40 * i) << 20))
        if kept:
            run.take([*MAIN, at(41)], kept)
    run.take([*MAIN, at(42)], 400 << 20)
    return run


def one_moment(run, events=0):
    """The same without its history, but for its last few events."""
    run.trace, run.notes = run.trace[len(run.trace) - events:], []
    return run


def late(run, events):
    """The same, recorded from a later event on."""
    run.trace = run.trace[events:]
    return run


def late_training(run):
    """Training, recorded from the second forward pass on."""
    lines = [[frame['line'] for frame in event['frames']] for event in run.trace]
    first = next(i for i, stack in enumerate(lines) if 41 in stack)
    return late(run, next(i for i in range(first, len(lines)) if 40 in lines[i]))
