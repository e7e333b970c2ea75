#!/usr/bin/env python3
"""demo.py TUTORIAL TESSERA FOLDER: what `./run demo` does, into its own folder; see that it says
what the tutorial says, and leaves behind what it promises."""
import pathlib
import pickle
import shutil
import subprocess
import sys

# In this order: the two simulated peaks, both profiles by category, and the difference.
LINES = ('$ tessera simulate gpt2 --batch 4 --seq 512 --steps 5 -o baseline.pickle',
         'gpt2: peak 5.12 GiB allocated', '--checkpoint full', 'gpt2: peak 3.04 GiB allocated',
         '$ tessera profile baseline.pickle', 'peak 5.12 GiB allocated',
         'activation         2.93 GiB', 'optimizer_state  949.40 MiB', 'temporary        785.27 MiB',
         '$ tessera profile checkpointed.pickle', 'peak 3.04 GiB allocated',
         'activation       871.79 MiB', '$ tessera diff', '-2.08 GiB at the peak', '$ tessera view', 'page.html')


def main(tutorial, tessera, folder):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([tutorial, tessera, folder], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, done.returncode
    assert all(': wrote ' in line for line in done.stderr.splitlines()), done.stderr
    at = 0
    for line in LINES:
        found = done.stdout.find(line, at)
        assert found >= 0, f'not said, or not in its place: {line}'
        at = found + len(line)
    assert str(folder.resolve()) in done.stdout[at:] or str(folder.resolve()) in done.stdout
    for name in ('baseline', 'checkpointed'):
        with open(folder / f'{name}.pickle', 'rb') as file:
            snapshot = pickle.load(file)
        assert snapshot['segments'] and snapshot['device_traces'][0], name
    page = (folder / 'page.html').read_text()
    assert page.startswith('<!doctype html>') or page.lower().startswith('<!doctype html'), page[:80]
    # Again, over what is there.
    again = subprocess.run([tutorial, tessera, folder], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, done.stdout), 'not the same the second time'
    wrong = subprocess.run([tutorial, tessera], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and 'usage' in wrong.stderr
    shutil.rmtree(folder)


if __name__ == '__main__':
    main(*sys.argv[1:])
