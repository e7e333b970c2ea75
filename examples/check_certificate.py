#!/usr/bin/env python3
"""Check an answer of `tessera plan MODEL --budget SIZE --json` with tessera, but without its search.

    tessera plan gpt2 --batch 4 --gpu t4 --budget 2GiB --json > answer.json
    python3 examples/check_certificate.py answer.json

The answer contains its question, a plan, and the data of bounds on the time and the memory of every other plan. This program
  - asks tessera for the ways to run the model that the question allows (`plan --ways`, which searches nothing). The question, the free
    changes, and all ways with the times of their kernels and copies must be those of the answer;
  - simulates (`tessera simulate`) the plan, the plan to begin with, every plan in between, and --sample of the ways (all: every one; --seed
    repeats a draw), first those that may decide the bound, and compares figures and what is in memory;
  - computes all sums, the bounds and the verdict again.
It prints which fields it PROVED and which are TAKEN ON TRUST, and exits with 0 (accepted), 1 (rejected) or 2 (it cannot be checked)."""
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

# Options that tessera is not given again: how a step graph was made, and what only concerns the search and its output.
NOT_ASKED = {'python', 'padding', 'routing', 'front', 'work_limit', 'time_limit'}
# Options of the links between ranks: times depend on them.
LINKS = ('link', 'gpus_per_node', 'network', 'latency')
# The words of --allow that choices for blocks or modules need, if they are others.
ALLOWED_BY = {'checkpoint': 'recompute', 'host': 'offload', 'disk': 'offload', 'narrow8': 'narrow', 'narrow16': 'narrow'}


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
    if isinstance(a, list) and isinstance(b, list):
        a, b = dict(enumerate(a)), dict(enumerate(b))
    if isinstance(a, dict) and isinstance(b, dict):
        need(a.keys() - leave_out == b.keys() - leave_out, f'{what}: only one has {sorted(map(str, a.keys() ^ b.keys()))}')
        for key in a.keys() - leave_out:
            if times or not str(key).endswith('us'):
                same(a[key], b[key], f'{what}.{key}', times)
    else:
        need(type(a) is type(b) and (near(a, b) if isinstance(a, float) else a == b), f'{what}: {a!r:.80} instead of {b!r:.80}')


def text_of(plan):
    return json.dumps(plan, sort_keys=True, separators=(',', ':'))


def altered(a, b):
    """The keys in which two plans differ."""
    return {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}


