// What belongs to an earlier question is dimmed when the next answer takes long, with a way to cancel that.

import { h } from '../src/dom.ts';

const STALE_MS = 200;

export class Stale {
  #timer = 0;
  readonly #busy: HTMLElement;

  constructor(private readonly place: HTMLElement, label: string, cancel: () => void) {
    this.#busy = h('p', { class: 'fields busy', hidden: true }, h('progress', { 'aria-label': label }), h('span', { class: 'muted' }, label),
      h('button', { type: 'button', onclick: cancel }, 'Cancel'));
    this.element = h('div', {}, this.#busy, place);
  }

  // The place, below what says that it is being computed.
  readonly element: HTMLElement;

  start(): void {
    this.#timer ||= window.setTimeout(() => this.#show(true), STALE_MS);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#show(false);
  }

  // Nothing is under way any more, and there is no answer yet.
  hold(): void {
    this.end();
    this.#show(true);
    this.#busy.hidden = true;
  }

  #show(isStale: boolean): void {
    this.#busy.hidden = !isStale;
    this.place.classList.toggle('is-stale', isStale);
    if (isStale) this.place.setAttribute('aria-busy', 'true');
    else this.place.removeAttribute('aria-busy');
    // What they would do, they would do to another question.
    for (const one of this.place.querySelectorAll('button')) one.disabled = isStale;
  }
}
