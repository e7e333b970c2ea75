#!/usr/bin/env python3
"""run.py --tessera PATH --work FOLDER [NAME...]: `tessera ranks` on engines that people have, as TAP.

A job of 32 ranks, one of them with a leak, and a file that is none. However its files are divided - over threads, a loop, MPI with 1, 2 and 4
processes, two nodes of Slurm (tasks of a job, and an array), two nodes of Ray - the sketches that are put together must be those of one
process, byte for byte. A part whose process is killed is missing, by name, until it is done again. An engine that is not installed is skipped.
"""
import argparse
import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / 'golden')]
sys.dont_write_bytecode = True
import tap  # noqa: E402
from fleets import Fleet  # noqa: E402
from tap import Skip, expect  # noqa: E402

PATIENCE_S = 120


class Job:
    """The snapshots, and what one process makes of them."""

    def __init__(self, given):
        self.tessera, self.work = str(given.tessera.resolve()), given.work.resolve()
        shutil.rmtree(self.work, ignore_errors=True)
        self.folder = self.work / 'snapshots'
        self.folder.mkdir(parents=True)
        fleet = Fleet(11, 'leak')
        fleet.sizes, fleet.count, fleet.rank, fleet.is_dead = {'pp': 1, 'dp': 32, 'ep': 1, 'tp': 1}, 32, 19, False
        fleet.write(self.folder)
        (self.folder / 'rank99.pickle').write_text('no snapshot')
        self.whole = self.sketches_of(self.folder, 'whole')
        answer = json.loads(self.run('ranks', self.folder, '--json').stdout)
        assert [outlier['rank'] for outlier in answer['outliers']] == [19] and len(answer['broken']) == 1, answer

    def run(self, *words, **how):
        return subprocess.run([self.tessera, *map(str, words)], capture_output=True, text=True, check=True, **how)

    def sketches_of(self, place, name, *words):
        path = self.work / f'{name}.sketch'
        self.run('ranks', place, '--sketches', path, '-q', *words)
        return path.read_bytes()

    def parts(self, name):
        """A new folder for parts, and the words of a command that makes one of them."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder, [self.tessera, 'ranks', str(self.folder), '--part', 'auto', '--sketches', f'{folder}/%p.sketch', '-q']

    def check(self, folder, count):
        """What is wrong with the parts, put together."""
        there = sorted(path.name for path in folder.iterdir())
        expect('files', there, sorted(f'{part}.sketch' for part in range(1, count + 1)))
        assert self.sketches_of(folder, folder.name) == self.whole, 'other sketches'


def threads(job):
    for count in (1, 2, 4):
        assert job.sketches_of(job.folder, f'threads-{count}', '--threads', str(count)) == job.whole, f'{count} threads'


def loop(job):
    for count in (1, 3, 40):
        folder, _ = job.parts(f'loop-{count}')
        for part in range(1, count + 1):
            job.run('ranks', job.folder, '--part', f'{part}/{count}', '--sketches', folder / f'{part}.sketch')
        job.check(folder, count)


def kubernetes(job):
    folder, words = job.parts('kubernetes')
    for index in range(4):
        subprocess.run(words, env={**os.environ, 'JOB_COMPLETION_INDEX': str(index), 'JOB_COMPLETIONS': '4'}, check=True)
    job.check(folder, 4)


def killed(job):
    """A process that is killed at any moment leaves all of its sketches or none; the merge names the part, which is done again."""
    folder, _ = job.parts('killed')
    for part in (1, 3):
        job.run('ranks', job.folder, '--part', f'{part}/3', '--sketches', folder / f'{part}.sketch')
    mine = folder / '2.sketch'
    for wait_ms in (0, 5, 10, 20, 40):
        with subprocess.Popen([job.tessera, 'ranks', str(job.folder), '--part', '2/3', '--threads', '1', '--sketches', str(mine), '-q'],
                              stdin=subprocess.DEVNULL) as process:
            time.sleep(wait_ms / 1000)
            process.kill()
        is_done = mine.exists()
        answer = json.loads(job.run('ranks', folder, '--json').stdout)
        expect('missing parts', answer['missing_parts'], [] if is_done else [2])
        expect('broken files', len(answer['broken']), 1 if is_done else len(answer['broken']))
        if not is_done:
            assert 'Missing part: 2' in job.run('ranks', folder).stdout
        mine.unlink(missing_ok=True)
    for path in folder.glob('.*'):  # what a killed process had begun
        path.unlink()
    job.run('ranks', job.folder, '--part', '2/3', '--sketches', mine)
    job.check(folder, 3)


def mpi(job):
    if not shutil.which('mpirun'):
        raise Skip('mpirun is not installed')
    for count in (1, 2, 4):
        folder, words = job.parts(f'mpi-{count}')
        subprocess.run(['mpirun', '--allow-run-as-root', '--oversubscribe', '-np', str(count), *words], check=True, capture_output=True)
        job.check(folder, count)


# ---- Slurm: two nodes on this machine ----

def free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


def wait_for(what, is_true):
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(f'{what} takes more than {PATIENCE_S} s')
        time.sleep(0.1)


@contextlib.contextmanager
def cluster(work):
    """The environment of a Slurm of two nodes with two processors each."""
    folder = work / 'slurm'
    folder.mkdir()
    key, pipe = folder / 'munge.key', folder / 'munge.socket'
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host, ports = socket.gethostname(), [free_port() for _ in range(3)]
    nodes = '\n'.join(f'NodeName=node{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i]} CPUs=2 State=UNKNOWN' for i in (1, 2))
    (folder / 'slurm.conf').write_text(f'''ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={pipe}
CryptoType=crypto/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
{nodes}
PartitionName=all Nodes=node1,node2 Default=YES State=UP
''')
    environment = {**os.environ, 'SLURM_CONF': str(folder / 'slurm.conf')}
    started = []

    def start(*words):
        with open(folder / f'{pathlib.Path(words[0]).name}.out', 'ab') as out:
            started.append(subprocess.Popen(words, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL))

    try:
        start('munged', '--foreground', '--force', f'--socket={pipe}', f'--key-file={key}', f'--pid-file={folder}/munge.pid',
              f'--log-file={folder}/munge.log', f'--seed-file={folder}/munge.seed')
        wait_for('munged', pipe.exists)
        (folder / 'state').mkdir()
        start('slurmctld', '-D', '-i')
        for node in ('node1', 'node2'):
            (folder / f'spool-{node}').mkdir()
            start('slurmd', '-D', '-N', node)
        wait_for('Slurm', lambda: subprocess.run(['sinfo', '-h', '-o', '%D %t'], env=environment, capture_output=True, text=True,
                                                 check=False).stdout.strip() == '2 idle')
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def slurm(job):
    for program in ('slurmctld', 'slurmd', 'munged', 'srun', 'sbatch'):
        if not shutil.which(program, path=f'{os.environ["PATH"]}:/usr/sbin:/sbin'):
            raise Skip(f'{program} is not installed')
    os.environ['PATH'] += ':/usr/sbin:/sbin'
    with cluster(job.work) as environment:
        folder, words = job.parts('slurm-tasks')
        subprocess.run(['srun', '-N', '2', '-n', '4', *words], env=environment, check=True, timeout=PATIENCE_S)
        job.check(folder, 4)
        answered = subprocess.run(['srun', '-N', '2', '-n', '4', job.tessera, 'ranks', str(job.folder)], env=environment, check=True,
                                  timeout=PATIENCE_S, capture_output=True, text=True, cwd=job.work).stdout
        expect('the answer of srun', answered, job.run('ranks', job.folder).stdout)
        folder, words = job.parts('slurm-array')
        script = job.work / 'array.sh'
        script.write_text('#!/bin/sh\nexec ' + ' '.join(words) + '\n')
        array = subprocess.run(['sbatch', '--parsable', '--array=3-6', '-o', '/dev/null', str(script)], env=environment, check=True,
                               capture_output=True, text=True).stdout.strip()
        merge = job.work / 'merge.sh'
        merge.write_text(f'#!/bin/sh\nexec {job.tessera} ranks {folder} --json -o {job.work}/merged.json\n')
        subprocess.run(['sbatch', '--wait', f'--dependency=afterok:{array}', '-o', '/dev/null', str(merge)], env=environment, check=True,
                       timeout=PATIENCE_S, capture_output=True)
        assert [outlier['rank'] for outlier in json.loads((job.work / 'merged.json').read_text())['outliers']] == [19]
        job.check(folder, 4)


def ray(job):
    if not importlib.util.find_spec('ray'):
        raise Skip('ray is not installed')
    import ray as engine
    from ray.cluster_utils import Cluster
    nodes = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False, 'object_store_memory': 80 << 20,
                                                          'resources': {'first': 4}})
    nodes.add_node(num_cpus=1, object_store_memory=80 << 20, resources={'second': 4})
    try:
        engine.init(address=nodes.address, log_to_driver=False)
        folder, words = job.parts('ray')

        @engine.remote(num_cpus=1)
        def read(part):
            subprocess.run([part if word == 'auto' else word for word in words], check=True)
            return engine.get_runtime_context().get_node_id()
        where = engine.get([read.options(resources={'second' if part % 2 else 'first': 1}).remote(f'{part}/4') for part in range(1, 5)])
        assert len(set(where)) == 2, where
        job.check(folder, 4)
        if importlib.util.find_spec('tessera'):
            ray_from_python(job, engine)
    finally:
        engine.shutdown()
        nodes.shutdown()


def ray_from_python(job, engine):
    """tessera.ranks(on='ray'), also when a worker is killed in the middle."""
    import tessera

    def said(answer):
        told = json.loads(answer.json())
        return {key: told[key] for key in ('ranks', 'groups', 'outliers', 'missing', 'missing_parts', 'broken', 'files')}
    expected = said(tessera.ranks(job.folder))
    expect('on two nodes', said(tessera.ranks(job.folder, on='ray', parts=4)), expected)
    from tessera import _engines
    original, once = _engines.sketch_part, job.work / 'killed-once'

    def killed_once(part):
        if part.number == 2 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(part)
    _engines.sketch_part = killed_once
    try:
        expect('with a worker that is killed', said(tessera.ranks(job.folder, on='ray', parts=4)), expected)
    finally:
        _engines.sketch_part = original
    assert once.exists()


ENGINES = {function.__name__: function for function in (threads, loop, kubernetes, killed, mpi, slurm, ray)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tessera', required=True, type=pathlib.Path)
    parser.add_argument('--work', required=True, type=pathlib.Path)
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(ENGINES)}')
    given = parser.parse_args()
    job = Job(given)
    return tap.run([(name, functools.partial(ENGINES[name], job)) for name in given.names or ENGINES])


if __name__ == '__main__':
    sys.exit(main())
