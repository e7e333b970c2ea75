"""Random training scripts for differential.py: the text of a program, made of parts that people combine in their training loops.

A program defines build(device), which makes models, optimizers and whatever else the loop needs on the device, and returns a function
that makes one step on 'cuda', the models and the optimizers. All tensors are smaller than 1 MiB, so that PyTorch's allocator rounds
each of them to 512 bytes. Attention is written out, because its kernel depends on the card.
"""
import random

HEAD = '''
import copy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A part of a model. `again` is how backward runs it again, if it does."""

    def __init__(self, inner, adds, again):
        super().__init__()
        self.inner, self.adds, self.again = inner, adds, again

    def run(self, x):
        return x + self.inner(x) if self.adds else self.inner(x)

    def forward(self, x):
        if self.again is None or not x.requires_grad:
            return self.run(x)
        return checkpoint(self.run, x, use_reentrant=self.again)


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).view(batch, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, rows, width))


class Scaled(nn.Module):
    """Multiplies what it is given in place."""

    def forward(self, x):
        return x.mul_(0.5)


class Model(nn.Module):
    def __init__(self, blocks, width, words, tied):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model, ids):
    return F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
'''

OPTIMIZERS = (
    'torch.optim.SGD({}, lr=0.1)', 'torch.optim.SGD({}, lr=0.1, momentum=0.9)', 'torch.optim.SGD({}, lr=0.1, momentum=0.9, nesterov=True)',
    'torch.optim.SGD({}, lr=0.1, foreach=False)', 'torch.optim.SGD({}, lr=0.1, momentum=0.9, fused=True)', 'torch.optim.Adam({})',
    'torch.optim.Adam({}, amsgrad=True)', 'torch.optim.AdamW({})', 'torch.optim.AdamW({}, foreach=False)', 'torch.optim.AdamW({}, fused=True)',
    'torch.optim.Adagrad({})', 'torch.optim.RMSprop({}, momentum=0.5)', 'torch.optim.Adadelta({})', 'torch.optim.NAdam({})',
    'torch.optim.RAdam({})', 'torch.optim.Adamax({})', 'torch.optim.Adafactor({})', 'torch.optim.ASGD({})', 'torch.optim.Rprop({})')

HOOKS = ('lambda grad: grad * 0.5', 'lambda grad: grad.clamp(-1, 1)', 'lambda grad: None')
CHANGES = ('p.grad.mul_(0.5)', 'p.grad = p.grad * 0.5', 'p.grad.clamp_(-1, 1)')
MODULE_HOOKS = ('model.blocks[0].register_forward_hook(lambda module, given, made: made * 2)',
                'model.head.register_full_backward_hook(lambda module, given, made: None)',
                'model.norm.register_forward_pre_hook(lambda module, given: (given[0] + 1,))')
FROZEN = ('model.words.requires_grad_(False)', 'model.blocks[0].requires_grad_(False)',
          'model.requires_grad_(False); model.head.requires_grad_(True)')
AVERAGES = ('old.lerp_(new, 0.01)', 'old.mul_(0.99).add_(new, alpha=0.01)', 'old.copy_(0.99 * old + 0.01 * new)')
SCHEDULES = ('StepLR(optimizer, 2)', 'CosineAnnealingLR(optimizer, 100)', 'LambdaLR(optimizer, lambda number: 1 / (1 + number))')
ZERO = ('optimizer.zero_grad()', 'optimizer.zero_grad(set_to_none=True)', 'optimizer.zero_grad(set_to_none=False)', 'model.zero_grad()')
CLIP = ('nn.utils.clip_grad_norm_({}, 1.0)', 'nn.utils.clip_grad_value_({}, 1.0)', 'nn.utils.clip_grad_norm_({}, 1.0, foreach=False)')


