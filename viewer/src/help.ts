// What the keys do.

import { h } from './dom.ts';
import type { Key } from './keys.ts';

export class Help {
  readonly element = h('dialog', { class: 'help', 'aria-label': 'Keys' });

  fill(table: Key[]): void {
    const rows = table.filter((k) => k.help).flatMap((k) => [
      h('dt', {}, ...k.shown.split(' ').map((s) => h('kbd', {}, s))),
      h('dd', {}, k.help),
    ]);
    this.element.append(
      h('h2', {}, 'Keys'),
      h('dl', {}, ...rows),
      h('p', {}, 'Drag over the timeline to choose a range, click for a moment and the block under it; Shift and drag moves, the wheel zooms, Shift and wheel stretches the height around the pointer, a double click shows everything. In the legend, a click shows one group alone.'),
      h('p', { class: 'muted' }, 'Colours are bytes asked for; the thin line above them is what the allocator gave (memory_allocated()), the dashed one what it had reserved. Where a pixel spans many events the column is the highest of them, and pale above the lowest. The address of this page holds the view: copy it to send what you see.'),
      h('button', { type: 'button', onclick: () => this.element.close() }, 'close'));
  }

  toggle(): void {
    if (this.element.open) this.element.close();
    else this.element.showModal();
  }

  close(): boolean {
    const was = this.element.open;
    this.element.close();
    return was;
  }
}
