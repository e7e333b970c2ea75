#!/usr/bin/env python3
"""Ranks that train together have the weights of one process, to the bit, and take the memory that was predicted.
Prints TAP.

usage: train.py --tessera PROGRAM --work FOLDER [--count LIBRARY | --few]

--count: instead, over each MPI that is installed, with that library to count what is sent.
--few: instead, what a sanitizer of threads is to see."""
import argparse
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from mpi import HANG_S, OPTIONS, run_tests

GPT2 = {'model_type': 'gpt2', 'vocab_size': 256, 'n_positions': 32, 'n_embd': 32, 'n_layer': 2, 'n_head': 2,
        'resid_pdrop': 0, 'embd_pdrop': 0, 'attn_pdrop': 0}
DROPPED = {**GPT2, 'resid_pdrop': 0.1, 'attn_pdrop': 0.1}
LLAMA = {'model_type': 'llama', 'vocab_size': 256, 'hidden_size': 32, 'intermediate_size': 80,
         'num_hidden_layers': 3, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 64,
         'tie_word_embeddings': False}
WIDE = {**GPT2, 'vocab_size': 2000, 'n_positions': 64, 'n_embd': 128, 'n_layer': 4, 'n_head': 4}
LARGE = {**GPT2, 'vocab_size': 16384, 'n_embd': 512, 'n_layer': 3, 'n_head': 8}
STAGES = (0, 1, 2, 3)
ALL = 'optimizer,gradients,parameters,activations'
# What ranks tell each other in a step, besides: its loss, and whether it counts.
FINDING_BYTES = 16


