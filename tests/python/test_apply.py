"""apply() and fit(), as far as they go without PyTorch: plans that are refused, and how answers are printed. tests/torch/apply.py has
the rest."""
import json

import pytest

import tessera
from tessera import _apply


@pytest.mark.parametrize('plan, message', [
    ({'checkpoint': 'full'}, '<plan>: version is missing'),
    ({'version': 2}, '<plan>: version is not 1, the only version that this program reads'),
    ({'version': 1, 'chekpoint': 'full'}, '<plan>: chekpoint is not a key of plans, which are blocks, version and the names of options '
     "that 'tessera help simulate' explains"),
    ({'version': 1, 'dtype': 'int3'}, "<plan>: dtype takes fp32, bf16, fp16, autocast-bf16 or autocast-fp16, not 'int3'"),
    ({'version': 1, 'blocks': [{'first': 0}]}, '<plan>: blocks[0] lacks first or last'),
    ({'version': 1, 'checkpoint': [7]}, '<plan>: checkpoint[0] is not the name of a module'),
])
def test_what_is_no_plan(plan, message):
    with pytest.raises(tessera.ArgumentError) as caught:
        tessera.apply(None, plan)
    assert str(caught.value) == message


def test_plans_in_files(tmp_path):
    path = tmp_path / 'plan.json'
    with pytest.raises(FileNotFoundError):
        tessera.apply(None, path)
    path.write_text('{')
    with pytest.raises(tessera.ArgumentError, match='plan.json: not JSON'):
        tessera.apply(None, path)
    path.write_text('[1]')
    with pytest.raises(tessera.ArgumentError, match='plan.json: a plan is one JSON object'):
        tessera.apply(None, path)
    path.write_text(json.dumps({'verdict': 'fits', 'plan': {'checkpoint': 'full', 'version': 1}}))
    assert _apply._read(path)[0] == {'checkpoint': 'full', 'version': 1}


def test_how_changes_are_printed():
    names = [*(f'model.layers.{i}' for i in (0, 1, 2, 5, 7, 8)), 'lm_head']
    assert _apply.ranges_of(names) == 'model.layers.0-2, model.layers.5, model.layers.7-8, lm_head'

    assert _apply.ranges_of(['h.0', *(f'h.{i}.mlp.act' for i in (1, 2, 3)), 'h.4.mlp', '']) == 'h.0, h.1-3.mlp.act, h.4.mlp, '

    class Model:
        pass
    applied = _apply.Applied(Model(), {'version': 1})
    assert str(applied) == 'Model: 0 changes.'
    applied.changes += [tessera.Change('checkpoint', f'h.{i}', 'reentrant') for i in range(2)]
    applied.left.append(tessera.Left('clip 1.0', 'the loop does it'))
    assert str(applied).splitlines() == [
        'Model: 2 changes.', '  checkpoint             h.0-1, reentrant', 'Not applied, or only approximately:',
        '  clip 1.0               the loop does it']
    with applied:
        assert not applied.is_undone
    assert applied.is_undone


def test_outer_modules():
    assert _apply._outer(['a', 'a.b', 'ab', 'c.d']) == ['a', 'ab', 'c.d']
    assert _apply._outer(['', 'a']) == ['']


@pytest.mark.parametrize('plan, wrapped', [
    ({'offload': 'activations'}, ['']),
    ({'offload': 'activations', 'offload_blocks': 2}, ['h.0', 'h.1']),
    ({'offload': 'activations', 'offload_blocks': 1, 'blocks': [{'first': 3, 'last': 3, 'saved': {'GELU': 'host'}}]}, ['h.0', 'h.3']),
    ({'offload': 'optimizer', 'offload_blocks': 2}, []),
    ({'checkpoint': 'full', 'offload': 'activations', 'offload_blocks': 2}, []),
])
def test_blocks_on_the_host(plan, wrapped, monkeypatch):
    class Model:
        pass
    monkeypatch.setattr(_apply, 'blocks_of', lambda _: [f'h.{i}' for i in range(4)])
    monkeypatch.setattr(_apply.Applied, 'wrap', lambda self, name, make, change: self.changes.append(change))
    applied = _apply.Applied(Model(), {'version': 1, **plan})
    _apply._apply_blocks(applied)
    assert [change.target for change in applied.changes if change.technique == 'offload'] == [name or 'Model' for name in wrapped]
    assert ('offload activations of checkpointed blocks' in [left.technique for left in applied.left]) == ('checkpoint' in plan)
    with pytest.raises(tessera.ArgumentError, match='offload_blocks is 5, but the model has 4 blocks'):
        _apply._apply_blocks(_apply.Applied(Model(), {'version': 1, 'offload': 'activations', 'offload_blocks': 5}))
