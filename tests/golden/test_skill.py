"""The skill for language models (skills/tessera/SKILL.md): its commands run, and its table finds causes that are planted.

The commands run on files of the project under the names that the skill uses. `judge` does what the table says, in its order and with nothing
else, on the JSON of `why` alone."""
import json
import re
import shlex
import shutil
import subprocess

import pytest
from support import ROOT, expect

SKILL = ROOT / 'skills' / 'tessera' / 'SKILL.md'
TEXT = SKILL.read_text(encoding='utf-8')
COMMANDS = [shlex.split(words) for words in re.findall(r'`(tessera [a-z]+ [^`]*)`', TEXT) if re.search(r' -|\.(pickle|json)', words)]


def test_front_matter():
    """Agents read the name and the description of all skills, and the rest if these fit the question."""
    front, body = re.fullmatch(r'---\n(.*?)\n---\n(.*)', TEXT, re.DOTALL).groups()
    fields = dict(line.split(': ', 1) for line in front.splitlines())
    expect('fields', sorted(fields), ['description', 'name'])
    expect('name', fields['name'], SKILL.parent.name)
    assert 100 < len(fields['description']) <= 1024 and len(body.split()) < 1500


# ---- the commands ----


@pytest.fixture(scope='module')
def files(tessera, made, work):
    """The files that the skill names."""
    folder = work / 'skill'
    shutil.rmtree(folder, ignore_errors=True)
    (folder / 'out').mkdir(parents=True)
    simulate = ('simulate', 'gpt2', '--batch', 1, '--seq', 64, '-q')
    tessera.run(*simulate, '--steps', 4, '--leak', 'outputs', '--capacity', '2300MiB', '-o', folder / 'snapshot.pickle')
    tessera.run(*simulate, '-o', folder / 'before.pickle')
    tessera.run(*simulate, '--attention', 'eager', '-o', folder / 'after.pickle')
    for rank in range(3):
        shutil.copy(made / ('oom.pickle' if rank == 1 else 'train.pickle'), folder / 'out' / f'rank{rank}_pid{rank + 7}_step1_end.pickle')
    tessera.run('check', '--lock', folder / 'memory.lock', '--update', folder / 'before.pickle')
    return folder


def test_the_table_has_commands():
    asked = {words[1] for words in COMMANDS}
    assert {'why', 'peak', 'profile', 'leaks', 'steps', 'diff', 'whatif', 'ranks', 'info', 'simulate', 'plan', 'check'} <= asked, asked


@pytest.mark.parametrize('words', COMMANDS, ids=' '.join)
def test_a_command_runs(tessera, files, words):
    done = subprocess.run([tessera.path, *words[1:]], cwd=files, capture_output=True, text=True, check=False)
    expect(f'{words}: {done.stderr}', done.returncode in ((0, 1) if words[1] == 'check' else (0,)), True)
    if '--json' in words:
        expect('command', json.loads(done.stdout)['command'], words[1])


def test_other_commands_exist(tessera):
    for name in set(re.findall(r'`tessera ([a-z]+)', TEXT)):
        expect(name, subprocess.run([tessera.path, 'help', name], capture_output=True, check=False).returncode, 0)


# ---- the table ----


LOSS = ('cross_entropy', 'log_softmax', 'LogSoftmax', 'NllLoss', 'CausalLMLoss', 'lm_head')


def judge(device):
    """The number of the first row that is true."""
    findings = {one['rule']: one for one in device['findings']}
    totals = device['moment']['totals']
    own = sum(one['bytes'] for one in device['free'] if one['cache'] == 'own')

    def is_loss(cause):
        text = ' '.join(place['name'] + ' ' + place['file'] for place in [cause['layer'], *cause['frames']] if place)
        return any(word in text for word in LOSS)
    at_loss = sum(cause['bytes'] for cause in device['causes'][:5] if is_loss(cause))
    rows = (
        'leak' in findings and 10 * findings['leak']['bytes'] >= totals['allocated_bytes'],
        device['reason'] in ('limit', 'outside') or bool(device['capacity_bytes']) and 5 * device['outside_bytes'] >= device['capacity_bytes'],
        device['reason'] in ('cached_elsewhere', 'pending'),
        'states' in findings,
        device['reason'] == 'rounded' or device['reason'] == 'fragmented' and 10 * own >= totals['reserved_bytes'],
        4 * at_loss >= totals['allocated_bytes'],
        True)
    return rows.index(True) + 1