class Tessera:
    """Runs tessera for the question of an answer, in a folder with the files that the answer contains."""

    def __init__(self, program, folder, answer, model):
        question, self.folder, self.alone = answer['question'], folder, {}
        self.program = os.path.abspath(shutil.which(program) or program)
        version = self.call('--version').split()[-1]
        if answer['tessera'] != version:
            raise Unknown(f'tessera {answer["tessera"]} wrote it, and this is {version}')
        self.model = self.find_model(question, model)
        self.allow = 'recompute' if 'recompute' in question['allow'] else 'none'  # decides what counts for the bound of a way
        self.rates = ['--rates', self.write('rates.json', question['rates_file'])] if question['rates_file'] else []
        own = {} if question['model']['is_step_graph'] else {'batch': question['batch'], 'seq': question['sequence'], 'book': question['book']}
        links = {name: question['options'].get(name) for name in LINKS}
        self.sizes = self.words({**own, 'steps': question['steps'], 'gpu': question['gpu'], **links})

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(content, file)
        return path

    def find_model(self, question, given):
        """Its name, if it has one, else a file. Whether that is the model of the question shows when the question is compared."""
        model = question['model']
        if not model['is_step_graph'] and not given:
            need(re.fullmatch(r'\w[\w.-]*', model['name']), 'the name of the model')
            return model['name'] if model['name'] != model['config'].get('model_type') else self.write('config.json', model['config'])
        if not given:
            raise Unknown('a step graph is not in the answer: name its file with --model')
        return os.path.abspath(given)

    @staticmethod
    def words(options):
        """Options of a command line. None of them may write a file."""
        words = []
        for name, value in options.items():
            need(re.fullmatch('[a-z][a-z0-9_]*', name) and not name.startswith('write') and name != 'output', f'option {name}')
            for one in value if isinstance(value, list) else [value]:
                if one is not None and one is not False:
                    words += ['--' + name.replace('_', '-')] + ([] if one is True else [str(one)])
        return words

    def call(self, *words):
        done = subprocess.run([self.program, *words], cwd=self.folder, env={**os.environ, 'TESSERA_MACHINE': ''}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        need(done.returncode == 0, f'tessera {" ".join(words)}: {done.stderr.strip()}')
        return done.stdout

    def list_ways(self, plan, options):
        """What tessera lists for a plan to begin with."""
        answer = json.loads(self.call('plan', self.model, '--ways', '--json', '--plan', self.write('plan.json', plan), *options, *self.rates))
        return {**answer['listing'], 'notes': answer.get('notes')}

    def simulate(self, plan, **sizes):
        plan = self.write('plan.json', plan)
        answer = self.call('simulate', self.model, '--json', '--plan', plan, *self.sizes, *self.words(sizes), *self.rates)
        return json.loads(answer)['devices'][0]

    def outside(self, plan, question):
        """What is outside of PyTorch's allocator for the budget, on the card that was named."""
        given = question['options']
        own = {} if question['model']['is_step_graph'] else {'batch': question['batch'], 'seq': question['sequence'], 'book': question['book']}
        asked = {name: given.get(name) for name in ('gpu', 'outside', *LINKS)}
        words = self.words({**own, 'steps': question['steps'], **asked, 'capacity': f'{given["budget"]}B'})
        answer = self.call('simulate', self.model, '--json', '--plan', self.write('plan.json', plan), *words)
        return json.loads(answer)['devices'][0]['outside']

    def run(self, plan, what):
        """The list for a plan that may not change. Its figures must be those of a simulated run."""
        if text_of(plan) not in self.alone:
            listed, device = self.list_ways(plan, [*self.sizes, '--allow', self.allow]), self.simulate(plan)
            figures, peaks = listed['as_is'], (device['peak']['allocated_bytes'], device['peak_reserved_bytes'])
            need((figures['peak_allocated_bytes'], figures['peak_reserved_bytes']) == peaks, f'{what}: its memory when simulated')
            need(device['step_time_us'] is None or near(figures['step_time_us'], device['step_time_us'], 0.51), f'{what}: its time when simulated')
            self.alone[text_of(plan)] = listed
        return self.alone[text_of(plan)]


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
    need(way['needed_bytes'] + sum(i['bytes'] * i['count'] for i in items) == way['most_bytes'], 'the sum of live tensors')
    excess, extra = max(way['most_bytes'] - budget, 0), 0.0
    for item in sorted(items, key=lambda i: i['us'] / i['bytes']):  # the cheapest bytes first
        taken = min(excess, item['bytes'] * item['count'])
        extra += taken * item['us'] / item['bytes']
        excess -= taken
    if floor['bytes'] > budget or excess:
        return None
    return step(way['kernels_us'] + (0 if way['narrows'] or copies_activations else extra * way['repeats']))


class Check:
    """The statements of an answer: fields and a text of each, in `proved` or in `trusted`."""

    def __init__(self, answer, tessera, sample, seed):
        self.answer, self.tessera, self.question, self.ways = answer, tessera, answer['question'], answer['ways']
        self.sample, self.random, self.proved, self.trusted = sample, random.Random(seed), [], []
        self.fits, self.is_stopped, self.claimed = answer['verdict'] != 'does_not_fit', 'stopped_by' in answer, answer['lower_bound']['step_time_us']
        self.is_partial = self.is_stopped and self.claimed == 0  # not all ways are listed, and there is no bound
        self.has_times = 'calibration' not in answer  # times that follow a recorded run, which is not here, are not computed again
        self.check_question()
        self.check_plan()
        self.check_changes()
        self.check_ways()
        self.check_bounds()
        self.list_trust()

    def state(self, fields, text, is_proved=True):
        if fields:
            (self.proved if is_proved else self.trusted).append((fields, text))

    def check_question(self):
        """Tessera understands the options as the question has them, and lists the same for it."""
        answer, question, model, given = self.answer, self.question, self.question['model'], dict(self.question['options'])
        given['allow'] = ','.join(question['allow']) or 'none'  # programs of --for, and --largest, allow less than is usual
        if 'largest' in given:  # the search chose a size
            given.update(batch=question['batch'], seq=question['sequence'])
        options = self.tessera.words({name: given[name] for name in given.keys() - NOT_ASKED - {'budget'}})
        listed = self.listed = self.tessera.list_ways(question['begins_with'], options)
        same(question, listed['question'], 'question', leave_out={'options'} if self.has_times else {'options', 'rates', 'gpu'})
        for key in ['as_is'] + ['notes'] * self.has_times + ['savings', 'refused'] * (not self.is_partial) + ['exposed'] * (self.has_times and not self.is_partial):
            same(answer.get(key), listed.get(key), key, self.has_times)
        taken = 0 if self.has_times else answer['calibration']['unexplained_bytes']
        left = self.check_outside(given['budget'])
        need(answer['budget_bytes'] == max(left - taken, 1), 'the budget is not that of the question')
        self.state('schema, command, tessera, question, budget_bytes' + ', notes' * self.has_times, f'{model["name"]} (sha256 {model["sha256"][:12]}), sizes, card, rates')
        self.state('savings, refused, exposed', 'free changes have these figures, and refused ways are impossible', not self.is_partial)

    def check_outside(self, budget):
        """What the budget leaves to PyTorch's allocator. What was measured on a machine is a size in the question."""
        outside, reserved = self.answer['outside'], self.answer['predicted']['peak_reserved_bytes']
        own = self.tessera.outside(self.question['begins_with'], self.question)
        need((own is None) == (outside is None), 'whether anything is outside of the allocator')
        if outside is None:
            self.state('outside', 'nothing is known to be outside of the allocator, for this budget')
            return budget
        is_measured = outside['source'] == 'machine'
        need(own['pytorch_bytes'] == outside['pytorch_bytes'], 'what the budget leaves to PyTorch is another')
        need(outside['on_card_bytes'] == (reserved + outside['bytes'] if self.fits else None), 'what is needed of the card')
        if not is_measured:
            same(outside, own, 'outside', leave_out={'on_card_bytes'})
        self.state('outside', 'that this was measured on a machine' if is_measured else
                   f'the budget leaves {outside["pytorch_bytes"]} bytes to PyTorch, by the table or the question', not is_measured)
        return outside['pytorch_bytes']

    def check_plan(self):
        """The figures of the plan, the verdict, and that it only has what is allowed: what ways change, and choices for blocks or modules."""
        answer, plan, begin, as_is = self.answer, self.answer['plan'], self.question['begins_with'], self.answer['as_is']
        need(hashlib.sha256((text_of(plan) + '\n').encode()).hexdigest() == answer['plan_hash'], 'the hash of the plan')
        alone = self.tessera.run(plan, 'plan')
        same(answer['predicted'], alone['as_is'], 'predicted', self.has_times)
        same(answer['binding'], alone['binding'], 'binding')
        same(as_is, as_is and self.tessera.run(begin, 'the plan to begin with')['as_is'], 'as_is', self.has_times)
        self.state('plan, plan_hash, predicted, as_is, binding', f'simulated memory{" and time" * self.has_times}, also of the plan to begin with')
        fits = answer['predicted']['peak_reserved_bytes'] <= answer['budget_bytes']
        verdict = 'fits' if as_is and as_is['peak_reserved_bytes'] <= answer['budget_bytes'] else 'fits_with_changes' if fits else 'does_not_fit'
        need(answer['verdict'] == verdict and fits == self.fits, 'the verdict is another')
        changed, free = altered(plan, begin), set().union(*(altered(way['plan'], begin) for way in self.listed['ways']))
        need(changed <= free | {'blocks', 'checkpoint', 'offload'}, 'the plan has changes that are not allowed')
        used = {key for key in (changed - free) & {'checkpoint', 'offload'} if key in plan}
        for block in plan.get('blocks', []) if 'blocks' in changed else []:
            used |= ({'checkpoint'} & block.keys()) | (set(block.get('saved', {}).values()) - {'keep'})
        need(all(ALLOWED_BY.get(word, word) in self.question['allow'] for word in used), 'the plan has choices for blocks that are not allowed')

    def check_changes(self):
        """Each change is one, and the last one makes the plan."""
        last, end, changes = self.answer['as_is'], self.answer['plan'], self.answer['changes']
        plan = {key: value for key, value in self.question['begins_with'].items() if key != 'blocks' or value == end.get(key)}
        for change in changes:
            keys, plan = altered(change['plan'], plan), change['plan']
            need(len(keys) == 1 or self.are_together(keys, plan), f'the change "{change["technique"]}" is not one')
            now = self.tessera.run(plan, 'a change')['as_is']
            need((change['saved_bytes'] is None) == (change['cost_us'] is None) == (last is None), 'a change of a plan that is impossible')
            need(not last or change['saved_bytes'] == last['peak_allocated_bytes'] - now['peak_allocated_bytes'], 'what a change saves')
            need(not last or not self.has_times or near(change['cost_us'], now['step_time_us'] - last['step_time_us']), 'what a change costs')
            last = now
        need(plan == end or (self.is_stopped and not changes), 'the changes do not lead to the plan')
        self.state('changes', f'{len(changes)} changes lead to the plan, and save and cost what is listed')

    def are_together(self, keys, plan):
        """Whether no way has one of these values without the others, as with fp16 and its weights in fp32."""
        have = [{way['plan'].get(key) == plan.get(key) for key in keys} for way in self.listed['ways']]
        return {True} in have and {True, False} not in have and not keys & set().union(*(saving['keys'] for saving in self.listed['savings']))

    def check_ways(self):
        """All ways are listed, with estimated times. Those that may be faster than the plan have data of their memory, which is compared if drawn."""
        def named(some):
            table = {(text_of(way['plan']), way['narrows']): way for way in some}
            need(len(table) == len(some), 'a way is listed twice')
            return table
        ways, claimed, is_graph = self.ways, self.claimed, self.question['model']['is_step_graph']
        ours, theirs = named([way for way in self.listed['ways'] if is_graph or 'floor' not in way]), named(ways)
        own = [i for i, name in enumerate(theirs) if name not in ours]
        need(own in ([], [len(ways) - 1]) and not any(ways[i]['narrows'] for i in own), 'a way that tessera does not list')
        need(all(self.answer['plan'].get(key) == value for i in own for key, value in ways[i]['plan'].items()), 'the way of the plan')
        need(self.is_partial or theirs.keys() >= ours.keys(), 'a way was left out')
        for i, (name, way) in enumerate(theirs.items()):
            for key in ('kernels_us', 'copies_us', 'waited_us', 'links_us') if 'floor' not in way and self.has_times else ():
                need(near(way[key], ours[name][key]), f'{key} of ways[{i}]')
        surveyed = [i for i, way in enumerate(ways) if 'floor' in way]
        # What is in memory decides whether a way is slower than the bound that is claimed, unless the estimate for it is.
        deciding = {i for i, name in enumerate(theirs) if i in surveyed and (claimed is None or name in ours and ours[name]['bound_us'] < claimed)}
        drawn = {*own, *sorted((i for i in surveyed if ways[i]['bound_us'] is not None), key=lambda i: ways[i]['bound_us'])[:1]}
        others = sorted((i for i in surveyed if i not in drawn), key=lambda i: (i not in deciding, self.random.random()))
        drawn |= set(others if self.sample == 'all' else others[:self.sample])
        for i in sorted(drawn):
            listed = self.listed if is_graph else self.tessera.run(ways[i]['plan'], f'ways[{i}]')
            (again,) = [one for one in listed['ways'] if one['plan'] == ways[i]['plan'] and not one['narrows'] and 'floor' in one]
            same(ways[i], again, f'ways[{i}]', self.has_times, {'bound_us', 'narrows'})
        unseen, self.is_decided, self.is_all_drawn = sorted(set(surveyed) - drawn), not deciding - drawn, not set(surveyed) - drawn
        self.state('ways', f'that these are all ways of `plan --ways`; times; for {len(drawn)} of {len(surveyed)} also memory', not self.is_partial)
        self.state(f'ways[{",".join(map(str, unseen))}]' * bool(unseen), 'their memory: these ways were not drawn (--sample all)', False)

    def check_bounds(self):
        answer, ways, lower, fits, claimed = self.answer, self.ways, self.answer['lower_bound'], self.fits, self.claimed
        took, floors = answer['predicted']['step_time_us'], [way['floor']['bytes'] for way in ways if 'floor' in way]
        for i, way in enumerate(ways):
            least, given = bound(way, answer['budget_bytes'], answer['exposed']), way['bound_us']
            rounded = 0.01 + 0.0005 * way.get('repeats', 1) * sum(item['count'] for item in way.get('could_be_made_again', []))
            need((given is None) == (least is None) and (least is None or near(given, least, rounded)), f'the bound of ways[{i}]')
            need(self.is_stopped or 'floor' in way or (fits and near(max(least, took), least)), f'ways[{i}] has no data of its memory')
        times, is_proved = [way['bound_us'] for way in ways if way['bound_us'] is not None], answer['is_proved']
        need(not is_proved if self.is_partial else is_proved == (not times) and claimed == min(times, default=None), 'the bound on time')
        need(near(lower['gap_us'], took - claimed, 0.02 + 1e-6 * took) if fits else lower['gap_us'] is None, 'the gap')
        percent = 100 * lower['gap_us'] / claimed if fits and claimed else None
        need(lower['gap_percent'] is percent or near(lower['gap_percent'], percent, 0.01), 'the gap in percent')
        need(lower['peak_bytes'] == min(floors, default=None) or (self.is_stopped and lower['peak_bytes'] is None), 'the bound on memory')
        self.state('is_proved, lower_bound.step_time_us, lower_bound.gap_us, lower_bound.gap_percent', 'no schedule of the kernels of these ways ' + (
            'fits' if is_proved else f'takes less than {claimed} us within the budget'), self.is_decided and (is_proved or self.has_times))
        self.state('lower_bound.peak_bytes', f'no schedule of ways with a floor needs less than {lower["peak_bytes"]} bytes', self.is_all_drawn)
        on_host, host_budget = answer['predicted']['host_machine_bytes'], self.question['host_budget_bytes']
        need(not fits or host_budget is None or on_host <= host_budget, 'the memory of the host')
        self.state('verdict', f'{answer["verdict"]} in {answer["budget_bytes"]} bytes', fits or (is_proved and self.is_decided))
        if not is_proved:
            self.state('search', f'that it found the fastest plan: another takes at most {lower["gap_us"]} us less' if fits else
                       'that it found no plan that fits: none is proved to be impossible', False)

    def list_trust(self):
        """What cannot be computed again without a search, a card or a recorded run."""
        question, options = self.question, self.question['options']
        rates = 'the file of rates' if question['rates'] else f'the data sheet of {question["gpu"] or "the card of the graph"}'
        names = options.keys() & (NOT_ASKED | ({'batch', 'seq', 'allow'} if 'largest' in options else set()))
        for fields, text in (
                ('model of memory and time', f'that runs need what tessera computes (with {rates}), and that there are no other ways'),
                ('notes, exposed, calibration, budget_bytes, question.rates, question.gpu, *_us, *.us' * (not self.has_times), 'a recorded run'),
                ('changes[*].technique' * bool(self.answer['changes']), 'the names of changes'),
                (', '.join(f'question.options.{name}' for name in sorted(names)), 'what the search was told besides')):
            self.state(fields, text, False)
        stated = {re.match(r'\w*', field)[0] for fields, _ in self.proved + self.trusted for field in fields.split(', ')}
        self.state(', '.join(sorted(self.answer.keys() - stated)), 'what the search reports about itself', False)

    def check_largest(self, outer):
        """The size is that of the answer."""
        what, size, question = outer['largest'], outer['size'], self.question
        need(outer['schema'] == 'tessera/1' and outer['command'] == 'plan' and what == question['options']['largest'], 'what is the largest')
        need(self.fits and outer['size_as_is'] <= size and (what != 'model' or outer['model'] == question['model']['config']), 'what is largest')
        sizes = {'batch': question['batch'], 'seq': question['sequence']}
        need(size == (sizes[what] if what in sizes else self.tessera.simulate(self.answer['plan'])['parameters']), 'the largest size is another')
        self.state('largest, model', f'a {what} of {size} fits')
        self.state('size, size_as_is, stopped_by', 'that no larger one fits, with changes and without', False)


def verify(outer, tessera='tessera', model=None, sample=8, seed=None):
    """The statements about an answer, as a Check. Raises Wrong or Unknown."""
    answer = outer['answer'] if isinstance(outer, dict) and 'largest' in outer and 'answer' in outer else outer
    if not isinstance(answer, dict) or answer.get('schema') != 'tessera/1' or answer.get('command') != 'plan' or 'question' not in answer:
        raise Unknown('it is no answer of tessera plan --budget --json with a plan')
    try:
        with tempfile.TemporaryDirectory() as folder:
            check = Check(answer, Tessera(tessera, folder, answer, model), sample, seed)
            if outer is not answer:
                check.check_largest(outer)
    except OSError as why:
        raise Unknown(str(why)) from why
    except (ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as why:
        raise Wrong(f'it is not as tessera writes it: {why!r}') from why
    return check


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('certificate', help='what tessera plan --budget --json printed')
    parser.add_argument('--tessera', default='tessera', help='the program (default: that of PATH)')
    parser.add_argument('--model', help='the step graph of the answer, or a config.json to be compared')
    parser.add_argument('--sample', default=8, type=lambda text: text if text == 'all' else int(text), help='how many ways are drawn (8), or all')
    parser.add_argument('--seed', default=random.randrange(10**6), type=int, help='of the draw (default: any)')
    given = parser.parse_args(words)
    try:
        with open(given.certificate, encoding='utf-8') as file:
            check = verify(json.load(file), given.tessera, given.model, given.sample, given.seed)
    except (Unknown, OSError, ValueError, RecursionError) as why:
        print(f'CANNOT BE CHECKED: {why}')
        return 2
    except Wrong as why:
        print(f'REJECTED: {why}')
        return 1
    for title, statements in (('PROVED', check.proved), ('TAKEN ON TRUST', check.trusted)):
        print(*(f'{title}: {fields}: {text}' for fields, text in statements), sep='\n')
    print(f'ACCEPTED (seed {given.seed})')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
