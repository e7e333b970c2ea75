// What every part of the page works with: the files, the state, and what follows from both.

import { Axis } from './axis.ts';
import { groupsOf, viewOf } from './curves.ts';
import type { Head } from './decode.ts';
import { type Device, type Grouping, upperBound } from './device.ts';
import { groupingOf } from './groupings.ts';
import type { Names } from './names.ts';
import type { Pairs } from './pairs.ts';
import { Parts } from './parts.ts';
import { Search } from './search.ts';
import type { State, Store } from './state.ts';
import { palette, type Swatch, type Theme } from './theme.ts';

/** What is looked at: allocations, and sums of those that are not told one by one. */
export interface Selection {
  device: Device; // the track, or the part of it that tells most of this
  grouping: Grouping;
  track: number;
  moment: number; // whose state it is
  ids: number[];
  rest: Float64Array | null; // by group of the grouping in use
}

const FAR = 4; // times the peak: reserved memory beyond is above the picture

export class App {
  axis: Axis;
  readonly search: Search;
  private ordered: { by: string; unrest: Map<string, number> } | null = null;
  private selected: { key: string; value: Selection } | null = null;
  private colourCache = new Map<string, Swatch[]>();
  private readonly parts: Parts | null;
  onArrival: () => void = () => {};

  constructor(
    readonly head: Head,
    readonly names: Names,
    readonly devices: Device[],
    readonly pairs: Pairs,
    readonly store: Store,
  ) {
    this.axis = new Axis(store.state.axis, devices);
    this.search = new Search(names);
    this.parts = head.isServed
      ? new Parts(devices, () => {
          this.selected = null;
          this.onArrival();
        })
      : null;
  }

  /** What there is to see a stretch of a track with: the track, or a part of it that tells more.
   * Moments, both included. */
  deviceFor(track: number, from: number, to = from): Device {
    return this.parts ? this.parts.best(track, from, to) : this.devices[track]!;
  }

  /** Whether more is on its way, and what went wrong. */
  get isWaiting(): boolean {
    return this.parts?.isWaiting ?? false;
  }

  get problem(): string {
    return this.parts?.problem ?? '';
  }

  /** An allocation by its number in the trace, where it is known. */
  find(track: number, row: number): { device: Device; a: number } | null {
    for (const device of this.parts?.of(track) ?? [this.devices[track]!]) {
      const a = device.indexOf(row);
      if (a >= 0) return { device, a };
    }
    return null;
  }

  /** Which moments of two tracks `tessera diff` compares, if the page knows: of the one, then of the other. */
  compared(one: number, other: number): { phase: string; moments: [number, number] } | null {
    for (const { tracks, phase, moments } of this.head.compared) {
      if (tracks[0] === one && tracks[1] === other) return { phase, moments };
      if (tracks[0] === other && tracks[1] === one) return { phase, moments: [moments[1], moments[0]] };
    }
    return null;
  }

  get state(): State {
    return this.store.state;
  }

  get theme(): Theme {
    if (this.state.theme !== 'auto') return this.state.theme;
    return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  }

  /** How much of the files' paths is the same, up to a slash. */
  private commonPath(): number {
    const labels = this.devices.map((d) => d.label);
    const first = labels[0]!;
    let length = 0;
    for (let i = 0; i < first.length && labels.every((l) => l[i] === first[i]); i++)
      if (first[i] === '/' || first[i] === '\\') length = i + 1;
    return length;
  }

  /** What to call a track where there are several. */
  title(track: number): string {
    const device = this.devices[track]!;
    const several = this.devices.filter((d) => d.head.input === device.head.input).length > 1;
    const { device: number } = device.head;
    const part = number === 'host' ? 'pinned host memory' : number === 'cpu' ? 'CPU memory' : several ? `device ${number}` : '';
    // The header names the file, if there is only one.
    const file = this.head.inputs.length > 1 || !part ? device.label.slice(this.commonPath()) : '';
    return [file, part].filter(Boolean).join(', ');
  }

  grouping(track: number, device = this.devices[track]!): Grouping {
    return groupingOf(device, this.state.by);
  }

  colours(track: number): Swatch[] {
    const grouping = this.grouping(track);
    const key = `${this.theme} ${grouping.key} ${track}`;
    let colours = this.colourCache.get(key);
    if (!colours) this.colourCache.set(key, (colours = palette(grouping.key, grouping.names, this.theme)));
    return colours;
  }

  visible(track: number): boolean[] {
    const { only } = this.state;
    const { names } = this.grouping(track);
    const some = only.length > 0 && names.some((n) => only.includes(n));
    return names.map((n) => !some || only.includes(n));
  }

  /** By allocation, whether it is of the chosen finding and found by the search; NULL if neither is set. */
  matches(device: Device): Uint8Array | null {
    const { search, finding } = this.state;
    return this.search.matches(device, search, finding?.track === device.index ? finding.rule : '');
  }

  /** The moment at which most is allocated in a stretch. */
  peakOf(device: Device, from: number, to: number): number {
    return viewOf(device, device.groupings[0]!, Uint32Array.from([from, to + 1])).moment[0]!;
  }

  /** What the place or range that is chosen holds, as isolated groups and the search leave it. */
  selection(): Selection {
    const { place, range, rangeMode, only, by, search, finding } = this.state;
    const key = JSON.stringify([place, range, rangeMode, only, by, search, finding]);
    if (this.selected?.key === key) return this.selected.value;
    const value = this.select(place.track);
    this.selected = { key, value };
    return value;
  }

