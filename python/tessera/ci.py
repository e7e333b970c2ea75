"""`tessera check` in a pipeline of GitHub or GitLab: the report as a comment on the change, and as files.

    python -m tessera.ci github --lock memory.lock step.pickle
    python -m tessera.ci gitlab --lock memory.lock --max 22GiB step.graph
    python -m tessera.ci none --lock memory.lock --report report.md step.graph

`none` is for pipelines of other hosts: the files are written, and nothing is commented.

The action in integrations/github and the template in integrations/gitlab run this; docs/integrations.md explains them. Each option
can be set by an environment variable, TESSERA_CHECK_ and its name in capitals, so that a pipeline needs to put no value into a shell. Lists
have one value per line. A step graph (NAME.graph) is simulated first.

The comment carries a mark by which the next run finds and rewrites it; only comments by the same author are touched. A
comment that cannot be written is a warning. The exit status is that of `tessera check`: 0, 1 if a check failed, 3 if a file
cannot be judged. Tokens are read from the environment, are sent to the host's API alone, and are not passed to programs
that this one starts.
"""
import argparse
import glob
import hashlib
import http.client
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _core

# What the hosts accept is 65,536 characters (GitHub) and a million (GitLab).
MOST_CHARACTERS = 60_000
MOST_PAGES = 50  # of comments, a hundred each
MOST_ANSWER = 32 << 20
SECONDS = 60

TOKENS = ('GITHUB_TOKEN', 'TESSERA_GITLAB_TOKEN', 'CI_JOB_TOKEN', 'ACTIONS_RUNTIME_TOKEN', 'ACTIONS_ID_TOKEN_REQUEST_TOKEN')

# name, whether it is a list, help
OPTIONS = (
    ('lock', False, 'the lock to compare with; {name} stands for the name of the snapshot'),
    ('max', True, 'a budget: 18GiB, or activation=3GiB'),
    ('max-reserved', False, 'a budget for reserved memory'),
    ('tolerance', False, 'allowed difference from the lock: 0.5%%, or 16MiB'),
    ('capacity', False, 'memory of the card for which step graphs are simulated'),
    ('base', False, 'an older snapshot, to show the difference from'),
    ('name', False, 'each check with its own name has a comment of its own (default: the name of the job)'),
    ('author', False, "GitHub: whose comment is rewritten (default: github-actions[bot], the author with GitHub's own token)"),
    ('report', False, 'write the report to this file (Markdown)'),
    ('sarif', False, 'write the failures to this file (SARIF)'),
    ('junit', False, 'write the checks to this file (JUnit)'),
)
COMMENTS = ('auto', 'always', 'never')


class CannotJudge(Exception):
    """With the exit status."""

    def __init__(self, message: str, status: int = 3) -> None:
        super().__init__(message)
        self.status = status


class Judged(NamedTuple):
    path: str
    status: int
    markdown: str
    difference: str  # what the change to the lock accepts, and from the base; '' without


# ---- tessera ----


def _environment() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in TOKENS and not name.startswith('TESSERA_RECORD')}


def _run(*words: str) -> Tuple[int, str, str]:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(), check=False)
    return done.returncode, done.stdout.decode('utf-8', 'replace'), done.stderr.decode('utf-8', 'replace')


# The command alone, from the extension: a process that imports the package takes ten times as long to start.
_COMMAND = '''import os, sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
loader = ExtensionFileLoader('tessera._core', sys.argv[1])
core = loader.create_module(ModuleSpec('tessera._core', loader, origin=sys.argv[1]))
loader.exec_module(core)
sys.exit(core.command([os.fsencode(word) for word in ['tessera', *sys.argv[2:]]]))'''


def _tessera(*words: str) -> Tuple[int, str, str]:
    if os.name != 'posix':  # there paths need more (_files.word_of)
        return _run(sys.executable, '-m', 'tessera', *words)
    return _run(sys.executable, '-I', '-S', '-c', _COMMAND, os.path.abspath(_core.__file__), *words)


def _as_file(path: str) -> str:
    """A path that is not taken for an option or for standard input."""
    return os.path.join('.', path) if path.startswith('-') else path


