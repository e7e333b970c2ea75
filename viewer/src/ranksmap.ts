// The map: a row for each rank, a column for each stretch of time or each category. Rows are drawn as wide as their numbers are many and then
// stretched, so ten thousand of them take some milliseconds. If a line of pixels has several ranks, the one with the most is shown.

import { cutText, fitCanvas, h, pixelRatio } from './dom.ts';
import { delta, duration, size } from './format.ts';
import { HEADING, Layout, LETTERS } from './rankslayout.ts';
import type { Matrix } from './ranksmatrix.ts';
import type { Segment } from './ranksorder.ts';
import { type Fleet, type Row, rowName } from './ranksdata.ts';
import { ink, palette, type Theme } from './theme.ts';

export type Colour = 'size' | 'difference';

export interface Shown {
  matrix: Matrix;
  values: Float64Array; // as they are coloured
  max: number;
  colour: Colour;
  segments: Segment[];
  theme: Theme;
}

export interface Spot {
  row: Row;
  column: number; // -1: beside the columns
}

type Rgb = [number, number, number];
const hex = (text: string): Rgb => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)) as Rgb;
const RAMPS: Record<Theme, Record<Colour, Rgb[]>> = {
  light: {
    size: ['#eef3fa', '#b5cfec', '#6fa3da', '#2a6abc', '#10305f'].map(hex),
    difference: ['#14508f', '#7fb0e0', '#f1f2f4', '#f0a36c', '#b3400f'].map(hex),
  },
  dark: {
    size: ['#1a2230', '#1f4272', '#2f70bd', '#72b0f2', '#def0ff'].map(hex),
    difference: ['#8cc2ff', '#2f5f9c', '#22272f', '#9a4f22', '#ffae70'].map(hex),
  },
};

