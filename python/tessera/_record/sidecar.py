"""The JSON file next to a snapshot: what the snapshot lacks and only the process knows.

Its rank and place in the mesh; which addresses are which parameters, gradients and optimizer
state; what the card holds besides PyTorch's memory. The schema is in docs/capture.md;
fields are only ever added. Each part is collected separately: what PyTorch does not report is null,
and the rest is still written.

Nothing here waits for the GPU: addresses and sizes are known to the CPU, and cudaMemGetInfo, which
does not synchronise, is called only for devices on which PyTorch holds memory, so that no device
gets a context because of us.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, List, Sequence, Tuple

from .guard import attempt, guarded

if TYPE_CHECKING:
    from .backend import Backend, Numbers
    from .settings import Settings

SCHEMA = "tessera/capture/1"
Watched = List[Tuple[str, Any]]  # names and modules

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_NODE = ("GROUP_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_NODE_RANK")
_ALLOCATOR = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)


# ---- ranks ----


def _from_environment(names: Sequence[str]) -> int | None:
    for name in names:
        value: int | None = attempt(int, os.environ.get(name, ""))
        if value is not None and value >= 0:
            return value
    return None


def _distributed() -> Any:
    """torch.distributed if a process group exists."""
    module = sys.modules.get("torch.distributed")
    if module is None or not attempt(module.is_available, default=False):
        return None
    return module if attempt(module.is_initialized, default=False) else None


def ranks() -> dict[str, Any]:
    """The rank of this process: queried each time, because process groups may be created late."""
    module = _distributed()
    source, rank, world_size = "none", None, None
    if module is not None:
        rank, world_size = attempt(module.get_rank), attempt(module.get_world_size)
        source = "torch.distributed"
    if rank is None:
        rank, world_size = _from_environment(_RANK), _from_environment(_WORLD)
        source = "environment" if rank is not None else "none"
    return {
        "rank": rank or 0,
        "world_size": world_size or 1,
        "local_rank": _from_environment(_LOCAL),
        "node_rank": _from_environment(_NODE),
        "source": source,
    }


def _whole_mesh(mesh: Any) -> Any:
    """The mesh of the job, of which a parameter's mesh may be a slice: that of FSDP lacks the pipeline's axis.

    A slice of a mesh without names, such as the world, is kept: it tells more."""
    root = attempt(mesh._get_root_mesh) if hasattr(mesh, "_get_root_mesh") else None
    if root is None:  # before PyTorch 2.10
        module: Any = sys.modules.get("torch.distributed.device_mesh")
        root = attempt(lambda: module._mesh_resources.get_root_mesh(mesh))
    axes = attempt(lambda: len(root.mesh_dim_names), default=0)
    return root if axes > attempt(lambda: len(mesh.mesh_dim_names), default=0) else mesh


def _device_mesh(models: Watched) -> dict[str, Any] | None:
    """The device mesh of the first parameter that is a DTensor."""
    for _, model in models:
        for parameter in attempt(lambda m=model: list(m.parameters()), default=[]):
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is None:
                continue
            mesh = _whole_mesh(mesh)
            return {
                "names": attempt(lambda m=mesh: list(m.mesh_dim_names)),
                "sizes": attempt(lambda m=mesh: [int(size) for size in m.mesh.shape]),
                "coordinates": attempt(lambda m=mesh: [int(at) for at in m.get_coordinate()]),
                "source": "DTensor",
            }
    return None


_MEGATRON = (
    ("dp", "get_data_parallel_rank", "get_data_parallel_world_size"),
    ("pp", "get_pipeline_model_parallel_rank", "get_pipeline_model_parallel_world_size"),
    ("cp", "get_context_parallel_rank", "get_context_parallel_world_size"),
    ("tp", "get_tensor_model_parallel_rank", "get_tensor_model_parallel_world_size"),
    ("ep", "get_expert_model_parallel_rank", "get_expert_model_parallel_world_size"),
)


def _megatron_mesh() -> dict[str, Any] | None:
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None:
        return None
    rows = []
    for name, rank, size in _MEGATRON:
        at, count = (attempt(getattr(state, ask, None)) for ask in (rank, size))
        if isinstance(at, int) and isinstance(count, int):
            rows.append((name, count, at))
    if not rows:
        return None
    names, sizes, coordinates = (list(column) for column in zip(*rows))
    return {"names": names, "sizes": sizes, "coordinates": coordinates, "source": "Megatron"}


def mesh(models: Watched, given: dict[str, Any] | None) -> Any:
    """Names, sizes and this rank's coordinates; what the user has `given` takes precedence."""
    if given:
        coordinates = [
            value if isinstance(value, int) else attempt(int, value) for value in given.values()
        ]
        return {"names": list(given), "sizes": None, "coordinates": coordinates, "source": "record"}
    return attempt(_device_mesh, models) or attempt(_megatron_mesh)


