"""screen.py: a terminal for tests. A program runs in a pseudo-terminal, as the foreground job of a small shell; what it sends
becomes a grid of characters, as far as ncurses sends it for TERM=xterm-256color and its relatives.
"""
import codecs
import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import time
import traceback
import unicodedata

HANG_S = 300  # ends what hangs; a busy machine may be slow

KEYS = {'Left': '\x1bOD', 'Right': '\x1bOC', 'Up': '\x1bOA', 'Down': '\x1bOB', 'Home': '\x1bOH', 'End': '\x1bOF',
        'PageUp': '\x1b[5~', 'PageDown': '\x1b[6~', 'Enter': '\r', 'Esc': '\x1b', 'Back': '\x7f'}

SEQUENCE = re.compile(r'\x1b(?:\[([?>=]?)([0-9;]*)([@-~])|([()].)|\][^\x07]*\x07|([78=>DEMc]))')


class Screen:
    """What a terminal shows."""

    def __init__(self, rows, columns):
        self.modes, self.colors, self.last = {25}, set(), ' '  # the cursor is visible
        self.row = self.column = 0
        self.is_reverse = False
        self.pending = ''
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.top, self.bottom = 0, rows - 1
        self.row, self.column = min(self.row, rows - 1), min(self.column, columns)
        self.cells = [[' '] * columns for _ in range(rows)]
        self.reverse = [[False] * columns for _ in range(rows)]

    def lines(self):
        return [''.join(row).rstrip() for row in self.cells]

    def text(self):
        return '\n'.join(self.lines())

    def feed(self, text):
        text, at = self.pending + text, 0
        while at < len(text):
            if text[at] == '\x1b':
                found = SEQUENCE.match(text, at)
                if not found:
                    break  # the rest of it has not come yet
                self.obey(*found.groups())
                at = found.end()
            else:
                self.put(text[at])
                at += 1
        self.pending = text[at:]
        assert len(self.pending) < 64, f'an unknown sequence: {self.pending!r}'

    def put(self, character):
        if character == '\r':
            self.column = 0
        elif character == '\n':
            self.down()
        elif character == '\b':
            self.column = max(0, self.column - 1)
        elif character in '\x0e\x0f\x07':
            pass
        else:
            assert character.isprintable(), f'a control character: {character!r}'
            width = 2 if unicodedata.east_asian_width(character) in 'WF' else 1
            if self.column + width > self.columns:
                self.column = 0
                self.down()
            for at, shown in ((self.column, character), (self.column + 1, ''))[:width]:
                self.cells[self.row][at] = shown
                self.reverse[self.row][at] = self.is_reverse
            self.column += width
            self.last = character

    def down(self):
        if self.row == self.bottom:
            self.scroll(self.top, 1)
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def scroll(self, first, count):
        """Lines from `first` to the lower margin go up, or down if the count is negative."""
        for _ in range(abs(count)):
            for grid, blank in ((self.cells, ' '), (self.reverse, False)):
                if count > 0:
                    del grid[first]
                    grid.insert(self.bottom, [blank] * self.columns)
                else:
                    del grid[self.bottom]
                    grid.insert(first, [blank] * self.columns)

    def erase(self, row, first, after):
        for at in range(max(first, 0), min(after, self.columns)):
            self.cells[row][at], self.reverse[row][at] = ' ', False

    def obey(self, private, numbers, final, _charset, single):
        if single == 'M':
            if self.row == self.top:
                self.scroll(self.top, -1)
            else:
                self.row -= 1
        if final is None:
            return
        given = [int(n) if n else 0 for n in numbers.split(';')]
        count = given[0] or 1
        if private:
            if final in 'hl':
                (self.modes.add if final == 'h' else self.modes.discard)(given[0])
        elif final == 'm':
            self.style(given)
        elif final == 'H':
            self.row = min(count, self.rows) - 1
            self.column = min((given[1] if len(given) > 1 else 0) or 1, self.columns) - 1
        elif final in 'AB':
            self.row = min(max(self.row + (count if final == 'B' else -count), 0), self.rows - 1)
        elif final in 'CD':
            self.column = min(max(self.column + (count if final == 'C' else -count), 0), self.columns - 1)
        elif final in 'G`':
            self.column = min(count, self.columns) - 1
        elif final == 'd':
            self.row = min(count, self.rows) - 1
        elif final == 'J':
            self.erase_rows(given[0])
        elif final == 'K':
            self.erase(self.row, *((self.column, self.columns), (0, self.column + 1), (0, self.columns))[given[0]])
        elif final == 'X':
            self.erase(self.row, self.column, self.column + count)
        elif final in 'P@':
            self.shift(-count if final == 'P' else count)
        elif final in 'LM':
            self.scroll(self.row, count if final == 'M' else -count)
        elif final in 'ST':
            self.scroll(self.top, count if final == 'S' else -count)
        elif final == 'b':
            for _ in range(count):
                self.put(self.last)
        elif final == 'r':
            self.top = count - 1
            self.bottom = (given[1] if len(given) > 1 and given[1] else self.rows) - 1
            self.row = self.column = 0
        else:
            assert final in 'hlnt', f'an unknown sequence: {numbers}{final}'

    def erase_rows(self, what):
        rows = {0: range(self.row + 1, self.rows), 1: range(self.row), 2: range(self.rows)}[what]
        for row in rows:
            self.erase(row, 0, self.columns)
        if what == 0:
            self.erase(self.row, self.column, self.columns)
        if what == 1:
            self.erase(self.row, 0, self.column + 1)

    def shift(self, by):
        for grid, blank in ((self.cells, ' '), (self.reverse, False)):
            row = grid[self.row]
            if by > 0:
                row[self.column:] = ([blank] * by + row[self.column:])[:self.columns - self.column]
            else:
                row[self.column:] = (row[self.column - by:] + [blank] * -by)[:self.columns - self.column]

    def style(self, given):
        at = 0
        while at < len(given):
            number = given[at]
            if number in (38, 48):
                self.colors.add(given[at + 2])
                at += 2
            elif 30 <= number <= 37 or 40 <= number <= 47:
                self.colors.add(number)
            elif number in (7, 27):
                self.is_reverse = number == 7
            elif number == 0:
                self.is_reverse = False
            at += 1


