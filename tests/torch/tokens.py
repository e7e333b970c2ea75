#!/usr/bin/env python3
"""tokens.py --check [NAME...] | --golden FOLDER: the tokenizers of tessera and those of the package tokenizers, on random texts.

Trains random tokenizers in the layouts of real models, encodes and decodes random texts with both, and compares every token. With
--golden, writes three small tokenizers and what tokenizers makes of a few hundred texts, for tests/unit/test_tokenizer.c. The
library is that of `./run build`.
    --seed N      another set of tokenizers
    --count N     strings in total (default: 100,000; 1,000,000 take some minutes)
"""
import argparse
import ctypes
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = ROOT / 'build/src/libtessera.so'

# ---- tessera's ----


class Text(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('size', ctypes.c_size_t)]


class Error(ctypes.Structure):
    _fields_ = [('status', ctypes.c_int), ('offset', ctypes.c_uint64), ('message', ctypes.c_char * 256)]


class Options(ctypes.Structure):
    _fields_ = [('struct_bytes', ctypes.c_size_t), ('adds_special', ctypes.c_bool), ('threads', ctypes.c_uint),
                ('progress', ctypes.c_void_p), ('context', ctypes.c_void_p)]


WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t)


def load(path):
    """The library, with the types of what is called."""
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library = ctypes.CDLL(str(path))
    library.tsr_tokenizer_read.argtypes = [ctypes.c_char_p, size, pointer, pointer]
    library.tsr_tokenizer_free.argtypes = library.tsr_token_decoder_free.argtypes = [pointer]
    library.tsr_tokenizer_encode.argtypes = [pointer, ctypes.c_char_p, size, pointer, WRITE, pointer, pointer]
    library.tsr_token_decoder_new.argtypes = [pointer, ctypes.c_bool]
    library.tsr_token_decoder_new.restype = pointer
    library.tsr_token_decoder_put.argtypes = [pointer, ctypes.c_uint32, pointer, pointer]
    library.tsr_token_decoder_finish.argtypes = [pointer, pointer, pointer]
    return library


class Ours:
    """A tokenizer of tessera's."""

    def __init__(self, library, text):
        self.library, self.error, self.pointer = library, Error(), ctypes.c_void_p()
        data = text.encode()
        if library.tsr_tokenizer_read(data, len(data), ctypes.byref(self.pointer), ctypes.byref(self.error)):
            raise ValueError(self.error.message.decode())

    def __del__(self):
        self.library.tsr_tokenizer_free(self.pointer)

    def encode(self, text, adds_special, threads=0):
        ids = []

        def write(_context, items, count):
            ids.extend(items[:count])
            return 0
        data = text.encode()
        options = Options(ctypes.sizeof(Options), adds_special, threads, None, None)
        if self.library.tsr_tokenizer_encode(self.pointer, data, len(data), ctypes.byref(options), WRITE(write), None,
                                             ctypes.byref(self.error)):
            raise ValueError(self.error.message.decode())
        return ids

    def decode(self, ids, skips_special):
        """The text, put together of what is complete after each token."""
        decoder, out, text = self.library.tsr_token_decoder_new(self.pointer, skips_special), Text(), ''
        for token in ids:
            self.library.tsr_token_decoder_put(decoder, token, ctypes.byref(out), ctypes.byref(self.error))
            text += ctypes.string_at(out.data, out.size).decode()
        self.library.tsr_token_decoder_finish(decoder, ctypes.byref(out), ctypes.byref(self.error))
        text += ctypes.string_at(out.data, out.size).decode()
        self.library.tsr_token_decoder_free(decoder)
        return text


# ---- random texts ----

WORDS = ("the quick brown fox can't won't I'll we've they're He'S it'D naïve café straße Ünïcödé привет мир 你好世界 こんにちは "
         'カタカナ 안녕하세요 שלום مرحبا ไทย हिन्दी 123 3.14 1,000,000 2024 <html> </div> foo_bar x==y && || {} [] ... — … “quoted” 😀 '
         "👨‍👩‍👧‍👦 🇩🇪 e\u0301 n\u0303 ʼn ſ 'ſ 'ſs \u212a ﬁ ΐ \U0001f1e9 \u1100\u1161\u11a8").split()