def _files(patterns: List[str]) -> List[str]:
    found: List[str] = []
    for pattern in patterns:
        names = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
        if not names:
            raise CannotJudge(f'no such file: {pattern}')
        found += [name for name in names if name not in found]
    if not found:
        raise CannotJudge('name at least one snapshot or step graph', 2)
    return found


def _snapshot(path: str, capacity: str, folder: str) -> str:
    """The snapshot itself, or that of a simulated step."""
    if not path.endswith('.graph'):
        return _as_file(path)
    out = os.path.join(tempfile.mkdtemp(dir=folder), _stem(path) + '.pickle')
    status, _, said = _tessera('simulate', _as_file(path), *(['--capacity', capacity] if capacity else []), '-o', out)
    if status or not os.path.exists(out):
        raise CannotJudge(said.strip() or f'{path} cannot be simulated', status or 3)
    return out


def _stem(path: str) -> str:
    name = os.path.basename(path)
    for ending in ('.gz', '.xz', '.zst', '.pickle', '.pkl', '.json', '.graph'):
        if name.endswith(ending):
            name = name[:-len(ending)]
    return name or 'snapshot'


# ---- text that a file may have written ----


# After each of these a host would link or notify: an invisible word joiner keeps what follows apart.
_LINKS = re.compile(r'''@(?=\w) | [!$#](?=\d) | [%~](?=[\w"]) | &(?!lt;)(?=[\w#]) | \bGH-(?=\d) | (?<=\w):(?=//) | \b(?:mailto|xmpp):(?=\S) |
                        \bwww\.(?=\w)''', re.VERBOSE | re.IGNORECASE)


def calm(text: str) -> str:
    """Markdown in which names from files notify nobody, refer to nothing and command nothing: no @mention, no bare address, no issue (#1), merge
    request (!2), milestone (%3), epic (&4), snippet ($5) or ~label, no character by its name (&commat;), and no line that GitLab takes for a
    command (/merge)."""
    text = _LINKS.sub('\\g<0>\u2060', text)
    return re.sub(r'^(\s*)/', r'\1\\/', text, flags=re.MULTILINE)


def fenced(text: str) -> str:
    """A block of code, whatever the text contains."""
    longest = max((len(run) for run in re.findall('`+', text)), default=0)
    fence = '`' * max(3, longest + 1)
    return f'{fence}text\n{text.rstrip()}\n{fence}\n'


def _as_code(text: str) -> str:
    """A name in one line, as code."""
    plain = ''.join(letter if letter.isprintable() else '?' for letter in text)
    fence = '`' * (1 + max((len(run) for run in re.findall('`+', plain)), default=0))
    return f'{fence} {plain} {fence}' if len(fence) > 1 else f'`{plain}`'


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    kept = text[:MOST_CHARACTERS].rpartition('\n')[0]
    open_fence = None  # a block that is cut is closed
    for fence in re.findall(r'^(`{3,})', kept, re.MULTILINE):
        open_fence = None if fence == open_fence else open_fence or fence
    return kept + (f'\n{open_fence}' if open_fence else '') + '\n\nThe report is longer than a comment may be. The job has all of it.\n'


# ---- the check ----


def _lock_of_base(lock: str, base: str, folder: str) -> Optional[str]:
    """The lock before the change, if it was another. A warning if git cannot say what it was."""
    relative = os.path.relpath(lock)
    if relative.startswith(os.pardir) or not base:
        return None
    try:
        status, _, said = _run('git', 'rev-parse', '--verify', f'{base}^{{commit}}')
        if status == 0:
            status, listed, said = _run('git', 'ls-tree', base, '--', f':(literal){relative}')
            if status == 0 and not listed:
                return None  # a new lock
        if status == 0:
            status, text, said = _run('git', 'show', f'{base}:./{relative}')
    except OSError as error:
        status, said = 1, f'git: {error.strerror}'
    if status:
        reason = (said.strip().splitlines() or ['git fails'])[0]
        print(f'tessera: warning: no comparison with the lock before the change: {base}: {reason}\n'
              'tessera: it needs git, and a checkout that has this commit (GitHub: fetch-depth 2; GitLab: GIT_DEPTH 0)', file=sys.stderr, flush=True)
        return None
    if text == pathlib.Path(lock).read_text(encoding='utf-8', errors='replace'):
        return None
    path = os.path.join(tempfile.mkdtemp(dir=folder), 'memory.lock')
    pathlib.Path(path).write_text(text, encoding='utf-8')
    return path


