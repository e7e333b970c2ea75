// The page of many ranks: the answer of `tessera ranks`, a map of all of them, and the view of the one that is chosen.

import { Choice } from './choice.ts';
import { decodePage } from './decode.ts';
import { fitCanvas, h, replace, writeHash } from './dom.ts';
import { baseName, clean, count, delta, exact, size } from './format.ts';
import { Names } from './names.ts';
import { deltaOf, difference, type Fleet, type RanksHead, readFleet, type Row, rowName } from './ranksdata.ts';
import { type Colour, legendText, rampColour, RanksMap, type Spot } from './ranksmap.ts';
import { Matrices, type View } from './ranksmatrix.ts';
import { arrange, type Sort } from './ranksorder.ts';
import { answerHead, overview } from './ranksside.ts';
import { RankView } from './ranksview.ts';
import { ink, type Theme } from './theme.ts';
import { facts } from './tooltip.ts';

interface State {
  view: View;
  sort: Sort;
  colour: Colour;
  query: string;
  chosen: string; // "17", or "17~0" for another device; '' for none
  theme: 'auto' | Theme;
}

const INITIAL: State = { view: 'time', sort: 'group', colour: 'size', query: '', chosen: '', theme: 'auto' };
const WORDS: { [K in keyof State]?: string[] } = { view: ['time', 'category'], sort: ['group', 'size', 'rank'], colour: ['size', 'difference'], theme: ['auto', 'light', 'dark'] };
const KEYS: [string, string][] = [
  ['↑ ↓', 'previous or next rank; Page up, Page down, Home and End move further'],
  ['Enter', 'show the rank'], ['Esc', 'close: this help, the rank, the search'], ['N P', 'next or previous rank that ran out of memory or stands apart'],
  ['T', 'time, or categories'], ['S', 'sort by group, by size, by rank'], ['D', 'colour by size, or by the difference to the group’s median'],
  ['+ -', 'rows higher or lower; 0: all in view'], ['/', 'search: ranks (3 8-15), a group, words of paths and causes, oom, outlier, missing'], ['?', 'this help'],
];

function decodeHash(text: string): State {
  const given = new URLSearchParams(text);
  const state = { ...INITIAL };
  for (const key of Object.keys(INITIAL) as (keyof State)[]) {
    const value = given.get(key);
    if (value !== null && (WORDS[key]?.includes(value) ?? true)) Object.assign(state, { [key]: value });
  }
  return state;
}

const idOf = (row: Row): string => (row.isOther ? `${row.rank}~${row.device}` : String(row.rank));

class Page {
  state: State;
  private readonly matrices: Matrices;
  readonly map: RanksMap;
  private readonly view: RankView;
  private readonly side = h('aside', { class: 'side-rank', 'aria-label': 'The chosen rank' });
  private readonly over: HTMLElement;
  private readonly legend = h('canvas', { class: 'ramp', role: 'img' });
  private readonly note = h('span', { class: 'muted note' });
  private readonly found = h('span', { class: 'muted found', role: 'status' });
  private readonly tooltip = h('div', { class: 'tooltip', role: 'tooltip', hidden: true });
  private readonly search: HTMLInputElement;
  private readonly choices: { view: Choice; sort: Choice; colour: Choice };
  private readonly help = h('dialog', { class: 'help', 'aria-label': 'Keys' });
  private readonly byId: Map<string, Row>;
  private timer = 0; // until the address is written
  private typing = 0; // until the search is used

