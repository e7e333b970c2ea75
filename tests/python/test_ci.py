"""The action for GitHub and the template for GitLab, run as these hosts run them; a server in this process stands for the hosts.

GITHUB_OUTPUT, GITHUB_STEP_SUMMARY and GITHUB_EVENT_PATH are files, as on a runner. Names and contents are hostile throughout.
"""
import http.server
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import threading
import urllib.parse
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import ROOT, posix_only
from tessera import ci

pytestmark = posix_only

ACTION = ROOT / 'integrations' / 'github' / 'action.yml'
TEMPLATE = ROOT / 'integrations' / 'gitlab' / 'tessera.yml'
TOKEN = 'ghs_a1b2c3SECRET'
GIB = 1 << 30
# In names of files and functions, and in values of options.
EVIL = '$(touch pwned)`touch pwned`;touch pwned;"\'|&'
NAME = f'-x {EVIL}.pickle'
JOB = f'memory {EVIL}'
FUNCTION = f'@everyone &commat;all !1 &2 https://evil.example <script> ``` | [a](javascript:b)\n/merge\n::add-mask::x {EVIL} -->'


# ---- snapshots ----


def write_snapshot(path, size, function='train'):
    frames = [{'name': function, 'filename': 'train.py', 'line': 12}]
    base, times = 0x7f0000000000, iter(range(1, 9))
    trace = [{'action': action, 'addr': base, 'size': size, 'stream': 0, 'time_us': next(times), 'frames': frames}
             for action in ('segment_alloc', 'alloc', 'free_requested', 'free_completed')]
    block = {'address': base, 'size': size, 'requested_size': 0, 'state': 'inactive', 'frames': []}
    segment = {'device': 0, 'address': base, 'total_size': size, 'allocated_size': 0, 'active_size': 0, 'requested_size': 0, 'stream': 0,
               'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': frames, 'blocks': [block]}
    with open(path, 'wb') as file:
        pickle.dump({'segments': [segment], 'device_traces': [trace], 'allocator_settings': {}}, file)


def tessera(*words, status=0):
    found, _, said = ci._tessera(*map(str, words))
    assert found == status, said


def git(folder, *words):
    done = subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'protocol.file.allow=always', *map(str, words)], cwd=folder, capture_output=True,
                          text=True, check=True)
    return done.stdout.strip()


# ---- a host ----


class Server(http.server.ThreadingHTTPServer):
    """Comments of one change, as both hosts' APIs serve them."""

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.comments, self.seen, self.answer = [], [], None
        self.address = f'http://127.0.0.1:{self.server_address[1]}'

    def add(self, login, body):
        number = 1000 + len(self.comments)
        who = {'login': login, 'id': {'tessera': 7}.get(login, 9)}
        self.comments.append({'id': number, 'body': body, 'user': who, 'author': who})

    def bodies(self):
        return [one['body'] for one in self.comments]


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def reply(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def serve(self):
        server = self.server
        url = urllib.parse.urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get('Content-Length') or 0)) or b'null')
        server.seen.append((self.command, url.path))
        if server.answer:
            return server.answer(self)
        if TOKEN not in (self.headers.get('Authorization', '')[7:], self.headers.get('PRIVATE-TOKEN')):
            return self.reply({'message': 'bad credentials'}, 401)
        if url.path == '/user':
            return self.reply({'id': 7})
        if not re.fullmatch(r'/repos/o-w/n.ame/issues/(5/)?comments(/\d+)?|/projects/3/merge_requests/5/notes(/\d+)?', url.path):
            return self.reply({'message': 'not found'}, 404)
        if self.command == 'GET':
            query = dict(urllib.parse.parse_qsl(url.query))
            page, size = int(query['page']), int(query['per_page'])
            return self.reply(server.comments[(page - 1) * size:page * size])
        if self.command == 'POST':
            server.add('tessera' if 'merge_requests' in url.path else 'github-actions[bot]', body['body'])
            return self.reply({}, 201)
        (one,) = [one for one in server.comments if str(one['id']) == url.path.rpartition('/')[2]]
        one['body'] = body['body']
        return self.reply({})

    do_GET = do_POST = do_PATCH = do_PUT = serve


