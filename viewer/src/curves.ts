// What a picture w pixels wide shows of a trace: for each pixel column the moment at which most is
// allocated, and the bytes of every group there.
//
// Far out, columns are made of buckets, whose highest and lowest moments the page knows: each bucket
// counts for the column that its highest moment falls into, so no peak is lost. Close up, columns
// are made of moments, by going through what begins and ends between them. Sums of groups at chosen
// moments come from one walk over births and deaths (`sample`).

import { type Device, type Grouping, upperBound } from './device.ts';

/** Bytes of each group at ascending moments, as [i * groups + g], of allocations told one by one. */
export function sample(
  device: Device,
  group: Uint8Array | Uint16Array,
  groups: number,
  moments: ArrayLike<number>,
): Float64Array {
  const n = moments.length;
  const out = new Float64Array(n * groups);
  if (!n) return out;
  const { born, died, byDeath, kind, kindRequested, count } = device;
  const sums = new Float64Array(groups);
  const first = moments[0]!;
  let births = upperBound(born, first);
  let deaths = upperBound(died, first, byDeath);
  for (const a of device.live(first)) sums[group[a]!]! += kindRequested[kind[a]!]!;
  for (let i = 0; i < n; i++) {
    const moment = moments[i]!;
    for (; births < count && born[births]! <= moment; births++)
      sums[group[births]!]! += kindRequested[kind[births]!]!;
    for (; deaths < count; deaths++) {
      const a = byDeath[deaths]!;
      if (died[a]! > moment) break;
      sums[group[a]!]! -= kindRequested[kind[a]!]!;
    }
    out.set(sums, i * groups);
  }
  return out;
}

/** Allocated bytes (of blocks, not given back) at ascending moments, or active ones, of allocations
 * told one by one. */
function sampleTold(device: Device, moments: ArrayLike<number>, active = false): Float64Array {
  const n = moments.length;
  const out = new Float64Array(n);
  if (!n) return out;
  const { born, kind, kindBlock, count } = device;
  const end = active ? device.died : device.released;
  const byEnd = active ? device.byDeath : device.byRelease;
  const first = moments[0]!;
  let births = upperBound(born, first);
  let ends = upperBound(end, first, byEnd);
  let sum = 0;
  for (const a of device.live(first)) if (end[a]! > first) sum += kindBlock[kind[a]!]!;
  for (let i = 0; i < n; i++) {
    const moment = moments[i]!;
    for (; births < count && born[births]! <= moment; births++) sum += kindBlock[kind[births]!]!;
    for (; ends < count; ends++) {
      const a = byEnd[ends]!;
      if (end[a]! > moment) break;
      sum -= kindBlock[kind[a]!]!;
    }
    out[i] = sum;
  }
  return out;
}

function restAllocated(device: Device, moment: number): number {
  if (!device.hasRest) return 0;
  const [b, isHigh] = device.restSample(moment);
  return (isHigh ? device.restAllocatedHigh : device.restAllocatedLow)[b]!;
}

/** What is allocated and active beyond the told, at each bucket's two moments. */
export function fillRest(device: Device): void {
  if (!device.hasRest) return;
  const difference = (all: Float64Array, told: Float64Array) => all.map((bytes, b) => bytes - told[b]!) as Float64Array<ArrayBuffer>;
  device.restAllocatedHigh = difference(device.allocatedHigh, sampleTold(device, device.high));
  device.restAllocatedLow = difference(device.allocatedLow, sampleTold(device, device.low));
  device.restActiveHigh = difference(device.activeHigh, sampleTold(device, device.high, true));
  device.restActiveLow = difference(device.activeLow, sampleTold(device, device.low, true));
}

const grouped = new WeakMap<Grouping, Float64Array>();

/** Sums of groups at each bucket's highest moment, the rest included. */
export function groupsOf(device: Device, grouping: Grouping): Float64Array {
  let sums = grouped.get(grouping);
  if (!sums) {
    const groups = grouping.names.length;
    sums = sample(device, grouping.group, groups, device.high);
    if (grouping.restHigh)
      for (let b = 0; b < device.high.length; b++)
        for (let g = 0; g < groups; g++)
          sums[b * groups + g]! += grouping.restHigh[g * device.high.length + b]!;
    grouped.set(grouping, sums);
  }
  return sums;
}

