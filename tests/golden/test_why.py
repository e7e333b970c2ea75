"""The advice of `tessera why` about failed runs, checked by following it.

Runs are simulated on cards that are too small. Every change that `why --json` calls enough is then simulated on the
same card, and has to fit; a setting that it calls not enough for the rest of the run has to fail. `why` and
`whatif` only read the snapshot, as with a recorded run."""
import pickle

from support import cases, expect, load

GIB, MIB = 1 << 30, 1 << 20
# A model, its options, and the card's memory in percent of what the run reserves: from the first blocks of
# the first forward to the last bytes of a step like those before.
RUNS = [('gpt2', {'batch': 8, 'attention': 'eager'}, (35, 50, 62, 75, 90, 97, 99)),
        ('gpt2', {'batch': 16, 'seq': 1024, 'dtype': 'bf16'}, (35, 62, 85, 97)),
        ('gpt2', {'batch': 8, 'dtype': 'autocast-bf16', 'gelu': 'fused'}, (50, 85, 94)),
        ('gpt2-medium', {'batch': 4, 'attention': 'eager', 'dtype': 'fp16'}, (50, 75, 97)),
        ('gpt2', {'batch': 8, 'optimizer': 'sgd'}, (50, 75, 94)),
        ('gpt2', {'batch': 8, 'accumulate': 3}, (50, 85, 97)),
        ('gpt2', {'batch': 2, 'seq': 256, 'dtype': 'autocast-bf16', 'attention': 'eager',
                  'optimizer': 'adamw-loop', 'accumulate': 2}, (70, 90)),
        ('llama-3.2-1b', {'batch': 1, 'seq': 1024, 'dtype': 'bf16', 'optimizer': 'adamw-fused',
                          'accumulate': 2}, (70, 97)),
        ('gpt2', {'batch': 4, 'seq': 256, 'attention': 'eager', 'optimizer': 'sgd', 'accumulate': 2},
         (80, 98)),
        ('gpt2', {'batch': 16, 'seq': 1024, 'attention': 'eager', 'optimizer': 'adamw-loop',
                  'checkpoint': 'full'}, (80,)),
        ('gpt2-xl', {'batch': 1, 'seq': 1024, 'dtype': 'autocast-bf16', 'attention': 'eager',
                     'optimizer': 'sgd'}, (97,)),
        ('gpt2-medium', {'batch': 6, 'optimizer': 'adamw-loop', 'set': 'expandable_segments:True'},
         (50, 90, 98)),
        ('gpt2', {'batch': 16, 'attention': 'chunked:64'}, (35, 50, 90)),
        ('llama-3.2-1b', {'batch': 4, 'seq': 1024, 'dtype': 'bf16'}, (35, 50, 90, 98)),
        ('llama-3.2-1b', {'batch': 4, 'seq': 1024, 'dtype': 'bf16', 'checkpoint': 'full'},
         (35, 62, 75, 85))]


def words_of(options):
    return [word for key, value in options.items() for word in (f'--{key}', value)]


def size(capacity):
    return f'{capacity}B' if isinstance(capacity, int) else capacity


def simulate(tessera, model, options, capacity=None):
    limit = ['--capacity', size(capacity)] if capacity else []
    return tessera.device('simulate', model, *words_of(options), *limit)


def fail(tessera, path, model, options, capacity):
    """The snapshot of a run that does not fit."""
    tessera.simulate(model, *words_of(options), '--capacity', size(capacity), out=path)


def follow(advice, options):
    """The options of a run that does what is advised; None if that leaves no batch."""
    change = advice['change']
    if change == 'settings':
        return {**options, 'set': '' if advice['settings'] == 'defaults' else advice['settings']}
    if change == 'batch':
        batch = options['batch'] * advice['batch_percent'] // 100
        return {**options, 'batch': batch} if batch else None
    expect('a change', change, 'checkpoint')
    return {**options, 'checkpoint': 'full'}


def check_advice(tessera, path, device, model, options, capacity):
    """Every change that is called enough is; returns how many were tried."""
    tried = 0
    for advice in device['advice']:
        changed = follow(advice, options) if advice['enough'] else None
        if not changed:
            continue
        tried += 1
        expect(f'fits with {advice}', simulate(tessera, model, changed, capacity)['fits'], True)
    return tried


