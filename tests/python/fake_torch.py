"""A stand-in for PyTorch: its memory functions with the signatures of each release, recorded calls,
and just enough of modules, optimizers, autograd and annotations for hooks to hang on.

    torch = fake_torch.install("2.11")         # into sys.modules
    torch.fake.calls                           # what was called, in order
    torch.fake.fail.add("_snapshot")           # that function raises from now on
    torch.fake.run_out_of_memory()             # observers are told, then the error is raised
    fake_torch.uninstall()
"""

import importlib
import inspect
import os
import sys
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNLIMITED = sys.maxsize


def prepare():
    """Sees that `import tessera._capture` works: in the installed package, else in the checkout,
    with or without its C extension. Leaves nothing of tessera loaded but, where need be, an empty
    package."""
    if "tessera" in sys.modules:
        return
    try:
        importlib.import_module("tessera._capture")
        is_whole = True
    except ImportError:
        is_whole = False
    for loaded in [name for name in sys.modules if name.split(".")[0] == "tessera"]:
        del sys.modules[loaded]
    if not is_whole:
        package = types.ModuleType("tessera")
        package.__path__ = [os.path.join(ROOT, "python", "tessera")]
        sys.modules["tessera"] = package


def load(name):
    """tessera.NAME, as `prepare` finds it."""
    prepare()
    return importlib.import_module("tessera." + name)


# ---- the signatures ----


def _impl_2_1(enabled="all", context="all", stacks="all", max_entries=UNLIMITED, device=None):
    return locals()


def _impl_2_8(
    enabled="all",
    context="all",
    stacks="all",
    max_entries=UNLIMITED,
    device=None,
    clear_history=False,
    compile_context=False,
    global_record_annotations=False,
):
    return locals()


def _impl_2_11(
    enabled="all",
    context="all",
    stacks="all",
    max_entries=UNLIMITED,
    device=None,
    clear_history=False,
    compile_context=False,
    global_record_annotations=False,
    skip_actions=None,
):
    return locals()


def _impl_2_14(
    enabled="all",
    context="all",
    stacks="all",
    max_entries=UNLIMITED,
    device=None,
    clear_history=False,
    compile_context=False,
    global_record_annotations=False,
    skip_actions=None,
    record_pinned_host_memory=False,
    record_cuda=True,
):
    return locals()


def _impl_xpu(
    enabled="all",
    context="all",
    stacks="all",
    max_entries=UNLIMITED,
    clear_history=False,
    skip_actions=None,
):
    return locals()


def _legacy_2_0(
    enabled,
    record_context=True,
    trace_alloc_max_entries=1,
    trace_alloc_record_context=False,
    device=None,
    record_context_cpp=False,
):
    return locals()


SIGNATURES = {
    "2.0": _legacy_2_0,
    "2.1": _impl_2_1,
    "2.6": _impl_2_1,
    "2.8": _impl_2_8,
    "2.11": _impl_2_11,
    "2.14": _impl_2_14,
    "xpu": _impl_xpu,
    "npu": _impl_2_1,
}


# ---- what a test looks at ----


class Fake:
    """What was called, what is to fail, and the state of the device."""

    def __init__(self):
        self.calls = []
        self.fail = set()
        self.failure = RuntimeError
        self.initialized = True
        self.queued = []
        self.recording = False
        self.observers = []
        self.ranges = []  # ("START" or "END", name)
        self.synchronized = 0
        self.events = 3
        self.padding = None  # something more in each snapshot
        self.snapshot_hook = None
        self.compiling = False
        self.annotations = True
        self.metadata = ""

    def called(self, name):
        return [call for call in self.calls if call[0] == name]

    def call(self, name, **arguments):
        self.calls.append((name, arguments))
        if name in self.fail or "*" in self.fail:
            raise self.failure(f"{name} was told to fail")

    def use_device(self):
        """What the first tensor on the device does."""
        self.initialized = True
        queued, self.queued = self.queued, []
        for function in queued:
            function()

    def run_out_of_memory(self, message="CUDA out of memory. Tried to allocate 20.00 GiB"):
        for observer in self.observers:
            observer(0, 21474836480, 85899345920, 95682560)
        raise sys.modules["torch"].OutOfMemoryError(message)

    def snapshot(self):
        if self.snapshot_hook is not None:
            self.snapshot_hook()
        frames = [{"name": "train", "filename": "train.py", "line": 3}]
        base = 0x7F0000000000
        entry = {"stream": 0, "time_us": 1700000000000000, "frames": frames}
        trace = [
            dict(entry, action="alloc", addr=base + 512 * i, size=512) for i in range(self.events)
        ]
        block = {"requested_size": 512, "state": "active_allocated", "frames": frames}
        blocks = [dict(block, address=base + 512 * i, size=512) for i in range(self.events)]
        used = 512 * self.events
        blocks.append(
            {
                "address": base + used,
                "size": 2097152 - used,
                "requested_size": 0,
                "state": "inactive",
                "frames": [],
            }
        )
        segment = {
            "device": 0,
            "address": base,
            "total_size": 2097152,
            "allocated_size": used,
            "active_size": used,
            "requested_size": used,
            "stream": 0,
            "segment_type": "small",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }
        more = {} if self.padding is None else {"padding": self.padding}
        return {"segments": [segment], "device_traces": [trace], "allocator_settings": {}, **more}


