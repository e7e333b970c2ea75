// One device over time: the picture, and over it lanes, lines, marks, the selection and the pointer.

import type { App } from './app.ts';
import { byteTicks } from './axis.ts';
import { cardColour } from './card.ts';
import { type View, viewOf } from './curves.ts';
import type { HeadCut } from './decode.ts';
import type { Device } from './device.ts';
import { cutText, fitCanvas, fitText, h, pixelRatio } from './dom.ts';
import { counted, size } from './format.ts';
import { ASIDE, type Box, HEIGHT, Labels, LIMIT, MARK, PEAK } from './labels.ts';
import { type Lane, lanesOf } from './lanes.ts';
import { paint, type Picture } from './paint.ts';
import { ink } from './theme.ts';

export const GUTTER = 72; // left of the picture, for the sizes
export const MARGIN = 8; // right of it, so that marks at the end are whole
const ROOM = 20; // for a row of labels above the picture
const LANE = 15;
const CARD = 46; // the lane of the whole card
const MOST_BLENDED = 20000; // ranges of a lane; of more, those that share half a pixel with another are left out

// Phases have colours of their own, other ranges alternate between the first and the last.
export const PHASES = ['setup', 'data', 'forward', 'recompute', 'backward', 'optimizer', 'zero_grad'];
const LANES = {
  light: ['#dbe4ee', '#e9e4d2', '#d5e5f5', '#cdebe6', '#f6e2c8', '#e4daf0', '#eceff2'],
  dark: ['#2b3948', '#3f3a27', '#24405c', '#1f4743', '#4d3b21', '#3d3152', '#343a42'],
};

export interface Hit {
  track: number;
  device: Device; // what is drawn there
  moment: number;
  allocation: number; // of that device, or -1
  isThin: boolean; // it is less than a pixel high, so its neighbours are there too
  group: number; // of a band of small blocks, or of an envelope; or -1
  isKept: boolean; // it is an envelope: what private pools keep beside their blocks
  lane: { title: string; name: string; born: number; died: number } | null;
  sample: number; // of the whole card, if the pointer is on its lane; or -1
}

export class Track {
  readonly element: HTMLElement;
  readonly over: HTMLCanvasElement;
  readonly lanes: Lane[];
  private readonly raster: HTMLCanvasElement;
  private picture: Picture | null = null;
  private view: View | null = null;
  private firstColumn = 0;
  private width = 0;
  private height = 0;
  private matched: Float64Array | null = null;
  private range: [number, number] = [0, 1];
  private drawn: Device; // the track, or a part of it
  private low = 0; // bytes at the lower border
  private yMax = 1; // and at the upper one
  private written: { text: string; box: Box }[] = [];

  constructor(
    private readonly app: App,
    readonly index: number,
  ) {
    this.drawn = this.device;
    this.lanes = lanesOf(this.device);
    this.raster = h('canvas', { class: 'raster', 'aria-hidden': 'true' });
    this.over = h('canvas', { class: 'over', 'aria-hidden': 'true' });
    this.element = h('div', { class: 'track' }, this.raster, this.over);
  }

  get device(): Device {
    return this.app.devices[this.index]!;
  }

  get lanesHeight(): number {
    return this.cardTop + (this.device.card ? CARD : 0);
  }

  /** Where the lane of the whole card is, below the others. */
  private get cardTop(): number {
    return this.lanes.length * LANE + (this.app.devices.length > 1 ? 16 : 0);
  }

  private get plotWidth(): number {
    return Math.max(10, this.width - GUTTER - MARGIN);
  }

  /** Where the picture ends. */
  private get right(): number {
    return GUTTER + this.plotWidth;
  }

  private get plotHeight(): number {
    return Math.max(10, this.height - this.lanesHeight - 2);
  }

  private xOf(value: number): number {
    return GUTTER + ((value - this.range[0]) / (this.range[1] - this.range[0])) * this.plotWidth;
  }

  xOfMoment(moment: number): number {
    return this.xOf(this.app.axis.x(this.device, moment));
  }

