"""facts.py: what programs rely on as *facts*, a line each, and which changes of them break a program.

    option tessera peak --top = count, default 10
    \\_________ name ________/   \\____ value ____/

The first word of a name is its kind. A fact that is gone breaks programs, and so does a value that changes, unless a rule below permits
the change: RULES has one for each kind whose values may change. ADDED has rules for facts that are new, which are permitted by default:
they find additions that old programs cannot know, such as a parameter without a default."""
import re

# Nothing is before it in a name, and a value may contain it.
SEPARATOR = ' = '


def parse(text):
    facts = {}
    for line in text.splitlines():
        name, separator, value = line.partition(SEPARATOR)
        if not separator or name in facts:
            raise ValueError(f'not a fact, or one that is there twice: {line!r}')
        facts[name] = value
    return facts


def render(facts):
    return ''.join(f'{name}{SEPARATOR}{value}\n' for name, value in sorted(facts.items()))


def words(value):
    """A value that is a word and flags, "time, nullable", as the word and a set."""
    first, *rest = value.split(', ')
    return first, set(rest)


# ---- rules for values that change: None if programs go on, or what is wrong, as the end of a sentence ----

def is_now(old, new):
    return f'was {old}, and is {new}'


def same(old, new):
    return None if old == new else is_now(old, new)


def field(old, new):
    """What a reader did not have to expect may not come: null, or a field that is left out."""
    (kind, flags), (other, others) = words(old), words(new)
    if kind != other:
        return f'was of kind {kind}, and is of kind {other}'
    if 'nullable' in others - flags:
        return 'was never null, and now may be'
    return 'was always there, and now may be left out' if 'optional' in others - flags else None


def option(old, new):
    """An option, or a parameter of a question: a letter may be added, it may be given more often, and what was required need not be."""
    (kind, flags), (other, others) = words(old), words(new)
    if kind != other or {flag for flag in flags | others if flag.startswith('default')} - (flags & others):
        return is_now(old, new)
    if any(flag.startswith('letter') for flag in flags - others):
        return f'has lost its {", ".join(sorted(flag for flag in flags - others if flag.startswith("letter")))}'
    if 'list' in flags - others:
        return 'could be given several times, and can be given only once'
    return 'is now required' if 'required' in others - flags else None


def command(old, new):
    """More operands may be taken, and fewer may be enough."""
    (least, most), (lower, upper) = (re.match(r'(\d+) to (\w+)', value).groups() for value in (old, new))
    is_more = upper == 'any' or most != 'any' and int(upper) >= int(most)
    return None if int(lower) <= int(least) and is_more else f'took {old}, and takes {new}'


def size(value):
    return int(re.match(r'(\d+) bytes', value)[1])


def struct(old, new):
    """A struct that grows may; others keep their size, and that they do not grow."""
    if old == new:
        return None
    if not old.endswith(', grows'):
        return is_now(old, new)
    return None if new.endswith(', fixed') and size(new) == size(old) or new.endswith(', grows') and size(new) >= size(old) else is_now(old, new)


def extent(value):
    """Where a member begins and ends."""
    begin, end = re.match(r'bytes (\d+) to (\d+):', value).groups()
    return int(begin), int(end)


def member(old, new):
    """All members stay, but for room that is reserved, whose beginning may be used."""
    if old == new:
        return None
    (begin, end), (later, ending) = extent(old), extent(new)
    if (begin, end) != (later, ending):
        return f'was at {old.partition(":")[0]}, and is at {new.partition(":")[0]}'
    return is_now(old, new)


def limit(old, new):
    return None if int(new) >= int(old) else f'was {old}, and is only {new}'


def alternatives(kinds):
    """A type as the set of what a value can be."""
    depth, parts = 0, ['']
    for letter in kinds:
        depth += (letter == '[') - (letter == ']')
        if letter == '|' and not depth:
            parts.append('')
        else:
            parts[-1] += letter
    return {part.strip() for part in parts}


ANYTHING = {'Any', 'object'}


def takes(old, new):
    """Whether what takes one type takes the other: nothing is missing in it."""
    return bool(alternatives(new) & ANYTHING) or alternatives(old) <= alternatives(new)


def gives(old, new):
    """Whether what gives one type may give the other: nothing in it is unexpected."""
    return bool(alternatives(old) & ANYTHING) or alternatives(new) <= alternatives(old)


def python_name(old, new):
    """A function, a method or an attribute: "method, gives int | None"."""
    (kind, gave), (other, given) = (value.split(', gives ') for value in (old, new))
    if kind != other:
        return f'was a {kind}, and is a {other}'
    return None if gives(gave, given) else f'gave {gave}, and gives {given}'


ARGUMENT = re.compile(r'(?P<how>keyword|\*\*?|(?P<only>positional )?(?P<at>\d+))(?:, default (?P<default>.*?))?, takes (?P<type>.*)')