class Script:
    """One program. `text` is what it says."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.made, self.called, self.value = [], [], None  # value: of numbers that it reads from the card
        self.modules, self.optimizers = ['model'], ['optimizer']
        self.width, self.words = self.pick(32, 64), self.pick(100, 250)
        self.scaled = self.trained = None
        self.in_backward = False
        self.text = self._text()

    def _optimizer(self, params):
        return self.pick(*OPTIMIZERS).format(params)

    def pick(self, *of):
        return self.random.choice(of)

    def may(self, share):
        return self.random.random() < share

    def _block(self):
        width, adds = self.width, self.may(0.6)
        act = self.pick('nn.ReLU()', 'nn.ReLU(inplace=True)', 'nn.GELU()', 'nn.SiLU()', 'nn.Tanh()', 'nn.Sigmoid()')
        norm = self.pick(f'nn.LayerNorm({width}), ', '')
        drop = self.pick(', nn.Dropout(0.1)', '', '')
        scale = ', Scaled()' if self.may(0.05) else ''
        inner = self.pick(f'nn.Sequential({norm}nn.Linear({width}, {2 * width}), {act}{scale}, nn.Linear({2 * width}, {width}){drop})',
                          f'nn.Sequential({norm}Attention({width}){drop})', f'nn.Sequential({norm}nn.Linear({width}, {width}), {act}{scale})')
        return f'Block({inner}, {adds}, {self.pick(None, None, None, False, True)})'

    def _model(self, name):
        blocks = ', '.join(self._block() for _ in range(self.pick(1, 1, 2)))
        self.made.append(f'{name} = Model([{blocks}], {self.width}, {self.words}, {self.may(0.3)}).to(device)')

    # ---- What is made before the first step ----

    def _freeze(self):
        if self.may(0.25):
            self.made.append(self.pick(*FROZEN))
            self.trained = 'trained'
            self.made.append('trained = [p for p in model.parameters() if p.requires_grad]')
        elif self.may(0.5):
            self.trained = 'params'
            self.made.append('params = list(model.parameters())')
        else:
            self.trained = 'model.parameters()'

    def _hooks(self):
        captured = 'params' if self.trained == 'params' else '[p for p in model.parameters() if p.requires_grad]'
        if self.may(0.12):
            self.in_backward = True
            self.optimizers = []
            kind = self._optimizer('[p]')
            self.made += [f'each = {{p: {kind} for p in {captured}}}',
                          'def update(p):', '    each[p].step()', self.pick('    each[p].zero_grad()', '    p.grad = None'),
                          'for p in each:', '    p.register_post_accumulate_grad_hook(update)']
            return
        if self.may(0.2):
            self.made += [f'for p in {captured}:', f'    p.register_hook({self.pick(*HOOKS)})']
        if self.may(0.2):
            self.made += ['def change(p):', f'    {self.pick(*CHANGES)}',
                          f'for p in {captured}:', '    p.register_post_accumulate_grad_hook(change)']
        if self.may(0.15):
            self.made.append(self.pick(*MODULE_HOOKS))

    def _average(self):
        if self.in_backward or not self.may(0.2):
            return
        form = self.pick('averaged', 'multi', 'copy', 'clones')
        if form in ('averaged', 'multi'):
            more = '' if form == 'averaged' else ', multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)'
            self.made.append(f'average = torch.optim.swa_utils.AveragedModel(model{more})')
            self.called.append('average.update_parameters(model)')
        else:
            self.made.append('average = copy.deepcopy(model).requires_grad_(False)' if form == 'copy' else
                             'average = [p.detach().clone() for p in model.parameters()]')
            of = 'average.parameters()' if form == 'copy' else 'average'
            self.called += ['with torch.no_grad():', f'    for old, new in zip({of}, model.parameters()):', f'        {self.pick(*AVERAGES)}']
        if form != 'clones' and self.may(0.8):
            self.modules.append('average')

    def _schedule(self):
        if self.in_backward or not self.may(0.2):
            return
        self.made.append(f'schedule = torch.optim.lr_scheduler.{self.pick(*SCHEDULES)}')
        self.called.append('schedule.step()')

    # ---- The step ----

    def _zero(self):
        if self.in_backward:
            return []
        every = self.trained if self.trained in ('params', 'trained') else 'model.parameters()'
        return self.pick(*([line] for line in ZERO), [f'for p in {every}:', '    p.grad = None'],
                         [f'for p in {every}:', '    if p.grad is not None:', self.pick('        p.grad.zero_()', '        p.grad.detach_().zero_()')], [])

    def _clip(self):
        of = self.trained if self.trained == 'params' else 'model.parameters()'
        return self.pick([], [], *([line.format(of)] for line in CLIP))

    def _losses(self):
        batch, rows = self.pick(2, 3, 4), self.pick(8, 16, 24)
        ids = self.pick(f'ids = torch.randint(0, 100, ({batch}, {rows}), device="cuda")',
                        f'ids = torch.zeros({batch}, {rows}, dtype=torch.long).to("cuda")')
        region = self.pick('', '', '', 'with torch.autocast("cuda", dtype=torch.bfloat16):', 'with torch.autocast("cuda", dtype=torch.float16):')
        lines = [ids, *([region] if region else []), f'{"    " if region else ""}loss = loss_of(model, ids)']
        if 'teacher' in self.modules:
            lines += ['with torch.no_grad():', '    target = teacher(ids)', 'loss = loss + F.mse_loss(model(ids), target)']
        if self.may(0.08):
            lines.append('loss = loss + 0.01 * sum(p.square().sum() for p in model.parameters() if p.requires_grad)')
        if region.endswith('float16):') and not self.in_backward and self.may(0.7):
            self.scaled = self.pick('build', 'step')
        return lines

    def _backward(self, parts):
        loss = 'loss' if parts == 1 else f'(loss / {parts})'
        return [f'scaler.scale({loss}).backward()' if self.scaled else f'{loss}.backward()']

    def _steps(self):
        if self.in_backward:
            return []
        if self.scaled:
            clip = self._clip()
            return [*(['scaler.unscale_(optimizer)', *clip] if clip else []), 'scaler.step(optimizer)', 'scaler.update()']
        return [*self._clip(), 'optimizer.step()']

    def _body(self):
        if not self.in_backward and self.may(0.08):  # without an optimizer
            self.optimizers = []
            every = 'params' if self.trained == 'params' else '[p for p in model.parameters() if p.requires_grad]'
            return [*self._losses(), f'grads = torch.autograd.grad(loss, {every})', 'with torch.no_grad():', f'    for p, grad in zip({every}, grads):',
                    '        p.sub_(grad, alpha=0.1)', *self.pick([], ['del grads, grad'])]
        losses, parts = self._losses(), 1 if self.in_backward else self.pick(1, 1, 1, 2, 3)
        zero, where = self._zero(), self.pick('first', 'between', 'last')
        if self.scaled == 'step':
            losses.insert(0, 'scaler = kept["scaler"] = kept.get("scaler") or torch.amp.GradScaler("cuda")')
        if parts > 1 and where == 'between':
            where = 'first'
        loop = losses + (zero if where == 'between' else []) + self._backward(parts)
        if parts > 1:
            loop = [f'for _ in range({parts}):', *(f'    {line}' for line in loop)]
        return [*(zero if where == 'first' else []), *loop, *self._steps(), *(zero if where == 'last' else []), *self.called]

    def _second(self):
        if self.may(0.12):
            self._model('teacher')
            self.made.append('teacher.requires_grad_(False).eval()')
            self.modules.append('teacher')
        elif self.may(0.1) and not self.in_backward:
            self._model('critic')
            self.made.append(f'second = {self._optimizer("critic.parameters()")}')
            self.modules.append('critic')
            self.optimizers.append('second')
            self.called += ['other = loss_of(critic, ids)', 'second.zero_grad()', 'other.backward()', 'second.step()', *self.pick([], ['del other'])]

    def _text(self):
        self._model('model')
        self._freeze()
        self._hooks()
        self._second()
        if not self.in_backward:
            self.made.append(f'optimizer = {self._optimizer(self.trained)}')
        self._average()
        self._schedule()
        body = self._body()
        if not self.optimizers or self.optimizers == ['second']:
            self.made = [line for line in self.made if not line.startswith(('optimizer =', 'schedule ='))]
            body = [line for line in body if line != 'schedule.step()']
        if self.scaled == 'build':
            self.made.append('scaler = torch.amp.GradScaler("cuda")')
        if self.may(0.1):
            body.append('del loss')
        lines = ['def build(device):', '    torch.manual_seed(0)', '    kept = {}', *(f'    {line}' for line in self.made), '', '    def step():',
                 *(f'        {line}' for line in body), *(['        return loss'] if 'del loss' not in body else []), '',
                 f'    return step, [{", ".join(self.modules)}], [{", ".join(self.optimizers)}]']
        return HEAD + '\n\n' + '\n'.join(lines) + '\n'
