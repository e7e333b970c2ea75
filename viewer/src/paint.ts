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
  matched: Float64Array | null; // bytes of all that matches, by column; NULL if nothing is looked for
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

// Shapes thinner than a pixel are drawn one by one until together they cover this many columns.
const MOST_THIN = 1e6;
// Of more allocations in view, only those that are a pixel high are looked at.
const MOST_LOOKED_AT = 100000;

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

/** The shapes of a column, group by group or all in one list, each in the order in which they were made. Whoever goes
 * through a list leaves out those that have ended. */
class Lists {
  readonly items: Int32Array[];
  readonly counts: Int32Array;
  private next = 0; // shape

  constructor(
    private readonly shapes: Shapes,
    private readonly listOf: (shape: number) => number,
    count: number,
  ) {
    const sizes = new Int32Array(count);
    for (let i = 0; i < shapes.ids.length; i++) sizes[listOf(i)]!++;
    this.items = Array.from(sizes, (size) => new Int32Array(size));
    this.counts = new Int32Array(count);
  }

  /** Add what begins by a column. */
  advance(c: number): void {
    const { shapes, listOf, items, counts } = this;
    for (; this.next < shapes.ids.length && shapes.from[this.next]! <= c; this.next++) {
      const list = listOf(this.next);
      items[list]![counts[list]!++] = this.next;
    }
  }
}

/** Fills one column after the other, from the bottom. */
class Painter {
  readonly picture: Picture;
  private readonly rows: Float64Array; // that each shape is high
  private readonly dims: Paint[]; // by group
  private c = 0;
  private top = 0; // of what is there already: rows from the lower border, which may be outside the picture
  private topRow = 0; // and the row where that is rounded to
  private lowRow = 0; // rows above it are faint
  // What is found: rows that it fills, those that are coloured for it, the last of it (a shape, or -1 - group), and
  // the row where that begins.
  private found = 0;
  private coloured = 0;
  private last = 0;
  private lastRow = 0;

  constructor(
    private readonly device: Device,
    private readonly grouping: Grouping,
    private readonly view: View,
    private readonly how: How,
    private readonly shapes: Shapes,
    private readonly lists: Lists,
  ) {
    const { width, height, bytesPerPixel } = how;
    this.picture = { width, height, pixels: new Uint32Array(width * height), owner: new Int32Array(width * height), matched: null };
    this.rows = Float64Array.from(shapes.ids, (a) => device.requested(a) / bytesPerPixel);
    this.dims = how.colours.map(({ dim }) => ({ shade: dim, faint: dim, edge: 0 }));
  }

  begin(c: number): void {
    const { height, low, bytesPerPixel } = this.how;
    const { view } = this;
    this.c = c;
    this.top = -low / bytesPerPixel;
    this.topRow = Math.round(height - this.top);
    const differs = view.low[c]! < view.allocated[c]! * 0.999 && !view.kept.size; // envelopes are always there
    this.lowRow = differs ? Math.round(height - (view.low[c]! - low) / bytesPerPixel) : 0;
    this.found = this.coloured = 0;
    this.lists.advance(c);
  }

  private fill(row: number, bottom: number, paint: Paint, owner: number, hasEdge = false): void {
    const { width, left } = this.how;
    const { pixels, owner: owners } = this.picture;
    let at = row * width + left + this.c;
    for (let r = row; r < bottom; r++, at += width) {
      pixels[at] = hasEdge && r === row && paint.edge ? paint.edge : r < this.lowRow ? paint.faint : paint.shade;
      owners[at] = owner;
    }
  }

  /** Fill rows up to a new top, as far as they are in the picture. */
  private fillTo(row: number, paint: Paint, owner: number, hasEdge = false): void {
    this.fill(Math.max(0, row), Math.min(this.topRow, this.how.height), paint, owner, hasEdge);
    this.topRow = row;
  }

  /** So many rows match, of a shape or (-1 - group) of a band, on what is there already. */
  private find(source: number, rows: number): void {
    this.found += rows;
    this.last = source;
    this.lastRow = this.topRow - 1;
  }

