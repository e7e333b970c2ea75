#!/usr/bin/env python3
"""example.py PEAK FOLDER: the example program of the public interface runs, and fails as it should."""
import os
import pickle
import subprocess
import sys

EVENTS = [
    {'action': 'alloc', 'addr': 0x1000, 'size': 3000, 'stream': 0, 'time_us': 1,
     'frames': [{'filename': 'train.py', 'name': 'step', 'line': 7}]},
    {'action': 'free_completed', 'addr': 0x1000, 'size': 3000, 'stream': 0, 'time_us': 2,
     'frames': []},
]


def main(program, folder):
    os.makedirs(folder, exist_ok=True)
    snapshot = os.path.join(folder, 'snapshot.pickle')
    with open(snapshot, 'wb') as file:
        pickle.dump({'device_traces': [EVENTS], 'segments': []}, file)
    done = subprocess.run([program, snapshot], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, done.returncode
    assert done.stdout.endswith('The peak is 3072 bytes.\n'), 'it says another peak'
    missing = subprocess.run([program, snapshot + '.none'], capture_output=True, text=True,
                             check=False)
    print(missing.stdout + missing.stderr)
    assert missing.returncode > 0, 'a file that is not there is not an error'


if __name__ == '__main__':
    main(*sys.argv[1:])