@cases('model, options, percent', [(model, options, percent) for model, options, percents in RUNS for percent in percents],
       lambda value: ' '.join(map(str, value.values())) if isinstance(value, dict) else str(value))
def test_run(tessera, work, model, options, percent):
    path = work / 'oom.pickle'
    whole = simulate(tessera, model, options)
    capacity = whole['peak_reserved_bytes'] * percent // 100
    truth = simulate(tessera, model, options, capacity)
    expect('fits', truth['fits'], False)
    fail(tessera, path, model, options, capacity)
    device = tessera.device('why', path)
    outlook = device['outlook']
    expect('phase', outlook['phase'], truth['out_of_memory']['phase'])
    if outlook['step'] is not None:
        expect('step', outlook['step'], truth['out_of_memory']['step'])
    check_advice(tessera, path, device, model, options, capacity)
    expect('growth', outlook['step_growth_bytes'], 0)
    # What is short is short indeed, and near what the run reaches on a card without limit.
    if outlook['short_bytes']:
        expect('no setting helps', [entry for entry in device['trials'] if entry['rest_fits']], [])
        expandable = {**options, 'set': 'expandable_segments:True'}
        expect('nor this', simulate(tessera, model, expandable, capacity)['fits'], False)
    models = [entry for entry in device['advice'] if entry['change'] == 'model']
    if models and options.get('optimizer') == 'sgd':
        expect('assumed', [entry['assumes'] for entry in models], ['adam'])
    if outlook['basis'] == 'earlier_step':
        peak, real = outlook['asked_bytes'], whole['peak']['requested_bytes']
        if not 0.85 * real < peak < 1.05 * real:
            raise AssertionError(f'expected to reach {peak}, and reaches {real}')
    # Another look at the failed request.
    whatif = tessera.device('whatif', path)
    recorded = [run for run in whatif['runs'] if run['recorded']]
    expect('recorded', [(run['fits'], run['failed_event']) for run in recorded],
           [(False, device['moment']['event'])])
    expect('capacity', (whatif['capacity_bytes'], whatif['capacity_from']),
           (device['trial_capacity_bytes'], 'out_of_memory'))
    served = {entry['settings'] for entry in device['trials'] if entry['fits']}
    if device['trials']:
        expect('served', {run['settings'] for run in whatif['runs'] if run['fits']}, served)


