// Tab 4: what changed from mark A to mark B, of one file or of two. Stacks are one table for all
// files of the page, so equal stacks compare.

import type { App } from './app.ts';
import { h, replace } from './dom.ts';
import { count, delta, size } from './format.ts';
import { groupCell, labelCell, sumRows } from './rows.ts';
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
  private readonly hint = h('p', { class: 'muted hint' });

  constructor(private readonly app: App) {
    this.table = new Table<Change>('Changes from A to B', (r) => r.key, (r) => (r.node < 0 && r.key.startsWith('rest') ? null : h('div', { class: 'detail-body' }, stackView(app, r.node))), 'change');
    this.element = h('div', { class: 'diff' }, this.bar, this.hint, this.table.element);
  }

  private changes(a: Place, b: Place): Change[] {
    const { app } = this;
    const by = app.state.rows === 'block' ? 'stack' : app.state.rows;
    const rowsOf = (place: Place) => {
      const device = app.deviceFor(place.track, place.moment);
      const { ids, rest } = app.filter(device, device.live(place.moment), place.moment);
      return sumRows(app, device, ids, rest, by);
    };
    const changes = new Map<string, Change>();
    rowsOf(a).forEach((r) => changes.set(r.key, { ...r, a: r.bytes, b: 0, blocks: -r.blocks }));
    for (const r of rowsOf(b)) {
      const known = changes.get(r.key);
      if (known) {
        known.b = r.bytes;
        known.blocks += r.blocks;
      } else {
        changes.set(r.key, { ...r, a: 0, b: r.bytes, blocks: r.blocks });
      }
    }
    return [...changes.values()].filter((c) => c.a !== c.b || c.blocks);
  }

  private placeName(place: Place): string {
    const { devices } = this.app;
    const device = this.app.deviceFor(place.track, place.moment);
    const peak = place.moment === device.head.peak ? 'peak, ' : '';
    const file = devices.length > 1 ? `${this.app.title(place.track)}, ` : '';
    return `${file}${peak}${momentName(place.moment)}, ${size(device.totalsAt(place.moment).requested)}`;
  }

  draw(): void {
    const [a, b] = this.app.state.marks;
    this.drawBar(a, b);
    this.hint.hidden = !!(a && b);
    this.table.element.hidden = !(a && b);
    if (!a || !b) {
      this.hint.textContent = 'Choose a moment and press M to set mark A, another and M again for B: the table tells what changed between them.';
      return;
    }
    const columns: Column<Change>[] = [
      { title: 'change', key: 'change', align: 'right', text: (r) => delta(r.b - r.a), value: (r) => r.b - r.a, rank: (r) => Math.abs(r.b - r.a), cell: (r) => h('span', { class: r.b > r.a ? 'more' : 'less' }, delta(r.b - r.a)) },
      { title: 'A', key: 'a', align: 'right', text: (r) => size(r.a), value: (r) => r.a },
      { title: 'B', key: 'b', align: 'right', text: (r) => size(r.b), value: (r) => r.b },
      { title: 'blocks', key: 'blocks', align: 'right', text: (r) => (r.blocks > 0 ? `+${count(r.blocks)}` : `−${count(-r.blocks)}`).replace('−0', '0'), value: (r) => r.blocks },
      { title: this.app.grouping(b.track).title, key: 'group', align: 'left', text: (r) => r.group, value: (r) => r.group, cell: groupCell },
      { title: 'allocated at', key: 'label', align: 'left', text: (r) => r.label, value: (r) => r.label, cell: labelCell },
    ];
    this.table.set(columns, this.changes(a, b));
  }

  private drawBar(a: Place | null, b: Place | null): void {
    const { app } = this;
    const bytes = (p: Place) => app.deviceFor(p.track, p.moment).totalsAt(p.moment).requested;
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
      a && b && h('span', { class: 'figure strong' }, h('b', {}, delta(bytes(b) - bytes(a))), ' from A to B'),
      a && b && h('button', { type: 'button', onclick: () => app.store.set({ marks: [b, a] }) }, 'swap'),
      (a || b) && h('button', { type: 'button', onclick: () => app.store.set({ marks: [null, null] }) }, 'clear'),
      a && b && h('button', { type: 'button', onclick: () => this.table.csv('tessera-diff.csv') }, 'CSV'),
    );
  }
}