  private select(track: number): Selection {
    const { place, range, rangeMode } = this.state;
    let moment = place.moment;
    if (range && rangeMode !== 'peak') {
      const device = this.deviceFor(track, range.from, range.to);
      const ids = this.inRange(device, range.from, range.to);
      return { device, track, moment: range.to, ...this.filter(device, ids, -1) };
    }
    if (range) moment = this.peakOf(this.deviceFor(track, range.from, range.to), range.from, range.to);
    const device = this.deviceFor(track, moment);
    return { device, track, moment, ...this.filter(device, device.live(moment), moment) };
  }

  private inRange(device: Device, from: number, to: number): number[] {
    const { rangeMode } = this.state;
    const ids: number[] = [];
    const { born, died } = device;
    if (rangeMode === 'freed') {
      for (let a = 0; a < device.count && born[a]! <= to; a++)
        if (died[a]! >= from && died[a]! <= to && died[a]! < device.moments) ids.push(a);
      return ids;
    }
    for (let a = from > 0 ? upperBound(born, from - 1) : 0; a < device.count && born[a]! <= to; a++)
      if (rangeMode === 'made' || died[a]! > to) ids.push(a);
    return ids;
  }

  /** Leave out what is not isolated or does not match. `restMoment` -1: no rest. */
  filter(
    device: Device,
    ids: number[],
    restMoment: number,
  ): { grouping: Grouping; ids: number[]; rest: Float64Array | null } {
    const grouping = this.grouping(device.index, device);
    const visible = this.visible(device.index);
    const matches = this.matches(device);
    const kept =
      visible.every((v) => v) && !matches
        ? ids
        : ids.filter((a) => visible[grouping.group[a]!] && (!matches || matches[a]));
    if (restMoment < 0 || !device.hasRest || matches) return { grouping, ids: kept, rest: null };
    const rest = device.restAt(grouping, restMoment).map((bytes, g) => (visible[g] ? bytes : 0));
    return { grouping, ids: kept, rest };
  }

  /** Groups from the bottom up: those that change least, for what they hold, carry the others, which then do not rise
   * and fall with what lies below them. All tracks have one order, by the groups' names, so that they compare. */
  order(track: number): number[] {
    const { by } = this.state;
    if (this.ordered?.by !== by) this.ordered = { by, unrest: this.unrest() };
    const { unrest } = this.ordered;
    const { names } = this.grouping(track);
    const of = (g: number) => unrest.get(names[g]!) ?? Infinity;
    return names.map((_, g) => g).sort((a, b) => (of(a) === of(b) ? a - b : of(a) - of(b)));
  }

  /** By name of a group: how many bytes come and go for each byte that it holds on average, over all tracks. */
  private unrest(): Map<string, number> {
    const sums = new Map<string, [number, number]>();
    this.devices.forEach((device, track) => {
      const { names } = this.grouping(track);
      const values = groupsOf(device, this.grouping(track));
      names.forEach((name, g) => {
        let [moved, held] = sums.get(name) ?? [0, 0];
        for (let b = 0; b < device.high.length; b++) {
          const bytes = values[b * names.length + g]!;
          held += bytes / device.high.length;
          if (b) moved += Math.abs(bytes - values[(b - 1) * names.length + g]!);
        }
        sums.set(name, [moved, held]);
      });
    });
    return new Map([...sums].map(([name, [moved, held]]) => [name, held ? moved / held : Infinity]));
  }

  /** The top of all tracks of GPUs, or of one kind of host memory: they have one scale, so that they compare. */
  top(track: number): number {
    const kind = this.kind(track);
    return Math.max(...this.devices.map((_, i) => (this.kind(i) === kind ? this.most(i) : 0)));
  }

  /** The highest place of a track's dashed line, or 0 if it is so far above everything allocated that it would make
   * that flat: the line is then above the picture, and named at its upper border. */
  private reservedLine(track: number): number {
    const kind = this.kind(track);
    const peak = Math.max(...this.devices.map((d, i) => (this.kind(i) === kind ? d.head.peakAllocated : 0)));
    const { maxReserved } = this.devices[track]!.head;
    return peak > 0 && maxReserved > FAR * peak ? 0 : maxReserved;
  }

  private kind(track: number): 'gpu' | 'host' | 'cpu' {
    const { device } = this.devices[track]!.head;
    return typeof device === 'number' ? 'gpu' : device;
  }

  isHost(track: number): boolean {
    return this.kind(track) !== 'gpu';
  }

  /** The most that is ever shown in a track, lines included unless groups are isolated. */
  private most(track: number): number {
    const device = this.devices[track]!;
    const visible = this.visible(track);
    const grouping = this.grouping(track);
    const hasEnvelopes = grouping.key === 'pool' && device.pools.size > 0 && this.state.layout === 'grouped';
    const isAll = visible.every((v) => v);
    let most = 1;
    if (isAll) most = Math.max(1, this.reservedLine(track), device.head.peakAllocated, this.isHost(track) ? 0 : this.head.capacity);
    if (isAll && !hasEnvelopes) return most;
    const groups = visible.length;
    const sums = groupsOf(device, grouping);
    for (let b = 0; b < device.high.length; b++) {
      let sum = 0;
      for (let g = 0; g < groups; g++)
        if (visible[g]) sum += Math.max(sums[b * groups + g]!, hasEnvelopes ? device.keptAt(grouping, g, device.high[b]!) : 0);
      if (sum > most) most = sum;
    }
    return most;
  }
}