  private lightLast(row: number, bottom: number, hasEdge = false): void {
    const { last } = this;
    if (row < bottom) this.fill(row, bottom, last < 0 ? this.bandPaint(-1 - last) : this.paintOf(last), last < 0 ? last : this.shapes.ids[last]! + 1, hasEdge);
  }

  /** Fill rows up to a new top while something is looked for. Of the rows up to here as many are coloured as all that
   * matches fills, whether a single block fills a row or not. */
  private fillFound(top: number, isMatch: boolean, dim: Paint, owner: number, hasEdge: boolean): void {
    const row = Math.max(0, top);
    const bottom = Math.min(this.topRow, this.how.height);
    this.topRow = top;
    if (row >= bottom) return;
    const due = Math.max(0, Math.min(bottom - row, Math.round(this.found) - this.coloured));
    this.coloured += due;
    if (isMatch) {
      this.lightLast(row, row + due, hasEdge);
      this.fill(row + due, bottom, dim, owner);
    } else {
      this.fill(row, bottom - due, dim, owner);
      this.lightLast(bottom - due, bottom);
    }
  }

  /** What matches is seen, however little it is. */
  end(): void {
    const row = Math.max(0, Math.min(this.lastRow, this.how.height - 1));
    if (this.found && !this.coloured) this.lightLast(row, row + 1);
  }

  private bandPaint(g: number): Paint {
    const { shades, faint } = this.how.colours[g]!;
    return { shade: shades[2]!, faint: faint[2]!, edge: 0 };
  }

  /** A group's bytes that have no shapes, of which `matching` match. */
  band(g: number, small: Float64Array, matching: Float64Array | null): void {
    const at = this.c * this.view.groups + g;
    const bytes = small[at]!;
    if (bytes <= 0) return;
    const some = matching ? Math.max(0, Math.min(bytes, matching[at]!)) : 0;
    for (const [part, isMatch] of [[bytes - some, false], [some, true]] as const) {
      if (!part) continue;
      const high = part / this.how.bytesPerPixel;
      const above = Math.round(this.how.height - this.top - high);
      if (isMatch) this.find(-1 - g, this.top < 0 ? Math.max(0, high + this.top) : high);
      if (matching) this.fillFound(above, isMatch, this.dims[g]!, -1 - g, false);
      else this.fillTo(above, this.bandPaint(g), -1 - g);
      this.top += high;
    }
  }

  /** What private pools keep beyond their live blocks: an envelope around these, up to the pools'
   * high-water mark. Hatched, so that it is not taken for memory in use. */
  envelope(g: number): void {
    const kept = this.view.kept.get(g);
    if (!kept) return;
    const { height, width, left, bytesPerPixel, colours, matches } = this.how;
    const { groups, sums } = this.view;
    const { c } = this;
    const bytes = kept[c]! - Math.max(0, sums[c * groups + g]!);
    if (bytes <= 0) return;
    const { edge, faint, dim } = colours[g]!;
    const { pixels, owner } = this.picture;
    const bottom = Math.min(this.topRow, height);
    this.top += bytes / bytesPerPixel;
    this.topRow = Math.round(height - this.top);
    const row = Math.max(0, this.topRow);
    for (let r = row; r < bottom; r++) {
      const at = r * width + left + c;
      const isLine = r === row || (left + c + r) % 7 === 0;
      pixels[at] = matches ? dim : r === row ? edge : isLine ? faint[0]! : dim;
      owner[at] = -(groups + g + 1);
    }
  }

  /** The shapes of a list. Most of them are thin and fill no row of their own: what such a one takes decides how long
   * a picture takes. */
  stack(list: number): void {
    const { c, rows } = this;
    const { ids, to } = this.shapes;
    const { matches, height } = this.how;
    const { counts, items: { [list]: items } } = this.lists;
    let { top } = this;
    let full = height - this.topRow + 0.5; // from this height on the next row is filled
    let count = 0;
    for (let k = 0; k < counts[list]!; k++) {
      const i = items![k]!;
      if (to[i]! <= c) continue;
      items![count++] = i;
      const above = top + rows[i]!;
      if (matches && matches[ids[i]!]) this.find(i, top < 0 ? Math.max(0, above) : rows[i]!);
      if (above > full) {
        this.fillShape(i, Math.round(height - above));
        full = height - this.topRow + 0.5;
      }
      top = above;
    }
    counts[list] = count;
    this.top = top;
  }

