#!/usr/bin/env python3
"""Check the claims of `tessera plan MODEL --budget SIZE --json` with tessera, but without its search.

    tessera plan gpt2 --batch 4 --gpu t4 --budget 2GiB --json > answer.json
    python3 examples/check_certificate.py answer.json

The file contains its question, the plan, and the data of a bound on the time of every other plan. This program
  - asks tessera for the ways to run the model that the question allows (`plan --ways`, which searches nothing), and compares all
    that both list: the question, the plan to begin with, and every way with the times of its kernels and copies;
  - simulates (`tessera simulate`) the plan, the plan to begin with, the plans in between, and some ways, and compares every figure.
    Drawn at random are --sample of those ways whose memory matters for the bound (all: every one; --seed repeats a draw);
  - computes all sums, bounds and the verdict again.
It prints what it PROVED, what it took on TRUST, and ends with 0 if the claims hold, 1 if one does not, 2 if they cannot be checked."""
import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

NOT_REPEATED = {  # options that choose an output, or stand in the question as what they mean
    'model', 'plan', 'ds_config', 'rates', 'from', 'budget', 'largest', 'ways', 'work_limit', 'time_limit', 'python', 'padding', 'routing'}
OF_SEARCH = {'plans_tried': 'how many plans were tried', 'blocks': 'how a step graph was cut into blocks', 'blocks_out_of_chain': 'how a step graph '
             'was cut into blocks', 'stopped_by': 'that the search reached a limit', 'for': 'the text for another program'}


class Wrong(Exception):
    """A claim does not hold."""


class Unknown(Exception):
    """The file cannot be checked."""


def need(holds, what):
    if not holds:
        raise Wrong(what)


def near(a, b, slack=0.01):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + slack  # microseconds


def same(a, b, what, times=True, leave_out=()):
    """Both have the same keys and values; numbers with a fraction may differ by rounding. Without `times`, keys of times are skipped."""
    if isinstance(a, dict) and isinstance(b, dict):
        need(a.keys() - set(leave_out) == b.keys() - set(leave_out), f'{what}: {sorted(a.keys() ^ b.keys())} is only in one')
        for key in a.keys() - set(leave_out):
            if times or not key.endswith('us'):
                same(a[key], b[key], f'{what}.{key}', times)
    elif isinstance(a, list) and isinstance(b, list):
        need(len(a) == len(b), f'{what}: {len(a)} instead of {len(b)}')
        for i, (one, other) in enumerate(zip(a, b)):
            same(one, other, f'{what}[{i}]', times)
    elif isinstance(a, float) and isinstance(b, float):
        need(near(a, b), f'{what}: {a} instead of {b}')
    else:
        need(type(a) is type(b) and a == b, f'{what}: {a!r:.80} instead of {b!r:.80}')


def text_of(plan):
    return json.dumps(plan, sort_keys=True, separators=(',', ':'))


