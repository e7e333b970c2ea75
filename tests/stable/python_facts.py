"""python_facts.py: the public interface of the package tessera, read from its source, so that neither a build nor PyTorch is needed, and a
changed copy can be read as well. What its command lines and variables mean is in python_runs.py.

    name tessera.open = function, gives Snapshot
    argument tessera.open(source) = 0, takes Any
    argument tessera.open(progress) = keyword, default None, takes Callable | None
    class tessera.Snapshot = a class
    name tessera.Snapshot.path = property, gives str

A name is public that `__all__` lists, or that is a class of `tessera.answers`, and of a class each member that does not begin with an
underscore, and the methods of Python's protocols. What a class inherits within the package counts as its own; the many classes of
`tessera.answers` name their bases instead, which facts.broken() looks through."""
import ast

import python_runs

# Module by public name.
MODULES = {'tessera': '__init__', 'tessera.answers': '_answers', 'tessera.callbacks': 'callbacks'}
PLUGIN = 'pytest_plugin'
# A class that no module lists, whose objects a function returns.
RETURNED = {'tessera.Recording': ('_capture', 'Recording')}
# Methods that have no underscore, and that only the package itself calls (_apply.py).
NOT_FOR_PROGRAMS = {'Applied': {'note', 'refuse', 'set', 'skip', 'wrap'}, 'Recording': {'settings'}}
# Methods of protocols that say how an object is printed, stored or made, not what programs call.
INNER = {'__init__', '__new__', '__repr__', '__str__', '__reduce__', '__getstate__', '__setattr__', '__delattr__', '__dir__', '__hash__',
         '__slots__', '__init_subclass__', '__set_name__', '__getattr__', '__copy__', '__deepcopy__'}
# Other names of one type.
SAME = {'List': 'list', 'Dict': 'dict', 'Tuple': 'tuple', 'Set': 'set', 'Type': 'type', 'FrozenSet': 'frozenset', 'AbstractSet': 'Set'}