SPACES = [' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', '\u00a0', '\u3000', '\u2009', '\u0085', '\u180e', '\u200b', '\x0b', '\x0c',
          '\u2028', ' \n ', '    \n', '\u1680']


def character(r):
    """One of any plane, with those that texts have more often than others."""
    k = r.random()
    if k < 0.5:
        return chr(r.choice([r.randrange(32, 127), r.randrange(32, 127), r.randrange(0x300), r.randrange(0x300, 0x370)]))
    limit = 0x3000 if k < 0.75 else 0x10000 if k < 0.85 else 0x110000
    code = r.randrange(0x1F000, 0x1FB00) if 0.95 > k >= 0.85 else r.randrange(limit)
    return chr(code) if not 0xD800 <= code < 0xE000 else character(r)


def part(r, names):
    """A few characters."""
    k = r.random()
    if k < 0.35:
        return r.choice(WORDS)
    if k < 0.6:
        return r.choice(SPACES) if r.random() < 0.4 else ' '
    if k < 0.7:
        return ''.join(character(r) for _ in range(r.randrange(1, 4)))
    if k < 0.75:
        return str(r.randrange(10**r.randrange(1, 12)))
    if k < 0.8:
        return r.choice(["'s", "'S", "'ll", "'LL", "'Re", "'ſ", "n't", "'", "''"])
    if k < 0.85:
        return r.choice('▁<>0x') * r.randrange(1, 5)
    if k < 0.9 and names:
        return r.choice(names) if r.random() < 0.8 else r.choice(names)[:-1]
    if k < 0.93:
        return r.choice(['<0x0A>', '<0xFF>', '▁▁', '<unk>'])
    if k < 0.97:
        return r.choice('abcdefghijklmnop') * r.randrange(1, 9)
    return ''.join(r.choice('aeiou stnr') for _ in range(r.randrange(1, 20)))


def text_of(r, most, names=()):
    return ''.join(part(r, names) for _ in range(r.randrange(most + 1)))


def long_text(r, names):
    """More than one thread takes at a time, with runs that have no place to divide them at."""
    parts, size = [], 0
    while size < 1200000:
        run = r.choice([' ' * r.randrange(1, 300000), '1234567890' * r.randrange(1, 20000), 'a' * r.randrange(1, 100000),
                        '\n ' * r.randrange(1, 50000), 'abc def ' * r.randrange(1, 30000), '你' * r.randrange(1, 50000),
                        'e\u0301' * r.randrange(1, 20000), *(text_of(r, 3000, names) for _ in range(7))])
        parts.append(run)
        size += len(run.encode())
    return ''.join(parts)


# ---- random tokenizers ----

CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r' ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
PATTERNS = {
    'llama3': CASES + r'|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|' + REST,
    'qwen': CASES + r'|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|' + REST,
    'gpt4': r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    'gpt4o': (r'[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+' + CASES +
              r'?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*' + CASES +
              r'?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+'),
    'deepseek': (r'[!"#$%&' + r"'" + r'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|'
                 r' ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'),
}
LAYOUTS = ['gpt2', 'llama3', 'qwen', 'llama2', 'metaspace', 'gemma', 'deepseek', 'digits', 'gpt4o', 'gpt4', 'plain']
LIKE_SENTENCEPIECE = ('llama2', 'metaspace', 'gemma', 'plain')
ADDED = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<s>', '</s>', '<pad>', '[X]', 'word', 'naïve', 'foo bar', ' sp', 'sp ', 'e\u0301',
         '\u00e9t', '▁tok', '<|a|>', '<|a|>b', '123', 'ß', '\n\n']


def maybe(r, share=0.5):
    return r.random() < share