class Runner:
    """Runs tessera for the question of a certificate."""

    def __init__(self, folder, answer, arguments):
        question = answer['question']
        self.tessera, self.folder, self.question, self.options = arguments.tessera, folder, question, question['options']
        self.is_graph, self.known = question['model']['is_step_graph'], {}
        self.past = ['--from', arguments.recorded] if 'calibration' in answer and arguments.recorded else []
        self.has_times = 'calibration' not in answer or bool(self.past)
        version = self.call('--version').stdout.split()[-1]
        if answer['tessera'] != version:
            raise Unknown(f'it was written by tessera {answer["tessera"]}, and this is {version}')
        self.model = self.find_model(question['model'], arguments.model)
        own = {} if self.is_graph else {'batch': question['batch'], 'seq': question['sequence'], 'book': question['book']}
        self.sizes = self.words({**own, 'steps': question['steps'], 'gpu': question['gpu'], 'link': self.options.get('link')})
        self.rates = ['--rates', self.write('rates.json', question['rates_file'])] if question['rates_file'] else []

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(content, file)
        return path

    def find_model(self, model, given):
        if model['config'] and not given:
            return model['name'] if model['name'] != model['config'].get('model_type') else self.write('config.json', model['config'])
        path = given or self.options.get('model', '')
        if model['is_step_graph']:
            if not os.path.exists(path):
                raise Unknown(f'the step graph {path} is not here: name it with --model')
            with open(path, 'rb') as file:
                if hashlib.sha256(file.read()).hexdigest() != model['sha256']:
                    raise Unknown(f'{path} is another step graph than that of the question')
        return path

    @staticmethod
    def words(options):
        words = []
        for name, value in options.items():
            option = '--' + name.replace('_', '-')
            if value is not None and value is not False:
                words += [option] if value is True else [option, f'{value}B' if name.endswith('budget') else str(value)]
        return words

    def call(self, *words):
        try:
            return subprocess.run([self.tessera, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Unknown(f'{self.tessera} cannot be run: {error}') from None

    def json(self, *words):
        done = self.call(*words, '--json')
        need(done.returncode == 0, f'tessera {" ".join(words)}: {done.stderr.strip()}')
        return json.loads(done.stdout)

    def listing(self, plan, options):
        """What tessera lists for the question with other options, or a plan with nothing to change."""
        answer = self.json('plan', self.model, '--ways', '--plan', self.write('plan.json', plan), *options, *self.rates, *self.past)
        return dict(answer['listing'], notes=answer.get('notes'))

    def simulate(self, plan, **other):
        words = self.sizes + self.words(other)
        (device,) = self.json('simulate', self.model, '--plan', self.write('plan.json', plan), *words, *self.rates)['devices']
        return device

    def run(self, plan, what):
        """The listing of a plan alone, once its figures are those of a simulated run."""
        key = text_of(plan)
        if key not in self.known:
            listing, run = self.listing(plan, [*self.sizes, '--allow', 'none']), self.simulate(plan)
            figures = listing['as_is']
            need(figures['peak_allocated_bytes'] == run['peak']['allocated_bytes'], f'{what}: allocated when simulated')
            need(figures['peak_reserved_bytes'] == run['peak_reserved_bytes'], f'{what}: reserved when simulated')
            if not self.past and run['step_time_us'] is not None:
                need(near(figures['step_time_us'], run['step_time_us'], 0.51), f'{what}: time when simulated')
            self.known[key] = listing
        return self.known[key]


def bound(way, budget, exposed):
    """The least time of any schedule of the way's kernels within the budget; None: no schedule fits."""
    copies_activations = 'activations' in way['plan'].get('offload', '')

    def step(kernels):
        copies = 0 if copies_activations else way['copies_us']  # what is made again is not copied
        least = max(kernels, copies) + exposed * min(kernels, copies) + way['waited_us']
        return max(least, way['links_us'])  # computing more may hide what ranks send, but ends no step sooner
    if 'floor' not in way:  # left out, because it is slower than the plan without any further change
        return step(way['kernels_us'])
    items, floor = way['could_be_made_again'], way['floor']
    need(sum(tensor['bytes'] for tensor in floor['tensors']) == floor['bytes'], 'floor: sum')
    need(way['needed_bytes'] <= floor['bytes'] <= way['most_bytes'], 'floor: a moment of the way')
    need(way['needed_bytes'] + sum(i['bytes'] * i['count'] for i in items) == way['most_bytes'], 'live tensors: sum')
    need(all(i['us'] >= 0 and i['bytes'] > 0 for i in items), 'live tensors: below zero')
    left, extra = max(way['most_bytes'] - budget, 0), 0.0
    for item in sorted(items, key=lambda i: i['us'] / i['bytes']):  # the cheapest bytes first
        taken = min(left, item['bytes'] * item['count'])
        extra += taken * item['us'] / item['bytes']
        left -= taken
    if floor['bytes'] > budget or left:
        return None
    return step(way['kernels_us'] + (0 if way['narrows'] or copies_activations else extra * way['repeats']))


class Check:
    def __init__(self, answer, runner, sample, seed):
        self.answer, self.runner, self.question = answer, runner, answer['question']
        self.sample, self.random, self.times = sample, random.Random(seed), runner.has_times
        self.is_stopped = 'stopped_by' in answer
        self.proved, self.trusted = [], []

    def all(self):
        self.check_question()
        self.check_plan()
        self.check_changes()
        self.check_ways()
        self.check_bounds()
        self.list_trust()

    def check_question(self):
        """Tessera understands the options as the question has them, and lists the same for it."""
        given, budget = self.question['options'], self.answer['budget_bytes']
        options = {name: value for name, value in given.items() if name not in NOT_REPEATED}
        if 'largest' in given:  # the search chose a size
            options.update(batch=self.question['batch'], seq=self.question['sequence'], allow=','.join(self.question['allow']) or 'none')
        self.listing = self.runner.listing(self.question['begins_with'], self.runner.words(options))
        same(self.question, self.listing['question'], 'question', leave_out=['options'])
        taken = self.answer['calibration']['unexplained_bytes'] if 'calibration' in self.answer else 0
        need(budget == max(given['budget'] - taken, 1), 'the budget is not that of the question')
        both = self.listing.keys() - {'question', 'ways', 'binding', 'notes', 'calibration'} - (set() if self.times else {'exposed'})
        for key in sorted(both):
            same(self.answer.get(key), self.listing[key], key, self.times)
        if self.runner.past:
            same(self.answer['calibration'], self.listing['calibration'], 'calibration')
        same(self.answer.get('notes'), self.listing['notes'], 'notes')
        model = self.question['model']
        self.proved += [f'the question: {model["name"]} (sha256 {model["sha256"][:12]}), its sizes, card, rates and options are those that it states',
                        'changes that are free (savings) have these figures, and the ways that are refused are refused']

    def check_plan(self):
        answer, found = self.answer, self.answer['predicted']
        need(hashlib.sha256((text_of(answer['plan']) + '\n').encode()).hexdigest() == answer['plan_hash'], 'hash of the plan')
        listing = self.runner.run(answer['plan'], 'plan')
        same(found, listing['as_is'], 'predicted', self.times)
        same(answer['binding'], listing['binding'], 'binding')
        need(sum(tensor['bytes'] for tensor in answer['binding']['tensors']) == found['peak_allocated_bytes'], 'peak: sum')
        if answer['as_is']:
            same(answer['as_is'], self.runner.run(self.question['begins_with'], 'plan to begin with')['as_is'], 'as_is', self.times)
        fits = found['peak_reserved_bytes'] <= answer['budget_bytes']
        verdict = 'fits' if answer['as_is'] and answer['as_is']['peak_reserved_bytes'] <= answer['budget_bytes'] else \
            'fits_with_changes' if fits else 'does_not_fit'
        need(answer['verdict'] == verdict and (fits or verdict == 'does_not_fit'), 'verdict')
        self.proved += [f'the plan {answer["plan_hash"][:12]} and the plan to begin with need what they are said to need, when simulated',
                        f'the verdict, {verdict}']

    def check_changes(self):
        """Each change alters one thing of the plan before it, and the last one makes the plan."""
        answer, base = self.answer, self.question['begins_with']
        if self.is_stopped:
            need(not answer['changes'], 'changes of a search that was stopped')
            return
        last, plan = answer['as_is'], {key: value for key, value in base.items() if key != 'blocks' or value == answer['plan'].get(key)}
        for change in answer['changes']:
            altered = {key for key in change['plan'].keys() | plan.keys() if change['plan'].get(key) != plan.get(key)}
            need(len(altered) == 1, f'change "{change["technique"]}" is not one')
            plan, now = change['plan'], self.runner.run(change['plan'], 'change')['as_is']
            need((change['saved_bytes'] is None) == (change['cost_us'] is None) == (last is None), 'change: nothing to compare with')
            if last:
                need(change['saved_bytes'] == last['peak_allocated_bytes'] - now['peak_allocated_bytes'], 'saved by a change')
            if last and self.times:
                need(near(change['cost_us'], now['step_time_us'] - last['step_time_us'], 0.01), 'cost of a change')
            last = now
        need(plan == answer['plan'], 'changes do not lead to the plan')
        self.proved.append(f'{len(answer["changes"])} changes lead from the plan to begin with to the plan, and save and cost what is listed')

    def check_ways(self):
        """All ways are listed with the times of their kernels; of the sample, also what is in memory."""
        def named(ways):
            table = {(text_of(way['plan']), way['narrows']): way for way in ways}
            need(len(table) == len(ways), 'a way is listed twice')
            return table
        answer, ways = self.answer, self.answer['ways']
        ours, theirs = named(self.listing['ways']), named(ways)
        own = [way for name, way in theirs.items() if name not in ours]
        need(len(own) <= 1 and ways[len(ways) - len(own):] == own, 'a way that is not a choice')
        need(all(answer['plan'].get(key) == value for way in own for key, value in way['plan'].items()), "the plan's own way")
        need(theirs.keys() >= ours.keys() or (self.is_stopped and answer['lower_bound']['step_time_us'] == 0), 'a way was left out')
        for name in theirs.keys() & ours.keys():
            for key in ('kernels_us', 'copies_us') + (() if 'floor' in theirs[name] else ('waited_us', 'links_us')):
                need(not self.times or near(theirs[name][key], ours[name][key]), f'{key} of a way')
        surveyed = [i for i, way in enumerate(ways) if 'floor' in way]
        bounds = [i for i in surveyed if ways[i]['bound_us'] is not None]
        chosen = {i for i in surveyed if ways[i] in own}
        chosen |= {min(bounds, key=lambda i: ways[i]['bound_us'])} if bounds else set()
        chosen |= {min(surveyed, key=lambda i: ways[i]['floor']['bytes'])} if surveyed else set()
        others = [i for i in surveyed if i not in chosen]
        chosen |= set(others if self.sample == 'all' else self.random.sample(others, min(self.sample, len(others))))
        for i in sorted(chosen):
            self.check_way(ways[i], f'ways[{i}]')
        self.proved.append(f'the {len(ways)} ways are all that `plan --ways` lists for the question, with the times of their kernels and copies')
        if chosen:
            self.proved.append(f'what is in memory in {len(chosen)} ways: {sorted(chosen)}')
        rest = sorted(set(surveyed) - chosen)
        if rest:
            self.trusted.append(f'what is in memory in {len(rest)} ways that were not drawn: {rest}')

    def check_way(self, way, what):
        listing = self.listing if self.runner.is_graph else self.runner.run(way['plan'], what)
        (again,) = [one for one in listing['ways'] if one['plan'] == way['plan'] and not one['narrows'] and 'floor' in one]
        same(way, again, what, self.times, ['bound_us', 'narrows'])
        run = self.runner.run(way['plan'], what)['as_is']
        need(run['peak_allocated_bytes'] >= way['floor']['bytes'], f'{what}: simulated, it needs less than its floor')
        if self.times and not way['plan'].keys() & {'checkpoint', 'blocks'}:
            need(run['step_time_us'] * (1 + 1e-6) + 0.01 >= bound(way, float('inf'), self.answer['exposed']), f'{what}: simulated, it is faster')

    def check_bounds(self):
        answer, found, ways, lower = self.answer, self.answer['predicted'], self.answer['ways'], self.answer['lower_bound']
        budget, claimed, fits = answer['budget_bytes'], lower['step_time_us'], answer['verdict'] != 'does_not_fit'
        bounds = [bound(way, budget, answer['exposed']) for way in ways]
        for i, (way, least) in enumerate(zip(ways, bounds)):
            need((way['bound_us'] is None) == (least is None) and (least is None or near(way['bound_us'], least)), f'bound of ways[{i}]')
        times = [least for least in bounds if least is not None]
        if not (self.is_stopped and claimed == 0):
            need(answer['is_proved'] == (not times) == (claimed is None), 'proof')
            need(not times or near(claimed, min(times)), 'bound on time')
        else:
            need(not answer['is_proved'], 'a proof of a search that was stopped')
        floors = [way['floor']['bytes'] for way in ways if 'floor' in way]
        if not (self.is_stopped and lower['peak_bytes'] is None):
            need(lower['peak_bytes'] == min(floors, default=None), 'bound on memory')
            need(fits or len(floors) == len(ways), 'a way without a floor')
        need((lower['gap_us'] is None) != fits, 'gap')
        if fits:
            slack = found['step_time_us'] * (1 + 1e-6) + 0.01
            need(not answer['is_proved'] and claimed <= slack, 'faster than its bound')
            need(near(lower['gap_us'], max(found['step_time_us'] - claimed, 0), 0.02), 'gap')
            need(self.is_stopped or all('floor' in way or least * (1 + 1e-6) + 0.01 >= found['step_time_us'] for way, least in zip(ways, bounds)),
                 'a way was left out')
        self.proved.append('no schedule of these kernels fits' if answer['is_proved'] else
                           'nothing: there is no bound on time' if claimed == 0 else
                           f'no schedule of these kernels within the budget takes less than {claimed} us')

    def list_trust(self):
        rates = 'the file of rates' if self.question['rates'] else f'the data sheet of {self.question["gpu"] or "the card of the graph"}'
        self.trusted.append(f'the times of single kernels and copies, from {rates}')
        self.trusted.append("what tessera's simulation and `plan --ways` compute, in this version")
        if 'calibration' in self.answer and not self.runner.past:
            self.trusted.append('calibration, exposed, all times and the budget: the recorded run was not given by --from')
        if self.answer['changes']:
            self.trusted.append('technique: the words for changes')
        unknown = self.answer.keys() - self.listing.keys() - OF_SEARCH.keys() - {
            'schema', 'command', 'verdict', 'budget_bytes', 'is_proved', 'predicted', 'lower_bound', 'plan', 'plan_hash', 'changes', 'calibration'}
        self.trusted += [f'{key}: {what}' for key, what in OF_SEARCH.items() if key in self.answer]
        self.trusted += [f'{key}: unknown to this program' for key in sorted(unknown)]
        self.trusted.append('options: limits of the search, and where files were')


def check_largest(outer, check):
    """The size is that of the answer, and fits without changes as far as is said."""
    what, size, question = outer['largest'], outer['size'], check.question
    as_is, budget = outer['size_as_is'], outer['answer']['budget_bytes']
    if what == 'model':
        need(outer['model'] == question['model']['config'], 'the largest model is another')
        need(check.runner.simulate(outer['answer']['plan'])['parameters'] == size, 'parameters of the largest model')
        check.trusted.append('size_as_is: parameters of the largest model without changes')
    else:
        need(size == question[{'batch': 'batch', 'seq': 'sequence'}[what]], 'the largest size is not that of the answer')
        need(as_is <= size, 'more fits without changes')
        if as_is:
            run = check.runner.simulate(question['begins_with'], **{what: as_is})
            need(run['peak_reserved_bytes'] <= budget, 'the size without changes does not fit')
        check.trusted.append('size_as_is: that no larger size fits without changes')
    check.proved.append(f'a {what} of {size} fits')
    check.trusted.append('size: that no larger one fits')
    check.trusted += ['stopped_by: that the search for a size reached a limit'] if 'stopped_by' in outer else []


def verify(outer, arguments):
    """The statements about an answer. `arguments`: tessera, model, recorded, sample and seed, as on the command line. Raises Wrong or Unknown."""
    answer = outer['answer'] if isinstance(outer, dict) and 'largest' in outer else outer
    if not isinstance(answer, dict) or answer.get('schema') != 'tessera/1' or answer.get('command') != 'plan' or 'question' not in answer:
        raise Unknown('it is not an answer of tessera plan --budget --json')
    try:
        with tempfile.TemporaryDirectory() as folder:
            check = Check(answer, Runner(folder, answer, arguments), arguments.sample, arguments.seed)
            check.all()
            if outer is not answer:
                check_largest(outer, check)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as why:
        raise Wrong(f'it is not as tessera writes it: {why!r}') from why
    return check


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('answer', help='what tessera plan --json printed')
    parser.add_argument('--tessera', default=shutil.which('tessera') or 'tessera', help='the program (default: that of PATH)')
    parser.add_argument('--model', help='the file of the model, if it is a step graph that has moved, or to make sure that it is yours')
    parser.add_argument('--from', dest='recorded', help='the snapshot that --from of the question names')
    parser.add_argument('--sample', default=8, type=lambda text: text if text == 'all' else int(text), help='how many ways are drawn (8), or all')
    parser.add_argument('--seed', default=random.randrange(10**6), type=int, help='of the draw (default: any)')
    arguments = parser.parse_args(words)
    try:
        with open(arguments.answer, encoding='utf-8') as file:
            check = verify(json.load(file), arguments)
    except (Unknown, OSError, UnicodeDecodeError, json.JSONDecodeError) as why:
        print(f'cannot be checked: {why}')
        return 2
    except Wrong as why:
        print(f'does not hold: {why}')
        return 1
    for text in check.proved:
        print('PROVED ', text)
    for text in check.trusted:
        print('TRUST  ', text)
    print(f'holds (seed {arguments.seed})')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