# ---- devices ----


def _memory(fake, kind, version):
    memory = types.ModuleType(f"torch.{kind}.memory")
    signature = SIGNATURES[version]

    def _record_memory_history(enabled="all", *args, **kwargs):
        bound = inspect.signature(signature).bind(enabled, *args, **kwargs)
        fake.call("_record_memory_history", enabled=enabled, **kwargs)
        bound.apply_defaults()
        fake.recording = bool(enabled)

    if version == "npu":  # hides its arguments
        memory._record_memory_history_impl = signature
    else:
        _record_memory_history.__signature__ = inspect.signature(signature)

    def _snapshot(device=None):
        fake.call("_snapshot")
        return fake.snapshot()

    memory._record_memory_history = _record_memory_history
    memory._snapshot = _snapshot
    if version == "2.14":
        _add_names(fake, memory)
    return memory


def _add_names(fake, memory):
    """What 2.14 has for names of memory."""

    def _annotate_tensor(tensor, text):
        fake.call("annotate", tensor=tensor, text=text)

    def _set_memory_metadata(metadata):
        fake.call("metadata", metadata=metadata)
        fake.metadata = metadata

    memory._annotate_tensor = _annotate_tensor
    memory._set_memory_metadata = _set_memory_metadata
    memory._get_memory_metadata = lambda: fake.metadata


def _device_module(fake, kind, version, name):
    module = types.ModuleType(name)
    module.memory = _memory(fake, kind, version)

    def answer(function, value):
        def ask(*arguments, **options):
            fake.call(function)
            return value

        return ask

    module.is_initialized = lambda: fake.initialized
    module.is_available = lambda: True
    module._is_compiled = lambda: True
    module._lazy_call = lambda function: (
        function() if fake.initialized else fake.queued.append(function)
    )
    module.current_device = answer("current_device", 0)
    module.memory_allocated = answer("memory_allocated", 1536)
    module.memory_reserved = answer("memory_reserved", 2097152)
    module.max_memory_allocated = answer("max_memory_allocated", 4096)
    module.max_memory_reserved = answer("max_memory_reserved", 4194304)
    module.reset_peak_memory_stats = answer("reset_peak_memory_stats", None)
    module.mem_get_info = answer("mem_get_info", (75161927680, 85899345920))
    module.get_device_name = answer("get_device_name", "Fake H100")
    module.get_device_properties = answer(
        "get_device_properties", types.SimpleNamespace(total_memory=85899345920)
    )
    module.get_allocator_backend = answer("get_allocator_backend", "native")
    module.empty_cache = answer("empty_cache", None)

    def synchronize(*arguments):
        fake.synchronized += 1

    module.synchronize = synchronize
    return module


# ---- tensors, modules, optimizers ----


class Storage:
    def __init__(self, pointer, size):
        self.pointer, self.size = pointer, size

    def data_ptr(self):
        return self.pointer

    def nbytes(self):
        return self.size


class Tensor:
    is_leaf = True

    def __init__(self, pointer, shape, item=4, device="cuda:0", dtype="torch.float32", offset=0):
        self.pointer, self.shape, self.item, self.device = pointer, shape, item, device
        self.dtype, self.offset = dtype, offset
        self.grad = None
        self.requires_grad = True

    def data_ptr(self):
        return self.pointer + self.offset

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self):
        return self.item

    def untyped_storage(self):
        return Storage(self.pointer, self.numel() * self.item + self.offset)

    def backward(self):
        sys.modules["torch"].autograd.backward(self)


class Handle:
    def __init__(self, table, hook):
        self.table, self.hook = table, hook
        table.append(hook)

    def remove(self):
        if self.hook in self.table:
            self.table.remove(self.hook)


