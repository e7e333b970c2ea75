"""simulate() and plan(), with the parameters of these questions as keywords.

Written by gendocs (`./run generate`) from the rows of the questions: change it there.
"""
# pylint: disable=redefined-outer-name,redefined-builtin
from typing import Any, Mapping, Optional, Sequence, Union

from ._answers import Plan
from ._plan import planned
from ._simulate import Simulation, document, file_of, simulated, text_of
from ._snapshot import Snapshot


def simulate(model: Any, *, settings: Optional[str] = None, capacity: Union[None, int, str] = None,
             batch: Optional[int] = None, seq: Optional[int] = None, steps: Optional[int] = None,
             eval_steps: Optional[int] = None, eval_batch: Optional[int] = None, book: Optional[str] = None,
             accumulate: Optional[int] = None, micro_batch: Optional[int] = None, accumulation: Optional[str] = None,
             backward: Optional[str] = None, optimizer: Optional[str] = None, optimizer_in_backward: bool = False,
             clip: Union[None, float, str] = None, dtype: Optional[str] = None, attention: Optional[str] = None,
             gelu: Optional[str] = None, in_place: Optional[str] = None, checkpoint: Optional[str] = None,
             checkpoint_form: Optional[str] = None, loss: Optional[str] = None, master_weights: bool = False,
             loss_scale: Optional[int] = None, loss_scale_window: Optional[int] = None, lora: Optional[int] = None,
             lora_alpha: Union[None, float, str] = None, lora_targets: Optional[str] = None,
             lora_dropout: Union[None, float, str] = None, adapter_dtype: Optional[str] = None,
             quantize: Optional[str] = None, double_quant: bool = False, kbit_training: Optional[str] = None,
             fp8: Optional[str] = None, offload: Optional[str] = None, offload_blocks: Optional[int] = None,
             ranks: Optional[int] = None, zero: Optional[int] = None, replicas: Optional[int] = None,
             bucket: Optional[int] = None, no_overlap: bool = False, kv_cache: bool = True, profile: bool = False,
             top: Optional[int] = None, leak: Optional[str] = None, plan: Union[None, str, Mapping[str, Any]] = None,
             rank: Optional[int] = None, gpu: Optional[str] = None, padding: bool = False,
             routing: Optional[str] = None, rates: Union[None, str, Mapping[str, Any]] = None,
             link: Optional[str] = None, gpus_per_node: Optional[int] = None, network: Optional[str] = None,
             latency: Optional[str] = None, outside: Optional[str] = None,
             machine: Union[None, str, Mapping[str, Any]] = None, fresh_process: bool = False,
             checkpoint_modules: Optional[str] = None, offload_modules: Optional[str] = None,
             optimizer_form: Optional[str] = None, categories: bool = False, **more: Any) -> Simulation:
    """Run training steps on the model of PyTorch's allocator, and return what they need.

    `model` is a name (see models()), the path of a config.json, or its content. What is not given has
    the command's default. `plan` and `rates` are paths of such files, or their contents.
    """
    return simulated(model, {
        'settings': settings or None, 'capacity': capacity or None, 'batch': batch, 'seq': seq, 'steps': steps,
        'eval_steps': eval_steps, 'eval_batch': eval_batch, 'book': book, 'accumulate': accumulate,
        'micro_batch': micro_batch, 'accumulation': accumulation, 'backward': backward, 'optimizer': optimizer,
        'optimizer_in_backward': optimizer_in_backward or None, 'clip': text_of(clip), 'dtype': dtype,
        'attention': attention, 'gelu': gelu, 'in_place': in_place, 'checkpoint': checkpoint,
        'checkpoint_form': checkpoint_form, 'loss': loss, 'master_weights': master_weights or None,
        'loss_scale': loss_scale, 'loss_scale_window': loss_scale_window, 'lora': lora,
        'lora_alpha': text_of(lora_alpha), 'lora_targets': lora_targets, 'lora_dropout': text_of(lora_dropout),
        'adapter_dtype': adapter_dtype, 'quantize': quantize, 'double_quant': double_quant or None,
        'kbit_training': kbit_training, 'fp8': fp8, 'offload': offload, 'offload_blocks': offload_blocks,
        'ranks': ranks, 'zero': zero, 'replicas': replicas, 'bucket': bucket, 'no_overlap': no_overlap or None,
        'no_kv_cache': not kv_cache or None, 'profile': profile or None, 'top': top, 'leak': leak,
        'plan': file_of(plan), 'rank': rank, 'gpu': gpu, 'padding': padding or None, 'routing': routing,
        'rates': file_of(rates), 'link': link, 'gpus_per_node': gpus_per_node, 'network': network, 'latency': latency,
        'outside': outside, 'machine': file_of(machine), 'fresh_process': fresh_process or None,
        'checkpoint_modules': checkpoint_modules, 'offload_modules': offload_modules, 'optimizer_form': optimizer_form,
        'categories': categories or None, **more})


