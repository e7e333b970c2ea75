#!/usr/bin/env python3
"""protocol.py --tessera PATH --work FOLDER: `tessera mcp` on raw messages, as TAP.

Well-formed, odd and hostile lines, and every tool, on snapshots made here; the numbers of real ones
are compared with those of the commands, and are skipped where ../shared is absent."""
import gzip
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys

import support
from support import Skip, call, expect, expect_that, initialize, request

MODERN = {'_meta': {'io.modelcontextprotocol/protocolVersion': '2026-07-28',
                    'io.modelcontextprotocol/clientCapabilities': {}}}
MOSAIC = {'peak_memory_analysis', 'categorical_profiling', 'annotation_analysis', 'memory_diff',
          'compare_snapshots_tool'}


def error_codes(answers):
    return [answer['error']['code'] for answer in answers]


# ---- The protocol ----

def check_versions_are_negotiated(server, _):
    for version in ('2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'):
        result = server.ask(initialize(version))[0]['result']
        expect('version', result['protocolVersion'], version)
        expect('name', result['serverInfo']['name'], 'tessera')
        expect_that('tools are offered', 'tools' in result['capabilities'])
    for version in ('1999-01-01', '2026-07-28', ''):
        result = server.ask(initialize(version))[0]['result']
        expect(f'answer to {version}', result['protocolVersion'], '2025-11-25')
    expect('without a version', error_codes(server.ask(request('initialize', {}))), [-32602])


def check_requests_without_a_handshake(server, folder):
    found = server.ask(request('server/discover', MODERN))[0]['result']
    expect_that('the version is named', '2026-07-28' in found['supportedVersions'])
    expect('resultType', found['resultType'], 'complete')
    tools = server.ask(request('tools/list', MODERN))[0]['result']
    expect('resultType', tools['resultType'], 'complete')
    expect_that('time to live', tools['ttlMs'] >= 0)
    params = {'name': 'tessera_info', 'arguments': {'path': str(folder / 'train.pickle')}, **MODERN}
    result = server.ask(request('tools/call', params))[0]['result']
    expect('resultType', result['resultType'], 'complete')
    expect('command', result['structuredContent']['command'], 'info')
    other = {'_meta': {'io.modelcontextprotocol/protocolVersion': '2031-01-01'}}
    error = server.ask(request('tools/list', other))[0]['error']
    expect('code', error['code'], -32022)
    expect('requested', error['data']['requested'], '2031-01-01')
    expect_that('supported', '2026-07-28' in error['data']['supported'])


def check_what_a_version_lacks_is_not_sent(server, folder):
    ask = call('tessera_info', path=str(folder / 'train.pickle'))
    old = server.ask(initialize('2024-11-05'), ask, request('tools/list'))
    expect_that('no structured content', 'structuredContent' not in old[1]['result'])
    expect_that('no annotations', 'annotations' not in old[2]['result']['tools'][0])
    new = server.ask(initialize('2025-06-18'), ask, request('tools/list'))
    expect_that('structured content', 'structuredContent' in new[1]['result'])
    expect('annotation', new[2]['result']['tools'][0]['annotations']['readOnlyHint'], True)


def check_notifications_are_not_answered(server, _):
    notes = [{'jsonrpc': '2.0', 'method': f'notifications/{name}'}
             for name in ('initialized', 'cancelled', 'unheard-of')]
    expect('answers', server.ask(initialize(), *notes)[1:], [])
    expect('to a response', server.ask({'jsonrpc': '2.0', 'id': 1, 'result': {}}), [])
    expect('to nothing', server.raw(b''), [])
    expect('to blank lines', server.raw(b'\n \r\n\t\n'), [])


def check_ids_come_back(server, _):
    for number in (0, -5, 2**53, 2**63 - 1, 'text', '', 'ü\n"', 1.5):
        expect('id', server.ask(request('ping', number=number)),
               [{'jsonrpc': '2.0', 'id': number, 'result': {}}])
    for number in (None, [], {}, True):
        answer = server.ask(request('ping', number=number))[0]
        expect('code', answer['error']['code'], -32600)
        expect('id', answer['id'], None)


