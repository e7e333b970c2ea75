// Frames and stacks: a tree of frames, shared by all files of the page.

import type { Columns } from './decode.ts';
import { baseName, clean } from './format.ts';

/** Whose code a frame is, in the order of include/tessera/unstable/frames.h. */
export const USER = 0;
export const LIBRARY = 1;
export const TORCH = 2;
export const NATIVE = 3;
export const PYTHON = 4;

// What tells most of a stack that is all C++: the node of autograd, and the operators.
const TELLING = /autograd::generated::\w+::apply|at::_ops::\w+::|AccumulateGrad|Engine::thread_main/;

/** A C++ name without its namespaces, templates and arguments. */
function shorten(name: string): string {
  const op = /at::_ops::(\w+)::/.exec(name) ?? /autograd::generated::(\w+)::apply/.exec(name);
  if (op) return op[1]!;
  let plain = '';
  let depth = 0;
  for (const c of name.replace(/\(anonymous namespace\)::/g, '')) {
    if (c === '(' && !depth) break;
    if (c === '<') depth++;
    else if (c === '>') depth = Math.max(0, depth - 1);
    else if (!depth) plain += c;
  }
  return plain.split('::').slice(-2).join('::') || name;
}

/** Kinds of places that a stack has, as keys of groupings. */
export const PLACES = ['op', 'module', 'line'] as const;
export type Place = (typeof PLACES)[number];

/** What memory without a stack is called. */
export function unnamed(isOlder: boolean): string {
  return isOlder ? '(before the recording)' : '(no stack recorded)';
}

export class Names {
  readonly strings: string[];
  readonly parent: Int32Array;
  readonly frame: Uint32Array;
  readonly frameName: number[] = [];
  readonly frameFile: number[] = [];
  readonly frameLine: number[] = [];
  readonly frameOrigin: number[] = [];
  // By node: 0, or 1 + the string that the stack ending there is called; by kind of place the same.
  private readonly labels: number[] = [];
  private readonly places = new Map<string, number[]>();
  private readonly shown = new Map<number, number[]>();

  constructor(columns: Columns) {
    const text = new TextDecoder().decode(columns.bytes('strings'));
    this.strings = (text ? (JSON.parse(text) as string[]) : []).map(clean);
    const parents: number[] = [];
    const frames: number[] = [];
    const nodes = columns.reader('nodes');
    while (!nodes.ended) {
      const up = nodes.number();
      parents.push(up ? parents.length - up : -1);
      frames.push(nodes.number());
    }
    const labels = columns.reader('labels');
    while (!labels.ended) this.labels.push(labels.number());
    for (const kind of PLACES) {
      const places = columns.reader(`place.${kind}`);
      const list: number[] = [];
      while (!places.ended) list.push(places.number());
      if (list.length) this.places.set(kind, list);
    }
    this.parent = Int32Array.from(parents);
    this.frame = Uint32Array.from(frames);
    const reader = columns.reader('frames');
    while (!reader.ended) {
      this.frameName.push(reader.number());
      this.frameFile.push(reader.number());
      this.frameLine.push(reader.number() - 1);
      this.frameOrigin.push(reader.number());
    }
  }

  name(frame: number): string {
    return this.strings[this.frameName[frame]!] || '(no name)';
  }

  /** The name as lists show it. */
  brief(frame: number): string {
    const name = this.name(frame);
    return this.frameOrigin[frame]! >= NATIVE && name.includes('::') ? shorten(name) : name;
  }

  file(frame: number): string {
    return this.strings[this.frameFile[frame]!] ?? '';
  }

  /** "model.py:434". */
  place(frame: number): string {
    const file = baseName(this.file(frame));
    if (file === '??') return '';
    const line = this.frameLine[frame]!;
    return line > 0 ? `${file}:${line}` : file;
  }

  /** "/home/me/model.py:434". */
  path(frame: number): string {
    const line = this.frameLine[frame]!;
    return line > 0 ? `${this.file(frame)}:${line}` : this.file(frame);
  }

  /** Frames of a stack, outermost first. */
  frames(node: number): number[] {
    const out: number[] = [];
    for (let at = node; at >= 0; at = this.parent[at]!) out.push(this.frame[at]!);
    return out.reverse();
  }

  /** The frames worth showing: the program's own and the layer of a library that it called, else a
   * library's, else torch's, else all; as the command line shows them (src/emit/stacks.c). */
  own(node: number): number[] {
    const known = this.shown.get(node);
    if (known) return known;
    const all = this.frames(node);
    let out = all;
    for (const most of [USER, LIBRARY, TORCH, NATIVE, PYTHON]) {
      let some = all.filter((f) => this.frameOrigin[f]! <= most);
      if (most === NATIVE) {
        const telling = some.filter((f) => TELLING.test(this.name(f)));
        // An operator is called, then dispatched again: once is enough.
        if (telling.length) some = telling.filter((f, i) => !i || this.brief(f) !== this.brief(telling[i - 1]!));
      }
      if (some.length) {
        out = most === USER ? [...some, ...this.layer(all)] : some;
        break;
      }
    }
    this.shown.set(node, out);
    return out;
  }

  /** The innermost frame of a library inside the program's own: with a framework in between it is
   * the only one that names the layer. */
  private layer(all: number[]): number[] {
    for (let i = all.length; i--; ) {
      const origin = this.frameOrigin[all[i]!]!;
      if (origin === USER) break;
      if (origin === LIBRARY) return [all[i]!];
    }
    return [];
  }

  /** What lists call a stack, as every other report of tessera does (src/attribution/labels.h). `isOlder`: of memory
   * from before the recording. */
  label(node: number, isOlder = false): string {
    return node < 0 ? unnamed(isOlder) : (this.strings[this.labels[node]! - 1] ?? '(empty stack)');
  }

  /** The operation, module or line of a stack, as `tessera profile` groups by it. */
  placeOf(kind: Place, node: number): string {
    return node < 0 ? unnamed(false) : (this.strings[this.places.get(kind)?.[node]! - 1] ?? '(empty stack)');
  }

  /** The whole stack as text, outermost first. */
  text(node: number): string {
    return this.frames(node)
      .map((f) => `${this.name(f)}  ${this.path(f)}`)
      .join('\n');
  }
}