def argument(old, new):
    """A parameter in Python: how it is passed, its default, and what it takes."""
    was, now = ARGUMENT.fullmatch(old), ARGUMENT.fullmatch(new)
    if was['at'] and was['at'] != now['at']:
        return 'could be passed by position, and is keyword-only' if now['how'] == 'keyword' else (
            f'was at position {was["at"]}, and is at {now["at"]}' if now['at'] else is_now(was['how'], now['how']))
    if now['only'] and not was['only']:
        return 'could be passed by name, and cannot any longer'
    if was['how'] in ('*', '**') and was['how'] != now['how']:
        return is_now(was['how'], now['how'])
    if was['default'] and not now['default']:
        return 'had a default, and is required'
    if was['default'] and was['default'] != now['default']:
        return f'had the default {was["default"]}, and has {now["default"]}'
    return None if takes(was['type'], now['type']) else f'took {was["type"]}, and takes {now["type"]}'


def bases(old, new):
    """Of a class, or of an exception."""
    gone = alternatives(old) - alternatives(new) - {''}
    return f'is no longer a {", ".join(sorted(gone))}' if gone else None


def key(old, new):
    """A key of a file: one that need not be there may not become required, and one that is read is read."""
    (kind, flags), (other, others) = words(old), words(new)
    if kind != other or {flag for flag in flags | others if flag.startswith('default')} - (flags & others):
        return is_now(old, new)
    if 'required' in others - flags:
        return 'need not be there, and is now required'
    return 'was read, and is ignored' if 'ignored' in others - flags else None


RULES = {'field': field, 'option': option, 'parameter': option, 'command': command, 'struct': struct, 'member': member, 'limit': limit,
         'name': python_name, 'argument': argument, 'class': bases, 'exception': bases, 'key': key, 'input': option, 'variable': option}


# ---- rules for facts that are new ----

def owner_of(name):
    """Of an argument its function, of a member its struct, of an option its command."""
    words_of = name.split(' ')
    if words_of[0] == 'argument':
        return 'name ' + name[len('argument '):name.index('(')]
    if words_of[0] == 'member':
        return 'struct ' + words_of[1].rpartition('.')[0]
    if words_of[0] == 'parameter':
        return f'question {words_of[1]}'
    if words_of[0] in ('option', 'input'):
        return f'{"command" if words_of[0] == "option" else "action"} {" ".join(words_of[1:-1])}'
    return f'format {words_of[1]}' if words_of[0] == 'key' else ''


def added_argument(old, _, name, value):
    new = ARGUMENT.fullmatch(value)
    if owner_of(name) in old and new['how'] not in ('*', '**') and not new['default']:
        return 'is new, and has no default'
    return None


def added_member(old, _, name, value):
    """Of a struct that grows, old programs have no room for it: it must be after all that they have."""
    struct_of = old.get(owner_of(name))
    begin, end = extent(value)
    if not struct_of or begin >= size(struct_of):
        return None
    reserved = old.get(f'member {owner_of(name)[len("struct "):]}.reserved')
    if reserved and extent(reserved)[0] <= begin and end <= extent(reserved)[1]:
        return None
    return f'is new at {value.partition(":")[0]}, within the {size(struct_of)} bytes that old programs have'


def added_required(old, _, name, value):
    return 'is new, and required' if 'required' in words(value)[1] and owner_of(name) in old else None


ADDED = {'argument': added_argument, 'member': added_member, 'parameter': added_required, 'option': added_required,
         'input': added_required, 'key': added_required}


# ---- all of it ----

def inherited(facts, name, seen=()):
    """The value of a member that a class has from one that it is based on, which is in the same module; None if it has none."""
    owner, _, member = name.removeprefix('name ').rpartition('.')
    module = owner.rpartition('.')[0]
    for base in facts.get(f'class {owner}', '').split(' | '):
        found = f'name {module}.{base}.{member}'
        value = None if found in seen else facts.get(found) or inherited(facts, found, (*seen, found))
        if value:
            return value
    return None


def is_reserved(old, new, name):
    """Whether this is room that was reserved, of which at most the beginning is in use now. The struct has its size."""
    if not name.startswith('member ') or not name.endswith('.reserved'):
        return False
    return name not in new or extent(old[name])[0] <= extent(new[name])[0] and extent(old[name])[1] == extent(new[name])[1]


def broken(old, new):
    """What breaks programs that rely on the `old` facts: (name, what is wrong), sorted."""
    found = []
    for name, value in old.items():
        kind = name.partition(' ')[0]
        if is_reserved(old, new, name):
            continue
        now = new.get(name) or kind == 'name' and inherited(new, name)
        if not now:
            found.append((name, 'is gone'))
        elif now != value:
            wrong = RULES.get(kind, same)(value, now)
            found += [(name, wrong)] if wrong else []
    for name in new.keys() - old.keys():
        rule = ADDED.get(name.partition(' ')[0])
        wrong = rule and rule(old, new, name, new[name])
        found += [(name, wrong)] if wrong else []
    return sorted(found)


def added(old, new):
    """Names of facts that are new, sorted."""
    return sorted(new.keys() - old.keys())
