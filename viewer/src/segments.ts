// Tab 3: segments and the blocks in them at the chosen moment. One box per segment, as long as it is
// large; blocks in the colours of the timeline, free memory is empty. Of expandable memory each range
// that is mapped without a gap is one segment (the page's data has it so), so a block that spans
// several mappings lies in one box.

import type { App } from './app.ts';
import type { Device, Span } from './device.ts';
import { fitCanvas, h, replace } from './dom.ts';
import { count, exact, hex, percent, size } from './format.ts';
import type { State } from './state.ts';
import { ink } from './theme.ts';
import { blockFacts, facts } from './tooltip.ts';

const ROW = 16;
const GAP = 5;
const MOST_HEIGHT = 12000;
const TAIL = 1 << 20; // a rest behind a block that PyTorch does not split off

interface Box {
  span: Span;
  x: number;
  y: number;
  width: number;
  blocks: number[];
}

interface Waste {
  lost: number;
  inUsed: number;
  whole: number;
  largest: number;
}

/** A pool of blocks: an id, a size class, and whether it is expandable. */
const poolOf = ({ span }: Box) => `${span.pool}, ${span.isLarge ? 'large' : 'small'}${span.isExpandable ? ', expandable' : ''}`;

interface PoolSums {
  reserved: number;
  free: number;
}

/** What of a segment holds nothing: the rules are those of `tessera at`. */
function wasteIn(device: Device, { span, blocks }: Box): Waste {
  const { at, bytes } = span;
  if (!blocks.length) return { lost: 0, inUsed: 0, whole: bytes, largest: bytes };
  const waste = { lost: 0, inUsed: 0, whole: 0, largest: 0 };
  const keepsTails = span.isLarge && !span.isExpandable;
  let end = at;
  const gap = (to: number) => {
    if (to <= end) return;
    if (keepsTails && end > at && to - end <= TAIL) {
      waste.lost += to - end;
      return;
    }
    waste.inUsed += to - end;
    waste.largest = Math.max(waste.largest, to - end);
  };
  for (const a of blocks) {
    gap(Number(device.address(a)));
    end = Math.max(end, Number(device.address(a)) + device.block(a));
  }
  gap(at + bytes);
  return waste;
}

export class Segments {
  readonly element: HTMLElement;
  private readonly canvas = h('canvas', { role: 'img', tabindex: 0 });
  private readonly bar = h('div', { class: 'tab-bar' });
  private readonly tip = h('div', { class: 'segment-tip muted' });
  private readonly scroller: HTMLElement;
  private boxes: Box[] = [];
  private hovered = -1;