class Job:
    """A program in a terminal: what it shows, and keys for it."""

    def __init__(self, words, rows=24, columns=80, cwd=None, env=None):
        self.screen = Screen(rows, columns)
        self.decoder = codecs.getincrementaldecoder('utf-8')('replace')  # a character may come in two pieces
        self.received = 0
        self.is_gone = False  # the shell, after the program
        self.ends = []  # what the shell reported: 'stopped', ('exited', status) or ('signal', number)
        master, slave = os.openpty()
        self.master, self.slave = master, slave
        self.resize(rows, columns, signals=False)
        self.before = termios.tcgetattr(slave)
        report_read, report_write = os.pipe()
        order_read, order_write = os.pipe()
        self.shell = os.fork()
        if self.shell == 0:
            try:
                for handle in (master, report_read, order_write):
                    os.close(handle)
                run_shell(words, slave, report_write, order_read, cwd, env)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(99)
        os.close(report_write)
        os.close(order_read)
        self.reports, self.orders = report_read, order_write
        os.set_blocking(self.master, False)

    def resize(self, rows, columns, signals=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
        if signals:
            self.screen.resize(rows, columns)

    def press(self, *keys):
        for key in keys:
            os.write(self.master, KEYS.get(key, key).encode())

    def read(self, seconds):
        """Take what has come; False if nothing did in that time."""
        ready = select.select([self.master, *([] if self.is_gone else [self.reports])], [], [], seconds)[0]
        if self.reports in ready:
            line = os.read(self.reports, 100).decode()
            self.ends += line.split('\n')[:-1]
            self.is_gone = not line
        if self.master in ready:
            piece = os.read(self.master, 1 << 16)
            self.received += len(piece)
            self.screen.feed(self.decoder.decode(piece))
        return bool(ready)

    def wait(self, holds, what):
        """Read until `holds(screen)` does."""
        end = time.monotonic() + HANG_S
        while not holds(self.screen):
            is_over = time.monotonic() > end or not self.read(0.5 if self.ends else HANG_S)
            assert not is_over, f'{what}: not on the screen{self.ends and f", which has ended ({self.ends})"}:\n{self.screen.text()}'

    def wait_for(self, *texts):
        self.wait(lambda screen: all(text in screen.text() for text in texts), f'waiting for {texts}')

    def wait_end(self):
        """What became of the program: 'stopped', 'exited N' or 'signal N'."""
        end = time.monotonic() + HANG_S
        while not self.ends:
            assert time.monotonic() < end
            self.read(HANG_S)
        while self.read(0.05):
            pass
        return self.ends.pop(0)

    def signal(self, number):
        """Send the program a signal."""
        os.write(self.orders, f'signal {number}\n'.encode())

    def go_on(self):
        os.write(self.orders, b'continue\n')

    def is_restored(self):
        """Whether the terminal is as it was before."""
        return termios.tcgetattr(self.slave) == self.before and 1049 not in self.screen.modes and 25 in self.screen.modes

    def close(self):
        os.close(self.orders)
        os.waitpid(self.shell, 0)
        for handle in (self.master, self.slave, self.reports):
            os.close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_shell(words, slave, reports, orders, cwd, env):
    """What a shell does with a foreground job: give it the terminal, and say when it stops or ends."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(slave, os.getpid())
        for handle in range(3):
            os.dup2(slave, handle)
        for number in (signal.SIGTTOU, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # a test in the background was started without some
        if cwd:
            os.chdir(cwd)
        os.closerange(3, 64)
        os.execve(words[0], [str(word) for word in words], env or dict(os.environ))
    kept = termios.tcgetattr(slave)
    waker, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    is_running = True
    while is_running:
        ready = select.select([waker, orders], [], [], 1)[0]
        if waker in ready:
            os.read(waker, 100)
        pid, status = os.waitpid(job, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            os.write(reports, b'stopped\n')
        elif pid:
            is_running = False
            word = f'exited {os.WEXITSTATUS(status)}' if os.WIFEXITED(status) else f'signal {os.WTERMSIG(status)}'
            os.write(reports, f'{word}\n'.encode())
        if orders in ready and is_running:
            for order in os.read(orders, 100).decode().splitlines() or ['signal 9']:
                if order == 'continue':
                    # A shell sets the modes that it likes for itself, and those of the job when that goes on.
                    termios.tcsetattr(slave, termios.TCSANOW, kept)
                    os.tcsetpgrp(slave, job)
                    os.kill(-job, signal.SIGCONT)
                else:
                    os.kill(job, int(order.split()[1]))
    os.close(reports)
    sys.stdout.flush()
    os._exit(0)
