// One device of one file: its allocations as columns, and what is live at any moment.
//
// Time is counted in moments: 0 is the state before the first event, m the state after event m - 1.
// An allocation is there at moment m when born <= m < died. Allocations stand in the order in which
// they were made, so `born` never falls; `byDeath` and `byRelease` are orders of those ends.

import { Card } from './card.ts';
import type { Columns, Head, HeadCut, HeadDevice, Reader } from './decode.ts';
import { clean } from './format.ts';
import type { Names } from './names.ts';

export interface Span {
  address: bigint;
  at: number;
  bytes: number;
  born: number;
  died: number;
  stream: number;
  pool: string;
  isLarge: boolean;
  isExpandable: boolean;
}

/** What the private pools of one group of the grouping "pool" have taken: it only rises. */
export interface Marks {
  moments: Uint32Array;
  bytes: Float64Array;
}

/** As tsr_view_range_kind counts them. */
export const RANGE_KINDS = ['annotation', 'metadata', 'step', 'phase'] as const;
export type RangeKind = (typeof RANGE_KINDS)[number];

export interface Range {
  name: string;
  short: string; // of a step its number, else the name
  born: number;
  died: number;
  kind: RangeKind;
  isCertain: boolean; // else: a step cut short, or a phase that only its neighbours tell
}

export interface Mark {
  moment: number;
  isOom: boolean;
  bytes: number;
  free: number;
}

/** A way of dividing the allocations. `rest*`: sums of those that are not told one by one. */
export interface Grouping {
  key: string;
  title: string;
  names: string[];
  group: Uint8Array;
  restHigh: Float64Array | null; // [group * buckets + bucket]
  restLow: Float64Array | null;
}

export interface Totals {
  requested: number;
  allocated: number;
  active: number;
  reserved: number;
  blocks: number;
}

const STATION = 32768;

