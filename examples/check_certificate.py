#!/usr/bin/env python3
"""Check an answer of `tessera plan MODEL --budget SIZE --json` with tessera, but without its search.

    tessera plan gpt2 --batch 4 --gpu t4 --budget 2GiB --json > answer.json
    python3 examples/check_certificate.py answer.json

The answer contains its question, a plan, and the data of bounds on the time and the memory of every other plan. This program
  - asks tessera for the ways to run the model that the question allows (`plan --ways`, which searches nothing). The question, the free
    changes, and all ways with the times of their kernels and copies must be those of the answer;
  - simulates (`tessera simulate`) the plan, the plan to begin with and every plan in between, and compares their figures;
  - draws --sample of the ways (all: every one; --seed repeats a draw), first of those that may decide the bound. It simulates them and
    compares what is in memory;
  - computes all sums, the bounds and the verdict again.
It prints which fields it PROVED and which were TAKEN ON TRUST. It exits with 0 if the answer is accepted, 1 if it is rejected, and 2 if
it cannot be checked, for example because another version wrote it."""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

# Options that are not given to tessera again: the files that they name are in the answer, or they only concern the search and its output.
FILES = {'model', 'plan', 'ds_config', 'rates', 'from', 'python', 'padding', 'routing'}
OF_SEARCH = {'front', 'for', 'work_limit', 'time_limit'}
# The word of --allow that a choice for blocks or modules needs.
ALLOWED_BY = {'checkpoint': 'recompute', 'recompute': 'recompute', 'offload': 'offload', 'host': 'offload', 'disk': 'offload',
              'narrow8': 'narrow', 'narrow16': 'narrow'}


class Wrong(Exception):
    """The answer is rejected."""


class Unknown(Exception):
    """The answer cannot be checked."""


def need(holds, what):
    if not holds:
        raise Wrong(what)


def near(a, b, slack=0.01):
    """Equal but for rounding, in microseconds."""
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + slack


def same(a, b, what, times=True, leave_out=()):
    """Both must have the same keys and values; numbers with a fraction may be rounded. Without `times`, keys of times are skipped."""
    if isinstance(a, dict) and isinstance(b, dict):
        need(a.keys() - set(leave_out) == b.keys() - set(leave_out), f'{what}: only one has {sorted(a.keys() ^ b.keys())}')
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


def altered(a, b):
    """The keys in which two plans differ."""
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


