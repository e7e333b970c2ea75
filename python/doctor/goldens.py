"""Recorded answers: of the command, of the recorder, and of predictions (tests/torch/doctor.py --accept writes all but the second)."""
from typing import Any, Dict

# simulate says this of the model, and peak of its snapshot.
ANSWER_WORDS = ('gpt2', '--batch', '4', '--seq', '512', '--steps', '2')
ANSWER_BYTES = 5498970112

# A snapshot of three allocations, which the recorder writes and the command reads.
SNAPSHOT_BYTES = 3 * 512
_BASE = 0x7f0000000000
_BLOCKS = [{'address': _BASE + 512 * i, 'size': 512, 'requested_size': 500, 'state': 'active_allocated', 'frames': []} for i in range(3)]
SNAPSHOT: Dict[str, Any] = {
    'segments': [{'device': 0, 'address': _BASE, 'total_size': 1 << 21, 'allocated_size': SNAPSHOT_BYTES, 'active_size': SNAPSHOT_BYTES,
                  'requested_size': 1500, 'stream': 0, 'segment_type': 'small', 'is_expandable': False, 'frames': [],
                  'blocks': [*_BLOCKS, {'address': _BASE + SNAPSHOT_BYTES, 'size': (1 << 21) - SNAPSHOT_BYTES, 'requested_size': 0, 'state': 'inactive',
                                        'frames': []}]}],
    'device_traces': [[{'action': 'segment_alloc', 'addr': _BASE, 'size': 1 << 21, 'stream': 0, 'time_us': 1},
                       *({'action': 'alloc', 'addr': _BASE + 512 * i, 'size': 500, 'stream': 0, 'time_us': 2 + i} for i in range(3))]],
    'allocator_settings': {}}

# By program: the peaks of three steps, in bytes, with requested bytes for phases.
TORCH, GPU = '2.9', 'a100'
PROGRAMS: Dict[str, Any] = {
    'mlp': {'peak': {'requested': 274532480, 'allocated': 274534912, 'reserved': 295698432}, 'phases': {'forward': 198838352, 'backward': 274532480, 'optimizer': 269289592}},
    'conv': {'peak': {'requested': 253617776, 'allocated': 253623296, 'reserved': 289406976}, 'phases': {'forward': 220058176, 'backward': 253617776}},
    'transformer': {'peak': {'requested': 205157456, 'allocated': 205163008, 'reserved': 253755392}, 'phases': {'forward': 193622080, 'backward': 205157456, 'optimizer': 80220160}},
    'adamw-fused': {'peak': {'requested': 118963344, 'allocated': 118979072, 'reserved': 153092096}, 'phases': {'forward': 107427968, 'backward': 118963344, 'optimizer': 42311776}},
    'adam-loop': {'peak': {'requested': 125281328, 'allocated': 125284864, 'reserved': 161480704}, 'phases': {'forward': 113745952, 'backward': 125281328, 'optimizer': 50731008}},
    'autocast': {'peak': {'requested': 93799512, 'allocated': 94851584, 'reserved': 117440512}, 'phases': {'forward': 80174128, 'backward': 93799512, 'optimizer': 48629764}},
    'scaler': {'peak': {'requested': 100986896, 'allocated': 100988928, 'reserved': 150994944}, 'phases': {'forward': 84191240, 'backward': 88387604, 'optimizer': 100986896}},
    'checkpointing': {'peak': {'requested': 101137432, 'allocated': 101139456, 'reserved': 148897792}, 'phases': {'forward': 81122304, 'backward': 101137432, 'optimizer': 66522112}},
    'accumulation': {'peak': {'requested': 84321328, 'allocated': 86159872, 'reserved': 104857600}, 'phases': {'forward': 78028832, 'backward': 84321328, 'optimizer': 48629760}},
    'sdpa-flash': {'peak': {'requested': 75933272, 'allocated': 77771776, 'reserved': 88080384}, 'phases': {'forward': 62299184, 'backward': 75933272, 'optimizer': 32834560}},
    'sdpa-efficient': {'peak': {'requested': 118963248, 'allocated': 118966784, 'reserved': 159383552}, 'phases': {'forward': 107427872, 'backward': 118963248, 'optimizer': 48629760}},
    'sdpa-math': {'peak': {'requested': 152452112, 'allocated': 152453632, 'reserved': 188743680}, 'phases': {'forward': 149305344, 'backward': 152452112, 'optimizer': 48629760}},
    'embedding': {'peak': {'requested': 129666056, 'allocated': 131141632, 'reserved': 148897792}, 'phases': {'forward': 96111616, 'backward': 129666056, 'optimizer': 120755200}},
    'norms': {'peak': {'requested': 111491080, 'allocated': 111492096, 'reserved': 138412032}, 'phases': {'forward': 86325248, 'backward': 111491080, 'optimizer': 27576320}},
    'streams': {'peak': {'requested': 84312104, 'allocated': 84313600, 'reserved': 106954752}, 'phases': {'forward': 63332352, 'backward': 84312104, 'optimizer': 80125952}},
    'gpt2': {'peak': {'requested': 263277560, 'allocated': 266060800, 'reserved': 310378496}, 'phases': {'forward': 263277560, 'backward': 263133240, 'optimizer': 86225920}},
    'llama': {'peak': {'requested': 122187312, 'allocated': 124318208, 'reserved': 140509184}, 'phases': {'forward': 122187312, 'backward': 122080336, 'optimizer': 58672640}},
    'lora': {'peak': {'requested': 75051016, 'allocated': 75052032, 'reserved': 88080384}, 'phases': {'forward': 75051008, 'backward': 75051016, 'optimizer': 31600640}},
    'in-backward': {'peak': {'requested': 118963248, 'allocated': 118966784, 'reserved': 148897792}, 'phases': {'forward': 107427872, 'backward': 118963248, 'optimizer': 108476456}},
    'expandable': {'peak': {'requested': 263277560, 'allocated': 263281664, 'reserved': 301989888}, 'phases': {'forward': 263277560, 'backward': 263133240, 'optimizer': 86225920}},
}
