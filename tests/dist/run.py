#!/usr/bin/env python3
"""Ranks that are processes, over each MPI that is installed. Prints TAP.

usage: run.py --ranks PROGRAM"""
import argparse
import os
import subprocess
import sys

from mpi import HANG_S, OPTIONS, run_tests


def run(mpi, size, program, what):
    """(exit status, output) of `size` ranks."""
    done = subprocess.run([f'mpirun.{mpi}', *OPTIONS[mpi], '-n', str(size), program, what], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HANG_S, check=False,
                          env={**os.environ, 'HWLOC_COMPONENTS': '-gl'})
    return done.returncode, done.stdout


def check(mpi, program, size):
    status, output = run(mpi, size, program, 'check')
    ranks = sorted(line for line in output.splitlines() if line.startswith('rank ') and ' of ' in line)
    assert (status, ranks) == (0, [f'rank {rank} of {size}' for rank in range(size)]), (status, output)


def fails(mpi, program, what):
    """All ranks end, and the output says which one was the cause."""
    status, output = run(mpi, 3, program, what)
    # MPICH's launcher says what became of a rank, but not which one it was.
    named = 'rank 1 cannot go on' if what == 'fail' else 'rank 1' if mpi == 'openmpi' else 'Killed'
    assert status != 0 and named in output, (status, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--ranks', required=True)
    program = os.path.abspath(parser.parse_args().ranks)
    tests = []
    for mpi in OPTIONS:
        tests += [(f'{mpi}, {size} ranks', lambda mpi=mpi, size=size: check(mpi, program, size), mpi)
                  for size in (1, 2, 4, 8)]
        tests += [(f'{mpi}, a rank that has to {what}', lambda mpi=mpi, what=what: fails(mpi, program, what), mpi)
                  for what in ('fail', 'die')]
    return run_tests(tests)


if __name__ == '__main__':
    sys.exit(main())
