// Groupings that the page makes itself, from stacks: the largest stacks, the functions of the
// program that allocated, and the sizes of blocks. What is only told in sums is a group of its own.

import type { Device, Grouping } from './device.ts';
import { size } from './format.ts';

export const MADE: { key: string; title: string }[] = [
  { key: 'stack', title: 'stack' },
  { key: 'function', title: 'function' },
  { key: 'size', title: 'size' },
];

const MOST = 14;
const made = new WeakMap<Device, Map<string, Grouping>>();

export function groupingOf(device: Device, key: string): Grouping {
  if (!MADE.some((m) => m.key === key)) return device.grouping(key);
  let known = made.get(device);
  if (!known) made.set(device, (known = new Map()));
  let grouping = known.get(key);
  if (!grouping) known.set(key, (grouping = make(device, key)));
  return grouping;
}

export function groupingsOf(device: Device): { key: string; title: string }[] {
  return [...device.groupings.map((g) => ({ key: g.key, title: g.title })), ...MADE];
}

function make(device: Device, key: string): Grouping {
  return key === 'size' ? bySize(device) : byStack(device, key === 'function');
}

/** Names of the groups and the group of each kind, to a grouping with the rest as a last group. */
function finish(device: Device, key: string, names: string[], ofKind: Uint8Array): Grouping {
  const group = new Uint8Array(device.count);
  for (let a = 0; a < device.count; a++) group[a] = ofKind[device.kind[a]!]!;
  const grouping: Grouping = {
    key,
    title: MADE.find((m) => m.key === key)!.title,
    names,
    group,
    restHigh: null,
    restLow: null,
  };
  if (!device.hasRest) return grouping;
  names.push('(smaller blocks)');
  const buckets = device.high.length;
  const first = device.groupings[0]!;
  const sum = (from: Float64Array) => {
    const out = new Float64Array(names.length * buckets);
    const last = (names.length - 1) * buckets;
    for (let g = 0; g < first.names.length; g++)
      for (let b = 0; b < buckets; b++) out[last + b]! += from[g * buckets + b]!;
    return out;
  };
  grouping.restHigh = sum(first.restHigh!);
  grouping.restLow = sum(first.restLow!);
  return grouping;
}

function byStack(device: Device, byFunction: boolean): Grouping {
  const { names } = device;
  const keyOf = (node: number): string => {
    if (node < 0) return '(no stack recorded)';
    if (!byFunction) return String(node);
    const own = names.own(node);
    const frame = own[own.length - 1]!;
    return `${names.brief(frame)}  ${names.place(frame).replace(/:\d+$/, '')}`;
  };
  const keys = Array.from(device.kindNode, keyOf);
  // The groups are those that hold most at the peak, then those that hold most at any time.
  const weight = new Map<string, number>();
  for (const a of device.live(device.head.peak)) {
    const key = keys[device.kind[a]!]!;
    weight.set(key, (weight.get(key) ?? 0) + device.requested(a));
  }
  device.kindNode.forEach((_, kind) => {
    const key = keys[kind]!;
    weight.set(key, (weight.get(key) ?? 0) + device.kindRequested[kind]! * 1e-3);
  });
  const order = [...weight].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  const place = new Map(order.slice(0, MOST).map((key, i) => [key, i]));
  const groups = order
    .slice(0, MOST)
    .map((key) => (byFunction || key.startsWith('(') ? key : names.label(Number(key))));
  if (order.length > MOST) groups.push(byFunction ? '(other functions)' : '(other stacks)');
  const ofKind = Uint8Array.from(keys, (key) => place.get(key) ?? MOST);
  return finish(device, byFunction ? 'function' : 'stack', groups, ofKind);
}

function bySize(device: Device): Grouping {
  const limits = [4096, 65536, 1 << 20, 10 << 20, 100 << 20, 1 << 30];
  const names = limits.map((l, i) => (i ? `${size(limits[i - 1]!)} to ${size(l)}` : `below ${size(l)}`));
  names.push(`from ${size(limits[limits.length - 1]!)}`);
  const ofKind = Uint8Array.from(device.kindRequested, (bytes) => {
    const at = limits.findIndex((l) => bytes < l);
    return at < 0 ? limits.length : at;
  });
  return finish(device, 'size', names, ofKind);
}
