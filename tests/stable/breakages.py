"""breakages.py: made-up changes of the interface, of which the generator knows which break programs.

Changes of C, of Python, of the action, of the template and of the hook are changes of text, in copies of the files that declare them. Changes
of the command line, of the JSON and of files are changes of lines. Each change touches something that no other has touched, and returns the
names of facts that it breaks (`must`), and of facts that it may break as well (`may`): if a member of a struct moves, others may follow.
Additions break nothing."""
import ast
import itertools
import re
import shutil

from python_runs import REPLACED, parsed


class Changes:
    """What was changed so far."""

    def __init__(self, random):
        self.random, self.touched, self.must, self.may = random, set(), set(), set()

    def pick(self, things):
        """One of these that nothing has touched; None if there are no more."""
        free = [thing for thing in things if self.owner(thing) not in self.touched]
        if not free:
            return None
        thing = self.random.choice(free)
        self.touched.add(self.owner(thing))
        return thing

    @staticmethod
    def owner(thing):
        return thing[0] if isinstance(thing, tuple) else thing


# ---- C ----

class Headers(Changes):
    """The stable headers, without comments, in a folder."""

    def __init__(self, random, include, folder):
        super().__init__(random)
        shutil.copytree(include, folder)
        self.folder, self.texts = folder, {}
        for path in (folder / 'tessera').glob('*.h'):
            self.texts[path] = re.sub(r'/\*.*?\*/', '', path.read_text(encoding='utf-8'), flags=re.DOTALL)

    def write(self):
        for path, text in self.texts.items():
            path.write_text(text, encoding='utf-8')

    def replace(self, old, new):
        path = next(path for path, text in self.texts.items() if old in text)
        assert self.texts[path].count(old) == 1, old
        self.texts[path] = self.texts[path].replace(old, new)

    def append(self, text):
        """To a header, before the end of its declarations."""
        path = next(path for path in self.texts if path.name == 'simulate.h')
        at = self.texts[path].rindex('#ifdef __cplusplus')
        self.texts[path] = self.texts[path][:at] + text + '\n' + self.texts[path][at:]

    def functions(self):
        """(name, its declaration)."""
        return [(match[2], match[0]) for text in self.texts.values()
                for match in re.finditer(r'^(?!typedef|extern|static|#)[a-z][\w ]*[ *]+((tsr_\w+)\([^;{]*\));', text, re.MULTILINE)]

    def structs(self):
        """(name, its whole text, its members as statements of one name each)."""
        found = []
        for text in self.texts.values():
            for match in re.finditer(r'^typedef struct (tsr_\w+) \{\n(.*?)^\} \1;', text, re.MULTILINE | re.DOTALL):
                members = [part.strip() for part in match[2].split(';') if part.strip()]
                found.append((match[1], match[0], members))
        return found

    def enums(self):
        """(name, its whole text, names of those without values)."""
        found = []
        for text in self.texts.values():
            for match in re.finditer(r'^typedef enum (tsr_\w+) \{(.*?)\} \1;', text, re.MULTILINE | re.DOTALL):
                names = [part.strip() for part in match[2].split(',') if part.strip()]
                if all(re.fullmatch(r'\w+', name) for name in names):
                    found.append((match[1], match[0], names))
        return found


def name_of(member):
    """The name in the declaration of a member; None if it declares several or a function."""
    match = re.fullmatch(r'[\w \n]+?[ *\n]+(\w+)(\[\w+\])?', member)
    return match[1] if match else None


GROWING = ('tsr_query', 'tsr_report_options', 'tsr_open_options', 'tsr_effort_options', 'tsr_allocator_options', 'tsr_simulate_options',
           'tsr_parameter', 'tsr_question')
# Structs that others contain: changing their size moves members there.
WITHIN = ('tsr_pool', 'tsr_allocator_settings', 'tsr_limits', 'tsr_offload', 'tsr_rule', 'tsr_subject_row', 'tsr_example')


def all_of(kind):
    """A pattern of all facts about a struct and its members."""
    return {f'struct {kind}', f'member {kind}.*'}


def c_function_removed(headers):
    name, text = headers.pick(headers.functions())
    headers.replace(text, '')
    headers.must.add(f'function {name}')


def c_function_argument_added(headers):
    name, text = headers.pick(headers.functions())
    headers.replace(text, text.replace('(void)', '(int a_new_one)') if '(void)' in text else text.replace('(', '(int a_new_one, ', 1))
    headers.must.add(f'function {name}')


def c_function_returns_other(headers):
    name, text = headers.pick([one for one in headers.functions() if one[1].startswith('int ')])
    headers.replace(text, 'void ' + text[len('int '):])
    headers.must.add(f'function {name}')


def c_members_swapped(headers):
    """Two neighbours of one type: both move, and nothing else does."""
    def pairs(members):
        return [both for both in zip(members[1:], members[2:])
                if all(map(name_of, both)) and len({one[:-len(name_of(one))] for one in both}) == 1]
    name, text, members = headers.pick([one for one in headers.structs() if one[0] not in WITHIN and pairs(one[2])])
    first, second = headers.random.choice(pairs(members))
    headers.replace(text, text.replace(f'{first};', '@', 1).replace(f'{second};', f'{first};', 1).replace('@', f'{second};', 1))
    headers.must |= {f'member {name}.{name_of(first)}', f'member {name}.{name_of(second)}'}


def c_member_removed(headers):
    name, text, members = headers.pick([one for one in headers.structs() if one[0] not in WITHIN and any(map(name_of, one[2][1:]))])
    member = headers.random.choice([one for one in members[1:] if name_of(one)])
    headers.replace(text, text.replace(f'{member};', '', 1))
    headers.must.add(f'member {name}.{name_of(member)}')
    headers.may |= all_of(name)


def c_member_of_other_type(headers):
    """As large as before, and something else."""
    def fitting(members):
        return [part for part in members if part.startswith('uint64_t ') and name_of(part) not in (None, 'reserved')]
    name, text, members = headers.pick([one for one in headers.structs() if fitting(one[2])])
    member = headers.random.choice(fitting(members))
    headers.replace(text, text.replace(f'{member};', f'int64_t {member[len("uint64_t "):]};', 1))
    headers.must.add(f'member {name}.{name_of(member)}')


def c_fixed_struct_grows(headers):
    name, text, _ = headers.pick([one for one in headers.structs() if one[0] not in GROWING + WITHIN])
    headers.replace(text, text.replace(f'}} {name};', f'  uint64_t a_new_one;\n}} {name};'))
    headers.must.add(f'struct {name}')
    headers.may.add(f'member {name}.a_new_one')