  /** Where the picture is: what is written in it stays within. */
  private plotBox(): Box {
    return [GUTTER, this.width, this.lanesHeight, this.lanesHeight + this.plotHeight];
  }

  private yOf(bytes: number): number {
    return this.lanesHeight + this.plotHeight * (1 - (bytes - this.low) / (this.yMax - this.low));
  }

  /** Bytes from the lower border to the upper one. */
  get span(): number {
    return this.full / this.app.state.zoomY;
  }

  /** The same when nothing is stretched: all that is drawn, and above it room for labels. */
  get full(): number {
    const room = this.device.marks.length ? 2 * ROOM : ROOM;
    return (this.app.top(this.index) * this.plotHeight) / Math.max(this.plotHeight / 2, this.plotHeight - room);
  }

  /** The bytes that so many pixels are high, and those at a place, of the state that will be drawn next. */
  bytesOf(pixels: number): number {
    return (pixels / this.plotHeight) * this.span;
  }

  bytesAt(y: number): number {
    const { low, zoomY } = this.app.state;
    return this.lowest(low, zoomY) + this.bytesOf(this.lanesHeight + this.plotHeight - y);
  }

  /** What the lower border can be at such a zoom: nothing below 0 or above the top is shown. */
  lowest(low: number, zoomY: number): number {
    return Math.max(0, Math.min(this.full - this.full / zoomY, low));
  }

  /** Draw everything for a stretch of the axis. */
  draw(range: [number, number], width: number, height: number): void {
    this.range = range;
    this.width = width;
    this.height = height;
    this.low = this.lowest(this.app.state.low, this.app.state.zoomY);
    this.yMax = this.low + this.span;
    this.drawPicture();
    this.drawOver(null);
  }

  private drawPicture(): void {
    const { app, device } = this;
    const ratio = pixelRatio();
    const width = Math.round(this.plotWidth * ratio);
    const height = Math.round(this.plotHeight * ratio);
    const [from, to] = this.range;
    const [begin, end] = app.axis.span(device);
    const scale = width / (to - from);
    const first = Math.max(0, Math.floor((begin - from) * scale));
    const last = Math.min(width, Math.ceil((end - from) * scale));
    this.firstColumn = first;
    this.raster.style.left = `${GUTTER}px`;
    this.raster.style.top = `${this.lanesHeight}px`;
    this.raster.style.width = `${this.plotWidth}px`;
    this.raster.style.height = `${this.plotHeight}px`;
    if (this.raster.width !== width) this.raster.width = width;
    if (this.raster.height !== height) this.raster.height = height;
    const context = this.raster.getContext('2d')!;
    if (last <= first) {
      this.view = this.picture = null;
      context.clearRect(0, 0, width, height);
      return;
    }
    const edges = new Uint32Array(last - first + 1);
    for (let c = 0; c < edges.length; c++) edges[c] = app.axis.moment(device, from + (first + c) / scale);
    if (last === Math.ceil((end - from) * scale)) edges[edges.length - 1] = device.moments;
    const drawn = app.deviceFor(this.index, edges[0]!, Math.min(device.moments - 1, edges[edges.length - 1]!));
    const grouping = app.grouping(this.index, drawn);
    const visible = app.visible(this.index);
    this.drawn = drawn;
    this.view = viewOf(drawn, grouping, edges);
    const matches = app.matches(drawn);
    this.picture = paint(drawn, grouping, this.view, {
      layout: app.state.layout,
      bytesPerPixel: (this.yMax - this.low) / height,
      low: this.low,
      height,
      left: first,
      width,
      order: app.order(this.index),
      visible,
      colours: app.colours(this.index),
      matches,
    });
    this.matched = this.picture.matched;
    const bytes = new Uint8ClampedArray(this.picture.pixels.buffer);
    context.putImageData(new ImageData(bytes, width, height), 0, 0);
  }

