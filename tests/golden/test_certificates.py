"""Certificates of `plan --budget --json`: examples/check_certificate.py accepts those that tessera writes, whatever the options, and of those
that were tampered with it accepts only such of which it says that what was changed is taken on trust.

`./run test` takes a sample of both; `./run test all`, or TESSERA_WHOLE=1, takes all. TESSERA_SEED makes other questions."""
import functools
import json
import os
import subprocess
import sys

import pytest
from certificates import MODELS, OTHER_PLAN, OTHER_QUESTION, RECORDED, TAMPERINGS, VALUES, Question, Questions, Unchanged, changed_places, \
    is_trusted, rows_of_options, tampered, words_of
from support import HERE, ROOT, cases, expect, part_of

sys.path.insert(0, str(ROOT / 'examples'))
import check_certificate  # noqa: E402

SEED = int(os.environ.get('TESSERA_SEED', '1'))
CARD = {'batch': 8, 'seq': 64, 'gpu': 't4'}
# What is tampered with: of each, the model, options, and the budget as a part of what is reserved without changes.
BASES = {
    'changes': ('gpt2', {**CARD, 'allow': 'kernels,loss-chunk,recompute,offload'}, 0.55),
    'recompute': ('llama', {**CARD, 'allow': 'recompute,accumulate'}, 0.75),
    'roomy': ('grouped', {**CARD, 'gpu': 'h100', 'allow': 'kernels,offload,accumulate,recompute'}, 2),
    'impossible': ('mistral', {**CARD, 'allow': 'kernels,accumulate,recompute,narrow,in-backward'}, 0.0001),
    'not found': ('gpt2', {**CARD, 'allow': 'recompute,narrow'}, None),
    'ranks': ('llama', {**CARD, 'gpus': 4, 'allow': 'zero,recompute,precision,accumulate'}, 0.5),
    'rates': ('gpt2', {'batch': 4, 'seq': 32, 'rates': 'rates', 'allow': 'kernels,recompute'}, 0.95),
    'recorded': ('gpt2', {**RECORDED, 'from': 'recorded', 'allow': 'kernels,recompute'}, 0.7),
    'graph': (HERE / 'graphs' / 'layers.graph', {'allow': 'recompute,offload'}, 0.95),
    'largest': ('qwen2', {'seq': 64, 'largest': 'batch'}, 40),
    'stopped': ('gpt2', {**CARD, 'work_limit': 100000}, 0.8),
}


class Asker:
    """Asks questions, and has their answers checked."""

    def __init__(self, tessera, work):
        self.tessera = tessera
        self.files = {name: work / f'{name}.json' for name in MODELS}
        for name, config in MODELS.items():
            self.files[name].write_text(json.dumps(config))
        self.files.update(rates=work / 'rates.json', plan=work / 'begin.json', recorded=work / 'recorded.pickle', ds_config=work / 'ds.json')
        self.files['plan'].write_text(json.dumps({'version': 1, 'optimizer': 'sgd', 'blocks': [{'first': 0, 'last': 1, 'checkpoint': 'full'}]}))
        self.files['ds_config'].write_text(json.dumps({'zero_optimization': {'stage': 2}, 'bf16': {'enabled': True}, 'gradient_clipping': 1.0}))
        (work / 'text.txt').write_text('some words to train on, again and again. ' * 200)
        tessera.run('train', self.files['gpt2'], '--data', work / 'text.txt', '--tokens', 'bytes', *words_of({'batch': 4, 'seq': 32, 'steps': 3}),
                    '--write-rates', self.files['rates'])
        tessera.simulate(self.files['gpt2'], *words_of(RECORDED), '--steps', 5, out=self.files['recorded'])

    @functools.lru_cache(maxsize=None)
    def base(self, name):
        """A question of BASES, and its answer."""
        model, options, part = BASES[name]
        options = {key: self.files[value] if key in ('rates', 'from') else value for key, value in options.items()}
        question = Question(self.files.get(model, model), options, part)
        if part is None:
            question.part = self.least(question) - 1
        return question, self.ask(question)

    def least(self, question):
        """One byte less than what any plan reserves that is found: a certificate then does not prove that nothing fits, if its bound is lower."""
        impossible = self.ask(Question(question.model, question.options, 0.0001))
        return (impossible['lower_bound']['peak_bytes'] + impossible['predicted']['peak_reserved_bytes']) // 2

    def ask(self, question):
        """The answer; None if the command refuses the question, with a message."""
        options = {name: value for name, value in question.options.items() if name not in ('largest', 'allow', 'work_limit', 'for')}
        begins = self.tessera.run('plan', question.model, *words_of(options), '--budget', '8GiB', '--allow', 'none', '--json', status=(0, 1, 2))
        if begins.returncode == 2:
            return None
        budget = question.part
        if budget < 1000:
            found = json.loads(begins.stdout)
            budget = int((found['as_is'] or found['predicted'])['peak_reserved_bytes'] * budget)
        done = self.tessera.run('plan', question.model, *words_of(question.options), '--budget', f'{max(budget, 1)}B', '--json', status=(0, 1, 2))
        if not done.stdout:
            return None
        answer = json.loads(done.stdout)
        return answer if answer.get('answer') or 'budget_bytes' in answer else None  # with --largest: there may be none

    def again(self, question, answer):
        """The answer to the question that an answer contains, with the files of the question for which it was."""
        files = {key: value for key, value in question.options.items() if key in ('rates', 'from')}
        options = {**answer.get('answer', answer)['question']['options'], **files}
        budget = f'{options.pop("budget")}B'
        return self.tessera.json('plan', question.model, *words_of(options), '--budget', budget, status=(0, 1))

    def verify(self, question, answer, **how):
        model = question.model if str(question.model).endswith('.graph') else None
        return check_certificate.verify(answer, self.tessera.path, model, **how)


