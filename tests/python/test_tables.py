"""Tables: masks and parts, what is joined with what, and how they look elsewhere."""
import datetime
import math

import numpy
import pytest

import tessera

NONE = 2**32 - 1
TABLES = ['events', 'segments', 'blocks', 'stacks', 'frames', 'allocations', 'live', 'totals']


def table(s, name):
    found = getattr(s, name)
    return found() if callable(found) else found


# ---- columns ----

def test_types(train):
    events = tessera.open(train).events
    assert [events[name].dtype for name in ('action', 'size_bytes', 'time_us', 'stack')] == [
        'uint8', 'uint64', 'int64', 'uint32']
    assert (events.size_bytes > 0).dtype == 'bool'
    array = events.size_bytes.to_numpy()
    assert array.dtype == events.size_bytes.dtype and not array.flags.owndata
    assert events.size_bytes.names is None and 'alloc' in events.action.names
    events.action.names.clear()
    assert 'alloc' in events.action.names and 'alloc, ' in repr(events.action)


@pytest.mark.parametrize('value', [0, 512, -1, 2**63, 2**64 - 1, 2**64, -2**70, 512.0, 511.5, 512.5, -0.5,
                                   1e30, math.inf, -math.inf, math.nan, True, numpy.uint64(512),
                                   numpy.int32(-5), numpy.float64(1e6)])
@pytest.mark.parametrize('operation', ['__eq__', '__ne__', '__lt__', '__le__', '__gt__', '__ge__'])
def test_comparisons_are_exact(train, value, operation):
    s = tessera.open(train)
    plain = value.item() if isinstance(value, numpy.generic) else value
    for column in (s.events.size_bytes, s.totals().event, s.blocks.address, s.events.action):
        mask = getattr(column, operation)(value)
        # Python compares integers and floats exactly.
        assert mask.tolist() == [getattr(float, operation)(float('nan'), 0.0) if plain != plain
                                 else _compare(item, operation, plain) for item in column], value


def _compare(a, operation, b):
    return {'__eq__': a == b, '__ne__': a != b, '__lt__': a < b, '__le__': a <= b, '__gt__': a > b,
            '__ge__': a >= b}[operation]


def test_comparisons_of_columns(train):
    totals = tessera.open(train).totals()
    assert all(totals.allocated_bytes <= totals.active_bytes)
    mask = totals.allocated_bytes < totals.reserved_bytes
    assert mask.tolist() == (totals.allocated_bytes.to_numpy() < totals.reserved_bytes.to_numpy()).tolist()
    assert (totals.event < totals.reserved_bytes)[0] is True  # -1, of another type
    assert (numpy.asarray(totals.event) == totals.event).all()
    with pytest.raises(ValueError, match='lengths'):
        totals.event == totals.event[1:]
    for wrong in (None, [1], 'alloc', object()):
        with pytest.raises(TypeError):
            totals.event == wrong
    with pytest.raises(ValueError, match='neither true nor false'):
        bool(totals.event == 3)
    with pytest.raises(TypeError):
        hash(totals.event)


def test_texts_are_compared_by_name(made):
    s = tessera.open(made / 'noted.pickle')
    raw = [s.events.action.names[code] for code in s.events.action]
    assert (s.events.action == 'alloc').tolist() == [name == 'alloc' for name in raw]
    assert (s.events.action != 'alloc').tolist() == [name != 'alloc' for name in raw]
    assert not any(s.events.action == 'no such action') and all(s.events.action != 'no such action')
    events = [{'action': 'alloc', 'addr': 512 * row, 'size': 512, 'stream': 0, 'frames': [],
               **({'user_metadata': 'layer'} if row == 2 else {})} for row in range(1, 4)]
    said = tessera.open({'segments': [], 'device_traces': [events]}).events.metadata
    assert not all(said.is_null()) and any(said.is_null())
    assert (said == said.names[0]).tolist() == [
        not absent and code == 0 for code, absent in zip(said, said.is_null())]
    with pytest.raises(TypeError, match='== and !='):
        s.events.action < 'alloc'


def test_what_is_absent_is_in_no_order(made):
    times = tessera.open(made / 'no-times.pickle').events.time_us
    absent = times.is_null()
    assert any(absent)
    for mask in (times < 2**62, times > -2**62, times == times, times == times.tolist()[absent.tolist().index(True)]):
        assert not any(mask[absent])
    assert all((times != 0)[absent])


