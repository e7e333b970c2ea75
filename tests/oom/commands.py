#!/usr/bin/env python3
"""commands.py --tessera PATH [--preload LIBRARY] --work FOLDER [--all|--few] [--only CASE] [--stacks]: every command runs out of
memory, as TAP.

One allocation after the other fails (fail_one.c), whoever makes it, until a command gets through. Each failure
must be exit status 4 with a message that says so, and leave every file as it was: outputs are as before, and
nothing else is left behind. Training alone writes files before its end, each of which must be complete. `mcp` goes on, and
replies with an error; so does `serve`, or it closes the connection. If a program did without the allocation, its output must be the same. Long commands are
sampled, unless with --all: their first and last allocations, and some between. What is no failure of memory must stay the
user's mistake.
"""
import argparse
import collections
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / 'cli')]
sys.dont_write_bytecode = True
import fixtures  # noqa: E402
import tap  # noqa: E402

MEMORY = 4
SAMPLE, FEW = 60, 15
SHOWN = 12
GRAPH = HERE.parent / 'golden' / 'graphs' / 'vit.graph'
TOKENIZER = HERE.parent / 'fuzz' / 'corpus' / 'tokenizer' / 'byte-level'
CONFIG = {'model_type': 'gpt2', 'vocab_size': 257, 'n_embd': 8, 'n_head': 2, 'n_layer': 2, 'n_positions': 32,
          'architectures': ['GPT2LMHeadModel'], 'dtype': 'bfloat16'}
DEEPSPEED = {'train_micro_batch_size_per_gpu': 2, 'zero_optimization': {'stage': 2, 'reduce_bucket_size': 1000000},
             'gradient_clipping': 1.0, 'bf16': {'enabled': True}, 'steps_per_print': 10}
TRAIN = ['--batch', '2', '--seq', '8', '--threads', '1', '-q']
CHAT = "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + m.role|trim ~ ' ' %}{{ ns.s }}{{ m['content'] }}{% endfor %}"
KEPT = b'kept\n'
# In place of Python, as those of tests/cli/fixtures.py; it writes no file.
TRACES = '#!/bin/sh\ncat /dev/fd/10 > /dev/null; (echo "graph traced"; cat step.graph) > /dev/fd/11\n'
ANSWERS = '#!/bin/sh\ncat /dev/fd/10 > /dev/null; (echo "graph 0 5"; echo well; echo the report) > /dev/fd/11\n'
REFUSES = '#!/bin/sh\ncat /dev/fd/10 > /dev/null; echo "refused x" > /dev/fd/11\n'
RULES_JSON = '{"attention": "attn|softmax", "rest": {"pattern": "x", "priority": 12, "description": null}}'
RULES_YAML = 'rules:\n- name: attention\n  pattern: attn|softmax\n- {name: rest, pattern: "x", priority: 12}\n'
# Of each library's mistakes, one that a user makes: it must not be taken for memory.
MISTAKES = ['{"a": 1 "b"}', '{"a": bcd"}', '["a', '{"a" "b"}', '{"a": "\\q"}', '{"a": "b"}{', '{"a": "b", }',
            '{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}', 'a: [b', 'a: "b', 'a: *b']

QUERY = ("SELECT a.category, s.text, sum(a.size_bytes) AS bytes, max(a.lifetime_us) * 0.5, a.place FROM allocations a "
         "JOIN stacks s USING (stack) WHERE a.category != 'x' GROUP BY a.place")
ADDRESS = re.compile(rb'^http://127\.0\.0\.1:(\d+)(/[0-9a-f]{32}/)$')
HANG_S = 1800

# Words, what they write, and the standard input. A command that goes on for long writes as it goes, and reports times. A server is
# asked for these, after its secret.
Case = collections.namedtuple('Case', 'words outputs text goes_on asks', defaults=((), '', False, ()))