# ---- versions, devices, allocator ----


def _driver_version() -> str | None:
    """Of NVIDIA's kernel driver, from the file it keeps; no library is loaded for it."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", file.read(4096))
            return found.group(1) if found else None
    except OSError:
        return None


def versions(torch: Any) -> dict[str, str | None]:
    version = getattr(torch, "version", None)
    told = {
        "tessera": getattr(sys.modules.get("tessera"), "__version__", None),
        "python": platform.python_version(),
        "torch": getattr(torch, "__version__", None),
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "driver": _driver_version(),
    }
    for name in (
        "transformers",
        "lightning",
        "pytorch_lightning",
        "deepspeed",
        "accelerate",
        "torch_npu",
    ):
        if name in sys.modules:
            told[name] = getattr(sys.modules[name], "__version__", None)
    return {name: None if value is None else str(value) for name, value in told.items()}


def _devices_in(snapshot: Any) -> list[int]:
    """Devices on which a snapshot has memory, in order."""
    segments = snapshot.get("segments", []) if isinstance(snapshot, dict) else []
    return sorted(
        {segment["device"] for segment in segments if isinstance(segment.get("device"), int)}
    )


def _one_device(backend: Backend, index: int) -> dict[str, Any]:
    free_total = backend.ask("mem_get_info", index)
    free, total = (
        free_total if isinstance(free_total, tuple) and len(free_total) == 2 else (None, None)
    )
    reserved = backend.ask("memory_reserved", index)
    outside = None
    if free is not None and total is not None and reserved is not None:
        outside = max(0, total - free - reserved)
    properties = backend.ask("get_device_properties", index)
    return {
        "device": index,
        "name": backend.ask("get_device_name", index),
        "total_bytes": total if total is not None else getattr(properties, "total_memory", None),
        "free_bytes": free,
        "allocated_bytes": backend.ask("memory_allocated", index),
        "reserved_bytes": reserved,
        "peak_allocated_bytes": backend.ask("max_memory_allocated", index),
        "peak_reserved_bytes": backend.ask("max_memory_reserved", index),
        "outside_pytorch_bytes": outside,
    }


def devices(backend: Backend, snapshot: Any) -> list[dict[str, Any]]:
    indices = attempt(_devices_in, snapshot, default=[])
    current = attempt(backend.current_device)
    if not indices and isinstance(current, int):
        indices = [current]
    return [_one_device(backend, index) for index in indices]


def allocator(backend: Backend) -> dict[str, Any]:
    told = {name: os.environ.get(name) for name in _ALLOCATOR}
    return {"environment": told, "backend": backend.ask("get_allocator_backend")}


# ---- tensors ----


def _local(tensor: Any) -> Any:
    """The part of a DTensor on this rank; any other tensor itself."""
    local = getattr(tensor, "_local_tensor", None)
    return tensor if local is None else local


def _address(pointer: int) -> int | str:
    """From 2**63 on (Intel's addresses) as text, because most JSON readers have signed integers."""
    return pointer if pointer < 2**63 else hex(pointer)


def place(tensor: Any) -> dict[str, Any]:
    """The address and size of a tensor, and of its storage if that differs."""
    tensor = _local(tensor)
    told: dict[str, Any] = {"data_ptr": None, "nbytes": None}
    pointer = attempt(tensor.data_ptr)
    size = attempt(lambda: tensor.numel() * tensor.element_size())
    if isinstance(pointer, int):
        told["data_ptr"] = _address(pointer)
    if isinstance(size, int):
        told["nbytes"] = size
    storage = attempt(lambda: tensor.untyped_storage())
    if storage is not None:
        start = attempt(storage.data_ptr)
        if isinstance(start, int) and start != pointer:
            told["storage_data_ptr"] = _address(start)
            told["storage_nbytes"] = attempt(storage.nbytes)
    return told


def _tensor(name: str | None, tensor: Any) -> dict[str, Any]:
    told = {
        "name": name,
        "shape": attempt(lambda: [int(size) for size in tensor.shape]),
        "dtype": attempt(lambda: str(tensor.dtype)),
        "device": attempt(lambda: str(tensor.device)),
    }
    told.update(place(tensor))
    return told


def _parameter(name: str | None, parameter: Any) -> dict[str, Any]:
    told = _tensor(name, parameter)
    told["requires_grad"] = bool(getattr(parameter, "requires_grad", False))
    # Not `.grad` of a non-leaf, which would warn.
    gradient = parameter.grad if attempt(lambda: parameter.is_leaf, default=True) else None
    told["grad"] = None if gradient is None else place(gradient)
    return told


def models(watched: Watched) -> list[dict[str, Any]]:
    """Parameters and buffers of (name, module) pairs."""
    told = []
    for name, model in watched:
        parameters = attempt(lambda m=model: list(m.named_parameters()), default=[])
        buffers = attempt(lambda m=model: list(m.named_buffers()), default=[])
        told.append(
            {
                "name": name,
                "class": type(model).__name__,
                "parameters": [
                    row for row in (attempt(_parameter, *pair) for pair in parameters) if row
                ],
                "buffers": [row for row in (attempt(_tensor, *pair) for pair in buffers) if row],
            }
        )
    return told


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "element_size")


