// Lanes above a track: its steps and phases as the library found them, annotations and metadata as
// the program gave them.

import { type Device, type Range, RANGE_KINDS, type RangeKind } from './device.ts';

export interface Lane {
  kind: RangeKind;
  ranges: Range[];
}

const ORDER: RangeKind[] = ['step', 'phase', 'annotation', 'metadata'];
const MOST_ROWS = 5;

/** Ranges in as few rows as hold them side by side; those that do not fit are left out. */
function rows(kind: RangeKind, ranges: Range[]): Lane[] {
  const lanes: Lane[] = [];
  for (const range of ranges) {
    let lane = lanes.find((l) => l.ranges[l.ranges.length - 1]!.died <= range.born);
    if (!lane) {
      if (lanes.length === MOST_ROWS) continue;
      lanes.push((lane = { kind, ranges: [] }));
    }
    lane.ranges.push(range);
  }
  return lanes;
}

export function lanesOf(device: Device): Lane[] {
  const of = new Map<RangeKind, Range[]>(RANGE_KINDS.map((kind) => [kind, []]));
  for (const range of device.ranges) of.get(range.kind)!.push(range);
  return ORDER.flatMap((kind) => rows(kind, of.get(kind)!));
}
