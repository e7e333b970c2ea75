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

/** What groups there are, and which one a kind is in: of a track, and the same for all its parts. */
interface Plan {
  names: string[];
  groupOf: (device: Device) => Uint8Array; // by kind
}

const made = new WeakMap<Device, Map<string, Grouping>>();
const plans = new WeakMap<Device, Map<string, Plan>>();

function remember<T>(cache: WeakMap<Device, Map<string, T>>, device: Device, key: string, make: () => T): T {
  let known = cache.get(device);
  if (!known) cache.set(device, (known = new Map()));
  let value = known.get(key);
  if (value === undefined) known.set(key, (value = make()));
  return value;
}

export function groupingOf(device: Device, key: string): Grouping {
  if (!MADE.some((m) => m.key === key)) return device.grouping(key);
  return remember(made, device, key, () => {
    const track = device.track ?? device;
    const plan = remember(plans, track, key, () => (key === 'size' ? bySize() : byStack(track, key === 'function')));
    return finish(device, track, key, plan);
  });
}

export function groupingsOf(device: Device): { key: string; title: string }[] {
  return [...device.groupings.map((g) => ({ key: g.key, title: g.title })), ...MADE];
}

/** A device's grouping by a plan; what is only told in sums is a last group. */
function finish(device: Device, track: Device, key: string, plan: Plan): Grouping {
  const ofKind = plan.groupOf(device);
  const group = new Uint8Array(device.count);
  for (let a = 0; a < device.count; a++) group[a] = ofKind[device.kind[a]!]!;
  const names = track.hasRest ? [...plan.names, '(smaller blocks)'] : plan.names;
  const title = MADE.find((m) => m.key === key)!.title;
  const grouping: Grouping = { key, title, names, group, restHigh: null, restLow: null };
  if (!device.hasRest) return grouping;
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

/** The groups are those that hold most at the track's peak, then those of the largest blocks. */
function byStack(track: Device, byFunction: boolean): Plan {
  const { names } = track;
  const keyOf = (node: number): string => {
    if (node < 0) return '(no stack recorded)';
    if (!byFunction) return String(node);
    const own = names.own(node);
    const frame = own[own.length - 1]!;
    return `${names.brief(frame)}  ${names.place(frame).replace(/:\d+$/, '')}`;
  };
  const keys = Array.from(track.kindNode, keyOf);
  const weight = new Map<string, number>();
  const add = (key: string, bytes: number) => weight.set(key, (weight.get(key) ?? 0) + bytes);
  for (const a of track.live(track.head.peak)) add(keys[track.kind[a]!]!, track.requested(a));
  track.kindNode.forEach((_, kind) => add(keys[kind]!, track.kindRequested[kind]! * 1e-3));
  const order = [...weight].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  const place = new Map(order.slice(0, MOST).map((key, i) => [key, i]));
  const groups = order.slice(0, MOST).map((key) => (byFunction || key.startsWith('(') ? key : names.label(Number(key))));
  if (order.length > MOST || track.hasRest) groups.push(byFunction ? '(other functions)' : '(other stacks)');
  const other = groups.length - 1;
  return { names: groups, groupOf: (device) => Uint8Array.from(device.kindNode, (node) => place.get(keyOf(node)) ?? other) };
}

function bySize(): Plan {
  const limits = [4096, 65536, 1 << 20, 10 << 20, 100 << 20, 1 << 30];
  const names = limits.map((l, i) => (i ? `${size(limits[i - 1]!)} to ${size(l)}` : `below ${size(l)}`));
  names.push(`from ${size(limits[limits.length - 1]!)}`);
  const groupOf = (device: Device) =>
    Uint8Array.from(device.kindRequested, (bytes) => {
      const at = limits.findIndex((l) => bytes < l);
      return at < 0 ? limits.length : at;
    });
  return { names, groupOf };
}