class Tessera:
    """Runs tessera for the question of an answer, in a folder with the files that the answer contains."""

    def __init__(self, program, folder, answer, model=None, recorded=None):
        self.question, self.folder, self.runs = answer['question'], folder, {}
        self.program = os.path.abspath(shutil.which(program) or program)
        self.recorded = ['--from', os.path.abspath(recorded)] if 'calibration' in answer and recorded else []
        version = self.call('--version').split()[-1]
        if answer['tessera'] != version:
            raise Unknown(f'tessera {answer["tessera"]} wrote it, and this is {version}')
        self.model = self.find_model(self.question['model'], model)
        rates, is_graph = self.question['rates_file'], self.question['model']['is_step_graph']
        self.rates = ['--rates', self.write('rates.json', rates)] if rates else []
        sizes = {} if is_graph else {'batch': self.question['batch'], 'seq': self.question['sequence'], 'book': self.question['book']}
        self.sizes = self.words({**sizes, 'steps': self.question['steps'], 'gpu': self.question['gpu'],
                                 'link': self.question['options'].get('link')})

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(content, file)
        return path

    def find_model(self, model, given):
        """Its name, if it has one, else a file. That it is the model of the question shows when the question is compared."""
        if not model['is_step_graph'] and not given:
            need(re.fullmatch(r'\w[\w.-]*', model['name']), 'the name of the model')
            return model['name'] if model['name'] != model['config'].get('model_type') else self.write('config.json', model['config'])
        path = os.path.abspath(given or self.question['options']['model'])
        if not os.path.isfile(path):
            raise Unknown(f'there is no step graph {path}: name it with --model')
        return path

    @staticmethod
    def words(options):
        """Options of a command line. None of them may write a file."""
        words = []
        for name, value in options.items():
            need(re.fullmatch('[a-z][a-z0-9_]*', name) and not name.startswith('write') and name != 'output', f'option {name}')
            if value is not None and value is not False:
                words += ['--' + name.replace('_', '-')] + ([] if value is True else [str(value)])
        return words

    def call(self, *words):
        try:
            done = subprocess.run([self.program, *words], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  check=False)
        except OSError as error:
            raise Unknown(f'{self.program} cannot be run: {error}') from None
        need(done.returncode == 0, f'tessera {" ".join(words)}: {done.stderr.strip()}')
        return done.stdout

    def list_ways(self, plan, options):
        """What tessera lists for a plan to begin with."""
        answer = json.loads(self.call('plan', self.model, '--ways', '--json', '--plan', self.write('plan.json', plan), *options, *self.rates))
        return {**answer['listing'], 'notes': answer.get('notes')}

    def simulate(self, plan, **sizes):
        plan = self.write('plan.json', plan)
        answer = self.call('simulate', self.model, '--json', '--plan', plan, *self.sizes, *self.words(sizes), *self.rates)
        (device,) = json.loads(answer)['devices']
        return device

    def run(self, plan, what):
        """The list for a plan that may not change. Its figures must be those of a simulated run."""
        key = text_of(plan)
        if key not in self.runs:
            listed, device = self.list_ways(plan, [*self.sizes, '--allow', 'none']), self.simulate(plan)
            figures = listed['as_is']
            need(figures['peak_allocated_bytes'] == device['peak']['allocated_bytes'], f'{what}: allocated when simulated')
            need(figures['peak_reserved_bytes'] == device['peak_reserved_bytes'], f'{what}: reserved when simulated')
            need(device['step_time_us'] is None or near(figures['step_time_us'], device['step_time_us'], 0.51), f'{what}: time when simulated')
            self.runs[key] = listed
        return self.runs[key]


def bound(way, budget, exposed):
    """The least time of any schedule of a way's kernels within the budget. None: no schedule fits."""
    copies_activations = 'activations' in way['plan'].get('offload', '')

    def step(kernels):
        copies = 0 if copies_activations else way['copies_us']  # what is made again need not be copied
        least = max(kernels, copies) + exposed * min(kernels, copies) + way['waited_us']
        return max(least, way['links_us'])  # more computation may hide what ranks send, but ends no step sooner
    if 'floor' not in way:  # it is slower than the plan even if nothing is made again
        return step(way['kernels_us'])
    items, floor = way['could_be_made_again'], way['floor']
    need(sum(tensor['bytes'] for tensor in floor['tensors']) == floor['bytes'], 'the sum of a floor')
    need(way['needed_bytes'] <= floor['bytes'] <= way['most_bytes'], 'a floor that is no moment of its way')
    need(way['needed_bytes'] + sum(i['bytes'] * i['count'] for i in items) == way['most_bytes'], 'the sum of live tensors')
    need(all(i['us'] >= 0 and i['bytes'] > 0 for i in items), 'tensors below zero')
    excess, extra = max(way['most_bytes'] - budget, 0), 0.0
    for item in sorted(items, key=lambda i: i['us'] / i['bytes']):  # the cheapest bytes first
        taken = min(excess, item['bytes'] * item['count'])
        extra += taken * item['us'] / item['bytes']
        excess -= taken
    if floor['bytes'] > budget or excess:
        return None
    return step(way['kernels_us'] + (0 if way['narrows'] or copies_activations else extra * way['repeats']))