def c_member_in_the_middle(headers):
    name, text, members = headers.pick([one for one in headers.structs() if one[0] in GROWING])
    last = members[-1]
    headers.replace(text, text.replace(f'{last};', f'uint64_t a_new_one;\n  {last};', 1))
    headers.must.add(f'member {name}.a_new_one')
    headers.may |= all_of(name)


def c_member_in_a_gap(headers):
    """Old programs leave what is between their members and their end undefined."""
    name, text, members = headers.pick([one for one in headers.structs() if one[0] in GROWING and one[2][-1].startswith('bool ')])
    headers.replace(text, text.replace(f'}} {name};', f'  bool a_new_one;\n}} {name};'))
    headers.must.add(f'member {name}.a_new_one')
    assert members


def c_enumerator_removed(headers):
    """Those after it are renumbered."""
    name, text, names = headers.pick([one for one in headers.enums() if len(one[2]) > 2])
    at = headers.random.randrange(len(names) - 1)
    headers.replace(text, re.sub(rf'\b{names[at]},', '', text, count=1))
    headers.must |= {f'enumerator {name}.{one}' for one in names[at:] if not one.endswith(('_COUNT', '_ALL'))}


def c_enumerator_renumbered(headers):
    name, text, names = headers.pick([one for one in headers.enums() if not one[2][-1].endswith('_COUNT')])
    headers.replace(text, re.sub(rf'\b{names[-1]}\b', f'{names[-1]} = 77', text, count=1))
    headers.must.add(f'enumerator {name}.{names[-1]}')


def c_enumerator_inserted(headers):
    name, text, names = headers.pick([one for one in headers.enums() if len(one[2]) > 1])
    at = headers.random.randrange(len(names) - 1)
    headers.replace(text, re.sub(rf'\b{names[at]}\b', f'TSR_A_NEW_{len(headers.touched)}, {names[at]}', text, count=1))
    headers.must |= {f'enumerator {name}.{one}' for one in names[at:] if not one.endswith(('_COUNT', '_ALL'))}


def c_constant_changed(headers):
    headers.touched.add('TSR_ALLOCATOR_SETTINGS_TEXT_BYTES')
    headers.replace('#define TSR_ALLOCATOR_SETTINGS_TEXT_BYTES 512', '#define TSR_ALLOCATOR_SETTINGS_TEXT_BYTES 1024')
    headers.must.add('constant TSR_ALLOCATOR_SETTINGS_TEXT_BYTES')


def c_limit_lowered(headers):
    headers.replace('#define TSR_RULES_COUNT         1000u', '#define TSR_RULES_COUNT 999u')
    headers.must.add('limit TSR_RULES_COUNT')


def c_initializer_changed(headers):
    """The size, or what follows it, in C or in C++."""
    kind = headers.random.choice(['c', 'c++'])
    growing = [name for name, _, members in headers.structs() if members[0] == 'size_t struct_bytes' and len(members) > 1]
    if kind == 'c':
        headers.replace('{.struct_bytes = sizeof(type)}', headers.random.choice(['{.struct_bytes = 0}', '{.struct_bytes = sizeof(size_t)}', '{0}']))
    else:
        headers.replace('options_.struct_bytes = sizeof(type); ', headers.random.choice([' ', 'options_.struct_bytes = sizeof(int);']))
    headers.must |= {f'initializer TSR_OPTIONS_INIT({name}) {kind}' for name in growing}


def c_handle_filled(headers):
    """A handle is no longer opaque."""
    headers.replace('typedef struct tsr_rates tsr_rates;', 'typedef struct tsr_rates { int a; } tsr_rates;')
    headers.must.add('handle tsr_rates')


C_BREAKS = [c_member_in_a_gap, c_member_in_the_middle, c_function_removed, c_function_argument_added, c_function_returns_other, c_members_swapped,
            c_member_removed, c_member_of_other_type, c_fixed_struct_grows, c_enumerator_removed, c_enumerator_renumbered, c_enumerator_inserted,
            c_constant_changed, c_limit_lowered, c_initializer_changed, c_handle_filled]


def c_add_function(headers):
    headers.append('int tsr_a_new_function(tsr_study *study, tsr_error *error);')


def c_add_types(headers):
    headers.append('typedef struct tsr_a_new_struct { uint32_t one; } tsr_a_new_struct;\ntypedef enum tsr_a_new_enum { TSR_A_NEW_ONE } tsr_a_new_enum;')
    headers.append('typedef struct tsr_a_new_handle tsr_a_new_handle;\n#define TSR_A_NEW_CONSTANT 7')


def c_add_enumerator(headers):
    name, text, names = headers.pick(headers.enums())
    is_count = names[-1].endswith('_COUNT')
    headers.replace(text, re.sub(rf'\b{names[-1]}\b', f'TSR_A_NEW_OF_{name}, {names[-1]}' if is_count else f'{names[-1]}, TSR_A_NEW_OF_{name}', text, count=1))


def c_add_member_at_end(headers):
    name, text, members = headers.pick([one for one in headers.structs() if one[0] in GROWING and not one[2][-1].startswith('bool ')])
    headers.replace(text, text.replace(f'}} {name};', f'  uint64_t a_new_one;\n}} {name};'))
    assert members


def c_use_reserved(headers):
    room = r'uint64_t reserved\[(\d+)\]'
    name, text, members = headers.pick([one for one in headers.structs() if any(re.search(room, member) for member in one[2])])
    headers.replace(text, re.sub(room, lambda found: f'double a_new_one;\n  uint64_t reserved[{int(found[1]) - 1}]', text))
    assert members


def c_raise_limit(headers):
    headers.replace('#define TSR_RULES_COUNT         1000u', '#define TSR_RULES_COUNT 2000u')


C_ADDITIONS = [c_add_function, c_add_types, c_add_enumerator, c_add_enumerator, c_add_member_at_end, c_use_reserved, c_use_reserved, c_raise_limit]


# ---- Python ----

# Where functions are whose public names are known: (file, class or '', public name of the class or module).
OWNERS = [('_snapshot', 'Snapshot', 'tessera.Snapshot'), ('_snapshot', '', 'tessera'), ('_calls', '', 'tessera'), ('_ranks', '', 'tessera'),
          ('_capture', '_Record', 'tessera.record'), ('callbacks', 'TrainingLoop', 'tessera.callbacks.TrainingLoop')]
FUNCTIONS = {'tessera': ('open', 'questions', 'simulate', 'plan', 'ranks')}


