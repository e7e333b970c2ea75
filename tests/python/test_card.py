"""tessera.card(): the whole card, as the command divides it, of one file and of several on one card."""
import json
import subprocess

import pytest
from conftest import COMMAND, module_of_tests

import tessera


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('card')
    module_of_tests('card/example').write(folder)
    return folder


def test_one_file(folder):
    answer = tessera.card(folder / 'rank0.pickle')
    device, = answer.devices
    assert sum(part.bytes for part in device.parts) == device.used_bytes
    assert answer.used_bytes == device.used_bytes and 'by NCCL in 6 groups' in answer.verdict[0]
    early = tessera.card(folder / 'rank0.pickle', time_us=device.early.time_us)
    assert early.devices[0].at.used_bytes == device.early.used_bytes


@pytest.mark.skipif(not COMMAND, reason='no binary to compare with (TESSERA_COMMAND)')
def test_the_command_gives_the_same(folder):
    told = subprocess.run([COMMAND, 'card', '--json', '-q', folder / 'rank0.pickle'], capture_output=True, text=True, check=True).stdout
    device, = tessera.card(folder / 'rank0.pickle').devices
    assert [part.bytes for part in device.parts] == [part['bytes'] for part in json.loads(told)['devices'][0]['parts']]


def test_several_processes(folder):
    answer = tessera.card(folder / 'engine.pickle', str(folder / 'trainer.pickle'))
    device, = answer.devices
    assert device.together_bytes < device.sum_of_peaks_bytes and {phase.name for phase in device.phases} == {'rollout', 'training'}
    assert 'ran out of memory in' in str(answer)


def test_mistakes(folder):
    with pytest.raises(tessera.ArgumentError, match='device 5'):
        tessera.card(folder / 'rank0.pickle', device=5)
    with pytest.raises(tessera.Error):
        tessera.card(folder / 'nowhere.pickle')
    with pytest.raises(tessera.Error):
        tessera.card()
