// Buttons of which one is pressed.

import { h } from './dom.ts';

/** Buttons of which one is pressed. */
export class Choice {
  readonly element: HTMLElement;
  private readonly buttons: Map<string, HTMLButtonElement>;

  constructor(label: string, words: [key: string, text: string, title: string][], choose: (key: string) => void) {
    this.buttons = new Map(words.map(([key, text, title]) => [key, h('button', { type: 'button', title, onclick: () => choose(key) }, text)]));
    this.element = h('span', { class: 'segmented', role: 'group', 'aria-label': label }, ...this.buttons.values());
  }

  show(key: string): void {
    for (const [k, button] of this.buttons) button.setAttribute('aria-pressed', String(k === key));
  }

  disable(key: string): void {
    this.buttons.get(key)!.disabled = true;
  }
}
