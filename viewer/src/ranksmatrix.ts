// What the map draws: a number for each row and column, of time or of categories.
//
// A sketch has the most that was allocated in equal parts of its trace's time. The parts of all ranks are put on one axis: by their clocks,
// less what the library found these to be ahead of each other. Where neither steps nor clocks say what is simultaneous, each row is the
// rank's own time.

import { clock, duration } from './format.ts';
import type { Fleet, Row } from './ranksdata.ts';

export type View = 'time' | 'category';
export type Align = 'steps' | 'clock' | 'own';

export interface Matrix {
  view: View;
  columns: number;
  values: Float64Array; // by row, then column; NaN: nothing is known
  max: number;
  align: Align;
  note: string; // how rows and columns were put together
  span: number; // microseconds; of `own`, NaN
  blank: Map<number, string>; // by row without values: why
  begins: Float64Array; // by row: when its trace begins, on the axis; NaN: not known
  marks: { at: number; label: string }[]; // where steps begin, in columns
  stops: Float64Array; // by row: the column in which memory ran out, or NaN
  title: (column: number) => string;
}

const COLUMNS = 120;

const median = (sorted: number[]): number => sorted[sorted.length >> 1] ?? NaN;
const ascending = (values: number[]): number[] => values.sort((a, b) => a - b);

interface Times {
  align: Align;
  offset: Float64Array; // by row; NaN: not on the axis
  from: number;
  to: number;
  of: Row | null; // whose steps are marked
}

function alignTimes(rows: Row[]): Times {
  const traced = rows.filter((r) => r.hasTrace && r.length > 0);
  const offset = new Float64Array(rows.length).fill(NaN);
  const stepped = traced.filter((r) => !r.isOther && !Number.isNaN(r.ahead));
  const bySteps = stepped.length > 1 && stepped.length * 2 >= traced.length;
  const of = stepped.reduce<Row | null>((best, r) => (!best || r.steps.length > best.steps.length ? r : best), null);
  for (const row of traced) offset[row.index] = Number.isNaN(row.ahead) ? 0 : -row.ahead;
  // The devices of a rank have one clock.
  const own = new Map(traced.filter((r) => !r.isOther).map((r) => [r.rank, offset[r.index]!]));
  for (const row of traced) if (row.isOther) offset[row.index] = own.get(row.rank) ?? offset[row.index]!;
  const begins = ascending((bySteps ? stepped : traced).map((r) => r.first + offset[r.index]!));
  const lengths = ascending((bySteps ? stepped : traced).map((r) => r.length));
  const [usual, length] = [median(begins), median(lengths)];
  let [from, to] = [Infinity, -Infinity];
  for (const row of traced) {
    const first = row.first + offset[row.index]!;
    // One clock that is off, or a trace that is much longer than all others, must not make the others narrow.
    if (first + row.length < usual - length || first > usual + 3 * length) offset[row.index] = NaN;
    else [from, to] = [Math.min(from, Math.max(first, usual - length)), Math.max(to, Math.min(first + row.length, usual + 3 * length))];
  }
  const placed = traced.filter((r) => !Number.isNaN(offset[r.index]!)).length;
  if (!bySteps && placed * 10 < traced.length * 9) return { align: 'own', offset, from: 0, to: NaN, of: null };
  return { align: bySteps ? 'steps' : 'clock', offset, from, to, of: bySteps ? of : null };
}

const NOTES: Record<Align, string> = {
  steps: 'time; clocks aligned by the ranks\u2019 steps',
  clock: 'time, by the ranks\u2019 clocks',
  own: 'each rank\u2019s own time: their clocks have nothing in common',
};

