// Tab 1: a table of what the chosen moment or range holds.

import type { App } from './app.ts';
import { h, replace } from './dom.ts';
import { count, duration, exact, hex, percent, size } from './format.ts';
import { eventText } from './eventtab.ts';
import { groupCell, labelCell, sizeCell, type Row, sumRows } from './rows.ts';
import { copyButton, stackView } from './stackview.ts';
import type { Rows } from './state.ts';
import { type Column, Table } from './table.ts';
import { blockFacts, facts, momentClock, momentName } from './tooltip.ts';

const BY: [Rows, string][] = [
  ['stack', 'stacks'],
  ['function', 'functions'],
  ['group', 'groups'],
  ['block', 'blocks'],
];

export class LiveTab {
  readonly element: HTMLElement;
  private readonly table: Table<Row>;
  private readonly bar = h('div', { class: 'tab-bar' });

  constructor(private readonly app: App) {
    this.table = new Table<Row>('What is live', (r) => r.key, (r) => this.detail(r), 'bytes');
    this.element = h('div', { class: 'live' }, this.bar, this.table.element);
  }

  draw(): void {
    const { app } = this;
    const selection = app.selection();
    const rows = sumRows(app, selection.device, selection.ids, selection.rest, app.state.rows);
    this.drawBar();
    this.table.set(this.columns(rows), rows);
  }

  private drawBar(): void {
    const { app } = this;
    replace(
      this.bar,
      h('span', { class: 'segmented', role: 'group', 'aria-label': 'Rows' },
        ...BY.map(([key, title]) =>
          h('button', { type: 'button', 'aria-pressed': String(app.state.rows === key), onclick: () => app.store.set({ rows: key }) }, title))),
      h('button', { type: 'button', onclick: () => this.table.csv('tessera.csv') }, 'CSV'),
    );
  }

  private columns(rows: Row[]): Column<Row>[] {
    const { app } = this;
    const { device, moment } = app.selection();
    const total = rows.reduce((sum, r) => sum + r.bytes, 0);
    const age = (r: Row) => (Number.isFinite(r.oldest) ? moment - r.oldest : 0);
    const ageText = (r: Row) => {
      if (!Number.isFinite(r.oldest)) return '';
      if (r.oldest === 0) return device.hasHistory ? 'before' : '';
      const time = device.hasTimes ? device.timeOf(moment) - device.timeOf(r.oldest) : NaN;
      return Number.isNaN(time) ? `${count(age(r))} ev` : duration(time);
    };
    const columns: Column<Row>[] = [
      { title: 'bytes', key: 'bytes', align: 'right', text: (r) => size(r.bytes), value: (r) => r.bytes, cell: sizeCell },
      { title: 'share', key: 'share', align: 'right', text: (r) => percent(r.bytes, total), value: (r) => r.bytes / Math.max(1, total) },
      { title: 'blocks', key: 'blocks', align: 'right', text: (r) => (r.blocks ? count(r.blocks) : ''), value: (r) => r.blocks },
      { title: 'oldest', key: 'age', align: 'right', text: ageText, value: age },
      {
        title: app.grouping(app.state.place.track).title, key: 'group', align: 'left', text: (r) => r.group, value: (r) => r.group,
        cell: groupCell,
      },
      { title: 'allocated at', key: 'label', align: 'left', text: (r) => r.label, value: (r) => r.label, cell: labelCell },
    ];
    if (app.state.rows === 'block')
      columns.splice(4, 0, { title: 'address', key: 'address', align: 'right', text: (r) => (r.allocation < 0 ? '' : hex(device.address(r.allocation))), value: (r) => (r.allocation < 0 ? '' : hex(device.address(r.allocation))) });
    if (app.state.rows === 'group') columns.splice(4, 1);
    return columns;
  }