def _names_by_id(watched: Watched) -> dict[int, str]:
    names: dict[int, str] = {}
    for _, model in watched:
        for name, parameter in attempt(lambda m=model: list(m.named_parameters()), default=[]):
            names.setdefault(id(parameter), name)
    return names


def _optimizer(optimizer: Any, names: dict[int, str]) -> dict[str, Any]:
    parameters: list[tuple[str | None, Any]] = []
    state: list[dict[str, Any]] = []
    totals: dict[str, int] = {}
    for group in getattr(optimizer, "param_groups", []):
        told_names = group.get("param_names") or []
        for i, parameter in enumerate(group.get("params", [])):
            name = names.get(id(parameter)) or (told_names[i] if i < len(told_names) else None)
            parameters.append((name, parameter))
    held = getattr(optimizer, "state", {})
    for index, (name, parameter) in enumerate(parameters):
        entry = held.get(parameter) if parameter in held else None
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if not _is_tensor(value):
                continue
            kind = str(key)
            row: dict[str, Any] = {"parameter": name if name is not None else index, "key": kind}
            row.update(place(value))
            row["device"] = attempt(lambda v=value: str(v.device))
            state.append(row)
            if not str(row["device"]).startswith("cpu"):
                totals[kind] = totals.get(kind, 0) + (row["nbytes"] or 0)
    return {
        "class": type(optimizer).__name__,
        "parameters": len(parameters),
        "state_bytes": sum(totals.values()),
        "state_bytes_by_key": totals,
        "state": state,
    }


def unnamed(optimizers: list[Any], watched: Watched) -> list[dict[str, Any]]:
    """Parameters of optimizers that no watched model names: addresses without names."""
    names = _names_by_id(watched)
    rows = []
    for optimizer in optimizers:
        index = 0  # as in the optimizer's state
        for group in getattr(optimizer, "param_groups", []):
            told_names = group.get("param_names") or []
            for i, parameter in enumerate(group.get("params", [])):
                if id(parameter) not in names:
                    names[id(parameter)] = ""
                    name = told_names[i] if i < len(told_names) else None
                    rows.append({"index": index, **_parameter(name, parameter)})
                index += 1
    return rows


