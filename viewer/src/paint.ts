// The picture itself, drawn pixel by pixel: a colour and an owner for each.
//
// Every column stands for one moment, the one at which most is allocated (curves.ts). Allocations are stacked in
// the order in which they were made, group upon group or all together. A row of pixels belongs to the allocation
// that lies at its lower border, so also blocks thinner than a pixel have owners and keep their place. Where there
// are too many of these, and of what is only told in sums, each group has one band at its bottom. The owners answer
// what is under the pointer in no time.
//
// With a search or a finding, every column has as many coloured rows as its matching bytes fill: a row that thin
// matching blocks fill together is coloured too, although none of them owns it by its place.

import { sample, type View } from './curves.ts';
import type { Device, Grouping } from './device.ts';
import type { Swatch } from './theme.ts';

export interface Picture {
  width: number;
  height: number;
  pixels: Uint32Array<ArrayBuffer>;
  // Allocation + 1; -(group + 1) for a band of small ones; -(groups + group + 1) for what the private
  // pools of a group keep beside them; 0 for nothing.
  owner: Int32Array;
}

export interface How {
  layout: 'grouped' | 'bands';
  bytesPerPixel: number;
  low: number; // bytes at the lower border
  height: number;
  left: number; // column of the picture where the view begins
  width: number;
  order: number[]; // of groups, from the bottom
  visible: boolean[]; // by group
  colours: Swatch[];
  matches: Uint8Array | null; // by allocation; NULL: all do
}

// Shapes thinner than a pixel are drawn one by one as long as they take so many columns together.
const MOST_THIN = 1e6;
// Of more allocations in view, only those that are a pixel high are looked at.
const MOST_LOOKED_AT = 300000;

interface Shapes {
  ids: number[];
  from: Int32Array; // first column
  to: Int32Array; // one past the last
}

/** The first column whose moment is not before a given one: a table, then a few steps. */
function finder(view: View): (moment: number) => number {
  const { moment, columns } = view;
  const first = moment[0]!;
  const span = moment[columns - 1]! - first + 1;
  const slots = 4096;
  const table = new Int32Array(slots + 1);
  for (let s = 0, c = 0; s <= slots; s++) {
    const start = first + Math.floor((s * span) / slots);
    while (c < columns && moment[c]! < start) c++;
    table[s] = c;
  }
  return (m) => {
    if (m <= first) return 0;
    let slot = Math.floor(((m - first) * slots) / span);
    if (slot > slots) slot = slots;
    let c = table[slot]!;
    while (c > 0 && moment[c - 1]! >= m) c--;
    while (c < columns && moment[c]! < m) c++;
    return c;
  };
}

/** Allocations that may be shapes, in the order in which they were made. */
function candidates(device: Device, first: number, last: number, bytesPerPixel: number): Iterable<number> {
  const [from, to] = device.madeIn(first + 1, last + 1);
  if (to - from > MOST_LOOKED_AT) return device.atLeast(bytesPerPixel);
  const ids = device.live(first);
  for (let a = from; a < to; a++) ids.push(a);
  return ids;
}

/** The smallest size such that all thin shapes of it or more are few enough: a power of two. */
function leastShown(device: Device, ids: number[], from: number[], to: number[], bytesPerPixel: number): number {
  const columns = new Float64Array(64);
  ids.forEach((a, i) => {
    const bytes = device.requested(a);
    if (bytes < bytesPerPixel) columns[Math.floor(Math.log2(Math.max(1, bytes)))]! += to[i]! - from[i]!;
  });
  let room = MOST_THIN;
  let level = 64;
  while (level > 0 && columns[level - 1]! <= room) room -= columns[--level]!;
  return level ? Math.min(2 ** level, bytesPerPixel) : 0;
}

/** What is drawn as single shapes: allocations that live at the moment of some column. */
function shapesOf(device: Device, grouping: Grouping, view: View, how: How): Shapes {
  const { born, died } = device;
  const ids: number[] = [];
  const from: number[] = [];
  const to: number[] = [];
  const columnOf = finder(view);
  const firstMoment = view.moment[0]!;
  const lastMoment = view.moment[view.columns - 1]!;
  for (const a of candidates(device, firstMoment, lastMoment, how.bytesPerPixel)) {
    if (born[a]! > lastMoment) break;
    if (died[a]! <= firstMoment || !how.visible[grouping.group[a]!] || !device.requested(a)) continue;
    const c0 = columnOf(born[a]!);
    const c1 = died[a]! > lastMoment ? view.columns : columnOf(died[a]!);
    if (c1 <= c0) continue;
    ids.push(a);
    from.push(c0);
    to.push(c1);
  }
  const least = leastShown(device, ids, from, to, how.bytesPerPixel);
  const kept = ids.map((a, i) => (device.requested(a) >= least ? i : -1)).filter((i) => i >= 0);
  return { ids: kept.map((i) => ids[i]!), from: Int32Array.from(kept, (i) => from[i]!), to: Int32Array.from(kept, (i) => to[i]!) };
}

