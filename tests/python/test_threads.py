"""Threads: many that ask one snapshot; and that others run meanwhile."""
import concurrent.futures
import signal
import sys
import threading

import numpy
import pytest

import tessera


def test_one_snapshot_many_threads(real):
    want = tessera.open(real)
    expected = [want.peak().json(), want.profile().json(), want.steps().json(),
                want.at(100).json(), sum(want.events.size_bytes), len(want.allocations()), want.export()]
    shared = tessera.open(real)

    def ask(number):
        asks = [lambda: shared.peak().json(), lambda: shared.profile().json(),
                lambda: shared.steps().json(), lambda: shared.at(100).json(),
                lambda: sum(shared.events.size_bytes), lambda: len(shared.allocations()), shared.export]
        return number % len(asks), asks[number % len(asks)]()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for number, got in pool.map(ask, range(56)):
            assert got == expected[number]


def test_closed_while_asked(real):
    for _ in range(5):
        s = tessera.open(real)
        column = s.events.size_bytes
        failures = []

        def ask():
            try:
                s._core.ask('peak', {}).json()
            except ValueError:
                pass
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        s.close()
        for thread in threads:
            thread.join()
        assert not failures and numpy.asarray(column).sum() > 0


def test_the_lock_is_free_while_c_works(real):
    turns = []
    gate = threading.Lock()
    gate.acquire()
    thread = threading.Thread(target=lambda: (gate.acquire(), turns.append(1)))
    data = tessera.open(real)
    thread.start()
    interval = sys.getswitchinterval()
    # From here on Python takes the lock from nobody: the thread, which waits for it, gets its turn
    # only in a call of C that lets it go. A busy machine may let it miss some calls.
    sys.setswitchinterval(10000)
    try:
        gate.release()
        for _ in range(1000):
            data._core.ask('whatif', {})
            if turns:
                break
        was_free = bool(turns)
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert was_free


def test_signals_are_handled_during_long_questions():
    """Handlers run while the library computes, not only after it; what they raise stops it."""
    snapshot = tessera.simulate('gpt2', batch=4, seq=512, steps=15, capacity='5GiB').snapshot
    seen = []

    def handler(number, frame):
        if frame.f_code.co_name == '_ask':  # which calls the library
            seen.append(number)
        if len(seen) == 3:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        with pytest.raises(KeyboardInterrupt):
            for top in range(1, 50):
                snapshot.whatif(top=top)
                del seen[:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert snapshot.whatif().verdict
