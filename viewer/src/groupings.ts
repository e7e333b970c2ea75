// Groupings that the page makes itself, from stacks: the largest modules, lines, operations and stacks, the functions
// of the program that allocated, and the sizes of blocks. What is only told in sums is a group of its own.

import type { Device, Grouping } from './device.ts';
import { size } from './format.ts';
import { type Place, unnamed } from './names.ts';

export const MADE: { key: string; title: string }[] = [
  { key: 'module', title: 'module' },
  { key: 'line', title: 'line' },
  { key: 'op', title: 'operation' },
  { key: 'stack', title: 'stack' },
  { key: 'function', title: 'function' },
  { key: 'size', title: 'size' },
];

const MOST = 14;

/** What groups there are, and which one a kind is in: of a track, and the same for all its parts. */
interface Plan {
  names: string[];
  groupOf: (device: Device) => Uint8Array; // by kind
  older: number; // the group of memory without a stack from before the recording; -1: as its kind
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

/** Those that the page makes, but for what it opened with: the library has made that, and with more groups. */
function madeOf(device: Device): { key: string; title: string }[] {
  return MADE.filter((m) => !device.groupings.some((g) => g.key === m.key));
}

export function groupingOf(device: Device, key: string): Grouping {
  if (!madeOf(device).some((m) => m.key === key)) return device.grouping(key);
  return remember(made, device, key, () => {
    const track = device.track ?? device;
    const plan = remember(plans, track, key, () => (key === 'size' ? bySize() : byStack(track, key)));
    return finish(device, track, key, plan);
  });
}

export function groupingsOf(device: Device): { key: string; title: string }[] {
  return [...device.groupings.map((g) => ({ key: g.key, title: g.title })), ...madeOf(device)];
}

/** A device's grouping by a plan; what is only told in sums is a last group. */
function finish(device: Device, track: Device, key: string, plan: Plan): Grouping {
  const ofKind = plan.groupOf(device);
  const group = new Uint8Array(device.count);
  for (let a = 0; a < device.count; a++) group[a] = plan.older >= 0 && device.isOlder(a) ? plan.older : ofKind[device.kind[a]!]!;
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
function byStack(track: Device, by: string): Plan {
  const { names } = track;
  const keyOf = (node: number): string => {
    if (node < 0) return unnamed(false);
    if (by === 'stack') return String(node);
    if (by !== 'function') return names.placeOf(by as Place, node);
    const own = names.own(node);
    const frame = own[own.length - 1]!;
    return `${names.brief(frame)}  ${names.place(frame).replace(/:\d+$/, '')}`;
  };
  const keys = Array.from(track.kindNode, keyOf);
  const weight = new Map<string, number>();
  const add = (key: string, bytes: number) => weight.set(key, (weight.get(key) ?? 0) + bytes);
  const keyAt = (a: number) => (track.isOlder(a) ? unnamed(true) : keys[track.kind[a]!]!);
  for (const a of track.live(track.head.peak)) add(keyAt(a), track.requested(a));
  const seen = new Uint8Array(keys.length);
  for (let a = 0; a < track.count; a++) {
    if (track.isOlder(a)) add(unnamed(true), 0);
    else if (!seen[track.kind[a]!]++) add(keyAt(a), track.requested(a) * 1e-3);
  }
  const order = [...weight].sort((a, b) => b[1] - a[1]).map(([key]) => key);
  const place = new Map(order.slice(0, MOST).map((key, i) => [key, i]));
  const groups = order.slice(0, MOST).map((key) => (by === 'stack' && !key.startsWith('(') ? names.label(Number(key)) : key));
  if (order.length > MOST || track.hasRest) groups.push(`(other ${MADE.find((m) => m.key === by)!.title}s)`);
  const other = groups.length - 1;
  const older = order.includes(unnamed(true)) ? (place.get(unnamed(true)) ?? other) : -1;
  return { names: groups, older, groupOf: (device) => Uint8Array.from(device.kindNode, (node) => place.get(keyOf(node)) ?? other) };
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
  return { names, groupOf, older: -1 };
}