def test_masks(train):
    events = tessera.open(train).events
    large, allocs = events.size_bytes >= 2**20, events.action == 'alloc'
    a, b = large.to_numpy(), allocs.to_numpy()
    for ours, theirs in ((large & allocs, a & b), (large | allocs, a | b), (large ^ allocs, a ^ b), (~large, ~a)):
        assert ours.tolist() == theirs.tolist()
    assert (a & allocs).tolist() == (large & allocs).tolist()
    for wrong in (lambda: large & 1, lambda: events.size_bytes & large, lambda: ~events.size_bytes):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match='lengths'):
        large & large[1:]


@pytest.mark.parametrize('name', TABLES)
def test_sums_and_extremes(real, made, name):
    """Those of Python, of the rows that have a value."""
    for s in (tessera.open(real), tessera.open(made / 'two-devices.pickle')):
        for field in table(s, name).columns:
            column = table(s, name)[field]
            if column.names is not None:
                for reduce in (column.sum, column.min, column.max):
                    with pytest.raises(tessera.UsageError, match='texts have no'):
                        reduce()
                with pytest.raises(tessera.UsageError, match='texts have no arithmetic'):
                    column + 1
                continue
            values = [value for value, lacks in zip(column.tolist(), column.is_null().tolist()) if not lacks]
            assert column.sum() == sum(values)
            if values:
                assert (column.min(), column.max()) == (min(values), max(values))
            else:
                for reduce in (column.min, column.max):
                    with pytest.raises(tessera.ArgumentError, match='no values'):
                        reduce()


def test_sums_do_not_overflow():
    addresses = [2**63 + 512 * i for i in range(5)]
    events = tessera.open({'segments': [], 'device_traces': [[
        {'action': 'alloc', 'addr': address, 'size': 512, 'stream': 0, 'frames': [], 'time_us': -5} for address in addresses]]}).events
    assert events.address.sum() == sum(addresses) and events.time_us.sum() == -25 and (events.address > 0).sum() == 5


