// One rank's own view: its memory over time, what it held at its peak, and how it differs from the median rank of its equals. All of it is from
// the rank's sketch, so it is there without the snapshot.

import { fitCanvas, h, replace } from './dom.ts';
import { clean, clock, count, delta, duration, exact, roundSize, size } from './format.ts';
import type { Names } from './names.ts';
import { type Change, deltaOf, difference, type Fleet, type Row, rowName, type Share, shellPath } from './ranksdata.ts';
import { copyButton, type StackOwner, stackView } from './stackview.ts';
import { Table } from './table.ts';
import { ink, palette, type Theme } from './theme.ts';
import { facts } from './tooltip.ts';

const CHART = 150;
const CHART_LEFT = 74;
const CHART_BELOW = 18;

function command(text: string): HTMLElement {
  return h('div', { class: 'command' }, h('code', {}, clean(text)), copyButton('copy', () => text));
}

function heading(text: string): HTMLElement {
  return h('h3', {}, text);
}

export class RankView {
  readonly element = h('div', { class: 'rank-view' });
  private readonly canvas = h('canvas', { class: 'rank-chart', role: 'img' });
  private row: Row | null = null;
  private theme: Theme = 'light';

  constructor(
    private readonly fleet: Fleet,
    private readonly names: Names,
    private readonly owner: StackOwner,
    private readonly go: (row: Row | null) => void,
  ) {
    new ResizeObserver(() => this.drawChart()).observe(this.element);
  }

  show(row: Row, theme: Theme): void {
    this.theme = theme;
    if (row !== this.row) {
      this.row = row;
      replace(this.element, ...this.parts(row));
    }
    this.drawChart();
  }

  private parts(row: Row): (Node | null)[] {
    const close = h('button', { type: 'button', 'aria-label': 'Close the view of this rank', title: 'close (Esc)', onclick: () => this.go(null) }, '×');
    const title = h('div', { class: 'pin-head' }, h('h2', {}, rowName(row).replace(/^r/, 'R')), ...this.badges(row), close);
    if (row.isMissing) return [title, h('p', {}, 'No snapshot of this rank could be read.')];
    const compared = this.fleet.rows[row.compared];
    return [
      title,
      facts(this.facts(row)),
      heading('Memory over time'),
      row.hasTrace ? this.canvas : h('p', { class: 'muted' }, 'The snapshot has no trace: recording was off.'),
      heading('At its peak, by category'),
      this.categories(row, compared),
      compared ? heading(`Difference to ${rowName(compared)}, ${row.index === this.medianOf(row)?.index ? 'the nearest of its equals' : 'the median of its equals'}`) : null,
      compared ? this.changes(row, compared) : null,
      heading('At its peak, by stack'),
      this.shares(row),
      heading('The snapshot itself'),
      command(`tessera view -o rank${row.rank}.html ${shellPath(row.path)}`),
      compared ? command(`tessera diff ${shellPath(compared.path)} ${shellPath(row.path)}`) : null,
    ];
  }

  private medianOf(row: Row): Row | undefined {
    const rank = this.fleet.answer.groups[row.group]?.median_rank;
    return this.fleet.rows.find((r) => r.rank === rank && !r.isOther);
  }

  private badges(row: Row): HTMLElement[] {
    const out: HTMLElement[] = [];
    const several = this.fleet.answer.out_of_memory.length > 1;
    if (row.isDead) out.push(h('span', { class: 'badge is-alarm' }, several && row.death ? `out of memory, ${count(row.death)} of ${count(this.fleet.answer.out_of_memory.length)}` : 'out of memory'));
    if (row.outlier) out.push(h('span', { class: 'badge is-warn' }, 'stands apart'));
    return out;
  }

