"""Planning ends: in linear time where it can, at a limit on work or time with the best plan so far, and at Ctrl-C at once."""
import json
import os
import signal
import subprocess
import sys
import time

from many_modules import FORMS, write
from support import ROOT, cases, expect

sys.path.insert(0, str(ROOT / 'examples'))
import check_certificate  # noqa: E402

MANY = 20000
HANG_S = 600  # 2,000 modules within each other once took a minute, and twice as many eight
SMALL = ('plan', 'gpt2', '--batch', 4, '--gpu', 't4')


def deep(work, layers=4096):
    path = work / f'deep-{layers}.json'
    path.write_text(json.dumps({'model_type': 'gpt2', 'n_layer': layers}), encoding='utf-8')
    return path


@cases('form', FORMS)
def test_many_modules(tessera, work, form):
    write(MANY, form, work / 'many.graph')
    answer = tessera.json('plan', work / 'many.graph', '--budget', '30GiB', '--work-limit', 0, '--time-limit', 0, timeout=HANG_S)
    expect('fits', answer['predicted']['peak_reserved_bytes'] <= 30 << 30, True)
    expect('is rewritten', bool(answer['plan'].keys() & {'checkpoint', 'offload'}), True)


def limited(tessera, *words, work_limit, status=(0, 1)):
    done = [tessera.run(*words, '--json', '--work-limit', work_limit, status=status) for _ in range(2)]
    expect('the same each time', done[0].stdout, done[1].stdout)
    return json.loads(done[0].stdout)


def test_work_limit(tessera):
    """A higher limit never finds a slower plan, and from some limit on the answer is that without one."""
    words = (*SMALL, '--budget', '3GiB')
    whole = tessera.json(*words, '--work-limit', 0)
    expect('whole', 'stopped_by' in whole, False)
    last = None
    for limit in (40000, 200000, 1000000, 3000000, 10000000, 15000000, 1000000000):
        answer = limited(tessera, *words, work_limit=limit)
        check_certificate.verify(answer, tessera.path, sample=1)
        fits = answer['verdict'] != 'does_not_fit'
        expect('not proved', answer['is_proved'], False)
        time_us = answer['predicted']['step_time_us'] if fits else None
        expect(f'{limit}: as fast', last is None or time_us <= last, True)
        expect(f'{limit}: not faster than the best', time_us is None or time_us >= whole['predicted']['step_time_us'], True)
        last = time_us
        if 'stopped_by' in answer:
            expect('stopped', answer['stopped_by'], 'work_limit')
            expect('changes without figures', answer['changes'], [])
    for one in (answer, whole):
        del one['question']['options']['work_limit']
    expect('the last is whole', answer, whole)
    text = tessera.output(*words, '--work-limit', 10000000).splitlines()
    expect('the verdict', text[1], '  the search ended at --work-limit: another plan may be faster')


def test_work_limit_is_too_low(tessera, work):
    graph = work / 'many.graph'
    write(300, 'flat', graph)
    for words in ((*SMALL, '--budget', '3GiB'), (*SMALL, '--front'), (*SMALL, '--explain'), (*SMALL, '--budget', '9GiB', '--largest', 'seq'),
                  ('plan', graph, '--budget', '1GiB')):
        done = tessera.run(*words, '--work-limit', 500, status=2)
        expect('message', done.stderr.splitlines()[0],
               'tessera plan: nothing was found within --work-limit: raise it, or set it to 0')
        expect('output', done.stdout, '')


def test_graphs(tessera, work):
    """Modules that were measured before the limit count."""
    graph = work / 'some.graph'
    write(600, 'nested', graph)
    words = ('plan', graph, '--budget', '800MiB')
    whole, some = tessera.json(*words), limited(tessera, *words, work_limit=300000)
    expect('stopped', (some['stopped_by'], some['verdict']), ('work_limit', 'fits_with_changes'))
    expect('not faster', some['predicted']['step_time_us'] >= whole['predicted']['step_time_us'], True)


