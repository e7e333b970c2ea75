// All tracks on one axis, the overview above and the axis below, and what pointer and wheel do.

import type { App } from './app.ts';
import { ticks } from './axis.ts';
import { fitCanvas, h, isFramed } from './dom.ts';
import { ink } from './theme.ts';
import { GUTTER, type Hit, MARGIN, Track } from './track.ts';

const OVERVIEW = 34;
const AXIS = 22;
const AIR = 1.12; // what the height is stretched to, over what is in view
const CLICK = 4; // pixels: less is a click, more a drag

interface Drag {
  kind: 'brush' | 'pan' | 'overview';
  track: number;
  x: number;
  y: number;
  moved: boolean;
  view: [number, number];
  low: number;
  grip: number;
}

export class Timeline {
  readonly element: HTMLElement;
  readonly tracks: Track[];
  hit: Hit | null = null;
  onHover: (hit: Hit | null, event: PointerEvent | null) => void = () => {};
  private readonly overview = h('canvas', { class: 'overview', 'aria-hidden': 'true' });
  private readonly axisCanvas = h('canvas', { class: 'axis', 'aria-hidden': 'true' });
  private readonly holder: HTMLElement;
  private drag: Drag | null = null;
  private pending = 0;
  private wanted: 'all' | 'over' = 'over';
  private width = 100;
  private heights: number[] = [];
  frameTimes: number[] = [];

  constructor(private readonly app: App) {
    this.tracks = app.devices.map((_, i) => new Track(app, i));
    this.holder = h('div', { class: 'tracks' }, ...this.tracks.map((t) => t.element));
    this.element = h(
      'div',
      {
        class: 'timeline',
        tabindex: 0,
        role: 'application',
        'aria-roledescription': 'memory timeline',
        'aria-label': `Memory over time. ${this.tracks.map((t) => t.describe()).join('. ')}. W and S zoom, A and D move, arrow keys choose a moment, question mark explains all keys.`,
      },
      this.overview,
      this.holder,
      this.axisCanvas,
    );
    this.listen();
    new ResizeObserver(() => this.request('all')).observe(this.element);
  }

  get range(): [number, number] {
    return this.app.state.view ?? this.app.axis.extent;
  }

  get plotWidth(): number {
    return Math.max(10, this.width - GUTTER - MARGIN);
  }

  // ---- drawing ----