def requests(*calls):
    lines = [('initialize', {'protocolVersion': '2025-06-18'}), *calls]
    return ''.join(json.dumps({'jsonrpc': '2.0', 'id': i, 'method': method, 'params': params}) + '\n'
                   for i, (method, params) in enumerate(lines))


def call(tool, **arguments):
    return 'tools/call', {'name': tool, 'arguments': arguments}


CASES = {
    'plan show': Case(['plan', 'show', 'plan.json', 'model', '--seq', '8']),
    'plan of a DeepSpeed configuration': Case(['plan', 'show', '--ds-config', 'ds.json', 'model', '--gpus', '2', '--seq', '8']),
    'plan': Case(['plan', 'model', '--batch', '2', '--seq', '8', '--gpu', 't4', '--json']),
    'plan with a budget': Case(['plan', 'model', '--batch', '2', '--seq', '8', '--gpu', 't4', '--budget', '30MiB',
                                '--write-plan', 'found.json'], ['found.json']),
    'plan for DeepSpeed': Case(['plan', 'model', '--seq', '8', '--ds-config', 'ds.json', '--gpus', '2', '--for', 'deepspeed', '--for', 'hf',
                               '--for', 'deepspeed', '--json']),
    'plan in front': Case(['plan', 'thin', '--seq', '8', '--gpu', 't4', '--front', '--allow', 'recompute',
                           '--write-front', 'front.json'],
                          ['front.json']),
    'largest model': Case(['plan', 'model', '--seq', '8', '--gpu', 't4', '--budget', '30MiB', '--largest', 'model', '--allow', 'none',
                           '--write-model', 'large.json'], ['large.json']),
    'plan of a step graph': Case(['plan', 'step.graph', '--gpu', 'h100', '--budget', '66MiB']),
    'compare plans': Case(['plan', 'model', '--seq', '8', '--compare', '--gpus', '2', '--json']),
    'simulate': Case(['simulate', 'model', '--seq', '8', '--plan', 'plan.json', '--write-plan', 'again.json',
                      '-o', 'out.pickle'], ['again.json', 'out.pickle']),
    'simulate on a whole card': Case(['simulate', 'model', '--seq', '8', '--gpu', 't4', '--capacity', '16GiB', '--json']),
    'simulate a step graph': Case(['simulate', 'step.graph', '-o', 'out.pickle'], ['out.pickle']),
    'simulate with rates': Case(['simulate', 'model', '--seq', '8', '--rates', 'rates.json', '--ds-config', 'ds.json',
                                 '--ranks', '2', '--profile']),
    'train': Case(['train', 'model/config.json', '--data', 'text.txt', *TRAIN, '--steps', '1', '--save', 'run',
                   '--write-rates', 'r.json', '--write-plan', 'p.json', '--snapshot', 's.pickle'],
                  ['run', 'r.json', 'p.json', 's.pickle'], goes_on=True),
    'train with validation': Case(['train', 'model/config.json', '--data', 'text.txt', '--val', 'text.txt', '--eval-every', '1', '--eval-steps', '2', *TRAIN,
                                   '--steps', '1', '--save', 'best', '--log', 'l.csv', '--no-decay', 'norms'], ['best', 'l.csv'], goes_on=True),
    'train with momentum': Case(['train', 'model/config.json', '--data', 'text.txt', *TRAIN, '--steps', '1', '--optimizer', 'sgd', '--momentum', '0.9',
                                 '--memory', 'placed', '--val', 'text.txt'], goes_on=True),
    'resume': Case(['train', '--resume', 'saved', '--data', 'text.txt', '--steps', '3', '-q', '--threads', '1',
                    '--write-plan', 'p.json'], ['saved', 'p.json'], goes_on=True),
    'train adapters': Case(['train', 'model/config.json', '--data', 'text.txt', *TRAIN, '--steps', '1', '--lora', '2', '--save', 'run'],
                           ['run'], goes_on=True),
    'train and sample': Case(['train', 'model/config.json', '--data', 'text.txt', *TRAIN, '--steps', '1', '--save', 'run', '--sample', 'a line',
                              '--sample-tokens', '3'], ['run'], goes_on=True),
    'sample': Case(['sample', 'saved', '--prompt', 'a line', '--tokens', '3', '--seed', '1', '--threads', '1']),
    'tokens': Case(['tokens', '--tokenizer', 'spoken/tokenizer.json', 'text.txt', '-o', 'some.tokens', '--end', 'after', '--threads', '1',
                    '--json'], ['some.tokens']),
    'train on words': Case(['train', 'spoken', '--data', 'text.txt', *TRAIN, '--steps', '1', '--save', 'run'], ['run'], goes_on=True),
    'sample words': Case(['sample', 'spoken', '--prompt', 'a line', '--tokens', '3', '--seed', '1', '--threads', '1', '--stop', 'x',
                          '--top-p', '0.9']),
    'chat': Case(['sample', 'spoken', '--chat', '--prompt', 'a line', '--system', 'be', '--tokens', '2', '--seed', '1', '--threads', '1']),
    'peak': Case(['peak', 'train.pickle', '-o', 'peak.json'], ['peak.json']),
    'sidecar': Case(['peak', 'told.pickle', '--json']),
    'export': Case(['export', 'train.pickle', '-o', 'copy.json'], ['copy.json']),
    'database': Case(['export', 'train.pickle', '-o', 'all.sqlite'], ['all.sqlite']),
    'arrow': Case(['sql', 'train.pickle', QUERY, '-o', 'some.arrow'], ['some.arrow']),
    'sql': Case(['sql', 'train.pickle', QUERY + ' ORDER BY bytes']),
    'CSV': Case(['sql', 'train.pickle', '--output', 'csv', 'SELECT * FROM allocations; SELECT * FROM steps']),
    'view': Case(['view', 'train.pickle', '-o', 'page.html'], ['page.html']),
    'rules in JSON': Case(['profile', 'train.pickle', '--rules', RULES_JSON]),
    'rules in YAML': Case(['profile', 'train.pickle', '--rules', RULES_YAML]),
    "rules of Mosaic's": Case(['mosaic_get_memory_profile', '--snapshot', 'train.pickle', '--out-path', '',
                               '--profile', 'custom', '--custom-profile', RULES_JSON]),
    'diff': Case(['diff', 'train.pickle', 'told.pickle']),
    'pools': Case(['pools', 'pooled.pickle']),
    'whatif': Case(['whatif', 'train.pickle', '--set', 'expandable_segments:True']),
    'info': Case(['info', 'train.pickle', '--json']),
    'at': Case(['at', 'train.pickle', '--event', '3']),
    'stages': Case(['stages', 'train.pickle']),
    'source': Case(['source', 'train.pickle', 'text.txt']),
    'steps': Case(['steps', 'train.pickle']),
    'leaks': Case(['leaks', 'train.pickle']),
    'ranks': Case(['ranks', 'fleet', '--threads', '1', '--pattern', 'rank(?<rank>.)', '--sketches', 'all.sketch'], ['all.sketch']),
    'ranks of sketches': Case(['ranks', 'some.sketch', '--threads', '1', '--json']),
    'card': Case(['card', 'crowded.pickle', '--json']),
    'cards': Case(['card', 'trainer.pickle', 'engine.pickle', 'crowded.pickle']),
    'why outside': Case(['why', 'crowded.pickle']),
    'page of ranks': Case(['ranks', 'some.sketch', '--threads', '1', '--html', 'ranks.html'], ['ranks.html']),
    'why': Case(['why', 'train.pickle']),
    'check': Case(['check', 'train.pickle', '--lock', 'lock.json', '--update', '-o', 'check.json'],
                  ['lock.json', 'check.json']),
    'report': Case(['report', 'train.pickle', '-o', 'report.html'], ['report.html']),
    'trim': Case(['trim', 'train.pickle', '-o', 'part.pickle'], ['part.pickle']),
    'trace': Case(['trace', 'other', '--python', './traces', '--batch', '2', '-o', 'out.graph'], ['out.graph']),
    'doctor': Case(['doctor', '--python', './answers', '-o', 'doctor.md'], ['doctor.md']),
    'doctor alone': Case(['doctor', '--python', './refuses', '--json', '-o', 'doctor.md'], ['doctor.md']),
    'simulate what is traced': Case(['simulate', 'other', '--python', './traces', '--batch', '2', '-o', 'out.pickle'],
                                    ['out.pickle']),
    "JSON of Mosaic's": Case(['mosaic_get_json_snapshot', '--snapshot', 'train.pickle', '--output-file', 'copy.json'], ['copy.json']),
    "page of Mosaic's": Case(['mosaic_get_memory_profile', '--snapshot', 'train.pickle', '--out-path', 'page.html'], ['page.html']),
    "peak of Mosaic's": Case(['mosaic_get_memory_usage_peak', '--snapshot', 'train.pickle']),
    "stages of Mosaic's": Case(['mosaic_get_memory_usage_by_annotation_stage', '--snapshot', 'train.pickle']),
    "diff of Mosaic's": Case(['mosaic_get_memory_usage_diff', '--snapshot-base', 'train.pickle', '--snapshot-diff', 'told.pickle']),
    "lines of Mosaic's": Case(['mosaic_per_file_memory_snapshot_analysis', 'analyze', '--snapshot', 'train.pickle', '--file-path',
                               'text.txt']),
    'help': Case(['help', 'train']),
    'serve': Case(['serve', 'train.pickle', '-q'], asks=2 * ['', 'part?track=0&from=0&to=9', 'part?track=x', 'other']),
    'mcp': Case(['mcp'], [], requests(
        ('tools/list', {}), call('tessera_peak', path='train.pickle'),
        call('tessera_profile', path='train.pickle', rules='{"attention": "attn"}'), call('get_peak', x=1))),
}