class Module:
    def __init__(self):
        self.before, self.after = [], []
        self.weight = Tensor(0x7F0000000000, (4, 8))
        self.weight.grad = Tensor(0x7F0000000400, (4, 8))
        self.fails = False

    def named_parameters(self):
        return [("layer.weight", self.weight)]

    def parameters(self):
        return [self.weight]

    def named_buffers(self):
        return [("running_mean", Tensor(0x7F0000000800, (8,)))]

    def register_forward_pre_hook(self, hook):
        return Handle(self.before, hook)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        return Handle(self.after, hook)

    def __call__(self, value):
        for hook in list(self.before):
            assert hook(self, (value,)) is None
        try:
            if self.fails:
                raise ValueError("forward fails")
            return value
        finally:
            for hook in list(self.after):
                assert hook(self, (value,), value) is None


_step_hooks = []


class Optimizer:
    def __init__(self, parameters, name="AdamW"):
        self.param_groups = [{"params": list(parameters)}]
        self.state = {}

    def step(self):
        for index, parameter in enumerate(self.param_groups[0]["params"]):
            self.state.setdefault(
                parameter,
                {
                    "step": Tensor(0x1000, (), device="cpu"),
                    "exp_avg": Tensor(0x7F0000010000 + 4096 * index, parameter.shape),
                    "exp_avg_sq": Tensor(0x7F0000020000 + 4096 * index, parameter.shape),
                },
            )
        for hook in list(_step_hooks):
            hook(self, (), {})


def _profiler(fake):
    class record_function:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            fake.call("record_function")
            fake.ranges.append(("START", self.name))
            return self

        def __exit__(self, *error):
            fake.ranges.append(("END", self.name))

    return types.SimpleNamespace(record_function=record_function)


# ---- the whole ----


def build(version="2.11", device="cuda", initialized=True):
    """The modules by name, unconnected to sys.modules."""
    fake = Fake()
    fake.initialized = initialized
    torch = types.ModuleType("torch")
    torch.__path__ = []
    torch.fake = fake
    torch.__version__ = f"{version}.0"
    torch._C = types.ModuleType("torch._C")
    on_cuda = device == "cuda"
    torch.version = types.SimpleNamespace(cuda="12.4" if on_cuda else None, hip=None)
    torch.optim = types.ModuleType("torch.optim")  # which does not tell of its module `optimizer`
    torch.optim.__path__ = []
    torch.optim.Optimizer = Optimizer
    optimizers = types.ModuleType("torch.optim.optimizer")
    optimizers.register_optimizer_step_post_hook = lambda hook: Handle(_step_hooks, hook)

    def backward(*tensors, **options):
        fake.call("backward")

    torch.autograd = types.SimpleNamespace(backward=backward)
    torch.profiler = _profiler(fake)
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: fake.compiling)
    torch.nn = types.SimpleNamespace(Module=Module)
    torch.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
    modules = {"torch": torch, "torch._C": torch._C, "torch.optim": torch.optim}
    modules["torch.optim.optimizer"] = optimizers

    def attach(observer):
        fake.call("attach")
        fake.observers.append(observer)

    if device == "npu":
        npu = types.ModuleType("torch_npu")
        npu._C = types.ModuleType("torch_npu._C")
        npu._C._npu_attach_out_of_memory_observer = attach
        npu.npu = _device_module(fake, "npu", "npu", "torch_npu.npu")
        modules.update({"torch_npu": npu, "torch_npu.npu": npu.npu})
    elif device == "xpu":
        torch.xpu = _device_module(fake, "xpu", "xpu", "torch.xpu")
        modules.update({"torch.xpu": torch.xpu})
    elif on_cuda:
        torch.cuda = _device_module(fake, "cuda", version, "torch.cuda")
        torch.cuda.OutOfMemoryError = torch.OutOfMemoryError
        torch._C._cuda_attach_out_of_memory_observer = attach
        torch._C._cuda_isHistoryEnabled = lambda: fake.recording
        modules.update({"torch.cuda": torch.cuda, "torch.cuda.memory": torch.cuda.memory})
    return modules


def install(version="2.11", device="cuda", initialized=True):
    modules = build(version, device, initialized)
    sys.modules.update(modules)
    return modules["torch"]


def uninstall():
    del _step_hooks[:]
    for name in [name for name in sys.modules if name.split(".")[0] in ("torch", "torch_npu")]:
        del sys.modules[name]


def step_hooks():
    return list(_step_hooks)
