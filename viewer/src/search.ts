// Search: words, all of which must be found in an allocation's stack (names of functions and files, or
// "file.py:12"), in what the program called it, or in the annotations and metadata around it; or its category's
// name, or its address, or a size: ">16MiB", "<=512". A | between words separates alternatives: "softmax | norm forward".

import type { Device } from './device.ts';
import { type Names, unnamed } from './names.ts';

/** Alternatives, each a list of words. */
function alternatives(query: string): string[][] {
  return query.toLowerCase().split('|').map((part) => part.split(/\s+/).filter(Boolean)).filter((words) => words.length);
}

const UNITS = ['b', 'k', 'm', 'g', 't'];

/** Of a word such as ">16MiB" or "<=1gb", which sizes it means; else null. KiB are binary, kB are decimal. */
function sizeTest(word: string): ((bytes: number) => boolean) | null {
  const [, sign, number, unit, binary] = /^([<>]=?)(\d+(?:\.\d*)?)(?:([kmgt]?)(i?)b?)$/.exec(word) ?? [];
  if (!sign) return null;
  const isDecimal = /[kmgt]b$/.test(word);
  const limit = Number(number) * (isDecimal && !binary ? 1000 : 1024) ** Math.max(0, UNITS.indexOf(unit || 'b'));
  return sign === '>' ? (b) => b > limit : sign === '>=' ? (b) => b >= limit : sign === '<' ? (b) => b < limit : (b) => b <= limit;
}

export class Search {
  private readonly wordNodes = new Map<string, Uint8Array>();
  private readonly cache = new WeakMap<Device, { key: string; found: Uint8Array | null }>();

  constructor(private readonly names: Names) {}

  /** The nodes whose frame, or one above it, contains a word. */
  private nodesWith(word: string): Uint8Array {
    const known = this.wordNodes.get(word);
    if (known) return known;
    const { names } = this;
    const strings = names.strings.map((s) => s.toLowerCase().includes(word));
    const isPlace = /[^:]:\d+$/.test(word);
    const frames = Uint8Array.from(names.frameName, (name, f) =>
      strings[name] || strings[names.frameFile[f]!] || (isPlace && names.place(f).toLowerCase().endsWith(word)) ? 1 : 0);
    const nodes = new Uint8Array(names.parent.length);
    for (let n = 0; n < nodes.length; n++) {
      const up = names.parent[n]!;
      nodes[n] = frames[names.frame[n]!] || (up >= 0 && nodes[up]) ? 1 : 0;
    }
    if (this.wordNodes.size > 20) this.wordNodes.clear();
    this.wordNodes.set(word, nodes);
    return nodes;
  }

  /** By allocation, whether a word is found. */
  private withWord(device: Device, word: string): Uint8Array {
    const isSize = sizeTest(word);
    if (isSize) {
      const kinds = device.kindRequested.map((bytes) => (isSize(bytes) ? 1 : 0));
      return Uint8Array.from(device.kind, (kind) => kinds[kind]!);
    }
    const nodes = this.nodesWith(word);
    const kinds = Uint8Array.from(device.kindNode, (node, k) =>
      (node >= 0 && nodes[node]) || device.kindSaid[k]?.toLowerCase().includes(word) ? 1 : 0);
    const found = Uint8Array.from(device.kind, (kind) => kinds[kind]!);
    const [isBare, isOld] = [unnamed(false).includes(word), unnamed(true).includes(word)];
    if (isBare || isOld)
      for (let a = 0; a < device.count; a++) if (device.node(a) < 0 && (device.isOlder(a) ? isOld : isBare)) found[a] = 1;
    for (const range of device.ranges)
      if ((range.kind === 'annotation' || range.kind === 'metadata') && range.name.toLowerCase().includes(word)) {
        const [from, to] = device.madeIn(range.born, range.died);
        found.fill(1, from, to);
      }
    return found;
  }

  private find(device: Device, words: string[], found: Uint8Array): void {
    const all = words.map((word) => this.withWord(device, word));
    const category = device.groupings[0]!;
    const group = category.names.findIndex((n) => n.toLowerCase() === words.join(' '));
    const address = words.length === 1 && /^0x[0-9a-f]+$/.test(words[0]!) ? device.addresses.indexOf(BigInt(words[0]!)) : -1;
    for (let a = 0; a < device.count; a++)
      if (category.group[a] === group || device.addressId[a] === address || all.every((hit) => hit[a])) found[a] = 1;
  }

  /** By allocation, whether it is found, and is of the finding with such a rule unless that is ''. NULL if nothing
   * is asked for. */
  matches(device: Device, query: string, rule: string): Uint8Array | null {
    const key = `${rule} ${query.trim()}`;
    const known = this.cache.get(device);
    if (known?.key === key) return known.found;
    const wanted = alternatives(query);
    let found: Uint8Array | null = null;
    if (wanted.length) {
      found = new Uint8Array(device.count);
      for (const words of wanted) this.find(device, words, found);
    }
    const finding = device.findingRows(rule);
    if (finding) {
      const all = found;
      found = new Uint8Array(device.count);
      for (const row of finding) {
        const a = device.indexOf(row);
        if (a >= 0 && (!all || all[a])) found[a] = 1;
      }
    }
    this.cache.set(device, { key, found });
    return found;
  }
}