  constructor(private readonly fleet: Fleet, names: Names) {
    this.state = decodeHash(location.hash.slice(1));
    this.byId = new Map(fleet.rows.map((row) => [idOf(row), row]));
    this.matrices = new Matrices(fleet);
    this.map = new RanksMap(fleet);
    const owner = { names, state: { allFrames: true }, store: { set: (patch: { allFrames: boolean }) => void Object.assign(owner.state, patch) } };
    this.view = new RankView(fleet, names, owner, (row) => this.choose(row));
    this.over = overview(fleet, (row) => this.choose(row));
    this.map.onHover = (spot, event) => this.hover(spot, event);
    this.map.onChoose = (row) => this.choose(row);
    this.map.onMove = (row) => this.state.chosen && this.choose(row);
    this.search = h('input', { type: 'search', id: 'search', placeholder: 'Ranks, groups, paths  ( / )', title: 'Ranks (3 8-15), the name of a group, or words of paths, causes and places in the mesh; also oom, outlier, missing', 'aria-label': 'Search', spellcheck: 'false', autocomplete: 'off' });
    this.search.addEventListener('input', () => {
      clearTimeout(this.typing);
      this.typing = window.setTimeout(() => this.set({ query: this.search.value }), 120);
    });
    const choice = (label: string, key: 'view' | 'sort' | 'colour', words: [string, string, string][]) => new Choice(label, words, (word) => this.set({ [key]: word }));
    this.choices = {
      view: choice('Columns', 'view', [['time', 'time', 'memory over time (T)'], ['category', 'categories', 'what memory is for at each peak (T)']]),
      sort: choice('Order', 'sort', [['group', 'by group', 'groups of equals (S)'], ['size', 'by size', 'highest peak first (S)'], ['rank', 'by rank', 'by number (S)']]),
      colour: choice('Colour', 'colour', [['size', 'size', 'bytes (D)'], ['difference', 'difference', 'bytes less the median of the group (D)']]),
    };
    this.fillHelp();
    const themeButton = h('button', { type: 'button', 'aria-label': 'Light or dark', title: 'light or dark', onclick: () => this.set({ theme: this.theme === 'light' ? 'dark' : 'light' }) }, '◐');
    const helpButton = h('button', { type: 'button', 'aria-label': 'Help', title: 'keys (?)', onclick: () => this.help.showModal() }, '?');
    const name = clean(fleet.head.path);
    const header = h('header', {}, h('h1', {}, 'tessera'), h('div', { class: 'file' }, h('strong', { title: name }, baseName(name.replace(/(?<=.)[\\/]+$/, '')) || name), this.found),
      this.search, this.choices.view.element, this.choices.sort.element, this.choices.colour.element, themeButton, helpButton);
    const bar = h('div', { class: 'map-bar' }, this.note, this.legend);
    const left = h('section', { class: 'map-side', 'aria-label': 'Map' }, bar, this.map.element);
    replace(document.body, header, answerHead(fleet, (group) => this.set({ query: this.state.query === group ? '' : group })),
      h('main', { class: 'ranks' }, left, this.side), this.tooltip, this.help);
    document.addEventListener('keydown', (e) => this.key(e));
    addEventListener('hashchange', () => this.set(decodeHash(location.hash.slice(1))));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
    this.draw();
    if (this.chosen) this.map.reveal(this.chosen);
  }

  get theme(): Theme {
    const { theme } = this.state;
    return theme !== 'auto' ? theme : matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  }

  get chosen(): Row | null {
    return this.byId.get(this.state.chosen) ?? null;
  }