def _difference(given: argparse.Namespace, snapshot: str, lock: str, base: str, folder: str) -> str:
    text = ''
    before = _lock_of_base(lock, base, folder) if lock and os.path.exists(lock) else None
    if before:
        status, told, _ = _tessera('check', '--lock', before, '--format', 'markdown', snapshot)
        if status in (0, 1) and told:
            text += 'This change rewrites the lock. Compared with the lock before it:\n\n' + re.sub(r'^### ', '#### ', told) + '\n'
    if given.base:
        old = _snapshot(given.base, given.capacity, folder)
        status, told, said = _tessera('diff', '--color', 'never', old, snapshot)
        text += f'Compared with {_as_code(given.base)}:\n\n' + fenced(told if status == 0 else said) + '\n'
    return text


def judge(given: argparse.Namespace, path: str, base: str, folder: str) -> Judged:
    """One file: prints the report, and returns it as Markdown."""
    snapshot = _snapshot(path, given.capacity, folder)
    lock = given.lock.replace('{name}', _stem(path))
    words = [word for limit in given.max for word in ('--max', limit)]
    for name, value in (('--max-reserved', given.max_reserved), ('--lock', lock), ('--tolerance', given.tolerance if lock else '')):
        words += [name, value] if value else []
    words += ['--strict'] if given.strict else []
    status, told, said = _tessera('check', '--color', 'never', *words, snapshot)
    print(f'{path}:\n{told}{said}', flush=True)
    if status not in (0, 1, 3):
        raise CannotJudge(said.strip() or f'tessera check ended with status {status}', status)
    _, markdown, _ = _tessera('check', '--format', 'markdown', *words, snapshot)
    if not markdown:
        markdown = f'### GPU memory check: {_as_code(path)} cannot be judged\n\n' + fenced(said)
    for kind, out in (('sarif', given.sarif), ('junit', given.junit)):
        if out:
            part = os.path.join(tempfile.mkdtemp(dir=folder), f'part.{kind}')
            _tessera('check', '--format', kind, *words, '-o', part, snapshot)
            if kind == 'sarif':
                _place(part, lock if lock and os.path.exists(lock) else path)
    return Judged(path, status, markdown, _difference(given, snapshot, lock, base, folder))


def _parts(folder: str, kind: str) -> List[pathlib.Path]:
    return sorted(pathlib.Path(folder).glob(f'*/part.{kind}'), key=lambda one: one.stat().st_mtime_ns)


def _place(part: str, where: str) -> None:
    """SARIF: what no line explains is at the first line of a file of the checkout, not of a simulated snapshot."""
    if not os.path.exists(part):
        return
    relative = os.path.relpath(where)
    uri = pathlib.Path(where).absolute().as_uri() if relative.startswith(os.pardir) else urllib.parse.quote(relative.replace(os.sep, '/'))
    document = json.loads(pathlib.Path(part).read_text(encoding='utf-8'))
    for result in document['runs'][0]['results']:
        for location in result['locations']:
            if 'message' not in location:
                location['physicalLocation']['artifactLocation']['uri'] = uri
    pathlib.Path(part).write_text(json.dumps(document), encoding='utf-8')


def _join_sarif(folder: str, out: str) -> None:
    """One file with one run: hosts take no more of a tool in one upload."""
    joined: Any = None
    for part in _parts(folder, 'sarif'):
        one = json.loads(part.read_text(encoding='utf-8'))
        if joined is None:
            joined = one
        else:
            for key in ('results', 'invocations'):
                joined['runs'][0].setdefault(key, []).extend(one['runs'][0].get(key, []))
    if joined is not None:
        pathlib.Path(out).write_text(json.dumps(joined, indent=2) + '\n', encoding='utf-8')