function timeMatrix(fleet: Fleet): Matrix {
  const { rows, head } = fleet;
  const times = alignTimes(rows);
  const isOwn = times.align === 'own';
  const columns = isOwn ? head.parts : COLUMNS;
  const span = times.to - times.from;
  const values = new Float64Array(rows.length * columns).fill(NaN);
  const stops = new Float64Array(rows.length).fill(NaN);
  const columnOf = (time: number) => Math.max(0, Math.min(columns - 1, Math.floor(((time - times.from) / span) * columns)));
  const blank = new Map<number, string>();
  let max = 0;
  for (const row of rows) {
    const base = row.index * columns;
    const isPlaced = !Number.isNaN(times.offset[row.index]!);
    if (row.isMissing || !row.hasTrace || (!isOwn && !isPlaced)) {
      blank.set(row.index, row.isMissing ? 'no snapshot' : row.hasTrace ? 'at another time, by its clock' : 'no trace');
      continue;
    }
    const first = row.first + times.offset[row.index]!;
    row.parts.forEach((bytes, i) => {
      let [a, b] = [i, i];
      if (!isOwn) {
        const [begin, end] = [first + (row.length * i) / head.parts, first + (row.length * (i + 1)) / head.parts];
        if (end < times.from || begin > times.to) return;
        [a, b] = [columnOf(begin), columnOf(end - 1e-3)];
      }
      for (let c = a; c <= b; c++) if (!(values[base + c]! >= bytes)) values[base + c] = bytes;
      max = Math.max(max, bytes);
    });
    if (!row.isDead) continue;
    const last = isOwn ? columns - 1 : columnOf(first + row.length);
    stops[row.index] = Number.isNaN(row.stopAfter) ? last : isOwn ? Math.min(columns - 1, Math.floor((row.stopAfter / row.length) * columns)) : columnOf(first + row.stopAfter);
  }
  const { of } = times;
  const begins = of ? of.steps.map((s) => s.first + times.offset[of.index]!) : [];
  const marks = begins.filter((t) => t >= times.from && t <= times.to).map((t) => ({ at: ((t - times.from) / span) * columns, label: '' }));
  if (of && of.steps.length === of.stepCount && marks.length === of.steps.length) marks.forEach((m, i) => (m.label = `step ${i + 1}`));
  const title = (c: number) => {
    if (isOwn) return `part ${c + 1} of ${columns} of its time`;
    const after = `${duration((span * c) / columns)} to ${duration((span * (c + 1)) / columns)}`;
    return `${after} (${clock(times.from + (span * c) / columns)})`;
  };
  const traceBegins = times.offset.map((offset, i) => (isOwn ? NaN : rows[i]!.first + offset - times.from));
  return { view: 'time', columns, values, max, align: times.align, note: NOTES[times.align], blank, span: isOwn ? NaN : span, begins: traceBegins, marks, stops, title };
}

function categoryMatrix(fleet: Fleet): Matrix {
  const { rows, head } = fleet;
  const sums = head.categories.map((_, c) => rows.reduce((sum, r) => sum + (r.categories[c] ?? 0), 0));
  const chosen = sums.map((_, c) => c).filter((c) => sums[c]! > 0).sort((a, b) => sums[b]! - sums[a]!);
  const values = new Float64Array(rows.length * chosen.length).fill(NaN);
  let max = 0;
  for (const row of rows) {
    if (row.isMissing) continue;
    chosen.forEach((c, i) => {
      values[row.index * chosen.length + i] = row.categories[c]!;
      max = Math.max(max, row.categories[c]!);
    });
  }
  const marks = chosen.map((c, i) => ({ at: i, label: head.categories[c]! }));
  return {
    view: 'category', columns: chosen.length, values, max, align: 'own', note: 'bytes of each category at the rank\u2019s peak', span: NaN, blank: new Map(rows.filter((r) => r.isMissing).map((r) => [r.index, 'no snapshot'])), begins: new Float64Array(rows.length).fill(NaN), marks,
    stops: new Float64Array(rows.length).fill(NaN), title: (c) => head.categories[chosen[c]!]!,
  };
}

/** Matrices, and their differences to the medians of groups, each made when it is first asked for. */
export class Matrices {
  private readonly made = new Map<View, Matrix>();
  private readonly medians = new Map<View, Float64Array>(); // by group, then column

  constructor(private readonly fleet: Fleet) {}

  of(view: View): Matrix {
    let matrix = this.made.get(view);
    if (!matrix) this.made.set(view, (matrix = view === 'time' ? timeMatrix(this.fleet) : categoryMatrix(this.fleet)));
    return matrix;
  }

  median(view: View, group: number, column: number): number {
    return group < 0 ? NaN : this.mediansOf(view)[group * this.of(view).columns + column]!;
  }

  private mediansOf(view: View): Float64Array {
    const known = this.medians.get(view);
    if (known) return known;
    const { values, columns } = this.of(view);
    const { rows, answer } = this.fleet;
    const groups: Row[][] = answer.groups.map(() => []);
    for (const row of rows) if (row.group >= 0) groups[row.group]!.push(row);
    const out = new Float64Array(groups.length * columns);
    groups.forEach((members, g) => {
      const room = new Float64Array(members.length);
      for (let c = 0; c < columns; c++) {
        let count = 0;
        for (const row of members) {
          const value = values[row.index * columns + c]!;
          if (!Number.isNaN(value)) room[count++] = value;
        }
        const sorted = room.subarray(0, count).sort();
        out[g * columns + c] = count ? sorted[(count - 1) >> 1]! : NaN;
      }
    });
    this.medians.set(view, out);
    return out;
  }

  /** Each value less its group's median, and the largest of them. */
  differences(view: View): { values: Float64Array; max: number } {
    const { values, columns } = this.of(view);
    const medians = this.mediansOf(view);
    const out = new Float64Array(values.length).fill(NaN);
    let max = 0;
    for (const row of this.fleet.rows) {
      if (row.group < 0) continue;
      for (let c = 0; c < columns; c++) {
        const value = values[row.index * columns + c]! - medians[row.group * columns + c]!;
        out[row.index * columns + c] = value;
        if (Math.abs(value) > max) max = Math.abs(value);
      }
    }
    return { values: out, max };
  }
}
