#!/usr/bin/env python3
"""embed.py PAGE OUT.c: the page in three parts, as C arrays: `head` up to whom it may ask, `rest` up
to the mark for data, `tail`. The template is named after the page's file."""
import pathlib
import sys

MARK = b'<!--tessera:data-->'
ASKS = b"connect-src 'none'"


def array(name, data):
    lines = []
    for at in range(0, len(data), 40):
        lines.append(','.join(map(str, data[at:at + 40])))
    body = ',\n'.join(lines)
    return f'static const unsigned char {name}[] = {{\n{body}}};\n'


def main(page, out):
    with open(page, 'rb') as file:
        halves = file.read().split(MARK)
    heads = halves[0].split(ASKS)
    if len(halves) != 2 or len(heads) != 2:
        sys.exit(f'{page}: needs one {MARK.decode()} after one {ASKS.decode()}')
    with open(out, 'w', encoding='ascii') as file:
        file.write(f'/* Made by embed.py from viewer/{pathlib.Path(page).name}. */\n#include "page/template.h"\n\n')
        file.write(array('head', heads[0] + b'connect-src ') + array('rest', heads[1]) + array('tail', halves[1]))
        file.write(f'const tsr__template tsr__template_{pathlib.Path(page).stem} = {{\n'
                   'head, rest, tail, sizeof head, sizeof rest, sizeof tail};\n')


if __name__ == '__main__':
    main(*sys.argv[1:])
