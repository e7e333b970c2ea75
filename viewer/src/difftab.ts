// Tab 4: what changed from mark A to mark B, of one file or of two, as `tessera diff` counts it: the whole
// is allocated memory, rows are requested bytes, and the rest is what blocks hold beyond requests. Stacks
// are one table for all files of the page, so equal stacks compare; those that moved are paired (pairs.ts).

import type { App } from './app.ts';
import { h, replace } from './dom.ts';
import type { Totals } from './device.ts';
import { count, delta, size } from './format.ts';
import { groupCell, labelCell, MOVED, sizeCell, sumRows } from './rows.ts';
import { PhaseTable } from './phasetable.ts';
import { stackView } from './stackview.ts';
import type { Place } from './state.ts';
import { type Column, Table } from './table.ts';
import { momentName } from './tooltip.ts';

interface Change {
  key: string;
  label: string;
  a: number;
  b: number;
  blocks: number;
  node: number;
  group: string;
  colour: string;
}

export class DiffTab {
  readonly element: HTMLElement;
  private readonly table: Table<Change>;
  private readonly bar = h('div', { class: 'tab-bar' });
  private readonly phases = new PhaseTable();
  private readonly hint = h('p', { class: 'muted hint' });
  private moved = 0; // pairs of stacks, in the rows drawn last

  constructor(private readonly app: App) {
    this.table = new Table<Change>('Changes from A to B', (r) => r.key, (r) => (r.node < 0 && r.key.startsWith('rest') ? null : h('div', { class: 'detail-body' }, stackView(app, r.node))), 'change');
    this.element = h('div', { class: 'diff' }, h('div', { class: 'diff-head' }, h('div', {}, this.bar, this.phases.note, this.hint), this.phases.element), this.table.element);
  }

  private changes(a: Place, b: Place): Change[] {
    const { app } = this;
    const by = app.state.rows === 'block' ? 'stack' : app.state.rows;
    const rowsOf = (place: Place, other: Place) => {
      const device = app.deviceFor(place.track, place.moment);
      const { ids, rest } = app.filter(device, device.live(place.moment), place.moment);
      return sumRows(app, device, ids, rest, by, app.pairs.of(app.devices[place.track]!, app.devices[other.track]!));
    };
    const changes = new Map<string, Change>();
    this.moved = 0;
    rowsOf(a, b).forEach((r) => changes.set(r.key, { ...r, a: r.bytes, b: 0, blocks: -r.blocks }));
    for (const r of rowsOf(b, a)) {
      const known = changes.get(r.key);
      // A stack is shown as B has it.
      changes.set(r.key, { ...r, a: known?.a ?? 0, b: r.bytes, blocks: (known?.blocks ?? 0) + r.blocks });
      if (known && r.key.startsWith(MOVED)) this.moved++;
    }
    return [...changes.values()].filter((c) => c.a !== c.b);
  }

  /** What blocks hold beyond requests, from A to B. Those that wait for a stream are requested but not allocated. */
  private restOf(a: Totals, b: Totals): string {
    const parts: string[] = [];
    const rest = b.allocated - b.requested - (a.allocated - a.requested);
    if (rest) parts.push(`and ${delta(rest)} that blocks hold beyond their requests: rounding and tails`);
    const isLine = this.app.state.rows === 'group';
    const what = `${count(this.moved)} ${isLine ? 'line' : 'stack'}${this.moved === 1 ? '' : 's'} matched by`;
    if (this.moved)
      parts.push(isLine ? `${what} function and file name only: the line numbers differ` : `${what} functions and file names only: lines, paths or versions differ`);
    return parts.join('. ');
  }

  private totals(place: Place): Totals {
    return this.app.deviceFor(place.track, place.moment).totalsAt(place.moment);
  }

  private placeName(place: Place): string {
    const { devices } = this.app;
    const device = this.app.deviceFor(place.track, place.moment);
    const peak = device.isPeak(place.moment) ? 'at the peak, ' : '';
    const file = devices.length > 1 ? `, ${this.app.title(place.track)}` : '';
    return `${size(device.totalsAt(place.moment).allocated)} ${peak}${momentName(device, place.moment)}${file}`;
  }

  draw(): void {
    const { app } = this;
    const [a, b] = app.state.marks;
    this.drawBar(a, b);
    this.table.element.hidden = !(a && b);
    this.phases.draw(app, a, b);
    if (!a || !b) {
      this.hint.textContent = 'Choose a moment and press M to set mark A, another and M again for B: the table tells what changed between them.';
      this.hint.hidden = false;
      return;
    }
    const columns: Column<Change>[] = [
      { title: 'change', key: 'change', align: 'right', text: (r) => delta(r.b - r.a), value: (r) => r.b - r.a, rank: (r) => Math.abs(r.b - r.a), cell: (r) => h('span', { class: r.b > r.a ? 'more' : 'less', title: `${count(r.b - r.a)} bytes` }, delta(r.b - r.a)) },
      { title: 'A requested', key: 'a', align: 'right', text: (r) => size(r.a), value: (r) => r.a, cell: (r) => sizeCell({ bytes: r.a }) },
      { title: 'B requested', key: 'b', align: 'right', text: (r) => size(r.b), value: (r) => r.b, cell: (r) => sizeCell({ bytes: r.b }) },
      { title: 'blocks', key: 'blocks', align: 'right', text: (r) => (r.blocks > 0 ? `+${count(r.blocks)}` : `−${count(-r.blocks)}`).replace('−0', '0'), value: (r) => r.blocks },
      { title: app.grouping(b.track).title, key: 'group', align: 'left', text: (r) => r.group, value: (r) => r.group, cell: groupCell },
      { title: 'allocated at', key: 'label', align: 'left', text: (r) => r.label, value: (r) => r.label, cell: labelCell },
    ];
    this.table.set(columns, this.changes(a, b));
    const isAll = !app.state.search.trim() && !app.state.only.length && !app.state.finding;
    this.hint.textContent = isAll ? this.restOf(this.totals(a), this.totals(b)) : '';
    this.hint.hidden = !this.hint.textContent;
  }

  private drawBar(a: Place | null, b: Place | null): void {
    const { app } = this;
    const mark = (name: string, place: Place | null, i: 0 | 1) =>
      h('button', { type: 'button', title: place ? 'go there' : 'mark the chosen moment', onclick: () => {
        if (place) return app.store.set({ place, range: null });
        const marks: [Place | null, Place | null] = [...app.state.marks];
        marks[i] = { track: app.state.place.track, moment: app.selection().moment };
        app.store.set({ marks });
      } }, h('b', {}, name), ` ${place ? this.placeName(place) : 'set here'}`);
    replace(
      this.bar,
      mark('A', a, 0),
      mark('B', b, 1),
      a && b && h('span', { class: 'figure strong' }, h('b', {}, delta(this.totals(b).allocated - this.totals(a).allocated)), ' allocated, from A to B'),
      a && b && h('button', { type: 'button', onclick: () => app.store.set({ marks: [b, a] }) }, 'swap'),
      (a || b) && h('button', { type: 'button', onclick: () => app.store.set({ marks: [null, null] }) }, 'clear'),
      a && b && h('button', { type: 'button', onclick: () => this.table.csv('tessera-diff.csv') }, 'CSV'),
    );
  }
}