  /** Draw what lies over the picture; `hit` is what the pointer is on. */
  drawOver(hit: Hit | null): void {
    const context = fitCanvas(this.over, this.width, this.height);
    const colours = ink();
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.drawGrid(context, colours);
    this.drawLanes(context, colours);
    this.drawCard(context, colours);
    context.save();
    context.beginPath();
    context.rect(GUTTER - MARGIN, this.lanesHeight - 1, this.plotWidth + 2 * MARGIN, this.plotHeight + 2);
    context.clip();
    const labels = new Labels();
    this.drawLines(context, colours, labels);
    this.drawMarks(context, colours, labels);
    this.drawOwner(context, colours, hit);
    context.restore();
    this.drawSelection(context, colours, hit);
    this.written = labels.draw(context, colours.paper, this.plotBox(), (box) => this.hides(box));
  }

  private drawGrid(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>): void {
    const bottom = this.lanesHeight + this.plotHeight;
    context.textAlign = 'right';
    for (const [bytes, text] of byteTicks(this.low, this.yMax, Math.max(2, this.plotHeight / 48))) {
      const y = Math.round(this.yOf(bytes)) + 0.5;
      if (y < this.lanesHeight) continue;
      context.strokeStyle = colours.line;
      context.globalAlpha = 0.55;
      context.beginPath();
      context.moveTo(GUTTER - 4, y);
      context.lineTo(this.right, y);
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = colours.muted;
      context.fillText(text, GUTTER - 7, Math.max(this.lanesHeight + 6, Math.min(bottom - 6, y)));
    }
    if (this.app.devices.length > 1) {
      const isFocus = this.app.state.place.track === this.index;
      context.textAlign = 'left';
      context.fillStyle = isFocus ? colours.accent : colours.muted;
      context.font = `${isFocus ? 600 : 400} 11px system-ui, sans-serif`;
      const title = `${isFocus ? '● ' : ''}${this.app.title(this.index)}`;
      context.fillText(fitText(context, title, this.width - 12), 6, 8);
      context.font = '11px system-ui, sans-serif';
    }
  }

  private drawLanes(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>): void {
    const top = this.app.devices.length > 1 ? 16 : 0;
    const shades = LANES[this.app.theme];
    this.lanes.forEach((lane, row) => {
      const y = top + row * LANE;
      context.fillStyle = colours.muted;
      context.textAlign = 'right';
      context.fillText(fitText(context, lane.kind, GUTTER - 10), GUTTER - 7, y + LANE / 2);
      context.textAlign = 'left';
      let drawnTo = -1;
      const isLong = lane.ranges.length > MOST_BLENDED;
      lane.ranges.forEach((range, i) => {
        const x0 = Math.max(GUTTER, this.xOfMoment(range.born));
        const x1 = Math.min(this.right, this.xOfMoment(Math.min(range.died, this.device.moments - 1)));
        if (x1 < GUTTER || x0 > this.right || (isLong && x1 < drawnTo + 0.5)) return;
        // Several in one pixel blend by their parts of it; one alone is as wide as can be seen.
        const next = lane.ranges[i + 1];
        const isCrowded = x1 - x0 < 1.5 && !isLong && (x0 < drawnTo + 1 || (!!next && this.xOfMoment(next.born) < x0 + 1));
        drawnTo = x1;
        const phase = lane.kind === 'phase' ? PHASES.indexOf(range.name) : -1;
        context.fillStyle = shades[phase >= 0 ? phase : i % 2 ? 0 : 6]!;
        context.fillRect(x0, y + 1, isCrowded ? x1 - x0 : Math.max(1, x1 - x0 - 0.5), LANE - 2);
        if (x1 - x0 < 8) return;
        context.fillStyle = colours.ink;
        // Part of a number is another number: a step is named in full or not at all.
        const { short } = range;
        if (short === range.name) context.fillText(x1 - x0 < 24 ? '' : cutText(context, short, x1 - x0 - 8), x0 + 4, y + LANE / 2);
        else if (context.measureText(short).width + 4 <= x1 - x0) context.fillText(short, x0 + Math.min(4, (x1 - x0) / 4), y + LANE / 2);
      });
    });
  }

