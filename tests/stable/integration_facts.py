"""integration_facts.py: what pipelines and repositories of others refer to: the action's inputs and outputs, the template's job and variables,
and the hook, from the files that declare them.

    action integrations/github = composite
    input integrations/github lock = used, default ''
    output integrations/github passed = text
    template integrations/gitlab .tessera-check = a job
    variable integrations/gitlab TESSERA_CHECK_STRICT = text, default true
    artifact integrations/gitlab tessera-check.md = kept
    hook tessera = of pre-commit

A form of YAML that is not used in these files raises ValueError, so that nothing is missed."""
import re

GITHUB, GITLAB, HOOKS = 'integrations/github', 'integrations/gitlab', '.pre-commit-hooks.yaml'
EMPTY = "''"


def without_comments(text):
    return re.sub(r'^ *#.*\n| #.*', '', text, flags=re.MULTILINE)


def section(text, key, indent=0):
    """The text below a key with this indentation."""
    found = re.search(rf'^ {{{indent}}}{re.escape(key)}:\n((?: {{{indent + 1}}}.*\n|\n)+)', text, re.MULTILINE)
    if not found:
        raise ValueError(f'no {key}: with lines below it')
    return found[1]


def entries(text):
    """(key, what is after it) of a section."""
    begins = re.split(r'^( *)([\w.-]+):', text, flags=re.MULTILINE)
    indent = begins[1]
    found = []
    for at in range(1, len(begins), 3):
        if begins[at] == indent:
            found.append([begins[at + 1], begins[at + 2]])
        else:  # of an entry in several lines
            found[-1][1] += f'{begins[at]}{begins[at + 1]}:{begins[at + 2]}'
    return found


def bare(value):
    """A scalar without its quotes, as one line."""
    return re.sub(r"""^(['"])(.*)\1$""", r'\2', value.strip())


def value_in(entry, key):
    """The value of a key in `{a: x, b: y}`, or in lines; None if it is absent."""
    if entry.strip().startswith('{'):
        found = re.search(rf"""(?:[{{]|, ){key}: *('(?:[^']|'')*'|"[^"]*"|[^,}}]*)""", entry)
    elif re.match(r' *\n', entry):
        found = re.search(rf'^ +{key}: *(.*)', entry, re.MULTILINE)
    else:
        raise ValueError(f'not a mapping: {entry!r}')
    return bare(found[1]) if found else None


def action_facts(text):
    yield f'action {GITHUB}', value_in('\n' + section(text, 'runs'), 'using')
    steps = section(text, 'runs')
    for name, entry in entries(section(text, 'inputs')):
        default, required = value_in(entry, 'default'), value_in(entry, 'required')
        kind = 'used' if re.search(rf'\binputs\.{re.escape(name)}(?![\w-])', steps) else 'ignored'
        yield f'input {GITHUB} {name}', kind + (f", default {default or EMPTY}" if default is not None else '') + (', required' if required == 'true' else '')
    for name, _ in entries(section(text, 'outputs')):
        yield f'output {GITHUB} {name}', 'text'


def template_facts(text):
    for job, _ in [one for one in entries(text) if one[0].startswith('.')]:
        yield f'template {GITLAB} {job}', 'a job'
        inner = section(text, job)
        for name, value in entries(section(inner, 'variables', 2)):
            if name.startswith('TESSERA_'):
                yield f'variable {GITLAB} {name}', f'text, default {bare(value) or EMPTY}'
        for name in re.findall(r'[\w-]+\.(?:md|sarif|xml|json)', section(inner, 'artifacts', 2)):
            yield f'artifact {GITLAB} {name}', 'kept'


def facts(root):
    found = {}
    for read, path in ((action_facts, f'{GITHUB}/action.yml'), (template_facts, f'{GITLAB}/tessera.yml')):
        found.update(read(without_comments((root / path).read_text(encoding='utf-8'))))
    for name in re.findall(r'^- id: (\S+)', (root / HOOKS).read_text(encoding='utf-8'), re.MULTILINE):
        found[f'hook {name}'] = 'of pre-commit'
    return found
