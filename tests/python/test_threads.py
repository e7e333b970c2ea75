"""Threads: many that ask one snapshot; and that others run meanwhile."""
import concurrent.futures
import sys
import threading

import numpy

import tessera


def test_one_snapshot_many_threads(real):
    want = tessera.open(real)
    expected = [want.peak().json(), want.profile().json(), want.steps().json(),
                want.at(100).json(), sum(want.events.size), len(want.allocations()), want.export()]
    shared = tessera.open(real)

    def ask(number):
        asks = [lambda: shared.peak().json(), lambda: shared.profile().json(),
                lambda: shared.steps().json(), lambda: shared.at(100).json(),
                lambda: sum(shared.events.size), lambda: len(shared.allocations()), shared.export]
        return number % len(asks), asks[number % len(asks)]()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for number, got in pool.map(ask, range(56)):
            assert got == expected[number]


def test_closed_while_asked(real):
    for _ in range(5):
        s = tessera.open(real)
        column = s.events.size
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
