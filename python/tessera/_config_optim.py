"""Optimizers of bitsandbytes 0.50 as far as their memory is concerned: its kernels need a card, but its state is made by PyTorch.

bitsandbytes/optim/optimizer.py: Optimizer2State and Optimizer1State make the state of each parameter right before its first update
(init_state), and one kernel updates it without temporaries.
"""
from typing import Any

_LEAST_8BIT, _BLOCK, _QUANTILES = 4096, 256, 256


def _optimizer(torch: Any, name: str, first_state: Any) -> Any:
    class Optimizer(torch.optim.Optimizer):  # type: ignore[misc]
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

        @torch.no_grad()  # type: ignore[untyped-decorator]
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for param in group['params']:
                    if param.grad is not None and not self.state[param]:
                        self.state[param].update(first_state(self, param))
    Optimizer.__name__ = Optimizer.__qualname__ = name
    return Optimizer


def adamw_8bit(torch: Any) -> Any:
    """bitsandbytes.optim.AdamW8bit: two codes of 8 bits per element and a number for each 256 of them; 32 bits below 4096 elements."""
    def first_state(self: Any, param: Any) -> Any:
        if param.numel() < _LEAST_8BIT:
            return {name: torch.zeros_like(param, dtype=torch.float32) for name in ('state1', 'state2')}
        if not hasattr(self, 'tables'):  # of quantiles, which all parameters share
            self.tables = [torch.zeros(_QUANTILES, device=param.device) for _ in range(2)]
        blocks = -(-param.numel() // _BLOCK)
        state = {}
        for number in '12':
            state[f'state{number}'] = torch.zeros_like(param, dtype=torch.uint8)
            state[f'qmap{number}'] = self.tables[int(number) - 1]
        for number in '12':
            state[f'absmax{number}'] = torch.zeros((blocks,), dtype=torch.float32, device=param.device)
        return state
    return _optimizer(torch, 'AdamW8bit', first_state)


def lion(torch: Any) -> Any:
    """bitsandbytes.optim.Lion: one number of 32 bits per element."""
    return _optimizer(torch, 'Lion', lambda self, param: {'state1': torch.zeros_like(param, dtype=torch.float32)})