class Sources(Changes):
    """The package's source in a folder."""

    def __init__(self, random, package, folder):
        super().__init__(random)
        self.folder = folder / package.name
        self._copy(package)
        for path in package.parent.glob('*tessera_record.p*'):  # what starts recordings
            shutil.copy(path, folder)

    def _copy(self, package):
        shutil.copytree(package, self.folder, ignore=shutil.ignore_patterns('__pycache__', '*.so'))

    def text(self, name):
        return (self.folder / f'{name}.py').read_text(encoding='utf-8')

    def splice(self, name, begin, end, new):
        """Replace what is between two positions, each (line from 1, column)."""
        lines = self.text(name).splitlines(keepends=True)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        text, first, last = ''.join(lines), starts[begin[0] - 1] + begin[1], starts[end[0] - 1] + end[1]
        (self.folder / f'{name}.py').write_text(text[:first] + new + text[last:], encoding='utf-8')

    def replace(self, name, old, new):
        text = self.text(name)
        assert text.count(old) == 1, (name, old, text.count(old))
        (self.folder / f'{name}.py').write_text(text.replace(old, new), encoding='utf-8')

    def functions(self):
        """(public name, file, node) of functions and methods that programs call, as the files are now."""
        for file, owner, public in OWNERS:
            body = parsed(self.text(file)).body
            if owner:
                body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
            for node in body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith('_') and (owner or node.name in FUNCTIONS[public]):
                    if not any(ast.unparse(one) in ('property', 'overload') for one in node.decorator_list):
                        yield f'{public}.{node.name}', file, node

    def pick_argument(self, fits):
        """(public name of a function, file, node, argument, default) of an argument for which fits(node, argument, default)."""
        found = []
        for public, file, node in self.functions():
            given = node.args
            positional = [one for one in given.args if one.arg != 'self']
            defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults[-len(positional):] if positional else []
            found += [(public, file, node, argument, default) for argument, default in
                      [*zip(positional, defaults), *zip(given.kwonlyargs, given.kw_defaults)] if fits(node, argument, default)]
        return self.pick(found)


def place(node):
    return node.lineno, node.col_offset


def end_of(node):
    return node.end_lineno, node.end_col_offset


def is_positional(node, argument):
    return argument in node.args.args


def py_argument_renamed(sources):
    public, file, _, argument, default = sources.pick_argument(lambda node, argument, default: True)
    line, column = place(argument)
    sources.splice(file, (line, column), (line, column + len(argument.arg)), 'renamed')
    sources.must.add(f'argument {public}({argument.arg})')
    if default is None:
        sources.must.add(f'argument {public}(renamed)')


def py_argument_keyword_only(sources):
    public, file, node, argument, _ = sources.pick_argument(
        lambda node, argument, default: is_positional(node, argument) and not node.args.kwonlyargs and not node.args.vararg)
    sources.splice(file, place(argument), place(argument), '*, ')
    after = node.args.args[node.args.args.index(argument):]
    sources.must |= {f'argument {public}({one.arg})' for one in after}


def py_argument_moved(sources):
    """Something optional is before it now."""
    public, file, node, argument, default = sources.pick_argument(
        lambda node, argument, default: is_positional(node, argument) and default is not None)
    sources.splice(file, place(argument), place(argument), 'inserted=None, ')
    sources.must |= {f'argument {public}({one.arg})' for one in node.args.args[node.args.args.index(argument):]}
    assert default


def first_default(node):
    return node.args.args[-len(node.args.defaults)] if node.args.defaults else None


def py_default_removed(sources):
    public, file, _, argument, default = sources.pick_argument(
        lambda node, argument, default: default is not None and (argument in node.args.kwonlyargs or argument is first_default(node)))
    sources.splice(file, end_of(argument), end_of(default), '')
    sources.must.add(f'argument {public}({argument.arg})')


def py_default_changed(sources):
    public, file, _, argument, default = sources.pick_argument(lambda node, argument, default: default is not None)
    sources.splice(file, place(default), end_of(default), "'another'")
    sources.must.add(f'argument {public}({argument.arg})')


def py_type_narrowed(sources):
    public, file, _, argument, _ = sources.pick_argument(
        lambda node, argument, default: argument.annotation and ast.unparse(argument.annotation) in
        ('Optional[int]', 'Optional[str]', 'Union[None, int, str]', 'Union[None, float, str]'))
    sources.splice(file, place(argument.annotation), end_of(argument.annotation), 'bool')
    sources.must.add(f'argument {public}({argument.arg})')


def py_required_added(sources):
    public, file, node, argument, _ = sources.pick_argument(lambda node, argument, default: argument in node.args.kwonlyargs)
    sources.splice(file, place(argument), place(argument), 'a_new_one: int, ')
    sources.must.add(f'argument {public}(a_new_one)')
    assert node


def arguments_of(public, node):
    given = node.args
    names = [one.arg for one in [*given.args, *given.kwonlyargs] if one.arg != 'self']
    names += [one.arg for one in (given.vararg, given.kwarg) if one and not (one is given.kwarg and 'Unpack' in ast.unparse(one.annotation))]
    return {f'argument {public}({name})' for name in names}


def py_function_removed(sources):
    public, file, node = sources.pick([one for one in sources.functions() if one[0].count('.') > 1])
    kept = any('Unpack' in ast.unparse(one.annotation) for one in [node.args.kwarg] if one)
    line, column = place(node)
    sources.splice(file, (line, column), (line, column + len(f'def {node.name}')), f'def _gone_{node.name}')
    sources.must |= {f'name {public}'} | arguments_of(public, node)
    if kept:
        sources.may.add(f'argument {public}(*')


def py_returns_other(sources):
    public, file, node = sources.pick([one for one in sources.functions() if ast.unparse(one[2].returns) != 'Any'])
    sources.splice(file, place(node.returns), end_of(node.returns), 'complex')
    sources.must.add(f'name {public}')


def py_property_is_method(sources):
    name = sources.random.choice(['devices', 'format', 'path', 'warnings'])
    text = sources.text('_snapshot')
    sources.replace('_snapshot', f'    @property\n    def {name}(self)', f'    def {name}(self)')
    sources.must.add(f'name tessera.Snapshot.{name}')
    assert text


def py_name_unlisted(sources):
    name = sources.random.choice(['Page', 'models', 'parts', 'fit'])
    sources.replace('__init__', f"'{name}', " if name != 'Page' else "'NotFoundError', 'Page', ", '' if name != 'Page' else "'NotFoundError', ")
    sources.must.add(f'class tessera.{name}' if name == 'Page' else f'name tessera.{name}')
    sources.may |= {f'argument tessera.{name}(*', f'name tessera.{name}.*', f'argument tessera.{name}.*'}