  /** The whole card, stacked: in each column the sample at which most is used, which holds until the next one. */
  private drawCard(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>): void {
    const { card } = this.device;
    if (!card) return;
    const { axis, theme } = this.app;
    const top = this.cardTop + 2;
    const height = CARD - 5;
    const bottom = top + height;
    const [from, to] = this.range;
    const [, end] = axis.span(this.device);
    const columns = Math.ceil(this.plotWidth);
    const perColumn = (to - from) / this.plotWidth;
    context.fillStyle = colours.muted;
    context.textAlign = 'right';
    context.fillText('card', GUTTER - 7, top + 6);
    if (card.head.total) context.fillText(size(card.head.total), GUTTER - 7, top + 20);
    let next = card.at(axis, this.device, from);
    for (let c = 0; c < columns; c++) {
      const place = from + c * perColumn;
      if (place > end) break;
      const first = Math.max(0, next);
      next = card.at(axis, this.device, place + perColumn);
      if (next < 0) continue;
      const i = card.most(Math.min(first, next), next + 1);
      let y = bottom;
      card.bytes.forEach((bytes, sort) => {
        const high = (bytes[i]! / card.top) * height;
        if (high <= 0) return;
        context.fillStyle = cardColour(theme, sort);
        context.fillRect(GUTTER + c, Math.max(top, y - high), 1, Math.min(high, y - top));
        y -= high;
      });
    }
    context.strokeStyle = colours.line;
    context.strokeRect(GUTTER - 0.5, top - 0.5, this.plotWidth + 1, height + 1);
  }

  /** Does the line jump so much from column to column that it would hide the picture? */
  private isDense(view: View): boolean {
    let jumps = 0;
    for (let c = 1; c < view.columns; c++)
      jumps += Math.abs(this.yOf(view.allocated[c]!) - this.yOf(view.allocated[c - 1]!));
    return jumps > view.columns * 8;
  }

  private drawLines(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, labels: Labels): void {
    const { view } = this;
    if (!view) return;
    const ratio = pixelRatio();
    const x = (c: number) => GUTTER + (this.firstColumn + c) / ratio;
    const line = (values: Float64Array, style: string, dash: number[], width: number, isDense = false) => {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.beginPath();
      for (let c = 0; c < view.columns; c++) {
        const y = this.yOf(values[c]!);
        // Where columns are far apart in time, what lies between them is no line.
        if (c && !isDense) context.lineTo(x(c), y);
        else context.moveTo(x(c), y);
        context.lineTo(x(c + 1), y);
      }
      context.stroke();
      context.setLineDash([]);
      context.lineWidth = 1;
    };
    if (this.app.visible(this.index).every((v) => v)) {
      if (this.app.devices[this.index]!.head.maxReserved) line(view.reserved, colours.muted, [5, 3], 1.25);
      context.globalAlpha = 0.75;
      line(view.allocated, colours.ink, [], 1, this.isDense(view));
      context.globalAlpha = 1;
      this.nameReserved(colours, view, labels);
    }
    if (this.matched) line(this.matched, colours.accent, [], 2);
    const { capacity } = this.app.head;
    if (capacity && !this.app.isHost(this.index)) {
      const y = Math.round(this.yOf(capacity)) + 0.5;
      context.strokeStyle = colours.alarm;
      context.setLineDash([8, 4]);
      context.beginPath();
      context.moveTo(GUTTER, y);
      context.lineTo(this.width, y);
      context.stroke();
      context.setLineDash([]);
      if (capacity < this.yMax && capacity > this.low) labels.add(`capacity ${size(capacity)}`, this.right, y + 9, colours.alarm, LIMIT);
    }
  }

  /** Says at the right what the dashed line is, where there is room above it, or at the top that it is higher. */
  private nameReserved(colours: ReturnType<typeof ink>, view: View, labels: Labels): void {
    if (!this.app.devices[this.index]!.head.maxReserved) return; // the file does not know it
    const reserved = view.reserved[view.columns - 1]!;
    const y = this.yOf(reserved);
    const right = this.firstColumn / pixelRatio() + GUTTER + view.columns / pixelRatio();
    if (reserved > this.yMax) return labels.add(`\u2191 reserved ${size(reserved)}`, right, this.lanesHeight + HEIGHT / 2, colours.muted, ASIDE);
    if (y < this.lanesHeight + 12 || y > this.lanesHeight + this.plotHeight || right - GUTTER < 120) return;
    labels.add(`reserved ${size(reserved)}`, right, y - 9, colours.muted, ASIDE);
  }