@pytest.fixture(scope='module')
def asker(tessera, work):
    return Asker(tessera, work)


# ---- genuine ones ----

def makers():
    """Kinds of questions, each with a number of its own: how often each is asked."""
    singles = [('single', i) for i in range(sum(map(len, VALUES.values())))]
    return [*singles, *(('some', i) for i in range(120)), *(('graph', i) for i in range(12)), *(('recorded', i) for i in range(6)), ('ds_config', 0)]


def question_of(asker, kind, number):
    questions = Questions(SEED * 1000 + number, asker.files)
    if kind == 'single':
        return list(questions.singles())[number]
    if kind == 'ds_config':
        return Question(asker.files['gpt2'], {**questions.sizes(), 'ds_config': asker.files['ds_config'], 'gpus': 2}, 0.8)
    return getattr(questions, kind)()


@cases('kind, number', part_of(makers(), 'certificates', 19))
def test_genuine(asker, kind, number):
    """What tessera writes is accepted, and every field is a statement."""
    question = question_of(asker, kind, number)
    answer = asker.ask(question)
    if answer is None:
        pytest.skip(f'refused: {question}')
    try:
        check = asker.verify(question, answer, seed=number, sample='all' if number % 3 == 0 else 4)
    except (check_certificate.Wrong, check_certificate.Unknown) as why:
        raise AssertionError(f'{question}: {why}') from why
    fields = [field for fields, _ in check.proved + check.trusted for field in fields.split(', ')]
    inner = answer.get('answer', answer)
    expect('without a statement', [key for key in inner if key not in ('schema', 'command', 'lower_bound')
                                   and not any(field.split('[')[0].split('.')[0] == key for field in fields)], [])


def test_options():
    """Each option of a run is among the questions."""
    expect('options', rows_of_options(), set(VALUES))


# ---- tampering ----

def facts(answer, trusted):
    """What an answer claims, whichever plan was found."""
    answer = answer.get('answer', answer)
    lower = {key: answer['lower_bound'][key] for key in ('step_time_us', 'peak_bytes')}
    claims = {'is_proved': answer['is_proved'], **{key: answer[key] for key in ('verdict', 'as_is')}, **{f'lower_bound.{key}': lower[key] for key in lower}}
    if '*_us' in trusted:
        del claims['lower_bound.step_time_us'], claims['as_is']
    return {key: value for key, value in claims.items() if not is_trusted(key, trusted)}


@cases('name', part_of(sorted(TAMPERINGS), 'tampering', 9))
def test_tampered(asker, name):
    """Each certificate that can be changed in this manner."""
    tried = 0
    for base in part_of(list(BASES), name, 4):
        question, answer = asker.base(base)
        try:
            other = tampered(answer, name)
        except Unchanged:
            continue
        tried += 1
        try:
            check = asker.verify(question, other, seed=tried, sample=2)
        except (check_certificate.Wrong, check_certificate.Unknown):
            continue
        fields = [field for fields, _ in check.trusted for field in fields.split(', ')]
        places = changed_places(answer.get('answer', answer), other.get('answer', other))
        untrusted = [place for place in places if not is_trusted(place, fields)]
        if name in OTHER_PLAN:
            expect(f'{base}: the search is trusted', 'search' in fields or answer['is_proved'], True)
        elif name in OTHER_QUESTION and untrusted:
            expect(f'{base}: the answer to the other question', facts(asker.again(question, other), fields), facts(other, fields))
        else:
            expect(f'{base}: changed, and not taken on trust', untrusted, [])
    if not tried:
        pytest.skip('nothing to change in the sample')


def test_command(asker, work):
    """How it exits, and what it prints."""
    _, answer = asker.base('changes')
    (work / 'rejected.json').write_text(json.dumps(tampered(answer, 'another plan_hash')))
    (work / 'unknown.json').write_text(json.dumps(tampered(answer, 'another tessera')))
    (work / 'accepted.json').write_text(json.dumps(answer))
    for name, status, line in (('accepted', 0, 'ACCEPTED (seed 7)'), ('rejected', 1, 'REJECTED: the hash of the plan'),
                               ('unknown', 2, 'CANNOT BE CHECKED: tessera ')):
        done = subprocess.run([sys.executable, ROOT / 'examples' / 'check_certificate.py', work / f'{name}.json', '--tessera', asker.tessera.path,
                               '--seed', '7'], capture_output=True, text=True, check=False)
        expect(f'{name}: status', (done.returncode, done.stderr), (status, ''))
        expect(f'{name}: last line', done.stdout.splitlines()[-1].startswith(line), True)
    expect('trust', 'TAKEN ON TRUST: ' in subprocess.run(
        [sys.executable, ROOT / 'examples' / 'check_certificate.py', work / 'accepted.json', '--tessera', asker.tessera.path],
        capture_output=True, text=True, check=True).stdout, True)
