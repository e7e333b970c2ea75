"""Columns: without a copy, valid for as long as something holds them; and tables."""
import gc
import pickle

import numpy
import pytest

import tessera

NONE = 2**32 - 1


def test_without_a_copy(train):
    events = tessera.open(train).events
    raw = pickle.loads(train.read_bytes())['device_traces'][0]
    for name, theirs in (('address', 'addr'), ('size_bytes', 'size'), ('time_us', 'time_us')):
        array = numpy.asarray(getattr(events, name))
        assert array.tolist() == [event[theirs] for event in raw]
        assert not array.flags.owndata and not array.flags.writeable
        again = numpy.asarray(getattr(events, name))
        assert array.__array_interface__['data'] == again.__array_interface__['data']
    assert [events.action.names[code] for code in events.action] == [event['action'] for event in raw]
    assert len(events) == len(raw) and events['size_bytes'] is events.size_bytes


def test_as_a_sequence(train):
    size = tessera.open(train).events.size_bytes
    values = size.tolist()
    assert list(size) == values and size[0] == values[0] and size[-1] == values[-1]
    assert size[1:4].tolist() == values[1:4] and size[::-2].tolist() == values[::-2]
    view = memoryview(size)
    assert view.format == 'Q' and view.readonly and view.shape == (len(size),)
    for bad in (len(size), -len(size) - 1):
        with pytest.raises(IndexError):
            size[bad]
    with pytest.raises(TypeError):
        size['x']
    with pytest.raises(TypeError):
        memoryview(size)[0] = 1
    with pytest.raises(TypeError):
        import hashlib
        hashlib.sha256().update(memoryview(size)[0])
    shown = ', '.join(map(str, values[:8]))
    assert repr(size) == f'<tessera column of {len(size)}, uint64: {shown}, ...>'


def test_it_outlives_everything(train):
    def column():
        return numpy.asarray(tessera.open(train).events.size_bytes)
    array = column()
    want = array.tolist()
    gc.collect()
    filler = [bytes(1 << 20) for _ in range(20)]
    assert array.tolist() == want and filler


def test_fields_of_structs(real):
    s = tessera.open(real)
    raw = pickle.loads(real.read_bytes())['segments']
    assert s.segments.address.tolist() == [segment['address'] for segment in raw]
    assert s.segments.size_bytes[2] == raw[2]['total_size']
    assert s.segments.is_large.tolist() == [segment['segment_type'] == 'large' for segment in raw]
    states = [s.blocks.state.names[code] for code in s.blocks.state]
    assert states == [block['state'] for segment in raw for block in segment['blocks']]
    address = s.blocks.address
    assert numpy.asarray(address).strides[0] > 8
    with pytest.raises((BufferError, TypeError, ValueError)):
        import array
        array.array('Q').frombytes(address)


def test_ids(real):
    s = tessera.open(real)
    raw = pickle.loads(real.read_bytes())['device_traces'][0]
    for row in (0, 5, 100, len(raw) - 1):
        number = s.events.stack[row]
        frames = [(frame.name, frame.file, frame.line) for frame in s.stack(number)]
        assert frames == [(frame['name'], frame['filename'], frame['line'] if frame['line'] < 2**63
                           else None) for frame in raw[row]['frames']]
    assert s.stack(NONE) == []
    for bad in (s._core.counts()[2], 2**31):
        with pytest.raises(IndexError):
            s.stack(bad)
    assert {name: len(s.events[name]) for name in s.events}.keys() == set(s.events.columns)
    with pytest.raises(AttributeError, match='no column'):
        s.events.colour
    with pytest.raises(KeyError):
        s.events['colour']