def test_readme(tessera, work):
    """The example of the README, to its end."""
    path, options = work / 'readme.pickle', {'batch': 8, 'attention': 'eager'}
    fail(tessera, path, 'gpt2', options, '6GiB')
    device = tessera.device('why', path)
    outlook = device['outlook']
    expect('basis', outlook['basis'], 'blocks')
    expect('blocks', (outlook['blocks_begun'], outlook['block_count']), (10, 12))
    expect('short', outlook['short_bytes'] > GIB // 2, True)
    expect('rest', {entry['rest_fits'] for entry in device['trials'] if entry['fits']}, {False})
    for entry in device['trials']:
        if entry['fits']:
            changed = {**options, 'set': entry['settings']}
            expect(entry['settings'], simulate(tessera, 'gpt2', changed, '6GiB')['fits'], False)
    expect('followed', check_advice(tessera, path, device, 'gpt2', options, '6GiB'), 1)


def insert_oom(snapshot, like, free, device=0):
    """Ends the trace with a failure of the request of an earlier event."""
    trace = snapshot['device_traces'][device]
    oom = {key: value for key, value in trace[like].items() if key != 'addr'}
    trace.append({**oom, 'action': 'oom', 'device_free': free, 'size': -(-oom['size'] // 512) * 512,
                  'time_us': trace[-1]['time_us'] + 1})


def write(path, snapshot):
    path.write_bytes(pickle.dumps(snapshot, protocol=4))


def test_growth(tessera, work):
    """64 MiB a step that are never freed: settings only delay the failure."""
    path, cut = work / 'grow.pickle', work / 'cut.pickle'
    tessera.simulate('gpt2', '--batch', 1, '--seq', 64, '--steps', 6, out=path)
    snapshot, steps = load(path), tessera.device('steps', path)['steps']
    trace, segments = snapshot['device_traces'][0], snapshot['segments']
    address = max(segment['address'] + segment['total_size'] for segment in segments) + GIB
    firsts = {next(event for event in range(step['first_event'], step['last_event'])
                   if trace[event]['action'] == 'alloc'): number for number, step in enumerate(steps)}
    out = []
    for number, event in enumerate(trace):
        if number in firsts:
            leak = {**event, 'addr': address + firsts[number] * 64 * MIB, 'size': 64 * MIB, 'frames': [
                event['frames'][0], {'name': 'remember', 'filename': '/work/log.py', 'line': 7},
                *event['frames'][1:]]}
            out += [{**leak, 'action': 'segment_alloc'}, leak]
            segments.append({**segments[0], 'address': leak['addr'], 'total_size': leak['size'],
                             'allocated_size': leak['size'], 'active_size': leak['size'],
                             'requested_size': leak['size'], 'segment_type': 'large',
                             'blocks': [{'address': leak['addr'], 'size': leak['size'],
                                         'requested_size': leak['size'], 'state': 'active_allocated',
                                         'frames': leak['frames']}]})
        out.append(event)
    snapshot['device_traces'][0] = out
    write(path, snapshot)
    # In the middle of the last step's forward.
    begin = tessera.device('steps', path)['steps'][-1]['first_event']
    at = begin + 120
    while out[at]['action'] != 'alloc' or out[at]['size'] < 4096:
        at += 1
    tessera.run('trim', '--events', f'..{at - 1}', '-q', '-o', cut, path)
    snapshot = load(cut)
    snapshot['device_traces'][0].append(out[at])
    insert_oom(snapshot, -1, 0)
    del snapshot['device_traces'][0][-2]
    write(cut, snapshot)
    device = tessera.device('why', cut)
    expect('basis', device['outlook']['basis'], 'earlier_step')
    expect('growth', device['outlook']['step_growth_bytes'], 64 * MIB)
    changes = {entry['change']: entry['enough'] for entry in device['advice']}
    expect('advice', changes.get('growth', False), None)
    expect('enough', [entry for entry in device['advice'] if entry['enough']], [])


def test_devices(tessera, work):
    """Of two devices, the second failed: text says so first."""
    path = work / 'two.pickle'
    fail(tessera, path, 'gpt2', {'batch': 8, 'attention': 'eager'}, '6GiB')
    failed = load(path)
    tessera.simulate('gpt2', out=path)
    both = load(path)
    both['device_traces'] = [both['device_traces'][0], failed['device_traces'][0]]
    both['segments'] += [{**segment, 'device': 1} for segment in failed['segments']]
    write(path, both)
    text = tessera.output('why', path)
    heads = [line.split(':')[0] for line in text.splitlines() if line.startswith('Device ')]
    expect('first', heads, ['Device 1', 'Device 0'])
    expect('JSON', [entry['device'] for entry in tessera.json('why', path)['devices']], [0, 1])


def test_recovered(tessera, work):
    """A failure that the program got over: the trace itself tells how it went on."""
    path = work / 'over.pickle'
    tessera.simulate('gpt2', '--batch', 2, out=path)
    snapshot = load(path)
    trace = snapshot['device_traces'][0]
    at = next(i for i, event in enumerate(trace) if i > 500 and event['action'] == 'alloc')
    tail = trace[at:]
    del trace[at:]
    trace.append(tail[0])
    insert_oom(snapshot, -1, 0)
    del trace[-2]
    trace += tail
    write(path, snapshot)
    device = tessera.device('why', path)
    expect('recovered', [entry['recovered'] for entry in device['ooms']], [True])
    expect('basis', device['outlook']['basis'], 'none')
    expect('enough', [entry for entry in device['advice'] if entry['enough']], [])
    text = tessera.output('why', path)
    expect('verdict', any('recovered' in line for line in text.splitlines()[:3]), True)


def test_larger_than_card(tessera, work):
    """One request that no card of this size can serve."""
    path = work / 'large.pickle'
    tessera.simulate('gpt2', out=path)
    snapshot = load(path)
    insert_oom(snapshot, next(i for i, event in enumerate(snapshot['device_traces'][0])
                              if event['action'] == 'alloc'), 100 * MIB)
    snapshot['device_traces'][0][-1]['size'] = 400 * GIB
    write(path, snapshot)
    device = tessera.device('why', path)
    expect('beyond', device['beyond_settings'], True)
    expect('settings', [entry for entry in device['advice'] if entry['change'] == 'settings'], [])
    recorded = [run for run in tessera.device('whatif', path)['runs'] if run['fits']]
    expect('fit', recorded, [])


def test_states(tessera, work):
    """The optimizer's state does not fit: that comes before how the memory lay."""
    path, options = work / 'states.pickle', {'dtype': 'bf16', 'seq': 128}
    fail(tessera, path, 'llama-3-8b', options, '50GiB')
    device = tessera.device('why', path)
    outlook = device['outlook']
    expect('phase', outlook['phase'], 'optimizer')
    expect('basis', outlook['basis'], 'optimizer_state')
    parameters = simulate(tessera, 'llama-3-8b', options)['parameters']
    expect('asked', outlook['asked_bytes'] // MIB, 4 * 2 * parameters // MIB)
    expect('advice', [entry['change'] for entry in device['advice']], ['model'])
    expect('assumes', device['advice'][0]['assumes'], None)
    text = tessera.output('why', path)
    expect('verdict', text.splitlines()[1].startswith('Parameters, gradients and optimizer state alone are '), True)


def test_categories(tessera, work):
    """A first backward pass that is cut shows gradients of some parameters only: all the others are parameters
    nevertheless, not state of an optimizer that has not run. All three tie their embedding to the head: the head's
    gradient waits for the embedding's until the end. The simulation calls it temporary, since the sum of both becomes
    .grad; in a pass that is cut nobody can tell that it would not have."""
    path = work / 'cut.pickle'
    for model, tied, options, percent in (
            ('llama-3.2-1b', 128256 * 2048, {'batch': 2, 'seq': 256, 'attention': 'eager'}, 40),
            ('gpt2-xl', 50257 * 1600, {'batch': 1, 'seq': 512, 'dtype': 'bf16', 'checkpoint': 'full'}, 25),
            ('gpt2-medium', 50257 * 1024, {'batch': 8, 'seq': 512, 'dtype': 'bf16'}, 80)):
        whole = simulate(tessera, model, options)
        fail(tessera, path, model, options, whole['peak_reserved_bytes'] * percent // 100)
        device = tessera.device('why', path)
        expect('a pass that is cut', device['outlook']['phase'] in ('backward', 'recompute'), True)
        expect('step', device['outlook']['step'], 1)
        held = {entry['category']: entry['bytes'] for entry in device['categories']}
        width = 2 if options.get('dtype') == 'bf16' else 4
        true = whole['parameters'] * width
        if not true <= held['parameter'] <= true * 1.05:  # and buffers
            raise AssertionError(f'{model}: parameters are {held["parameter"]:,}, not {true:,} bytes')
        expect('state', held.get('optimizer_state', 0), 0)
        dead = simulate(tessera, model, options, whole['peak_reserved_bytes'] * percent // 100)
        gradients = sum(entry['bytes'] for entry in dead['categories'] if entry['name'] == 'gradient')
        if not -true // 10 <= held.get('gradient', 0) - gradients <= tied * width + true // 10:
            raise AssertionError(f'{model}: gradients are {held["gradient"]:,}, not {gradients:,} bytes')


def test_whole_steps(tessera, work):
    """Whole steps show what an optimizer without state needs."""
    path, options = work / 'sgd.pickle', {'batch': 4, 'seq': 1024, 'optimizer': 'sgd'}
    whole = simulate(tessera, 'gpt2', options)
    fail(tessera, path, 'gpt2', options, whole['peak_reserved_bytes'] * 95 // 100)
    device = tessera.device('why', path)
    expect('step', device['outlook']['step'], 2)
    expect('no model', [entry for entry in device['advice'] if entry['change'] == 'model'], [])