class Module:
    """A file of the package: what its names are."""

    def __init__(self, package, name):
        self.package, self.name = package, name
        path = package.folder / (name.replace('.', '/') + '.py')
        if not path.exists():
            path = package.folder / f'{name}.pyi'
        if not path.exists():
            path = package.folder / name / '__init__.py'
        self.tree = python_runs.parsed(path.read_text(encoding='utf-8'))
        self.names = {}
        self._collect(self.tree.body)

    def _collect(self, body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if not is_overload(node):
                    self.names[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.names[alias.asname or alias.name] = (node.level, node.module, alias.name)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.names[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.names[node.target.id] = node.value
            elif isinstance(node, ast.If) and ast.unparse(node.test) != 'not TYPE_CHECKING':
                self._collect(node.body)

    def find(self, name):
        """(module, node) of a name, through imports within the package; None if it is of another package."""
        found = self.names.get(name)
        if not isinstance(found, tuple):
            return (self, found) if found is not None else None
        level, module, original = found
        if level == 0:
            return None
        folder = self.name.rpartition('.')[0] if level == 1 and self.name != '__init__' else ''
        if module is None:
            return self.package.module(f'{folder}.{original}'.lstrip('.')), None
        return self.package.module(f'{folder}.{module}'.lstrip('.')).find(original)

    def resolve(self, node):
        """(module, node) of an expression that names something: a name, or a name of a module."""
        if isinstance(node, ast.Name):
            return self.find(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = self.find(node.value.id)
            return owner[0].find(node.attr) if owner and owner[1] is None else None
        return None


class Package:
    """The folder of a package."""

    def __init__(self, folder):
        self.folder, self.modules = folder, {}

    def module(self, name):
        if name not in self.modules:
            self.modules[name] = Module(self, name)
        return self.modules[name]


def is_overload(node):
    return any(ast.unparse(one).split('.')[-1] == 'overload' for one in getattr(node, 'decorator_list', ()))


def decorators(node):
    return {ast.unparse(one).split('.')[-1] for one in node.decorator_list}


# ---- types ----

def alternatives(module, node):
    """What a value of a type can be, as a set of texts."""
    if node is None:
        return {'Any'}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return alternatives(module, ast.parse(node.value, mode='eval').body)
    if isinstance(node, ast.Constant):
        return {'...' if node.value is ... else repr(node.value)}
    if isinstance(node, ast.BinOp):
        return alternatives(module, node.left) | alternatives(module, node.right)
    if isinstance(node, ast.List):
        return {'[' + ', '.join(text_of(module, part) for part in node.elts) + ']'}
    if isinstance(node, ast.Subscript):
        return of_subscript(module, node)
    found = module.resolve(node)
    if found and isinstance(found[1], (ast.Subscript, ast.BinOp, ast.Name, ast.Attribute)):  # a name for a type
        return alternatives(*found)
    name = ast.unparse(node).rpartition('.')[2]
    return {SAME.get(name, name)}


def of_subscript(module, node):
    name = ast.unparse(node.value).rpartition('.')[2]
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in ('Union', 'Optional'):
        found = set().union(*(alternatives(module, part) for part in parts))
        return found | ({'None'} if name == 'Optional' else set())
    if name == 'ClassVar':
        return alternatives(module, node.slice)
    if name == 'Literal':
        return {ast.unparse(part) for part in parts}
    return {f'{SAME.get(name, name)}[{", ".join(text_of(module, part) for part in parts)}]'}


def text_of(module, node):
    return ' | '.join(sorted(alternatives(module, node)))


# ---- functions ----

def typed_dict_of(module, node):
    """(module, class) of the options that `**options: Unpack[Options]` takes."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith('Unpack'):
        return module.resolve(node.slice)
    return None


def keys_of(module, node):
    """(name, module, type) of the keys of a class of options, with those of its bases."""
    for base in node.bases:
        found = module.resolve(base)
        if found and isinstance(found[1], ast.ClassDef):
            yield from keys_of(*found)
    for part in node.body:
        if isinstance(part, ast.AnnAssign):
            yield part.target.id, module, part.annotation


def defaults_of_options(package):
    """The defaults of the options of recordings and callbacks, from their two tables."""
    found = {}
    table = package.module('_record.settings').names['OPTIONS']
    for name, pair in zip(table.keys, table.values):
        found[name.value] = ast.unparse(pair.elts[0])
    table = package.module('callbacks').names['_OWN']
    for name, value in zip(table.keys, table.values):
        found[name.value] = ast.unparse(value)
    return found


def argument_facts(module, name, node, skipped):
    """Facts of the parameters of a function, of which the first is left out if it is `self`."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)

    def fact(argument, how, default):
        text = how + (f', default {ast.unparse(default) if isinstance(default, ast.AST) else default}' if default is not None else '')
        return f'argument {name}({argument.arg})', f'{text}, takes {text_of(module, argument.annotation)}'
    for at, (argument, default) in enumerate(zip(positional, defaults)):
        if at >= skipped:
            only = 'positional ' if argument in given.posonlyargs else ''
            yield fact(argument, f'{only}{at - skipped}', default)
    if given.vararg:
        yield fact(given.vararg, '*', None)
    for argument, default in zip(given.kwonlyargs, given.kw_defaults):
        yield fact(argument, 'keyword', default)
    options = given.kwarg and typed_dict_of(module, given.kwarg.annotation)
    if options:
        known = defaults_of_options(module.package)
        for key, home, kind in keys_of(*options):
            yield f'argument {name}({key})', f'keyword, default {known[key]}, takes {text_of(home, kind)}'
    elif given.kwarg:
        yield fact(given.kwarg, '**', None)


def function_facts(module, name, node, kind, skipped):
    yield f'name {name}', f'{kind}, gives {text_of(module, node.returns)}'
    if not node.name.startswith('__') or node.name == '__call__':  # Python passes those of protocols by position
        yield from argument_facts(module, name, node, skipped)


# ---- classes ----

def order_of(module, node):
    """(module, class) of a class and of those that it is based on within the package, the nearest first."""
    yield module, node
    for base in node.bases:
        found = module.resolve(base)
        if found and isinstance(found[1], ast.Attribute):
            found = found[0].resolve(found[1])
        if found and isinstance(found[1], ast.ClassDef):
            yield from order_of(*found)


def body_of(node):
    """Statements of a class, those for type checkers included: they declare what is there."""
    for part in node.body:
        if isinstance(part, ast.If):
            if ast.unparse(part.test) != 'not TYPE_CHECKING':
                yield from part.body
        else:
            yield part


def is_public(name):
    return not name.startswith('_') or name.startswith('__') and name.endswith('__') and name not in INNER


def member_facts(module, name, part):
    """Facts of one statement of a class."""
    if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
        marks = decorators(part)
        if is_overload(part) or not is_public(part.name) or 'setter' in marks:
            return
        member = f'{name}.{part.name}'
        if 'property' in marks:
            yield f'name {member}', f'attribute, gives {text_of(module, part.returns)}'
        else:
            yield from function_facts(module, member, part, 'function' if 'staticmethod' in marks else 'method',
                                      0 if 'staticmethod' in marks else 1)
    elif isinstance(part, ast.AnnAssign) and is_public(part.target.id):
        yield f'name {name}.{part.target.id}', f'attribute, gives {text_of(module, part.annotation)}'
    elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name) and is_public(part.targets[0].id):
        yield f'name {name}.{part.targets[0].id}', 'attribute, gives Any'


def named_tuple_facts(module, name, node):
    """The parameters of a NamedTuple, which are its attributes in order."""
    parts = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    for at, part in enumerate(parts):
        default = f', default {ast.unparse(part.value)}' if part.value else ''
        yield f'argument {name}({part.target.id})', f'{at}{default}, takes {text_of(module, part.annotation)}'


def class_facts(module, name, node, is_made=False):
    """Facts of a class; of one that programs do not make, nothing of how it is made."""
    seen, hidden = set(), set()
    if name.startswith('tessera.answers.'):
        yield f'class {name}', ' | '.join(ast.unparse(base) for base in node.bases) or 'object'
        for part in body_of(node):
            yield from member_facts(module, name, part)
        return
    for owner, members in NOT_FOR_PROGRAMS.items():
        if any(one.name == owner for _, one in order_of(module, node)):
            hidden |= members
    outside = [ast.unparse(base).rpartition('.')[2].partition('[')[0] for _, one in order_of(module, node) for base in one.bases]
    yield f'class {name}', ' | '.join(sorted({base for base in outside if not base.startswith('_')})) or 'object'
    if 'NamedTuple' in outside:
        yield from named_tuple_facts(module, name, node)
    for home, one in order_of(module, node):
        for part in body_of(one):
            if isinstance(part, ast.FunctionDef) and part.name == '__init__' and is_made and '__init__' not in seen:
                yield from argument_facts(home, name, part, 1)
                seen.add('__init__')
            for fact, value in member_facts(home, name, part):
                if fact not in seen and fact.partition('(')[0].rpartition('.')[2] not in hidden:
                    seen.add(fact)
                    yield fact, value


# ---- callbacks ----

def initializer(node):
    return next(part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == '__init__')


def made_by(module, maker):
    """The class that a function returns."""
    function = module.names[maker.id]
    name = next(part.value.id for part in function.body if isinstance(part, ast.Return))
    return next(part for part in function.body if isinstance(part, ast.ClassDef) and part.name == name)


def callback_facts(module, path, name):
    """How programs make an object of a class of tessera.callbacks. Those for trainers are made on first use, each by a function;
    what type checkers read in their place is a stub. Trainers call the other methods of those."""
    table = module.names['_MAKERS']
    makers = {key.value: value for key, value in zip(table.keys, table.values)}
    node = made_by(module, makers[name]) if name in makers else next((one for one in module.tree.body if getattr(one, 'name', '') == name), None)
    if node is None:
        return
    if name not in makers:
        yield from class_facts(module, path, node, True)
        return
    yield f'class {path}', 'object'
    yield from argument_facts(module, path, initializer(node), 1)
    given, stub = ast.unparse(initializer(node).args), ast.unparse(initializer(module.names[name]).args)
    yield f'stub {path}', 'as the class' if stub == given else f'takes ({stub}), and the class ({given})'


# ---- names ----

def named_facts(module, public, name):
    """Facts of one name of a module."""
    found = module.find(name)
    path = f'{public}.{name}'
    if public == 'tessera.callbacks':
        yield from callback_facts(module, path, name)
        return
    if found and isinstance(found[1], ast.Attribute):  # Column = _core.Column
        found = found[0].resolve(found[1])
    if not found:
        raise ValueError(f'{path}: not found in the package')
    home, node = found
    if node is None:
        yield f'module {path}', 'a module'
    elif isinstance(node, ast.ClassDef):
        yield from class_facts(home, path, node)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from function_facts(home, path, node, 'function', 0)
    elif isinstance(node, ast.Call) and (made := home.resolve(node.func)) and isinstance(made[1], ast.ClassDef):
        for fact, value in class_facts(*made[:1], path, made[1]):  # an object: `record`
            if fact.startswith('class '):
                yield f'object {path}', 'an object'
            elif f'name {path}.__call__' == fact:
                yield f'name {path}', value
            else:
                yield fact.replace(f'{path}.__call__(', f'{path}('), value
    else:
        yield f'name {path}', 'attribute, gives Any'


def public_names(module, public):
    listed = module.names.get('__all__')
    names = {one.value for one in listed.elts} if listed else set()
    if public == 'tessera.answers':
        names |= {name for name, node in module.names.items() if isinstance(node, ast.ClassDef) and not name.startswith('_')}
    return sorted(names)


# ---- the plugin of pytest ----

def plugin_options(module):
    """The options that calls of addoption declare."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == 'addoption':
            given = {word.arg: word.value for word in node.keywords}
            takes = 'flag' if 'action' in given and ast.unparse(given['action']) == "'store_true'" else 'text'
            for name in node.args:
                if isinstance(name, ast.Constant) and name.value.startswith('-'):
                    yield f'option pytest {name.value}', takes


def facts(folder, parts=python_runs.PARTS):
    """With what its parts do when they run."""
    package = Package(folder)
    found = {}
    for public, name in MODULES.items():
        module = package.module(name)
        found[f'module {public}'] = 'a module'
        for one in public_names(module, public):
            found.update(named_facts(module, public, one))
    for public, (name, one) in RETURNED.items():
        found.update(class_facts(package.module(name), public, package.module(name).names[one]))
    found['name tessera.__version__'] = 'attribute, gives str'
    plugin = package.module(PLUGIN)
    found.update(plugin_options(plugin))
    for marker in plugin.names['MARKERS'].elts:
        found[f'marker {marker.value}'] = 'of pytest'
    found.update(argument_facts(plugin, 'pytest.mark.limit_gpu_memory', plugin.names['_limit'], 0))
    found.update(python_runs.facts(folder, parts))
    return found
