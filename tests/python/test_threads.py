"""Threads: many that ask one snapshot; and that others run meanwhile."""
import concurrent.futures
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
    stop = threading.Event()

    def count():
        while not stop.is_set():
            turns.append(1)
    thread = threading.Thread(target=count)
    thread.start()
    # A second's worth of work in one call of C: without the lock free, the counter would stand.
    before = len(turns)
    data = tessera.open(real)
    for _ in range(3):
        data._core.ask('whatif', {})
    during = len(turns) - before
    stop.set()
    thread.join()
    assert during > 1000
