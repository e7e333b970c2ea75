// Search: words, all of which must be found in an allocation's stack (names of functions and files) or
// in what the program called it; or its category's name, or its address.

import { sample } from './curves.ts';
import type { Device } from './device.ts';
import type { Names } from './names.ts';

export class Search {
  private frames: { query: string; hit: Uint8Array } | null = null;
  private readonly cache = new WeakMap<Device, { query: string; kinds: Uint8Array }>();

  constructor(private readonly names: Names) {}

  /** For each word, the nodes whose frame, or one above it, contains it. */
  private nodesWith(word: string): Uint8Array {
    const { names } = this;
    const strings = names.strings.map((s) => s.toLowerCase().includes(word));
    const nodes = new Uint8Array(names.parent.length);
    for (let n = 0; n < nodes.length; n++) {
      const frame = names.frame[n]!;
      const up = names.parent[n]!;
      const own = strings[names.frameName[frame]!] || strings[names.frameFile[frame]!];
      nodes[n] = own || (up >= 0 && nodes[up]) ? 1 : 0;
    }
    return nodes;
  }

  /** By node, whether all words are in its stack; the last entry is for no stack at all. */
  private nodes(query: string): Uint8Array {
    if (this.frames?.query === query) return this.frames.hit;
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const hit = new Uint8Array(this.names.parent.length + 1).fill(1);
    for (const word of words) {
      const nodes = this.nodesWith(word);
      for (let n = 0; n < nodes.length; n++) if (!nodes[n]) hit[n] = 0;
      if (!'(no stack recorded)'.includes(word)) hit[nodes.length] = 0;
    }
    this.frames = { query, hit };
    return hit;
  }

  /** Words may be found in the name, in the stack, or some here and some there. */
  private findSaid(device: Device, query: string, kinds: Uint8Array): void {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const nodes = words.map((word) => this.nodesWith(word));
    device.kindSaid.forEach((said, k) => {
      if (said === null || kinds[k]) return;
      const text = said.toLowerCase();
      const node = device.kindNode[k]!;
      if (words.every((word, i) => text.includes(word) || (node >= 0 && nodes[i]![node]))) kinds[k] = 1;
    });
  }

  /** By kind, whether it matches; NULL when nothing is searched for. */
  kinds(device: Device, query: string): Uint8Array | null {
    const text = query.trim();
    if (!text) return null;
    const known = this.cache.get(device);
    if (known?.query === text) return known.kinds;
    const hit = this.nodes(text);
    const kinds = Uint8Array.from(device.kindNode, (n) => hit[n < 0 ? hit.length - 1 : n]!);
    if (device.kindSaid.some((s) => s !== null)) this.findSaid(device, text, kinds);
    const first = device.groupings[0]!;
    const group = first.names.findIndex((n) => n.toLowerCase() === text.toLowerCase());
    if (group >= 0)
      for (let a = 0; a < device.count; a++)
        if (first.group[a] === group) kinds[device.kind[a]!] = 1;
    if (/^0x[0-9a-f]+$/i.test(text)) {
      const address = BigInt(text);
      const id = device.addresses.indexOf(address);
      for (let a = 0; id >= 0 && a < device.count; a++)
        if (device.addressId[a] === id) kinds[device.kind[a]!] = 1;
    }
    this.cache.set(device, { query: text, kinds });
    return kinds;
  }
}

const matchGroups = new WeakMap<Uint8Array, Uint8Array>();

/** Bytes of matching kinds at ascending moments. */
export function matching(device: Device, kinds: Uint8Array, moments: ArrayLike<number>): Float64Array {
  let group = matchGroups.get(kinds);
  if (!group) {
    matchGroups.set(kinds, (group = new Uint8Array(device.count)));
    for (let a = 0; a < device.count; a++) group[a] = kinds[device.kind[a]!]!;
  }
  const both = sample(device, group, 2, moments);
  const out = new Float64Array(moments.length);
  for (let i = 0; i < out.length; i++) out[i] = both[i * 2 + 1]!;
  return out;
}
