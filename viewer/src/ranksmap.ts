// The map: a row for each rank, a column for each stretch of time or each category. Rows are drawn as wide as their numbers are many and then
// stretched, so ten thousand of them take some milliseconds. If a line of pixels has several ranks, the one with the most is shown.

import { cutText, fitCanvas, h, pixelRatio } from './dom.ts';
import { delta, duration, size } from './format.ts';
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
const HEADING = 20;
const FLAT_HEADING = 3;
const TALLEST = 20;
const LETTERS = 11; // rows of which height are labelled
const MARK_COLUMN = 5;

/** A segment's place: its rows begin below its heading. */
interface Band {
  segment: Segment;
  top: number;
  heading: number;
  first: number; // its first row among all
}

export class RanksMap {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly spacer = h('div', { class: 'map-space' });
  private readonly canvas = h('canvas', { class: 'map-canvas', 'aria-hidden': 'true' });
  private readonly live = h('p', { class: 'offscreen', role: 'status', 'aria-live': 'polite' });
  private shown: Shown | null = null;
  private rows: Row[] = [];
  private place = new Map<Row, number>();
  private bands: Band[] = [];
  private height = TALLEST; // of a row
  private total = 0;
  private zoom = 0; // steps of zooming in; 0: everything fits
  private buffer = document.createElement('canvas');
  cursor: Row | null = null;
  chosen: Row | null = null;
  hovered: Row | null = null;
  onHover: (spot: Spot | null, event: PointerEvent | null) => void = () => {};
  onChoose: (row: Row | null) => void = () => {};
  onMove: (row: Row) => void = () => {};
  frameMs = 0;

  constructor(private readonly fleet: Fleet) {
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
    this.rows = shown.segments.flatMap((s) => s.rows);
    this.place = new Map(this.rows.map((row, i) => [row, i]));
    if (this.cursor && !this.place.has(this.cursor)) this.cursor = null;
    this.draw();
  }

  // ---- Places ----

  private layOut(): void {
    const segments = this.shown!.segments;
    const room = Math.max(60, this.scroller.clientHeight - TOP - 2);
    const titled = segments.filter((s) => s.title).length;
    const isRoomy = titled * HEADING < room * 0.4;
    const heading = isRoomy ? HEADING : FLAT_HEADING;
    const fit = Math.min(TALLEST, (room - titled * heading) / Math.max(1, this.rows.length));
    this.height = Math.min(TALLEST, fit * 2 ** this.zoom);
    let [top, first] = [0, 0];
    this.bands = segments.map((segment) => {
      const band = { segment, top, heading: segment.title ? heading : 0, first };
      top += band.heading + segment.rows.length * this.height;
      first += segment.rows.length;
      return band;
    });
    this.total = top;
    this.spacer.style.height = `${Math.max(0, Math.floor(this.total + TOP - this.scroller.clientHeight))}px`;
  }

  private topOf(at: number): number {
    const band = this.bands.findLast((b) => b.first <= at && b.segment.rows.length > 0);
    return band ? band.top + band.heading + (at - band.first) * this.height : 0;
  }

  private rowAt(y: number): Row | null {
    const band = this.bands.findLast((b) => b.top <= y);
    if (!band || y < band.top + band.heading) return null;
    return band.segment.rows[Math.floor((y - band.top - band.heading) / this.height)] ?? null;
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
    const line = 1 / pixelRatio();
    if (this.height >= line) return this.rowAt(y);
    const column = Math.floor(((x - LEFT) / this.plotWidth) * this.shown!.matrix.columns);
    let best: Row | null = null;
    let most = -Infinity;
    for (const row of this.rowsIn(Math.floor(y / line) * line, (Math.floor(y / line) + 1) * line)) {
      const value = this.weight(row, Math.max(0, Math.min(this.shown!.matrix.columns - 1, column)));
      if (value > most || !best) [best, most] = [row, value];
    }
    return best;
  }

  private weight(row: Row, column: number): number {
    const value = this.shown!.values[row.index * this.shown!.matrix.columns + column]!;
    const flagged = row.isDead || row.outlier ? 1e18 : 0;
    return (Number.isNaN(value) ? -1 : this.shown!.colour === 'size' ? value : Math.abs(value)) + flagged;
  }

  /** The rows that begin in a stretch of the map. */
  private rowsIn(from: number, to: number): Row[] {
    const out: Row[] = [];
    for (const band of this.bands) {
      const begin = band.top + band.heading;
      const a = Math.max(0, Math.ceil((from - begin) / this.height));
      const b = Math.min(band.segment.rows.length, Math.ceil((to - begin) / this.height));
      for (let i = a; i < b; i++) out.push(band.segment.rows[i]!);
    }
    return out;
  }

  /** Bring a row into view. */
  reveal(row: Row): void {
    const at = this.place.get(row);
    if (at === undefined) return;
    const [top, room] = [this.topOf(at), this.scroller.clientHeight - TOP];
    const { scrollTop } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top - HEADING;
    else if (top + this.height > scrollTop + room) this.scroller.scrollTop = top + this.height - room;
  }