  /** Whether a box would lie on the picture, on the lines above it, or on a mark. */
  private hides([left, right, top, bottom]: Box): boolean {
    const { view, picture } = this;
    if (!view || !picture) return false;
    const ratio = pixelRatio();
    const from = Math.max(0, Math.floor((left - GUTTER) * ratio) - this.firstColumn - 1);
    const to = Math.min(view.columns, Math.ceil((right - GUTTER) * ratio) - this.firstColumn + 1);
    for (let c = from; c < to; c++) {
      if (this.yOf(view.allocated[c]!) <= bottom) return true;
      const lowest = Math.min(picture.height - 1, Math.floor((bottom - this.lanesHeight) * ratio));
      if (lowest >= 0 && picture.owner[lowest * picture.width + this.firstColumn + c]) return true; // also envelopes
      const [a, b] = [this.yOf(view.reserved[c]!), this.yOf(view.reserved[Math.max(from, c - 1)]!)];
      if (Math.min(a, b) <= bottom && Math.max(a, b) >= top) return true;
    }
    const isAcross = (moment: number, by: number) => this.xOfMoment(moment) >= left - by && this.xOfMoment(moment) <= right + by;
    const { peak, peakAllocated } = this.device.head;
    const tip = this.yOf(peakAllocated);
    return this.device.marks.some((mark) => isAcross(mark.moment, 2)) || (isAcross(peak, 4) && tip >= top && tip - 8 <= bottom);
  }

  private drawMarks(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, labels: Labels): void {
    const { device } = this;
    const top = this.lanesHeight;
    let labelled = -100;
    for (const mark of device.marks) {
      const x = this.xOfMoment(mark.moment);
      if (x < GUTTER || x > this.right) continue;
      const colour = mark.isOom ? colours.alarm : colours.muted;
      context.fillStyle = colour;
      context.fillRect(Math.round(x), top, mark.isOom ? 2 : 1, this.plotHeight);
      if (x - labelled < 110) continue;
      labelled = x;
      const text = mark.isOom ? `out of memory: ${size(mark.bytes)} asked for, ${size(mark.free)} free` : 'snapshot';
      labels.add(text, x, top + HEIGHT / 2, colour, MARK);
    }
    const x = this.xOfMoment(device.head.peak);
    const y = this.yOf(device.head.peakAllocated);
    if (x < GUTTER || x > this.right || y < top || y > top + this.plotHeight) return;
    const text = `${device.hasHistory ? 'peak' : 'allocated'} ${size(device.head.peakAllocated)}`;
    labels.add(text, x, y - HEIGHT / 2, colours.ink, PEAK);
    if (!device.hasHistory) return;
    context.fillStyle = colours.ink;
    context.beginPath();
    context.moveTo(x, y - 1);
    context.lineTo(x - 4, y - 8);
    context.lineTo(x + 4, y - 8);
    context.fill();
  }

  /** The shape under the pointer, and the one that is pinned. */
  private drawOwner(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, hit: Hit | null): void {
    const { pin } = this.app.state;
    if (pin && pin.track === this.index) this.fillOwner(context, this.drawn.indexOf(pin.allocation) + 1, colours.accent, 0.85);
    if (hit && hit.track === this.index && hit.allocation >= 0)
      this.fillOwner(context, hit.allocation + 1, colours.ink, 0.28);
  }

  private fillOwner(context: CanvasRenderingContext2D, owner: number, style: string, alpha: number): void {
    const { picture, view } = this;
    if (!picture || !view || owner <= 0) return;
    const ratio = pixelRatio();
    const a = owner - 1;
    context.fillStyle = style;
    context.globalAlpha = alpha;
    for (let c = 0; c < view.columns; c++) {
      const moment = view.moment[c]!;
      if (moment < this.drawn.born[a]! || moment >= this.drawn.died[a]!) continue;
      const column = this.firstColumn + c;
      let first = -1;
      let last = -1;
      for (let r = 0, at = column; r < picture.height; r++, at += picture.width) {
        if (picture.owner[at] === owner) {
          if (first < 0) first = r;
          last = r;
        } else if (first >= 0) {
          break;
        }
      }
      if (first < 0) continue;
      context.fillRect(GUTTER + column / ratio, this.lanesHeight + first / ratio, 1 / ratio, (last - first + 1) / ratio);
    }
    context.globalAlpha = 1;
  }

