// Lanes above a track: annotations as the program gave them, and phases and steps as far as the
// allocations tell: what mostly allocates is forward, backward or optimizer.

import type { Device, Range } from './device.ts';

export interface Lane {
  title: string;
  ranges: Range[];
}

const PHASES: Record<string, string> = {
  parameter: 'set-up',
  activation: 'forward',
  backward: 'backward',
  optimizer: 'optimizer',
};

const MOST_WINDOWS = 8192;
const MOST_ROWS = 5;

/** Runs of windows in which the same kind of memory is mostly made. */
function phasesOf(device: Device): Range[] {
  const category = device.groupings[0]!;
  const windows = Math.min(MOST_WINDOWS, Math.floor(device.moments / 24));
  if (windows < 8) return [];
  const width = Math.ceil(device.moments / windows);
  const phases = category.names.map((name) => PHASES[name] !== undefined);
  const groups = category.names.length;
  const made = new Float64Array(windows * groups);
  for (let a = 0; a < device.count; a++) {
    const g = category.group[a]!;
    if (!device.born[a] || !phases[g]) continue;
    made[Math.min(windows - 1, Math.floor(device.born[a]! / width)) * groups + g]! += device.requested(a);
  }
  const runs: Range[] = [];
  for (let w = 0; w < windows; w++) {
    let best = -1;
    for (let g = 0; g < groups; g++)
      if (made[w * groups + g]! > 0 && (best < 0 || made[w * groups + g]! > made[w * groups + best]!)) best = g;
    if (best < 0) continue;
    const last = runs[runs.length - 1];
    const died = Math.min(device.moments, (w + 1) * width);
    if (last && last.group === best) last.died = died;
    else runs.push({ name: PHASES[category.names[best]!]!, born: w * width, died, kind: 'phase', group: best });
  }
  return settle(runs, width * 2);
}

/** Runs too short to be phases go to the run before them. */
function settle(runs: Range[], least: number): Range[] {
  const out: Range[] = [];
  for (const run of runs) {
    const last = out[out.length - 1];
    if (last && (last.group === run.group || run.died - run.born < least)) last.died = run.died;
    else out.push({ ...run });
  }
  return out.length > 1 ? out : [];
}

/** Steps end where an optimizer does; without one, where backward gives way to forward. */
function stepsOf(device: Device, phases: Range[]): Range[] {
  const has = phases.some((p) => p.name === 'optimizer');
  const ends = phases.filter((p, i) => {
    if (p.name === 'optimizer') return true;
    return !has && p.name === 'backward' && phases[i + 1]?.name === 'forward';
  });
  if (ends.length < 2) return [];
  const out: Range[] = [];
  let born = 0;
  for (const end of ends) {
    out.push({ name: `step ${out.length + 1}`, born, died: end.died, kind: 'step' });
    born = end.died;
  }
  if (born < device.moments - 1 && phases[phases.length - 1]!.died > born)
    out.push({ name: `step ${out.length + 1}`, born, died: device.moments, kind: 'step' });
  return out;
}

/** Ranges in as few rows as hold them side by side; those that do not fit are left out. */
function rows(title: string, ranges: Range[]): Lane[] {
  const lanes: Lane[] = [];
  for (const range of ranges) {
    let lane = lanes.find((l) => l.ranges[l.ranges.length - 1]!.died <= range.born);
    if (!lane) {
      if (lanes.length === MOST_ROWS) continue;
      lanes.push((lane = { title, ranges: [] }));
    }
    lane.ranges.push(range);
  }
  return lanes;
}

export function lanesOf(device: Device): Lane[] {
  const phases = phasesOf(device);
  const steps = stepsOf(device, phases);
  const lanes: Lane[] = [];
  if (steps.length) lanes.push({ title: 'step (inferred)', ranges: steps });
  if (phases.length) lanes.push({ title: 'phase (inferred)', ranges: phases });
  lanes.push(...rows('annotation', device.ranges.filter((r) => r.kind === 'annotation')));
  lanes.push(...rows('metadata', device.ranges.filter((r) => r.kind === 'metadata')));
  return lanes;
}
