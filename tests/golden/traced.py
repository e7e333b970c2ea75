"""traced.py: commands that a test stops at each of their system calls (ptrace), or that a filter (seccomp) makes believe that the
file system has no files without names."""
import ctypes
import errno
import os
import platform
import signal
import struct
import subprocess
import sys

import pytest

libc = ctypes.CDLL(None, use_errno=True)

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE = 0x7fff0000, 0x00050000
OPENAT, PRCTL = {'x86_64': (257, 157), 'aarch64': (56, 167)}.get(platform.machine(), (None, None))
LANDLOCK = 444
O_TMPFILE_BIT = 0o20000000
TRACEME, CONT, SYSCALL, SETOPTIONS = 0, 7, 24, 0x4200
TRACESYSGOOD, EXITKILL = 1, 0x100000


def without_nameless_files():
    """From here on, in this process, O_TMPFILE is not supported."""
    install([(0x20, 0, 0, 0),              # the number of the call
             (0x15, 0, 3, OPENAT),         # openat, or allow
             (0x20, 0, 0, 16 + 2 * 8),     # the flags
             (0x45, 0, 1, O_TMPFILE_BIT),  # O_TMPFILE, or allow
             (0x06, 0, 0, REFUSE | errno.EOPNOTSUPP),
             (0x06, 0, 0, ALLOW)])


def without_confinement():
    """From here on, in this process, the kernel has no Landlock and no further filters."""
    install([(0x20, 0, 0, 0),                      # the number of the call
             (0x35, 0, 2, LANDLOCK),               # from the first call of Landlock's
             (0x35, 1, 0, LANDLOCK + 3),           # ... to the last
             (0x06, 0, 0, REFUSE | errno.ENOSYS),
             (0x15, 0, 3, PRCTL),                  # prctl, or allow
             (0x20, 0, 0, 16),                     # what it is to do
             (0x15, 0, 1, PR_SET_SECCOMP),         # set a filter, or allow
             (0x06, 0, 0, REFUSE | errno.EINVAL),
             (0x06, 0, 0, ALLOW)])


def install(code):
    """Filter the system calls of this process."""
    lines = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(code), ctypes.addressof(lines)))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
        os._exit(99)


def is_filter_possible():
    if not OPENAT:
        return False
    done = subprocess.run([sys.executable, '-c', 'pass'], preexec_fn=without_nameless_files,
                          check=False)
    return done.returncode == 0


def ptrace(request, pid, data=0):
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, pid, None, data) == -1:
        pytest.skip('this system does not let a test trace its own child')


class Traced:
    """A command that stops whenever it enters or leaves a system call."""

    def __init__(self, command, folder, prepare=None):
        def trace():
            libc.ptrace(TRACEME, 0, None, None)
            if prepare:
                prepare()
        environment = {**os.environ, 'ASAN_OPTIONS': 'detect_leaks=0'}
        self.child = subprocess.Popen(command, cwd=folder, preexec_fn=trace, env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        self.status = None
        self.wait()
        ptrace(SETOPTIONS, self.child.pid, TRACESYSGOOD | EXITKILL)

    def wait(self):
        _, status = os.waitpid(self.child.pid, 0)
        if not os.WIFSTOPPED(status):
            self.status = status
            self.child.returncode = os.waitstatus_to_exitcode(status)
        return os.WSTOPSIG(status) if os.WIFSTOPPED(status) else None

    def step(self, count):
        """On to the `count`-th stop from here; False if the command ends before it."""
        passed = 0
        while count:
            ptrace(SYSCALL, self.child.pid, passed)
            stop = self.wait()
            if stop is None:
                return False
            is_call = stop == signal.SIGTRAP | 0x80
            passed = 0 if is_call else stop
            count -= is_call
        return True

    def end(self, number):
        """Send a signal and let the command run to its end."""
        os.kill(self.child.pid, number)
        passed = 0
        while self.status is None:
            ptrace(CONT, self.child.pid, passed)
            passed = self.wait()
        return self.child.returncode