class Check:
    """The statements of an answer. Each is a list of fields and a text, in `proved` or in `trusted`."""

    def __init__(self, answer, tessera, sample, seed):
        self.answer, self.tessera, self.question = answer, tessera, answer['question']
        self.sample, self.random, self.proved, self.trusted = sample, random.Random(seed), [], []
        self.fits, self.is_stopped = answer['verdict'] != 'does_not_fit', 'stopped_by' in answer
        self.is_partial = self.is_stopped and answer['lower_bound']['step_time_us'] == 0  # not all ways are listed: there is no bound
        self.times = 'calibration' not in answer  # times that follow a recorded run are not computed again
        self.is_unbound = not self.times and not tessera.recorded  # ... and that run is not here
        self.check_question()
        self.check_plan()
        self.check_changes()
        self.check_ways()
        self.check_bounds()
        self.list_trust()

    def prove(self, fields, text, open_ways=()):
        """Note a statement. If it depends on ways that were not drawn, it is taken on trust."""
        if open_ways:
            text += f', as far as {len(open_ways)} ways that were not drawn decide it (--sample all)'
        (self.trusted if open_ways else self.proved).append((fields, text))

    def trust(self, fields, text):
        self.trusted.append((fields, text))

    def check_question(self):
        """Tessera understands the options as the question has them, and lists the same for it."""
        answer, model, given = self.answer, self.question['model'], dict(self.question['options'])
        if 'largest' in given:  # the search chose a size, and which changes it may make
            given.update(batch=self.question['batch'], seq=self.question['sequence'], allow=','.join(self.question['allow']) or 'none')
        options = {name: value for name, value in given.items() if name not in FILES | OF_SEARCH | {'budget', 'largest'}}
        listed = self.listed = self.tessera.list_ways(self.question['begins_with'], self.tessera.words(options) + self.tessera.recorded)
        same(self.question, listed['question'], 'question', leave_out=['options'] + ['rates'] * self.is_unbound)
        lists = [] if self.is_partial else ['savings', 'refused'] + ['exposed'] * (not self.is_unbound)
        for key in ['as_is', 'notes', *lists, *(['calibration'] if self.tessera.recorded else [])]:
            same(answer.get(key), listed.get(key), key, not self.is_unbound)
        taken = 0 if self.times else answer['calibration']['unexplained_bytes']
        need(answer['budget_bytes'] == max(given['budget'] - taken, 1), 'the budget is not that of the question')
        fields = ['schema', 'command', 'tessera', 'question', 'budget_bytes', 'notes', *(['calibration'] if self.tessera.recorded else [])]
        self.prove(fields, f'the question is about {model["name"]} (sha256 {model["sha256"][:12]}), with the sizes, card, rates and options that '
                   'it contains')
        if lists:
            self.prove(lists, 'free changes have these figures, and the refused ways are impossible')

    def check_plan(self):
        answer, plan, begin = self.answer, self.answer['plan'], self.question['begins_with']
        need(hashlib.sha256((text_of(plan) + '\n').encode()).hexdigest() == answer['plan_hash'], 'the hash of the plan')
        alone = self.tessera.run(plan, 'plan')
        same(answer['predicted'], alone['as_is'], 'predicted', self.times)
        same(answer['binding'], alone['binding'], 'binding')
        if answer['as_is']:
            same(answer['as_is'], self.tessera.run(begin, 'the plan to begin with')['as_is'], 'as_is', self.times)
        self.prove(['plan', 'plan_hash', 'predicted', 'as_is', 'binding'], f'the plan {answer["plan_hash"][:12]} and the plan to begin with take '
                   'this memory and time when they are simulated')
        fits, as_is = answer['predicted']['peak_reserved_bytes'] <= answer['budget_bytes'], answer['as_is']
        verdict = 'fits' if as_is and as_is['peak_reserved_bytes'] <= answer['budget_bytes'] else 'fits_with_changes' if fits else 'does_not_fit'
        need(answer['verdict'] == verdict and fits == self.fits, 'the verdict is another')
        # The search may combine what ways change, and choose for blocks what --allow has.
        changed, free = altered(plan, begin), set().union(*(altered(way['plan'], begin) for way in self.listed['ways']))
        need(changed <= free | {'blocks', 'checkpoint', 'offload'}, 'the plan has changes that are not allowed')
        used = {key for key in (changed - free) & {'checkpoint', 'offload'} if key in plan}
        for block in plan.get('blocks', []) if 'blocks' in changed else []:
            used |= ({'checkpoint'} & block.keys()) | (set(block.get('saved', {}).values()) - {'keep'})
        need(all(ALLOWED_BY[word] in self.question['allow'] for word in used), 'the plan has choices for blocks that are not allowed')

    def check_changes(self):
        """Each change is one, and the last one makes the plan."""
        last, end, changes = self.answer['as_is'], self.answer['plan'], self.answer['changes']
        plan = {key: value for key, value in self.question['begins_with'].items() if key != 'blocks' or value == end.get(key)}
        for change in changes:
            keys, was, plan = altered(change['plan'], plan), plan, change['plan']
            need(len(keys) == 1 or self.are_together(keys, plan), f'the change "{change["technique"]}" is not one: {sorted(altered(was, plan))}')
            now = self.tessera.run(plan, 'a change')['as_is']
            need((change['saved_bytes'] is None) == (change['cost_us'] is None) == (last is None), 'a change of a plan that is impossible')
            if last:
                need(change['saved_bytes'] == last['peak_allocated_bytes'] - now['peak_allocated_bytes'], 'what a change saves')
            if last and self.times:
                need(near(change['cost_us'], now['step_time_us'] - last['step_time_us']), 'what a change costs')
            last = now
        need(plan == end or (self.is_stopped and not changes), 'the changes do not lead to the plan')
        self.prove(['changes'], f'{len(changes)} changes lead to the plan, and save and cost what is listed')

    def are_together(self, keys, plan):
        """Whether no way has one of these values without the others, as with fp16 and its weights in fp32."""
        single = set().union(*(saving['keys'] for saving in self.listed['savings']))
        return not keys & single and all(len({way['plan'].get(key) == plan.get(key) for key in keys}) == 1 for way in self.listed['ways'])

    def check_ways(self):
        """All ways are listed. Of those with data of their memory, some are drawn and simulated; others have the estimated times that
        tessera lists."""
        def named(some):
            table = {(text_of(way['plan']), way['narrows']): way for way in some}
            need(len(table) == len(some), 'a way is listed twice')
            return table
        ways, claimed, is_graph = self.answer['ways'], self.answer['lower_bound']['step_time_us'], self.question['model']['is_step_graph']
        ours, theirs = named([way for way in self.listed['ways'] if is_graph or 'floor' not in way]), named(ways)
        own = [i for i, name in enumerate(theirs) if name not in ours]
        need(own in ([], [len(ways) - 1]), 'a way that tessera does not list')
        need(all(self.answer['plan'].get(key) == value for i in own for key, value in ways[i]['plan'].items()), 'the way of the plan')
        need(self.is_partial or theirs.keys() >= ours.keys(), 'a way was left out')
        for i, (name, way) in enumerate(theirs.items()):
            for key in ('kernels_us', 'copies_us', 'waited_us', 'links_us') if 'floor' not in way and self.times else ():
                need(near(way[key], ours[name][key]), f'{key} of ways[{i}]')
        surveyed = [i for i, way in enumerate(ways) if 'floor' in way]
        # Ways whose memory decides whether the bound on time holds, and those that it was computed from.
        self.deciding = {i for i, name in enumerate(theirs) if i in surveyed and (claimed is None or name in ours and ours[name]['bound_us'] < claimed)}
        bounds = [i for i in surveyed if ways[i]['bound_us'] is not None]
        drawn = {*own, *sorted(bounds, key=lambda i: ways[i]['bound_us'])[:1], *sorted(surveyed, key=lambda i: ways[i]['floor']['bytes'])[:1]}
        others = sorted((i for i in surveyed if i not in drawn), key=lambda i: (i not in self.deciding, self.random.random()))
        drawn |= set(others if self.sample == 'all' else others[:self.sample])
        for i in sorted(drawn):
            listed = self.listed if is_graph else self.tessera.run(ways[i]['plan'], f'ways[{i}]')
            (again,) = [one for one in listed['ways'] if one['plan'] == ways[i]['plan'] and not one['narrows'] and 'floor' in one]
            same(ways[i], again, f'ways[{i}]', self.times, ['bound_us', 'narrows'])
        self.prove(['ways'], f'these {len(ways)} ways are all that `plan --ways` lists, with times; '
                   f'{len(drawn)} of {len(surveyed)} whose memory matters were drawn')
        self.unseen = set(surveyed) - drawn
        if self.unseen:
            self.trust([f'ways[{",".join(map(str, sorted(self.unseen)))}]'], 'what is in memory in these ways, which were not drawn')

    def check_bounds(self):
        answer, ways, lower, fits = self.answer, self.answer['ways'], self.answer['lower_bound'], self.fits
        claimed, took, floors = lower['step_time_us'], answer['predicted']['step_time_us'], [way['floor']['bytes'] for way in ways if 'floor' in way]
        for i, way in enumerate(ways):
            least, given = bound(way, answer['budget_bytes'], answer['exposed']), way['bound_us']
            rounded = 0.01 + 0.0005 * way.get('repeats', 1) * sum(item['count'] for item in way.get('could_be_made_again', []))
            need((given is None) == (least is None) and (least is None or near(given, least, rounded)), f'the bound of ways[{i}]')
            need(self.is_stopped or 'floor' in way or (fits and near(max(least, took), least)), f'ways[{i}] has no data of its memory')
        times = [way['bound_us'] for way in ways if way['bound_us'] is not None]
        if self.is_partial:
            need(not answer['is_proved'], 'a proof by a search that was stopped')
        else:
            need(answer['is_proved'] == (not times) == (claimed is None) and claimed == min(times, default=None), 'the bound on time')
        need((lower['gap_us'] is None) != fits, 'the gap')
        if fits:
            need(not answer['is_proved'] and near(max(claimed, took), took), 'the plan is faster than its bound')
            need(near(lower['gap_us'], max(took - claimed, 0), 0.02), 'the gap')
        if answer['is_proved']:
            self.prove(['verdict', 'is_proved', 'lower_bound'], 'no schedule of the kernels of these ways fits', self.deciding & self.unseen)
        else:
            self.prove(['lower_bound.step_time_us', 'lower_bound.gap_us', 'is_proved'],
                       f'no schedule of the kernels of these ways takes less than {claimed} us within the budget', self.deciding & self.unseen)
        need(lower['peak_bytes'] == min(floors, default=None) or (self.is_stopped and lower['peak_bytes'] is None), 'the bound on memory')
        self.prove(['lower_bound.peak_bytes'], f'no schedule of ways with a floor needs less than {lower["peak_bytes"]} bytes', self.unseen)
        if fits:
            self.prove(['verdict'], f'{answer["verdict"]} in {answer["budget_bytes"]} bytes')
            self.trust(['the search'], f'that it found no faster plan, which could take at most {lower["gap_us"]} us less')
        elif not answer['is_proved']:
            self.trust(['verdict', 'the search'], 'that it found no plan that fits, which is not proved to be impossible')

    def list_trust(self):
        """What cannot be computed again without a search, or a card."""
        question, options = self.question, self.question['options']
        rates = 'the file of rates' if question['rates'] else f'the data sheet of {question["gpu"] or "the card of the graph"}'
        self.trust(['kernels and copies'], f'that each takes the time that tessera computes from {rates}')
        self.trust(['tessera itself'], 'that simulated runs are like real ones, and that `plan --ways` lists all ways')
        if self.is_partial:
            self.trust(['ways', 'savings', 'refused', 'exposed'], 'the search was stopped before all were listed')
        if not self.times:
            self.trust(['*_us'], 'times follow the recorded run')
        if self.is_unbound:
            self.trust(['calibration', 'budget_bytes', 'question.rates', 'exposed'], 'the recorded run was not given (--from)')
        if self.answer['changes']:
            self.trust(['changes[*].technique'], 'the names of changes')
        names = options.keys() & (FILES | OF_SEARCH | ({'batch', 'seq', 'allow'} if 'largest' in options else set()))
        self.trust([f'question.options.{name}' for name in sorted(names)], 'where files were, and what the search was told besides')
        stated = {re.match(r'\w*', field)[0] for fields, _ in self.proved + self.trusted for field in fields}
        self.trust(sorted(self.answer.keys() - stated), 'what the search reports about itself')


