#!/usr/bin/env python3
"""resident.py FOLDER PROGRAM ARGUMENT...: runs a program as one rank, and writes the most that it had in memory, in bytes, to FOLDER/RANK."""
import os
import sys

child = os.fork()
if child == 0:
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
rank = os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK']
with open(f'{sys.argv[1]}/{rank}', 'w', encoding='utf-8') as out:
    out.write(str(usage.ru_maxrss << 10))
sys.exit(os.waitstatus_to_exitcode(status))
