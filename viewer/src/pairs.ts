// Stacks of two files that are the same although lines or paths moved, as `tessera diff` matches them.
// Equal stacks are one node already. The column is described in src/page/pairs.c.

import type { Columns } from './decode.ts';

export class Pairs {
  // By the two inputs: for each of them, the class of a node.
  private readonly classes = new Map<string, [Map<number, number>, Map<number, number>]>();

  constructor(columns: Columns) {
    const reader = columns.reader('pairs');
    while (!reader.ended) {
      const key = `${reader.number()} ${reader.number()}`;
      const sides: [Map<number, number>, Map<number, number>] = [new Map(), new Map()];
      for (const side of sides)
        for (let left = reader.number(); left > 0; left--) {
          const node = reader.number();
          const number = reader.number();
          if (!side.has(node)) side.set(node, number);
        }
      this.classes.set(key, sides);
    }
  }

  /** The classes of an input's nodes that moved, against another input. */
  of(input: number, other: number): Map<number, number> | null {
    const sides = this.classes.get(input < other ? `${input} ${other}` : `${other} ${input}`);
    return sides ? sides[input < other ? 0 : 1] : null;
  }
}
