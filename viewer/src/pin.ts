// The pinned block: everything that is known of it, beside the tabs.

import type { App } from './app.ts';
import { h, replace } from './dom.ts';
import { hex, size } from './format.ts';
import { copyButton, stackView } from './stackview.ts';
import { blockFacts, facts } from './tooltip.ts';

export class Pin {
  readonly element = h('aside', { class: 'pin', 'aria-label': 'Pinned block', hidden: true });

  constructor(private readonly app: App) {}

  draw(): void {
    const { app } = this;
    const { pin } = app.state;
    this.element.hidden = !pin;
    if (!pin) return;
    const found = app.find(pin.track, pin.allocation);
    if (!found) {
      app.deviceFor(pin.track, pin.born); // asks for it
      replace(this.element, h('p', { class: 'muted' }, app.isWaiting ? 'looking for the block ...' : 'The page does not tell this block.'));
      return;
    }
    const { device, a } = found;
    replace(
      this.element,
      h('div', { class: 'pin-head' },
        h('strong', {}, size(device.requested(a))),
        h('span', { class: 'muted' }, 'pinned block'),
        h('button', { type: 'button', 'aria-label': 'Let go of the block', onclick: () => app.store.set({ pin: null }) }, '×')),
      facts(blockFacts(app, device, a)),
      h('div', { class: 'buttons' },
        h('button', { type: 'button', onclick: () => app.store.set({ place: { track: pin.track, moment: device.born[a]! }, range: null }) }, 'to its birth'),
        h('button', { type: 'button', disabled: device.died[a]! >= device.moments, onclick: () => app.store.set({ place: { track: pin.track, moment: Math.min(device.moments - 1, device.died[a]!) }, range: null }) }, 'to its end'),
        copyButton('copy address', () => hex(device.address(a)))),
      stackView(app, device.node(a)),
    );
  }
}
