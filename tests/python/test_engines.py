"""ranks() on engines and stores: whoever reads the files, and wherever they are, the answer is the same."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings

import pytest

import tessera
from tessera import _engines

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / 'golden'))
from fleets import Fleet  # noqa: E402


@pytest.fixture(scope='module')
def fleet(tmp_path_factory):
    """Sixteen ranks, one of them with a leak, and a file that is no snapshot."""
    fleet = Fleet(11, 'leak')
    fleet.sizes, fleet.count, fleet.rank, fleet.is_dead = {'pp': 1, 'dp': 16, 'ep': 1, 'tp': 1}, 16, 5, False
    fleet.name = lambda rank, step: f'rank{rank}_memory_snapshot.pickle'
    folder = fleet.write(tmp_path_factory.mktemp('fleet'))
    (folder / 'rank16_memory_snapshot.pickle').write_text('no snapshot')
    return folder


def said(answer, folder=''):
    """The answer, without what differs: when and where files were read."""
    told = json.loads(answer.json())
    assert [one['rank'] for one in told['outliers']] == [5], told['outliers']
    assert [one['path'].rsplit('/', 1)[1] for one in told['broken']] == ['rank16_memory_snapshot.pickle'], told['broken']
    kept = {key: told[key] for key in ('ranks', 'groups', 'outliers', 'missing', 'missing_parts', 'broken', 'files', 'ranks_by')}
    return json.dumps(kept).replace(str(folder), '')


@pytest.mark.parametrize('kind, count', ((concurrent.futures.ThreadPoolExecutor, 3), (concurrent.futures.ProcessPoolExecutor, 2)))
def test_executors(fleet, kind, count):
    with kind(count) as executor:
        assert said(tessera.ranks(fleet, on=executor)) == said(tessera.ranks(fleet))
        assert said(tessera.ranks(fleet, on=executor, parts=6, top=3)) == said(tessera.ranks(fleet, top=3))


def test_relative_paths(fleet, monkeypatch):
    monkeypatch.chdir(fleet)
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        assert len(tessera.ranks('.', on=executor).ranks) == 16


@pytest.mark.parametrize('how', ({'on': 'slurm'}, {'on': 3}, {'on': 'ray', 'part': '1/2'}))
def test_wrong_engines(fleet, how):
    with pytest.raises(tessera.ArgumentError):
        tessera.ranks(fleet, **how)


def test_a_place_that_is_not_there(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        answer = tessera.ranks(tmp_path / 'nowhere', on=executor)
    assert [one.path for one in answer.broken] == [str(tmp_path / 'nowhere')] and not answer.ranks


# ---- Stores ----

@pytest.fixture
def store(fleet):
    fsspec = pytest.importorskip('fsspec')
    memory = fsspec.filesystem('memory')
    memory.store.clear()
    for path in sorted(fleet.iterdir()):
        memory.pipe_file(f'/job/{path.name}', path.read_bytes())
    memory.pipe_file('/job/notes.txt', b'not looked at')
    yield memory
    memory.store.clear()


@pytest.mark.parametrize('place', ('memory://job', 'memory://job/', 'memory://job/rank*.pickle'))
def test_addresses(fleet, store, place):
    answer = tessera.ranks(place)
    assert said(answer, 'memory:///job') == said(tessera.ranks(fleet), fleet)
    assert answer.ranks[3].path == 'memory:///job/rank3_memory_snapshot.pickle'


def test_small_batches(fleet, store, monkeypatch):
    monkeypatch.setattr(_engines, '_BATCH', 5)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert said(tessera.ranks('memory://job', on=executor), 'memory:///job') == said(tessera.ranks(fleet), fleet)


def test_sidecars_are_fetched(fleet, store):
    """A file's sidecar tells its rank, in a store as in a folder."""
    store.mv('/job/rank3_memory_snapshot.pickle', '/job/any.pickle')
    store.rm('/job/rank16_memory_snapshot.pickle')
    document = {'schema': 'tessera.sidecar/1', 'snapshot_bytes': store.info('/job/any.pickle')['size'],
                'ranks': {'rank': 3, 'world_size': 16, 'source': 'environment'}}
    store.pipe_file('/job/any.json', json.dumps(document).encode())
    fetched = []
    original = _engines._fetch
    _engines._fetch = lambda one, folder: fetched.append(one.path) or original(one, folder)
    try:
        try:
            tessera.ranks('memory://job')
        except tessera.ArgumentError:
            pass  # half of the ranks are known by sidecars, which is no matter here
    finally:
        _engines._fetch = original
    assert '/job/any.json' in fetched and '/job/notes.txt' not in fetched, fetched