def state(value):
    """A part of a tokenizer as JSON."""
    return json.loads(value.__getstate__()) if value else None


def split(r, pattern):
    if maybe(r, 0.7):
        return pre_tokenizers.Split(Regex(pattern), 'isolated')
    return pre_tokenizers.Split(Regex(pattern), 'removed', invert=True)


def pre_tokenizer(r, layout):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=maybe(r, 0.3), use_regex=layout in ('gpt2', 'digits'))
    if layout == 'gpt2':
        return byte_level
    if layout == 'digits':
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=maybe(r)), byte_level])
    if layout == 'deepseek':
        splits = [split(r, r'\p{N}{1,3}'), pre_tokenizers.Split(Regex('[一-龥぀-ゟ゠-ヿ]+'), 'isolated'), split(r, PATTERNS[layout])]
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r'\p{N}{1,3}'), 'isolated'), *splits[1:], byte_level])
    if layout in PATTERNS:
        return pre_tokenizers.Sequence([split(r, PATTERNS[layout]), byte_level])
    if layout == 'gemma':
        return pre_tokenizers.Split(' ', r.choice(['merged_with_previous', 'merged_with_next', 'contiguous', 'isolated', 'removed']))
    if layout == 'metaspace':
        return pre_tokenizers.Metaspace(prepend_scheme=r.choice(['always', 'never', 'first']), split=maybe(r))
    return None


def normalizer(r, layout):
    if layout == 'qwen':
        return normalizers.NFC()
    if layout == 'llama2':
        return normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    if layout == 'gemma' or (layout == 'plain' and maybe(r)):
        return normalizers.Replace(' ', '▁')
    return None


def decoder(r, layout):
    if layout not in LIKE_SENTENCEPIECE:
        return None if maybe(r, 0.1) else decoders.ByteLevel()
    steps = [decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse()]
    return r.choice([decoders.Sequence([*steps, decoders.Strip(' ', 1, 0)]), decoders.Sequence(steps), None,
                     decoders.Metaspace(prepend_scheme=r.choice(['always', 'never', 'first']))])


def train(r, layout, size):
    """The model, as JSON: trained on random texts."""
    is_bytes = layout not in LIKE_SENTENCEPIECE
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(r, layout) if is_bytes else pre_tokenizers.Metaspace()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options = {'initial_alphabet': alphabet[:-r.randrange(1, 200)] if maybe(r, 0.15) else alphabet} if is_bytes else {
        'limit_alphabet': r.randrange(40, 200)}
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, max_token_length=r.choice([None, 8]), **options)
    tokenizer.train_from_iterator([text_of(r, 60).replace('\0', '') for _ in range(60)], trainer)
    return json.loads(tokenizer.to_str())['model']


def add_bytes(r, model):
    """What SentencePiece puts in front of the vocabulary."""
    first = {}
    if maybe(r, 0.8):
        model['unk_token'] = '<unk>'
        first['<unk>'] = 0
    if maybe(r, 0.8):
        model['byte_fallback'] = True
        for byte in range(256):
            if maybe(r, 0.98):
                first[f'<0x{byte:02X}>'] = len(first)
    words = [*first, *sorted((word for word in model['vocab'] if word not in first), key=model['vocab'].get)]
    model['vocab'] = {word: i for i, word in enumerate(words)}
    model['fuse_unk'] = maybe(r)