/** The colour of a share of the largest: from 0, or from -1 for differences. */
export function rampColour(theme: Theme, colour: Colour, share: number): Rgb {
  const stops = RAMPS[theme][colour];
  const at = Math.max(0, Math.min(1, colour === 'size' ? share : (share + 1) / 2)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  return [0, 1, 2].map((i) => Math.round(stops[low]![i]! + (stops[low + 1]![i]! - stops[low]![i]!) * (at - low))) as Rgb;
}

const SHADES = 256;
function shades(theme: Theme, colour: Colour): Uint32Array {
  const out = new Uint32Array(SHADES);
  for (let i = 0; i < SHADES; i++) {
    const share = i / (SHADES - 1);
    const [r, g, b] = rampColour(theme, colour, colour === 'size' ? share : share * 2 - 1);
    out[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return out;
}

const LEFT = 84; // for numbers of ranks
const RIGHT = 84; // for peaks
const TOP = 34;
const MARK_COLUMN = 5;
const FONT = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

export class RanksMap {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly spacer = h('div', { class: 'map-space' });
  private readonly canvas = h('canvas', { class: 'map-canvas', 'aria-hidden': 'true' });
  private readonly live = h('p', { class: 'offscreen', role: 'status', 'aria-live': 'polite' });
  private shown: Shown | null = null;
  private layout = new Layout([], 1, 0);
  private zoom = 0; // steps of zooming in; 0: everything fits
  private readonly buffer = document.createElement('canvas');
  private buffered: unknown[] = []; // what the buffer was drawn from
  cursor: Row | null = null;
  chosen: Row | null = null;
  hovered: Row | null = null;
  onHover: (spot: Spot | null, event: PointerEvent | null) => void = () => {};
  onChoose: (row: Row | null) => void = () => {};
  onMove: (row: Row) => void = () => {};
  frameMs = 0;
  private readonly most: number; // the highest peak

  constructor(private readonly fleet: Fleet) {
    this.most = fleet.rows.reduce((most, row) => Math.max(most, row.peak), 0);
    this.scroller = h('div', { class: 'map-scroll', tabindex: 0, role: 'application', 'aria-label': 'Map of ranks. Arrows move from rank to rank, Enter shows one.' }, this.spacer, this.canvas);
    this.element = h('div', { class: 'map' }, this.scroller, this.live);
    const { scroller } = this;
    scroller.addEventListener('scroll', () => this.draw());
    scroller.addEventListener('pointermove', (e) => this.hover(e));
    scroller.addEventListener('pointerleave', () => this.hover(null));
    scroller.addEventListener('click', (e) => {
      const spot = this.spotAt(e.clientX, e.clientY);
      if (!spot) return;
      this.cursor = spot.row;
      this.onChoose(spot.row);
    });
    scroller.addEventListener('wheel', (e) => {
      if (!e.ctrlKey && !e.shiftKey) return;
      e.preventDefault();
      this.zoomBy((e.deltaY || e.deltaX) < 0 ? 1 : -1, e.clientY - scroller.getBoundingClientRect().top);
    }, { passive: false });
    scroller.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  focus(): void {
    this.scroller.focus();
  }

  set(shown: Shown): void {
    this.shown = shown;
    this.layOut();
    if (this.cursor && this.layout.placeOf(this.cursor) === undefined) this.cursor = null;
    this.draw();
  }

  // ---- Places ----

  private layOut(): void {
    const room = Math.max(60, this.scroller.clientHeight - TOP - 2);
    this.layout = new Layout(this.shown!.segments, room, this.zoom);
    this.spacer.style.height = `${Math.max(0, Math.floor(this.layout.total + TOP - this.scroller.clientHeight))}px`;
  }

  private get plotWidth(): number {
    return Math.max(20, this.scroller.clientWidth - LEFT - RIGHT);
  }

  private spotAt(clientX: number, clientY: number): Spot | null {
    const box = this.scroller.getBoundingClientRect();
    const [x, y] = [clientX - box.left, clientY - box.top - TOP + this.scroller.scrollTop];
    if (!this.shown || clientY - box.top < TOP) return null;
    const row = this.shownAt(y, x);
    if (!row) return null;
    const column = Math.floor(((x - LEFT) / this.plotWidth) * this.shown.matrix.columns);
    return { row, column: x >= LEFT && column < this.shown.matrix.columns ? column : -1 };
  }

  /** Of several ranks in one line of pixels, the one that is drawn there, or that stands apart. */
  private shownAt(y: number, x: number): Row | null {
    const { layout } = this;
    const line = 1 / pixelRatio();
    const at = layout.rowAt(y);
    if (at < 0) return null;
    if (layout.heightOf(at) >= line) return layout.rows[at]!;
    const column = Math.floor(((x - LEFT) / this.plotWidth) * this.shown!.matrix.columns);
    let [best, most] = [layout.rows[at]!, -Infinity];
    for (const i of layout.rowsIn(Math.floor(y / line) * line, (Math.floor(y / line) + 1) * line)) {
      const row = layout.rows[i]!;
      const value = this.weight(row, Math.max(0, Math.min(this.shown!.matrix.columns - 1, column)));
      if (value > most) [best, most] = [row, value];
    }
    return best;
  }

  private weight(row: Row, column: number): number {
    const value = this.shown!.values[row.index * this.shown!.matrix.columns + column]!;
    const flagged = row.isDead || row.outlier ? 1e18 : 0;
    return (Number.isNaN(value) ? -1 : this.shown!.colour === 'size' ? value : Math.abs(value)) + flagged;
  }

  /** Bring a row into view. */
  reveal(row: Row): void {
    const at = this.layout.placeOf(row);
    if (at === undefined) return;
    const [top, room] = [this.layout.topOf(at), this.scroller.clientHeight - TOP];
    const bottom = top + this.layout.heightOf(at);
    const { scrollTop } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top - HEADING;
    else if (bottom > scrollTop + room) this.scroller.scrollTop = bottom - room;
  }

  zoomBy(steps: number, at = this.scroller.clientHeight / 2): void {
    const before = this.layout;
    if ((steps > 0 && before.isLargest) || (steps < 0 && !this.zoom)) return;
    const row = before.rowAt(at - TOP + this.scroller.scrollTop);
    this.zoom = Math.max(0, this.zoom + steps);
    this.layOut();
    if (row >= 0) this.scroller.scrollTop = this.layout.topOf(row) - at + TOP;
    this.draw();
  }

  fit(): void {
    this.zoom = 0;
    this.draw();
  }

  // ---- Input ----

  private hover(event: PointerEvent | null): void {
    const spot = event && this.spotAt(event.clientX, event.clientY);
    const row = spot?.row ?? null;
    this.scroller.classList.toggle('over-row', !!row);
    this.onHover(spot, event);
    if (row === this.hovered) return;
    this.hovered = row;
    this.draw();
  }

  move(by: number): void {
    const at = this.cursor ? (this.layout.placeOf(this.cursor) ?? -1) : by > 0 ? -1 : this.layout.rows.length;
    this.moveTo(at + by);
  }

  moveTo(at: number): void {
    const { rows } = this.layout;
    const row = rows[Math.max(0, Math.min(rows.length - 1, at))];
    if (!row) return;
    this.cursor = row;
    this.reveal(row);
    const of = this.fleet.answer.groups[row.group];
    this.live.textContent = row.isMissing ? `${rowName(row)}: no snapshot`
      : `${rowName(row)}, ${size(row.peak)}${of ? `, ${of.name}` : ''}${row.isDead ? ', out of memory' : ''}${row.outlier ? `, ${row.outlier.cause}` : ''}`;
    this.onMove(row);
    this.draw();
  }

  /** To the next rank that ran out of memory or stands apart. */
  moveToTelling(by: number): void {
    const { rows } = this.layout;
    const at = this.cursor ? (this.layout.placeOf(this.cursor) ?? -1) : by > 0 ? -1 : 0;
    for (let n = 1; n <= rows.length; n++) {
      const next = (((at + by * n) % rows.length) + rows.length) % rows.length;
      const row = rows[next]!;
      if (row.isDead || row.outlier) return this.moveTo(next);
    }
  }

  private key(e: KeyboardEvent): void {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor((this.scroller.clientHeight - TOP) / Math.max(1, this.layout.height)) - 1);
    const moves: Record<string, () => void> = {
      ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1), PageDown: () => this.move(page), PageUp: () => this.move(-page),
      Home: () => this.moveTo(0), End: () => this.moveTo(this.layout.rows.length - 1),
      Enter: () => this.cursor && this.onChoose(this.cursor), ' ': () => this.cursor && this.onChoose(this.cursor),
    };
    const move = moves[e.key];
    if (!move) return;
    e.preventDefault();
    e.stopPropagation();
    move();
  }

  // ---- Drawing ----

  draw(): void {
    if (!this.shown || !this.scroller.clientWidth) return;
    const start = performance.now();
    this.layOut();
    const [width, height] = [this.scroller.clientWidth, this.scroller.clientHeight];
    const context = fitCanvas(this.canvas, width, height);
    const colours = ink();
    context.font = FONT;
    context.textBaseline = 'middle';
    this.drawCells(context, width, height);
    this.drawRows(context, colours, height);
    this.drawHeadings(context, colours, width, height);
    this.drawAxis(context, colours, width);
    this.frameMs = performance.now() - start;
  }

  private drawCells(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { columns, view } = this.shown!.matrix;
    const ratio = pixelRatio();
    const lines = Math.max(1, Math.round((height - TOP) * ratio));
    if (!columns) return;
    const from = [this.shown, lines, this.scroller.scrollTop, this.zoom, ratio];
    if (from.some((x, i) => x !== this.buffered[i])) this.fillBuffer(lines, ratio);
    this.buffered = from;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.buffer, LEFT, TOP, width - LEFT - RIGHT, lines / ratio);
    if (view !== 'category') return;
    context.fillStyle = ink().paper;
    for (let c = 1; c < columns; c++) context.fillRect(LEFT + (this.plotWidth * c) / columns - 1, TOP, 2, height);
  }

  /** One pixel for each column, and each line of pixels on the screen. */
  private fillBuffer(lines: number, ratio: number): void {
    const { matrix, values, max, colour, theme } = this.shown!;
    const { layout, buffer } = this;
    const { columns } = matrix;
    buffer.width = columns;
    buffer.height = lines;
    const image = buffer.getContext('2d')!.createImageData(columns, lines);
    const pixels = new Uint32Array(image.data.buffer);
    const table = shades(theme, colour);
    const scale = max > 0 ? (SHADES - 1) / (colour === 'size' ? max : 2 * max) : 0;
    const zero = colour === 'size' ? 0 : (SHADES - 1) / 2;
    const best = new Float64Array(columns);
    let before = -1;
    for (let line = 0; line < lines; line++) {
      const y = this.scroller.scrollTop + line / ratio;
      const at = layout.rowAt(y);
      const height = at < 0 ? 0 : layout.heightOf(at) * ratio;
      // A line of paper between rows that are tall enough for it.
      const isGap = at < 0 || (height >= 8 && at !== before);
      before = at;
      if (isGap) continue;
      best.fill(NaN);
      for (const i of height < 1 ? layout.rowsIn(y, y + 1 / ratio) : [at]) {
        const base = layout.rows[i]!.index * columns;
        for (let c = 0; c < columns; c++) {
          const value = values[base + c]!;
          if (Number.isNaN(best[c]!) || (colour === 'size' ? value > best[c]! : Math.abs(value) > Math.abs(best[c]!))) best[c] = value;
        }
      }
      for (let c = 0; c < columns; c++) if (!Number.isNaN(best[c]!)) pixels[line * columns + c] = table[Math.round(best[c]! * scale + zero)]!;
    }
    buffer.getContext('2d')!.putImageData(image, 0, 0);
  }

  /** Numbers, peaks, marks, and what is chosen. */
  private drawRows(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, height: number): void {
    const { layout } = this;
    const { scrollTop } = this.scroller;
    const warn = getComputedStyle(document.documentElement).getPropertyValue('--warn').trim();
    const written: number[] = []; // middles of labels between rows that are too low for all of them
    const write = (row: Row, y: number, colour: string, bold: boolean) => {
      const middle = Math.max(TOP + 6, y);
      if (written.some((w) => Math.abs(w - middle) < LETTERS - 1)) return;
      written.push(middle);
      context.textAlign = 'right';
      context.fillStyle = colour;
      context.font = `${bold ? '600 ' : ''}${FONT}`;
      context.fillText(cutText(context, row.isOther ? `${row.rank} on ${row.device}` : String(row.rank), LEFT - 22), LEFT - 16, middle);
    };
    const visible = layout.rowsIn(scrollTop - layout.tallHeight, scrollTop + height - TOP);
    if (layout.height < 1) visible.sort((a, b) => layout.rows[a]!.peak - layout.rows[b]!.peak); // the highest is drawn last
    for (const at of visible) {
      const row = layout.rows[at]!;
      const [y, high] = [TOP + layout.topOf(at) - scrollTop, layout.heightOf(at)];
      const colour = row.isDead ? colours.alarm : row.outlier ? warn : colours.ink;
      this.drawRow(context, row, y, high, colour, colours);
      const isMarked = row.isDead || !!row.outlier;
      if (high >= LETTERS - 1 || isMarked) write(row, y + high / 2, colour, isMarked);
    }
    for (const [row, dashes] of [[this.hovered, []], [this.cursor, [3, 2]], [this.chosen, []]] as const) {
      const at = row ? layout.placeOf(row) : undefined;
      if (!row || at === undefined) continue;
      const [y, high] = [TOP + layout.topOf(at) - scrollTop, layout.heightOf(at)];
      const isThick = row === this.chosen;
      context.strokeStyle = row === this.hovered && !isThick ? colours.muted : colours.accent;
      context.lineWidth = isThick ? 2 : 1;
      context.setLineDash([...dashes]);
      context.strokeRect(LEFT - 0.5, y - (high < 4 ? 1.5 : 0), this.plotWidth + 1, Math.max(4, high + 0.5));
      context.setLineDash([]);
      write(row, y + high / 2, colours.accent, true);
    }
  }

  /** A row's peak, its mark at the left, and where it ran out of memory. */
  private drawRow(context: CanvasRenderingContext2D, row: Row, y: number, high: number, colour: string, colours: ReturnType<typeof ink>): void {
    const { matrix } = this.shown!;
    const right = LEFT + this.plotWidth;
    const hasLetters = high >= LETTERS - 1;
    const isMarked = row.isDead || !!row.outlier;
    context.font = FONT;
    context.textAlign = 'left';
    const blank = matrix.blank.get(row.index);
    if (blank) {
      context.fillStyle = colours.raised;
      context.fillRect(LEFT, y, this.plotWidth, Math.max(1, high - 1));
      context.fillStyle = colours.muted;
      if (hasLetters) context.fillText(blank, LEFT + 8, y + high / 2);
    }
    if (row.isMissing) return;
    context.fillStyle = isMarked ? colour : colours.line;
    context.globalAlpha = isMarked && hasLetters ? 0.45 : 1;
    context.fillRect(right + 6, y + (hasLetters ? 2 : 0), ((RIGHT - 12) * row.peak) / (this.most || 1), Math.max(1, high - (hasLetters ? 4 : 0)));
    context.globalAlpha = 1;
    context.fillStyle = colours.ink;
    if (hasLetters) context.fillText(size(row.peak), right + 10, y + high / 2);
    if (!isMarked) return;
    context.fillStyle = colour;
    context.fillRect(LEFT - 3 - MARK_COLUMN, y, MARK_COLUMN, Math.max(2, high - (hasLetters ? 1 : 0)));
    const stop = matrix.stops[row.index]!;
    context.fillStyle = colours.alarm;
    if (!Number.isNaN(stop)) context.fillRect(LEFT + ((stop + 0.5) / matrix.columns) * this.plotWidth - 2, y, 4, Math.max(3, high - 1));
  }

  private drawHeadings(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, width: number, height: number): void {
    for (const band of this.layout.bands) {
      const y = TOP + band.top - this.scroller.scrollTop;
      if (!band.heading || y + band.heading < TOP || y > height) continue;
      if (band.heading < HEADING) {
        context.fillStyle = colours.muted;
        context.fillRect(LEFT, y + 1, this.plotWidth, 1);
        continue;
      }
      context.font = `600 ${FONT}`;
      context.fillStyle = colours.muted;
      context.textAlign = 'left';
      context.fillText(cutText(context, band.segment.title, width - LEFT - 8), LEFT, y + band.heading / 2 + 1);
    }
  }

  private drawAxis(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, width: number): void {
    const { matrix, theme } = this.shown!;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, TOP);
    context.fillStyle = colours.muted;
    context.font = FONT;
    context.textAlign = 'right';
    context.fillText('rank', LEFT - 16, TOP - 9);
    context.textAlign = 'left';
    context.fillText('peak', LEFT + this.plotWidth + 10, TOP - 9);
    if (matrix.view === 'category') this.drawCategories(context, colours, theme);
    else this.drawTimes(context, colours);
  }

  private drawCategories(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, theme: Theme): void {
    const { marks, columns } = this.shown!.matrix;
    const hues = palette('category', marks.map((m) => m.label), theme);
    const each = this.plotWidth / Math.max(1, columns);
    marks.forEach((mark, i) => {
      const x = LEFT + each * i;
      context.fillStyle = hues[i]!.css;
      context.fillRect(x + 1, TOP - 4, each - 2, 3);
      context.fillStyle = colours.ink;
      context.textAlign = 'center';
      const words = mark.label.split('_');
      const lines = context.measureText(words.join(' ')).width <= each - 6 ? [words.join(' ')] : [words[0]!, words.slice(1).join(' ')].filter(Boolean);
      lines.forEach((text, k) => context.fillText(cutText(context, text, each - 4), x + each / 2, TOP - 10 - 12 * (lines.length - 1 - k)));
    });
  }

  private drawTimes(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>): void {
    const { span, marks, columns } = this.shown!.matrix;
    const ticks: [number, string][] = [];
    if (Number.isNaN(span)) ticks.push([0, 'first event'], [1, 'last event']);
    else {
      const raw = span / Math.max(2, Math.floor(this.plotWidth / 110));
      const power = 10 ** Math.floor(Math.log10(Math.max(1, raw)));
      const seconds = [15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].map((s) => s * 1e6);
      const step = (raw > 1e7 ? seconds : [1, 2, 5, 10].map((f) => f * power)).find((s) => s >= raw) ?? raw;
      for (let t = 0; t <= span; t += step) ticks.push([t / span, t ? duration(t).replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ') : '0']);
    }
    for (const [at, text] of ticks) {
      const x = LEFT + at * this.plotWidth;
      context.fillStyle = colours.muted;
      context.fillRect(Math.min(x, LEFT + this.plotWidth - 1), TOP - 4, 1, 4);
      context.textAlign = at < 0.04 ? 'left' : at > 0.96 ? 'right' : 'center';
      context.fillText(text, x, TOP - 10);
    }
    let end = -Infinity;
    for (const mark of marks) {
      const x = LEFT + (mark.at / columns) * this.plotWidth;
      if (x < end) continue;
      context.fillStyle = colours.line;
      context.fillRect(x, TOP - 28, 1, 12);
      const wide = context.measureText(mark.label).width;
      if (!mark.label || x + 4 + wide > LEFT + this.plotWidth) continue;
      context.fillStyle = colours.muted;
      context.textAlign = 'left';
      context.fillText(mark.label, x + 4, TOP - 23);
      end = x + 8 + wide;
    }
  }

  /** For tests: where a row is on the screen. */
  boxOf(rank: number): { x: number; y: number; height: number } | null {
    const at = this.layout.rows.findIndex((r) => r.rank === rank && !r.isOther);
    if (at < 0) return null;
    const box = this.scroller.getBoundingClientRect();
    const high = this.layout.heightOf(at);
    return { x: box.left + LEFT + this.plotWidth / 2, y: box.top + TOP + this.layout.topOf(at) - this.scroller.scrollTop + high / 2, height: high };
  }

  get order(): number[] {
    return this.layout.rows.map((r) => r.rank);
  }
}

/** The legend's text: a size, with a sign for differences. */
export function legendText(colour: Colour, bytes: number): string {
  return colour === 'size' ? size(bytes) : delta(bytes);
}