  request(what: 'all' | 'over'): void {
    if (what === 'all') this.wanted = 'all';
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      const all = this.wanted === 'all';
      this.wanted = 'over';
      const start = performance.now();
      if (all) this.drawAll();
      else this.tracks.forEach((t) => t.drawOver(this.hit));
      this.frameTimes.push(performance.now() - start);
      if (this.frameTimes.length > 500) this.frameTimes.shift();
    });
  }

  private drawAll(): void {
    const box = this.element.getBoundingClientRect();
    this.width = Math.max(120, Math.floor(box.width));
    // Without a history there is nothing to move along.
    const isStill = this.tracks.every((t) => !t.device.hasHistory);
    this.overview.hidden = this.axisCanvas.hidden = isStill;
    const room = Math.max(60, box.height - (isStill ? 0 : OVERVIEW + AXIS));
    const least = this.tracks.map((t) => t.lanesHeight + 60);
    const spare = Math.max(0, Math.floor((room - least.reduce((sum, height) => sum + height, 0)) / least.length));
    this.heights = least.map((height) => height + spare);
    this.tracks.forEach((t, i) => {
      t.element.style.height = `${this.heights[i]}px`;
      t.draw(this.range, this.width, this.heights[i]!);
    });
    this.drawOverview();
    this.drawAxis();
  }

  private drawOverview(): void {
    const { app } = this;
    const context = fitCanvas(this.overview, this.width, OVERVIEW);
    const colours = ink();
    const device = app.devices[app.state.place.track]!;
    const [from, to] = app.axis.extent;
    const plot = this.plotWidth;
    const high = new Float64Array(Math.ceil(plot));
    const low = new Float64Array(Math.ceil(plot)).fill(Infinity);
    let last = 0;
    for (let b = 0; b < device.high.length; b++) {
      const at = (m: number) =>
        Math.max(0, Math.min(high.length - 1, Math.floor(((app.axis.x(device, m) - from) / (to - from)) * plot)));
      const x = at(device.high[b]!);
      for (let i = last + 1; i < x; i++) high[i] = Math.max(high[i]!, device.allocatedLow[Math.max(0, b - 1)]!);
      last = x;
      high[x] = Math.max(high[x]!, device.allocatedHigh[b]!);
      const k = at(device.low[b]!);
      low[k] = Math.min(low[k]!, device.allocatedLow[b]!);
    }
    // After the last change everything stays as it is, to the end of the trace.
    const stop = Math.min(high.length, Math.floor(((app.axis.span(device)[1] - from) / (to - from)) * plot));
    const end = device.totalsAt(device.moments - 1).allocated;
    for (let i = last + 1; i < stop; i++) high[i] = Math.max(high[i]!, end);
    const most = Math.max(1, device.head.peakAllocated) * 1.08;
    for (let i = 0; i < high.length; i++) {
      const y = 2 + (OVERVIEW - 4) * (1 - high[i]! / most);
      const z = low[i]! === Infinity ? y : 2 + (OVERVIEW - 4) * (1 - low[i]! / most);
      context.fillStyle = colours.muted;
      context.globalAlpha = 0.35;
      context.fillRect(GUTTER + i, y, 1, OVERVIEW - 2 - y);
      context.globalAlpha = 0.35;
      context.fillRect(GUTTER + i, z, 1, OVERVIEW - 2 - z);
    }
    context.globalAlpha = 1;
    const [a, b] = this.range.map((x) => GUTTER + ((x - from) / (to - from)) * plot) as [number, number];
    context.fillStyle = colours.paper;
    context.globalAlpha = 0.65;
    context.fillRect(GUTTER, 0, a - GUTTER, OVERVIEW);
    context.fillRect(b, 0, this.width - b, OVERVIEW);
    context.globalAlpha = 1;
    context.strokeStyle = colours.accent;
    context.strokeRect(Math.round(a) + 0.5, 0.5, Math.max(2, Math.round(b - a) - 1), OVERVIEW - 1);
    context.fillStyle = colours.muted;
    context.font = '11px system-ui, sans-serif';
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillText('all', GUTTER - 7, OVERVIEW / 2);
  }

  private drawAxis(): void {
    const { app } = this;
    const context = fitCanvas(this.axisCanvas, this.width, AXIS);
    const colours = ink();
    const [from, to] = this.range;
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    context.fillStyle = colours.muted;
    context.textAlign = 'right';
    context.fillText(app.axis.kind === 'event' ? 'event' : 'time', GUTTER - 7, AXIS / 2);
    const places = ticks(from, to, this.plotWidth / 96, app.axis.kind === 'event' ? 1 : 0);
    const step = places.length > 1 ? places[1]! - places[0]! : to - from;
    context.textAlign = 'center';
    for (const place of places) {
      const x = GUTTER + ((place - from) / (to - from)) * this.plotWidth;
      context.fillRect(Math.round(x), 0, 1, 4);
      const text = app.axis.label(place, step);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.max(GUTTER + half, Math.min(this.width - half - 2, x)), 13);
    }
  }

  // ---- moving about ----

  /** Show a stretch of the axis, kept within what there is. */
  show(from: number, to: number): void {
    const [begin, end] = this.app.axis.extent;
    const width = Math.max(Math.min(to - from, end - begin), Math.min(this.app.axis.least, end - begin));
    const middle = (from + to) / 2;
    let left = Math.max(begin, Math.min(end - width, to - from === width ? from : middle - width / 2));
    if (!Number.isFinite(left)) left = begin;
    const whole = width >= (end - begin) * 0.99999;
    this.app.store.set({ view: whole ? null : [left, left + width] });
  }

  zoom(factor: number, at?: number): void {
    const [from, to] = this.range;
    const { axis, state, devices } = this.app;
    let centre = at;
    if (centre === undefined) {
      const chosen = axis.x(devices[state.place.track]!, state.place.moment);
      centre = chosen >= from && chosen <= to ? chosen : (from + to) / 2;
    }
    const [begin, end] = axis.extent;
    const width = Math.max(axis.least, Math.min(end - begin, (to - from) * factor));
    const part = (centre - from) / (to - from);
    this.show(centre - part * width, centre - part * width + width);
  }

  pan(part: number): void {
    const [from, to] = this.range;
    this.show(from + (to - from) * part, to + (to - from) * part);
  }

  private valueAt(x: number): number {
    const [from, to] = this.range;
    return from + ((x - GUTTER) / this.plotWidth) * (to - from);
  }

  // ---- pointer and wheel ----

  private trackAt(target: EventTarget | null): number {
    return this.tracks.findIndex((t) => t.over === target);
  }

  private listen(): void {
    const element = this.element;
    element.addEventListener('pointerdown', (e) => this.down(e));
    element.addEventListener('pointermove', (e) => this.move(e));
    element.addEventListener('pointerup', () => this.up());
    element.addEventListener('pointercancel', () => (this.drag = null));
    element.addEventListener('pointerleave', () => this.hover(null, null));
    element.addEventListener('dblclick', (e) => this.double(e));
    element.addEventListener('wheel', (e) => this.wheel(e), { passive: false });
  }

  private down(e: PointerEvent): void {
    const track = this.trackAt(e.target);
    const isOverview = e.target === this.overview;
    if (e.button > 1 || (track < 0 && !isOverview && e.target !== this.axisCanvas)) return;
    this.element.focus({ preventScroll: true });
    e.preventDefault();
    this.element.setPointerCapture(e.pointerId);
    this.hover(null, null);
    const box = (e.target as Element).getBoundingClientRect();
    const x = e.clientX - box.left;
    const [from, to] = this.range;
    const kind = isOverview ? 'overview' : e.shiftKey || e.button === 1 || track < 0 ? 'pan' : 'brush';
    this.drag = { kind, track, x, y: e.clientY - box.top, moved: false, view: [from, to], low: this.app.state.low, grip: 0 };
    if (kind !== 'overview') return;
    const [begin, end] = this.app.axis.extent;
    const value = begin + ((x - GUTTER) / this.plotWidth) * (end - begin);
    this.drag.grip = value >= from && value <= to ? value - (from + to) / 2 : 0;
    this.show(value - this.drag.grip - (to - from) / 2, value - this.drag.grip + (to - from) / 2);
  }

  private move(e: PointerEvent): void {
    const { drag } = this;
    const box = this.element.getBoundingClientRect();
    const x = e.clientX - box.left;
    if (!drag) {
      const track = this.trackAt(e.target);
      const own = track >= 0 ? this.tracks[track]!.over.getBoundingClientRect() : null;
      this.hover(own ? this.tracks[track]!.hit(e.clientX - own.left, e.clientY - own.top) : null, e);
      return;
    }
    const own = this.tracks[drag.track];
    const down = own ? e.clientY - own.over.getBoundingClientRect().top - drag.y : 0;
    if (Math.abs(x - drag.x) > CLICK || (drag.kind === 'pan' && Math.abs(down) > CLICK)) drag.moved = true;
    if (!drag.moved) return;
    const [from, to] = drag.view;
    if (drag.kind === 'pan') {
      const by = ((drag.x - x) / this.plotWidth) * (to - from);
      this.show(from + by, to + by);
      if (own) this.app.store.set({ low: own.lowest(drag.low + own.bytesOf(down), this.app.state.zoomY) });
    } else if (drag.kind === 'overview') {
      const [begin, end] = this.app.axis.extent;
      const value = begin + ((x - GUTTER) / this.plotWidth) * (end - begin) - drag.grip;
      this.show(value - (to - from) / 2, value + (to - from) / 2);
    } else {
      const device = this.app.devices[drag.track]!;
      const a = this.app.axis.moment(device, this.valueAt(Math.min(x, drag.x)));
      const b = this.app.axis.moment(device, this.valueAt(Math.max(x, drag.x)));
      this.app.store.set({ place: { track: drag.track, moment: a }, range: { from: a, to: b } });
    }
  }

  private up(): void {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.moved || drag.kind !== 'brush') return;
    const track = this.tracks[drag.track]!;
    const hit = track.hit(drag.x, drag.y);
    if (!hit) return;
    if (hit.lane) {
      const { born, died } = hit.lane;
      const last = track.device.moments - 1;
      this.app.store.set({
        place: { track: drag.track, moment: born },
        range: { from: born, to: Math.max(born, Math.min(last, died - 1)) },
      });
      return;
    }
    this.app.store.set({
      place: { track: drag.track, moment: hit.moment },
      range: null,
      pin: hit.allocation >= 0 ? { track: drag.track, allocation: hit.device.row(hit.allocation), born: hit.device.born[hit.allocation]! } : null,
    });
  }

  private double(e: MouseEvent): void {
    const track = this.trackAt(e.target);
    if (track < 0 && e.target !== this.overview) return;
    const box = this.element.getBoundingClientRect();
    const own = track >= 0 ? this.tracks[track]!.over.getBoundingClientRect() : null;
    const hit = own ? this.tracks[track]!.hit(e.clientX - box.left, e.clientY - own.top) : null;
    if (hit?.lane) {
      const device = this.app.devices[track]!;
      this.show(this.app.axis.x(device, hit.lane.born), this.app.axis.x(device, hit.lane.died));
    } else {
      this.app.store.set({ view: null, zoomY: 1, low: 0 });
    }
  }

  private wheel(e: WheelEvent): void {
    if (isFramed && !document.hasFocus()) return; // who scrolls a notebook passes over the page
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 200 : 1;
    const box = this.element.getBoundingClientRect();
    if (e.shiftKey && !e.ctrlKey) {
      const by = (e.deltaY || e.deltaX) * unit;
      this.zoomY(Math.exp(-by / 400), this.bytesAt(e));
    } else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      this.pan((e.deltaX * unit) / this.plotWidth);
    } else {
      this.zoom(Math.exp((e.deltaY * unit) / 320), this.valueAt(Math.max(GUTTER, e.clientX - box.left)));
    }
  }

  /** The bytes at the pointer, or null if it is on no track. */
  private bytesAt(e: MouseEvent): number | null {
    const track = this.tracks[this.trackAt(e.target)];
    return track ? track.bytesAt(e.clientY - track.over.getBoundingClientRect().top) : null;
  }

  /** Stretch the height around some bytes, else around what is allocated at the chosen moment. */
  zoomY(factor: number, at: number | null = null): void {
    const { app } = this;
    const { place, zoomY, low } = app.state;
    const to = Math.max(1, Math.min(1 << 20, zoomY * factor));
    const track = this.tracks[place.track]!;
    const span = track.span;
    let centre = at ?? app.deviceFor(place.track, place.moment).totalsAt(place.moment).allocated;
    if (centre < low || centre > low + span) centre = low + span / 2;
    app.store.set({ zoomY: to, low: track.lowest(centre - ((centre - low) * zoomY) / to, to) });
  }

  /** Stretch the height to what is in view, or show all of it again. */
  fitHeight(): void {
    const { app } = this;
    const [from, to] = this.range;
    const heights = this.tracks.map(({ device }) => {
      const [begin, end] = app.axis.span(device);
      if (end <= from || begin >= to) return 0;
      const moments = [from, to].map((x) => app.axis.moment(device, x)) as [number, number];
      return device.totalsAt(app.peakOf(device, ...moments)).allocated;
    });
    const least = Math.min(...this.tracks.map((track, i) => (heights[i]! ? track.full / (heights[i]! * AIR) : Infinity)));
    const zoomY = Number.isFinite(least) ? Math.max(1, Math.min(1 << 20, least)) : 1;
    const isFit = app.state.low === 0 && Math.abs(app.state.zoomY / zoomY - 1) < 1e-6;
    app.store.set({ zoomY: isFit ? 1 : zoomY, low: 0 });
  }

  private hover(hit: Hit | null, event: PointerEvent | null): void {
    this.hit = hit;
    this.onHover(hit, event);
    this.request('over');
  }
}