def make(r, layout, size):
    """A tokenizer.json, and the texts of its added tokens."""
    model = train(r, layout, size)
    if layout in LIKE_SENTENCEPIECE:
        add_bytes(r, model)
    model['ignore_merges'] = maybe(r, 0.4)
    tokenizer = Tokenizer.from_str(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': [], 'normalizer': state(normalizer(r, layout)),
        'pre_tokenizer': state(pre_tokenizer(r, layout)), 'post_processor': None, 'decoder': state(decoder(r, layout)), 'model': model}))
    added = [AddedToken(name, single_word=maybe(r, 0.25), lstrip=maybe(r, 0.3), rstrip=maybe(r, 0.3), normalized=maybe(r),
                        special=maybe(r)) for name in r.sample(ADDED, r.randrange(9))]
    if any(token.rstrip for token in added):  # tokenizers fails at a token that begins in the white space of the one before
        added = [token for token in added if not token.content[0].isspace()]
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if maybe(r):
        first = tokenizer.id_to_token(0)
        template = processors.TemplateProcessing(single=[first, '$A', first] if maybe(r) else [first, '$A'], special_tokens=[(first, 0)])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template]) if maybe(r) else template
    whole = json.loads(tokenizer.to_str())
    if maybe(r):  # as older versions write merges
        whole['model']['merges'] = [' '.join(pair) for pair in whole['model']['merges'] if not any(' ' in side for side in pair)]
    return json.dumps(whole, ensure_ascii=False), [token.content for token in added]


# ---- comparing ----

def compare(ours, theirs, r, names, count):
    """The first difference in a number of texts, or None."""
    for _ in range(count):
        text, adds_special, skips_special = text_of(r, r.choice([3, 10, 40]), names), maybe(r), maybe(r)
        ids = theirs.encode(text, add_special_tokens=adds_special).ids
        mine = ours.encode(text, adds_special)
        if mine != ids:
            return f'{text!r}: {ids} is {mine}'
        if maybe(r):
            ids = [r.randrange(theirs.get_vocab_size() + 3) for _ in range(r.randrange(12))]
        if ours.decode(ids, skips_special) != theirs.decode(ids, skip_special_tokens=skips_special):
            return f'{ids}: {theirs.decode(ids, skip_special_tokens=skips_special)!r} is {ours.decode(ids, skips_special)!r}'
    return None


def compare_long(ours, theirs, r, names):
    text = long_text(r, names)
    ids = theirs.encode(text, add_special_tokens=False).ids
    return None if all(ours.encode(text, False, threads) == ids for threads in (1, 2, 5)) else 'a long text, by threads'


def check(names, seed, count):
    if not LIBRARY.exists():
        print('ok 1 - tokenizers # SKIP ./run build makes the library')
        return
    library, each = load(LIBRARY), 250
    layouts = [layout for layout in LAYOUTS if not names or layout in names]
    for number, layout in enumerate(layouts, 1):
        wrong = None
        for i in range(max(1, count // each // len(layouts))):
            r = random.Random(f'{seed} {layout} {i}')
            text, added = make(r, layout, r.randrange(300, 1500))
            ours, theirs = Ours(library, text), Tokenizer.from_str(text)
            wrong = wrong or compare(ours, theirs, r, added, each) or (compare_long(ours, theirs, r, added) if i < 2 else None)
        print(f'{"not " if wrong else ""}ok {number} - {layout}' + (f'\n# {wrong}' if wrong else ''), flush=True)
    print(f'1..{len(layouts)}')


# ---- golden files ----

def golden(folder):
    for layout in ('gpt2', 'qwen', 'llama2'):
        r = random.Random(layout)
        text, added = make(r, layout, 560)
        tokenizer = Tokenizer.from_str(text)
        cases = []
        while len(cases) < 150:
            case = text_of(r, r.choice([3, 10, 25]), added)
            ids = tokenizer.encode(case).ids
            cases.append([case, ids, tokenizer.decode(ids, skip_special_tokens=False)])
        (folder / f'{layout}.json').write_text(text + '\n', encoding='utf-8')
        lines = ',\n'.join(json.dumps(case, separators=(',', ':')) for case in cases)
        (folder / f'{layout}.cases.json').write_text(f'[{lines}]\n', encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--golden', type=Path)
    parser.add_argument('--seed', default='1')
    parser.add_argument('--count', type=int, default=100000)
    parser.add_argument('names', nargs='*', metavar='LAYOUT')
    given = parser.parse_args()
    if given.golden:
        golden(given.golden)
    else:
        check(given.names, given.seed, given.count)


if __name__ == '__main__':
    main()