def _join_junit(folder: str, out: str) -> None:
    suites = ElementTree.Element('testsuites')
    for part in _parts(folder, 'junit'):
        root = ElementTree.parse(part).getroot()
        suites.extend([root] if root.tag == 'testsuite' else list(root))
    ElementTree.ElementTree(suites).write(out, encoding='utf-8', xml_declaration=True)


def report(judged: List[Judged]) -> str:
    parts = []
    for one in judged:
        if len(judged) > 1:
            parts.append(f'## {_as_code(one.path)}\n')
        parts.append(one.markdown.rstrip() + '\n')
        if one.difference:
            parts.append(one.difference.rstrip() + '\n')
    return calm('\n'.join(parts))


# ---- the hosts' APIs ----


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection would take the token to another host."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


class CannotComment(Exception):
    """With what prevents it."""


class Api:
    """Requests to one host, with its token in a header."""

    def __init__(self, url: str, headers: Dict[str, str]) -> None:
        if urllib.parse.urlsplit(url).scheme not in ('http', 'https'):
            raise CannotComment('the address of the API is not an http one')
        self.url, self.headers = url.rstrip('/'), headers
        self.opener = urllib.request.build_opener(_NoRedirect())

    def __call__(self, method: str, path: str, body: Optional[Dict[str, str]] = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={
            'User-Agent': 'tessera', 'Accept': 'application/json', 'Content-Type': 'application/json', **self.headers})
        try:
            with self.opener.open(request, timeout=SECONDS) as answer:
                return json.loads(answer.read(MOST_ANSWER) or b'null')
        except urllib.error.HTTPError as error:
            error.close()
            raise CannotComment(f'{method} {path.partition("?")[0]}: status {error.code}') from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CannotComment(f'{method} {path.partition("?")[0]}: {type(error).__name__}') from None

    def pages(self, path: str) -> Iterator[Dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            rows = self('GET', f'{path}?per_page=100&page={page}')
            if not isinstance(rows, list):
                return
            yield from (row for row in rows if isinstance(row, dict))
            if len(rows) < 100:
                return


def _number(value: Any) -> int:
    """An id that goes into a path."""
    if isinstance(value, bool) or not re.fullmatch(r'\d{1,18}', str(value), re.ASCII):
        raise CannotComment('the id in the environment is not a number')
    return int(value)


def _mark(name: str) -> str:
    """Begins the comment of this check, which the next run looks for. The hash tells names apart whose letters are not ASCII."""
    plain = re.sub('-+', '-', re.sub(r'[^A-Za-z0-9_.]', '-', name)).strip('-')[:80]
    return f'<!-- tessera-check {plain} {hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:10]} -->'


def _name(given: argparse.Namespace) -> str:
    if given.name:
        return str(given.name)
    if given.host == 'github':  # jobs of two workflows may have one id
        return f'{os.environ.get("GITHUB_WORKFLOW", "")} {os.environ.get("GITHUB_JOB") or "check"}'
    return os.environ.get('CI_JOB_NAME') or 'check'


def _write(api: Api, listed: str, one: str, author: Any, mark: str, text: Optional[str], change: str) -> str:
    """Rewrites the comment that has the mark, or adds one; without a text only says whether there is one. Returns what it did."""
    for row in api.pages(listed):
        by = row.get('user') or row.get('author') or {}
        if str(row.get('body') or '').startswith(mark) and author in (by.get('login'), by.get('id')):
            if text is not None:
                api(change, f'{one}/{_number(row.get("id"))}', {'body': text})
            return 'rewritten'
    if text is not None:
        api('POST', listed, {'body': text})
        return 'added'
    return 'absent'


class Host(NamedTuple):
    api: Api
    listed: str  # path of the comments
    one: str  # ... of one of them, without its id
    author: Any
    change: str  # the method that rewrites one


def _event() -> Dict[str, Any]:
    """GitHub: what started the workflow."""
    try:
        with open(os.environ['GITHUB_EVENT_PATH'], encoding='utf-8') as file:
            event = json.load(file)
    except (KeyError, OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}


def _github(given: argparse.Namespace) -> Optional[Host]:
    """None if there is no pull request."""
    request = _event().get('pull_request')
    if not isinstance(request, dict):
        return None
    token, repository = os.environ.get('GITHUB_TOKEN', ''), os.environ.get('GITHUB_REPOSITORY', '')
    if not token:
        raise CannotComment('GITHUB_TOKEN is not set')
    if not re.fullmatch(r'[\w.-]+/[\w.-]+', repository, re.ASCII):
        raise CannotComment('GITHUB_REPOSITORY is not OWNER/NAME')
    api = Api(os.environ.get('GITHUB_API_URL') or 'https://api.github.com', {'Authorization': f'Bearer {token}'})
    path = f'/repos/{repository}/issues'
    return Host(api, f'{path}/{_number(request.get("number"))}/comments', f'{path}/comments', given.author or 'github-actions[bot]', 'PATCH')


def _gitlab(given: argparse.Namespace) -> Optional[Host]:
    if not os.environ.get('CI_MERGE_REQUEST_IID'):
        return None
    token = os.environ.get('TESSERA_GITLAB_TOKEN', '')
    if not token:
        raise CannotComment('TESSERA_GITLAB_TOKEN is not set (an access token of the project, scope api)')
    api = Api(os.environ.get('CI_API_V4_URL', ''), {'PRIVATE-TOKEN': token})
    user = api('GET', '/user')
    author = _number(user.get('id') if isinstance(user, dict) else None)
    # The merge request's project: in a pipeline of a fork, CI_PROJECT_ID is the fork.
    project = os.environ.get('CI_MERGE_REQUEST_PROJECT_ID') or os.environ.get('CI_PROJECT_ID')
    path = f'/projects/{_number(project)}/merge_requests/{_number(os.environ["CI_MERGE_REQUEST_IID"])}/notes'
    return Host(api, path, path, author, 'PUT')


def _is_merge() -> bool:
    """GitHub: whether what was checked out is the merge of the pull request, as it is by default, and not its head."""
    if not re.fullmatch(r'refs/pull/\d+/merge', os.environ.get('GITHUB_REF', ''), re.ASCII):
        return False
    try:
        status, head, _ = _run('git', 'rev-parse', '--verify', 'HEAD')
        is_event = status == 0 and head.strip() == os.environ.get('GITHUB_SHA')
        return is_event or _run('git', 'rev-parse', '--verify', '--quiet', 'HEAD^2')[0] == 0
    except OSError:
        return False


def _base(host: str) -> str:
    """The commit that the change is compared with, as git takes it; '' if unknown."""
    if host == 'gitlab':
        commit = os.environ.get('CI_MERGE_REQUEST_DIFF_BASE_SHA', '')
    elif host == 'github':
        request = _event().get('pull_request')
        base = request.get('base') if isinstance(request, dict) else None
        commit = str(base.get('sha') or '') if isinstance(base, dict) else ''
        if base and _is_merge():
            return 'HEAD^1'
    else:
        commit = ''
    return commit if re.fullmatch(r'[0-9a-f]{40,64}', commit, re.ASCII) else ''


def comment(given: argparse.Namespace, text: str, is_news: bool) -> None:
    """Writes the comment; what prevents that is a warning."""
    if given.comment == 'never' or given.host == 'none':
        return
    try:
        host = _github(given) if given.host == 'github' else _gitlab(given)
        if host is None:
            print('tessera: no pull request or merge request: no comment')
            return
        mark = _mark(_name(given))
        body = _cut(f'{mark}\n{text}')
        where = (host.api, host.listed, host.one, host.author, mark)
        if is_news or given.comment == 'always' or _write(*where, None, host.change) != 'absent':
            print(f'tessera: comment {_write(*where, body, host.change)}')
    except CannotComment as error:
        print(f'tessera: warning: no comment: {error}', file=sys.stderr)


# ---- the command ----


def _github_files(judged: List[Judged], status: int, text: str, given: argparse.Namespace) -> None:
    summary, output = os.environ.get('GITHUB_STEP_SUMMARY'), os.environ.get('GITHUB_OUTPUT')
    if summary:
        with open(summary, 'a', encoding='utf-8') as file:
            file.write(_cut(text) + '\n')
    if output:
        values = {'status': str(status), 'passed': str(status == 0).lower(), 'report': given.report,
                  'sarif': given.sarif if judged and os.path.exists(given.sarif) else ''}
        with open(output, 'a', encoding='utf-8') as file:
            for name, value in values.items():
                mark = secrets.token_hex(16)
                file.write(f'{name}<<{mark}\n{value}\n{mark}\n')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='python -m tessera.ci', description=(__doc__ or '').splitlines()[0],
                                     epilog='Each option can be an environment variable: TESSERA_CHECK_LOCK, TESSERA_CHECK_MAX (one per line)...')
    parser.add_argument('host', choices=('github', 'gitlab', 'none'), help='whose pipeline it is; none: another, so only files are written')
    parser.add_argument('snapshot', nargs='*', help='snapshots, step graphs, or patterns of them')
    for name, is_list, text in OPTIONS:
        parser.add_argument(f'--{name}', action='append' if is_list else 'store', help=text, metavar=name.rpartition('-')[2].upper())
    parser.add_argument('--strict', action='store_true', default=None, help='refuse files with any warning')
    parser.add_argument('--comment', choices=COMMENTS, help='auto (default): if a check fails or the lock changes, and to rewrite an earlier comment')
    return parser