def answer_fields(sources):
    """(class, its line) of fields of answers that no other class of the same name has."""
    found, owner = [], ''
    for line in sources.text('_answers').splitlines():
        begins = re.match(r'class (\w+)\(Record\)', line)
        owner = begins[1] if begins else '' if line.startswith('class ') else owner
        if owner and re.match(r'    \w+: ', line):
            found.append((owner, line))
    return [one for one in found if sources.text('_answers').count(f'\n{one[1]}\n') == 1]


def py_answer_field_removed(sources):
    owner, line = sources.pick(answer_fields(sources))
    sources.replace('_answers', f'\n{line}\n', '\n    pass\n')
    name = line.strip().partition(':')[0]
    sources.must.add(f'name tessera.answers.{owner}.{name}')
    sources.may |= {f'name tessera.Plan.{name}', f'name tessera.Simulation.{name}'}  # which may be based on it


def py_answer_field_may_be_none(sources):
    owner, line = sources.pick([one for one in answer_fields(sources) if re.fullmatch(r'    \w+: (int|str)', one[1])])
    name, _, kind = line.strip().partition(': ')
    sources.replace('_answers', f'\n{line}\n', f'\n    {name}: Optional[{kind}]\n')
    sources.must.add(f'name tessera.answers.{owner}.{name}')
    sources.may |= {f'name tessera.Plan.{name}', f'name tessera.Simulation.{name}'}


# For trainers, made on first use by functions.
CALLBACKS = ('ComposerCallback', 'LightningCallback', 'TNTCallback', 'TrainerCallback')
RECORDERS = ('tessera.record', 'tessera.record.start', 'tessera.callbacks.TrainingLoop', *(f'tessera.callbacks.{name}' for name in CALLBACKS))


def initializers(sources):
    """(class and where it is, argument `out` of its __init__) of the callbacks for trainers: as they are made, and their stubs."""
    body = parsed(sources.text('callbacks')).body
    found = []
    for holder in body:
        for node in getattr(holder, 'body', ()):
            if isinstance(node, ast.ClassDef) and node.name in CALLBACKS:
                where = 'made' if isinstance(holder, ast.FunctionDef) else 'stub'
                found += [((node.name, where), one.args.args[1]) for one in node.body if getattr(one, 'name', '') == '__init__']
    assert len(found) == 2 * len(CALLBACKS), found
    return found


def py_callback_argument_renamed(sources):
    (name, _), argument = sources.pick([one for one in initializers(sources) if one[0][1] == 'made'])
    sources.splice('callbacks', place(argument), (argument.lineno, argument.col_offset + len(argument.arg)), 'renamed')
    sources.must |= {f'argument tessera.callbacks.{name}(out)', f'stub tessera.callbacks.{name}'}


def py_callback_stub_renamed(sources):
    (name, _), argument = sources.pick([one for one in initializers(sources) if one[0][1] == 'stub'])
    sources.splice('callbacks', place(argument), (argument.lineno, argument.col_offset + len(argument.arg)), 'another')
    sources.must.add(f'stub tessera.callbacks.{name}')


def py_callback_without_maker(sources):
    name = sources.random.choice(CALLBACKS)
    line = next(line for line in sources.text('callbacks').splitlines(keepends=True) if line.startswith(f'    "{name}": _make'))
    sources.replace('callbacks', line, '')
    sources.must |= {f'class tessera.callbacks.{name}', f'stub tessera.callbacks.{name}', f'argument tessera.callbacks.{name}(out)'}
    sources.may.add(f'argument tessera.callbacks.{name}(*')


def option_of(sources):
    """An option of recordings that has lines of its own in both tables."""
    name = sources.random.choice(['keep', 'quiet', 'gzip', 'pinned', 'oom_limit', 'explain'])
    entry = next(line for line in sources.text('_record/settings').splitlines() if line.startswith(f'    "{name}": '))
    return name, entry


def py_option_removed(sources):
    name, entry = option_of(sources)
    sources.replace('_record/settings', entry + '\n', '')
    text = sources.text('_record/settings')
    begin = text.index('    stacks: str\n', text.index('class Options(TypedDict')) - 1
    at = re.search(rf'\n    {name}: .*', text[begin:])
    (sources.folder / '_record/settings.py').write_text(text[:begin + at.start()] + text[begin + at.end():], encoding='utf-8')
    sources.must |= {f'argument {public}({name})' for public in RECORDERS} | {f'environment TESSERA_RECORD_{name.upper()}'}
    sources.may.add(f'setting TESSERA_RECORD_{name.upper()}=*')


PY_BREAKS = [py_argument_keyword_only, py_argument_renamed, py_argument_renamed, py_argument_moved, py_default_removed, py_default_changed, py_type_narrowed,
             py_required_added, py_function_removed, py_returns_other, py_property_is_method, py_name_unlisted, py_answer_field_removed,
             py_answer_field_may_be_none, py_option_removed, py_callback_argument_renamed, py_callback_stub_renamed, py_callback_without_maker]


def py_add_keyword(sources):
    """An optional one, after all that can be passed by position."""
    public, file, node, argument, _ = sources.pick_argument(lambda node, argument, default: argument in node.args.kwonlyargs)
    sources.splice(file, place(argument), place(argument), 'a_new_one: int = 7, ')
    assert public and node


def py_add_default(sources):
    """To what was required: the last of those."""
    found = sources.pick_argument(lambda node, argument, default: default is None and argument is node.args.args[-1])
    if found:
        sources.splice(found[1], end_of(found[3]), end_of(found[3]), ' = None')


def py_add_type(sources):
    _, file, _, argument, _ = sources.pick_argument(
        lambda node, argument, default: argument.annotation and ast.unparse(argument.annotation) in ('int', 'str', 'Optional[int]', 'Optional[str]'))
    text = ast.unparse(argument.annotation)
    sources.splice(file, place(argument.annotation), end_of(argument.annotation), f'Union[complex, {text}]')


def py_add_function(sources):
    sources.replace('_snapshot', 'def questions() -> List[str]:', 'def a_new_one(needed: int) -> int:\n    return needed\n\n\ndef questions() -> List[str]:')
    sources.replace('__init__', 'from ._snapshot import Snapshot,', 'from ._snapshot import a_new_one, Snapshot,')
    sources.replace('__init__', "    'answers', 'apply',", "    'a_new_one', 'answers', 'apply',")


def py_add_method(sources):
    sources.replace('_snapshot', '    # ---- columns ----', '    def a_new_one(self, needed: int, *more: str) -> int:\n        return needed\n\n    # ---- columns ----')


def py_add_answer_field(sources):
    owner, line = sources.pick(answer_fields(sources))
    sources.replace('_answers', f'\n{line}\n', f'\n{line}\n    a_new_one: int\n')
    assert owner