def test_front_and_largest(tessera):
    common = ('plan', 'gpt2', '--gpu', 't4', '--allow', 'kernels,loss-chunk,recompute')  # test_work_limit allows all
    words = (*common, '--front')
    whole, some = tessera.json(*words), limited(tessera, *words, work_limit=2000000)
    expect('fewer', 0 < len(some['front']) < len(whole['front']), True)
    expect('stopped', (some['stopped_by'], 'stopped_by' in whole), ('work_limit', False))
    expect('text', 'the search ended at --work-limit' in tessera.output(*words, '--work-limit', 2000000), True)
    for what, budget in (('batch', '16GiB'), ('seq', '4GiB'), ('model', '16GiB')):
        words = (*common, '--budget', budget, '--largest', what)
        whole, some = tessera.json(*words), limited(tessera, *words, work_limit=1000000)
        expect(what, 0 < some['size'] <= whole['size'] and some['size_as_is'] <= whole['size_as_is'], True)
        fits = some['answer']['predicted']['peak_reserved_bytes'] <= some['answer']['budget_bytes']
        expect('fits', (fits, 'stopped_by' in some or 'stopped_by' in some['answer'], 'stopped_by' in whole), (True, True, False))
        check_certificate.verify(some['answer'], tessera.path, sample=1)


def test_time_limit(tessera, work):
    done = tessera.run('plan', deep(work), '--front', '--time-limit', 1, status=(0, 2), timeout=HANG_S)
    expect('says so', '--time-limit' in done.stdout + done.stderr, True)


def test_train_has_limits(tessera, work):
    (work / 'text.txt').write_text('some words to train on, again and again. ' * 200, encoding='utf-8')
    words = ('train', deep(work, 64), '--data', work / 'text.txt', '--seq', 8, '--steps', 2, '--budget', '1MiB')
    done = tessera.run(*words, '--work-limit', 500, status=2)
    expect('message', 'nothing was found within --work-limit' in done.stderr, True)


TRAINED = (('--save', 'interrupted'), ('--memory', 'placed', '--write-plan', 'interrupted.json'), ('--snapshot', 'interrupted.pickle'),
           ('--ranks', '2', '--write-rates', 'interrupted.json'), ('--budget', '30MiB'))


@cases('options', TRAINED)
@cases('signal_', (signal.SIGINT, signal.SIGTERM))
def test_train_interrupted_before_the_first_step(tessera, work, options, signal_):
    """The same, for what train predicts: it runs until the signal, which may not wait for a step."""
    model, text = deep(work), work / 'text.txt'
    text.write_text('some words to train on, again and again. ' * 200, encoding='utf-8')
    before = sorted(work.iterdir())
    command = [os.fspath(tessera), 'train', os.fspath(model), '--data', os.fspath(text), '--tokens', 'bytes', '--seq', '8', '--batch', '8', '--steps', '900',
               *options]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(0.2)
        process.send_signal(signal_)
        printed, said = process.communicate(timeout=HANG_S)
    expect('ended', (process.returncode, printed, said), (-signal_, b'', b''))
    expect('files', sorted(work.iterdir()), before)


@cases('words', (('plan', '--budget', '200GiB'), ('plan', '--front'), ('plan', '--explain'), ('plan', '--budget', '900GiB', '--largest', 'model'),
                 ('simulate', '--steps', '20', '--batch', '2')))
def test_interrupted(tessera, work, words):
    """Nothing is printed or written, and the program ends by the signal, for which shells return 130."""
    model, output = deep(work, 512), work / 'interrupted.json'
    command = [os.fspath(tessera), words[0], os.fspath(model), *words[1:], '-o', os.fspath(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=HANG_S)
    expect('ended', (process.returncode, printed, said), (-signal.SIGINT, b'', b''))
    expect('files', [path.name for path in work.iterdir() if 'interrupted' in path.name], [])