def is_earlier(name):
    """Whether a file is the rest of an earlier save, which may stay."""
    return 'training-' in name


def is_like(name, content, other):
    """Whether an output is the complete one; what is measured differs."""
    if not content or not other or content == other:
        return content == other
    if name == 'r.json':
        return json.loads(content).keys() == json.loads(other).keys()
    if name == 'l.csv':  # its rows are there as soon as their steps are done
        rows, wanted = ([line.split(b',')[:5] for line in text.splitlines()] for text in (content, other))
        return content.endswith(b'\n') and rows == wanted[:len(rows)]
    return name.endswith('.pickle') and len(content) == len(other)


def compare_replies(got, wanted):
    """Each reply is the right one, or an error that is about memory."""
    got, wanted = got.splitlines(), wanted.splitlines()
    if len(got) != len(wanted):
        return f'{len(got)} replies, not {len(wanted)}'
    for mine, other in zip(got, wanted):
        if mine != other and b'out of memory' not in mine:
            return f'another reply: {mine[:300]!r}'
        reply = json.loads(mine)
        if reply['id'] not in (None, json.loads(other)['id']):
            return f'a reply to {reply["id"]}'
    return None


def ask(port, path):
    """What a server replied, and what with; None if it closed the connection before the end."""
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=HANG_S)
    try:
        connection.request('GET', path)
        reply = connection.getresponse()
        return reply.status, hashlib.sha256(reply.read()).hexdigest()
    except (ConnectionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def compare_served(got, wanted):
    """One reply may be lacking, or an error of the server's; all others are right."""
    got, wanted = json.loads(got), json.loads(wanted)
    others = [mine for mine, other in zip(got, wanted) if mine != other]
    is_failure = all(not mine or mine[0] in (500, 503) for mine in others)
    return None if len(got) == len(wanted) and len(others) <= 1 and is_failure else f'replies {got}'


class Runner:
    def __init__(self, given):
        self.given, self.flag = given, given.work / 'failed'
        self.folder = given.work / 'files'

    def make(self):
        folder = self.folder
        for name in ('model', 'thin'):
            (folder / name).mkdir(parents=True)
        fixtures.write(folder / 'train.pickle', fixtures.train())
        fixtures.write(folder / 'pooled.pickle', fixtures.pooled())
        fixtures.write_named(folder)
        fixtures.crowded(folder)
        fixtures.shared_card(folder)
        (folder / 'fleet').mkdir()
        for rank, name in enumerate(('train', 'train', 'told')):
            shutil.copyfile(folder / f'{name}.pickle', folder / 'fleet' / f'rank{rank}.pickle')
        for name, value in {'model/config.json': CONFIG, 'thin/config.json': {**CONFIG, 'n_layer': 1}, 'ds.json': DEEPSPEED,
                            'machine.json': {'schema': 'tessera/machine/1', 'devices': [{'name': 'Tesla T4', 'context_bytes': 100}]},
                            'plan.json': {'version': 1, 'blocks': [{'first': 0, 'last': 0, 'checkpoint': 'full'}],
                                          'clip': '1'}}.items():
            (folder / name).write_text(json.dumps(value))
        shutil.copyfile(GRAPH, folder / 'step.graph')
        for name, text in (('traces', TRACES), ('answers', ANSWERS), ('refuses', REFUSES)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / 'other').mkdir()
        (folder / 'other/config.json').write_text('{"model_type": "qwen3"}')
        (folder / 'text.txt').write_text('a line to learn\n' * 20)
        done = self.run(Case(['train', 'model/config.json', '--data', 'text.txt', *TRAIN, '--steps', '2', '--save', 'saved',
                              '--write-rates', 'rates.json']), {})
        assert done.returncode == 0, done.stderr
        shutil.copytree(folder / 'saved', folder / 'spoken')
        shutil.copyfile(TOKENIZER, folder / 'spoken/tokenizer.json')
        (folder / 'spoken/chat_template.jinja').write_text(CHAT)
        done = self.run(Case(['ranks', 'fleet', '--sketches', 'some.sketch', '-q']), {})
        assert done.returncode == 0, done.stderr

    def files(self):
        """Every file and folder, with what it contains."""
        return {str(path.relative_to(self.folder)): path.is_file() and path.read_bytes()
                for path in self.folder.rglob('*')}

    def serve(self, case, env):
        """Its output is the replies; it ends by a signal."""
        replies = []
        with subprocess.Popen([self.given.tessera, *case.words], cwd=self.folder, env=dict(os.environ, **env), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            if found := ADDRESS.match(process.stdout.readline()):
                replies = [ask(int(found[1]), found[2].decode() + path) for path in case.asks]
                process.send_signal(signal.SIGTERM)
            errors = process.stderr.read()
        # GnuTLS, which libmicrohttpd brings along, may need memory of a thread when it is unloaded; glibc then ends the process.
        is_unloading = len(replies) == len(case.asks) and process.returncode == 127 and b'thread-local' in errors
        return subprocess.CompletedProcess(case.words, 0 if is_unloading else process.returncode, json.dumps(replies).encode(), errors)

    def run(self, case, env):
        self.flag.unlink(missing_ok=True)
        if case.asks:
            return self.serve(case, env)
        measured = {'TESSERA_MACHINE': str(self.folder / 'machine.json')}
        return subprocess.run([self.given.tessera, *case.words], cwd=self.folder, env={**os.environ, **measured, **env},
                              check=False, input=case.text.encode(), capture_output=True)

    def fail(self, case, number):
        env = {'TSR_FAILED': str(self.flag)}
        if self.given.preload:
            env['LD_PRELOAD'] = str(self.given.preload)
        if self.given.stacks:
            env['TSR_FAIL_STACK'] = '1'
        if number:
            env['TSR_FAIL_AT'] = str(number)
        return self.run(case, env)

    def numbers(self, case, before):
        done = self.fail(case, 0)
        assert done.returncode == 0, done.stderr
        self.restore(before, self.files())
        count = int(self.flag.read_text())
        numbers = range(1, count + 1)
        third = (FEW if self.given.few else SAMPLE) // 3
        if self.given.all or count <= 3 * third:
            return numbers
        between = random.Random(count).sample(numbers[third:-third], third)
        return [*numbers[:third], *sorted(between), *numbers[-third:]]

    def restore(self, before, after):
        for name in sorted(after.keys() - before.keys(), reverse=True):
            path = self.folder / name
            path.rmdir() if path.is_dir() else path.unlink()
        for name, content in before.items():
            if content is not False and after.get(name) != content:
                (self.folder / name).write_bytes(content)

    def problem(self, case, done, wanted, before, after):
        """What is wrong with a run in which an allocation failed, in words, or None."""
        if not self.flag.exists() or not self.flag.stat().st_size:
            return None  # a run takes turns: fewer allocations than last time
        if done.returncode == 0:
            return self.difference(case, (done.stdout, after), wanted)
        if done.returncode != MEMORY or b'out of memory' not in done.stderr:
            return f'{done.returncode} {done.stderr.decode(errors="replace").strip()[-600:]}'
        changed = {name for name in {*before, *after} if before.get(name, 0) != after.get(name, 0)}
        if case.goes_on:
            changed = {name for name in changed if not is_like(name, after.get(name), wanted[1].get(name))}
        return f'files changed: {" ".join(sorted(changed))}' if changed else None

    @staticmethod
    def difference(case, got, wanted):
        """Between two successes."""
        if case.asks:
            return compare_served(got[0], wanted[0])
        if case.text:
            return compare_replies(got[0], wanted[0])
        if not case.goes_on and got[0] != wanted[0]:
            return 'another output'
        return next((f'another {name}' for name in sorted({*got[1], *wanted[1]})
                     if not is_like(name, got[1].get(name), wanted[1].get(name)) and not is_earlier(name)), None)

    def problems(self, case):
        original = self.files()
        for name in case.outputs:
            if '.' in name and name != 'lock.json':  # which must be one, or new
                (self.folder / name).write_bytes(KEPT)
        before = self.files()
        done = self.run(case, {})
        assert done.returncode == 0, done.stderr
        wanted = done.stdout, self.files()
        self.restore(before, wanted[1])
        for number in self.numbers(case, before):
            done = self.fail(case, number)
            after = self.files()
            found = self.problem(case, done, wanted, before, after)
            self.restore(before, after)
            if found:
                yield f'allocation {number}: {found}' + ('\n' + self.flag.read_text() if self.given.stacks else '')
        self.restore(original, before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ('--tessera', '--preload', '--work'):
        parser.add_argument(name, required=name != '--preload', type=lambda text: Path(text).resolve())
    for name in ('--all', '--few', '--stacks'):
        parser.add_argument(name, action='store_true')
    parser.add_argument('--only')
    given = parser.parse_args()
    if 'TESSERA_WHOLE' in os.environ:  # ./run test all
        given.all, given.few = not given.few, False
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    runner = Runner(given)
    runner.make()
    report = tap.Report()
    for title, case in CASES.items():
        if given.only and given.only != title:
            continue
        try:
            found = list(runner.problems(case))
        except AssertionError as error:
            found = [str(error)]
        report.result(title, [line for text in found[:SHOWN] for line in text.splitlines()] +
                      [f'{len(found)} in all'] * (len(found) > SHOWN))
    mistakes = {text: runner.run(Case(['profile', '--rules', text, 'train.pickle']), {}).returncode for text in MISTAKES}
    report.result('mistakes are mistakes', [text for text, status in mistakes.items() if status != 2])
    return report.end()


if __name__ == '__main__':
    sys.exit(main())