def py_move_answer_field(sources):
    """What a class has from one that it is based on is there as before."""
    sources.touched |= {'Totals', 'Moment'}
    sources.replace('_answers', '    """The totals after an event."""\n    event: int\n', '    """The totals after an event."""\n')
    sources.replace('_answers', '    """Four byte counts, in PyTorch\'s terms."""\n', '    """Four byte counts, in PyTorch\'s terms."""\n    event: int\n')


def py_returns_less(sources):
    """What could be None no longer is."""
    sources.replace('_capture', '    def stop(self) -> str | None:', '    def stop(self) -> str:')


def py_add_option(sources):
    sources.replace('_record/settings', '    "gzip": (False, _flag),\n', '    "gzip": (False, _flag),\n    "a_new_one": (7, _whole(1)),\n')
    text = sources.text('_record/settings')
    at = text.index('    gzip: bool\n', text.index('class Options(TypedDict'))
    (sources.folder / '_record/settings.py').write_text(text[:at] + '    a_new_one: int\n' + text[at:], encoding='utf-8')


def py_add_callback_argument(sources):
    """To the class and its stub."""
    name = sources.random.choice(CALLBACKS)
    for _ in range(2):
        argument = next(one for (owner, _), one in initializers(sources) if owner == name and one is not None and (owner, one.lineno) not in sources.touched)
        sources.splice('callbacks', (argument.lineno, argument.col_offset + len('out: Path = None')),
                       (argument.lineno, argument.col_offset + len('out: Path = None')), ', a_new_one: int = 7')
        sources.touched.add((name, argument.lineno))


PY_ADDITIONS = [py_move_answer_field, py_add_keyword, py_add_keyword, py_add_default, py_add_type, py_add_function, py_add_method, py_add_answer_field,
                py_returns_less, py_add_option, py_add_callback_argument]


# ---- what the package does when it runs ----

# Which command lines the parsers of a file read.
READ_BY = {'ci': ('python -m tessera.ci',), 'hook': ('python -m tessera.hook',), '_script': ('python -m tessera.trace',), '_magic': ('%tessera', '%%tessera')}


class Programs(Sources):
    """The parts of the package that python_runs imports, and the facts about each part before the change. One folder serves many changes,
    one after the other: restore() undoes one."""

    def __init__(self, random, package, folder, facts):
        self.package = package
        super().__init__(random, package, folder)
        self.known, self.part = facts, None

    def _copy(self, package):
        if self.folder.exists():
            return
        shutil.copytree(package, self.folder, ignore=shutil.ignore_patterns('__pycache__', '*.so', *(f'{name}.py*' for name in REPLACED)))
        for path in itertools.chain(*(package.glob(f'{name}.py*') for name in REPLACED)):
            (self.folder / path.name).touch()

    @property
    def facts(self):
        return {name: value for part in self.known.values() for name, value in part.items()}

    def splice(self, name, begin, end, new):
        self.part = name
        super().splice(name, begin, end, new)

    def replace(self, name, old, new):
        self.part = name
        super().replace(name, old, new)

    def restore(self):
        shutil.copy(self.package / f'{self.part}.py', self.folder / f'{self.part}.py')

    def constants(self, name, within=None):
        """(text, node) of the texts in a file, or in one function or one assignment of it."""
        tree = parsed(self.text(name))
        if within:
            tree = next(node for node in tree.body if getattr(node, 'name', None) == within or isinstance(node, (ast.Assign, ast.AnnAssign))
                        and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == within)
        return [(node.value, node) for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]

    def rename(self, name, within, old, new='another'):
        """Each text of that kind in a function, or in an assignment."""
        found = [node for text, node in self.constants(name, within) if text == old]
        assert found, (name, within, old)
        for node in sorted(found, key=place, reverse=True):
            self.splice(name, place(node), end_of(node), repr(new))

    def arguments(self, fits, files=tuple(READ_BY)):
        """(file and line, call) of calls of add_argument."""
        return [((file, node.lineno), node) for file in files for node in ast.walk(parsed(self.text(file)))
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith('.add_argument') and fits(node)]

    def lost(self, file, names, more=''):
        """The facts about these options, or choices of theirs, are broken. A program that ends early asks for no variables."""
        for owner in READ_BY[file]:
            for name in names:
                self.must |= {fact for fact in self.facts if fact == f'option {owner} {name}' and not more or fact.startswith(f'choice {owner} {name} {more}')}
        assert self.must
        self.may |= {'environment TESSERA_*'} if file == 'ci' else set()


def options_of(call):
    return [node.value for node in call.args if isinstance(node, ast.Constant) and node.value.startswith('-')]


def given_as(call, name):
    """What is passed as this keyword."""
    return next((word.value for word in call.keywords if word.arg == name), None)


def is_text(node, text):
    return isinstance(node, ast.Constant) and node.value == text


def run_option_renamed(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: any(name.startswith('--') for name in options_of(call))))
    name = next(node for node in call.args if node.value.startswith('--'))
    programs.splice(file, place(name), end_of(name), "'--renamed'")
    programs.lost(file, [name.value])


def run_letter_removed(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: len(options_of(call)) > 1 and not options_of(call)[0].startswith('--')))
    programs.splice(file, place(call.args[0]), place(call.args[1]), '')
    programs.must |= {f'option {owner} {options_of(call)[1]}' for owner in READ_BY[file]}


def run_row_renamed(programs):
    """An option of python -m tessera.ci that is a row of its table: its variable is another, too."""
    table = next(node.value for node in parsed(programs.text('ci')).body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == 'OPTIONS')
    name = programs.random.choice([row.elts[0] for row in table.elts])
    programs.splice('ci', place(name), end_of(name), "'renamed'")
    programs.lost('ci', [f'--{name.value}'])
    programs.must.add(f'environment TESSERA_CHECK_{name.value.upper().replace("-", "_")}')


def choices_of(programs, file, call):
    """The tuple of words, which may be a constant of the module."""
    node = given_as(call, 'choices')
    if isinstance(node, ast.Name):
        node = next((one.value for one in parsed(programs.text(file)).body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == node.id), None)
    return node if isinstance(node, ast.Tuple) else None


def run_choice_removed(programs):
    (file, _), call = programs.pick([one for one in programs.arguments(lambda call: given_as(call, 'choices')) if choices_of(programs, one[0][0], one[1])])
    node = choices_of(programs, file, call)
    word = programs.random.choice(node.elts)
    programs.splice(file, place(node), end_of(node), repr(tuple(one.value for one in node.elts if one is not word)))
    programs.lost(file, options_of(call) or [f'operand-{at}' for at in (1, 2, 3)], word.value)


