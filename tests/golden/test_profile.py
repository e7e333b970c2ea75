"""Profiles of real snapshots: what mosaic_get_memory_profile prints, byte for byte, and histories
that add up."""
import re

from support import SHARED, SNAPSHOTS, absent, cases, expect, real

RULES = ('{"attention": "attention|softmax", "ffn": "swiglu|mlp|ffn|silu", '
         '"optim": "optim|adam", "rest": ".*"}')
# The name of an expected output, and what the command was told.
PRINTED = {
    'profile-categories': ['--profile', 'categories'],
    'profile-categories-ordered': ['--profile', 'categories', '--preserve-allocation-order'],
    'profile-annotations': ['--profile', 'annotations'],
    'profile-compile-context': ['--profile', 'compile_context'],
    'profile-custom': ['--profile', 'custom', '--custom-profile', RULES],
}
# How tessera's own command is asked for the same groups.
GROUPINGS = {
    'profile-categories': ['--by', 'category'],
    'profile-annotations': ['--by', 'annotation'],
    'profile-compile-context': ['--by', 'compile-context'],
    'profile-custom': ['--rules', RULES],
}


@cases('out', sorted((SHARED / 'expected' / 'mosaic').glob('*/profile-*.out')) or [absent(None)],
       lambda out: f'{out.parent.name}-{out.stem}')
def test_printed(tessera, out):
    """Standard output is Mosaic's; so are the INFO lines, the last of which gives the time taken."""
    done = tessera.run('mosaic_get_memory_profile', '--snapshot', f'{out.parent.name}.pickle', '--out-path', '/dev/null',
                       *PRINTED[out.stem], cwd=SNAPSHOTS)
    expect('output', done.stdout, out.read_text())
    info = [line for line in done.stderr.splitlines() if line.startswith('INFO:')]
    assert re.fullmatch(r'INFO:root:Profiling function took: \S+ seconds to run', info.pop()), done.stderr
    expect('log', info, out.with_suffix('.err').read_text().splitlines())


def check_moments(device):
    """The groups of each moment, and the bands, add up to it; bands are within their lives."""
    history = device['history']
    for moment in history['moments']:
        total, event = moment['requested_bytes'], moment['event']
        expect(f'groups at {event}', sum(size for _, size in moment['groups']), total)
        expect(f'bands at {event}', sum(size for _, size in moment['bands']), total)
        if total > device['peak']['requested_bytes']:
            raise AssertionError(f'more at event {event} than at the peak')
        for index, size in moment['bands']:
            band = history['bands'][index]
            end = band['death_event']
            if index >= 0 and not (band['birth_event'] <= event and (end is None or event < end)
                                   and size <= band['peak_bytes']):
                raise AssertionError(f'at event {event} there is no band {band} of {size}')


@cases('kind', GROUPINGS)
@cases('path', real('*.pickle', '*.html'))
def test_history(tessera, path, kind):
    answer = tessera.json('profile', '--ordered', '--over-time', '--samples', '100', '--top', '0', *GROUPINGS[kind], path)
    for device in answer['devices']:
        moments, peak = device['history']['moments'], device['peak']
        if len(moments) > 100:
            raise AssertionError(f'{len(moments)} moments')
        check_moments(device)
        expect('groups', sum(group['bytes'] for group in device['groups']),
               peak['requested_bytes'])
        expect('layers', sum(layer['bytes'] for layer in device['layers']),
               peak['requested_bytes'])
        if peak['event'] >= 0:
            expect('moments at the peak',
                   [moment['requested_bytes'] for moment in moments
                    if moment['event'] == peak['event']], [peak['requested_bytes']])


@cases('path', real('*.pickle', '*.html'))
def test_page(tessera, path):
    """The page of `tessera view`: whole, of bounded size, opened as requested."""
    page = tessera.output('profile', '--ordered', '--html', '/dev/stdout', '-o', '/dev/null', path)
    assert page.startswith('<!doctype html>') and len(page) <= 20000000
    for text in ('"isOrdered":1', '"by":"category"', "connect-src 'none'"):
        assert text in page