def plan(model: Any = None, *, show: bool = False, plan: Union[None, str, Mapping[str, Any]] = None,
         budget: Union[None, int, str] = None, host_budget: Union[None, int, str] = None, allow: Optional[str] = None,
         largest: Optional[str] = None, front: bool = False, ways: bool = False,
         target: Union[None, str, Sequence[str]] = None, explain: bool = False, compare: bool = False,
         gpus: Optional[int] = None, tp: Optional[int] = None, lora_rank: Optional[int] = None,
         parameters: Optional[int] = None, largest_layer: Optional[int] = None, gpu: Optional[str] = None,
         padding: bool = False, routing: Optional[str] = None, rates: Union[None, str, Mapping[str, Any]] = None,
         link: Optional[str] = None, gpus_per_node: Optional[int] = None, network: Optional[str] = None,
         latency: Optional[str] = None, outside: Optional[str] = None,
         machine: Union[None, str, Mapping[str, Any]] = None, recorded: Optional[Snapshot] = None,
         book: Optional[str] = None, batch: Optional[int] = None, seq: Optional[int] = None,
         steps: Optional[int] = None, work_limit: Optional[int] = None, time_limit: Optional[int] = None,
         accumulate: Optional[int] = None, micro_batch: Optional[int] = None, accumulation: Optional[str] = None,
         backward: Optional[str] = None, optimizer: Optional[str] = None, optimizer_in_backward: bool = False,
         clip: Union[None, float, str] = None, dtype: Optional[str] = None, attention: Optional[str] = None,
         gelu: Optional[str] = None, in_place: Optional[str] = None, checkpoint: Optional[str] = None,
         checkpoint_form: Optional[str] = None, loss: Optional[str] = None, master_weights: bool = False,
         loss_scale: Optional[int] = None, loss_scale_window: Optional[int] = None, lora: Optional[int] = None,
         lora_alpha: Union[None, float, str] = None, lora_targets: Optional[str] = None,
         lora_dropout: Union[None, float, str] = None, adapter_dtype: Optional[str] = None,
         quantize: Optional[str] = None, double_quant: bool = False, kbit_training: Optional[str] = None,
         fp8: Optional[str] = None, offload: Optional[str] = None, offload_blocks: Optional[int] = None,
         ranks: Optional[int] = None, zero: Optional[int] = None, replicas: Optional[int] = None,
         bucket: Optional[int] = None, no_overlap: bool = False, no_kv_cache: bool = False, **more: Any) -> Plan:
    """Find the fastest plan with which a training fits into a budget, or list what each technique saves and costs.

    `model` is a name (see models()), the path of a config.json or of a step graph, or its content. What is not given has the
    command's default. `plan` and `rates` are paths of such files, or their contents. `recorded` is a snapshot of a run (`--from`),
    and `target` a program in whose words the plan is given, too (`--for`).
    """
    return planned(model, {
        'show': show or None, 'plan': file_of(plan), 'budget': budget or None, 'host_budget': host_budget or None,
        'allow': allow, 'largest': largest, 'front': front or None, 'ways': ways or None, 'for': target,
        'explain': explain or None, 'compare': compare or None, 'gpus': gpus, 'tp': tp, 'lora_rank': lora_rank,
        'parameters': parameters, 'largest_layer': largest_layer, 'gpu': gpu, 'padding': padding or None,
        'routing': routing, 'rates': file_of(rates), 'link': link, 'gpus_per_node': gpus_per_node, 'network': network,
        'latency': latency, 'outside': outside, 'machine': file_of(machine), 'book': book, 'batch': batch, 'seq': seq,
        'steps': steps, 'work_limit': work_limit, 'time_limit': time_limit, 'accumulate': accumulate,
        'micro_batch': micro_batch, 'accumulation': accumulation, 'backward': backward, 'optimizer': optimizer,
        'optimizer_in_backward': optimizer_in_backward or None, 'clip': text_of(clip), 'dtype': dtype,
        'attention': attention, 'gelu': gelu, 'in_place': in_place, 'checkpoint': checkpoint,
        'checkpoint_form': checkpoint_form, 'loss': loss, 'master_weights': master_weights or None,
        'loss_scale': loss_scale, 'loss_scale_window': loss_scale_window, 'lora': lora,
        'lora_alpha': text_of(lora_alpha), 'lora_targets': lora_targets, 'lora_dropout': text_of(lora_dropout),
        'adapter_dtype': adapter_dtype, 'quantize': quantize, 'double_quant': double_quant or None,
        'kbit_training': kbit_training, 'fp8': fp8, 'offload': offload, 'offload_blocks': offload_blocks,
        'ranks': ranks, 'zero': zero, 'replicas': replicas, 'bucket': bucket, 'no_overlap': no_overlap or None,
        'no_kv_cache': no_kv_cache or None, **more}, recorded)


document(simulate, 'simulate', {})
document(plan, 'plan', {'from': 'recorded', 'for': 'target'})
