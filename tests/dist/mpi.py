"""mpi.py: what the tests of ranks share: how each MPI is started, and tests that are skipped where it is not installed."""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

# Start more ranks than there are cores, also as root in a container. mpi_yield_when_idle 0 makes Open MPI's own waits spin, as they do when the
# launcher does not know that cores are short. tessera's waits give up the core, so this must make no difference.
OPTIONS = {'openmpi': ['--allow-run-as-root', '--oversubscribe', '--mca', 'mpi_yield_when_idle', '0', '--mca',
                       'btl_vader_single_copy_mechanism', 'none'],
           'mpich': []}
HANG_S = 1800


def run_tests(tests):
    """Runs (title, function, MPI that it needs or None) of each, and returns the exit status."""
    def needing(mpi, test):
        if mpi and not shutil.which(f'mpirun.{mpi}'):
            raise tap.Skip(f'{mpi} is not installed')
        test()
    return tap.run([(title, lambda mpi=mpi, test=test: needing(mpi, test)) for title, test, mpi in tests])