/** How rows are coloured. */
interface Paint {
  shade: number;
  faint: number; // above the column's lowest moment
  edge: number; // 0: none
}

/** What a search leaves of a column so far. */
interface Found {
  rows: Float64Array; // that matching blocks fill, by column
  coloured: Int32Array; // and those that are coloured for them
  owner: Int32Array; // of the last of them
  row: Int32Array; // and where it is
  paint: Paint[];
}

class Painter {
  readonly picture: Picture;
  // Of each column, how high it is so far: rows from the lower border, and the row where that is rounded to. Both may
  // be outside the picture.
  private readonly top: Float64Array;
  private readonly topRow: Int32Array;
  private readonly lowRow: Int32Array; // rows above it are faint
  private readonly found: Found | null = null; // NULL: nothing is looked for

  constructor(
    private readonly device: Device,
    private readonly grouping: Grouping,
    private readonly view: View,
    private readonly how: How,
  ) {
    const { width, height, low, bytesPerPixel } = how;
    const { columns } = view;
    this.picture = { width, height, pixels: new Uint32Array(width * height), owner: new Int32Array(width * height) };
    this.top = new Float64Array(columns).fill(-low / bytesPerPixel);
    this.topRow = new Int32Array(columns).fill(Math.round(height + low / bytesPerPixel));
    this.lowRow = new Int32Array(columns);
    if (how.matches) this.found = { rows: new Float64Array(columns), coloured: new Int32Array(columns), owner: new Int32Array(columns), row: new Int32Array(columns), paint: [] };
    for (let c = 0; c < columns; c++) {
      const differs = view.low[c]! < view.allocated[c]! * 0.999;
      this.lowRow[c] = differs ? Math.round(height - (view.low[c]! - low) / bytesPerPixel) : 0;
    }
  }

  /** Make a column higher by so many rows, and answer where its top was. */
  private raise(c: number, rows: number): number {
    const bottom = this.topRow[c]!;
    this.top[c]! += rows;
    this.topRow[c] = Math.round(this.how.height - this.top[c]!);
    return Math.min(bottom, this.how.height);
  }

  /** Put what is so many rows high on top of a column. */
  private put(c: number, rows: number, paint: Paint, owner: number): void {
    const bottom = this.raise(c, rows);
    const row = Math.max(0, this.topRow[c]!);
    if (bottom > row) this.fill(c, row, bottom, paint, owner, rows >= 5);
  }

  private fill(c: number, row: number, bottom: number, paint: Paint, owner: number, hasEdge = false): void {
    const { width, left } = this.how;
    const { pixels, owner: owners } = this.picture;
    const low = this.lowRow[c]!;
    let at = row * width + left + c;
    for (let r = row; r < bottom; r++, at += width) {
      pixels[at] = hasEdge && r === row && paint.edge ? paint.edge : r < low ? paint.faint : paint.shade;
      owners[at] = owner;
    }
  }

  /** The same while something is looked for; `paint` is NULL for what does not match. Of the rows up to here as many
   * are coloured as all that matches fills, whether a single block fills a row or not. */
  private putFound(c: number, rows: number, paint: Paint | null, dim: Paint, owner: number): void {
    const found = this.found!;
    if (paint) {
      const hidden = Math.max(0, Math.min(rows, -this.top[c]!)); // below the picture
      found.rows[c]! += rows - hidden;
      found.owner[c] = owner;
      found.row[c] = Math.min(this.topRow[c]!, this.how.height) - 1;
      found.paint[c] = paint;
    }
    const bottom = this.raise(c, rows);
    const row = Math.max(0, this.topRow[c]!);
    if (bottom <= row) return;
    const split = bottom - Math.max(0, Math.min(bottom - row, Math.round(found.rows[c]!) - found.coloured[c]!));
    found.coloured[c]! += bottom - split;
    if (paint) {
      this.fill(c, row, row + bottom - split, paint, owner, rows >= 5);
      this.fill(c, row + bottom - split, bottom, dim, owner);
    } else {
      this.fill(c, row, split, dim, owner);
      if (split < bottom) this.fill(c, split, bottom, found.paint[c]!, found.owner[c]!);
    }
  }

  /** What matches is seen, however little it is. */
  showFound(): void {
    const { found } = this;
    if (!found) return;
    for (let c = 0; c < this.view.columns; c++) {
      if (!found.rows[c] || found.coloured[c]) continue;
      const row = Math.max(0, found.row[c]!);
      this.fill(c, row, row + 1, found.paint[c]!, found.owner[c]!);
    }
  }