export interface View {
  columns: number;
  groups: number;
  moment: Uint32Array; // of each column: where most is allocated
  sums: Float64Array; // [column * groups + group], requested bytes there
  allocated: Float64Array; // there
  low: Float64Array; // least allocated in the column
  reserved: Float64Array; // most in the column
  kept: Map<number, Float64Array>; // by group, by column: what private pools keep there
  edges: Uint32Array; // the first moment of each column, and one past the last
}

/** Moments at the left edge of each column; edges[columns] ends the last. */
export type Edges = Uint32Array;

export function viewOf(device: Device, grouping: Grouping, edges: Edges): View {
  const columns = edges.length - 1;
  const groups = grouping.names.length;
  const view: View = {
    columns,
    groups,
    moment: new Uint32Array(columns),
    sums: new Float64Array(0),
    allocated: new Float64Array(columns).fill(-1),
    low: new Float64Array(columns).fill(Infinity),
    reserved: new Float64Array(columns),
    kept: new Map(),
    edges,
  };
  const from = Math.max(0, Math.floor((edges[0]! - device.from) / device.bucketMoments));
  const to = Math.min(device.high.length, Math.ceil((edges[columns]! + 1 - device.from) / device.bucketMoments));
  if (to - from > columns * 1.2 && device.bucketMoments > 1) fromBuckets(device, grouping, view, from, to);
  else fromMoments(device, grouping, view);
  fillReserved(device, view);
  if (grouping.key === 'pool') for (const group of device.pools.keys()) view.kept.set(group, keptOf(device, grouping, group, view.moment));
  return view;
}

function fromBuckets(device: Device, grouping: Grouping, view: View, from: number, to: number): void {
  const { allocatedHigh, allocatedLow } = device;
  const sums = groupsOf(device, grouping);
  const { columns, groups, edges, moment, allocated, low } = view;
  const bucket = new Int32Array(columns).fill(-1);
  let c = 0;
  let k = 0;
  for (let b = from; b < to; b++) {
    const at = device.high[b]!;
    while (c < columns && at >= Math.max(edges[c + 1]!, edges[c]! + 1)) c++;
    if (c < columns && at >= edges[c]! && allocatedHigh[b]! > allocated[c]!) {
      allocated[c] = allocatedHigh[b]!;
      moment[c] = at;
      bucket[c] = b;
    }
    const under = device.low[b]!;
    while (k < columns && under >= Math.max(edges[k + 1]!, edges[k]! + 1)) k++;
    if (k < columns && under >= edges[k]! && allocatedLow[b]! < low[k]!) low[k] = allocatedLow[b]!;
  }
  const bare: number[] = [];
  for (let i = 0; i < columns; i++) {
    if (bucket[i]! >= 0) continue;
    moment[i] = edges[i]!;
    bare.push(i);
  }
  view.sums = new Float64Array(columns * groups);
  for (let i = 0; i < columns; i++) {
    const b = bucket[i]!;
    if (b >= 0) view.sums.set(sums.subarray(b * groups, (b + 1) * groups), i * groups);
  }
  if (bare.length) fillBare(device, grouping, view, bare);
  for (let i = 0; i < columns; i++) if (low[i]! > allocated[i]!) low[i] = allocated[i]!;
}

/** Columns between buckets: what holds at their left edge. */
function fillBare(device: Device, grouping: Grouping, view: View, bare: number[]): void {
  const moments = bare.map((i) => view.moment[i]!);
  const values = sampleTold(device, moments);
  const sums = sample(device, grouping.group, view.groups, moments);
  bare.forEach((i, k) => {
    view.allocated[i] = values[k]! + restAllocated(device, moments[k]!);
    const rest = grouping.restHigh ? device.restAt(grouping, moments[k]!) : null;
    for (let g = 0; g < view.groups; g++)
      view.sums[i * view.groups + g] = sums[k * view.groups + g]! + (rest ? rest[g]! : 0);
  });
}

