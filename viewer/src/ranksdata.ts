// The ranks of a page: what the answer says of them, and what their sketches have besides. The columns are described in
// src/reader/page/ranks.c.

import type { Columns } from './decode.ts';
import { clean, delta } from './format.ts';

export interface RanksHead {
  schema: string;
  version: string;
  path: string;
  parts: number;
  others: boolean; // less is listed of each rank than usual
  categories: string[];
  columns: [string, number][];
}

/** Of `tessera ranks --json`: docs/json.md. */
export interface Answer {
  files: number;
  world_size: number | null;
  ranks_by: string;
  groups_by: string;
  ranks: {
    rank: number; path: string; device: number | 'host'; group: string; peak_allocated_bytes: number; peak_reserved_bytes: number;
    out_of_memory: boolean; step: number | null; coordinates: Record<string, number>; clock_ahead_us: number | null;
  }[];
  groups: { name: string; ranks: number[]; median_rank: number; min_bytes: number; median_bytes: number; max_bytes: number }[];
  outliers: { rank: number; device: number | 'host'; compared_with: number | null; delta_bytes: number; excess_bytes: number; cause_code: string; cause: string }[];
  out_of_memory: number[];
  growth: { rank: number; snapshots: number; first_bytes: number; last_bytes: number; bytes_per_hour: number | null }[];
  stragglers: { rank: number; group: string; late_us: number; step_us: number; late_steps: number; steps: number }[];
  missing: number[];
  missing_parts: number[];
  broken: { path: string; message: string }[];
}

export interface Step {
  first: number; // microseconds of the rank's clock
  last: number;
  peak: number;
  end: number;
}

export interface Share {
  node: number; // -1: no stack
  category: number;
  bytes: number;
  count: number;
}

export interface Change {
  node: number;
  category: number;
  delta: number;
  median: number;
  others: number; // of the last one: how many it stands for
}

/** A device of a rank. */
export interface Row {
  index: number;
  rank: number;
  path: string; // as it is: to be shown clean
  device: number | 'host';
  isOther: boolean; // not the rank's own device
  isMissing: boolean; // a rank without a snapshot: nothing else is known of it
  group: number;
  peak: number;
  reserved: number;
  step: number | null;
  coordinates: Record<string, number>;
  isDead: boolean;
  death: number; // its place among those that ran out of memory, from 1; 0: it did not
  outlier: Answer['outliers'][number] | null;
  hasTrace: boolean;
  clock: number; // how far its clock is off, as the answer says: 0 for less than a step
  ahead: number; // how far its clock is ahead of the median rank's, by their steps; NaN: these do not tell
  first: number; // NaN: unknown, as the next three
  length: number;
  peakAfter: number; // after `first`
  stopAfter: number;
  stepCount: number;
  wholeSteps: number;
  categories: Float64Array;
  parts: Float64Array;
  steps: Step[];
  shares: Share[];
  compared: number; // a row, or -1
  changes: Change[];
}

export interface Fleet {
  head: RanksHead;
  answer: Answer;
  verdict: string;
  rows: Row[]; // those of the answer, then ranks that are missing
  unlisted: number; // missing ranks beyond those
}

// More missing ranks are counted and not drawn.
const MOST_MISSING = 2000;

function text(columns: Columns, name: string): string {
  return new TextDecoder().decode(columns.bytes(name));
}

function missingRow(index: number, rank: number): Row {
  return {
    index, rank, path: '', device: 0, isOther: false, isMissing: true, group: -1, peak: 0, reserved: 0, step: null, coordinates: {}, isDead: false,
    death: 0, outlier: null, hasTrace: false, clock: 0, ahead: NaN, first: NaN, length: NaN, peakAfter: NaN, stopAfter: NaN, stepCount: 0, wholeSteps: 0,
    categories: new Float64Array(0), parts: new Float64Array(0), steps: [], shares: [], compared: -1, changes: [],
  };
}

