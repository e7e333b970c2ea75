// Tab 2: what the chosen moment or range holds, as a flame graph: the program's entry on top, what
// it called below, as wide as the bytes below it; or inverted, what allocated on top, and its callers below.
//
// With "your code", memory that no frame of the program or a library allocated is one box, and in it what lists call
// its stacks.

import type { App } from './app.ts';
import { cutText, fitCanvas, h, replace } from './dom.ts';
import { count, exact, percent, size } from './format.ts';
import { LIBRARY, unnamed } from './names.ts';
import { ink } from './theme.ts';
import { facts, type Tooltip } from './tooltip.ts';

const ROW = 19;

interface Node {
  frame: number; // -1: the root, -2: no stack, -3: none as it is from before the recording, -5: the rest, -4: no code of the program, -10 - i: the i-th label
  bytes: number;
  blocks: number;
  group: Map<number, number>; // bytes by group
  children: Map<number, Node>;
  parent: Node | null;
  depth: number;
}

interface Box {
  node: Node;
  x: number;
  y: number;
  width: number;
}

function make(frame: number, parent: Node | null): Node {
  return { frame, bytes: 0, blocks: 0, group: new Map(), children: new Map(), parent, depth: parent ? parent.depth + 1 : 0 };
}

export class Flame {
  readonly element: HTMLElement;
  private readonly canvas = h('canvas', { tabindex: 0, role: 'img' });
  private readonly bar = h('div', { class: 'tab-bar' });
  private readonly ring = h('div', { class: 'flame-ring', hidden: true }); // around what the pointer is on
  private readonly tip = h('div', { class: 'flame-tip muted', 'aria-live': 'polite' });
  private root: Node = make(-1, null);
  private zoomed: Node = this.root;
  private focus: Node = this.root;
  private boxes: Box[] = [];
  private labels: string[] = [];

  constructor(
    private readonly app: App,
    private readonly tooltip: Tooltip,
  ) {
    this.element = h('div', { class: 'flame' }, this.bar, h('div', { class: 'flame-picture' }, this.canvas, this.ring));
    this.canvas.addEventListener('pointermove', (e) => this.hover(e));
    this.canvas.addEventListener('pointerleave', () => this.point(null, null));
    this.canvas.addEventListener('click', (e) => {
      const box = this.at(e);
      if (box) this.zoom(box.node === this.zoomed ? (box.node.parent ?? box.node) : box.node);
    });
    this.canvas.addEventListener('keydown', (e) => this.key(e));
    new ResizeObserver(() => this.paint()).observe(this.element);
  }

  draw(): void {
    this.build();
    this.drawBar();
    this.paint();
  }

  private drawBar(): void {
    const { app } = this;
    replace(
      this.bar,
      h('span', { class: 'segmented', role: 'group', 'aria-label': 'Frames' },
        h('button', { type: 'button', 'aria-pressed': String(!app.state.allFrames), onclick: () => app.store.set({ allFrames: false }) }, 'your code'),
        h('button', { type: 'button', 'aria-pressed': String(app.state.allFrames), onclick: () => app.store.set({ allFrames: true }) }, 'all frames')),
      h('button', { type: 'button', 'aria-pressed': String(app.state.isInverted), title: 'what allocated on top, and below it what called that', onclick: () => app.store.set({ isInverted: !app.state.isInverted }) }, 'inverted'),
      h('button', { type: 'button', onclick: () => this.zoom(this.root) }, 'whole'),
      this.tip,
    );
  }

  private add(path: number[], bytes: number, blocks: number, group: number): void {
    let node = this.root;
    const count = (n: Node) => {
      n.bytes += bytes;
      n.blocks += blocks;
      n.group.set(group, (n.group.get(group) ?? 0) + bytes);
    };
    count(node);
    for (const frame of path) {
      let child = node.children.get(frame);
      if (!child) node.children.set(frame, (child = make(frame, node)));
      count((node = child));
    }
  }