  private fillShape(i: number, row: number): void {
    const a = this.shapes.ids[i]!;
    const { matches } = this.how;
    const hasEdge = this.rows[i]! >= 5;
    if (matches) this.fillFound(row, matches[a] === 1, this.dims[this.grouping.group[a]!]!, a + 1, hasEdge);
    else this.fillTo(row, this.paintOf(i), a + 1, hasEdge);
  }

  private paintOf(i: number): Paint {
    const { device, shapes } = this;
    const a = shapes.ids[i]!;
    const { shades, faint, edge } = this.how.colours[this.grouping.group[a]!]!;
    const rows = this.rows[i]!;
    const variant = rows < 1 ? 2 : (Math.imul(device.node(a) + 2, 2654435761) >>> 7) % 5;
    const isBegin = this.c === shapes.from[i] && rows >= 2 && shapes.to[i]! - this.c >= 3 && device.born[a]! > this.view.moment[0]!;
    return { shade: isBegin ? edge : shades[variant]!, faint: faint[variant]!, edge };
  }
}

/** Bytes of groups that match, at every column. */
function matchingSums(device: Device, grouping: Grouping, view: View, matches: Uint8Array): Float64Array {
  const { groups } = view;
  const key = new Uint16Array(device.count);
  for (let a = 0; a < key.length; a++) key[a] = grouping.group[a]! * 2 + matches[a]!;
  const both = sample(device, key, groups * 2, view.moment);
  const out = new Float64Array(view.columns * groups);
  for (let i = 0; i < out.length; i++) out[i] = both[i * 2 + 1]!;
  return out;
}

/** Sums of groups without the shapes of which `some` is not 0. */
function without(sums: Float64Array, device: Device, grouping: Grouping, view: View, shapes: Shapes, some: Uint8Array | null): Float64Array {
  const { groups, columns } = view;
  const shown = new Float64Array((columns + 1) * groups); // first the changes from column to column
  shapes.ids.forEach((a, i) => {
    if (some && !some[a]) return;
    const g = grouping.group[a]!;
    shown[shapes.from[i]! * groups + g]! += device.requested(a);
    shown[shapes.to[i]! * groups + g]! -= device.requested(a);
  });
  for (let i = groups; i < shown.length; i++) shown[i]! += shown[i - groups]!;
  return sums.map((bytes, i) => bytes - shown[i]!);
}

export function paint(device: Device, grouping: Grouping, view: View, how: How): Picture {
  const { matches, order, visible, layout } = how;
  const shapes = view.columns ? shapesOf(device, grouping, view, how) : { ids: [], from: new Int32Array(0), to: new Int32Array(0) };
  const isGrouped = layout === 'grouped';
  const lists = new Lists(shapes, isGrouped ? (i) => grouping.group[shapes.ids[i]!]! : () => 0, isGrouped ? view.groups : 1);
  const painter = new Painter(device, grouping, view, how, shapes, lists);
  const small = without(view.sums, device, grouping, view, shapes, null);
  const found = matches && matchingSums(device, grouping, view, matches);
  const matching = found && without(found, device, grouping, view, shapes, matches);
  const groups = order.filter((g) => visible[g]);
  if (found) painter.picture.matched = Float64Array.from(view.moment, (_, c) => groups.reduce((sum, g) => sum + found[c * view.groups + g]!, 0));
  for (let c = 0; c < view.columns; c++) {
    painter.begin(c);
    for (const g of groups) {
      painter.band(g, small, matching);
      if (isGrouped) painter.stack(g);
      if (isGrouped) painter.envelope(g);
    }
    if (!isGrouped) painter.stack(0);
    painter.end();
  }
  return painter.picture;
}