GPT2 = ('gpt2', '--dtype', 'autocast-bf16')
# What is planted: how the run is made (a run that simulate makes, or a file), the row of the table, and more words for `why`.
PLANTED = {
    'a list of losses with their graphs': (('gpt2', '--batch', 2, '--seq', 64, '--steps', 30, '--leak', 'graph', '--capacity', '4GiB'), 1),
    'a list of outputs, in a larger run': (('gpt2', '--batch', 8, '--seq', 128, '--steps', 30, '--leak', 'outputs', '--capacity', '8GiB'), 1),
    "a notebook's Out": (('gpt2', '--batch', 4, '--seq', 128, '--steps', 40, '--leak', 'shell', '--capacity', '5GiB'), 1),
    'a process limit': (ROOT / 'tests/golden/gpu/died-of-it.pickle.xz', 2),
    'another process': (('gpt2', '--batch', 8, '--seq', 512, '--attention', 'eager', '--capacity', '6GiB'), 2, '--capacity', '24GiB'),
    'a private pool and another stream': ('oom-elsewhere.pickle', 3),
    'frees that wait for a stream': ('oom-pending.pickle', 3),
    'a foreach optimizer': (('gpt2', '--batch', 1, '--seq', 64, '--capacity', '2300MiB'), 4),
    'an optimizer in a full card': (('gpt2', '--batch', 1, '--seq', 16, '--capacity', '2150MiB'), 4),
    'a fragmented cache': ('oom-pieces.pickle', 5),
    'blocks larger than requests': ('oom-rounded.pickle', 5),
    'logits at the loss': ((*GPT2, '--batch', 16, '--seq', 512, '--attention', 'flash', '--checkpoint', 'full', '--capacity', '6GiB'), 6),
    'logits at the loss, of float32': (('gpt2', '--batch', 8, '--seq', 1024, '--attention', 'efficient', '--checkpoint', 'full', '--capacity', '7GiB'), 6),
    'activations': (('gpt2', '--batch', 8, '--seq', 512, '--attention', 'eager', '--capacity', '6GiB'), 7),
}


@pytest.mark.parametrize('what', PLANTED)
def test_the_table_finds_what_is_planted(tessera, made, work, what):
    how, row, *more = PLANTED[what]
    path = made / how if isinstance(how, str) else how
    if isinstance(how, tuple):
        path = work / 'planted.pickle'
        path.unlink(missing_ok=True)
        tessera.run('simulate', *how, '-q', '-o', path)
    devices = [one for one in tessera.json('why', *more, path)['devices'] if one['request']]
    expect('devices that ran out of memory', len(devices), 1)
    (device,) = devices
    expect(what, judge(device), row)
    if row == 1:  # what the skill says next
        leaks = tessera.json('leaks', path)['devices'][0]
        expect('lines that leaks names', bool(leaks['leaks']), True)
    elif row == 4:
        (finding,) = [one for one in device['findings'] if one['rule'] == 'states']
        expect('options', len(finding['options']) > 3, True)


def test_judge_is_the_table():
    """The words that `judge` looks for are those of the table."""
    table = TEXT[TEXT.index('| # |'):TEXT.index('Then report')]
    for word in ('`leak`', 'a tenth or more of `moment.totals.allocated_bytes`', '`limit` or `outside`, or `outside_bytes` are a fifth or more of `capacity_bytes`', '`cached_elsewhere` or `pending`', '`states`',
                 '`rounded`', '`fragmented`', '`own` has a tenth or more of `moment.totals.reserved_bytes`', 'first five `causes`',
                 'a quarter or more of `moment.totals.allocated_bytes`', *(f'`{word}`' for word in LOSS)):
        assert word in table, word