  private detail(row: Row): HTMLElement | null {
    const { app } = this;
    const { track, device } = app.selection();
    if (row.allocation >= 0) {
      const a = row.allocation;
      return h('div', { class: 'detail-body' },
        facts(blockFacts(app, device, a)),
        h('div', { class: 'buttons' },
          h('button', { type: 'button', onclick: (e: MouseEvent) => (e.stopPropagation(), app.store.set({ pin: { track, allocation: device.row(a), born: device.born[a]! } })) }, 'pin'),
          copyButton('copy address', () => hex(device.address(a)))),
        stackView(app, row.node));
    }
    if (row.key.startsWith('rest ') || app.state.rows === 'group') return null;
    return h('div', { class: 'detail-body' }, stackView(app, row.node));
  }
}

/** The line above the tabs: what is chosen, and its totals. */
export class Summary {
  readonly element = h('div', { class: 'summary', role: 'status', 'aria-live': 'polite' });

  constructor(private readonly app: App) {}

  draw(): void {
    const { app } = this;
    const { range, rangeMode, search, finding } = app.state;
    const { device, moment, ids } = app.selection();
    const totals = device.totalsAt(moment);
    const value = (name: string, bytes: number, strong = false) =>
      h('span', { class: strong ? 'figure strong' : 'figure', title: exact(bytes) }, h('b', {}, size(bytes)), ` ${name}`);
    const time = device.hasTimes && !range ? momentClock(device, moment) : '';
    const what = momentName(device, moment);
    const event = range ? '' : eventText(app.names, device, moment);
    const parts: (Node | false)[] = [
      h('span', { class: 'moment' }, device.isPeak(moment) ? `peak, ${what}` : what),
      !!time && h('span', { class: 'muted time' }, time),
      value('allocated', totals.allocated, true),
      value('reserved', totals.reserved),
      value('requested', totals.requested),
      h('span', { class: 'figure' }, h('b', {}, count(totals.blocks)), totals.blocks === 1 ? ' block' : ' blocks'),
    ];
    const isFinding = finding?.track === device.index && !!device.findingRows(finding.rule);
    if (search.trim() || isFinding) {
      const bytes = ids.reduce((sum, a) => sum + device.requested(a), 0);
      parts.push(h('span', { class: 'figure match', title: exact(bytes) }, h('b', {}, size(bytes)), ` in ${count(ids.length)} matching`));
    }
    if (event) parts.push(h('span', { class: 'muted event', title: `The event ${event}.` }, event));
    replace(this.element, ...parts, range && this.rangePart(range, rangeMode), this.restPart());
  }

  private rangePart(range: { from: number; to: number }, mode: string): HTMLElement {
    const { app } = this;
    const { device } = app.selection();
    const select = h('select', { 'aria-label': 'Of the range, show', onchange: () => app.store.set({ rangeMode: select.value as 'peak' }) },
      ...[['peak', 'live at its peak'], ['made', 'allocated in it'], ['kept', 'allocated in it and kept'], ['freed', 'freed in it']].map(
        ([key, title]) => h('option', { value: key!, selected: key === mode }, title!)));
    const time = device.hasTimes ? `, ${duration(device.timeOf(range.to) - device.timeOf(range.from))}` : '';
    return h('span', { class: 'range' }, `range of ${count(range.to - range.from + 1)} moments${time}: `, select,
      h('button', { type: 'button', title: 'what changed from its first moment to its last', onclick: () => {
        const at = (moment: number) => ({ track: app.state.place.track, moment });
        app.store.set({ marks: [at(range.from), at(range.to)], tab: 4 });
      } }, 'compare its ends'),
      h('button', { type: 'button', 'aria-label': 'Leave the range', onclick: () => app.store.set({ range: null }) }, '×'));
  }

  /** What a page of a long trace does not tell one by one is said. */
  private restPart(): HTMLElement | null {
    const { device } = this.app.selection();
    if (!device.hasRest) return null;
    if (this.app.problem) return h('span', { class: 'alarm' }, `no more detail: ${this.app.problem}`);
    if (this.app.isWaiting) return h('span', { class: 'muted' }, 'asking for detail ...');
    return h('span', { class: 'muted' },
      `${count(device.head.restCount)} blocks of up to ${size(device.head.restLargest)} are told in sums, exact at the highest and lowest moment of every ${count(device.bucketMoments)} events`);
  }
}
