// The picture itself, drawn pixel by pixel: a colour and an owner for each.
//
// Every column stands for one moment, the one at which most is allocated (curves.ts). Allocations
// at least a pixel high are shapes of their own, stacked in the order in which they were made,
// group upon group or all together; what is smaller is one band for each group. The owners answer
// what is under the pointer in no time.

import type { View } from './curves.ts';
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
  height: number;
  left: number; // column of the picture where the view begins
  width: number;
  order: number[]; // of groups, from the bottom
  visible: boolean[]; // by group
  colours: Swatch[];
  matches: Uint8Array | null; // by allocation; NULL: all do
}

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

/** Allocations that are a pixel high and live at the moment of some column. */
function shapesOf(device: Device, grouping: Grouping, view: View, how: How): Shapes {
  const big = Uint8Array.from(device.kindRequested, (b) => (b >= how.bytesPerPixel && b > 0 ? 1 : 0));
  const { kind, born, died } = device;
  const ids: number[] = [];
  const from: number[] = [];
  const to: number[] = [];
  const columnOf = finder(view);
  const firstMoment = view.moment[0]!;
  const lastMoment = view.moment[view.columns - 1]!;
  for (const a of device.atLeast(how.bytesPerPixel)) {
    if (born[a]! > lastMoment) break;
    if (!big[kind[a]!] || died[a]! <= firstMoment || !how.visible[grouping.group[a]!]) continue;
    const c0 = columnOf(born[a]!);
    const c1 = died[a]! > lastMoment ? view.columns : columnOf(died[a]!);
    if (c1 <= c0) continue;
    ids.push(a);
    from.push(c0);
    to.push(c1);
  }
  return { ids, from: Int32Array.from(from), to: Int32Array.from(to) };
}

class Painter {
  readonly picture: Picture;
  private readonly top: Float64Array; // of each column, bytes
  private readonly lowRow: Int32Array; // rows above it are faint

  constructor(
    private readonly device: Device,
    private readonly grouping: Grouping,
    private readonly view: View,
    private readonly how: How,
  ) {
    const { width, height } = how;
    const pixels = new Uint32Array(width * height);
    this.picture = { width, height, pixels, owner: new Int32Array(width * height) };
    this.top = new Float64Array(view.columns);
    this.lowRow = new Int32Array(view.columns);
    for (let c = 0; c < view.columns; c++) {
      const differs = view.low[c]! < view.allocated[c]! * 0.999;
      this.lowRow[c] = differs ? Math.round(height - view.low[c]! / how.bytesPerPixel) : 0;
    }
  }

  /** Put `bytes` on top of a column. */
  private put(c: number, bytes: number, shade: number, faint: number, edge: number, owner: number): void {
    const { height, width, bytesPerPixel } = this.how;
    const bottom = Math.round(height - this.top[c]! / bytesPerPixel);
    this.top[c]! += bytes;
    let row = Math.round(height - this.top[c]! / bytesPerPixel);
    if (row < 0) row = 0;
    if (bottom <= row) return;
    const { pixels, owner: owners } = this.picture;
    let at = row * width + this.how.left + c;
    const low = this.lowRow[c]!;
    const hasEdge = edge !== 0 && bytes >= 5 * bytesPerPixel;
    for (let r = row; r < bottom; r++, at += width) {
      pixels[at] = hasEdge && r === row ? edge : r < low ? faint : shade;
      owners[at] = owner;
    }
  }

  band(g: number, small: Float64Array): void {
    const { colours, matches } = this.how;
    const groups = this.view.groups;
    const colour = colours[g]!;
    const shade = matches ? colour.dim : colour.shades[2]!;
    const faint = matches ? colour.dim : colour.faint[2]!;
    for (let c = 0; c < this.view.columns; c++) {
      const bytes = small[c * groups + g]!;
      if (bytes > 0) this.put(c, bytes, shade, faint, 0, -(g + 1));
    }
  }

  /** What private pools keep beyond their live blocks: an envelope around these, up to the pools'
   * high-water mark. Hatched, so that it is not taken for memory in use. */
  envelope(g: number): void {
    const kept = this.view.kept.get(g);
    if (!kept) return;
    const { height, width, bytesPerPixel, left } = this.how;
    const groups = this.view.groups;
    const colour = this.how.colours[g]!;
    const { pixels, owner } = this.picture;
    for (let c = 0; c < this.view.columns; c++) {
      const bytes = kept[c]! - Math.max(0, this.view.sums[c * groups + g]!);
      if (bytes <= 0) continue;
      const bottom = Math.round(height - this.top[c]! / bytesPerPixel);
      this.top[c]! += bytes;
      const row = Math.max(0, Math.round(height - this.top[c]! / bytesPerPixel));
      for (let r = row; r < bottom; r++) {
        const at = r * width + left + c;
        const isLine = r === row || (left + c + r) % 7 === 0;
        pixels[at] = r === row ? colour.edge : isLine ? colour.faint[0]! : colour.dim;
        owner[at] = -(groups + g + 1);
      }
    }
  }

  shape(a: number, from: number, to: number): void {
    const { colours, matches } = this.how;
    const kind = this.device.kind[a]!;
    const colour = colours[this.grouping.group[a]!]!;
    const isDim = matches !== null && !matches[a];
    const variant = (Math.imul(this.device.kindNode[kind]! + 2, 2654435761) >>> 7) % 5;
    const shade = isDim ? colour.dim : colour.shades[variant]!;
    const faint = isDim ? colour.dim : colour.faint[variant]!;
    const bytes = this.device.kindRequested[kind]!;
    const wide = to - from >= 3;
    for (let c = from; c < to; c++) {
      if (wide && c === from && !isDim) this.put(c, bytes, colour.edge, faint, colour.edge, a + 1);
      else this.put(c, bytes, shade, faint, isDim ? 0 : colour.edge, a + 1);
    }
  }
}

export function paint(device: Device, grouping: Grouping, view: View, how: How): Picture {
  const painter = new Painter(device, grouping, view, how);
  if (!view.columns) return painter.picture;
  const shapes = shapesOf(device, grouping, view, how);
  const small = view.sums.slice();
  shapes.ids.forEach((a, i) => {
    const bytes = device.requested(a);
    const g = grouping.group[a]!;
    for (let c = shapes.from[i]!; c < shapes.to[i]!; c++) small[c * view.groups + g]! -= bytes;
  });
  const groups = how.order.filter((g) => how.visible[g]);
  if (how.layout === 'bands') {
    for (const g of groups) painter.band(g, small);
    shapes.ids.forEach((a, i) => painter.shape(a, shapes.from[i]!, shapes.to[i]!));
    return painter.picture;
  }
  const members = new Map<number, number[]>(groups.map((g) => [g, []]));
  shapes.ids.forEach((a, i) => members.get(grouping.group[a]!)!.push(i));
  for (const g of groups) {
    painter.band(g, small);
    for (const i of members.get(g)!) painter.shape(shapes.ids[i]!, shapes.from[i]!, shapes.to[i]!);
    painter.envelope(g);
  }
  return painter.picture;
}
