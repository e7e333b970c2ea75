"""The programs that `tessera doctor` predicts, and runs where there is a GPU.

Each is a function of torch that makes a model and returns its step, as a training script would be written. Together they use what programs use:
optimizers in all forms, autocast, checkpoints, accumulation, the kernels of attention, embeddings, streams, settings of the allocator. Sizes are such that
each takes 20 to 300 MB and a fraction of a second. None needs anything but PyTorch.
"""
import contextlib
from typing import Any, Callable, List, NamedTuple

STEPS = 3  # that are measured, and predicted
TRACED = 7  # that a program makes while it is traced, which ends when two are alike


class Program(NamedTuple):
    """A program, and what is special about it."""
    name: str
    about: str
    make: Callable[[Any], Callable[[], None]]  # of torch: the step
    is_quick: bool = False  # part of --quick
    settings: str = ''  # PYTORCH_CUDA_ALLOC_CONF
    is_predicted: bool = True  # else its snapshot is only read
    needs: 'tuple[int, int]' = (0, 0)  # a compute capability
    above: str = ''  # why a card may take more than what is predicted


def _training(torch: Any, model: Any, batch: Callable[[], Any], loss: Callable[[Any], Any], optimizer: Any = None) -> Callable[[], None]:
    """The usual loop."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss(model(batch())).backward()
        optimizer.step()
    return step


def _block(torch: Any, width: int = 256, attend: Any = None, dropout: float = 0.0) -> Any:
    """A transformer's block."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

        def forward(self, x: Any) -> Any:
            count, rows, _ = x.shape
            q, k, v = self.qkv(self.first(x)).view(count, rows, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
            mixed = (attend or nn.functional.scaled_dot_product_attention)(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(count, rows, width))
            return x + self.mlp(self.second(x))
    return Block()


def _blocks(torch: Any, count: int = 2, **options: Any) -> Any:
    return torch.nn.Sequential(*(_block(torch, **options) for _ in range(count))).cuda()


def _rows(torch: Any, *shape: int, **options: Any) -> Callable[[], Any]:
    return lambda: torch.randn(*shape, device='cuda', **options)


def _square(made: Any) -> Any:
    return made.float().square().mean()


def mlp(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
    classes = torch.randint(0, 10, (256,)).cuda()
    return _training(torch, model, _rows(torch, 256, 1024), lambda made: nn.functional.cross_entropy(made, classes),
                     torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))


def conv(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    layers: List[Any] = []
    for before, after in ((3, 64), (64, 128), (128, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    return _training(torch, model, _rows(torch, 16, 3, 64, 64), _square, torch.optim.SGD(model.parameters(), lr=0.01))


def transformer(torch: Any) -> Callable[[], None]:
    model = _blocks(torch, 4)
    return _training(torch, model, _rows(torch, 8, 256, 256), _square, torch.optim.AdamW(model.parameters(), foreach=True))


def adamw_fused(torch: Any) -> Callable[[], None]:
    model = _blocks(torch)
    return _training(torch, model, _rows(torch, 8, 256, 256), _square, torch.optim.AdamW(model.parameters(), fused=True))


def adam_loop(torch: Any) -> Callable[[], None]:
    model = _blocks(torch)
    return _training(torch, model, _rows(torch, 8, 256, 256), _square, torch.optim.Adam(model.parameters(), foreach=False, amsgrad=True))


def autocast(torch: Any) -> Callable[[], None]:
    model = _blocks(torch)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = model(torch.randn(8, 256, 256, device='cuda')).square().mean()
        loss.backward()
        optimizer.step()
    return step


def scaler(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    # A scale so small that no step of the card is skipped.
    scale = torch.amp.GradScaler('cuda', init_scale=2.0)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast('cuda', dtype=torch.float16):
            loss = _square(model(torch.randn(512, 1024, device='cuda')))
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
    return step


def checkpointing(torch: Any) -> Callable[[], None]:
    from torch.utils.checkpoint import checkpoint
    model = _blocks(torch, 3, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        x = torch.randn(8, 256, 256, device='cuda')
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        _square(x).backward()
        optimizer.step()
    return step


def accumulation(torch: Any) -> Callable[[], None]:
    model = _blocks(torch)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(3):
            (_square(model(torch.randn(4, 256, 256, device='cuda'))) / 3).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return step


def _attention(torch: Any, kernel: str, dtype: Any) -> Callable[[], None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(q: Any, k: Any, v: Any, **options: Any) -> Any:
        with sdpa_kernel(getattr(SDPBackend, kernel)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    model = _blocks(torch, attend=attend).to(dtype)
    return _training(torch, model, _rows(torch, 4, 512, 256, dtype=dtype), _square)


def attention_flash(torch: Any) -> Callable[[], None]:
    return _attention(torch, 'FLASH_ATTENTION', torch.bfloat16)


def attention_efficient(torch: Any) -> Callable[[], None]:
    return _attention(torch, 'EFFICIENT_ATTENTION', torch.float32)


def attention_math(torch: Any) -> Callable[[], None]:
    return _attention(torch, 'MATH', torch.float32)


def embedding(torch: Any) -> Callable[[], None]:
    """All tokens are different, because what backward takes depends on how many are."""
    nn = torch.nn
    model = nn.Sequential(nn.Embedding(20000, 256), nn.Linear(256, 256)).cuda()
    return _training(torch, model, lambda: torch.randperm(20000)[:8192].view(16, 512).cuda(), _square)


def norms(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.Dropout(0.1), nn.SiLU(), nn.Linear(512, 512), nn.RMSNorm(512), nn.Dropout(0.2),
                          nn.Softmax(-1)).cuda()
    return _training(torch, model, _rows(torch, 4096, 512), _square, torch.optim.Adam(model.parameters()))


def streams(torch: Any) -> Callable[[], None]:
    nn = torch.nn
    left, right = nn.Linear(1024, 1024).cuda(), nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()])
    side = torch.cuda.Stream()

    def step() -> None:
        optimizer.zero_grad()
        x = torch.randn(1024, 1024, device='cuda')
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = right(x).relu()
        made = left(x)
        torch.cuda.current_stream().wait_stream(side)
        _square(made + y).backward()
        optimizer.step()
        torch.cuda.synchronize()
    return step


def gpt2(torch: Any) -> Callable[[], None]:
    nn, width, words, rows = torch.nn, 256, 4000, 256

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(rows, width)
            self.blocks = nn.Sequential(*(_block(torch, width, dropout=0.1) for _ in range(3)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            logits = self.head(self.norm(self.blocks(x)))
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return _training(torch, Model().cuda(), lambda: torch.randint(0, words, (8, rows), device='cuda'), lambda loss: loss)


def llama(torch: Any) -> Callable[[], None]:
    nn, width, words, heads = torch.nn, 256, 4000, 8

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = nn.Linear(width, width // 4, bias=False), nn.Linear(width, width // 4, bias=False)
            self.gate, self.up = nn.Linear(width, 704, bias=False), nn.Linear(width, 704, bias=False)
            self.down = nn.Linear(704, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            count, rows, _ = x.shape
            y = self.first(x)
            q, k, v = (layer(y).view(count, rows, -1, width // heads).transpose(1, 2) for layer in (self.q, self.k, self.v))
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            k, v = k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(mixed.transpose(1, 2).reshape(count, rows, width))
            y = self.second(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm, self.head = nn.Embedding(words, width), nn.RMSNorm(width), nn.Linear(width, words, bias=False)
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, ids: Any) -> Any:
            x, places = self.words(ids), torch.arange(ids.shape[1], device=ids.device)
            angles = places[:, None] * 10000 ** (-torch.arange(0, width // heads, 2, device=ids.device) * heads / width)
            angles = torch.cat((angles, angles), dim=-1)
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            for block in self.blocks:
                x = block(x, cos, sin)
            logits = self.head(self.norm(x)).float()
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    model = Model().cuda().to(torch.bfloat16)
    return _training(torch, model, lambda: torch.randint(0, words, (4, 256), device='cuda'), lambda loss: loss)


def lora(torch: Any) -> Callable[[], None]:
    nn = torch.nn

    class Adapted(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.base, self.a, self.b = nn.Linear(1024, 1024), nn.Linear(1024, 16, bias=False), nn.Linear(16, 1024, bias=False)
            self.base.requires_grad_(False)

        def forward(self, x: Any) -> Any:
            return self.base(x) + 2 * self.b(self.a(nn.functional.dropout(x, 0.05)))
    model = nn.Sequential(Adapted(), nn.GELU(), Adapted(), nn.GELU(), Adapted()).cuda()
    return _training(torch, model, _rows(torch, 1024, 1024), _square, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))


def in_backward(torch: Any) -> Callable[[], None]:
    model = _blocks(torch)
    optimizers = {parameter: torch.optim.AdamW([parameter], foreach=False) for parameter in model.parameters()}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def step() -> None:
        _square(model(torch.randn(8, 256, 256, device='cuda'))).backward()
    return step


def cuda_graph(torch: Any) -> Callable[[], None]:
    """A captured forward and backward, whose pool is private."""
    model = _blocks(torch)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x = torch.randn(8, 256, 256, device='cuda')
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            _square(model(x)).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    held: List[Any] = []

    def step() -> None:
        if not held:
            with torch.cuda.graph(graph):
                held.append(_square(model(x)))
                held[0].backward()
        graph.replay()
        optimizer.step()
    return step


def compiled(torch: Any) -> Callable[[], None]:
    model = _blocks(torch)
    return _training(torch, torch.compile(model), _rows(torch, 8, 256, 256), _square, torch.optim.AdamW(model.parameters()))


BF16 = (8, 0)
PROGRAMS = (
    Program('mlp', 'linear layers, SGD with momentum', mlp, True),
    Program('conv', 'convolutions and batch norms, SGD', conv, above='workspaces of cuDNN, which are not predicted'),
    Program('transformer', 'four blocks, AdamW (foreach)', transformer, True),
    Program('adamw-fused', 'two blocks, AdamW (fused)', adamw_fused),
    Program('adam-loop', 'the same, Adam (one parameter after another)', adam_loop),
    Program('autocast', 'the same, autocast to bf16', autocast, True, needs=BF16),
    Program('scaler', 'autocast to fp16 with a GradScaler', scaler),
    Program('checkpointing', 'each block is computed again in backward', checkpointing, True),
    Program('accumulation', 'three batches for each step, gradients clipped', accumulation),
    Program('sdpa-flash', 'flash attention in bf16', attention_flash, needs=BF16),
    Program('sdpa-efficient', 'memory-efficient attention in fp32', attention_efficient),
    Program('sdpa-math', 'attention without a kernel of its own', attention_math),
    Program('embedding', 'a table of 20,000 rows, 8,192 different tokens', embedding),
    Program('norms', 'layer norm, RMS norm, dropout, softmax', norms),
    Program('streams', 'two branches on two CUDA streams', streams),
    Program('gpt2', 'a small GPT-2', gpt2, True),
    Program('llama', 'a small Llama in bf16', llama, needs=BF16),
    Program('lora', 'frozen layers with adapters', lora),
    Program('in-backward', 'each optimizer steps in backward', in_backward),
    Program('expandable', 'the small GPT-2 with expandable segments', gpt2, True, settings='expandable_segments:True'),
    Program('cuda-graph', 'forward and backward in a CUDA graph', cuda_graph, is_predicted=False),
    Program('compile', 'torch.compile', compiled, is_predicted=False),
)


def by_name(name: str) -> Program:
    return next(program for program in PROGRAMS if program.name == name)


def chosen(quick: bool) -> List[Program]:
    return [program for program in PROGRAMS if program.is_quick or not quick]


def run(torch: Any, program: Program, steps: int, around: Callable[[], Any] = contextlib.nullcontext) -> None:
    """Make the program and its steps; `around` is entered before the first and left after the last."""
    torch.manual_seed(0)
    step = program.make(torch)
    with around():
        for _ in range(steps):
            step()
