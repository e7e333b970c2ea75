"""breakages.py: made-up changes of the interface, of which the generator knows which break programs.

Changes of C and of Python are changes of text: of copies of the headers and of the package's source, without what facts are collected with.
Changes of the command line, of the JSON and of files are changes of lines. Each change touches something that no other has touched,
and returns the names of facts that it breaks (`must`), and of facts that it may break as well (`may`): if a member of a struct moves, others
may follow. Additions break nothing."""
import ast
import re
import shutil


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


def c_handle_filled(headers):
    """A handle is no longer opaque."""
    headers.replace('typedef struct tsr_rates tsr_rates;', 'typedef struct tsr_rates { int a; } tsr_rates;')
    headers.must.add('handle tsr_rates')


C_BREAKS = [c_member_in_a_gap, c_member_in_the_middle, c_function_removed, c_function_argument_added, c_function_returns_other, c_members_swapped,
            c_member_removed, c_member_of_other_type, c_fixed_struct_grows, c_enumerator_removed, c_enumerator_renumbered, c_enumerator_inserted,
            c_constant_changed, c_limit_lowered, c_handle_filled]


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
    name, text, members = headers.pick([one for one in headers.structs() if 'uint64_t reserved[8]' in one[2]])
    headers.replace(text, text.replace('uint64_t reserved[8];', 'double a_new_one;\n  uint64_t reserved[7];'))
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
        shutil.copytree(package, folder, ignore=shutil.ignore_patterns('__pycache__', '*.so'))
        self.folder = folder

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
            body = ast.parse(self.text(file)).body
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


RECORDERS = ('tessera.record', 'tessera.record.start', 'tessera.callbacks.TrainerCallback', 'tessera.callbacks.LightningCallback',
             'tessera.callbacks.TrainingLoop')


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


PY_BREAKS = [py_argument_keyword_only, py_argument_renamed, py_argument_renamed, py_argument_moved, py_default_removed, py_default_changed, py_type_narrowed,
             py_required_added, py_function_removed, py_returns_other, py_property_is_method, py_name_unlisted, py_answer_field_removed,
             py_answer_field_may_be_none, py_option_removed]


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


PY_ADDITIONS = [py_move_answer_field, py_add_keyword, py_add_keyword, py_add_default, py_add_type, py_add_function, py_add_method, py_add_answer_field,
                py_returns_less, py_add_option]


# ---- lines: the command line, the JSON, files ----

class Lines(Changes):
    """Facts as text, in lines."""

    def __init__(self, random, text):
        super().__init__(random)
        self.lines = text.splitlines()

    def take(self, pattern):
        """A line that matches, for the first time; (its number, the match)."""
        found = [(i, re.fullmatch(pattern, line)) for i, line in enumerate(self.lines)]
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