def test_arithmetic(real):
    events = tessera.open(real).events
    numbers = events.size_bytes.to_numpy()
    for found, wanted in ((events.size_bytes / 2**20, numbers / 2**20), (events.size_bytes + events.size_bytes, numbers + numbers),
                          (2 * events.size_bytes, 2 * numbers), (events.size_bytes // 512, numbers // 512), (events.size_bytes % 512, numbers % 512),
                          (events.event - 1, events.event.to_numpy() - 1), (numbers - events.size_bytes, numbers - numbers)):
        assert type(found) is numpy.ndarray and (found == wanted).all()


def test_arithmetic_has_no_surprises(real):
    s = tessera.open(real)
    events, allocations = s.events, s.allocations()
    assert (events.size_bytes - 10**12).max() < 0  # unsigned numbers would begin again at the top
    for absent in ('stack', 'birth_time_us'):
        column = allocations[absent]
        missing = column.is_null().to_numpy()
        assert missing.any() and (numpy.isnan(column + 1) == missing).all()
        assert numpy.nansum(column + 0) == pytest.approx(float(column.sum()))
    for left, right in ((events.action, 1), (events.size_bytes, events.action)):
        with pytest.raises(tessera.UsageError, match='texts have no arithmetic'):
            left + right
    for reduce in (numpy.sum, numpy.min, numpy.max):
        assert reduce(events.size_bytes) == reduce(events.size_bytes.to_numpy())
    with pytest.raises(tessera.UsageError, match='no axis'):
        events.size_bytes.sum(axis=0)


def test_nothing_shared_is_changed(real):
    s = tessera.open(real)
    for owner, name in ((s.events, 'columns'), (s.events, 'size_bytes'), (s, 'steps'), (s, 'events')):
        with pytest.raises(AttributeError):
            setattr(owner, name, 3)
    assert s.events.columns == tessera.Events.columns
    with pytest.raises(tessera.UsageError, match='by the name of a column'):
        s.events.sort(['event'])


def test_columns_of_a_table(real):
    events = tessera.open(real).events
    part = events[['size_bytes', 'action', 'size_bytes']]
    assert (type(part), part.columns, part.shape) == (tessera.Events, ('size_bytes', 'action'), (len(events), 2))
    assert list(part.to_pandas()) == ['size_bytes', 'action'] and part[:3].to_dict() == {
        name: values for name, values in events[:3].to_dict().items() if name in part.columns}
    assert events.columns == tessera.Events.columns and part[part.size_bytes > 512].columns == part.columns
    with pytest.raises(KeyError, match='weather'):
        events[['size_bytes', 'weather']]
    with pytest.raises(KeyError):
        part['stack']


@pytest.mark.parametrize('descending', [False, True])
@pytest.mark.parametrize('name', TABLES)
def test_sorted_tables(made, name, descending):
    s = tessera.open(made / 'train.pickle')
    whole = table(s, name)
    for field in whole.columns:
        ordered = whole.sort(field, descending)
        values = [value for value in whole.to_dict()[field] if value is not None]
        found = ordered.to_dict()[field]
        assert found[:len(values)] == sorted(values, reverse=descending) and set(found[len(values):]) <= {None}
        assert ordered.shape == whole.shape
    if len(whole) and 'size_bytes' in whole.columns:
        assert whole.sort('size_bytes').to_pandas().equals(
            whole.to_pandas().sort_values('size_bytes', kind='stable').reset_index(drop=True))


def test_parts_of_a_column(train):
    sizes = tessera.open(train).events.size_bytes
    values, array = sizes.tolist(), sizes.to_numpy()
    mask = sizes > 1024
    for key in (mask, mask.to_numpy(), mask.tolist()):
        assert sizes[key].tolist() == array[mask.to_numpy()].tolist()
    assert sizes[[0, 2, -1]].tolist() == [values[0], values[2], values[-1]]
    for rows in (array.argsort(), array.argsort().astype('int32'), array.argsort().astype('uint8')):
        assert sizes[rows].tolist() == sorted(values)
    assert sizes[mask.to_numpy()[::-1]].tolist() == array[mask.to_numpy()[::-1]].tolist()
    assert sizes[numpy.array([], dtype=bool)[:0].astype('int64')].tolist() == []
    part = sizes[2:9:3]
    assert part.tolist() == values[2:9:3] and part[1:].tolist() == values[2:9:3][1:]
    assert numpy.shares_memory(part.to_numpy(), array)
    assert sizes[::-1][:3].tolist() == values[::-1][:3] and sizes[5:2].tolist() == []
    assert sizes[[]].tolist() == []
    for wrong in ([len(values)], [-len(values) - 1], mask[1:], [True]):
        with pytest.raises(IndexError):
            sizes[wrong]
    for wrong in (['x'], 'x', 1.5, None):
        with pytest.raises((TypeError, IndexError)):
            sizes[wrong]


# ---- tables ----

@pytest.mark.parametrize('name', TABLES)
def test_parts_of_a_table(real, name):
    whole = table(tessera.open(real), name)
    rows, columns = whole.shape
    assert rows == len(whole) > 10 and columns == len(whole.columns) == len(list(whole))
    assert type(whole.head()) is type(whole) and len(whole.head()) == 5 and len(whole.tail(3)) == 3
    assert len(whole.head(10**9)) == len(whole.tail(10**9)) == rows and len(whole.head(0)) == 0
    everything = whole.to_dict()
    assert list(everything) == list(whole.columns)
    for part, key in ((whole[3:9:2], slice(3, 9, 2)), (whole.head(4), slice(4)), (whole.tail(4), slice(-4, None))):
        assert part.to_dict() == {column: values[key] for column, values in everything.items()}
    odd = [row % 2 == 1 for row in range(rows)]
    assert whole[odd].to_dict() == whole[1::2].to_dict() == whole[list(range(1, rows, 2))].to_dict()
    assert whole[odd][1:3].to_dict() == whole[3:7:2].to_dict()
    with pytest.raises(TypeError, match=r'\[3:4\]'):
        whole[3]
    with pytest.raises(AttributeError, match='no column'):
        whole.colour
    assert not hasattr(whole, '_colour')


def test_spellings(real):
    s = tessera.open(real)
    names = [name for table_name in TABLES for name in table(s, table_name).columns]
    assert not {'addr', 'size', 'time', 'total_bytes', 'block_bytes'} & set(names)
    assert all(name.endswith('_bytes') for name in names if 'bytes' in name)
    for table_name in ('events', 'segments', 'blocks', 'allocations'):
        assert {'address', 'size_bytes', 'stack'} <= set(table(s, table_name).columns)


def test_live(real, made):
    s = tessera.open(real)
    peak = s.peak(top=0)
    live = s.live()
    assert live.requested_bytes.to_numpy().sum() == peak.peak.requested_bytes == sum(x.bytes for x in peak.stacks)
    assert len(live) == sum(x.allocations for x in peak.stacks)
    assert live.to_dict() == s.live(peak.peak.event).to_dict() != s.live(0).to_dict()
    assert len(s.live(0)) == s.at(0).live_allocations
    with pytest.raises(tessera.ArgumentError):
        s.live(10**9)
    two = tessera.open(made / 'two-devices.pickle')
    for device in two.peak().devices:
        rows = two.live()[two.live().device == device.device]
        assert rows.size_bytes.to_numpy().sum() == device.peak.active_bytes
        assert rows.to_dict() == two.live(device=device.device).to_dict()
    assert set(two.allocations().device) == {0, 1} and set(two.allocations(1).device) == {1}


def test_stacks_and_frames(real):
    s = tessera.open(real)
    stacks, frames = s.stacks.to_dict(), s.frames.to_dict()
    assert stacks['stack'] == list(range(len(s.stacks)))
    rows = list(zip(frames['stack'], frames['depth'], frames['name'], frames['file'], frames['line']))
    want = [(number, depth, frame.name, frame.file, frame.line) for number in stacks['stack']
            for depth, frame in enumerate(s.stack(number))]
    assert rows == want
    assert stacks['depth'] == [len(s.stack(number)) for number in stacks['stack']]
    for row in zip(*stacks.values()):
        number, depth, name, file, line, place = row
        assert (number, name, file, line) in {(n, *rest) for n, _, *rest in rows} or depth == 0
        assert place and (file is None or not file.endswith('.py') or file.rpartition('/')[2] in place)
    raw = s.events.stack.to_numpy()
    assert raw[raw != NONE].max() < len(s.stacks)


def test_bytes_by_line_at_the_peak(real):
    """The expression of the documentation, in three libraries, is the library's own answer."""
    s = tessera.open(real)
    want = {group.name: group.bytes for group in s.profile('line', top=0).groups}
    want = {name: size for name, size in want.items() if size and not name.startswith('(')}
    pandas = pytest.importorskip('pandas')
    got = (s.live().to_pandas().merge(s.stacks.to_pandas(), on='stack')
           .groupby('place', observed=True)['requested_bytes'].sum())
    assert isinstance(got, pandas.Series)
    assert {name: size for name, size in got.items() if not name.startswith('(')} == want
    lines = (s.live().to_pandas().merge(s.stacks.to_pandas(), on='stack')
             .groupby(['file', 'line'], observed=True)['requested_bytes'].sum())
    assert lines.sum() == got.sum() - got.get('(no stack recorded)', 0)


def test_bytes_by_line_in_arrow(real):
    pytest.importorskip('pyarrow')
    s = tessera.open(real)
    rows = (s.live().to_arrow().join(s.stacks.to_arrow(), 'stack').group_by('place')
            .aggregate([('requested_bytes', 'sum')]).to_pylist())
    want = {group.name: group.bytes for group in s.profile('line', top=0).groups}
    assert all(want[row['place']] == row['requested_bytes_sum'] for row in rows
               if row['place'] and not row['place'].startswith('('))


def test_bytes_by_line_in_polars(real):
    polars = pytest.importorskip('polars')
    s = tessera.open(real)
    frame = (s.live().to_polars().join(s.stacks.to_polars(), on='stack').group_by('place')
             .agg(polars.sum('requested_bytes')))
    want = {group.name: group.bytes for group in s.profile('line', top=0).groups}
    rows = dict(frame.rows())
    assert len(rows) > 10
    assert all(want[name] == size for name, size in rows.items() if not name.startswith('('))


@pytest.mark.parametrize('name', TABLES)
def test_the_same_values_everywhere(real, made, name):
    pandas, pyarrow = pytest.importorskip('pandas'), pytest.importorskip('pyarrow')
    for path in (real, made / 'noted.pickle', made / 'no-times.pickle', made / 'empty-trace.pickle'):
        ours = table(tessera.open(path), name)
        want = ours.to_dict()
        arrow, frame = ours.to_arrow(), ours.to_pandas()
        assert arrow.to_pydict() == want
        for column in ours.columns:
            values = [None if pandas.isna(value) else value for value in frame[column]]
            values = [value.to_pydatetime() if isinstance(value, pandas.Timestamp) else value for value in values]
            assert values == want[column], column
        if len(ours):
            kind = str(frame['time_us'].dtype) if 'time_us' in want else ''
            assert kind in ('', 'datetime64[us, UTC]')
            times = [value for values in want.values() for value in values if isinstance(value, datetime.datetime)]
            assert all(value.tzinfo is datetime.timezone.utc for value in times)
        assert pyarrow.table(ours) == arrow


@pytest.mark.parametrize('name', TABLES)
def test_the_same_values_in_polars(real, name):
    pytest.importorskip('polars')
    ours = table(tessera.open(real), name)
    frame = ours.to_polars()
    assert frame.shape == ours.shape and frame.columns == list(ours.columns)
    assert all(frame[column].to_list() == values for column, values in ours.to_dict().items()
               if not column.endswith('time_us'))
    if 'time_us' in frame.columns:
        assert str(frame['time_us'].dtype) == "Datetime(time_unit='us', time_zone='UTC')"
        assert frame['time_us'].to_physical().to_list() == [
            None if absent else value for value, absent in zip(ours['time_us'], ours['time_us'].is_null())]


def test_without_a_copy(real):
    pytest.importorskip('pyarrow')
    events = tessera.open(real).events
    for name in ('address', 'size_bytes', 'stack'):
        ours = events[name].to_numpy()
        theirs = events.to_arrow()[name].chunk(0).buffers()[1]
        assert theirs.address == ours.__array_interface__['data'][0]
    frame = events.to_pandas()
    assert numpy.shares_memory(frame['size_bytes'].to_numpy(), events.size_bytes.to_numpy())


def test_a_column_by_itself(made, real):
    pandas, pyarrow = pytest.importorskip('pandas'), pytest.importorskip('pyarrow')
    for path in (real, made / 'no-times.pickle', made / 'empty-trace.pickle'):
        events = tessera.open(path).events
        for name in events.columns:
            array = pyarrow.array(events[name])
            array.validate(full=True)
            assert array.equals(events.to_arrow()[name].combine_chunks()) or not len(array)
            assert pandas.Series(events[name]).tolist() == events[name].tolist()
        assert events.size_bytes.__array__('float64').dtype == 'float64'
        assert events.size_bytes.__array__(copy=True).flags.writeable
    mask = events.size_bytes > 5
    assert pyarrow.array(mask).type == pyarrow.bool_()


def test_masks_of_pandas(real):
    pytest.importorskip('pandas')
    events = tessera.open(real).events
    mask = events.to_pandas()['size_bytes'] > 2**20
    assert events[mask].to_dict() == events[events.size_bytes > 2**20].to_dict()
    assert events.to_pandas()[(events.size_bytes > 2**20).to_numpy()].shape == events[mask].shape


def test_lists_of_answers_are_tables(made, real):
    pandas = pytest.importorskip('pandas')
    peak = tessera.open(real).peak(top=0)
    frame = pandas.DataFrame(peak.stacks)
    assert set(frame.columns) - {'before_recording'} == set(peak.stacks[0]) - {'before_recording'} and len(frame) == len(peak.stacks)
    assert frame.groupby('category')['bytes'].sum().sum() == peak.peak.requested_bytes
    two = pandas.DataFrame(tessera.open(made / 'two-devices.pickle').peak().stacks)
    assert set(two['device']) == {0, 1}
    assert dict(peak.peak) == peak.peak.to_dict() and peak.peak.get('no such field') is None


@pytest.mark.parametrize('name', TABLES)
def test_how_a_table_looks(real, made, name):
    for path in (real, made / 'empty-trace.pickle'):
        ours = table(tessera.open(path), name)
        lines = repr(ours).splitlines()
        rows = len(ours)
        assert lines[0] == f'{type(ours).__name__}: {rows:,} row{"s" * (rows != 1)}, {len(ours.columns)} columns'
        assert lines[1].split() == list(ours.columns)
        assert len(lines) == 2 + (rows if rows <= 10 else 11) and ('...' in lines) == (rows > 10)
        html = ours._repr_html_()
        assert html.count('<tr>') == 1 + (rows if rows <= 10 else 11) and html.count('<th ') == len(ours.columns)


def test_names_in_tables_do_no_harm():
    event = {'action': 'alloc', 'addr': 1 << 20, 'size': 512, 'stream': 0, 'time_us': 2**62,
             'frames': [{'name': '<b>x\x1b[1m', 'filename': '<script>.py', 'line': 1}]}
    s = tessera.open({'segments': [], 'device_traces': [[event]]})
    for one in (s.frames, s.stacks):
        assert '\x1b' not in repr(one) and '<script>' not in one._repr_html_()
        assert one.to_dict()['name'] == ['<b>x\x1b[1m']
    assert s.events.to_dict()['time_us'] == [2**62] and str(2**62) in repr(s.events)


def test_a_closed_snapshot_has_no_tables(train):
    s = tessera.open(train)
    events, sizes = s.events, s.events.size_bytes
    s.close()
    for name in TABLES:
        with pytest.raises(ValueError, match='closed'):
            table(s, name)
    assert events.size_bytes is sizes and sum(sizes) > 0


def test_blocks_have_their_segments_device(made):
    s = tessera.open(made / 'two-devices.pickle')
    expected = [None] * len(s.blocks)
    for device, first, count in zip(s.segments.device, s.segments.first_block, s.segments.block_count):
        expected[first:first + count] = [device] * count
    assert s.blocks.device.tolist() == expected and set(expected) == {0, 1}