def check_largest(outer, check):
    """The size is that of the answer, and with the plan to begin with, `size_as_is` fits."""
    what, size, as_is, question = outer['largest'], outer['size'], outer['size_as_is'], check.question
    need(outer['schema'] == 'tessera/1' and outer['command'] == 'plan' and what == question['options']['largest'], 'what is the largest')
    need(check.fits, 'the largest size does not fit')
    if what == 'model':
        need(outer['model'] == question['model']['config'], 'the largest model is another')
        need(check.tessera.simulate(check.answer['plan'])['parameters'] == size, 'the parameters of the largest model')
    else:
        need(size == question[{'batch': 'batch', 'seq': 'sequence'}[what]] and as_is <= size, 'the largest size is not that of the answer')
        run = check.tessera.simulate(question['begins_with'], **{what: as_is}) if as_is else {'peak_reserved_bytes': 0}
        need(run['peak_reserved_bytes'] <= check.answer['budget_bytes'], 'the size without changes does not fit')
    check.prove(['largest', 'model'], f'a {what} of {size} fits')
    check.trust(['size', 'size_as_is', 'stopped_by'], 'that no larger one fits, and none without changes')


def verify(outer, tessera='tessera', model=None, recorded=None, sample=8, seed=None):
    """The statements about an answer, as a Check. Raises Wrong or Unknown."""
    answer = outer['answer'] if isinstance(outer, dict) and 'largest' in outer and 'answer' in outer else outer
    if not isinstance(answer, dict) or answer.get('schema') != 'tessera/1' or answer.get('command') != 'plan' or 'question' not in answer:
        raise Unknown('it is no answer of tessera plan --budget --json with a plan')
    try:
        with tempfile.TemporaryDirectory() as folder:
            check = Check(answer, Tessera(tessera, folder, answer, model, recorded), sample, seed)
            if outer is not answer:
                check_largest(outer, check)
    except (ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as why:
        raise Wrong(f'it is not as tessera writes it: {why!r}') from why
    return check


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('certificate', help='what tessera plan --budget --json printed')
    parser.add_argument('--tessera', default='tessera', help='the program (default: that of PATH)')
    parser.add_argument('--model', help='the file of the model: a step graph that has moved, or a config.json to be compared')
    parser.add_argument('--from', dest='recorded', help='the snapshot that --from of the question names')
    parser.add_argument('--sample', default=8, type=lambda text: text if text == 'all' else int(text), help='how many ways are drawn (8), or all')
    parser.add_argument('--seed', default=random.randrange(10**6), type=int, help='of the draw (default: any)')
    given = parser.parse_args(words)
    try:
        with open(given.certificate, encoding='utf-8') as file:
            check = verify(json.load(file), given.tessera, given.model, given.recorded, given.sample, given.seed)
    except (Unknown, OSError, ValueError, RecursionError) as why:
        print(f'CANNOT BE CHECKED: {why}')
        return 2
    except Wrong as why:
        print(f'REJECTED: {why}')
        return 1
    for title, statements in (('PROVED', check.proved), ('TAKEN ON TRUST', check.trusted)):
        for fields, text in (statement for statement in statements if statement[0]):
            print(f'{title}: {", ".join(fields)}: {text}')
    print(f'ACCEPTED (seed {given.seed})')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
