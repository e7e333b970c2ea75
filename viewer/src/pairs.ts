// Stacks and lines of two files that are the same although they moved, as `tessera diff` matches them.
// Equal stacks are one node already, and equal lines have one name. The columns are described in
// src/page/pairs.c.

import type { Columns, Reader } from './decode.ts';
import type { Names } from './names.ts';

type Sides<Key, Row> = [Map<Key, Row>, Map<Key, Row>];

function read<Key, Row>(reader: Reader, keyOf: (n: number) => Key, rowOf: (n: number) => Row): Map<string, Sides<Key, Row>> {
  const out = new Map<string, Sides<Key, Row>>();
  while (!reader.ended) {
    const name = `${reader.number()} ${reader.number()}`;
    const sides: Sides<Key, Row> = [new Map(), new Map()];
    for (const side of sides)
      for (let left = reader.number(); left > 0; left--) {
        const key = keyOf(reader.number());
        const row = rowOf(reader.number());
        if (!side.has(key)) side.set(key, row);
      }
    out.set(name, sides);
  }
  return out;
}

function sideOf<Key, Row>(all: Map<string, Sides<Key, Row>>, one: number, other: number): Map<Key, Row> | null {
  const sides = all.get(one < other ? `${one} ${other}` : `${other} ${one}`);
  return sides ? sides[one < other ? 0 : 1] : null;
}

/** What of one side moved: rows of nodes, and of lines. */
export interface Moved {
  stacks: Map<number, number> | null;
  lines: Map<string, string> | null;
}

export class Pairs {
  private readonly stacks: Map<string, Sides<number, number>>; // by inputs
  private readonly lines: Map<string, Sides<string, string>>; // by tracks

  constructor(columns: Columns, names: Names) {
    const text = (n: number) => names.strings[n] ?? '';
    this.stacks = read(columns.reader('pairs'), (n) => n, (n) => n);
    this.lines = read(columns.reader('lines'), text, text);
  }

  /** What moved in a track, against another one. */
  of(track: { index: number; head: { input: number } }, other: { index: number; head: { input: number } }): Moved {
    return { stacks: sideOf(this.stacks, track.head.input, other.head.input), lines: sideOf(this.lines, track.index, other.index) };
  }
}