def test_what_comes_cut_off(fleet, store, monkeypatch):
    """An object of which fewer bytes come than there are is broken, and said to be."""
    original = type(store).get_file

    def cut(self, path, to, **how):
        original(self, path, to, **how)
        if path.endswith('rank7_memory_snapshot.pickle'):
            os.truncate(to, 1000)
    monkeypatch.setattr(type(store), 'get_file', cut)
    with pytest.warns(UserWarning, match=r'rank7_memory_snapshot.pickle: 1,000 of [0-9,]+ bytes came'):
        answer = tessera.ranks('memory://job')
    assert [one.path[-29:] for one in answer.broken] == ['/rank16_memory_snapshot.pickle'[-29:], '/rank7_memory_snapshot.pickle'[-29:]]
    assert len(answer.ranks) == 15


@pytest.mark.parametrize('place, message', (('nonsense://job', 'nonsense'), ('memory://nowhere', 'no snapshots'),
                                            ('memory://job/../x/*.pickle', 'no snapshots')))
def test_addresses_that_are_none(store, place, message):
    with pytest.raises(tessera.Error, match=message), warnings.catch_warnings():
        tessera.ranks(place)


def test_addresses_and_paths(fleet, store):
    with pytest.raises(tessera.ArgumentError, match='together'):
        tessera.ranks('memory://job', fleet)


# ---- Ends ----

@pytest.mark.skipif(sys.platform != 'linux', reason='a parent that dies is noticed on Linux')
def test_a_worker_that_is_killed_leaves_no_process(fleet, tmp_path):
    """The command that a worker runs ends with it. The snapshot is a pipe, which keeps the command waiting."""
    os.mkfifo(tmp_path / 'rank0.pickle')
    script = f'from tessera import _engines; _engines._sketch([{str(tmp_path / "rank0.pickle")!r}], {str(tmp_path / "out")!r})'
    with subprocess.Popen([sys.executable, '-c', script]) as worker:
        children = pathlib.Path(f'/proc/{worker.pid}/task/{worker.pid}/children')
        end = time.monotonic() + 60
        while not children.read_text() and time.monotonic() < end:
            time.sleep(0.02)
        child = int(children.read_text().split()[0])
        worker.kill()
    while pathlib.Path(f'/proc/{child}').exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not pathlib.Path(f'/proc/{child}').exists()


def test_an_interrupt_ends_the_command(fleet, tmp_path, monkeypatch):
    class Interrupted(BaseException):
        pass
    started = []
    original = subprocess.Popen

    def begin(*words, **how):
        started.append(original(*words, **how))
        wait = started[0].wait

        def stop():
            if len(started) == 1:
                started.append(None)
                raise Interrupted
            return wait()
        started[0].wait = stop
        return started[0]
    monkeypatch.setattr(subprocess, 'Popen', begin)
    with pytest.raises(Interrupted):
        tessera.ranks(fleet, on=SameThread())
    assert started[0].returncode is not None


class SameThread:
    """An executor that works at once."""

    def submit(self, function, *given):
        future = concurrent.futures.Future()
        future.set_result(function(*given))
        return future


def test_threads_at_once(fleet):
    """Answers do not disturb each other."""
    wrong = []

    def ask():
        try:
            said(tessera.ranks(fleet, on=SameThread(), parts=2))
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
