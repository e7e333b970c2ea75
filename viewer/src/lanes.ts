// Lanes above a track: its steps and phases as the library found them, annotations and metadata as
// the program gave them.

import { type Device, type Range, RANGE_KINDS, type RangeKind } from './device.ts';

export interface Lane {
  kind: RangeKind;
  ranges: Range[];
}

const ORDER: RangeKind[] = ['step', 'phase', 'annotation', 'metadata'];
const MOST_ROWS = 5;

/** Ranges in as few rows as hold them side by side; those that do not fit are left out. One that no
 * event happened in is shown where there is room, and has no row for itself. */
function rows(kind: RangeKind, ranges: Range[]): Lane[] {
  const lanes: Lane[] = [];
  for (const range of ranges) {
    let lane = lanes.find((l) => l.ranges[l.ranges.length - 1]!.died <= range.born);
    if (!lane) {
      if (lanes.length === MOST_ROWS || range.died <= range.born) continue;
      lanes.push((lane = { kind, ranges: [] }));
    }
    lane.ranges.push(range);
  }
  return lanes;
}

/** A lane of nothing but unknown phases says nothing. */
function says(lane: Lane): boolean {
  return lane.kind !== 'phase' || lane.ranges.some((r) => r.name !== 'unknown');
}

export function lanesOf(device: Device): Lane[] {
  const of = new Map<RangeKind, Range[]>(RANGE_KINDS.map((kind) => [kind, []]));
  for (const range of device.ranges) of.get(range.kind)!.push(range);
  return ORDER.flatMap((kind) => rows(kind, of.get(kind)!)).filter(says);
}
