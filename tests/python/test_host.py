"""Pinned host memory: the device 'host'."""
import pickle

import pytest

import tessera

HOST = 0x600000000000
MIB = 1 << 20


def event(action, addr, size, time_us):
    return {'action': action, 'addr': addr, 'size': size, 'stream': 0, 'time_us': time_us}


@pytest.fixture
def pinned(train, tmp_path):
    """The small training run, with a pinned block of 4 MiB that serves 3."""
    data = pickle.loads(train.read_bytes())
    data['host_segments'] = [{'address': HOST, 'size': 4 * MIB, 'allocated': True, 'active': True}]
    data['host_traces'] = [[event('segment_alloc', HOST, 4 * MIB, 5), event('alloc', HOST, 3 * MIB, 6)]]
    path = tmp_path / 'pinned.pickle'
    path.write_bytes(pickle.dumps(data))
    return path


def test_it_is_a_device(pinned):
    s = tessera.open(pinned)
    assert s.devices == [0, 'host']
    assert [d.device for d in s.peak().devices] == [0, 'host']
    host = s.peak(device='host')
    assert host.peak.allocated_bytes == 4 * MIB and host.peak.requested_bytes == 3 * MIB
    assert [d.device for d in s.info(device=['host', 0]).devices] == ['host', 0]
    assert 'Pinned host memory: 2 events' in repr(s) and 'Pinned host memory' in s._repr_html_()
    assert 'Pinned host memory: no history was recorded, only 2 events; 4.00 MiB allocated' in str(host)


def test_one_gpu_is_still_the_answer(pinned, train):
    with_host, without = tessera.open(pinned).peak(), tessera.open(train).peak()
    assert with_host.peak.to_dict() == without.peak.to_dict()
    assert 'peak' in dir(with_host)
    assert [d.device for d in tessera.open(pinned).check(max='1GiB').devices] == [0]


def test_columns(pinned, train):
    s = tessera.open(pinned)
    assert s.events.device == 0 and len(s.events) == len(tessera.open(train).events)
    events = s.trace('host')
    assert events.device == 'host' and s.trace('host') is events
    assert events.size_bytes.tolist() == [4 * MIB, 3 * MIB]
    assert s.allocations('host').size_bytes.tolist() == [4 * MIB]
    assert s.totals('host').allocated_bytes.tolist() == [0, 0, 4 * MIB]
    assert s.segments.device.tolist()[-1] == 2**32 - 2


def test_parts_and_wrong_names(pinned):
    s = tessera.open(pinned)
    assert s.trim(device='host').devices == ['host']
    assert s.trim(device=0).devices == [0]
    assert b'host,1,6' in s.export(None, 'csv', device='host')
    for wrong in ('gpu', ['all']):
        with pytest.raises(TypeError, match="a number, 'cpu' or 'host'"):
            s.peak(device=wrong)