@pytest.fixture
def server():
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={'poll_interval': 0.02})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


class Job:
    """A checkout, and what a runner gives a job."""

    def __init__(self, folder, server):
        self.folder, self.server = folder / 'checkout', server
        self.files = {name: folder / name for name in ('GITHUB_OUTPUT', 'GITHUB_STEP_SUMMARY', 'GITHUB_EVENT_PATH')}
        self.folder.mkdir()
        for path in self.files.values():
            path.touch()
        self.event({'pull_request': {'number': 5, 'title': EVIL, 'head': {'ref': EVIL}, 'base': {'sha': 'a' * 40}}})
        # What a hostile change brings: modules by the names of those that the job runs.
        for name in ('tessera', 'pip', 'json'):
            (self.folder / name).mkdir()
            (self.folder / name / '__init__.py').write_text('open("pwned", "w").close()\n')
        self.environment = {
            'PATH': f'{os.path.dirname(sys.executable)}{os.pathsep}{os.environ["PATH"]}', 'HOME': str(folder), 'PYTHONDONTWRITEBYTECODE': '1',
            **{name: str(path) for name, path in self.files.items()}, **{name: os.environ[name] for name in ('PYTHONPATH',) if name in os.environ}}
        self.github = {'GITHUB_API_URL': server.address, 'GITHUB_REPOSITORY': 'o-w/n.ame', 'GITHUB_JOB': JOB, 'GITHUB_WORKFLOW': 'w',
                       'GITHUB_HEAD_REF': EVIL, 'GITHUB_REF': f'refs/heads/{EVIL}'}
        self.gitlab = {'CI_API_V4_URL': server.address, 'CI_PROJECT_ID': '33', 'CI_MERGE_REQUEST_PROJECT_ID': '3', 'CI_MERGE_REQUEST_IID': '5',
                       'CI_JOB_NAME': JOB, 'CI_COMMIT_REF_NAME': EVIL, 'TESSERA_GITLAB_TOKEN': TOKEN}

    def event(self, value):
        self.files['GITHUB_EVENT_PATH'].write_text(json.dumps(value))

    def run(self, script, variables):
        done = subprocess.run(['bash', '--noprofile', '--norc', '-eo', 'pipefail', '-c', script], cwd=self.folder,
                              env={**self.environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        log = done.stdout.decode('utf-8', 'replace')
        assert not list(self.folder.rglob('pwned')) and TOKEN not in log, log
        return done.returncode, log

    def action(self, **inputs):
        """What a runner makes of action.yml: exit status, log, outputs."""
        yaml = pytest.importorskip('yaml')
        action = yaml.safe_load(ACTION.read_text(encoding='utf-8'))
        values = {name: one.get('default', '') for name, one in action['inputs'].items()}
        assert inputs.keys() <= values.keys()
        values = {**values, 'token': TOKEN, **inputs}

        def filled(text):
            return re.sub(r'\$\{\{ inputs\.([a-z-]+) \}\}', lambda found: values[found[1]], str(text))
        logs = ''
        for step in action['runs']['steps']:
            if 'run' not in step or step.get('if') == "inputs.wheel != ''" and not values['wheel']:
                continue
            status, log = self.run(step['run'], {**self.github, **{name: filled(text) for name, text in step['env'].items()}})
            logs += log
            if status:
                break
        return status, logs, self.outputs()

    def outputs(self):
        text = self.files['GITHUB_OUTPUT'].read_text()
        return {name: value for name, mark, value in re.findall(r'^(\w+)<<(\w+)\n(.*?)\n\2$', text, re.MULTILINE | re.DOTALL)}

    def template(self, **variables):
        yaml = pytest.importorskip('yaml')
        job = yaml.safe_load(TEMPLATE.read_text(encoding='utf-8'))['.tessera-check']
        given = {**self.gitlab, **job['variables'], **{f'TESSERA_CHECK_{name}': value for name, value in variables.items()}}
        for line in job['script']:
            status, log = self.run(line, given)
            if status:
                break
        return status, log


@pytest.fixture
def job(tmp_path, server):
    made = Job(tmp_path, server)
    write_snapshot(made.folder / NAME, 2 * GIB, FUNCTION)
    write_snapshot(made.folder / 'good.pickle', GIB)
    return made


# ---- the files ----


def test_no_value_is_part_of_a_command():
    yaml = pytest.importorskip('yaml')
    steps = yaml.safe_load(ACTION.read_text(encoding='utf-8'))['runs']['steps']
    runs = [step['run'] for step in steps if 'run' in step]
    assert len(runs) == 2 and not any('${{' in run for run in runs)
    assert all(step['env']['PYTHONSAFEPATH'] == '1' for step in steps if 'run' in step)
    (check,) = [step for step in steps if step.get('id') == 'check']
    options = {'TESSERA_CHECK_' + name.upper().replace('-', '_') for name, _, _ in ci.OPTIONS}
    known = options | {'TESSERA_CHECK_SNAPSHOT', 'TESSERA_CHECK_STRICT', 'TESSERA_CHECK_COMMENT'}
    assert {name for name in check['env'] if name.startswith('TESSERA')} == known - {'TESSERA_CHECK_JUNIT'}
    template = yaml.safe_load(TEMPLATE.read_text(encoding='utf-8'))['.tessera-check']
    assert {name for name in template['variables'] if name.startswith('TESSERA_CHECK_')} <= known


# ---- GitHub ----


def test_a_change_that_fails(job, server):
    mark = ci._mark(f'w {JOB}')
    server.add('mallory', f'{mark}\nmine')
    status, log, outputs = job.action(snapshot=NAME, max='18GiB\n1GiB')
    assert status == 1 and outputs['status'] == '1' and outputs['passed'] == 'false'
    assert len(server.comments) == 2 and server.bodies()[0].endswith('mine')  # another's is left alone
    body = server.bodies()[1]
    assert body.startswith(f'{mark}\n### GPU memory check failed: 1 of 2 checks')
    assert '1.00 GiB above its budget of 1.00 GiB' in body
    assert all(word not in body for word in ('<script', '@everyone', '&commat;', '!1', '&2', 'https://')) and not re.search(r'^\s*/', body, re.MULTILINE)
    assert job.files['GITHUB_STEP_SUMMARY'].read_text().strip() in body
    assert (job.folder / outputs['report']).read_text() in body
    # What the snapshot contains is no command to the runner.
    begin, end = re.search(r'^::stop-commands::(\w+)$', log, re.MULTILINE), log.rstrip().splitlines()[-1]
    assert begin and end == f'::{begin[1]}::' and log.index('::stop-commands') < log.index('everyone')
    run = json.loads((job.folder / outputs['sarif']).read_text())['runs'][0]
    assert [one['locations'][0]['physicalLocation']['artifactLocation']['uri'] for one in run['results']] == ['train.py']
    assert ('POST', '/repos/o-w/n.ame/issues/5/comments') in server.seen


def test_the_comment_is_rewritten_and_says_when_it_is_good_again(job, server):
    for _ in range(130):  # the second page
        server.add('mallory', 'hello')
    job.action(snapshot=NAME, max='1GiB', name='m')
    job.action(snapshot=NAME, max='1536MiB', name='m')
    job.action(snapshot='good.pickle', max='1536MiB', name='other')  # passes, and has no earlier comment
    assert len(server.comments) == 131 and 'budget of 1.50 GiB' in server.bodies()[130]
    status, log, outputs = job.action(snapshot='good.pickle', max='1536MiB', name='m')
    assert status == 0 and outputs['passed'] == 'true' and 'comment rewritten' in log
    assert len(server.comments) == 131 and 'GPU memory check passed' in server.bodies()[130]
    job.action(snapshot='good.pickle', max='1536MiB', name='other', comment='always')
    assert len(server.comments) == 132
    before = len(server.seen)
    job.action(snapshot=NAME, max='1GiB', comment='never')
    assert len(server.seen) == before


def test_the_difference_of_a_change_that_rewrites_its_lock(job, server):
    lock = job.folder / 'memory.lock'
    tessera('check', '--lock', lock, '--update', job.folder / 'good.pickle')
    git(job.folder, 'init', '-q')
    git(job.folder, 'add', 'memory.lock')
    git(job.folder, 'commit', '-qm', 'before')
    commit = git(job.folder, 'rev-parse', 'HEAD')
    job.event({'pull_request': {'number': 5, 'base': {'sha': commit}}})
    status, log, _ = job.action(snapshot='good.pickle', lock='memory.lock')
    assert status == 0 and server.comments == [] and 'warning' not in log
    tessera('check', '--lock', lock, '--update', job.folder / NAME)
    status, log, _ = job.action(snapshot=NAME, lock='memory.lock')
    assert status == 0, log
    (body,) = server.bodies()
    assert 'GPU memory check passed' in body and 'This change rewrites the lock' in body and 'grew by 1.00 GiB' in body
    # A lock that is new is compared with none, and that is no warning.
    (job.folder / 'new.lock').write_bytes(lock.read_bytes())
    assert 'warning' not in job.action(snapshot=NAME, lock='new.lock')[1]


@pytest.fixture
def bases(tmp_path, monkeypatch, capfd):
    """A clone in which this process is, and a function that returns the lock before the change, and what was said."""
    origin, clone = tmp_path / 'origin', tmp_path / 'clone'
    for folder, words in ((tmp_path, ('init', '-q', '-b', 'main', origin)), (origin, ('commit', '-qm', 'none', '--allow-empty'))):
        git(folder, *words)
    for text in ('before', 'change'):
        (origin / 'memory.lock').write_text(text)
        git(origin, 'add', '.')
        git(origin, 'commit', '-qm', text)
    git(origin, 'checkout', '-q', '-b', 'base', 'HEAD~1')
    git(origin, 'commit', '-qm', 'other', '--allow-empty')
    git(origin, 'merge', '-q', '--no-ff', '-m', 'merge', 'main')
    monkeypatch.setenv('GITHUB_REF', 'refs/pull/5/merge')
    monkeypatch.setenv('GITHUB_EVENT_PATH', str(tmp_path / 'event.json'))
    (tmp_path / 'event.json').write_text(json.dumps({'pull_request': {'number': 5, 'base': {'sha': git(origin, 'rev-parse', 'HEAD~1')}}}))

    def clone_of(branch, depth):
        git(tmp_path, 'clone', '-q', '-b', branch, '--depth', depth, f'file://{origin}', clone)
        monkeypatch.chdir(clone)
        monkeypatch.setenv('GITHUB_SHA', git(origin, 'rev-parse', 'base'))

    def found():
        path = ci._lock_of_base('memory.lock', ci._base('github'), str(tmp_path))
        return path and pathlib.Path(path).read_text(), capfd.readouterr().err
    return clone_of, found


def test_the_merge_that_is_checked_out(bases, monkeypatch):
    clone_of, found = bases
    clone_of('base', 2)
    assert ci._base('github') == 'HEAD^1' and found() == ('before', '')
    monkeypatch.setenv('GITHUB_SHA', 'f' * 40)  # the branch has moved on since, but it is a merge
    assert ci._base('github') == 'HEAD^1'


def test_the_head_that_is_checked_out(bases):
    """With `ref: head.sha` HEAD^1 is a commit of the change itself."""
    clone_of, found = bases
    clone_of('main', 9)
    assert re.fullmatch('[0-9a-f]{40}', ci._base('github'))
    assert found()[0] is None and 'warning: no comparison with the lock before the change' in found()[1]  # the base was not fetched


def test_a_lock_of_the_base_that_cannot_be_read(bases, monkeypatch, capfd):
    clone_of, found = bases
    clone_of('base', 1)
    lock, said = found()
    assert ci._base('github') == 'HEAD^1' and lock is None and 'fetch-depth 2' in said
    monkeypatch.setenv('PATH', '/absent')  # as in an image without git
    assert ci._lock_of_base('memory.lock', 'a' * 40, '.') is None
    assert 'git: No such file' in capfd.readouterr().err


def test_several_snapshots_and_an_older_one(job, server):
    status, _, outputs = job.action(snapshot='good.pickle\n*pwned*.pickle', max='1536MiB', base='good.pickle')
    assert status == 1 and len(json.loads((job.folder / outputs['sarif']).read_text())['runs']) == 1
    (body,) = server.bodies()
    assert body.count('GPU memory check') == 2 and '## `good.pickle`' in body and 'touch pwned' in body
    assert '+1.00 GiB' in body and 'Compared with `good.pickle`' in body


def locations(job, outputs):
    results = json.loads((job.folder / outputs['sarif']).read_text())['runs'][0]['results']
    assert results and all(one['locations'][0]['physicalLocation']['region']['startLine'] for one in results)
    return {one['locations'][0]['physicalLocation']['artifactLocation']['uri'] for one in results}


def test_a_step_graph_is_simulated(job, server, made):
    (job.folder / '-step.graph').write_bytes((made / 'step.graph').read_bytes())
    status, log, outputs = job.action(snapshot='-step.graph', max='1MiB\nparameter=1B\ngradient=1B', capacity='24GiB')
    assert status == 1 and 'peak' in log and 'above its budget' in server.bodies()[0]
    # GitHub refuses a file in which one result has no location. What no line explains is at the step graph, or at the lock.
    assert '-step.graph' in locations(job, outputs)
    tessera('check', '--lock', job.folder / 'a b.lock', '--update', job.folder / 'good.pickle')
    outputs = job.action(snapshot='-step.graph', max='parameter=1B', lock='a b.lock', capacity='24GiB')[2]
    assert 'a%20b.lock' in locations(job, outputs)
    assert job.action(snapshot='-step.graph', max='1TiB', capacity='24GiB')[0] == 0


@pytest.mark.parametrize('snapshot, word', [('absent.pickle', 'no such file'), ('tessera/__init__.py', 'not a memory snapshot'), ('', 'name at least one')])
def test_what_cannot_be_judged_fails(job, server, snapshot, word):
    status, log, outputs = job.action(snapshot=snapshot, max='1GiB')
    assert status == (3 if snapshot else 2) == int(outputs['status']) and word in log
    assert 'GPU memory check: ' in server.bodies()[0] and outputs['passed'] == 'false'


def test_wrong_options_are_not_passed_on(job, server):
    assert job.action(snapshot='good.pickle', max=f'--update{EVIL}')[0] == 2
    assert job.action(snapshot='good.pickle', max='1GiB', comment='perhaps')[0] == 2
    assert job.action(snapshot='good.pickle', max='1GiB', strict='perhaps')[0] == 2
    assert not (job.folder / 'memory.lock').exists()


def test_the_wheel_is_a_name_and_nothing_else(job):
    for wheel in (f'--index-url=http://127.0.0.1:9 {EVIL}', f'./absent {EVIL}.whl'):
        status, log, _ = job.action(snapshot='good.pickle', max='2GiB', wheel=wheel)
        assert status not in (0, 2) or 'Invalid requirement' in log or 'no such option' not in log


def test_a_comment_that_fails_fails_nothing(job, server):
    def refuse(handler):
        handler.reply({'message': 'Resource not accessible by integration'}, 403)  # a fork's token only reads

    def elsewhere(handler):
        handler.send_response(302)
        handler.send_header('Location', f'{server.address}/elsewhere')
        handler.end_headers()
    for answer, said in ((refuse, 'status 403'), (elsewhere, 'status 302'), (lambda handler: handler.wfile.write(b'rubbish\r\n\r\n'), 'BadStatusLine')):
        server.answer, server.seen[:] = answer, []
        status, log, _ = job.action(snapshot=NAME, max='1GiB')
        assert status == 1 and f'warning: no comment: GET /repos/o-w/n.ame/issues/5/comments: {said}' in log
        assert len(server.seen) == 1
    job.github['GITHUB_API_URL'] = 'file:///etc'
    assert 'not an http one' in job.action(snapshot=NAME, max='1GiB')[1]
    job.github['GITHUB_API_URL'] = server.address
    job.github['GITHUB_REPOSITORY'] = '../../x'
    assert 'not OWNER/NAME' in job.action(snapshot=NAME, max='1GiB')[1]
    assert 'GITHUB_TOKEN is not set' in job.action(snapshot=NAME, max='1GiB', token='')[1]


@pytest.mark.parametrize('event', [{}, [], {'pull_request': 5}, {'pull_request': {'number': '5/../6'}}, {'pull_request': {'number': True}}])
def test_events_that_are_no_pull_request(job, server, event):
    job.event(event)
    status, log, _ = job.action(snapshot='good.pickle', max='2GiB', comment='always')
    assert status == 0 and server.seen == [] and ('no comment' in log)


# ---- GitLab ----


def test_a_merge_request(job, server):
    server.add('mallory', f'{ci._mark(JOB)}\nmine')
    status, log = job.template(SNAPSHOT=NAME, MAX='1GiB')
    assert status == 1 and '::stop-commands' not in log
    assert len(server.comments) == 2 and not re.search(r'^\s*/', server.bodies()[1], re.MULTILINE)
    assert ('POST', '/projects/3/merge_requests/5/notes') in server.seen
    suite = ElementTree.parse(job.folder / 'tessera-check.xml').getroot()
    assert [one.get('failures') for one in suite] == ['1']
    status, log = job.template(SNAPSHOT='good.pickle\n' + NAME, MAX='3GiB')
    assert status == 0 and len(server.comments) == 2 and 'passed' in server.bodies()[1]
    assert ('PUT', '/projects/3/merge_requests/5/notes/1001') in server.seen
    assert len(ElementTree.parse(job.folder / 'tessera-check.xml').getroot()) == 2


def test_a_pipeline_without_a_merge_request_or_token(job, server):
    job.gitlab['TESSERA_GITLAB_TOKEN'] = ''
    status, log = job.template(SNAPSHOT=NAME, MAX='1GiB')
    assert status == 1 and 'TESSERA_GITLAB_TOKEN is not set' in log
    del job.gitlab['CI_MERGE_REQUEST_IID']
    assert 'no pull request or merge request' in job.template(SNAPSHOT=NAME, MAX='1GiB')[1]
    assert server.seen == []


# ---- text, and what programs are given ----


def test_tokens_are_not_passed_on(monkeypatch):
    for name in ci.TOKENS:
        monkeypatch.setenv(name, TOKEN)
    monkeypatch.setenv('TESSERA_RECORD', 'out')
    assert ci._run(sys.executable, '-c', 'import os; print(*os.environ.values(), "TESSERA_RECORD" in os.environ)')[1].split()[-1] == 'False'
    assert TOKEN not in ci._run(sys.executable, '-c', 'import os; print(os.environ)')[1]


def test_text_of_files_is_calm():
    assert ci.calm('!2 %3 &4 \\#5 $6 ~a %"b c" GH-7 &#64;x &lt;b> https://a www.b.c mailto:a 50 % & 3!') == (
        '!_2 %_3 &_4 \\#_5 $_6 ~_a %_"b c" GH-_7 &_#_64;x &lt;b> https:_//a www._b.c mailto:_a 50 % & 3!'.replace('_', '\u2060'))
    assert ci.calm('@a b@c @ d\n/merge\n  /close\n| /x |') == '@\u2060a b@\u2060c @ d\n\\/merge\n  \\/close\n| /x |'
    assert ci.fenced('a ```` b') == '`````text\na ```` b\n`````\n'
    long = ci._cut('x\n' + '```text\n' + 'line\n' * 20000 + '```\n')
    assert len(long) < 65536 and long.count('```') == 2 and 'longer than a comment' in long


def test_marks_tell_checks_apart():
    names = ['Speicher', 'Память', '記憶', 'a b', 'a-b', 'x' * 200, 'x' * 201, '-->']
    marks = {ci._mark(name) for name in names}
    assert len(marks) == len(names) and all(re.fullmatch('<!-- tessera-check [A-Za-z0-9_.-]* [0-9a-f]{10} -->', mark) for mark in marks)


def test_jobs_of_two_workflows_have_two_comments(job, server):
    job.action(snapshot=NAME, max='1GiB')
    job.github['GITHUB_WORKFLOW'] = 'nightly'
    job.action(snapshot=NAME, max='1GiB')
    assert len(server.comments) == 2


def test_another_host(job, server):
    status, log = job.run(f'{sys.executable} -P -m tessera.ci none good.pickle --max 1MiB --report r.md --sarif r.sarif', job.github)
    assert status == 1 and server.seen == [] and '::stop-commands' not in log and job.outputs() == {}
    assert 'GPU memory check failed' in (job.folder / 'r.md').read_text() and json.loads((job.folder / 'r.sarif').read_text())