class Runs:
    def __init__(self, program, work):
        self.program, self.work, self.data = program, work, f'{work}/data'
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        with open(self.data, 'wb') as out:
            out.write(bytes(i * i * 31 % 251 for i in range(20000)))

    def command(self, model, options, steps=3, save=None, mpi=None, ranks=0):
        config = f'{self.work}/model.json'
        with open(config, 'w', encoding='utf-8') as out:
            json.dump(model, out)
        start = [f'mpirun.{mpi}', *OPTIONS[mpi], '-n', str(ranks)] if mpi else []
        saving = ['--save', f'{self.work}/{save}'] if save else []
        if save:
            shutil.rmtree(f'{self.work}/{save}', ignore_errors=True)
        return [*start, self.program, 'train', config, '--data', self.data, '--steps', str(steps), '--batch', '2', '--seq',
                '16', '--lr', '0.003', '--threads', '1', '--json', *saving, *options]

    def run(self, command, env=None):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=HANG_S,
                              check=False, env={**os.environ, 'HWLOC_COMPONENTS': '-gl', **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def train(self, model, options, save='run', **more):
        """(events, what is saved) of a run that must succeed."""
        status, output, errors = self.run(self.command(model, options, save=save, **more))
        assert status == 0, (options, status, errors)
        events = [json.loads(line) for line in output.splitlines() if line.startswith('{')]
        return events, self.saved(save)

    def saved(self, save):
        """The arrays of a saved run: weights, and state by name."""
        files = [f'{self.work}/{save}/model.safetensors', *glob.glob(f'{self.work}/{save}/training-*')]
        found = {}
        for name in files:
            with open(name, 'rb') as file:
                whole = file.read()
            size = int.from_bytes(whole[:8], 'little')
            for array, what in json.loads(whole[8:8 + size]).items():
                if array != '__metadata__':
                    begin, end = what['data_offsets']
                    found[array] = (what['dtype'], what['shape'], whole[8 + size + begin:8 + size + end])
        return found


def steps_of(events):
    return [(event['loss'], event['gradient_norm']) for event in events if event['event'] == 'step']


def check_ranks(events, ranks, what):
    """Every rank took, and sent, what was predicted."""
    took = events[-1]['ranks']
    assert [one['rank'] for one in took] == list(range(ranks)), (what, took)
    for one in took:
        for kind in ('peak', 'host', 'sent'):
            assert one[f'{kind}_bytes'] == one[f'predicted_{kind}_bytes'], (what, one)


def padded_bytes(saved, ranks):
    """Of a GPT-2's parameters in fp32: those of a unit at multiples of 64 elements, and units of 64 for each rank."""
    units = {}
    for name, (_, shape, _) in saved.items():
        if name.endswith(('.exp_avg', '.exp_avg_sq')):
            continue
        count = 1
        for size in shape:
            count *= size
        part = name.split('.')
        unit = part[2] if part[1] == 'h' else 'embedding' if part[1] in ('wte', 'wpe') else 'head'
        units[unit] = units.get(unit, 0) + -(-count // 64) * 64
    return sum(4 * (-(-count // (64 * ranks)) * 64 * ranks) for count in units.values())


def same(runs, model, ranks, options, stages=STAGES):
    """As one process with a micro-batch for each rank, whose gradients are added one after another."""
    alone = runs.train(model, ['--accumulate', str(ranks), '--accumulation', 'grouped', *options])
    for stage in stages:
        events, saved = runs.train(model, ['--ranks', str(ranks), '--zero', str(stage), *options])
        what = f'{ranks} ranks, stage {stage} {options}'
        check_ranks(events, ranks, what)
        assert steps_of(events) == steps_of(alone[0]), (what, steps_of(events), steps_of(alone[0]))
        assert saved.keys() == alone[1].keys() and saved == alone[1], what
    return alone


def small_buckets(runs):
    """A bucket below the number of ranks is the smallest possible, not an unlimited one."""
    peaks = []
    for bucket in ([], ['--bucket', '4'], ['--bucket', '1']):
        events, _ = runs.train(GPT2, ['--ranks', '4', '--zero', '2', '--no-overlap', *bucket])
        check_ranks(events, 4, f'bucket {bucket}')
        peaks.append(events[-1]['ranks'][0]['peak_bytes'])
    assert peaks[0] > peaks[1] == peaks[2], peaks


def sent(runs, ranks):
    """What the papers say: twice the gradients, and in stage 3 three times, but for the part that stays."""
    for stage in STAGES:
        events, saved = runs.train(GPT2, ['--ranks', str(ranks), '--zero', str(stage)])
        times = 3 if stage == 3 else 2
        each = times * padded_bytes(saved, ranks) * (ranks - 1) // ranks + FINDING_BYTES * (ranks - 1)
        assert [one['sent_bytes'] for one in events[-1]['ranks']] == [3 * each] * ranks, (stage, events[-1]['ranks'])


def resumes(runs):
    """As a run without a break; and with another number of ranks, or alone."""
    whole = runs.train(GPT2, ['--ranks', '2', '--zero', '2'], steps=4, save='whole')[1]
    runs.train(GPT2, ['--ranks', '2', '--zero', '2'], steps=2, save='part')
    shutil.copytree(f'{runs.work}/part', f'{runs.work}/kept')
    resume = [runs.program, 'train', '--resume', f'{runs.work}/part', '--steps', '4', '--json']
    for options in ([], ['--zero', '3'], ['--ranks', '4', '--zero', '3'], ['--ranks', '0', '--zero', '0']):
        status, output, errors = runs.run([*resume, *options])
        assert status == 0, (options, errors)
        assert json.loads(output.splitlines()[-1])['steps_before'] == 2, output
        is_whole = runs.saved('part') == whole
        assert is_whole == (options in ([], ['--zero', '3'])), options
        shutil.rmtree(f'{runs.work}/part')
        shutil.copytree(f'{runs.work}/kept', f'{runs.work}/part')


def simulated(runs):
    """What is simulated for ranks is what they take; each has a snapshot."""
    for stage in STAGES:
        events, _ = runs.train(GPT2, ['--ranks', '2', '--zero', str(stage)])
        command = [runs.program, 'simulate', f'{runs.work}/model.json', '--book', 'own', '--batch', '2', '--seq', '16',
                   '--steps', '3', '--ranks', '2', '--zero', str(stage), '--json', '-o', f'{runs.work}/run.pickle']
        status, output, errors = runs.run(command)
        assert status == 0, errors
        peak = json.loads(output)['devices'][0]['peak']['allocated_bytes']
        assert [one['peak_bytes'] for one in events[-1]['ranks']] == [peak, peak], (stage, peak, events[-1]['ranks'])
        for rank in range(2):
            with open(f'{runs.work}/rank{rank}_run.json', encoding='utf-8') as file:
                sidecar = json.load(file)
            assert sidecar['ranks']['rank'] == rank and sidecar['mesh']['coordinates'] == [rank], sidecar
            status, output, errors = runs.run([runs.program, 'peak', f'{runs.work}/rank{rank}_run.pickle', '--json'])
            assert status == 0 and str(peak) in output, errors


def planned(runs, mpi=None):
    """A budget of each rank: the stage is chosen with the rest, and every rank takes what the plan says."""
    start = {'mpi': mpi, 'ranks': 2} if mpi else {}
    more = ['--batch', '8', '--seq', '64', *([] if mpi else ['--ranks', '2'])]
    whole = runs.train(WIDE, more, **start)[0][-1]['reserved_bytes']
    hashes = []
    for part, options in ((0.75, []), (0.85, ['--zero', '1'])):
        budget = int(whole * part)
        events, _ = runs.train(WIDE, [*more, '--budget', f'{budget}B', *options, '--write-plan', f'{runs.work}/plan.json'], **start)
        check_ranks(events, 2, f'{budget} {options}')
        plan, end = events[0], events[-1]
        assert plan['event'] == 'plan' and plan['peak_reserved_bytes'] <= budget, plan
        assert [event['event'] for event in events].count('plan') == 1, events
        assert end['plan_hash'] == plan['plan_hash'], (plan, end)
        assert [one['peak_bytes'] for one in end['ranks']] == [plan['peak_allocated_bytes']] * 2, (plan, end)
        with open(f'{runs.work}/plan.json', encoding='utf-8') as file:
            found = json.load(file)
        assert found['ranks'] == 2 and (found['zero'] == 1 if options else found['zero'] > 1), found
        again = runs.train(WIDE, ['--batch', '8', '--seq', '64', '--plan', f'{runs.work}/plan.json'], **start)[0][-1]
        assert again['ranks'] == end['ranks'], (again, end)
        hashes.append(end['plan_hash'])
    status, output, errors = runs.run(runs.command(WIDE, [*more, '--budget', '1B'], **start))
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{')]
    assert status == 1 and len(lines) == 1 and lines[0]['is_proved'], (status, output, errors)
    return hashes


def replicated(runs):
    """Replicas take what as many ranks as share one take; and are not trained."""
    def peak(*options):
        status, output, errors = runs.run([runs.program, 'simulate', f'{runs.work}/model.json', '--batch', '2', '--seq', '16', '--json',
                                           *options])
        assert status == 0, (options, errors)
        return json.loads(output)['devices'][0]['peak']
    for model in (GPT2, LLAMA):
        runs.command(model, [])
        for book in ('own', 'torch'):
            for stage in ('0', '1', '2', '3'):
                more = ['--book', book, '--zero', stage, *(['--clip', '1'] if stage in '02' else ['--dtype', 'fp16', '--master-weights'])]
                for shared, replicas in ((2, 2), (2, 5), (4, 2), (3, 3)):
                    whole = peak('--ranks', str(shared * replicas), '--replicas', str(replicas), '--rank', str(shared), *more)
                    assert whole == peak('--ranks', str(shared), '--rank', '0', *more), (model, book, stage, shared, replicas)
    status, _, errors = runs.run(runs.command(GPT2, ['--ranks', '4', '--zero', '3', '--replicas', '2']))
    assert status == 2 and 'only simulated' in errors, (status, errors)


def resident(runs, mpi, ranks):
    """A rank has what was predicted in memory, and little more: the program, MPI, and pages that are not worth returning. The embedding is
    large, because a rank that keeps a part of it fills all of it first."""
    folder = f'{runs.work}/resident'
    for stage in STAGES:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        command = runs.command(LARGE, ['--zero', str(stage)], mpi=mpi, ranks=ranks)
        at = command.index(runs.program)
        command[at:at] = [sys.executable, '-S', f'{os.path.dirname(os.path.abspath(__file__))}/resident.py', folder]
        status, output, errors = runs.run(command)
        assert status == 0, (stage, errors)
        for one in parsed(output)[-1]['ranks']:
            with open(f'{folder}/{one["rank"]}', encoding='utf-8') as file:
                more = int(file.read()) - one['predicted_peak_bytes'] - one['predicted_host_bytes']
            print(f'# {mpi}, {ranks} ranks, stage {stage}, rank {one["rank"]}: {more / 2**20:+.1f} MiB')
            assert more <= 32 << 20, (mpi, stage, one, more)


def refuses(runs):
    for options, words in ((['--zero', '1'], 'say how many'), (['--ranks', '2', '--zero', '4'], 'stages 0 to 3'),
                           (['--ranks', '2000'], '2000'), (['--ranks', '2', '--optimizer-in-backward'], 'in backward')):
        status, _, errors = runs.run(runs.command(GPT2, options))
        assert status == 2 and words in errors and len(errors.splitlines()) <= 3, (options, status, errors)


def over_mpi(runs, mpi, ranks):
    threads = {stage: runs.train(GPT2, ['--ranks', str(ranks), '--zero', str(stage), '--clip', '0.5'])
               for stage in (0, 3)}
    for stage, (events, saved) in threads.items():
        others, found = runs.train(GPT2, ['--zero', str(stage), '--clip', '0.5'], mpi=mpi, ranks=ranks)
        check_ranks(others, ranks, f'{mpi}, stage {stage}')
        assert found == saved and steps_of(others) == steps_of(events), (mpi, ranks, stage)


def counted(runs, mpi, ranks, library):
    """What a library between tessera and MPI counts is what tessera counts: but for the beginning and the end."""
    for stage in STAGES:
        command = runs.command(GPT2, ['--zero', str(stage)], mpi=mpi, ranks=ranks)
        status, output, errors = runs.run(command, {'LD_PRELOAD': library})
        assert status == 0, errors
        events = [json.loads(line) for line in output.splitlines() if line.startswith('{')]
        totals = sorted(int(line.split()[-1]) for line in errors.splitlines() if line.startswith('sent '))
        around = (4 + 16 + 6 * 8) * (ranks - 1)  # who can read its files, who can begin, and what each took
        assert totals == sorted(one['sent_bytes'] + around for one in events[-1]['ranks']), (stage, totals, events[-1])


def parsed(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith('{')]


def diverges(runs):
    """A step that updates nothing shares no parameters: what is sent is predicted nevertheless."""
    for stage in STAGES:
        for options in (['--lr', '1e30'], ['--dtype', 'fp16', '--master-weights', '--loss-scale', '4000000000']):
            _, output, _ = runs.run(runs.command(GPT2, ['--ranks', '3', '--zero', str(stage), *options]))
            end = parsed(output)[-1]
            assert end['diverged'] or end['steps_skipped'], (stage, options, end)
            check_ranks([end], 3, f'stage {stage} {options}')


def snapshots(runs, mpi=None):
    """Each rank writes what it recorded, and which rank it is, as simulated ranks are named."""
    path = f'{runs.work}/trained.pickle'
    events, _ = runs.train(GPT2, ['--zero', '3', '--snapshot', path, *([] if mpi else ['--ranks', '3'])],
                           **({'mpi': mpi, 'ranks': 3} if mpi else {}))
    assert not os.path.exists(path)
    for rank, took in enumerate(events[-1]['ranks']):
        name = f'{runs.work}/rank{rank}_trained'
        with open(f'{name}.json', encoding='utf-8') as file:
            sidecar = json.load(file)
        assert sidecar['reason'] == 'trained' and sidecar['ranks']['rank'] == rank, sidecar
        assert sidecar['mesh'] == {'names': ['dp'], 'sizes': [3], 'coordinates': [rank], 'source': 'trained'}, sidecar
        status, output, errors = runs.run([runs.program, 'peak', f'{name}.pickle', '--json'])
        assert status == 0 and json.loads(output)['devices'][0]['peak']['allocated_bytes'] == took['peak_bytes'], (output, errors)
        os.remove(f'{name}.json')
        os.remove(f'{name}.pickle')


def loses_data(runs):
    """A thread that fails while the others are in a step: all of them stop at once, and the message names it. Rank 0 speaks for itself."""
    for stage in STAGES:
        with open(f'{runs.work}/shrinking', 'wb') as out:
            out.write(bytes(i * i * 31 % 251 for i in range(200000)))
        command = runs.command(GPT2, ['--ranks', '3', '--zero', str(stage), '--data', f'{runs.work}/shrinking'], steps=1000000)
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as training:
            for _ in range(3):
                training.stdout.readline()
            os.truncate(f'{runs.work}/shrinking', 1000)
            began = time.monotonic()
            _, errors = training.communicate(timeout=HANG_S)
        why = 'the file has become shorter while it is read'
        named = any(f'rank {rank} has failed: {why}' in errors for rank in (1, 2)) or f'shrinking: {why}' in errors
        assert training.returncode == 3 and named and time.monotonic() - began < 10, (stage, training.returncode, errors)


def refuses_once(runs, mpi):
    """What stops a run before it begins ends all ranks, with one message and one status: whether all find it, or rank 0 alone."""
    folder = f'{runs.work}/full'
    runs.train(GPT2, [], save='full')
    with open(f'{runs.work}/wrong.json', 'w', encoding='utf-8') as out:
        json.dump({'zero_optimization': {'stage': 7}}, out)
    for options, wanted, words in ((['--save', folder], 2, 'already contains weights'), (['--save', '/proc/none'], 4, '/proc/none'),
                                   (['--snapshot', '/none/x.pickle'], 4, '/none/x.pickle'), (['--data', '/none'], 3, '/none'),
                                   (['--zero', '5'], 2, 'stages 0 to 3'), (['--ranks', '2'], 2, 'has started 3'),
                                   (['--ds-config', f'{runs.work}/wrong.json'], 3, 'must be 0, 1, 2 or 3')):
        status, output, errors = runs.run(runs.command(GPT2, options, mpi=mpi, ranks=3))
        said = [line for line in errors.splitlines() if line.startswith('tessera')]
        assert status == wanted and not parsed(output), (options, status, output, errors)
        assert len(said) == 1 and words in said[0], (options, said)


def differs(runs, mpi):
    """Ranks with different options or data are refused."""
    with open(f'{runs.work}/other', 'w', encoding='utf-8') as out:
        out.write('Other words than those that the other rank has. ' * 100)
    for options in (['--seed', '5'], ['--steps', '2'], ['--zero', '3'], ['--data', f'{runs.work}/other']):
        first = runs.command(GPT2, ['--zero', '2'], mpi=mpi, ranks=1)
        second = runs.command(GPT2, ['--zero', '2', *options])
        status, _, errors = runs.run([*first, ':', '-n', '1', *second])
        assert status == 2 and errors.count('rank 1 does not have the run of rank 0') == 1, (options, status, errors)


def launched_again(runs, mpi):
    """A run continues with as many ranks as a launcher starts, and alone with as many threads as it had ranks."""
    runs.train(GPT2, ['--zero', '3'], mpi=mpi, ranks=3, steps=2, save='part')
    resume = [runs.program, 'train', '--resume', f'{runs.work}/part', '--json', '--steps']
    for steps, start, count in ((3, [], 3), (4, [f'mpirun.{mpi}', *OPTIONS[mpi], '-n', '2'], 2)):
        status, output, errors = runs.run([*start, *resume, str(steps)])
        assert status == 0 and len(parsed(output)[-1]['ranks']) == count, (count, output, errors)
        assert ('saved with 3 ranks' in errors) == (count != 3), errors
    status, output, errors = runs.run([*resume, '5', '--ranks', '0'])
    assert status == 0 and parsed(output)[-1]['ranks'] is None, (output, errors)


def ended(mpi, command, lines, end):
    """Start a run, wait for its first lines, and end it by `end`, which gets the launcher's process: (exit status, errors). How long
    that takes is printed, not asserted; without other work it is below ten seconds."""
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                          env={**os.environ, 'HWLOC_COMPONENTS': '-gl'}) as launcher:
        try:
            for _ in range(lines):
                launcher.stdout.readline()
            began = time.monotonic()
            end(launcher.pid)
            _, errors = launcher.communicate(timeout=HANG_S)
        finally:
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
    print(f'# {mpi}: ended after {time.monotonic() - began:.1f} s, with {launcher.returncode}')
    return launcher.returncode, errors


def interrupted(runs, mpi):
    """Ctrl-C ends all ranks, and what was saved is whole: the run goes on from it."""
    command = runs.command(WIDE, ['--zero', '3', '--save-every', '2'], steps=1000000, save='stopped', mpi=mpi, ranks=3)
    ended(mpi, command, 5, lambda launcher: os.killpg(launcher, signal.SIGINT))  # as a terminal does
    (steps,) = {int(name[9:-12]) for name in os.listdir(f'{runs.work}/stopped') if name.startswith('training-')
                and name.endswith('.safetensors')}
    status, output, errors = runs.run([runs.program, 'train', '--resume', f'{runs.work}/stopped', '--ranks', '0', '--zero', '0',
                                       '--steps', str(steps + 1), '--json'])
    assert status == 0 and parsed(output)[-1]['steps_before'] == steps, (status, output, errors)


def killed(runs, mpi):
    """A rank that disappears ends the others, with a message."""
    command = runs.command(GPT2, ['--zero', '3'], steps=1000000, mpi=mpi, ranks=3)
    status, errors = ended(mpi, command, 3, lambda launcher: os.kill(rank_of(launcher, 1), signal.SIGKILL))
    assert status != 0 and ('rank 1' in errors if mpi == 'openmpi' else True), errors


def rank_of(launcher, rank):
    """The process of a rank: a descendant of the launcher."""
    parents = {}
    for name in os.listdir('/proc'):
        try:
            with open(f'/proc/{name}/stat', encoding='latin-1') as file:
                parents[int(name)] = int(file.read().rpartition(')')[2].split()[1])
        except (OSError, ValueError):
            pass
    for process in parents:
        above = process
        while above and above != launcher:
            above = parents.get(above)
        try:
            with open(f'/proc/{process}/environ', 'rb') as file:
                there = file.read().split(b'\0')
        except OSError:
            continue
        if above == launcher and any(key % rank in there for key in (b'OMPI_COMM_WORLD_RANK=%d', b'PMI_RANK=%d')):
            return process
    raise AssertionError('no such rank')


def assert_same(found, wanted):
    assert found == wanted, (found, wanted)


def list_tests(runs, library):
    tests = [(f'{ranks} ranks', lambda ranks=ranks: same(runs, GPT2, ranks, []), None) for ranks in (1, 2, 4, 8)]
    tests += [(f'{ranks} ranks, with everything elsewhere',
               lambda ranks=ranks: same(runs, GPT2, ranks, ['--offload', ALL]), None) for ranks in (1, 2, 4, 8)]
    for name, model, options in (('norms and clipping', GPT2, ['--clip', '0.5']),
                                 ('dropout', DROPPED, ['--checkpoint', 'full']),
                                 ('masters and a scaled loss', GPT2, ['--dtype', 'fp16', '--master-weights', '--clip', '0.5']),
                                 ('autocast', GPT2, ['--dtype', 'autocast-fp16', '--offload', 'optimizer']),
                                 ('Llama, the head apart', LLAMA, ['--clip', '0.5', '--checkpoint', 'selective']),
                                 ('PyTorch\'s ops', GPT2, ['--book', 'torch', '--clip', '0.5']),
                                 ('small buckets, one after another', GPT2, ['--bucket', '1000', '--no-overlap']),
                                 ('placed', GPT2, ['--memory', 'placed', '--offload', 'gradients'])):
        tests.append((name, lambda model=model, options=options: same(runs, model, 2, options), None))
    tests += [(f'what {ranks} ranks send', lambda ranks=ranks: sent(runs, ranks), None) for ranks in (2, 3)]
    tests += [('replicas', lambda: replicated(runs), None)]
    tests += [('buckets below the number of ranks', lambda: small_buckets(runs), None)]
    tests += [('simulated ranks', lambda: simulated(runs), None), ('planned ranks', lambda: planned(runs), None),
              ('steps that update nothing', lambda: diverges(runs), None), ('snapshots', lambda: snapshots(runs), None),
              ('a rank that fails', lambda: loses_data(runs), None),
              ('going on', lambda: resumes(runs), None), ('refusals', lambda: refuses(runs), None)]
    if library:
        tests = []
    for mpi in OPTIONS if library else ():
        tests += [(f'{mpi}, {ranks} ranks', lambda mpi=mpi, ranks=ranks: over_mpi(runs, mpi, ranks), mpi) for ranks in (2, 4)]
        tests += [(f'{mpi}, planned', lambda mpi=mpi: assert_same(planned(runs, mpi), planned(runs)), mpi)]
        tests += [(f'{mpi}, counted', lambda mpi=mpi: counted(runs, mpi, 2, library), mpi),
                  (f'{mpi}, 8 ranks', lambda mpi=mpi: over_mpi(runs, mpi, 8), mpi),
                  (f'{mpi}, resident memory of 2 ranks', lambda mpi=mpi: resident(runs, mpi, 2), mpi),
                  (f'{mpi}, resident memory of 4 ranks', lambda mpi=mpi: resident(runs, mpi, 4), mpi),
                  (f'{mpi}, snapshots', lambda mpi=mpi: snapshots(runs, mpi), mpi),
                  (f'{mpi}, refused once', lambda mpi=mpi: refuses_once(runs, mpi), mpi),
                  (f'{mpi}, ranks that differ', lambda mpi=mpi: differs(runs, mpi), mpi),
                  (f'{mpi}, launched again', lambda mpi=mpi: launched_again(runs, mpi), mpi),
                  (f'{mpi}, interrupted', lambda mpi=mpi: interrupted(runs, mpi), mpi),
                  (f'{mpi}, killed', lambda mpi=mpi: killed(runs, mpi), mpi)]
    return tests


def list_few(runs):
    return [('3 ranks, small buckets', lambda: same(runs, GPT2, 3, ['--bucket', '1000', '--clip', '0.5']), None),
            ('2 ranks, with everything elsewhere', lambda: same(runs, GPT2, 2, ['--offload', ALL]), None),
            ('snapshots', lambda: snapshots(runs), None), ('going on', lambda: resumes(runs), None)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--tessera', required=True)
    parser.add_argument('--work', required=True)
    parser.add_argument('--count')
    parser.add_argument('--few', action='store_true')
    options = parser.parse_args()
    runs = Runs(os.path.abspath(options.tessera), os.path.abspath(options.work))
    tests = list_few(runs) if options.few else list_tests(runs, options.count and os.path.abspath(options.count))
    return run_tests(tests)


if __name__ == '__main__':
    sys.exit(main())