  set(patch: Partial<State>): void {
    this.state = { ...this.state, ...patch };
    this.draw();
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.writeHash(), 200);
  }

  private choose(row: Row | null): void {
    if (row && row !== this.map.cursor) {
      this.map.cursor = row;
      this.map.reveal(row);
    }
    this.set({ chosen: row ? idOf(row) : '' });
    this.side.scrollTop = 0;
  }

  private writeHash(): void {
    const out = new URLSearchParams();
    for (const key of Object.keys(INITIAL) as (keyof State)[]) if (this.state[key] !== INITIAL[key]) out.set(key, this.state[key]);
    writeHash(out.toString());
  }

  private draw(): void {
    const { view, sort, colour, query } = this.state;
    document.documentElement.dataset.theme = this.theme;
    for (const key of ['view', 'sort', 'colour'] as const) this.choices[key].show(this.state[key]);
    if (document.activeElement !== this.search) this.search.value = query;
    const matrix = this.matrices.of(view);
    const { values, max } = colour === 'size' ? matrix : this.matrices.differences(view);
    const segments = arrange(this.fleet, sort, query);
    const shown = segments.reduce((sum, s) => sum + s.rows.length, 0);
    const all = this.fleet.rows.length;
    const missing = this.fleet.answer.missing.length;
    const present = this.fleet.rows.filter((r) => !r.isMissing && !r.isOther).length;
    this.found.textContent = shown < all ? `${count(shown)} of ${count(all)} rows` : `${count(present)} ${present === 1 ? 'rank' : 'ranks'}${missing ? `, ${count(missing)} missing` : ''}`;
    this.note.textContent = present ? matrix.note : '';
    this.map.chosen = this.chosen;
    this.map.set({ matrix, values, max, colour, segments, theme: this.theme });
    this.drawLegend(max);
    const { chosen } = this;
    if (chosen) this.view.show(chosen, this.theme);
    const wanted = chosen ? this.view.element : this.over;
    if (this.side.firstChild !== wanted) replace(this.side, wanted);
    if (chosen) this.view.show(chosen, this.theme);
  }

  private drawLegend(max: number): void {
    const { colour } = this.state;
    const [width, height, plot] = [270, 18, 120];
    const context = fitCanvas(this.legend, width, height);
    const low = colour === 'size' ? '0' : legendText(colour, -max);
    const left = 72;
    for (let i = 0; i < plot; i++) {
      const [r, g, b] = rampColour(this.theme, colour, colour === 'size' ? i / plot : (2 * i) / plot - 1);
      context.fillStyle = `rgb(${r} ${g} ${b})`;
      context.fillRect(left + i, 3, 1, 12);
    }
    context.strokeStyle = ink().line;
    context.strokeRect(left - 0.5, 2.5, plot + 1, 13);
    context.fillStyle = ink().ink;
    context.font = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillText(low, left - 6, 9);
    context.textAlign = 'left';
    context.fillText(legendText(colour, max), left + plot + 6, 9);
    this.legend.setAttribute('aria-label', `Colours: ${low} to ${legendText(colour, max)}`);
  }

  private hover(spot: Spot | null, event: PointerEvent | null): void {
    this.tooltip.hidden = !spot || !event;
    if (!spot || !event) return;
    const { row, column } = spot;
    const { view } = this.state;
    const group = this.fleet.answer.groups[row.group];
    const lines: [string, string][] = [];
    if (group) lines.push(['equals', group.name]);
    if (!row.isMissing) lines.push(['peak', exact(row.peak)]);
    const more = deltaOf(this.fleet, row);
    if (more !== null && group && row.rank !== group.median_rank) lines.push(['to the median', difference(more)]);
    if (column >= 0 && !row.isMissing) {
      const matrix = this.matrices.of(view);
      const bytes = matrix.values[row.index * matrix.columns + column]!;
      lines.push([view === 'time' ? 'time' : 'category', matrix.title(column).replace(/_/g, ' ')]);
      lines.push([view === 'time' ? 'allocated' : 'bytes', Number.isNaN(bytes) ? 'not known' : exact(bytes)]);
      const median = this.matrices.median(view, row.group, column);
      if (!Number.isNaN(bytes) && !Number.isNaN(median)) lines.push(['median here', bytes === median ? 'the same' : `${size(median)}, ${delta(bytes - median)}`]);
    }
    if (row.outlier) lines.push(['stands apart', `${size(row.outlier.excess_bytes)}: ${clean(row.outlier.cause)}`]);
    const title = `${rowName(row).replace(/^r/, 'R')}${row.isDead ? ', out of memory' : ''}${row.isMissing ? ': no snapshot' : ''}`;
    replace(this.tooltip, h('strong', {}, title), facts(lines));
    const box = this.tooltip.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const y = Math.min(event.clientY + 14, innerHeight - box.height - 6);
    this.tooltip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  }

  private fillHelp(): void {
    this.help.append(h('h2', {}, 'Keys'),
      h('dl', {}, ...KEYS.flatMap(([keys, text]) => [h('dt', {}, ...keys.split(' ').map((k) => h('kbd', {}, k))), h('dd', {}, text)])),
      h('p', {}, 'A row is a rank, and a click shows its own memory. Red at the left are ranks that ran out of memory, orange those that stand apart from their equals; red in the map is where memory ran out. Control and wheel, or Shift and wheel, make rows higher.'),
      h('p', { class: 'muted' }, 'If a line of pixels has several ranks, it shows the one with the most. The address of this page holds the view: copy it to send what you see.'),
      h('button', { type: 'button', onclick: () => this.help.close() }, 'close'));
  }

  private key(e: KeyboardEvent): void {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const target = e.target as HTMLElement;
    const isTyping = target instanceof HTMLInputElement;
    if (isTyping && e.key !== 'Escape') return;
    const turn = <K extends 'view' | 'sort' | 'colour'>(key: K) => {
      const words = WORDS[key]!;
      this.set({ [key]: words[(words.indexOf(this.state[key]) + 1) % words.length] });
    };
    const escape = () => {
      if (this.help.open) this.help.close();
      else if (isTyping) target.blur();
      else if (this.state.chosen) this.choose(null);
      else if (this.state.query) this.set({ query: '' });
      else this.map.fit();
    };
    const runs: Record<string, () => void> = {
      Escape: escape, '/': () => this.search.select(), '?': () => (this.help.open ? this.help.close() : this.help.showModal()),
      n: () => this.map.moveToTelling(1), p: () => this.map.moveToTelling(-1), t: () => turn('view'), s: () => turn('sort'), d: () => turn('colour'),
      '+': () => this.map.zoomBy(1), '=': () => this.map.zoomBy(1), '-': () => this.map.zoomBy(-1), 0: () => this.map.fit(),
      ArrowDown: () => this.map.move(1), ArrowUp: () => this.map.move(-1),
    };
    if (e.key.startsWith('Arrow') && target.closest('aside, .answer, header')) return; // they scroll
    const run = runs[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!run) return;
    e.preventDefault();
    run();
  }

  /** For tests: what the page shows, in numbers. */
  hook(): object {
    const matrix = () => this.matrices.of(this.state.view);
    return {
      state: () => this.state,
      set: (patch: Partial<State>) => this.set(patch),
      order: () => this.map.order,
      boxOf: (rank: number) => this.map.boxOf(rank),
      cursor: () => this.map.cursor?.rank ?? null,
      row: (index: number) => this.fleet.rows[index],
      rows: this.fleet.rows.length,
      columns: () => ({ count: matrix().columns, align: matrix().align, max: matrix().max, note: matrix().note, marks: matrix().marks, blank: [...matrix().blank.values()] }),
      values: (index: number) => [...matrix().values.slice(index * matrix().columns, (index + 1) * matrix().columns)],
      medians: (group: number) => Array.from({ length: matrix().columns }, (_, c) => this.matrices.median(this.state.view, group, c)),
      begins: () => [...matrix().begins],
      frameMs: () => this.map.frameMs,
    };
  }
}

async function main(): Promise<void> {
  const start = performance.now();
  const { head, columns } = await decodePage<RanksHead>();
  const fleet = readFleet(head, columns);
  document.title = `${clean(head.path).replace(/[\\/]+$/, '').replace(/^.*[\\/]/, '') || 'ranks'} - tessera`;
  const page = new Page(fleet, new Names(columns));
  const input = (kind: string) => () => (document.documentElement.dataset.input = kind);
  addEventListener('keydown', input('keys'), true);
  addEventListener('pointerdown', input('pointer'), true);
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const ready = performance.now();
    Object.assign(window, { tessera: { ...page.hook(), readyMs: ready, scriptMs: ready - start } });
    document.documentElement.dataset.ready = 'true';
  }));
}

main().catch((error: unknown) => {
  const message = error instanceof Error ? error.message : String(error);
  replace(document.body, h('p', { class: 'failed', role: 'alert' }, `This page cannot be shown: ${message}. It needs a browser of 2023 or later.`));
});
