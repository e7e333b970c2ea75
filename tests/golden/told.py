"""told.py: random programs, and what is true of each: which loops it has, when its memory peaks, what is alive then, what leaks.

    python3 tests/golden/told.py FOLDER SEED

A program builds a model, and then runs loops, each on a line of its own or in a function of its own: training (data, forward, backward,
optimizer, zero_grad), evaluation without gradients; and single calls of the model. Some have a habit: gradients that stay through the next
forward, outputs of one iteration that live until those of the next exist, a list that grows (somewhere in the iteration), several
micro-batches, an evaluation in some iterations, an optimizer that allocates nothing. Some run all of it again (epochs). Sizes are multiples of 2 MiB, which the allocator always splits off exactly. The truth is written down while the program runs, and nothing here knows how tessera finds it out.
"""
import itertools
import json
import pathlib
import random
import sys

from runs import BASE, CALL, MAIN, SEGMENT, TORCH, Run, at

MODEL = '/work/model.py'
ENGINE = ('torch::autograd::Engine::evaluate_function(torch::autograd::Node*)', '??', 0)
GRADIENT = ('torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)', '??', 0)
HABITS = ('late_zero_grad', 'kept_outputs', 'leak', 'early_leak', 'micro_batches', 'evaluates')


class Told(Run):
    """A program whose memory is known by kind: parameter, gradient, optimizer_state, activation, output, leaked, temporary."""

    def __init__(self, seed):
        super().__init__(1 << 20)
        self.random = random.Random(seed)
        self.kinds, self.bytes, self.peak = {}, 0, {'bytes': -1}
        self.lives, self.steps = [], []  # kind, bytes, first event, past the last one of each allocation; where optimizers' steps end
        self.loops, self.within = [], None  # the loop and the iteration that run
        self.evaluates = False  # within an iteration that trains
        self.model, self.gradients, self.state, self.leaked = [], [], [], []
        self.has_functions = self.random.random() < .3  # each loop is in one
        self.has_state = self.random.random() < .8  # the optimizer has, and allocates
        self.spare = [(BASE, SEGMENT * 16)]  # free blocks: address and size

    def take(self, stack, size=None):
        """At the start of the smallest free block that is large enough, as PyTorch's allocator does."""
        address, spare = min((block for block in self.spare if block[1] >= size), key=lambda block: (block[1], block[0]))
        self.spare.remove((address, spare))
        if spare > size:
            self.spare.append((address + size, spare - size))
        self.live[address] = size
        self.event('alloc', address, size, stack)
        return address

    def give(self, address):
        end = address + self.live[address]
        super().give(address)
        for block in [block for block in self.spare if block[0] == end or sum(block) == address]:
            self.spare.remove(block)
            address, end = min(address, block[0]), max(end, sum(block))
        self.spare.append((address, end - address))

    def size(self, least, most):
        return self.random.randrange(least, most) // 500 + 1 << 21

    # ---- what is alive ----

    def make(self, kind, stack, size):
        address = self.take(stack, size)
        self.kinds[address] = kind
        self.lives.append({'address': address, 'kind': kind, 'bytes': size, 'birth': len(self.trace) - 1, 'death': None})
        self.bytes += size
        if self.bytes > self.peak['bytes']:
            held = {}
            for other, its in self.kinds.items():
                held[its] = held.get(its, 0) + self.live[other]
            self.peak = {'bytes': self.bytes, 'event': len(self.trace) - 1, 'kinds': held, 'phase': self.phase, 'within': self.within,
                         'evaluates': self.evaluates}
        if self.within:
            loop, iteration = self.loops[self.within[0]], self.within[1]
            loop['peaks'][iteration] = max(loop['peaks'][iteration], self.bytes)
            if not self.evaluates:
                loop['trained'][iteration] = max(loop['trained'][iteration], self.bytes)
        return address

    def end(self, address):
        self.bytes -= self.live[address]
        del self.kinds[address]
        self.give(address)
        life = next(life for life in reversed(self.lives) if life['address'] == address)
        life['death'] = len(self.trace) - 1

    def peak_without(self, kind):
        """The peak if memory of a kind lived until the end of its optimizer's step at most."""
        changes = [0] * (len(self.trace) + 1)
        for life in self.lives:
            death = len(self.trace) if life['death'] is None else life['death']
            if life['kind'] == kind:
                death = min([death] + [end for end in self.steps if end > life['birth']])
            changes[life['birth']] += life['bytes']
            changes[death] -= life['bytes']
        return max(itertools.accumulate(changes))

    def at(self, line):
        """The stack of a line of a loop."""
        if not self.has_functions:
            return [*MAIN, at(line)]
        return [*MAIN, at(self.line), at(100 + line, f'loop_{self.line}')]

    # ---- parts of a program ----

    def build(self):
        self.phase = 'build'
        count = self.random.randrange(4, 9)
        for i in range(count):
            stack = [*MAIN, at(30), ('__init__', MODEL, 5 + i), ('__init__', TORCH + 'nn/modules/linear.py', 106)]
            self.model.append(self.make('parameter', stack, self.size(2000, 8000)))

    def layers(self, line, sizes, keeps):
        """A forward; returns what it made that is alive: activations of all layers, or the last layer's."""
        self.phase, made = 'forward', []
        for i, size in enumerate(sizes):
            stack = [*self.at(line), CALL, at(12 + i, 'forward', MODEL), CALL, ('forward', TORCH + 'nn/modules/linear.py', 134)]
            work = self.make('temporary', stack[:-2], size * 2)
            new = self.make('activation', stack, size)
            self.end(work)
            if made and not keeps:
                self.end(made.pop())
            made.append(new)
        return made

    def backward(self, line, made):
        self.phase = 'backward'
        stack = [*self.at(line), ('backward', TORCH + '_tensor.py', 522), ENGINE]
        for i in reversed(range(len(made))):
            work = self.make('temporary', [*stack, ('at::_ops::mm::call', '??', 0)], self.live[made[i]])
            if len(self.gradients) < len(self.model):
                for parameter in self.model[len(self.gradients):len(self.gradients) + -(-len(self.model) // len(made))]:
                    self.gradients.append(self.make('gradient', [*stack, GRADIENT], self.live[parameter]))
            self.end(work)
            self.end(made[i])

    def optimize(self, line):
        self.phase = 'optimizer'
        if not self.has_state:
            return
        stack = [*self.at(line), ('step', TORCH + 'optim/adamw.py', 220)]
        if not self.state:
            for parameter in self.model:
                for own in (166, 170):
                    self.state.append(self.make('optimizer_state', [*stack, ('_init_group', TORCH + 'optim/adamw.py', own)], self.live[parameter]))
        for parameter in self.model:
            self.end(self.make('temporary', [*stack, ('_single_tensor_adamw', TORCH + 'optim/adamw.py', 300)], self.live[parameter]))
        self.steps.append(len(self.trace))

    def zero_grad(self):
        for address in self.gradients:
            self.end(address)
        self.gradients = []

    # ---- loops ----

    def begin(self, what, line, iterations, habit=None):
        """A loop, or more iterations of it."""
        self.line = line
        self.number = next((i for i, loop in enumerate(self.loops) if loop['line'] == line), len(self.loops))
        if self.number == len(self.loops):
            self.loops.append({'what': what, 'line': line, 'iterations': 0, 'habit': habit, 'peaks': [], 'trained': [], 'leak_line': None, 'leak_bytes': 0,
                               'evaluates': 0, 'runs': 0, 'is_first_training': what == 'train' and self.has_state and not self.state})
        self.first = self.loops[self.number]['iterations']
        self.loops[self.number]['iterations'] += iterations
        self.loops[self.number]['runs'] += 1
        for peaks in ('peaks', 'trained'):  # the latter without evaluations within iterations
            self.loops[self.number][peaks] += [0] * iterations

    def iterate(self, iteration):
        self.within = self.number, self.first + iteration
        for peaks in ('peaks', 'trained'):
            self.loops[self.number][peaks][self.first + iteration] = self.bytes

    def leak(self, line, size):
        self.leaked.append(self.make('leaked', self.at(line), size))
        self.loops[self.number].update(leak_line=self.leaked_line(line), leak_bytes=size)

    def leaked_line(self, line):
        return line + 100 * self.has_functions

    def train(self, line, iterations, habit, sizes, leak, every):
        self.begin('train', line, iterations, habit)
        output, batch = [], []
        for i in range(iterations):
            self.iterate(i)
            if habit != 'late_zero_grad':
                self.zero_grad()
            for _ in range(3 if habit == 'micro_batches' else 1):
                self.phase = 'data'
                new = [self.make('input', self.at(line - 1), 2 << 20)]
                for address in batch:
                    self.end(address)
                batch = new
                made = self.layers(line, sizes, keeps=True)
                if habit == 'early_leak':
                    self.leak(line, leak)
                if habit == 'kept_outputs':
                    new = [self.make('output', [*self.at(line), CALL, at(40, 'forward', MODEL)], sizes[0] * 6)]
                    for address in output:
                        self.end(address)
                    output = new
                if habit == 'late_zero_grad':
                    self.zero_grad()
                self.backward(line + 1, made)
            self.optimize(line + 2)
            if habit == 'evaluates' and i % every == every - 1:
                self.evaluates = True
                for _ in range(2 if len(sizes) % 2 else 1):
                    self.loops[self.number]['evaluates'] += 1
                    for address in self.layers(line + 3, sizes, keeps=False):
                        self.end(address)
                self.evaluates = False
            if habit == 'leak':
                self.leak(line + 4, leak)
        for address in output + batch:
            self.end(address)
        self.within = None

    def evaluate(self, line, iterations, habit, sizes, leak):
        self.begin('eval', line, iterations, habit)
        for i in range(iterations):
            self.iterate(i)
            for address in self.layers(line, sizes, keeps=False):
                self.end(address)
            if habit == 'leak':
                self.leak(line + 1, leak)
        self.within = None

    def once(self, line):
        """A single large call: no loop."""
        self.line = line
        for address in self.layers(line, [self.size(9000, 60000) for _ in range(3)], keeps=False):
            self.end(address)


def random_program(seed):
    """The program of a seed."""
    told = Told(seed)
    choose = told.random
    told.build()
    blocks = []
    for number in range(choose.randrange(1, 4)):
        what, line = choose.choice(('train', 'train', 'eval', 'once')), 40 + 10 * number
        sizes, leak = [told.size(1000, 9000) for _ in range(choose.randrange(3, 7))], told.size(200, 1000)
        if what == 'train':
            habit = choose.choice((None, None, *(habit for habit in HABITS if told.has_state or habit != 'micro_batches')))
            blocks.append((told.train, line, choose.randrange(4, 12), habit, sizes, leak, choose.randrange(1, 4)))
        elif what == 'eval':
            blocks.append((told.evaluate, line, choose.randrange(4, 24), choose.choice((None, 'leak')), sizes, leak))
        else:
            blocks.append((told.once, line))
    kinds = [block[0] for block in blocks]
    may_repeat = told.train in kinds and told.once not in kinds  # else all of it is a loop of larger rounds
    for _ in range(choose.choice((1, 1, 2, 3)) if may_repeat else 1):
        for run, *words in blocks:
            run(*words)
    return told


def main():
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    told = random_program(seed)
    told.write(folder / f'told-{seed}.pickle')
    print(json.dumps({'peak': told.peak, 'loops': told.loops}, indent=1))


if __name__ == '__main__':
    main()