def check_wrong_messages(server, _):
    cases = [
        (b'garbage', -32700), (b'{"jsonrpc":"2.0","id":1,', -32700), (b'\xff\xfe\x00', -32700),
        (b'{"a":"\xc3\x28"}', -32700), (b'{"id":' + b'9' * 400 + b'}', -32700),
        (b'{"id":1e999}', -32700), (b'[' * 5000, -32700), (b'{"a":"\\u0000"}', -32700),
        (b'1', -32600), (b'"text"', -32600), (b'null', -32600), (b'{}', -32600), (b'[]', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600), (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"nope"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tessera_info",'
         b'"arguments":[]}}', -32602),
    ]
    for line, code in cases:
        answers = server.raw(line + b'\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        expect(f'answers to {line[:60]}', len(answers), 2)
        expect(f'code for {line[:60]}', answers[0]['error']['code'], code)
        expect('the next is answered', answers[1], {'jsonrpc': '2.0', 'id': 2, 'result': {}})


def check_requests_that_cannot_be_read(server, folder):
    """Whoever asks gets an answer with the id, also if a text of the request is no text."""
    path = json.dumps(str(folder / 'train.pickle'))
    call = '{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tessera_info","arguments":%s}}'
    odd = ['{"path":"a\\u0000b"}', '{"path":%s,"x\\u0000":1}' % path, '{"path":"\\udcff.pickle"}',
           '{"path":"\\uD800"}', '{"path":%s,"device":99999999999999999999}' % path,
           '{"path":["\\u0000"]}']
    lines = [(call % (number, text)).encode() for number, text in zip(('7', '"s"', '1.5', '-3'), odd)]
    lines += [(call % ('"a\\u0000b"', text)).encode() for text in odd[4:]]
    lines += [(call % (8, '{"path":"\xff"}')).encode('latin-1')]
    ids = [7, 's', 1.5, -3, 'a\x00b', 'a\x00b', 8]
    ids[4] = 'a\ufffdb'  # read a second time, with what cannot be read replaced
    for line, want in zip(lines, ids):
        answers = server.raw(line + b'\r\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        expect(f'answers to {line}', [answer['id'] for answer in answers], [want, 2])
        expect(f'code for {line}', answers[0]['error']['code'], -32602)
    # An id may have a zero byte; the request is like any other.
    answers = server.raw((call % ('"a\\u0000b"', '{"path":%s}' % path)).encode() + b'\n')
    expect('an id', [answer['id'] for answer in answers], ['a\x00b'])
    expect_that('answered', 'result' in answers[0])
    # A notification has no answer, whatever is in it.
    answers = server.raw(b'{"jsonrpc":"2.0","method":"x\\u0000"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
    expect('a notification', [answer['id'] for answer in answers], [2])


def check_keys_with_zero_bytes(server, folder):
    """A name from the file may be a key of an answer."""
    path = folder / 'zero.pickle'
    trace = [{'action': 'a\x00b', 'addr': 4096, 'size': 512, 'stream': 0, 'time_us': 1, 'frames': [],
              'category': 'c\x00d'}]
    path.write_bytes(pickle.dumps({'segments': [], 'device_traces': [trace]}, protocol=4))
    for tool in ('tessera_info', 'tessera_peak', 'tessera_profile'):
        expect_that(tool, server.answer(tool, path=str(path))['verdict'])


def check_lines_too_long(server, _):
    ping = json.dumps(request('ping')).encode()
    for size in ((4 << 20) + 1, 9 << 20, 40 << 20):
        answers = server.raw(b'x' * size + b'\n' + ping + b'\n')
        expect('codes', [a.get('error', {}).get('code') for a in answers], [-32600, None])
    padded = ping[:-1] + b' ' * ((4 << 20) - len(ping)) + b'}'
    expect('the longest allowed', server.raw(padded + b'\n')[0].get('result'), {})
    expect('no end of line', server.raw(ping)[0].get('result'), {})
    expect('too long, no end', error_codes(server.raw(b'x' * (5 << 20))), [-32600])


def check_batches_where_there_are_any(server, _):
    batch = [request('ping', number=1), {'jsonrpc': '2.0', 'method': 'notifications/initialized'},
             request('nope', number=2), 5]
    for version in ('2024-11-05', '2025-03-26'):
        answers = server.ask(initialize(version), batch)[1]
        expect('ids', [answer['id'] for answer in answers], [1, 2, None])
    note = [{'jsonrpc': '2.0', 'method': 'notifications/initialized'}]
    expect('a batch of notes', server.ask(initialize('2025-03-26'), note)[1:], [])
    expect('a later version', server.ask(initialize('2025-06-18'), batch)[1]['error']['code'],
           -32600)


def check_what_is_cancelled_is_not_answered(server, folder):
    path = str(folder / 'train.pickle')
    note = {'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 7}}
    answers = server.ask(initialize(), call('tessera_peak', 7, path=path), note,
                         call('tessera_info', 8, path=path))
    expect('ids', [answer['id'] for answer in answers], ['init', 8])


def check_pipes_that_break(server, folder):
    data = json.dumps(call('tessera_peak', path=str(folder / 'train.pickle'))).encode() + b'\n'
    with subprocess.Popen([server.tessera, 'mcp'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdout.close()
        try:
            process.stdin.write(data * 100)
            process.stdin.close()
        except BrokenPipeError:
            pass
        expect('exit status', process.wait(support.HANG_S), 0)


def check_answers_come_at_once(server, _):
    """Each line is answered before the next is sent: nothing waits in a buffer."""
    with subprocess.Popen([server.tessera, 'mcp'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        for number in range(3):
            process.stdin.write(json.dumps(request('ping', number=number)).encode() + b'\n')
            process.stdin.flush()
            expect('id', json.loads(process.stdout.readline())['id'], number)
        process.stdin.close()
        expect('exit status', process.wait(support.HANG_S), 0)


def check_the_name_of_mosaics_server(server, folder):
    link = folder / 'mosaic_mcp'
    link.symlink_to(server.tessera)
    done = subprocess.run([link], input=json.dumps(request('tools/list')).encode(), check=True,
                          capture_output=True, timeout=support.HANG_S)
    names = {tool['name'] for tool in json.loads(done.stdout)['result']['tools']}
    expect_that('its tools', MOSAIC <= names)


# ---- The tools ----

def check_the_list_of_tools(server, _):
    tools = {tool['name']: tool for tool in server.ask(request('tools/list'))[0]['result']['tools']}
    expect_that('Mosaic\'s are there', MOSAIC <= set(tools))
    for name, tool in tools.items():
        schema = tool['inputSchema']
        expect(f'{name} type', schema['type'], 'object')
        expect_that(f'{name} has a description', len(tool['description']) > 40)
        expect_that(f'{name} required', set(schema['required']) <= set(schema['properties']))
        for key, value in schema['properties'].items():
            expect_that(f'{name}.{key} has a description', value['description'])
            kinds = value['type'] if isinstance(value['type'], list) else [value['type']]
            expect_that(f'{name}.{key} type',
                        set(kinds) <= {'string', 'integer', 'boolean', 'array'})
            if 'default' in value and 'minimum' in value:
                expect_that(f'{name}.{key} default', value['default'] >= value['minimum'])
    for which, offered in (('mosaic', MOSAIC), ('tessera', set(tools) - MOSAIC)):
        listed = server.ask(request('tools/list'), options=('--tools', which))[0]['result']['tools']
        expect(which, {tool['name'] for tool in listed}, offered)
    expect('what is not offered', error_codes(server.ask(
        call('memory_diff'), options=('--tools', 'tessera'))), [-32602])


def items_of(device):
    """The entries with stacks: lists of them; `info` counts stacks instead."""
    lists = [device.get(key) for key in ('stacks', 'changes', 'leaks', 'causes', 'pools', 'holders', 'segments')]
    items = [item for one in lists if isinstance(one, list) for item in one]
    items += [moment['holder'] for moment in device.get('moments', ()) if moment['holder']]
    if device.get('request'):
        items.append(device['request'])
    return [item for item in items if 'frames' in item]


def check_answers_are_those_of_the_commands(server, folder):
    one, two = str(folder / 'train.pickle'), str(folder / 'two-devices.pickle')
    leaky, model = str(folder / 'leaky.pickle'), str(folder / 'model.py')
    oom, lock = str(folder / 'oom.pickle'), str(folder / 'memory.lock')
    plan, small = str(folder / 'plan.json'), str(folder / 'small-model.json')
    pathlib.Path(plan).write_text('{"version": 1, "dtype": "bf16"}', encoding='utf-8')
    pathlib.Path(small).write_text('{"model_type": "gpt2", "n_layer": 2}', encoding='utf-8')
    rules = '{"linear": "linear", "rest": "."}'
    cases = [('tessera_info', {'path': one}, ('info', one)),
             ('tessera_peak', {'path': one}, ('peak', one)),
             ('tessera_peak', {'path': two, 'device': 1, 'top': 1}, ('peak', two, '--device', '1',
                                                                     '--top', '1')),
             ('tessera_at', {'path': one, 'event': 5}, ('at', one, '--event', '5')),
             ('tessera_profile', {'path': one}, ('profile', one)),
             ('tessera_profile', {'path': one, 'by': 'annotation'}, ('profile', one, '--by',
                                                                     'annotation')),
             ('tessera_profile', {'path': one, 'rules': rules}, ('profile', one, '--rules', rules)),
             ('tessera_stages', {'path': one}, ('stages', one)),
             ('tessera_stages', {'path': one, 'match': 'forward', 'top': 1},
              ('stages', one, '--match', 'forward', '--top', '1')),
             ('tessera_steps', {'path': leaky}, ('steps', leaky)),
             ('tessera_leaks', {'path': leaky}, ('leaks', leaky)),
             ('tessera_source', {'path': one, 'source_path': model}, ('source', one, model)),
             ('tessera_whatif', {'path': one, 'settings': ['expandable_segments:True']},
              ('whatif', one, '--set', 'expandable_segments:True')),
             ('tessera_pools', {'path': one, 'event': 20, 'top': 3}, ('pools', one, '--event', '20', '--top', '3')),
             ('tessera_profile', {'path': one, 'by': 'op'}, ('profile', one, '--by', 'op')),
             ('tessera_profile', {'path': one, 'by': 'metadata:layer'},
              ('profile', one, '--by', 'metadata:layer')),
             ('tessera_profile', {'path': one, 'by': 'stack'}, ('profile', one, '--by', 'stack')),
             ('tessera_why', {'path': one}, ('why', one)),
             ('tessera_why', {'path': oom, 'capacity': '16GiB', 'top': 1},
              ('why', oom, '--capacity', '16GiB', '--top', '1')),
             ('tessera_why', {'path': oom, 'settings': ['expandable_segments:True']},
              ('why', oom, '--set', 'expandable_segments:True')),
             ('tessera_check', {'path': one, 'max': ['80GiB', 'input=80GiB'],
                                'max_reserved': '90GiB'},
              ('check', one, '--max', '80GiB', '--max', 'input=80GiB', '--max-reserved', '90GiB')),
             ('tessera_check', {'path': one, 'lock_path': lock, 'tolerance': '0'},
              ('check', one, '--lock', lock, '--tolerance', '0')),
             ('tessera_diff', {'old_path': one, 'new_path': two}, ('diff', one, two)),
             ('tessera_diff', {'old_path': one, 'new_path': two, 'by': 'op'},
              ('diff', one, two, '--by', 'op')),
             ('tessera_plan', {'model': 'gpt2', 'batch': 4, 'budget': '8GiB', 'gpu': 't4', 'allow': 'kernels'},
              ('plan', 'gpt2', '--batch', '4', '--budget', '8GiB', '--gpu', 't4', '--allow', 'kernels')),
             ('tessera_plan', {'model': '{"model_type": "gpt2", "n_layer": 2}', 'show': True, 'plan_path': plan},
              ('plan', 'show', plan, small))]
    server.command('check', one, '--lock', lock, '--update')
    for tool, given, words in cases:
        if tool in ('tessera_why', 'tessera_check',
                    'tessera_peak', 'tessera_at', 'tessera_leaks', 'tessera_whatif', 'tessera_pools', 'tessera_diff'):
            given = {**given, 'max_frames': 1000}
        got, want = server.answer(tool, **given), server.command(*words)
        expect_that(f'{tool} has a verdict', got.pop('in_words' if 'in_words' in got else 'verdict')[0])
        for device in want.get('devices', ()):
            for item in items_of(device):
                item.pop('frames')
        for device in got.get('devices', ()):
            for item in items_of(device):
                expect_that('folded', len(item.pop('frames')) + item.pop('folded_frames') >= 0)
        expect(tool, got, want)


def check_a_source_that_is_given(server, folder):
    """A client need not have the source where the server runs."""
    path, model = str(folder / 'train.pickle'), folder / 'model.py'
    want = server.answer('tessera_source', path=path, source_path=str(model))
    got = server.answer('tessera_source', path=path, source_path='/elsewhere/model.py',
                        source_text=model.read_text(encoding='utf-8'))
    expect('lines', got['devices'][0]['lines'], want['devices'][0]['lines'])
    expect_that('there are lines', len(want['devices'][0]['lines']) > 2)
    for wrong in ('-', '/dev/zero', '/no/such/model.py', str(folder)):
        result = server.tool('tessera_source', path=path, source_path=wrong)
        expect_that(f'{wrong} is refused', result['isError'])
        expect_that(f'{wrong} is named', wrong in result['content'][0]['text'])


def check_a_failed_check_is_an_answer(server, folder):
    answer = server.answer('tessera_check', path=str(folder / 'train.pickle'),
                           max=['1KiB', 'input=80GiB'])
    expect('passed', (answer['passed'], [one['passed'] for one in answer['results']]),
           (False, [False, True]))
    expect_that('the verdict', 'failed' in answer['verdict'][0])


def check_stacks_are_folded(server, folder):
    path = str(folder / 'train.pickle')
    whole = server.command('peak', path)['devices'][0]['stacks']
    for most in (1, 2, 8):
        folded = server.answer('tessera_peak', path=path, max_frames=most)['devices'][0]['stacks']
        for long, short in zip(whole, folded, strict=True):
            expect('frames', len(short['frames']) + short['folded_frames'], len(long['frames']))
            expect_that('at most so many', len(short['frames']) <= most)
            expect_that('of the stack', all(frame in long['frames'] for frame in short['frames']))
            expect_that('not torch\'s', not short['frames'] or
                        'CUDACachingAllocator' not in short['frames'][0]['file'])


def simulated(server, folder, name, *options):
    path = folder / name
    subprocess.run([server.tessera, 'simulate', 'gpt2', '--attention', 'eager', *options, '-q', '-o', path], stdout=subprocess.DEVNULL, check=True)
    return path.read_bytes()


def eight_devices(server, folder):
    """Seven that fit, and device 5, which runs out of memory with a lower peak."""
    fits = simulated(server, folder, 'fits.pickle', '--batch', '8', '--steps', '1')
    fails = simulated(server, folder, 'fails.pickle', '--batch', '8', '--capacity', '6GiB')
    runs = [pickle.loads(fails if device == 5 else fits) for device in range(8)]
    path = folder / 'eight.pickle'
    path.write_bytes(pickle.dumps({**runs[0], 'device_traces': [run['device_traces'][0] for run in runs],
                                   'segments': [{**segment, 'device': device} for device, run in enumerate(runs)
                                                for segment in run['segments']]}))
    return path


def check_peak_and_why_are_short(server, folder):
    """At most 6 KB, with the device that failed first, the advice in the verdict, and tools instead of commands."""
    eight = eight_devices(server, folder)
    for path in (eight, folder / 'fails.pickle', folder / 'fits.pickle', folder / 'train.pickle'):
        for tool in ('tessera_peak', 'tessera_why'):
            result = server.tool(tool, path=str(path))
            text = result['content'][0]['text']
            answer = json.loads(text)
            expect_that(f'{tool} of {path.name}: {len(text)} bytes', len(text.encode()) <= 6000)
            expect_that('tools, not commands', 'tessera why' not in text and 'tessera peak' not in text and '--' not in answer['verdict'][0])
            expect_that('something is left', len(answer['devices'][0].get('stacks', answer['devices'][0].get('causes', [1]))) >= 1)
    for tool in ('tessera_peak', 'tessera_why'):
        answer = server.answer(tool, path=str(eight))
        expect('first', (answer['devices'][0]['device'], answer['verdict'][0].split(':')[0]), (5, 'Device 5'))
        advice = [line for line in answer['verdict'] if line.startswith('Checkpoint the block')]
        expect_that(f'advice in {answer["verdict"]}', advice)
    expect_that('tool', 'tessera_why' in ' '.join(server.answer('tessera_peak', path=str(eight))['verdict']))
    whole = server.answer('tessera_peak', path=str(eight), top=10)
    expect('all of it', [device['device'] for device in whole['devices']], list(range(8)))
    expect('stacks', len(whole['devices'][0]['stacks']), 10)


def check_answers_are_bounded(server, folder):
    path = str(folder / 'train.pickle')
    for limit in (800, 2048, 4096):
        for tool in ('tessera_peak', 'tessera_whatif'):
            whole = server.answer(tool, path=path, options=('--max-answer', '0'))
            answer = server.answer(tool, path=path, options=('--max-answer', f'{limit}B'))
            if answer == whole:
                expect_that('it fits', len(json.dumps(whole, separators=(',', ':'))) <= limit)
                continue
            size = len(json.dumps(answer, separators=(',', ':'), ensure_ascii=False))
            expect_that(f'{tool}: {size} of {limit}', size <= limit + 1024)
            expect_that('says what is missing', 'hint' in answer and 'left_out' in answer)
            expect_that('keeps the verdict', answer['verdict'])
    answer = server.answer('peak_memory_analysis', snapshot_path=path,
                           options=('--max-answer', '3000B'))
    expect('the count is true', answer['summary']['returned_event_count'], len(answer['events']))


def check_wrong_arguments_are_explained(server, folder):
    path = str(folder / 'train.pickle')
    cases = [('tessera_peak', {}, 'path'), ('tessera_peak', {'path': 5}, 'path'),
             ('tessera_peak', {'path': ''}, 'path'), ('tessera_peak', {'file': path}, 'path'),
             ('tessera_peak', {'path': path, 'top': 0}, '1 to 1000'),
             ('tessera_peak', {'path': path, 'top': 'many'}, 'top'),
             ('tessera_peak', {'path': path, 'top': 1.5}, 'top'),
             ('tessera_peak', {'path': path, 'top': 10**18}, 'top'),
             ('tessera_peak', {'path': path, 'device': 7}, 'device 7'),
             ('tessera_peak', {'path': path, 'device': -1}, 'device'),
             ('tessera_at', {'path': path}, 'one of'),
             ('tessera_at', {'path': path, 'event': 1, 'time_us': 1}, 'one of'),
             ('tessera_at', {'path': path, 'event': 10**9}, '0 to 44'),
             ('tessera_at', {'path': path, 'allocation': 'xyz'}, 'ADDRESS_VERSION'),
             ('tessera_at', {'path': path, 'event': 1, 'action': 'steal'}, 'free_requested'),
             ('tessera_whatif', {'path': path, 'settings': ['no:such']}, 'settings'),
             ('tessera_whatif', {'path': path, 'settings': [5]}, 'settings'),
             ('tessera_whatif', {'path': path, 'settings': ['a:b'] * 99}, 'at most'),
             ('tessera_whatif', {'path': path, 'capacity': 'big'}, '40GiB'),
             ('tessera_profile', {'path': path, 'by': 'size'}, 'compile-context'),
             ('tessera_profile', {'path': path, 'by': 'rules'}, 'rules'),
             ('tessera_profile', {'path': path, 'by': 'category', 'rules': '{"a": "b"}'}, 'rules'),
             ('tessera_profile', {'path': path, 'rules': '{"a": "b("}'}, 'offset 2'),
             ('tessera_profile', {'path': path, 'rules': '{"a": '}, 'rules'),
             ('tessera_stages', {'path': path, 'match': ['a'] * 99}, 'at most'),
             ('tessera_source', {'path': path}, 'source_path'),
             ('tessera_why', {'path': path, 'event': 3}, 'event'),
             ('tessera_why', {'path': path, 'capacity': 'big'}, '40GiB'),
             ('tessera_check', {'path': path}, 'nothing to check'),
             ('tessera_check', {'path': path, 'max': 'big'}, '18GiB'),
             ('tessera_check', {'path': path, 'max': ['1GiB'] * 99}, 'at most'),
             ('tessera_check', {'path': path, 'max': ['love=1GiB']}, 'optimizer_state'),
             ('tessera_check', {'path': path, 'max_reserved': '-1'}, '20GiB'),
             ('tessera_check', {'path': path, 'max': '1GiB', 'tolerance': 'some'}, '1%'),
             ('tessera_check', {'path': path, 'lock_path': '/no/such/lock'}, '/no/such/lock'),
             ('tessera_check', {'path': path, 'lock_path': path}, path),
             ('tessera_diff', {'old_path': path, 'new_path': path, 'by': 'size'}, 'category'),
             ('tessera_diff', {'old_path': path}, 'new_path')]
    for tool, given, part in cases:
        result = server.tool(tool, **given)
        expect(f'{tool} {given}', result['isError'], True)
        expect_that(f'{part} in {result["content"][0]["text"]}', part in result['content'][0]['text'])
    for top in (3, 3.0, '3'):
        stacks = server.answer('tessera_peak', path=path, top=top)['devices'][0]['stacks']
        expect('lenient', len(stacks), 3)
    server.answer('tessera_peak', path=path, top=None, device=None)


def check_files_that_are_no_snapshot(server, folder):
    os.mkfifo(folder / 'pipe')
    (folder / 'odd\tname').write_bytes(b'nothing')
    for name in ('absent', 'folder', 'empty.pickle', 'text.pickle', 'number.pickle', 'exec.pickle',
                 'pipe', 'odd\tname', '/dev/zero', '/dev/stdin', '-'):
        path = name if name[0] in '/-' else str(folder / name)
        result = server.tool('tessera_peak', path=path)
        expect(name, result['isError'], True)
        expect_that('the file is named', path in result['content'][0]['text'])
        answer = server.answer('peak_memory_analysis', snapshot_path=path)
        expect(name, (answer['status'], answer['snapshot_path']), ('error', path))
        expect_that(name, answer['error']['type'] and answer['error']['message'])
        answer = server.answer('memory_diff', snapshot_path_1=str(folder / 'train.pickle'),
                               snapshot_path_2=path)
        expect(name, (answer['status'], answer['snapshot_path_2']), ('error', path))
    expect_that('nothing was executed', not (folder / 'was-executed').exists() and
                not os.path.exists('was-executed'))
    answer = server.answer('tessera_peak', path=str(folder / 'truncated.pickle'))
    expect_that('warns', answer['warnings'])


def check_texts_of_a_stranger(server, folder):
    """Lone surrogates, broken and very long names, and sums beyond 63 bits come through."""
    names = ['\ud800', 'a\udc00b', '\ud83d\ude00', '\x00\x1b[2J', 'x' * 100000, '\\ud800', 'ü' * 999]
    trace = [{'action': 'alloc', 'addr': (i + 1) << 40, 'size': 1 << 57, 'stream': 0,
              'time_us': i, 'frames': [{'name': name, 'filename': name, 'line': 2**64 - 1}]}
             for i, name in enumerate(names * 20)]
    path = folder / 'stranger.pickle'
    path.write_bytes(pickle.dumps({'segments': [], 'device_traces': [trace]}, protocol=4))
    for tool in ('tessera_info', 'tessera_peak', 'tessera_whatif', 'tessera_profile'):
        expect_that(tool, server.answer(tool, path=str(path))['verdict'])
    for tool in MOSAIC - {'memory_diff', 'compare_snapshots_tool'}:
        expect(tool, server.answer(tool, snapshot_path=str(path))['status'], 'ok')
    expect('diff', server.answer('memory_diff', snapshot_path_1=str(path),
                                 snapshot_path_2=str(folder / 'train.pickle'))['status'], 'ok')


def check_nothing_is_hidden_in_a_text(server, folder):
    """Characters that are not drawn are escaped in what a language model reads."""
    path, name = folder / 'hidden.pickle', 'f\U000e0041\u200bx\u00ad\u00e9'
    path.write_bytes(pickle.dumps(support.fixtures.traces([support.fixtures.entry('alloc', 0x1000, 1024, 1, (name, '/w/m.py', 3))])))
    for tool, arguments in (('tessera_peak', {'path': str(path)}),
                            ('peak_memory_analysis', {'snapshot_path': str(path), 'print_stack': True})):
        result = server.ask(initialize(), call(tool, **arguments))[1]['result']
        text = result['content'][0]['text']
        expect_that(f'{tool} names it', name in json.dumps(json.loads(text), ensure_ascii=False))
        expect(f'{tool}: what is hidden', re.findall('[\u00ad\u200b\U000e0041]', text), [])
    message = server.raw('{"a":\u200b\x7f}\n'.encode())[0]['error']['message']
    expect('what is hidden in an error', re.findall('[\u200b\x7f]', message), [])


def check_numbers_beyond_those_of_json(server, folder):
    """Sums that no integer of a message holds are the largest that one does."""
    path = str(folder / 'vast.json')
    trace = [{'action': 'alloc', 'addr': 4096 * i, 'size': 1 << 57, 'stream': 0, 'time_us': i}
             for i in range(70)]
    blocks = [{'size': 1 << 57, 'state': 'active_allocated', 'address': (1 << 40) + 512 * i}
              for i in range(70)]
    segment = {'device': 0, 'address': 1 << 40, 'total_size': 1 << 57, 'blocks': blocks}
    note = {'name': 'x', 'stage': 'START', 'device': 0, 'time_us': 99}
    (folder / 'vast.json').write_text(json.dumps(
        {'segments': [segment], 'device_traces': [trace], 'external_annotations': [note]}))
    summary = server.answer('peak_memory_analysis', snapshot_path=path)['summary']
    for name in ('dynamic_peak', 'static_memory', 'overall_peak'):
        expect(name, summary[f'{name}_bytes'], 2**63 - 1)
    expect('stage', server.answer('annotation_analysis', snapshot_path=path)['stages'][0][
        'memory_bytes'], 2**63 - 1)
    expect('status', server.answer('compare_snapshots_tool', snapshot_path_1=path,
                                   snapshot_path_2=path)['status'], 'ok')


def check_a_file_written_anew_is_read_anew(server, folder):
    path = folder / 'changing.pickle'
    with subprocess.Popen([server.tessera, 'mcp'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        def ask():
            message = json.dumps(call('tessera_info', path=str(path))).encode()
            process.stdin.write(message + b'\n')
            process.stdin.flush()
            return json.loads(process.stdout.readline())['result']
        seen = []
        for source in ('train', 'two-devices', 'oom'):
            path.write_bytes((folder / f'{source}.pickle').read_bytes())
            for _ in range(2):
                result = ask()['structuredContent']
                seen.append((source, result['inputs'][0]['bytes']))
        path.unlink()
        expect('a file that is gone', ask()['isError'], True)
        process.stdin.close()
        expect('exit status', process.wait(support.HANG_S), 0)
    for source, size in seen:
        expect('bytes', size, (folder / f'{source}.pickle').stat().st_size)


def check_many_files_in_one_conversation(server, folder):
    whole = (folder / 'train.pickle').read_bytes()
    paths = [folder / f'copy-{number}.pickle.gz' for number in range(20)]
    for path in paths:
        path.write_bytes(gzip.compress(whole, 1))
    answers = server.ask(initialize(), *[call('tessera_peak', i, path=str(path)) for i, path in
                                         enumerate(paths + paths)])
    stacks = [answer['result']['structuredContent']['devices'] for answer in answers[1:]]
    expect('all the same', all(one == stacks[0] for one in stacks), True)


# ---- Numbers of real snapshots ----

def check_peak_of_real_snapshots(server, _):
    for path in sorted(support.real('INDEX.md').parent.glob('*.pickle')):
        want = server.command('peak', '--top', '0', str(path))
        got = server.answer('tessera_peak', path=str(path), top=1000, options=('--max-answer', '0'))
        for one, other in zip(want['devices'], got['devices'], strict=True):
            expect(path.name, other['peak'], one['peak'])
            expect(path.name, [s['bytes'] for s in other['stacks']],
                   [s['bytes'] for s in one['stacks']])
        small = json.dumps(server.answer('tessera_peak', path=str(path)))
        expect_that(f'{path.name}: {len(small)} bytes', len(small) <= 80 << 10)
        answer = server.answer('peak_memory_analysis', snapshot_path=str(path),
                               options=('--max-answer', '0'))
        device = next(d for d in want['devices'] if d['device'] == answer['device'])
        summary, recorded = answer['summary'], device['recorded']
        expect(path.name, summary['dynamic_peak_bytes'], recorded['dynamic_peak_bytes'])
        expect(path.name, summary['static_memory_bytes'], recorded['static_bytes'])
        expect(path.name, summary['overall_peak_bytes'], recorded['overall_bytes'])
        expect(f'{path.name}: the stacks add up', sum(e['memory_bytes'] for e in answer['events']),
               recorded['dynamic_peak_bytes'])
        hashes = [event['callstack_hash'] for event in answer['events']]
        expect('hashes are distinct', len(set(hashes)), len(hashes))
        again = server.answer('peak_memory_analysis', snapshot_path=str(path),
                              options=('--max-answer', '0'))
        expect('hashes are stable', [event['callstack_hash'] for event in again['events']], hashes)
        for event in answer['events']:
            expect_that('frames of torch are left out', not any(
                f['name'] in ('_call_impl', '_wrapped_call_impl') or '/torch/' in f['filename']
                for f in event['call_stack']))


def check_stages_of_real_snapshots(server, _):
    """Mosaic's own output lists what it says of each stage."""
    folder = support.real('INDEX.md').parent
    seen = 0
    for output in sorted((folder.parent / 'expected' / 'mosaic').glob('*/stages.out')):
        path = folder / f'{output.parent.name}.pickle'
        lines = [line for line in output.read_text().splitlines() if ' GiB. Annotation: ' in line]
        if not path.exists() or not lines:
            continue
        answer = server.answer('annotation_analysis', snapshot_path=str(path),
                               options=('--max-answer', '0'))
        got = [(stage['stage'], stage['memory_gib']) for stage in answer['stages']]
        want = [(line.split(' GiB. Annotation: ')[0].rsplit(': ', 1)) for line in lines]
        expect(path.name, got, [(name, float(gib)) for name, gib in want])
        seen += len(lines)
    if not seen:
        raise Skip('no output of Mosaic is there')


def check_differences_of_real_snapshots(server, _):
    one = str(support.real('train-ctx100-annotated-torch2.6.pickle'))
    two = str(support.real('train-ctx200-autocast-annotated-torch2.6.pickle'))
    want = server.command('diff', '--top', '0', one, two)['devices'][0]
    got = server.answer('memory_diff', snapshot_path_1=one, snapshot_path_2=two,
                        options=('--max-answer', '0'))
    for status in ('added', 'removed', 'grown', 'shrunk'):
        changes = [c for c in want['changes'] if c['status'] == status]
        side = 'old_bytes' if status == 'removed' else 'new_bytes'
        expect(status, [e['memory_bytes'] for e in got[status]], [c[side] for c in changes])
        expect(status, got['summary'][f'{status}_count'], len(changes))
        expect(status, got['summary'][f'{status}_total_bytes'], want[f'{status}_bytes'])
    expect('net', got['summary']['net_delta_bytes'], want['added_bytes'] - want['removed_bytes'])
    both = server.answer('compare_snapshots_tool', snapshot_path_1=one, snapshot_path_2=two,
                         options=('--max-answer', '0'))
    expect('added', both['diff']['added_count'], got['summary']['added_count'])
    expect('at most ten', len(both['diff']['top_added']), 10)
    same = server.answer('memory_diff', snapshot_path_1=one, snapshot_path_2=one)
    expect('nothing', [same['summary'][f'{s}_count'] for s in ('added', 'removed', 'grown')],
           [0, 0, 0])


def check_reading_can_be_cancelled(server, folder):
    """The reading of a large file ends early, without an answer."""
    path = folder / 'long.pickle'
    frames = [{'name': 'f', 'filename': 'f.py', 'line': 1}]
    trace = [{'action': 'alloc', 'addr': i << 12, 'size': 512, 'stream': 0, 'time_us': i,
              'frames': frames} for i in range(300000)]
    path.write_bytes(pickle.dumps({'segments': [], 'device_traces': [trace]}, protocol=0))
    ask = call('tessera_peak', 5, path=str(path))
    ask['params']['_meta'] = {'progressToken': 'tok'}
    note = {'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 5}}
    with subprocess.Popen([server.tessera, 'mcp'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        # At once, so that the wish to stop waits there, however late the server comes to look.
        process.stdin.write(b''.join(json.dumps(message).encode() + b'\n' for message in (
            ask, note, request('ping', number=6))))
        process.stdin.close()
        lines = [json.loads(line) for line in process.stdout.read().splitlines()]
        expect('exit status', process.wait(support.HANG_S), 0)
    path.unlink()
    for line in lines[:-1]:
        expect('only progress', line['method'], 'notifications/progress')
        expect('token', line['params']['progressToken'], 'tok')
        expect_that('progress', line['params']['progress'] <= line['params']['total'])
    expect('the next is answered', lines[-1]['id'], 6)


def check_planning_can_be_cancelled(server, _):
    """A search that would take hours ends early, without an answer."""
    model = json.dumps({'model_type': 'gpt2', 'n_layer': 4096})
    ask = call('tessera_plan', 5, model=model, front=True, time_limit=0, work_limit=0)
    ask['params']['_meta'] = {'progressToken': 'tok'}
    note = {'jsonrpc': '2.0', 'method': 'notifications/cancelled', 'params': {'requestId': 5}}
    lines = server.ask(ask, note, request('ping', number=6))
    for line in lines[:-1]:
        expect('only progress', line['method'], 'notifications/progress')
    expect('the next is answered', lines[-1]['id'], 6)


def check_planning_has_limits(server, _):
    """At a limit a search returns what it has found, or an error if that is nothing."""
    some = server.answer('tessera_plan', model='gpt2', budget='2GiB', work_limit=1000000)
    expect('stopped', some['stopped_by'], 'work_limit')
    result = server.tool('tessera_plan', model='llama-3-405b', explain=True, work_limit=500)
    expect('isError', result['isError'], True)
    expect('the limit', 'nothing was found within work_limit' in result['content'][0]['text'], True)


def main():
    options = support.arguments(__doc__)
    checks = [value for key, value in globals().items() if key.startswith('check_')]
    return support.tap.run(support.tap.named(checks, support.Server(options.tessera), options.work / 'fixtures'))


if __name__ == '__main__':
    sys.exit(main())