  private facts(row: Row): [string, string][] {
    const { answer } = this.fleet;
    const group = answer.groups[row.group];
    const out: [string, string][] = [['peak', exact(row.peak)]];
    const more = deltaOf(this.fleet, row);
    if (group && more !== null && row.rank !== group.median_rank) out.push(['to the median', more ? `${delta(more)} of ${size(group.median_bytes)}` : 'the same']);
    if (row.outlier) out.push(['stands apart by', `${exact(row.outlier.excess_bytes)}: ${clean(row.outlier.cause)}`]);
    out.push(['reserved', exact(row.reserved)]);
    if (group) out.push(['equals', `${group.name}, ${count(group.ranks.length)} ${group.ranks.length === 1 ? 'rank' : 'ranks'}`]);
    const axes = Object.entries(row.coordinates).map(([name, at]) => `${clean(name)} ${at}`);
    if (axes.length) out.push(['place', axes.join(', ')]);
    out.push(['device', row.device === 'host' ? 'pinned host memory' : String(row.device)]);
    if (row.step !== null) out.push(['step of the file', count(row.step)]);
    if (row.stepCount) out.push(['steps in the trace', `${count(row.stepCount)}, ${count(row.wholeSteps)} of them whole`]);
    const late = answer.stragglers.find((s) => s.rank === row.rank);
    if (late && !row.isOther) out.push(['late in its steps', `by ${duration(late.late_us)} of ${duration(late.step_us)}`]);
    if (row.clock) out.push(['clock', `${duration(Math.abs(row.clock))} ${row.clock > 0 ? 'ahead of' : 'behind'} the others`]);
    if (!Number.isNaN(row.first) && !Number.isNaN(row.length)) out.push(['trace', `${duration(row.length)} from ${clock(row.first)}`]);
    out.push(['file', clean(row.path)]);
    return out;
  }

  private categories(row: Row, compared: Row | undefined): HTMLElement {
    const { categories } = this.fleet.head;
    const listed = categories.map((name, c) => ({ name, c, bytes: row.categories[c]!, other: compared?.categories[c] ?? 0 }))
      .filter((x) => x.bytes || x.other).sort((a, b) => b.bytes - a.bytes);
    const hues = palette('category', listed.map((x) => x.name), this.theme);
    const most = Math.max(1, ...listed.map((x) => Math.max(x.bytes, x.other)));
    const body = listed.map((x, i) => {
      const bar = h('span', { class: 'share-bar' });
      bar.style.width = `${(100 * x.bytes) / most}%`;
      bar.style.background = hues[i]!.css;
      const tick = h('span', { class: 'share-tick' });
      tick.style.left = `${(100 * x.other) / most}%`;
      const by = x.bytes - x.other;
      return h('tr', {},
        h('td', {}, x.name.replace(/_/g, ' ')),
        h('td', { class: 'share-cell', 'aria-hidden': 'true' }, h('span', { class: 'share-track' }, bar, compared && tick)),
        h('td', { class: 'right' }, size(x.bytes)),
        compared && h('td', { class: `right ${by > 0 ? 'more' : by < 0 ? 'less' : 'muted'}` }, difference(by)));
    });
    const titles = ['category', '', 'bytes', ...(compared ? [`to rank ${compared.rank}`] : [])];
    return h('table', { class: 'plain-table', 'aria-label': 'Categories' },
      h('thead', {}, h('tr', {}, ...titles.map((t, i) => h('th', { scope: 'col', class: i > 1 ? 'right' : 'left' }, t)))), h('tbody', {}, ...body));
  }

  private stackLabel(node: number, others: number): string {
    return others ? `(${count(others)} others)` : this.names.label(node);
  }

  private stackCell(node: number, others: number): HTMLElement {
    return h('span', { class: 'label' }, this.stackLabel(node, others));
  }

  private changes(row: Row, compared: Row): HTMLElement {
    if (!row.changes.length) return h('p', { class: 'muted' }, 'None: they hold the same.');
    const total = row.peak - compared.peak;
    const table = new Table<Change>('Difference by stack', (c) => String(row.changes.indexOf(c)), (c) => (c.others ? null : stackView(this.owner, c.node)), 'delta');
    table.set([
      { title: 'difference', key: 'delta', align: 'right', text: (c) => delta(c.delta), value: (c) => c.delta, rank: (c) => (c.others ? -1 : Math.abs(c.delta)),
        cell: (c) => h('span', { class: c.delta > 0 ? 'more' : 'less' }, delta(c.delta)) },
      { title: 'category', key: 'category', align: 'left', text: (c) => this.categoryOf(c), value: (c) => this.categoryOf(c) },
      { title: 'allocated at', key: 'label', align: 'left', text: (c) => this.stackLabel(c.node, c.others), value: (c) => this.stackLabel(c.node, c.others),
        cell: (c) => this.stackCell(c.node, c.others) },
    ], row.changes);
    return h('div', {}, table.element, h('p', { class: 'muted sum' }, `together ${delta(total)}`));
  }

  private categoryOf(kind: Change | Share): string {
    return 'others' in kind && kind.others ? '' : (this.fleet.head.categories[kind.category] ?? '').replace(/_/g, ' ');
  }

