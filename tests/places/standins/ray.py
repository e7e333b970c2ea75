"""A cluster of one worker, which runs train.py with the environment that runtime_env asks for."""
import os
import subprocess
import sys


def init(runtime_env=None, **_):
    subprocess.run([sys.executable, 'train.py'], env={**os.environ, **(runtime_env or {}).get('env_vars', {})}, check=True)