def optimizers(found: list[Any], watched: Watched) -> list[dict[str, Any]]:
    names = _names_by_id(watched)
    return [row for row in (attempt(_optimizer, optimizer, names) for optimizer in found) if row]


# ---- names in the snapshot itself ----


def named_tensors(watched: Watched, found: list[Any], device: str) -> list[tuple[Any, str]]:
    """(tensor, text) of what watched models and optimizers have on a kind of device. The texts name a
    category, which tessera reads."""

    def on_device(tensor: Any) -> bool:
        return str(attempt(lambda: tensor.device, default="")).startswith(device)

    rows = []
    for _, model in watched:
        for name, parameter in attempt(lambda m=model: list(m.named_parameters()), default=[]):
            rows.append((parameter, f"parameter: {name}"))
            is_leaf = attempt(lambda p=parameter: p.is_leaf, default=True)
            gradient = parameter.grad if is_leaf else None
            if gradient is not None:
                rows.append((gradient, f"gradient: {name}.grad"))
        for name, buffer in attempt(lambda m=model: list(m.named_buffers()), default=[]):
            rows.append((buffer, f"parameter: {name}"))
    names = _names_by_id(watched)
    for optimizer in found:
        state = attempt(lambda o=optimizer: list(o.state.items()), default=[])
        for index, (parameter, entry) in enumerate(state):
            name = names.get(id(parameter), f"parameter {index}")
            for key, value in entry.items() if isinstance(entry, dict) else ():
                if _is_tensor(value):
                    rows.append((value, f"optimizer_state: {key} of {name}"))
    return [(_local(tensor), text) for tensor, text in rows if on_device(_local(tensor))]


# ---- the document ----


def _events(snapshot: Any, max_entries: int) -> Any:
    traces = snapshot.get("device_traces", []) if isinstance(snapshot, dict) else []
    return [
        {"device": device, "events": len(trace), "is_full": len(trace) >= max_entries}
        for device, trace in enumerate(traces)
        if trace
    ]


def _exception(error: BaseException | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"class": type(error).__name__, "message": str(error)[:4000]}


def _out_of_memory(numbers: Numbers) -> dict[str, Any] | None:
    """What the allocator passed to its observer; named for what the numbers are, which differs from
    its own names."""
    if not numbers:
        return None
    names = ("device", "segment_bytes", "limit_bytes", "device_free_bytes")
    return dict(zip(names, (int(number) for number in numbers)))


@guarded("the sidecar")
def describe(
    torch: Any, backend: Backend, settings: Settings, snapshot: Any, facts: dict[str, Any]
) -> dict[str, Any]:
    """The document. `facts` is what the recorder knows about this snapshot
    (recorder.Recorder._facts)."""
    now = time.time()
    watched, found = facts["models"], facts["optimizers"]
    return {
        "schema": SCHEMA,
        "snapshot": facts["snapshot"],
        "snapshot_bytes": None,  # filled in when it is written
        "reason": facts["reason"],
        "step": facts["step"],
        "time_us": int(now * 1e6),
        "time": datetime.datetime.fromtimestamp(now, datetime.timezone.utc).isoformat(
            timespec="seconds"
        ),
        "process": {"pid": os.getpid(), "host": attempt(socket.gethostname)},
        "ranks": facts["ranks"],
        "mesh": attempt(mesh, watched, settings.mesh),
        "versions": attempt(versions, torch),
        "recording": {
            "backend": backend.name,
            "stacks": settings.stacks,
            "context": settings.context,
            "max_entries": settings.max_entries,
            "started_us": facts["started_us"],
            "allocated_at_start_bytes": facts["allocated_at_start_bytes"],
            "events": attempt(_events, snapshot, settings.max_entries),
        },
        "devices": attempt(devices, backend, snapshot),
        "card": facts["card"],
        "allocator": attempt(allocator, backend),
        "out_of_memory": attempt(_out_of_memory, facts["out_of_memory"]),
        "exception": attempt(_exception, facts["exception"]),
        "models": attempt(models, watched),
        "other_parameters": attempt(unnamed, found, watched),
        "optimizers": attempt(optimizers, found, watched),
    }
