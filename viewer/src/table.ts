// A table of what is live, and of differences: sorted by any column, rows that open, CSV.

import { download, h, replace } from './dom.ts';

export interface Column<Row> {
  title: string;
  key: string;
  align: 'left' | 'right';
  text: (row: Row) => string;
  value: (row: Row) => number | string; // in the CSV, and to sort by
  rank?: (row: Row) => number; // to sort by instead
  cell?: (row: Row) => Node; // instead of the text
}

const STEP = 200;

export class Table<Row> {
  readonly element: HTMLElement;
  private readonly body = h('tbody');
  private readonly headRow = h('tr');
  private readonly more = h('button', { type: 'button', class: 'plain', onclick: () => this.grow() });
  private rows: Row[] = [];
  private shown = STEP;
  private sortKey: string;
  private descending = true;
  private columns: Column<Row>[] = [];
  private open: string | null = null;

  constructor(
    label: string,
    private readonly keyOf: (row: Row) => string,
    private readonly detail: (row: Row) => Node | null,
    sortKey: string,
  ) {
    this.sortKey = sortKey;
    const table = h('table', { 'aria-label': label }, h('thead', {}, this.headRow), this.body);
    this.element = h('div', { class: 'table' }, table, this.more);
  }

  set(columns: Column<Row>[], rows: Row[]): void {
    this.columns = columns;
    this.rows = rows;
    this.shown = STEP;
    this.draw();
  }

  private sorted(): Row[] {
    const column = this.columns.find((c) => c.key === this.sortKey) ?? this.columns[0]!;
    const sign = this.descending ? -1 : 1;
    return this.rows
      .map((row) => ({ row, value: column.rank ? column.rank(row) : column.value(row) }))
      .sort((a, b) => sign * (a.value < b.value ? -1 : a.value > b.value ? 1 : 0))
      .map((x) => x.row);
  }

  private sort(key: string): void {
    if (this.sortKey === key) this.descending = !this.descending;
    else {
      this.sortKey = key;
      this.descending = this.columns.find((c) => c.key === key)!.align === 'right';
    }
    this.draw();
    this.headRow.querySelector<HTMLElement>(`[data-key="${key}"]`)?.focus();
  }

  private grow(): void {
    this.shown += STEP * 5;
    this.draw();
  }

  private draw(): void {
    const rows = this.sorted();
    replace(
      this.headRow,
      ...this.columns.map((c) => {
        const sorted = c.key === this.sortKey;
        const order = sorted ? (this.descending ? 'descending' : 'ascending') : 'none';
        const arrow = sorted ? (this.descending ? ' ↓' : ' ↑') : '';
        const button = h('button', { type: 'button', 'data-key': c.key, onclick: () => this.sort(c.key) }, c.title + arrow);
        return h('th', { scope: 'col', class: `${c.align} c-${c.key}`, 'aria-sort': order }, button);
      }),
    );
    replace(this.body, ...rows.slice(0, this.shown).flatMap((row) => this.rowElements(row)));
    this.more.hidden = rows.length <= this.shown;
    this.more.textContent = `${rows.length - this.shown} more rows`;
    if (!rows.length) replace(this.body, h('tr', {}, h('td', { colspan: this.columns.length, class: 'muted' }, 'nothing here')));
  }

  private rowElements(row: Row): HTMLElement[] {
    const key = this.keyOf(row);
    const isOpen = this.open === key;
    const flip = () => {
      this.open = isOpen ? null : key;
      const at = [...this.body.querySelectorAll('tr[tabindex]')].indexOf(element);
      this.draw();
      (this.body.querySelectorAll('tr[tabindex]')[at] as HTMLElement | undefined)?.focus();
    };
    const element = h(
      'tr',
      {
        tabindex: 0,
        'aria-expanded': String(isOpen),
        onclick: flip,
        onkeydown: (e: KeyboardEvent) => {
          if (e.key === 'Enter' || e.key === ' ') flip();
          else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') step(element, e.key === 'ArrowDown');
          else return;
          e.preventDefault();
          e.stopPropagation();
        },
      },
      ...this.columns.map((c) => h('td', { class: `${c.align} c-${c.key}` }, c.cell ? c.cell(row) : c.text(row))),
    );
    if (!isOpen) return [element];
    const detail = this.detail(row);
    if (!detail) return [element];
    return [element, h('tr', { class: 'detail' }, h('td', { colspan: this.columns.length }, detail))];
  }

  csv(name: string): void {
    const quote = (x: number | string) => (typeof x === 'number' ? String(x) : `"${x.replace(/"/g, '""').replace(/^[=+\-@]/, "'$&")}"`);
    const lines = [this.columns.map((c) => quote(c.title)).join(',')];
    for (const row of this.sorted()) lines.push(this.columns.map((c) => quote(c.value(row))).join(','));
    download(name, 'text/csv', `${lines.join('\n')}\n`);
  }
}

/** The focus to the next or previous row that takes it. */
function step(from: HTMLElement, down: boolean): void {
  let at = (down ? from.nextElementSibling : from.previousElementSibling) as HTMLElement | null;
  while (at && at.tabIndex < 0) at = (down ? at.nextElementSibling : at.previousElementSibling) as HTMLElement | null;
  at?.focus();
}