function fromMoments(device: Device, grouping: Grouping, view: View): void {
  extremes(device, view);
  view.sums = sample(device, grouping.group, view.groups, view.moment);
  if (!grouping.restHigh) return;
  let last = -1;
  let rest = new Float64Array(0);
  for (let i = 0; i < view.columns; i++) {
    if (view.moment[i] !== last) rest = device.restAt(grouping, (last = view.moment[i]!)) as Float64Array<ArrayBuffer>;
    for (let g = 0; g < view.groups; g++) view.sums[i * view.groups + g]! += rest[g]!;
  }
}

/** The highest and the lowest moment of each column, by going through births and releases. */
function extremes(device: Device, view: View): void {
  const { born, released, byRelease, kind, kindBlock, count } = device;
  const { columns, edges, moment, allocated, low } = view;
  const first = edges[0]!;
  let births = upperBound(born, first);
  let ends = upperBound(released, first, byRelease);
  let sum = 0;
  for (const a of device.live(first)) if (released[a]! > first) sum += kindBlock[kind[a]!]!;
  const samples = device.hasRest ? restMoments(device, first, edges[columns]!) : [];
  let next = 0;
  let rest = restAllocated(device, first);
  const advance = (to: number) => {
    for (; births < count && born[births]! <= to; births++) sum += kindBlock[kind[births]!]!;
    for (; ends < count; ends++) {
      const a = byRelease[ends]!;
      if (released[a]! > to) break;
      sum -= kindBlock[kind[a]!]!;
    }
    while (next < samples.length && samples[next]! <= to) next++;
    if (samples.length) rest = restAllocated(device, to);
  };
  for (let c = 0; c < columns; c++) {
    const start = edges[c]!;
    const end = edges[c + 1]!;
    if (c && start === edges[c - 1]! && end <= start + 1 && moment[c - 1] === start) {
      moment[c] = start;
      allocated[c] = low[c] = allocated[c - 1]!;
      continue;
    }
    advance(start);
    moment[c] = start;
    allocated[c] = low[c] = sum + rest;
    for (;;) {
      let at = births < count ? born[births]! : Infinity;
      const release = ends < count ? released[byRelease[ends]!]! : Infinity;
      if (release < at) at = release;
      if (next < samples.length && samples[next]! < at) at = samples[next]!;
      if (at >= end) break;
      advance(at);
      const value = sum + rest;
      if (value > allocated[c]!) {
        allocated[c] = value;
        moment[c] = at;
      } else if (value < low[c]!) {
        low[c] = value;
      }
    }
  }
}

function restMoments(device: Device, from: number, to: number): number[] {
  const out: number[] = [];
  const first = Math.max(0, Math.floor((from - device.from) / device.bucketMoments));
  for (let b = first; b < device.high.length && device.from + b * device.bucketMoments <= to; b++) {
    const [h, l] = [device.high[b]!, device.low[b]!];
    if (Math.min(h, l) > from) out.push(Math.min(h, l));
    if (h !== l && Math.max(h, l) > from) out.push(Math.max(h, l));
  }
  return out;
}

function keptOf(device: Device, grouping: Grouping, group: number, moments: Uint32Array): Float64Array {
  return Float64Array.from(moments, (m) => device.keptAt(grouping, group, m));
}

function fillReserved(device: Device, view: View): void {
  const { reservedMoment: moments, reservedBytes: bytes } = device;
  let at = Math.max(0, upperBound(moments, view.edges[0]!) - 1);
  for (let c = 0; c < view.columns; c++) {
    while (at + 1 < moments.length && moments[at + 1]! <= view.edges[c]!) at++;
    let most = bytes[at]!;
    for (let i = at + 1; i < moments.length && moments[i]! < view.edges[c + 1]!; i++)
      if (bytes[i]! > most) most = bytes[i]!;
    view.reserved[c] = most;
  }
}