  private build(): void {
    const { app } = this;
    const { device, grouping, ids, rest } = app.selection();
    this.labels = [];
    this.root = this.zoomed = this.focus = make(-1, null);
    const kinds = new Map<number, { bytes: number; blocks: number; node: number; group: number }>();
    for (const a of ids) {
      const isOlder = device.isOlder(a);
      const key = (isOlder ? -2 : device.node(a)) * 64 + grouping.group[a]!;
      let kind = kinds.get(key);
      if (!kind) kinds.set(key, (kind = { bytes: 0, blocks: 0, node: isOlder ? -2 : device.node(a), group: grouping.group[a]! }));
      kind.bytes += device.requested(a);
      kind.blocks++;
    }
    for (const kind of kinds.values()) {
      const path = kind.node < 0 ? [kind.node - 1] : this.path(kind.node);
      this.add(app.state.isInverted ? path.toReversed() : path, kind.bytes, kind.blocks, kind.group);
    }
    rest?.forEach((bytes, g) => bytes > 0 && this.add([-5], bytes, 0, g));
  }

  /** What is shown of a stack, outermost first. */
  private path(node: number): number[] {
    const { names, state } = this.app;
    if (state.allFrames) return names.frames(node);
    const own = names.own(node);
    if (own.some((f) => names.frameOrigin[f]! <= LIBRARY)) return own;
    const label = names.label(node);
    let at = this.labels.indexOf(label);
    if (at < 0) at = this.labels.push(label) - 1;
    return [-4, -10 - at];
  }

  private title(node: Node): string {
    const { names } = this.app;
    if (node.frame <= -10) return this.labels[-10 - node.frame]!;
    if (node.frame === -4) return '(not called by your code: the engine)';
    if (node.frame === -1) return 'all';
    if (node.frame === -2 || node.frame === -3) return unnamed(node.frame === -3);
    if (node.frame === -5) return '(smaller blocks)';
    return `${names.brief(node.frame)}  ${names.place(node.frame)}`.trim();
  }

  private depthBelow(node: Node): number {
    let most = 0;
    const visit = (n: Node, depth: number) => {
      if (depth > most) most = depth;
      for (const child of n.children.values()) visit(child, depth + 1);
    };
    visit(node, 0);
    return most;
  }

