// Allocations summed: by stack, function, group, or one by one. What tables and diffs list.

import type { App } from './app.ts';
import { h } from './dom.ts';
import type { Device, Grouping } from './device.ts';
import { exact, size } from './format.ts';
import type { Moved } from './pairs.ts';

/** How keys of rows begin that pair what moved. */
export const MOVED = '\u0000moved ';

/** The key of memory from before the recording that has no stack. */
const OLDER = 'older';

export interface Row {
  key: string;
  label: string;
  bytes: number;
  blocks: number;
  group: string; // of the grouping in use
  colour: string;
  node: number; // its stack, or -1
  oldest: number; // birth of the oldest
  allocation: number; // of a single block: its place in the device, or -1
}

/** A group's colour and name, in a table. */
export function groupCell(row: { group: string; colour: string }): HTMLElement {
  const swatch = h('span', { class: 'swatch' });
  swatch.style.background = row.group === 'several' ? 'var(--line)' : row.colour;
  return h('span', { class: 'in-group', title: row.group }, swatch, h('span', { class: 'name' }, row.group));
}

/** A size, with its bytes for the pointer. */
export function sizeCell(row: { bytes: number }): HTMLElement {
  return h('span', { class: 'size', title: exact(row.bytes) }, size(row.bytes));
}

/** Where it was allocated, cut where a name is endless. */
export function labelCell(row: { label: string }): HTMLElement {
  return h('div', { class: 'label', title: row.label.length > 200 ? row.label.slice(0, 1000) : undefined }, row.label);
}

/** The key and name by which rows are made. */
function namer(app: App, device: Device, grouping: Grouping, by: string, moved: Moved | null): (a: number) => string {
  const { names } = app;
  if (by === 'block') return (a) => `a${a}`;
  if (by === 'group') {
    const lines = grouping.key === 'line' ? (moved?.lines ?? null) : null;
    const keys = grouping.names.map((name) => (lines?.has(name) ? `${MOVED}${lines.get(name)!}` : name));
    return (a) => keys[grouping.group[a]!]!;
  }
  const ofNode = new Map<number, string>();
  return (a) => {
    if (device.isOlder(a)) return OLDER;
    const node = device.node(a);
    let key = ofNode.get(node);
    if (key === undefined) {
      const pair = moved?.stacks?.get(node);
      key = pair === undefined ? String(node) : `${MOVED}${pair}`;
      if (by === 'function' && node >= 0) {
        const own = names.own(node);
        const frame = own[own.length - 1]!;
        key = `${names.brief(frame)}  ${names.place(frame).replace(/:\d+$/, '')}`;
      }
      ofNode.set(node, key);
    }
    return key;
  };
}

/** `moved`: stacks and lines that are one row with others; see pairs.ts. */
export function sumRows(app: App, device: Device, ids: number[], rest: Float64Array | null, by: string, moved: Moved | null = null): Row[] {
  const grouping = app.grouping(device.index, device);
  const colours = app.colours(device.index);
  const keyOf = namer(app, device, grouping, by, moved);
  const rows = new Map<string, Row>();
  for (const a of ids) {
    const key = keyOf(a);
    let row = rows.get(key);
    if (!row) {
      const g = grouping.group[a]!;
      const node = device.node(a);
      const isOlder = device.isOlder(a);
      const label = by === 'function' && node >= 0 ? key : by === 'group' ? grouping.names[g]! : app.names.label(node, isOlder);
      row = { key, label, bytes: 0, blocks: 0, group: grouping.names[g]!, colour: colours[g]!.css, node, oldest: Infinity, allocation: by === 'block' ? a : -1 };
      rows.set(key, row);
    }
    row.bytes += device.requested(a);
    row.blocks++;
    if (device.born[a]! < row.oldest) row.oldest = device.born[a]!;
    if (by !== 'block' && row.group !== grouping.names[grouping.group[a]!]) row.group = 'several';
  }
  rest?.forEach((bytes, g) => {
    if (bytes > 0) addRest(rows, by, grouping.names[g]!, bytes, colours[g]!.css);
  });
  return [...rows.values()];
}

function addRest(rows: Map<string, Row>, by: string, name: string, bytes: number, colour: string): void {
  const known = by === 'group' ? rows.get(name) : undefined;
  if (known) {
    known.bytes += bytes;
    return;
  }
  const label = by === 'group' ? name : `(smaller blocks, ${name})`;
  rows.set(`rest ${name}`, { key: `rest ${name}`, label, bytes, blocks: 0, group: name, colour, node: -1, oldest: Infinity, allocation: -1 });
}