def run_flag_takes_word(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: is_text(given_as(call, 'action'), 'store_true')))
    programs.splice(file, place(given_as(call, 'action')), end_of(given_as(call, 'action')), "'store'")
    programs.lost(file, options_of(call))


def run_given_once(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: is_text(given_as(call, 'action'), 'append')))
    programs.splice(file, place(given_as(call, 'action')), end_of(given_as(call, 'action')), "'store'")
    programs.lost(file, options_of(call))


def run_operand_required(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: not options_of(call) and getattr(given_as(call, 'nargs'), 'value', '') in ('*', '?')))
    node = given_as(call, 'nargs')
    programs.splice(file, place(node), end_of(node), "'+'" if node.value == '*' else 'None')
    owner = READ_BY[file][0]  # the magic of a cell has no operands
    programs.must.add(f'command {owner}')
    programs.may |= {'environment TESSERA_*'} if file == 'ci' else set()


def run_default_changed(programs):
    (file, _), call = programs.pick(programs.arguments(
        lambda call: options_of(call) and isinstance(given_as(call, 'default'), ast.Constant) and given_as(call, 'default').value is not None))
    node = given_as(call, 'default')
    programs.splice(file, place(node), end_of(node), '77' if isinstance(node.value, int) else "'another'")
    programs.must |= {f'option {owner} {name}' for owner in READ_BY[file] for name in options_of(call) if f'option {owner} {name}' in programs.facts}


def run_option_required(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: options_of(call)))
    line, column = end_of(call)
    programs.splice(file, (line, column - 1), (line, column - 1), ', required=True')
    programs.must |= {f'option {owner} {name}' for owner in READ_BY[file] for name in options_of(call) if f'option {owner} {name}' in programs.facts}
    programs.may |= {'environment TESSERA_*'} if file == 'ci' else set()


def new_argument(programs, text, files=('ci', 'hook', '_script')):
    """Adds an argument after one that a function adds unconditionally. Returns the file."""
    found = [((file, part.lineno), part) for file in files for node in parsed(programs.text(file)).body if isinstance(node, ast.FunctionDef)
             for part in node.body if isinstance(part, ast.Expr) and ast.unparse(part).startswith('parser.add_argument(')]
    (file, _), part = programs.pick(found)
    programs.splice(file, end_of(part), end_of(part), f'\n{" " * part.col_offset}parser.add_argument({text})')
    return file


def run_required_added(programs):
    file = new_argument(programs, "'--a-new-one', required=True")
    programs.must.add(f'option {READ_BY[file][0]} --a-new-one')
    programs.may |= {'environment TESSERA_*'} if file == 'ci' else set()


def run_check_variables_renamed(programs):
    programs.rename('ci', '_given', 'TESSERA_CHECK_')
    programs.must |= {fact for fact in programs.facts if fact.startswith('environment TESSERA_CHECK_')}


def run_magic_removed(programs):
    kept = programs.random.choice(['line', 'cell', 'line_cell'])
    programs.rename('_magic', 'load', 'line_cell', kept)
    gone = {'line': ['%%tessera'], 'cell': ['%tessera'], 'line_cell': ['%tessera', '%%tessera']}[kept]
    if kept == 'line_cell':
        programs.rename('_magic', 'load', 'tessera')
    programs.must |= {fact for fact in programs.facts if set(fact.split()) & set(gone)}


def variables(programs, pattern, value=None):
    return {fact for fact, now in programs.facts.items() if re.fullmatch(pattern, fact) and value in (None, now)}


def run_variable_renamed(programs):
    programs.rename('_record/settings', 'VARIABLE', 'TESSERA_RECORD')
    programs.must |= variables(programs, '(environment|setting) TESSERA_RECORD.*')


def run_start_renamed(programs):
    """What starts a recording looks for another variable."""
    name = programs.random.choice(['_tessera_record.py', 'tessera_record.pth'])
    path = programs.folder.parent / name
    text = path.read_text(encoding='utf-8')
    assert 'environ.get("TESSERA_RECORD"' in text
    path.write_text(text.replace('environ.get("TESSERA_RECORD"', 'environ.get("TESSERA_RECORDS"'), encoding='utf-8')
    programs.part = '_record/settings'
    programs.must |= variables(programs, 'setting TESSERA_RECORD=.*') - variables(programs, 'setting TESSERA_RECORD=.*', 'off')


def words_of(programs, value):
    """Words that mean this, in small letters."""
    return sorted({fact.partition('=')[2] for fact in variables(programs, 'setting TESSERA_RECORD=[a-z0-9]+', value)})


def run_word_is_a_folder(programs):
    word = programs.random.choice(words_of(programs, 'tessera-record'))
    programs.rename('_record/settings', '_folder', word)
    programs.must |= variables(programs, f'(?i)setting TESSERA_RECORD={word}')


def run_off_is_a_folder(programs):
    word = programs.random.choice(words_of(programs, 'off'))
    programs.rename('_record/settings', '_folder', word)
    path = programs.folder.parent / '_tessera_record.py'
    path.write_text(path.read_text(encoding='utf-8').replace(f'"{word}"', '"another"'), encoding='utf-8')
    programs.must |= variables(programs, f'(?i)setting TESSERA_RECORD={word}')


def run_default_folder_changed(programs):
    programs.rename('_record/settings', 'DEFAULT_FOLDER', 'tessera-record')
    programs.must |= variables(programs, 'setting TESSERA_RECORD=.*', 'tessera-record')


# (text, another text, facts that this breaks) of how options are read.
READ_AS = [
    ('"s": 1 / 60', '"s": 1 / 30', r'TESSERA_RECORD_EVERY=\d+s'),
    ('if lowered in ("1", "true", "yes", "on"):', 'if lowered in ("1", "true", "yes"):', r'TESSERA_RECORD_\w+=on'),
    ('if lowered in ("0", "false", "no", "off"):', 'if lowered in ("0", "false", "off"):', r'TESSERA_RECORD_\w+=no'),
    ('return 1 if value is True', 'return 2 if value is True', r'(?i)TESSERA_RECORD_LOG_STEPS=(true|yes|on)'),
    ('if name in ("steps", "ranks"):', 'if name == "ranks":', r'TESSERA_RECORD_STEPS(=.*)?'),
    ('if name == "context" and lowered == "none":', 'if name == "stacks" and lowered == "none":', 'TESSERA_RECORD_CONTEXT=none'),
    ('"keep": (3, _whole(1)),', '"keep": (3, _whole(2)),', r'TESSERA_RECORD_KEEP=1'),
]


def run_text_means_other(programs):
    old, new, pattern = programs.random.choice(READ_AS)
    programs.replace('_record/settings', old, new)
    programs.must |= variables(programs, f'(environment|setting) ({pattern})' if not pattern.startswith('(?i)') else f'(?i)setting {pattern[4:]}')