  /** A group's bytes that have no shapes, of which `matching` match. */
  band(g: number, small: Float64Array, matching: Float64Array | null): void {
    const { groups } = this.view;
    const { bytesPerPixel } = this.how;
    const colour = this.how.colours[g]!;
    const paint = { shade: colour.shades[2]!, faint: colour.faint[2]!, edge: 0 };
    const dim = { shade: colour.dim, faint: colour.dim, edge: 0 };
    for (let c = 0; c < this.view.columns; c++) {
      const bytes = small[c * groups + g]!;
      if (bytes <= 0) continue;
      if (!matching) this.put(c, bytes / bytesPerPixel, paint, -(g + 1));
      else {
        const some = Math.max(0, Math.min(bytes, matching[c * groups + g]!));
        if (bytes > some) this.putFound(c, (bytes - some) / bytesPerPixel, null, dim, -(g + 1));
        if (some) this.putFound(c, some / bytesPerPixel, paint, dim, -(g + 1));
      }
    }
  }

  /** What private pools keep beyond their live blocks: an envelope around these, up to the pools'
   * high-water mark. Hatched, so that it is not taken for memory in use. */
  envelope(g: number): void {
    const kept = this.view.kept.get(g);
    if (!kept) return;
    const { width, left, bytesPerPixel } = this.how;
    const groups = this.view.groups;
    const colour = this.how.colours[g]!;
    const { pixels, owner } = this.picture;
    for (let c = 0; c < this.view.columns; c++) {
      const bytes = kept[c]! - Math.max(0, this.view.sums[c * groups + g]!);
      if (bytes <= 0) continue;
      const bottom = this.raise(c, bytes / bytesPerPixel);
      const row = Math.max(0, this.topRow[c]!);
      for (let r = row; r < bottom; r++) {
        const at = r * width + left + c;
        const isLine = r === row || (left + c + r) % 7 === 0;
        pixels[at] = this.found ? colour.dim : r === row ? colour.edge : isLine ? colour.faint[0]! : colour.dim;
        owner[at] = -(groups + g + 1);
      }
    }
  }

  shape(a: number, from: number, to: number): void {
    const { colours, matches, bytesPerPixel } = this.how;
    const kind = this.device.kind[a]!;
    const colour = colours[this.grouping.group[a]!]!;
    const rows = this.device.kindRequested[kind]! / bytesPerPixel;
    const isThin = rows < 1;
    const variant = isThin ? 2 : (Math.imul(this.device.kindNode[kind]! + 2, 2654435761) >>> 7) % 5;
    const paint = { shade: colour.shades[variant]!, faint: colour.faint[variant]!, edge: colour.edge };
    const begin = to - from >= 3 && rows >= 2 && this.device.born[a]! > this.view.moment[0]! ? { ...paint, shade: colour.edge } : paint;
    if (!matches) for (let c = from; c < to; c++) this.put(c, rows, c === from ? begin : paint, a + 1);
    else {
      const dim = { shade: colour.dim, faint: colour.dim, edge: 0 };
      for (let c = from; c < to; c++) this.putFound(c, rows, matches[a] ? (c === from ? begin : paint) : null, dim, a + 1);
    }
  }
}

/** Bytes of groups that match, at every column. */
function matchingSums(device: Device, grouping: Grouping, view: View, matches: Uint8Array): Float64Array {
  const { groups } = view;
  const both = sample(device, Uint16Array.from(grouping.group, (g, a) => g * 2 + matches[a]!), groups * 2, view.moment);
  return Float64Array.from({ length: view.columns * groups }, (_, i) => both[i * 2 + 1]!);
}

export function paint(device: Device, grouping: Grouping, view: View, how: How): Picture {
  const painter = new Painter(device, grouping, view, how);
  if (!view.columns) return painter.picture;
  const { matches } = how;
  const shapes = shapesOf(device, grouping, view, how);
  const small = view.sums.slice();
  const matching = matches && matchingSums(device, grouping, view, matches);
  shapes.ids.forEach((a, i) => {
    const bytes = device.requested(a);
    const g = grouping.group[a]!;
    for (let at = shapes.from[i]! * view.groups + g, end = shapes.to[i]! * view.groups; at < end; at += view.groups) {
      small[at]! -= bytes;
      if (matching && matches[a]) matching[at]! -= bytes;
    }
  });
  const groups = how.order.filter((g) => how.visible[g]);
  if (how.layout === 'bands') {
    for (const g of groups) painter.band(g, small, matching);
    shapes.ids.forEach((a, i) => painter.shape(a, shapes.from[i]!, shapes.to[i]!));
  } else {
    const members = new Map<number, number[]>(groups.map((g) => [g, []]));
    shapes.ids.forEach((a, i) => members.get(grouping.group[a]!)!.push(i));
    for (const g of groups) {
      painter.band(g, small, matching);
      for (const i of members.get(g)!) painter.shape(shapes.ids[i]!, shapes.from[i]!, shapes.to[i]!);
      painter.envelope(g);
    }
  }
  painter.showFound();
  return painter.picture;
}