  constructor(private readonly app: App) {
    this.scroller = h('div', { class: 'segments-map' }, this.canvas);
    this.element = h('div', { class: 'segments' }, this.bar, this.tip, this.scroller);
    this.canvas.addEventListener('pointermove', (e) => this.hover(e));
    this.canvas.addEventListener('pointerleave', () => this.setHover(-1, null));
    this.canvas.addEventListener('click', () => {
      this.app.store.set({ pin: this.pinOf(this.hovered) });
    });
    this.canvas.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.paint()).observe(this.element);
  }

  draw(): void {
    const { device, moment } = this.app.selection();
    this.lay(device, moment);
    this.drawBar(device, moment);
    this.paint();
  }

  private lay(device: Device, moment: number): void {
    const live = device.live(moment).sort((a, b) => device.addressId[a]! - device.addressId[b]!);
    const spans = device.spans.filter((s) => s.born <= moment && s.died > moment);
    spans.sort((a, b) => a.at - b.at);
    let at = 0;
    this.boxes = spans.map((span) => {
      const blocks: number[] = [];
      while (at < live.length && Number(device.address(live[at]!)) < span.at) at++;
      for (; at < live.length && Number(device.address(live[at]!)) < span.at + span.bytes; at++) blocks.push(live[at]!);
      return { span, x: 0, y: 0, width: 0, blocks };
    });
    const pool = (b: Box) => `${b.span.pool}${b.span.isLarge ? 0 : 1}`;
    this.boxes.sort((a, b) => pool(a).localeCompare(pool(b)) || b.span.bytes - a.span.bytes || a.span.at - b.span.at);
  }

  /** Reserved memory that holds nothing, by cause. */
  waste(): Waste {
    const { device, moment } = this.app.selection();
    const waste = { lost: 0, inUsed: 0, whole: 0, largest: 0 };
    // Of all blocks, those included that lie outside the segments that the file has.
    for (const a of device.live(moment)) waste.lost += Math.max(0, device.block(a) - device.requested(a));
    for (const box of this.boxes) {
      const one = wasteIn(device, box);
      waste.lost += one.lost;
      waste.inUsed += one.inUsed;
      waste.whole += one.whole;
      waste.largest = Math.max(waste.largest, one.largest);
    }
    return waste;
  }

  /** What each pool holds at the moment, by its name. */
  pools(): Map<string, PoolSums> {
    const { device } = this.app.selection();
    const sums = new Map<string, PoolSums>();
    for (const box of this.boxes) {
      const waste = wasteIn(device, box);
      const before = sums.get(poolOf(box)) ?? { reserved: 0, free: 0 };
      sums.set(poolOf(box), { reserved: before.reserved + box.span.bytes, free: before.free + waste.inUsed + waste.whole });
    }
    return sums;
  }

  private drawBar(device: Device, moment: number): void {
    const waste = this.waste();
    const reserved = device.reservedAt(moment);
    const figure = (name: string, bytes: number) =>
      h('span', { class: 'figure', title: exact(bytes) }, h('b', {}, size(bytes)), ` ${name}, ${percent(bytes, reserved)}`);
    replace(
      this.bar,
      h('span', { class: 'figure' }, h('b', {}, count(this.boxes.length)), ' segments'),
      figure('free, in segments in use', waste.inUsed),
      figure('free, whole segments', waste.whole),
      figure('lost to rounding and tails', waste.lost),
      h('span', { class: 'figure' }, h('b', {}, size(waste.largest)), ' largest free block'),
      device.hasRest && h('span', { class: 'muted' }, 'smaller blocks are not drawn: what looks free may hold some'),
    );
    if (!this.boxes.length) this.tip.textContent = 'There are no segments at this moment.';
    else this.tip.textContent = 'Point at a block; click pins it in the timeline.';
  }

  /** What is drawn, in pixels of the canvas's box and in bytes; for tests. */
  drawn(): { x: number; y: number; width: number; bytes: number; isExpandable: boolean; blocks: number; used: number }[] {
    const { device } = this.app.selection();
    return this.boxes.map(({ span, x, y, width, blocks }) => ({
      x, y: y + ROW / 2, width, bytes: span.bytes, isExpandable: span.isExpandable,
      blocks: blocks.length, used: blocks.reduce((sum, a) => sum + device.block(a), 0),
    }));
  }

  private place(width: number): number {
    const most = Math.max(1, ...this.boxes.map((b) => b.span.bytes));
    const total = this.boxes.reduce((sum, b) => sum + b.span.bytes, 0);
    // The largest segment fills a row, unless that would take too many rows.
    const scale = Math.min(width / most, (width * 140) / Math.max(1, total));
    let [x, y, pool] = [0, 0, ''];
    for (const box of this.boxes) {
      box.width = Math.max(4, Math.min(width, box.span.bytes * scale));
      const name = poolOf(box);
      if (name !== pool) {
        y += pool ? ROW + GAP + 22 : 20;
        x = 0;
        pool = name;
      } else if (x + box.width > width) {
        x = 0;
        y += ROW + GAP;
      }
      box.x = x;
      box.y = y;
      x += box.width + 3;
    }
    return y + ROW + GAP;
  }

  private paint(): void {
    const width = Math.max(50, this.scroller.clientWidth - 4);
    const height = this.boxes.length ? this.place(width) : 10;
    const context = fitCanvas(this.canvas, width, Math.min(MOST_HEIGHT, height));
    const colours = ink();
    const { device, grouping, track } = this.app.selection();
    const swatches = this.app.colours(track);
    const visible = this.app.visible(track);
    const matches = this.app.matches(device);
    const { pin } = this.app.state;
    const sums = this.pools();
    let pool = '';
    context.font = '11px system-ui, sans-serif';
    for (const box of this.boxes) {
      const name = poolOf(box);
      if (name !== pool) {
        pool = name;
        const { reserved, free } = sums.get(name)!;
        context.fillStyle = colours.muted;
        context.fillText(`${name}: ${size(reserved)} reserved, ${size(free)} of it free`, 0, box.y - 6);
      }
      context.fillStyle = colours.raised;
      context.fillRect(box.x, box.y, box.width, ROW);
      context.strokeStyle = colours.line;
      context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, ROW - 1);
      const scale = box.width / box.span.bytes;
      for (const a of box.blocks) {
        const g = grouping.group[a]!;
        const seen = visible[g] && (!matches || matches[a]);
        const x = box.x + (Number(device.address(a)) - box.span.at) * scale;
        const w = Math.min(device.block(a) * scale, box.x + box.width - x);
        const isPinned = pin?.track === track && pin.allocation === device.row(a);
        context.globalAlpha = seen ? 1 : 0.18;
        context.fillStyle = isPinned ? colours.accent : swatches[g]!.css;
        context.fillRect(x, box.y + 1, Math.max(0.6, w > 3 ? w - 0.6 : w), ROW - 2);
        context.globalAlpha = 1;
        if (isPinned || a === this.hovered) {
          context.strokeStyle = colours.ink;
          context.strokeRect(x, box.y + 0.5, Math.max(2, w), ROW - 1);
        }
      }
    }
    this.canvas.setAttribute('aria-label', `${count(this.boxes.length)} segments. Arrow keys walk from block to block, Enter pins.`);
  }

  private pinOf(a: number): State['pin'] {
    const { device, track } = this.app.selection();
    return a < 0 ? null : { track, allocation: device.row(a), born: device.born[a]! };
  }

  private setHover(a: number, box: Box | null): void {
    const { device } = this.app.selection();
    if (a !== this.hovered) {
      this.hovered = a;
      this.paint();
    }
    this.canvas.style.cursor = a >= 0 ? 'pointer' : 'default';
    if (a >= 0) replace(this.tip, facts(blockFacts(this.app, device, a)));
    else if (box) this.tip.textContent = `segment ${hex(box.span.address)}, ${exact(box.span.bytes)}, ${count(box.blocks.length)} ${box.blocks.length === 1 ? 'block holds' : 'blocks hold'} ${exact(box.blocks.reduce((s, b) => s + device.block(b), 0))}`;
    else this.tip.textContent = '';
  }

  private hover(e: PointerEvent): void {
    const rect = this.canvas.getBoundingClientRect();
    const [x, y] = [e.clientX - rect.left, e.clientY - rect.top];
    const box = this.boxes.find((b) => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + ROW) ?? null;
    let found = -1;
    if (box) {
      const { device } = this.app.selection();
      const scale = box.width / box.span.bytes;
      const at = box.span.at + (x - box.x) / scale;
      const slack = 1 / scale;
      for (const a of box.blocks) {
        const start = Number(device.address(a));
        if (at >= start && at < start + Math.max(device.block(a), slack)) found = a;
      }
    }
    this.setHover(found, box);
  }

  private key(e: KeyboardEvent): void {
    const all = this.boxes.flatMap((b) => b.blocks);
    const at = all.indexOf(this.hovered);
    if (e.key === 'ArrowRight' || e.key === 'ArrowDown') this.setHover(all[Math.min(all.length - 1, at + 1)] ?? -1, null);
    else if (e.key === 'ArrowLeft' || e.key === 'ArrowUp') this.setHover(all[Math.max(0, at - 1)] ?? -1, null);
    else if (e.key === 'Enter' && this.hovered >= 0) this.app.store.set({ pin: this.pinOf(this.hovered) });
    else return;
    e.preventDefault();
    e.stopPropagation();
  }
}