  private shares(row: Row): HTMLElement {
    const rest = row.peak - row.shares.reduce((sum, s) => sum + s.bytes, 0);
    if (!row.shares.length) return h('p', { class: 'muted' }, 'The page has no stacks of this rank.');
    const table = new Table<Share>('Peak by stack', (s) => String(row.shares.indexOf(s)), (s) => stackView(this.owner, s.node), 'bytes');
    table.set([
      { title: 'bytes', key: 'bytes', align: 'right', text: (s) => size(s.bytes), value: (s) => s.bytes },
      { title: 'count', key: 'count', align: 'right', text: (s) => count(s.count), value: (s) => s.count },
      { title: 'category', key: 'category', align: 'left', text: (s) => this.categoryOf(s), value: (s) => this.categoryOf(s) },
      { title: 'allocated at', key: 'label', align: 'left', text: (s) => this.stackLabel(s.node, 0), value: (s) => this.stackLabel(s.node, 0), cell: (s) => this.stackCell(s.node, 0) },
    ], row.shares);
    return h('div', {}, table.element, rest > 0 && h('p', { class: 'muted sum' }, `and ${size(rest)} of smaller stacks`));
  }

  /** The parts of the rank's time as columns, and those of the rank that it is compared with as a line. */
  private drawChart(): void {
    const { row } = this;
    if (!row?.hasTrace || !this.canvas.isConnected || !this.element.clientWidth) return;
    const width = this.element.clientWidth - 24;
    const context = fitCanvas(this.canvas, width, CHART);
    const colours = ink();
    const compared = this.fleet.rows[row.compared];
    const most = Math.max(1, row.peak, ...row.parts, ...(compared?.hasTrace ? compared.parts : []));
    const [plot, deep] = [width - CHART_LEFT - 6, CHART - CHART_BELOW - 8];
    const x = (i: number) => CHART_LEFT + (i / row.parts.length) * plot;
    const y = (bytes: number) => 8 + deep * (1 - bytes / most);
    context.font = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (const share of [0, 0.5, 1]) {
      context.fillStyle = colours.line;
      context.fillRect(CHART_LEFT, Math.round(y(most * share)), plot, 1);
      context.fillStyle = colours.muted;
      context.fillText(share ? roundSize(most * share) : '0', CHART_LEFT - 6, y(most * share));
    }
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.35;
    context.beginPath();
    context.moveTo(x(0), y(0));
    this.trace(context, row, x, y);
    context.lineTo(x(row.parts.length), y(0));
    context.fill();
    context.globalAlpha = 1;
    this.line(context, row, x, y, colours.accent, []);
    if (compared?.hasTrace) this.line(context, compared, x, y, colours.muted, [4, 3]);
    if (!Number.isNaN(row.stopAfter) && row.length > 0) {
      context.fillStyle = colours.alarm;
      context.fillRect(CHART_LEFT + (row.stopAfter / row.length) * plot - 1, 8, 2, deep);
    }
    this.label(context, row, colours, plot);
    this.canvas.setAttribute('aria-label', `Memory of ${rowName(row)} over its trace: at most ${size(row.peak)}`);
  }

  private line(context: CanvasRenderingContext2D, row: Row, x: (i: number) => number, y: (bytes: number) => number, colour: string, dashes: number[]): void {
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(dashes);
    context.beginPath();
    this.trace(context, row, x, y);
    context.stroke();
    context.setLineDash([]);
  }

  private trace(context: CanvasRenderingContext2D, row: Row, x: (i: number) => number, y: (bytes: number) => number): void {
    row.parts.forEach((bytes, i) => {
      context.lineTo(x(i), y(bytes));
      context.lineTo(x(i + 1), y(bytes));
    });
  }

  private label(context: CanvasRenderingContext2D, row: Row, colours: ReturnType<typeof ink>, plot: number): void {
    const compared = this.fleet.rows[row.compared];
    const bottom = CHART - CHART_BELOW / 2;
    context.fillStyle = colours.muted;
    context.textAlign = 'left';
    context.fillText(row.length > 0 ? '0' : 'first event', CHART_LEFT, bottom);
    context.textAlign = 'right';
    context.fillText(row.length > 0 ? duration(row.length) : 'last event', CHART_LEFT + plot, bottom);
    context.textAlign = 'center';
    if (compared?.hasTrace) context.fillText(`dashed: rank ${compared.rank}, over its own time`, CHART_LEFT + plot / 2, bottom);
  }
}