/** The first index whose value is greater than `value`. */
export function upperBound(values: ArrayLike<number>, value: number, order?: Uint32Array): number {
  let low = 0;
  let high = order ? order.length : values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[order ? order[middle]! : middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Indices in the order of their keys: a counting sort of 16 bits at a time. */
export function orderBy(keys: Uint32Array): Uint32Array {
  const n = keys.length;
  let from = new Uint32Array(n);
  let to = new Uint32Array(n);
  for (let i = 0; i < n; i++) from[i] = i;
  for (const shift of [0, 16]) {
    const counts = new Uint32Array(65537);
    for (let i = 0; i < n; i++) counts[((keys[i]! >>> shift) & 0xffff) + 1]!++;
    if (shift && counts[1] === n) break;
    for (let i = 0; i < 65536; i++) counts[i + 1]! += counts[i]!;
    for (let i = 0; i < n; i++) {
      const id = from[i]!;
      to[counts[(keys[id]! >>> shift) & 0xffff]!++] = id;
    }
    [from, to] = [to, from];
  }
  return from;
}

/** A whole track, or a part of one: then it shares with the track what is not of its allocations. */
export class Device {
  readonly head: HeadDevice;
  readonly label: string;
  readonly moments: number;
  readonly from: number; // moments of which it tells, both included
  readonly to: number;
  readonly rows: Uint32Array | null; // numbers of the allocations in the trace; null: all, in order
  readonly count: number;
  readonly born: Uint32Array;
  readonly died: Uint32Array;
  readonly released: Uint32Array;
  readonly kind: Uint32Array;
  readonly kindNode: Int32Array;
  readonly kindRequested: Float64Array;
  readonly kindBlock: Float64Array;
  readonly kindSaid: (string | null)[]; // what the program called them
  readonly byDeath: Uint32Array;
  readonly byRelease: Uint32Array;
  readonly addressId: Uint32Array;
  readonly addresses: BigUint64Array;
  readonly groupings: Grouping[] = [];
  readonly high: Uint32Array;
  readonly low: Uint32Array;
  readonly bucketMoments: number;
  readonly hasRest: boolean;
  readonly allocatedHigh: Float64Array; // at the moments of `high`, of all allocations
  readonly allocatedLow: Float64Array;
  restAllocatedHigh = new Float64Array(0); // the same of those not told one by one
  restAllocatedLow = new Float64Array(0);
  readonly activeHigh: Float64Array;
  readonly activeLow: Float64Array;
  restActiveHigh = new Float64Array(0);
  restActiveLow = new Float64Array(0);
  readonly restBlocksHigh: Uint32Array;
  readonly restBlocksLow: Uint32Array;
  readonly times: Float64Array; // since head.firstTime
  readonly spans: Span[];
  readonly ranges: Range[];
  readonly marks: Mark[];
  readonly findings: Map<string, Uint32Array>; // by rule: what it is about, by number in the trace
  readonly card: Card | null; // what the whole card was used for
  readonly pools: Map<number, Marks>; // by group of the grouping "pool"; empty without private pools
  private readonly stations: number[][] = [[]];
  private readonly large = new Map<number, Uint32Array>();
  readonly reservedMoment: Uint32Array; // steps of the reserved bytes
  readonly reservedBytes: Float64Array;

  constructor(
    readonly index: number,
    readonly page: Head,
    columns: Columns,
    readonly names: Names,
    readonly track: Device | null = null,
    cut: HeadCut | null = null,
  ) {
    const head = { ...page.devices[index]!, ...cut };
    const d = cut ? 'd0.' : `d${index}.`;
    const n = head.allocations;
    this.head = head;
    this.from = head.from;
    this.to = head.to;
    this.label = clean(page.inputs[head.input]!.path);
    this.moments = head.events + 1;
    this.count = n;
    this.born = columns.differences(`${d}born`, n);
    const end = this.moments;
    const died = columns.numbers(`${d}life`, n);
    for (let i = 0; i < n; i++) died[i] = died[i] ? this.born[i]! + died[i]! : end;
    this.died = died;
    const released = columns.numbers(`${d}wait`, n);
    for (let i = 0; i < n; i++) released[i] = died[i]! - released[i]!;
    this.released = released;
    this.kind = columns.numbers(`${d}kind`, n);
    [this.kindNode, this.kindRequested, this.kindBlock] = readKinds(columns, `${d}kinds`);
    this.byDeath = orderBy(died);
    this.byRelease = orderBy(released);
    const said = columns.has(`${d}said`) ? columns.numbers(`${d}said`, this.kindNode.length) : null;
    this.kindSaid = Array.from(this.kindNode, (_, k) => (said?.[k] ? clean(names.strings[said[k]! - 1]!) : null));
    this.addresses = readAddresses(columns.bytes(`${d}addresses`));
    this.addressId = columns.differences(`${d}address`, n);
    this.bucketMoments = head.bucketMoments;
    this.high = columns.differences(`${d}high`, head.buckets);
    this.low = columns.differences(`${d}low`, head.buckets);
    this.hasRest = head.restCount > 0;
    this.allocatedHigh = columns.sums(`${d}allocated.high`, head.buckets);
    this.allocatedLow = columns.sums(`${d}allocated.low`, head.buckets);
    this.activeHigh = columns.sums(`${d}active.high`, head.buckets);
    this.activeLow = columns.sums(`${d}active.low`, head.buckets);
    this.restBlocksHigh = columns.differences(`${d}rest.blocks.high`, this.hasRest ? head.buckets : 0);
    this.restBlocksLow = columns.differences(`${d}rest.blocks.low`, this.hasRest ? head.buckets : 0);
    this.rows = columns.has(`${d}row`) ? columns.differences(`${d}row`, n) : null;
    this.readGroupings(columns, d);
    this.times = track?.times ?? columns.sums(`${d}times`, head.timeCount);
    this.spans = track?.spans ?? readSpans(columns.reader(`${d}spans`));
    this.ranges = track?.ranges ?? readRanges(columns.reader(`${d}ranges`), names);
    this.marks = track?.marks ?? readMarks(columns.reader(`${d}marks`));
    this.findings = track?.findings ?? readFindings(columns, d, head);
    this.card = track ? track.card : head.card && new Card(head.card, columns, d);
    this.pools = track?.pools ?? readPools(columns.reader(`${d}pools`));
    [this.reservedMoment, this.reservedBytes] = track ? [track.reservedMoment, track.reservedBytes] : this.reservedSteps();
  }

  /** A stretch of this track. */
  part(cut: HeadCut, columns: Columns): Device {
    return new Device(this.index, this.page, columns, this.names, this, cut);
  }

  /** The number of an allocation in the trace, by which it is known to all parts. */
  row(a: number): number {
    return this.rows ? this.rows[a]! : a;
  }

  /** The allocations that were made at moments from `born` to before `died`: the first, and one past the last. */
  madeIn(born: number, died: number): [number, number] {
    const end = died > 0 ? upperBound(this.born, died - 1) : 0;
    return [Math.min(end, born > 0 ? upperBound(this.born, born - 1) : 0), end];
  }

  /** The allocations that end, or are given back, at a moment. */
  endingAt(moment: number, isRelease: boolean): number[] {
    const [ends, order] = isRelease ? [this.released, this.byRelease] : [this.died, this.byDeath];
    if (moment < 1 || moment >= this.moments) return [];
    return [...order.subarray(upperBound(ends, moment - 1, order), upperBound(ends, moment, order))];
  }

  /** The allocations, by their number in the trace, that a finding is about; NULL if it has none. */
  findingRows(rule: string): Uint32Array | null {
    return rule ? (this.findings.get(rule) ?? null) : null;
  }

  /** Names of the annotations or of the metadata under which an allocation was made, outer ones first. */
  rangesAt(a: number, kind: RangeKind): string[] {
    const moment = this.born[a]!;
    const seen = new Set(this.ranges.filter((r) => r.kind === kind && r.born <= moment && r.died > moment).map((r) => r.name));
    return [...seen];
  }

  /** The allocation with such a number, or -1. */
  indexOf(row: number): number {
    if (!this.rows) return row < this.count ? row : -1;
    const at = upperBound(this.rows, row) - 1;
    return at >= 0 && this.rows[at] === row ? at : -1;
  }

  private readGroupings(columns: Columns, d: string): void {
    const { head } = this;
    head.groupings.forEach((g, i) => {
      const size = this.hasRest ? head.buckets * g.names.length : 0;
      this.groupings.push({
        key: g.key,
        title: g.title,
        names: g.names.map(clean),
        group: columns.bytes(`${d}group${i}`),
        restHigh: size ? sumsByGroup(columns, `${d}rest${i}.high`, g.names.length, head.buckets) : null,
        restLow: size ? sumsByGroup(columns, `${d}rest${i}.low`, g.names.length, head.buckets) : null,
      });
    });
  }

  private reservedSteps(): [Uint32Array, Float64Array] {
    const changes = new Map<number, number>();
    const add = (moment: number, bytes: number) =>
      changes.set(moment, (changes.get(moment) ?? 0) + bytes);
    for (const span of this.spans) {
      add(span.born, span.bytes);
      if (span.died < this.moments) add(span.died, -span.bytes);
    }
    add(0, 0);
    const moments = [...changes.keys()].sort((a, b) => a - b);
    const bytes = new Float64Array(moments.length);
    let sum = 0;
    moments.forEach((m, i) => (bytes[i] = sum += changes.get(m)!));
    return [Uint32Array.from(moments), bytes];
  }

  requested(a: number): number {
    return this.kindRequested[this.kind[a]!]!;
  }

  block(a: number): number {
    return this.kindBlock[this.kind[a]!]!;
  }

  node(a: number): number {
    return this.kindNode[this.kind[a]!]!;
  }

  /** Whether it has no stack because it is from before the recording. */
  isOlder(a: number): boolean {
    return this.hasHistory && this.born[a] === 0 && this.node(a) < 0;
  }

  /** What the program called it. */
  said(a: number): string | null {
    return this.kindSaid[this.kind[a]!]!;
  }

  address(a: number): bigint {
    return this.addresses[this.addressId[a]!]!;
  }

  grouping(key: string): Grouping {
    return this.groupings.find((g) => g.key === key) ?? this.groupings[0]!;
  }

  reservedAt(moment: number): number {
    return this.reservedBytes[Math.max(0, upperBound(this.reservedMoment, moment) - 1)]!;
  }

  /** What the private pools of a group keep at a moment: the most that they ever took. */
  keptAt(grouping: Grouping, group: number, moment: number): number {
    const marks = grouping.key === 'pool' ? this.pools.get(group) : undefined;
    if (!marks) return 0;
    const at = upperBound(marks.moments, moment) - 1;
    return at < 0 ? 0 : marks.bytes[at]!;
  }

  /** Allocations there at a moment, in the order in which they were made. What was there when every
   * so many-th was made is remembered, so that only the last few have to be gone through. */
  live(moment: number): number[] {
    const out: number[] = [];
    const { born, died } = this;
    const end = upperBound(born, moment);
    const station = Math.floor(end / STATION);
    for (const a of this.stationAt(station)) if (died[a]! > moment) out.push(a);
    for (let a = station * STATION; a < end; a++) if (died[a]! > moment) out.push(a);
    return out;
  }

  /** Of the allocations before the station-th times STATION, those that may still be there. */
  private stationAt(station: number): number[] {
    while (this.stations.length <= station) {
      const next = this.stations.length;
      const begin = (next - 1) * STATION;
      const end = next * STATION;
      const moment = this.born[end - 1]!; // whoever asks, asks of this one or later
      const here = this.stations[next - 1]!.filter((a) => this.died[a]! > moment);
      for (let a = begin; a < end; a++) if (this.died[a]! > moment) here.push(a);
      this.stations.push(here);
    }
    return this.stations[station]!;
  }

  /** Allocations at least as large, and perhaps some that are smaller by half. */
  atLeast(bytes: number): Uint32Array {
    const level = Math.max(0, Math.floor(Math.log2(Math.max(1, bytes))));
    let ids = this.large.get(level);
    if (!ids) {
      const isLarge = Uint8Array.from(this.kindRequested, (b) => (b >= 2 ** level ? 1 : 0));
      let n = 0;
      for (let a = 0; a < this.count; a++) n += isLarge[this.kind[a]!]!;
      ids = new Uint32Array(n);
      for (let a = 0, i = 0; a < this.count; a++) if (isLarge[this.kind[a]!]) ids[i++] = a;
      this.large.set(level, ids);
    }
    return ids;
  }

  /** The bucket's sample of the rest that holds at a moment: its number, and whether it is `high`.
   * Between samples the rest is taken to stay as it was. */
  restSample(moment: number): [number, boolean] {
    let b = Math.max(0, Math.min(Math.floor((moment - this.from) / this.bucketMoments), this.high.length - 1));
    if (moment < Math.min(this.high[b]!, this.low[b]!) && b > 0) b--;
    const [high, low] = [this.high[b]!, this.low[b]!];
    const highHolds = high <= moment && (low > moment || high >= low);
    return [b, highHolds || low > moment];
  }

  /** Requested bytes of the rest, by group. */
  restAt(grouping: Grouping, moment: number): Float64Array {
    const groups = grouping.names.length;
    const out = new Float64Array(groups);
    if (!grouping.restHigh) return out;
    const [b, isHigh] = this.restSample(moment);
    const sums = isHigh ? grouping.restHigh : grouping.restLow!;
    const buckets = this.high.length;
    for (let g = 0; g < groups; g++) out[g] = sums[g * buckets + b]!;
    return out;
  }

  /** Requested bytes by group at a moment, the rest included. */
  sumsAt(grouping: Grouping, moment: number): Float64Array {
    const out = this.restAt(grouping, moment);
    for (const a of this.live(moment)) out[grouping.group[a]!]! += this.requested(a);
    return out;
  }

  totalsAt(moment: number): Totals {
    const totals = { requested: 0, allocated: 0, active: 0, reserved: this.reservedAt(moment), blocks: 0 };
    for (const a of this.live(moment)) {
      totals.requested += this.requested(a);
      totals.active += this.block(a);
      if (this.released[a]! > moment) totals.allocated += this.block(a);
      totals.blocks++;
    }
    if (this.hasRest) {
      const [b, isHigh] = this.restSample(moment);
      const rest = (isHigh ? this.restAllocatedHigh : this.restAllocatedLow)[b]!;
      const first = this.groupings[0]!;
      totals.allocated += rest;
      totals.active += (isHigh ? this.restActiveHigh : this.restActiveLow)[b]!;
      totals.requested += this.restAt(first, moment).reduce((sum, x) => sum + x, 0);
      totals.blocks += (isHigh ? this.restBlocksHigh : this.restBlocksLow)[b]!;
    }
    return totals;
  }

  /** No event was recorded: there is one moment, that of the snapshot. */
  get isStill(): boolean {
    return this.moments === 1;
  }

  /** Whether the trace has more than one moment; a ring buffer with one event has not. */
  get hasHistory(): boolean {
    return this.head.hasHistory > 0;
  }

  /** Whether a moment is its peak. */
  isPeak(moment: number): boolean {
    return this.hasHistory && moment === this.head.peak;
  }

  get hasTimes(): boolean {
    return this.times.length > 0;
  }

  /** Whether the page has the very time of a moment; else it lies between two that it has. */
  hasTimeOf(moment: number): boolean {
    return moment % this.head.timeStep === 0 || moment === this.moments - 1;
  }

  /** Microseconds since the first event at a moment, or NaN. */
  timeOf(moment: number): number {
    if (!this.hasTimes) return NaN;
    const step = this.head.timeStep;
    const last = this.times.length - 1;
    const at = Math.min(Math.floor(moment / step), last);
    const from = this.times[at]!;
    if (step === 1 || at === last) return from;
    const length = at + 1 === last ? this.moments - 1 - at * step : step;
    return from + ((this.times[at + 1]! - from) * (moment - at * step)) / Math.max(1, length);
  }

  /** The last moment at or before a time. */
  momentOf(time: number): number {
    const step = this.head.timeStep;
    const at = Math.max(0, upperBound(this.times, time) - 1);
    if (step === 1 || at + 1 >= this.times.length)
      return Math.min(at * step, this.moments - 1);
    const [from, to] = [this.times[at]!, this.times[at + 1]!];
    const length = Math.min(step, this.moments - 1 - at * step);
    const part = to > from ? Math.max(0, (time - from) / (to - from)) : 0;
    return at * step + Math.min(length - 1, Math.floor(part * length));
  }
}

function readKinds(columns: Columns, name: string): [Int32Array, Float64Array, Float64Array] {
  const nodes: number[] = [];
  const requested: number[] = [];
  const block: number[] = [];
  const reader = columns.reader(name);
  while (!reader.ended) {
    nodes.push(reader.number() - 1);
    requested.push(reader.number());
    block.push(reader.number());
  }
  return [Int32Array.from(nodes), Float64Array.from(requested), Float64Array.from(block)];
}

function readSpans(reader: Reader): Span[] {
  const out: Span[] = [];
  while (!reader.ended) {
    const address = reader.big();
    const bytes = reader.number();
    const born = reader.number();
    const died = reader.number();
    const stream = reader.number();
    const [first, second, flags] = [reader.number(), reader.number(), reader.number()];
    const pool = first || second ? `pool (${first}, ${second})` : 'default pool';
    const isLarge = (flags & 1) !== 0;
    const isExpandable = (flags & 2) !== 0;
    out.push({ address, at: Number(address), bytes, born, died, stream, pool, isLarge, isExpandable });
  }
  return out;
}

function readRanges(reader: Reader, names: Names): Range[] {
  const out: Range[] = [];
  while (!reader.ended) {
    const flags = reader.number();
    const kind = RANGE_KINDS[flags >>> 1] ?? 'annotation';
    const [name, born, length] = [reader.number(), reader.number(), reader.number()];
    const text = kind === 'step' ? `step ${name}` : (names.strings[name] ?? '');
    out.push({ name: text, short: kind === 'step' ? String(name) : text, born, died: born + length, kind, isCertain: (flags & 1) !== 0 });
  }
  return out;
}

function readMarks(reader: Reader): Mark[] {
  const out: Mark[] = [];
  while (!reader.ended) {
    const moment = reader.number();
    const isOom = reader.number() === 1;
    out.push({ moment, isOom, bytes: reader.number(), free: reader.number() });
  }
  return out;
}

function readFindings(columns: Columns, d: string, head: HeadDevice): Map<string, Uint32Array> {
  return new Map(head.findings.filter((f) => f.blocks).map((f) => [f.rule, columns.differences(`${d}finding.${f.rule}`, f.blocks)]));
}

function readPools(reader: Reader): Map<number, Marks> {
  const steps = new Map<number, [number, number][]>();
  let moment = 0;
  while (!reader.ended) {
    moment += reader.number();
    const group = reader.number();
    const bytes = reader.number();
    let list = steps.get(group);
    if (!list) steps.set(group, (list = []));
    if (list.length && list[list.length - 1]![0] === moment) list.pop();
    list.push([moment, bytes]);
  }
  return new Map([...steps].map(([group, list]) => [group, {
    moments: Uint32Array.from(list, ([m]) => m),
    bytes: Float64Array.from(list, ([, b]) => b),
  }]));
}

function readAddresses(bytes: Uint8Array): BigUint64Array {
  return new BigUint64Array(bytes.slice().buffer);
}

function sumsByGroup(columns: Columns, name: string, groups: number, buckets: number): Float64Array {
  const out = new Float64Array(groups * buckets);
  const reader = columns.reader(name);
  for (let g = 0; g < groups; g++) {
    let value = 0;
    for (let b = 0; b < buckets; b++) out[g * buckets + b] = value += reader.signed();
  }
  return out;
}
