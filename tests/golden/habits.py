"""habits.py: programs with the habits that `peak` advises against, and programs that look similar."""
from runs import CALL, MAIN, TORCH, Run, at

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


def kept_outputs(steps=4):
    """Each step's outputs, a few large tensors, live until those of the next step are made."""
    run, outputs = Run(UNIT), []
    for _ in range(steps):
        made = run.forward([*MAIN, at(40)], 12, keeps=True)
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
