// The horizontal axis, shared by all tracks: event numbers, or microseconds.
//
// On the axis of events, moment m takes the place from m to m + 1. On that of time, the devices of a file are
// placed by their clock. Files that all overlap share the clock too; others all begin at the left. A device
// without events has one moment, which takes the whole axis.

import type { Device } from './device.ts';
import { count, duration, unitOf } from './format.ts';

export type AxisKind = 'event' | 'time';

export class Axis {
  readonly extent: [number, number];
  private readonly offsets: number[] = [];

  constructor(
    readonly kind: AxisKind,
    devices: Device[],
  ) {
    if (kind === 'event') {
      this.extent = [0, Math.max(1, ...devices.map((d) => d.moments))];
      return;
    }
    const files = new Map<number, [number, number]>(); // first and last time of each
    const length = (d: Device) => d.times[d.times.length - 1] ?? 0;
    const timed = devices.filter((d) => d.hasTimes);
    for (const d of timed) {
      const [from, to] = files.get(d.head.input) ?? [Infinity, -Infinity];
      files.set(d.head.input, [Math.min(from, d.head.firstTime), Math.max(to, d.head.firstTime + length(d))]);
    }
    const spans = [...files.values()];
    const first = Math.min(...spans.map(([from]) => from));
    const end = Math.min(...spans.map(([, to]) => to));
    const overlap = spans.every(([from]) => from <= end);
    this.offsets = devices.map((d) => (d.hasTimes ? d.head.firstTime - (overlap ? first : files.get(d.head.input)![0]) : 0));
    const most = Math.max(0, ...timed.map((d) => length(d) + this.offsets[d.index]!));
    this.extent = [0, most + Math.max(1, most * 0.002)];
  }

  /** Whether all traces have times, and there is one. */
  static canBeTime(devices: Device[]): boolean {
    return devices.some((d) => d.hasTimes) && devices.every((d) => d.hasTimes || d.isStill);
  }

  /** Where a moment is placed. */
  x(device: Device, moment: number): number {
    if (device.isStill) return 0;
    if (this.kind === 'event') return moment;
    return device.timeOf(moment) + this.offsets[device.index]!;
  }

  /** Where a time is placed that is counted from the device's first one; of the axis of time. */
  ofTime(device: Device, time: number): number {
    return time + (this.offsets[device.index] ?? 0);
  }

  /** The moment that holds at a place, within the device's own. */
  moment(device: Device, x: number): number {
    if (device.isStill) return 0;
    const at = this.kind === 'event' ? Math.floor(x) : device.momentOf(x - this.offsets[device.index]!);
    return Math.max(0, Math.min(device.moments - 1, at));
  }

  /** Where the device's trace begins and ends. */
  span(device: Device): [number, number] {
    if (device.isStill) return this.extent;
    if (this.kind === 'event') return [0, device.moments];
    const from = this.offsets[device.index]!;
    const to = from + (device.times[device.times.length - 1] ?? 0);
    return [from, Math.min(this.extent[1], to + Math.max(1, this.extent[1] * 0.002))];
  }

  /** The narrowest view that makes sense. */
  get least(): number {
    return this.kind === 'event' ? 4 : 2;
  }

  label(x: number, step: number): string {
    if (this.kind === 'event') return count(x);
    if (step >= 1e6) return `${(x / 1e6).toFixed(step >= 1e7 ? 0 : 1)} s`;
    if (step >= 1e3) return `${(x / 1e3).toFixed(step >= 1e4 ? 0 : 1)} ms`;
    return duration(x);
  }
}

/** Round places for labels, at most so many, and no closer than `least`. */
export function ticks(from: number, to: number, most: number, least = 0): number[] {
  const rough = (to - from) / Math.max(1, most);
  if (!(rough > 0)) return [];
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 5, 10].find((n) => n * unit >= rough * 0.999)! * unit);
  const out: number[] = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to && out.length < 100; i++) out.push(i * step);
  return out;
}

/** Round sizes for labels and their texts, all in one unit that tells them apart. */
export function byteTicks(from: number, to: number, most: number): [number, string][] {
  let [unit, name] = unitOf(to);
  while (unit > 1 && (to - from) / most < unit / 200) [unit, name] = unitOf(unit / 1024);
  const places = ticks(from / unit, to / unit, most, unit > 1 ? 0 : 1);
  const step = places.length > 1 ? places[1]! - places[0]! : 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return places.map((at) => {
    const [whole, part] = at.toFixed(digits).split('.');
    return [at * unit, at ? `${count(Number(whole))}${part ? `.${part}` : ''} ${name}` : '0 B'];
  });
}
