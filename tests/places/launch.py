#!/usr/bin/env python3
"""launch.py: what torchrun, accelerate, deepspeed, srun and sbatch do with a command line of docs/places, on one machine.

Called by one of these names, it starts each rank with the variables that the launcher sets, all at once, and ends with the first status
that is not 0. An option that is not in its table ends it, so that a page's command line is one that the launcher has."""
import os
import re
import subprocess
import sys
from pathlib import Path

# Option: the number of values. The one that is the number of processes comes first.
OPTIONS = {
    'torchrun': {'--nproc-per-node': 1, '--nnodes': 1, '--rdzv-backend': 1, '--rdzv-endpoint': 1},
    'accelerate': {'--num_processes': 1, '--mixed_precision': 1},
    'deepspeed': {'--num_gpus': 1},
    'srun': {'-n': 1, '-N': 1, '--export': 1},
    'sbatch': {},
}
# Of these the directives of a batch script may be.
DIRECTIVES = {'--job-name', '--nodes', '--ntasks-per-node', '--gpus-per-node', '--signal', '--time', '--array', '--output'}


def variables(launcher, rank, count):
    if launcher == 'srun':
        return {'SLURM_PROCID': rank, 'SLURM_NTASKS': count, 'SLURM_LOCALID': rank, 'SLURM_JOB_ID': 7, 'SLURM_STEP_ID': 0}
    return {'RANK': rank, 'WORLD_SIZE': count, 'LOCAL_RANK': rank}


def options(launcher, words):
    """{option: value}, and the words after the options."""
    known, found = OPTIONS[launcher], {}
    while words and words[0].startswith('-'):
        name, equals, value = words.pop(0).partition('=')
        name = name if launcher != 'torchrun' else name.replace('_', '-')
        if name not in known:
            raise SystemExit(f'{launcher}: no option {name}')
        found[name] = value if equals else words.pop(0)
    return found, words


def run_ranks(launcher, count, words):
    command = words if launcher == 'srun' else [sys.executable, *words]
    running = [subprocess.Popen(command, env={**os.environ, **{name: str(value) for name, value in variables(launcher, rank, count).items()}})
               for rank in range(count)]
    return next(filter(None, [process.wait() for process in running]), 0)


def batch(script):
    text = Path(script).read_text(encoding='utf-8')
    for name in re.findall(r'(?m)^#SBATCH +(-[-\w]+)', text):
        if name not in DIRECTIVES:
            raise SystemExit(f'sbatch: no option {name}')
    tasks = int(re.search(r'--nodes=(\d+)', text)[1]) * int(re.search(r'--ntasks-per-node=(\d+)', text)[1])
    return subprocess.run(['bash', '-e', script], env={**os.environ, 'SLURM_NTASKS': str(tasks)}, check=False).returncode


def main():
    launcher, words = Path(sys.argv[0]).name, sys.argv[1:]
    if launcher == 'sbatch':
        return batch(words[0])
    if launcher == 'accelerate':
        assert words.pop(0) == 'launch'
    given, words = options(launcher, words)
    first = next(iter(OPTIONS[launcher]))
    count = int(given.get(first) or os.environ.get('SLURM_NTASKS') or 1)
    return run_ranks(launcher, count, words)


if __name__ == '__main__':
    sys.exit(main())