  private drawSelection(context: CanvasRenderingContext2D, colours: ReturnType<typeof ink>, hit: Hit | null): void {
    const { place, range, marks } = this.app.state;
    const verticalAt = (at: number, style: string, dash: number[], width = 1) => {
      const x = Math.round(at) + 0.5;
      if (x < GUTTER - 1 || x > this.right + 1) return -1;
      context.strokeStyle = style;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, this.height);
      context.stroke();
      context.setLineDash([]);
      context.lineWidth = 1;
      return x;
    };
    const vertical = (moment: number, style: string, dash: number[], width = 1) => verticalAt(this.xOfMoment(moment), style, dash, width);
    if (place.track === this.index) {
      if (range) {
        const x0 = Math.max(GUTTER, this.xOfMoment(range.from));
        const x1 = Math.min(this.right, this.xOfMoment(range.to));
        if (x1 >= x0) {
          context.fillStyle = colours.accent;
          context.globalAlpha = 0.14;
          context.fillRect(x0, 0, Math.max(1, x1 - x0), this.height);
          context.globalAlpha = 1;
          vertical(range.from, colours.accent, []);
          vertical(range.to, colours.accent, []);
        }
      }
      if (this.device.hasHistory) vertical(this.app.selection().moment, colours.accent, range ? [3, 3] : [], 1.5);
    } else if (this.app.axis.kind === 'time' && !this.app.devices[place.track]!.isStill) {
      // The same time on another device.
      const x = this.xOf(this.app.axis.x(this.app.devices[place.track]!, this.app.selection().moment));
      verticalAt(x, colours.accent, [1, 4]);
    }
    marks.forEach((mark, i) => {
      if (!mark || mark.track !== this.index) return;
      const x = vertical(mark.moment, colours.ink, [2, 2]);
      if (x < 0) return;
      context.fillStyle = colours.ink;
      const left = Math.min(x, this.width - 15);
      context.fillRect(left, this.height - 16, 15, 15);
      context.fillStyle = colours.paper;
      context.textAlign = 'center';
      context.fillText('AB'[i]!, left + 7.5, this.height - 8);
    });
    const pointed = hit && this.app.devices[hit.track]!;
    if (pointed && !pointed.isStill && (hit.track === this.index || this.app.axis.kind === 'time'))
      verticalAt(this.xOf(this.app.axis.x(pointed, hit.moment)), colours.muted, [1, 3]);
  }

  /** What is at a place of the track, in pixels from its upper left corner. */
  hit(x: number, y: number): Hit | null {
    if (x < GUTTER || x >= this.width || y < 0 || y > this.height) return null;
    const value = this.range[0] + ((x - GUTTER) / this.plotWidth) * (this.range[1] - this.range[0]);
    const moment = this.app.axis.moment(this.device, value);
    const hit: Hit = { track: this.index, device: this.drawn, moment, allocation: -1, isThin: false, group: -1, isKept: false, lane: null, sample: -1 };
    if (this.device.card && y >= this.cardTop && y < this.lanesHeight) {
      hit.sample = this.device.card.at(this.app.axis, this.device, value);
      return hit;
    }
    if (y < this.lanesHeight) {
      const row = Math.floor((y - (this.app.devices.length > 1 ? 16 : 0)) / LANE);
      const lane = this.lanes[row];
      const range = lane?.ranges.find((r) => r.born <= moment && r.died > moment);
      if (lane && range) hit.lane = { title: lane.kind + (range.isCertain ? '' : lane.kind === 'step' ? ', not whole' : ', inferred of its neighbours'), name: range.name, born: range.born, died: range.died };
      return hit;
    }
    const { picture, view } = this;
    const ratio = pixelRatio();
    const column = Math.floor((x - GUTTER) * ratio);
    const row = Math.floor((y - this.lanesHeight) * ratio);
    if (picture && row >= 0 && row < picture.height && column < picture.width) {
      const owner = picture.owner[row * picture.width + column]!;
      if (owner > 0) {
        hit.allocation = owner - 1;
        hit.isThin = this.drawn.requested(owner - 1) < this.bytesOf(1 / ratio);
      }
      if (owner < 0 && view) {
        hit.isKept = -owner > view.groups;
        hit.group = hit.isKept ? -owner - 1 - view.groups : -owner - 1;
      }
      const at = column - this.firstColumn;
      if (view && at >= 0 && at < view.columns) hit.moment = view.moment[at]!;
    }
    return hit;
  }

  /** The moments that the columns stand for, and what is allocated there; for tests. */
  columns(): { moments: number[]; allocated: number[] } {
    return { moments: [...(this.view?.moment ?? [])], allocated: [...(this.view?.allocated ?? [])] };
  }

  /** What is written over the picture, and the box that it must stay in; for tests. */
  labels(): { written: { text: string; box: Box; hides: boolean }[]; plot: Box } {
    return { written: this.written.map((label) => ({ ...label, hides: this.hides(label.box) })), plot: this.plotBox() };
  }

  /** A column of the picture, from the bottom: whose rows they are, and whether they are coloured; for tests. */
  column(c: number): { group: number; born: number; rows: number; isColoured: boolean }[] {
    const { picture, view, drawn } = this;
    const out: { owner: number; group: number; born: number; rows: number; isColoured: boolean }[] = [];
    if (!picture || !view) return out;
    const dim = new Set(this.app.colours(this.index).map((swatch) => swatch.dim));
    const { group } = this.app.grouping(this.index, drawn);
    for (let r = picture.height - 1; r >= 0; r--) {
      const at = r * picture.width + this.firstColumn + c;
      const owner = picture.owner[at]!;
      if (!owner) break;
      const isColoured = !dim.has(picture.pixels[at]!);
      const last = out[out.length - 1];
      if (last?.owner === owner && last.isColoured === isColoured) last.rows++;
      else out.push({ owner, group: owner > 0 ? group[owner - 1]! : -owner - 1, born: owner > 0 ? drawn.born[owner - 1]! : -1, rows: 1, isColoured });
    }
    return out;
  }

  /** What the lane of the whole card shows at a place in pixels: used, and by sort; for tests. */
  cardAt(x: number): { used: number; bytes: number[] } | null {
    const { card } = this.device;
    const value = this.range[0] + ((x - GUTTER) / this.plotWidth) * (this.range[1] - this.range[0]);
    const i = card ? card.at(this.app.axis, this.device, value) : -1;
    return card && i >= 0 ? { used: card.used[i]!, bytes: card.bytes.map((bytes) => bytes[i]!) } : null;
  }

  /** Where that lane is, in pixels of the track; for tests. */
  cardBox(): [number, number] | null {
    return this.device.card ? [this.cardTop, this.lanesHeight] : null;
  }

  /** What the search leaves of every column, in bytes, and the bytes of a row; for tests. */
  found(): { bytes: number[]; bytesPerRow: number } {
    return { bytes: [...(this.matched ?? [])], bytesPerRow: this.picture ? (this.yMax - this.low) / this.picture.height : 0 };
  }

  /** Where a moment is drawn, in pixels of the track; for tests. */
  placeOf(moment: number): number {
    return this.xOfMoment(moment);
  }

  /** What is told of what is drawn; for tests. */
  drawnHead(): HeadCut {
    return this.drawn.head;
  }

  /** The track in a sentence, for the reader's ears. */
  describe(): string {
    const { device } = this;
    return `${this.app.title(this.index)}: ${counted(device.head.events, 'event')}, ${device.hasHistory ? 'peak ' : ''}${size(device.head.peakAllocated)} allocated, ${size(device.head.maxReserved)} reserved at most${device.card ? `, ${size(device.card.head.most)} of the whole card used at most` : ''}`;
  }
}