/** What the columns have besides the answer, row by row. */
function readRows(columns: Columns, head: RanksHead, answer: Answer): Row[] {
  const rows = columns.reader('rows');
  const categories = columns.reader('categories');
  const parts = columns.reader('parts');
  const steps = columns.reader('steps');
  const shares = columns.reader('shares');
  const changes = columns.reader('changes');
  const known = () => {
    const value = rows.number();
    return value ? value - 1 : NaN;
  };
  const deaths = new Map<number, number>();
  answer.out_of_memory.forEach((rank, i) => deaths.has(rank) || deaths.set(rank, i + 1));
  const outliers = new Map(answer.outliers.map((o) => [`${o.rank} ${o.device}`, o]));
  return answer.ranks.map((said, index) => {
    const [first, length, peakAfter, stopAfter] = [known(), known(), known(), known()];
    const [group, isOther, hasTrace, stepCount, wholeSteps] = [rows.number(), rows.number(), rows.number(), rows.number(), rows.number()];
    const row: Row = {
      index, rank: said.rank, path: said.path, device: said.device, isOther: !!isOther, isMissing: false, group, peak: said.peak_allocated_bytes,
      reserved: said.peak_reserved_bytes, step: said.step, coordinates: said.coordinates, isDead: said.out_of_memory,
      death: said.out_of_memory ? (deaths.get(said.rank) ?? 0) : 0, outlier: outliers.get(`${said.rank} ${said.device}`) ?? null,
      hasTrace: !!hasTrace, clock: said.clock_ahead_us ?? 0, ahead: rows.number() ? rows.signed() : NaN, first, length, peakAfter, stopAfter, stepCount, wholeSteps,
      categories: new Float64Array(head.categories.length), parts: new Float64Array(head.parts), steps: [], shares: [], compared: -1, changes: [],
    };
    for (let c = 0; c < head.categories.length; c++) row.categories[c] = categories.number();
    for (let i = 0, bytes = 0; i < head.parts; i++) row.parts[i] = bytes += parts.signed();
    for (let n = steps.number(), at = Number.isNaN(first) ? 0 : first; n > 0; n--) {
      at += steps.signed();
      row.steps.push({ first: at, last: at + steps.signed(), peak: steps.number(), end: steps.number() });
    }
    for (let n = shares.number(); n > 0; n--)
      row.shares.push({ node: shares.number() - 1, category: shares.number(), bytes: shares.number(), count: shares.number() });
    row.compared = changes.number() - 1;
    for (let n = changes.number(); n > 0; n--)
      row.changes.push({ node: changes.number() - 1, category: changes.number(), delta: changes.signed(), median: changes.number(), others: 0 });
    const others = changes.number();
    if (others) row.changes.at(-1)!.others = others;
    return row;
  });
}

export function readFleet(head: RanksHead, columns: Columns): Fleet {
  const answer = JSON.parse(text(columns, 'answer')) as Answer;
  for (const group of answer.groups) group.name = clean(group.name);
  const rows = readRows(columns, head, answer);
  for (const rank of answer.missing.slice(0, MOST_MISSING)) rows.push(missingRow(rows.length, rank));
  return { head, answer, verdict: clean(text(columns, 'verdict').trim()), rows, unlisted: Math.max(0, answer.missing.length - MOST_MISSING) };
}

/** The rank as people call it: its other devices are named. */
export function rowName(row: Row): string {
  return row.isOther ? `rank ${row.rank} on device ${row.device}` : `rank ${row.rank}`;
}

/** A difference as people say it. */
export function difference(bytes: number): string {
  return bytes ? delta(bytes) : 'the same';
}

/** How a row stands to its group's median, or null. */
export function deltaOf(fleet: Fleet, row: Row): number | null {
  const group = fleet.answer.groups[row.group];
  return group && !row.isOther ? row.peak - group.median_bytes : null;
}

/** A path as a command's word that a shell reads as it is: control characters are spelled out, and it is no option. */
export function shellPath(path: string): string {
  const word = path.startsWith('-') ? `./${path}` : path;
  if (/[\u0000-\u001f\u007f]/.test(word)) {
    const spelled = word.replace(/[\\']/g, '\\$&').replace(/[\u0000-\u001f\u007f]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
    return `$'${spelled}'`;
  }
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}
