"""many_modules.py: step graphs of many modules, for tests of how work grows.

    python3 many_modules.py COUNT FORM FILE

FORM is one of FORMS: `flat`, items of one list; `nested`, items of thirty parts each; `deep`, each within the one before; `classes`,
items of as many classes; `names`, names without numbers. Each module saves one tensor of 4 MiB, which backward frees."""
import json
import pathlib
import sys

FORMS = ('flat', 'nested', 'deep', 'classes', 'names')
PARTS, SAVED_BYTES = 30, 4 << 20


class Graph:
    """A step under way: `saves` are slots, and the places at which they are made."""

    def __init__(self):
        self.texts = ['at::_ops::mm::call', '??', 'step', 'train.py']
        self.bytes, self.categories = [1024], ['parameter']
        self.instructions, self.saves, self.modules = [['begin', 0], ['begin', 2]], [], []

    def text(self, value):
        self.texts.append(value)
        return len(self.texts) - 1

    def new(self, size, category):
        self.bytes.append(size)
        self.categories.append(category)
        self.instructions.append(['new', len(self.bytes) - 1, 0])
        return len(self.bytes) - 1

    def enter(self, name, kind):
        module = [self.text(name), self.text(kind), len(self.instructions), 0, len(self.saves), 0, []]
        self.modules.append(module)
        return module

    def leave(self, module):
        module[3], module[5] = len(self.instructions), len(self.saves)

    def save(self):
        slot = self.new(SAVED_BYTES, 'activation')
        self.saves.append((slot, len(self.instructions)))

    def add(self, name, kind):
        module = self.enter(name, kind)
        self.save()
        self.leave(module)

    def whole(self):
        self.instructions += [['end', 2], ['begin', 3]]
        saved = []
        for slot, made in reversed(self.saves):
            used = len(self.instructions)
            gradient = self.new(512, 'gradient')
            self.instructions += [['drop', gradient], ['drop', slot]]
            gone = len(self.instructions) - 1
            saved.append([slot, SAVED_BYTES, made, used, gone, gone])
        self.instructions += [['end', 3], ['begin', 4], ['end', 4], ['end', 0]]
        return {'schema': 'tessera-step/1', 'torch': '2.9.1', 'gpu': 'a100', 'parameters': 256, 'optimizer': '',
                'phases': ['step', 'zero_grad', 'forward', 'backward', 'optimizer'], 'texts': self.texts,
                'frames': [[0, 1, 0], [2, 3, 12]], 'stacks': [[0, 1]], 'static': 1,
                'slots': {'bytes': self.bytes, 'category': self.categories}, 'instructions': self.instructions,
                'saved': saved[::-1], 'unheld': [list(save) for save in self.saves], 'modules': self.modules}


def graph(count, form):
    g = Graph()
    if form == 'deep':
        modules = []
        for i in range(count):
            modules.append(g.enter(f'm{i}', 'Block'))
            g.save()
        for module in modules:
            g.leave(module)
    elif form == 'nested':
        for i in range(count // PARTS):
            module = g.enter(f'layers.{i}', 'Block')
            for k in range(PARTS - 1):
                g.add(f'layers.{i}.part{k}', 'Part')
            g.leave(module)
    else:
        for i in range(count):
            g.add(f'layer_{i}x' if form == 'names' else f'layers.{i}', f'C{i}' if form == 'classes' else 'Block')
    return g.whole()


def write(count, form, path):
    pathlib.Path(path).write_text(json.dumps(graph(count, form), separators=(',', ':')), encoding='utf-8')


if __name__ == '__main__':
    write(int(sys.argv[1]), *sys.argv[2:4])