def statuses(programs):
    """(name of a status, its exception in the table)."""
    table = next(node.value for node in parsed(programs.text('_errors')).body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '_BY_STATUS')
    return [(next(fact for fact, value in sorted(programs.facts.items()) if re.fullmatch(r'exception TSR_\w+', fact) and one.id in value.split(' | ')), one)
            for one in table.values]


def run_statuses_swapped(programs):
    (first, one), (second, other) = sorted(programs.random.sample(statuses(programs), 2), key=lambda pair: place(pair[1]))
    programs.splice('_errors', place(other), end_of(other), one.id)
    programs.splice('_errors', place(one), end_of(one), other.id)
    programs.must |= {first, second}
    programs.may.add('exception TSR_ERROR_IO, no such file')


def run_status_without_exception(programs):
    name, node = programs.random.choice([pair for pair in statuses(programs) if pair[1].id != 'ReadError'])
    programs.splice('_errors', place(node), end_of(node), 'Error')
    programs.must.add(name)


def run_absent_file_is_any(programs):
    programs.replace('_errors', 'NotFoundError if number == errno.ENOENT else ReadError', 'ReadError')
    programs.must.add('exception TSR_ERROR_IO, no such file')


RUN_BREAKS = [run_option_renamed, run_letter_removed, run_row_renamed, run_choice_removed, run_flag_takes_word, run_given_once, run_operand_required,
              run_default_changed, run_option_required, run_required_added, run_check_variables_renamed, run_magic_removed, run_variable_renamed,
              run_start_renamed, run_word_is_a_folder, run_off_is_a_folder, run_default_folder_changed, run_text_means_other, run_statuses_swapped,
              run_status_without_exception, run_absent_file_is_any]


def run_add_option(programs):
    new_argument(programs, "'--a-new-one', '-Z', default='x', choices=('x', 'y')")


def run_add_row(programs):
    programs.replace('ci', '\nOPTIONS = (\n', "\nOPTIONS = (\n    ('a-new-one', False, 'text'),\n")


def run_add_choice(programs):
    (file, _), call = programs.pick([one for one in programs.arguments(lambda call: given_as(call, 'choices')) if choices_of(programs, one[0][0], one[1])])
    node = choices_of(programs, file, call)
    programs.splice(file, place(node), end_of(node), repr((*(one.value for one in node.elts), 'a-new-one')))


def run_add_letter(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: options_of(call)[:1] and options_of(call)[0].startswith('--')))
    programs.splice(file, end_of(call.args[0]), end_of(call.args[0]), ", '-Z'")


def run_operand_optional(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: call.args and not options_of(call) and isinstance(call.args[0], ast.Constant)
                                                       and not given_as(call, 'nargs')))
    programs.splice(file, end_of(call.args[0]), end_of(call.args[0]), ", nargs='?'")


def run_more_often(programs):
    (file, _), call = programs.pick(programs.arguments(lambda call: call.args and options_of(call) and not given_as(call, 'action')
                                                       and not given_as(call, 'default') and not given_as(call, 'choices')))
    programs.splice(file, end_of(call.args[-1]), end_of(call.args[-1]), ", action='append'")


def run_add_word(programs):
    programs.replace('_record/settings', 'if word in ("1", "true", "yes", "on") else text', 'if word in ("1", "true", "yes", "on", "please") else text')
    programs.replace('_record/settings', '"h": 60.0', '"h": 60.0, "w": 10080.0')


def run_add_exception(programs):
    programs.replace('_errors', '-3: FormatError', '-3: type("DamageError", (FormatError,), {}), -9: UnsupportedError')


RUN_ADDITIONS = [run_add_option, run_add_row, run_add_choice, run_add_letter, run_operand_optional, run_more_often, run_add_word, run_add_exception]


# ---- the action, the template, the hook ----

class Integrations(Changes):
    """The files of integration_facts in a folder."""

    def __init__(self, random, root, folder):
        super().__init__(random)
        shutil.copytree(root / 'integrations', folder / 'integrations')
        shutil.copy(root / '.pre-commit-hooks.yaml', folder)
        self.folder = folder
        self.action, self.template, self.hooks = (folder / name for name in (
            'integrations/github/action.yml', 'integrations/gitlab/tessera.yml', '.pre-commit-hooks.yaml'))

    def take(self, path, pattern):
        """A line that matches, for the first time, without its end."""
        text = path.read_text(encoding='utf-8')
        found = [(match[1], match[0]) for match in re.finditer(pattern, text, re.MULTILINE)]
        return self.pick(found)

    def replace(self, path, old, new):
        text = path.read_text(encoding='utf-8')
        assert text.count(old) == 1, (path, old, text.count(old))
        path.write_text(text.replace(old, new), encoding='utf-8')


INPUT = r'^  ([\w-]+): \{description: .*default: .*\}\n'


def place_input_renamed(places):
    name, line = places.take(places.action, INPUT)
    places.replace(places.action, line, line.replace(f'{name}:', 'renamed:', 1))
    places.touched.add('renamed')
    places.must.add(f'input integrations/github {name}')


def place_input_ignored(places):
    """Its value goes nowhere."""
    name, line = places.take(places.action, r'^        TESSERA_CHECK_\w+: \$\{\{ inputs\.([\w-]+) \}\}\n')
    places.replace(places.action, line, '')
    places.must.add(f'input integrations/github {name}')


def place_default_changed(places):
    name, line = places.take(places.action, INPUT)
    places.replace(places.action, line, re.sub(r"default: .*?\}\n", 'default: another}\n', line))
    places.must.add(f'input integrations/github {name}')


def place_input_required(places):
    name, line = places.take(places.action, INPUT)
    places.replace(places.action, line, line[:-2] + ', required: true}\n')
    places.must.add(f'input integrations/github {name}')


def place_required_added(places):
    places.replace(places.action, 'inputs:\n', 'inputs:\n  a-new-one: {description: A new one, required: true}\n')
    places.must.add('input integrations/github a-new-one')


def place_output_renamed(places):
    name, line = places.take(places.action, r'^  ([\w-]+): \{description: .*value: .*\}\n')
    places.replace(places.action, line, line.replace(f'{name}:', f'{name}-renamed:', 1))
    places.must.add(f'output integrations/github {name}')


VARIABLE_LINE = r'^    (TESSERA_\w+): .*\n'


def place_variable_renamed(places):
    name, line = places.take(places.template, VARIABLE_LINE)
    places.replace(places.template, line, line.replace(f'{name}:', 'TESSERA_ANOTHER:', 1))
    places.touched.add('TESSERA_ANOTHER')
    places.must.add(f'variable integrations/gitlab {name}')