  zoomBy(steps: number, at = this.scroller.clientHeight / 2): void {
    const before = this.height;
    const y = at - TOP + this.scroller.scrollTop;
    if ((steps > 0 && this.height >= TALLEST) || (steps < 0 && !this.zoom)) return;
    this.zoom = Math.max(0, this.zoom + steps);
    this.layOut();
    this.scroller.scrollTop = (y * this.height) / before - at + TOP;
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
    if (!this.rows.length) return;
    const at = this.cursor ? (this.place.get(this.cursor) ?? -1) : by > 0 ? -1 : this.rows.length;
    this.moveTo(at + by);
  }

  moveTo(at: number): void {
    const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, at))];
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
    const at = this.cursor ? (this.place.get(this.cursor) ?? -1) : -1;
    const { length } = this.rows;
    for (let n = 1; n <= length; n++) {
      const next = (((at + by * n) % length) + length) % length;
      const row = this.rows[next]!;
      if (row.isDead || row.outlier) return this.moveTo(next);
    }
  }

  private key(e: KeyboardEvent): void {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor((this.scroller.clientHeight - TOP) / Math.max(1, this.height)) - 1);
    const moves: Record<string, () => void> = {
      ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1), PageDown: () => this.move(page), PageUp: () => this.move(-page),
      Home: () => this.moveTo(0), End: () => this.moveTo(this.rows.length - 1),
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
    context.font = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    this.drawCells(context, width, height);
    this.drawRows(context, colours, height);
    this.drawHeadings(context, colours, width, height);
    this.drawAxis(context, colours, width);
    this.frameMs = performance.now() - start;
  }

  /** The values that a line of pixels shows; null: none. */
  private drawCells(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { matrix, values, max, colour, theme } = this.shown!;
    const ratio = pixelRatio();
    const lines = Math.max(1, Math.round((height - TOP) * ratio));
    const { columns } = matrix;
    if (!columns) return;
    const { buffer } = this;
    buffer.width = columns;
    buffer.height = lines;
    const image = buffer.getContext('2d')!.createImageData(columns, lines);
    const pixels = new Uint32Array(image.data.buffer);
    const table = shades(theme, colour);
    const scale = max > 0 ? (SHADES - 1) / (colour === 'size' ? max : 2 * max) : 0;
    const zero = colour === 'size' ? 0 : (SHADES - 1) / 2;
    const best = new Float64Array(columns);
    const isThin = this.height * ratio < 1;
    let before: Row | null = null;
    for (let line = 0; line < lines; line++) {
      const y = this.scroller.scrollTop + line / ratio;
      if (!isThin) {
        const row = this.rowAt(y);
        // A line of paper between rows that are tall enough for it.
        if (!row || (this.height * ratio >= 6 && row !== before)) {
          before = row;
          continue;
        }
        for (let c = 0; c < columns; c++) {
          const value = values[row.index * columns + c]!;
          if (!Number.isNaN(value)) pixels[line * columns + c] = table[Math.round(value * scale + zero)]!;
        }
        continue;
      }
      best.fill(NaN);
      for (const row of this.rowsIn(y, y + 1 / ratio))
        for (let c = 0; c < columns; c++) {
          const value = values[row.index * columns + c]!;
          if (Number.isNaN(best[c]!) || (colour === 'size' ? value > best[c]! : Math.abs(value) > Math.abs(best[c]!))) best[c] = value;
        }
      for (let c = 0; c < columns; c++) if (!Number.isNaN(best[c]!)) pixels[line * columns + c] = table[Math.round(best[c]! * scale + zero)]!;
    }
    buffer.getContext('2d')!.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(buffer, LEFT, TOP, width - LEFT - RIGHT, lines / ratio);
    if (matrix.view === 'category') {
      const paper = ink().paper;
      context.fillStyle = paper;
      for (let c = 1; c < columns; c++) context.fillRect(LEFT + (this.plotWidth * c) / columns - 1, TOP, 2, height);
    }
  }

  /** Numbers, peaks, marks, and what is chosen. */
  private drawRows(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, height: number): void {
    const { matrix } = this.shown!;
    const { scrollTop } = this.scroller;
    const right = LEFT + this.plotWidth;
    const most = this.fleet.rows.reduce((m, r) => Math.max(m, r.peak), 0);
    const isTall = this.height >= LETTERS;
    const warn = getComputedStyle(document.documentElement).getPropertyValue('--warn').trim();
    const written: number[] = []; // middles of labels between rows that are too low for all of them
    const write = (text: string, y: number, colour: string, bold = false) => {
      context.textAlign = 'right';
      context.fillStyle = colour;
      context.font = `${bold ? '600 ' : ''}11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif`;
      context.fillText(cutText(context, text, LEFT - 22), LEFT - 16, y);
    };
    const visible = this.rowsIn(scrollTop - this.height, scrollTop + height - TOP);
    const line = Math.max(this.height, 1);
    for (const row of visible) {
      const y = TOP + this.topOf(this.place.get(row)!) - scrollTop;
      const isMarked = row.isDead || !!row.outlier;
      const colour = row.isDead ? colours.alarm : row.outlier ? warn : colours.ink;
      if (row.isMissing) {
        context.fillStyle = colours.raised;
        context.fillRect(LEFT, y, this.plotWidth, Math.max(1, this.height - 1));
        if (isTall) {
          context.fillStyle = colours.muted;
          context.textAlign = 'left';
          context.fillText('no snapshot', LEFT + 8, y + this.height / 2);
        }
      }
      if (isTall) write(row.isOther ? `${row.rank} on ${row.device}` : String(row.rank), y + this.height / 2, colour, isMarked);
      if (!row.isMissing && most > 0 && (isTall || this.height * pixelRatio() >= 1)) {
        context.fillStyle = isMarked ? colour : colours.line;
        context.globalAlpha = isMarked ? 0.45 : 0.8;
        context.fillRect(right + 6, y + (isTall ? 2 : 0), ((RIGHT - 12) * row.peak) / most, Math.max(1, this.height - (isTall ? 4 : 0)));
        context.globalAlpha = 1;
        if (isTall) {
          context.fillStyle = colours.ink;
          context.textAlign = 'left';
          context.fillText(size(row.peak), right + 10, y + this.height / 2);
        }
      }
      if (!isMarked) continue;
      context.fillStyle = colour;
      context.fillRect(LEFT - 3 - MARK_COLUMN, y, MARK_COLUMN, Math.max(2, line - (isTall ? 1 : 0)));
      const stop = matrix.stops[row.index]!;
      if (!Number.isNaN(stop)) {
        context.fillStyle = colours.alarm;
        context.fillRect(LEFT + ((stop + 0.5) / matrix.columns) * this.plotWidth - 2, y, 4, Math.max(3, this.height - 1));
      }
      if (isTall || written.some((w) => Math.abs(w - y) < 13)) continue;
      written.push(y);
      write(String(row.rank), Math.max(TOP + 6, y + line / 2), colour, true);
    }
    for (const [row, dashes] of [[this.hovered, []], [this.cursor, [3, 2]], [this.chosen, []]] as const) {
      const at = row ? this.place.get(row) : undefined;
      if (at === undefined) continue;
      const y = TOP + this.topOf(at) - scrollTop;
      const isThick = row === this.chosen;
      context.strokeStyle = row === this.hovered && !isThick ? colours.muted : colours.accent;
      context.lineWidth = isThick ? 2 : 1;
      context.setLineDash([...dashes]);
      context.strokeRect(LEFT - 0.5, y - 1, this.plotWidth + 1, Math.max(4, this.height + 1));
      context.setLineDash([]);
      if (!isTall && row && !written.some((w) => Math.abs(w - y) < 13)) {
        written.push(y);
        write(String(row.rank), Math.max(TOP + 6, y + line / 2), colours.accent, true);
      }
    }
  }

  private drawHeadings(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, width: number, height: number): void {
    for (const band of this.bands) {
      const y = TOP + band.top - this.scroller.scrollTop;
      if (!band.heading || y + band.heading < TOP || y > height) continue;
      if (band.heading < HEADING) {
        context.fillStyle = colours.muted;
        context.fillRect(LEFT, y + 1, this.plotWidth, 1);
        continue;
      }
      context.font = '600 11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
      context.fillStyle = colours.muted;
      context.textAlign = 'left';
      context.fillText(cutText(context, band.segment.title, width - 16), 10, y + band.heading / 2 + 1);
    }
  }

  private drawAxis(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, width: number): void {
    const { matrix, theme } = this.shown!;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, TOP);
    context.fillStyle = colours.muted;
    context.font = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
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
      const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw) ?? raw;
      for (let t = 0; t <= span; t += step) ticks.push([t / span, t ? duration(t).replace(/\.?0+ /, ' ') : '0']);
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
      context.fillStyle = colours.line;
      context.fillRect(x, TOP - 28, 1, 12);
      const wide = context.measureText(mark.label).width;
      if (!mark.label || x + 4 < end || x + 4 + wide > LEFT + this.plotWidth) continue;
      context.fillStyle = colours.muted;
      context.textAlign = 'left';
      context.fillText(mark.label, x + 4, TOP - 23);
      end = x + 12 + wide;
    }
  }

  /** For tests: where a row is on the screen. */
  boxOf(rank: number): { x: number; y: number; height: number } | null {
    const at = this.rows.findIndex((r) => r.rank === rank && !r.isOther);
    if (at < 0) return null;
    const box = this.scroller.getBoundingClientRect();
    return { x: box.left + LEFT + this.plotWidth / 2, y: box.top + TOP + this.topOf(at) - this.scroller.scrollTop + this.height / 2, height: this.height };
  }

  get order(): number[] {
    return this.rows.map((r) => r.rank);
  }
}

/** The legend's text: a size, with a sign for differences. */
export function legendText(colour: Colour, bytes: number): string {
  return colour === 'size' ? size(bytes) : delta(bytes);
}