def test_totals_and_allocations(real):
    s = tessera.open(real)
    peak = s.peak()
    allocated = numpy.asarray(s.totals().allocated_bytes)
    assert int(allocated.argmax()) - 1 == peak.peak.event
    assert int(allocated.max()) == peak.peak.allocated_bytes
    assert int(allocated[0]) == peak.start.allocated_bytes
    assert int(allocated[-1]) == peak.end.allocated_bytes
    lives = s.allocations()
    birth, death = numpy.asarray(lives.birth_event), numpy.asarray(lives.death_event)
    live = (birth <= peak.peak.event) & (death > peak.peak.event)
    assert int(numpy.asarray(lives.size_bytes)[live].sum()) == peak.peak.active_bytes
    assert int(live.sum()) == s.at(peak.peak.event).live_allocations


def test_devices_apart(made):
    s = tessera.open(made / 'two-devices.pickle')
    assert s.events.device == 0 and s.trace(1).device == 1
    assert len(s.trace(1)) == s.info(device=1).events
    assert len(s.trace(9)) == 0 and s.trace(9).size_bytes.tolist() == []
    assert len(s.allocations(1)) > 0
    with pytest.raises(tessera.ArgumentError):
        s.allocations(9)


def test_nothing_in_it(made):
    s = tessera.open(made / 'empty-trace.pickle')
    assert len(s.events) == 0 and numpy.asarray(s.events.size_bytes).shape == (0,)
    assert numpy.asarray(s.events.stream).dtype == 'uint64'


def test_annotations(made):
    rows = tessera.open(made / 'stages.pickle').annotations
    raw = pickle.loads((made / 'stages.pickle').read_bytes())['external_annotations']
    assert [(row.name, row.stage) for row in rows] == [(row['name'], row['stage']) for row in raw]


def tables(path):
    s = tessera.open(path)
    return s.events, s.segments, s.blocks, s.allocations(), s.totals(), s.stacks, s.frames, s.live()


def test_pandas(real):
    pandas = pytest.importorskip('pandas')
    s = tessera.open(real)
    frame = s.events.to_pandas()
    assert list(frame['action'][:3]) == [s.events.action.names[code] for code in s.events.action[:3]]
    assert frame['size_bytes'].sum() == sum(s.events.size_bytes)
    assert frame['time_us'][0] == pandas.Timestamp(s.events.time_us[0], unit='us', tz='UTC')
    assert frame['stack'].isna().sum() == sum(s.events.stack.is_null())
    for table in tables(real):
        assert len(table.to_pandas()) == len(table)


def test_arrow(real, made):
    pyarrow = pytest.importorskip('pyarrow')
    for path in (real, made / 'stages.pickle', made / 'empty-trace.pickle', made / 'no-times.pickle'):
        for table in tables(path):
            arrow = pyarrow.table(table)
            arrow.validate(full=True)
            assert arrow.num_rows == len(table)
            assert pyarrow.record_batch(table).num_rows == len(table)
    events = tessera.open(real).events
    arrow = pyarrow.table(events)
    del events
    gc.collect()
    assert arrow['size_bytes'].to_pylist() == tessera.open(real).events.size_bytes.tolist()
    assert arrow.schema.field('time_us').type == pyarrow.timestamp('us', 'UTC')
    assert arrow['action'].to_pylist()[:2] == [
        tessera.open(real).events.action.names[code] for code in tessera.open(real).events.action[:2]]
    assert pyarrow.table(tessera.open(made / 'no-times.pickle').events)['time_us'].null_count > 0


def test_capsules_nobody_takes(train):
    events = tessera.open(train).events
    for _ in range(3):
        events.__arrow_c_stream__()
        events.__arrow_c_array__()
        events.__arrow_c_schema__()
    with pytest.raises(ValueError, match='one length'):
        tessera._core.Table([('a', events.size_bytes, 'L', None),
                             ('b', tessera.open(train).totals().active_bytes, 'L', None)])
    for bad in ([3], [('a', 3, 'L', None)], [('a', events.size_bytes, 'L', ['x'])]):
        with pytest.raises(TypeError):
            tessera._core.Table(bad)
    tessera._core.Table([]).__arrow_c_array__()