def _given(arguments: Optional[List[str]]) -> argparse.Namespace:
    parser = _parser()
    given = parser.parse_intermixed_args(arguments)

    def variable(name: str) -> str:
        return os.environ.get('TESSERA_CHECK_' + name.upper().replace('-', '_'), '').strip()
    for name, is_list, _ in OPTIONS:
        field = name.replace('-', '_')
        value = getattr(given, field)
        if value is None:
            value = [line.strip() for line in variable(name).splitlines() if line.strip()] if is_list else variable(name)
        setattr(given, field, value)
    given.snapshot = given.snapshot or [line.strip() for line in variable('snapshot').splitlines() if line.strip()]
    strict = variable('strict').lower()
    if strict not in ('', '0', '1', 'false', 'true'):
        parser.error('TESSERA_CHECK_STRICT is true or false')
    given.strict = given.strict or strict in ('1', 'true')
    given.comment = given.comment or variable('comment') or 'auto'
    if given.comment not in COMMENTS:
        parser.error(f'TESSERA_CHECK_COMMENT is one of {", ".join(COMMENTS)}')
    return given


def _judge_all(given: argparse.Namespace, folder: str) -> Tuple[List[Judged], int, str]:
    """What was judged, the exit status, and the report."""
    judged: List[Judged] = []
    try:
        paths = _files(given.snapshot)
        base = _base(given.host) if given.lock else ''
        for path in paths:
            judged.append(judge(given, path, base, folder))
    except CannotJudge as error:
        print(f'tessera: {error}', file=sys.stderr, flush=True)
        text = report(judged) + '\n### GPU memory check: no result\n\n' + calm(fenced(str(error)))
        return judged, error.status, text.lstrip()
    statuses = [one.status for one in judged]
    status = next((one for one in statuses if one > 1), max(statuses))
    return judged, status, report(judged)


def main(arguments: Optional[List[str]] = None) -> int:
    given = _given(arguments)
    # What a file contains is printed between these: GitHub takes lines such as ::add-mask:: for commands.
    mark = secrets.token_hex(16) if given.host == 'github' else ''
    if mark:
        print(f'::stop-commands::{mark}', flush=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            judged, status, text = _judge_all(given, folder)
            if given.sarif:
                _join_sarif(folder, given.sarif)
            if given.junit:
                _join_junit(folder, given.junit)
        if given.report:
            pathlib.Path(given.report).write_text(text, encoding='utf-8')
        if given.host == 'github':
            _github_files(judged, status, text, given)
        comment(given, text, is_news=status != 0 or any(one.difference for one in judged))
    finally:
        sys.stderr.flush()
        if mark:
            print(f'::{mark}::', flush=True)
    return status


if __name__ == '__main__':
    sys.exit(main())
