// The whole card, as nvidia-smi shows it, over the time of a track: what each sort of holder has at a sample holds until the next one.

import type { Axis } from './axis.ts';
import type { Columns, HeadCard } from './decode.ts';
import { type Device, upperBound } from './device.ts';
import type { Theme } from './theme.ts';

// By sort, in the order of the head: PyTorch's two are alike, and what nobody accounts for is grey.
const COLOURS: Record<Theme, string[]> = {
  light: ['#4878a8', '#a3bfdb', '#e09438', '#5a9e57', '#9a9a3c', '#c4534c', '#a4abb5'],
  dark: ['#5c8fc4', '#34506e', '#dc9a4a', '#69ab66', '#a8a84c', '#cf6660', '#808894'],
};

export function cardColour(theme: Theme, sort: number): string {
  const colours = COLOURS[theme];
  return colours[sort % colours.length]!;
}

export class Card {
  readonly used: Float64Array;
  readonly bytes: Float64Array[]; // by sort and sample
  private readonly times: Float64Array; // since the first time of the track
  private readonly moments: Uint32Array;

  constructor(
    readonly head: HeadCard,
    columns: Columns,
    d: string,
  ) {
    const n = head.samples;
    this.times = columns.sums(`${d}card.times`, n);
    this.moments = columns.differences(`${d}card.moment`, n);
    this.used = columns.sums(`${d}card.used`, n);
    const reader = columns.reader(`${d}card.bytes`);
    this.bytes = head.sorts.map(() => {
      let value = 0;
      return Float64Array.from({ length: n }, () => (value += reader.signed()));
    });
  }

  /** What the height of the lane stands for. */
  get top(): number {
    return Math.max(1, this.head.total, this.head.most);
  }

  /** The sample that holds at a place of the axis, or -1: it is before the first one. */
  at(axis: Axis, device: Device, x: number): number {
    if (axis.kind === 'event') return upperBound(this.moments, x) - 1;
    return upperBound(this.times, x - axis.ofTime(device, 0)) - 1;
  }

  /** When a sample was taken, in microseconds since 1970. */
  time(device: Device, i: number): number {
    return device.head.firstTime + this.times[i]!;
  }

  /** Of samples from the first to before the end, one at which most is used. */
  most(first: number, end: number): number {
    let most = first;
    for (let i = first + 1; i < end; i++) if (this.used[i]! > this.used[most]!) most = i;
    return most;
  }
}