def place_variable_changed(places):
    name, line = places.take(places.template, VARIABLE_LINE)
    places.replace(places.template, line, f'    {name}: another\n')
    places.must.add(f'variable integrations/gitlab {name}')


def place_artifact_renamed(places):
    name = places.random.choice(['md', 'sarif'])
    places.replace(places.template, f'tessera-check.{name}{"," if name == "md" else "]"}', f'report.{name}{"," if name == "md" else "]"}')
    places.must.add(f'artifact integrations/gitlab tessera-check.{name}')


def place_hook_renamed(places):
    places.replace(places.hooks, '- id: tessera\n', '- id: memory\n')
    places.must.add('hook tessera')


PLACE_BREAKS = [place_input_renamed, place_input_ignored, place_default_changed, place_input_required, place_required_added, place_output_renamed,
                place_variable_renamed, place_variable_changed, place_artifact_renamed, place_hook_renamed]


def place_add_input(places):
    places.replace(places.action, 'inputs:\n', 'inputs:\n  a-new-one:\n    description: A new one\n    default: 7\n')
    places.replace(places.action, 'outputs:\n', 'outputs:\n  a-new-one: {description: A new one, value: x}\n')


def place_input_optional(places):
    places.replace(places.action, '    required: true\n', '    required: false\n')


def place_add_variable(places):
    places.replace(places.template, '    TESSERA_WHEEL:', '    TESSERA_A_NEW_ONE: "7"\n    TESSERA_WHEEL:')


def place_add_job(places):
    path = places.template
    text = path.read_text(encoding='utf-8')
    path.write_text(text + '\n' + text[text.index('.tessera-check:'):].replace('.tessera-check:', '.a-new-one:'), encoding='utf-8')
    places.hooks.write_text(places.hooks.read_text(encoding='utf-8') + '- id: a-new-one\n  language: system\n', encoding='utf-8')


PLACE_ADDITIONS = [place_add_input, place_input_optional, place_add_variable, place_add_job]


# ---- lines: the command line, the JSON, files ----

class Lines(Changes):
    """Facts as text, in lines."""

    def __init__(self, random, text):
        super().__init__(random)
        self.lines = text.splitlines()

    def take(self, pattern):
        """A line that matches, for the first time; (its number, the match)."""
        kind = re.match(r'\(?(\w+ )', pattern)[1]
        found = [(i, re.fullmatch(pattern, line)) for i, line in enumerate(self.lines) if line.startswith(kind)]
        return self.pick([one for one in found if one[1]])

    def change(self, pattern, new, breaks=True):
        """Replace a line by match.expand(new); None removes it."""
        at, match = self.take(pattern)
        self.lines[at] = '' if new is None else match.expand(new)
        if breaks:
            self.must.add(self.name_of(match[0]))

    @staticmethod
    def name_of(line):
        return line[:line.index(' = ')]

    def text(self):
        return ''.join(f'{line}\n' for line in self.lines if line)


# (pattern, replacement); None removes the line.
LINE_BREAKS = [
    (r'field .*', None),                                                  # a field is removed
    (r'(field .*) = (?:count|bytes)(.*)', r'\1 = text\2'),                # ... or of another type
    (r'(field .*) = (\w+)', r'\1 = \2, nullable'),                        # ... or may be null
    (r'(field .*) = (\w+)', r'\1 = \2, optional'),                        # ... or left out
    (r'column .*', None), (r'table .*', None), (r'(column .*) = integer', r'\1 = text'),
    (r'category .*', None), (r'(category \w+) = \d+', r'\1 = 99'),
    (r'option .*', None), (r'option tessera \w+ --output.*', None),       # an option is removed
    (r'(option .*) = count(.*)', r'\1 = text\2'),                         # ... or takes something else
    (r'(option .*, )letter (\w)', r'\1letter \2\2'), (r'(option .*), letter \w', r'\1'),
    (r'(option .*), default (\d+)', r'\1, default 9\2'), (r'(option .* = count)', r'\1, default 3'),
    (r'choice .*', None), (r'command .*', None),
    (r'(command .*) = (\d+) to any operands', r'\1 = \2 to 63 operands'), (r'(command .*) = 0 to (\w+) operands', r'\1 = 1 to \2 operands'),
    (r'question .*', None), (r'parameter .*', None), (r'(parameter [^,]*)', r'\1, required'),
    (r'(exit .*) = (\d)', r'\1 = 1\2'), (r'exit .*', None),               # an exit status changes
    (r'(status .*) = 0', r'\1 = 1'), (r'(status .*) = 3', r'\1 = 2'), (r'environment .*', None),
    (r'key .*', None), (r'(key .*) = read', r'\1 = read, required'), (r'(key .*) = read(.*)', r'\1 = ignored\2'),
    (r'version lock 1 .*', None), (r'(version plan .*) = written', r'\1 = read'), (r'word .*', None),
    (r'symbol .*', None), (r'(soname .*)\.\d+', r'\1.99'),                # a symbol is removed
]
LINE_ADDITIONS = [
    (r'(field .*)', r'\1\nfield peak a_new_one = count'), (r'(field .*), nullable', r'\1'), (r'(field .*), optional', r'\1'),
    (r'(column .*)', r'\1\ncolumn events.a_new_one = text'), (r'(table .*)', r'\1\ntable a_new_one = key a'),
    (r'(option .*)', r'\1\noption tessera peak --a-new-one = flag, letter N'), (r'(option .* = path)', r'\1, letter N'),
    (r'(command .*)', r'\1\ncommand tessera a-new-one = 2 to 2 operands'), (r'(choice .*)', r'\1\nchoice tessera peak --color a-new-one = a word'),
    (r'(command .*) = (\d+) to \d+ operands', r'\1 = \2 to any operands'), (r'(command .*) = [12] to (\w+) operands', r'\1 = 0 to \2 operands'),
    (r'(parameter .*)', r'\1\nparameter peak a_new_one = text\nquestion a_new_one = 1 snapshots\nparameter a_new_one needed = text, required'),
    (r'(exit .*)', r'\1\nexit a-new-one = 5'), (r'(environment .*)', r'\1\nenvironment A_NEW_ONE = read'),
    (r'(key .*)', r'\1\nkey graph a_new_one = read'), (r'(key .*), required', r'\1'), (r'(version .*)', r'\1\nversion graph 7 = read'),
    (r'(parameter .*), required', r'\1'), (r'(symbol .*)', r'\1\nsymbol tsr_a_new_one = exported'), (r'(word .*)', r'\1\nword lock a_new_one = read'),
]