  private paint(): void {
    const width = Math.max(50, this.element.clientWidth - 2);
    const above: Node[] = [];
    for (let n = this.zoomed.parent; n; n = n.parent) above.unshift(n);
    const rows = above.length + this.depthBelow(this.zoomed) + 1;
    const context = fitCanvas(this.canvas, width, rows * ROW + 2);
    const colours = ink();
    const swatches = this.app.colours(this.app.selection().track);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.boxes = [];
    const box = (node: Node, x: number, y: number, w: number, faded: boolean) => {
      this.boxes.push({ node, x, y, width: w });
      let best = -1;
      for (const [g, bytes] of node.group) if (best < 0 || bytes > node.group.get(best)!) best = g;
      context.globalAlpha = faded ? 0.25 : node.group.size > 1 && node.group.get(best)! < node.bytes * 0.9 ? 0.3 : 0.55;
      context.fillStyle = best < 0 ? colours.line : swatches[best]!.css;
      context.fillRect(x, y, Math.max(0.5, w - 1), ROW - 1);
      context.globalAlpha = 1;
      if (node === this.focus) {
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, Math.max(1, w - 3), ROW - 3);
        context.lineWidth = 1;
      }
      if (w < 30) return;
      context.fillStyle = colours.ink;
      const title = this.title(node);
      const full = `${title}  ${size(node.bytes)}`;
      const fits = context.measureText(full).width <= w - 8;
      context.fillText(fits ? full : cutText(context, title, w - 8), x + 4, y + ROW / 2);
    };
    above.forEach((n, i) => box(n, 0, i * ROW, width, true));
    const visit = (node: Node, x: number, row: number, w: number) => {
      box(node, x, row * ROW, w, false);
      let at = x;
      for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
        const part = node.bytes ? (child.bytes / node.bytes) * w : 0;
        if (part >= 0.4) visit(child, at, row + 1, part);
        at += part;
      }
    };
    visit(this.zoomed, 0, above.length, width);
    this.canvas.setAttribute('aria-label', `Flame graph of ${size(this.root.bytes)}. Arrow keys walk, Enter zooms. At ${this.say(this.focus)}`);
  }

  /** Depth, title and bytes of every box; for tests. */
  shown(): [number, string, number][] {
    return this.boxes.map(({ node }) => [node.depth, this.title(node), node.bytes]);
  }

  private say(node: Node): string {
    return `${this.title(node)}: ${exact(node.bytes)}, ${percent(node.bytes, this.root.bytes)}, ${count(node.blocks)} blocks`;
  }

  private at(e: MouseEvent): Box | undefined {
    const rect = this.canvas.getBoundingClientRect();
    const [x, y] = [e.clientX - rect.left, e.clientY - rect.top];
    return this.boxes.find((b) => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + ROW);
  }

  private hover(e: PointerEvent): void {
    const box = this.at(e) ?? null;
    this.tip.textContent = box ? this.say(box.node) : '';
    this.canvas.style.cursor = box ? 'pointer' : 'default';
    this.point(box, e);
  }

  /** Tell of a box beside the pointer, and frame it. */
  private point(box: Box | null, e: PointerEvent | null): void {
    this.ring.hidden = !box;
    if (!box) return this.tooltip.say(null);
    const { style } = this.ring;
    [style.left, style.top, style.width, style.height] = [box.x, box.y, Math.max(2, box.width - 1), ROW - 1].map((n) => `${n}px`) as [string, string, string, string];
    const { node } = box;
    const { names } = this.app;
    const rows: [string, string][] = [['bytes', exact(node.bytes)], ['of all', percent(node.bytes, this.root.bytes)]];
    if (node.parent && node.parent !== this.root) rows.push([this.app.state.isInverted ? 'of what it called' : 'of its caller', percent(node.bytes, node.parent.bytes)]);
    rows.push(['blocks', count(node.blocks)]);
    if (node.frame >= 0) rows.push(['file', names.path(node.frame)]);
    const { grouping } = this.app.selection();
    const parts = [...node.group].sort((a, b) => b[1] - a[1]).slice(0, 3);
    rows.push([grouping.title, parts.map(([g, bytes]) => `${grouping.names[g]!} ${size(bytes)}`).join(', ') + (node.group.size > 3 ? ' ...' : '')]);
    this.tooltip.say(e, h('strong', {}, this.title(node)), facts(rows));
  }

  private zoom(node: Node): void {
    this.zoomed = this.focus = node;
    this.tip.textContent = this.say(node);
    this.paint();
  }

  private key(e: KeyboardEvent): void {
    const sorted = (n: Node) => [...n.children.values()].sort((a, b) => b.bytes - a.bytes);
    const siblings = this.focus.parent ? sorted(this.focus.parent) : [this.focus];
    const at = siblings.indexOf(this.focus);
    let next: Node | undefined;
    if (e.key === 'ArrowDown') next = sorted(this.focus)[0];
    else if (e.key === 'ArrowUp') next = this.focus.parent ?? undefined;
    else if (e.key === 'ArrowRight') next = siblings[at + 1];
    else if (e.key === 'ArrowLeft') next = siblings[at - 1];
    else if (e.key === 'Enter') return void (this.zoom(this.focus), e.preventDefault());
    else return;
    e.preventDefault();
    e.stopPropagation();
    if (!next) return;
    this.focus = next;
    this.tip.textContent = this.say(next);
    this.paint();
  }
}
