// Texts to take along, each behind a button: shown, and put on the clipboard.

import { copy, h, replace } from '../src/dom.ts';

export interface Copied {
  title: string;
  // What takes a run has no text if that was cancelled.
  text(): Promise<string | undefined> | string | undefined;
  // What the text lacks.
  note?(): string;
}

export class Copies {
  readonly element: HTMLElement;
  readonly #buttons = h('p', { class: 'fields' });
  readonly #said = h('p', { class: 'said muted', hidden: true });
  readonly #shown: HTMLPreElement;
  #copies: Copied[] = [];
  // Texts that were computed, or are being, until the question is another.
  #texts = new Map<string, Promise<string | undefined>>();
  // Of the button that was pressed last: what comes for an earlier one is not shown.
  #asked = 0;

  constructor(id: string, private readonly announce: (line: string) => void, private readonly cancel: () => void) {
    this.#shown = h('pre', { id, tabindex: '0', hidden: true });
    this.element = h('div', { class: 'copies' }, this.#buttons, this.#said, this.#shown);
  }

  // Buttons that are there already stay: somebody may be pressing one.
  offer(copies: Copied[]): void {
    const isSame = copies.map(({ title }) => title).join('\n') === this.#copies.map(({ title }) => title).join('\n');
    this.#copies = copies;
    if (isSame) return;
    replace(this.#buttons, ...copies.map(({ title }) => h('button', { type: 'button', onclick: () => void this.#take(title) }, title)));
  }

  // Forget the texts, which belong to another question.
  reset(): void {
    this.#asked++;
    this.#texts.clear();
    this.#shown.hidden = this.#said.hidden = true;
    replace(this.#shown);
  }

  #say(...what: (string | Node)[]): void {
    replace(this.#said, ...what);
    this.#said.hidden = what.length === 0;
  }

  async #take(title: string): Promise<void> {
    const mine = ++this.#asked;
    const one = this.#copies.find((other) => other.title === title)!;
    this.#say('Computing ... ', h('button', { type: 'button', onclick: this.cancel }, 'Cancel'));
    const coming = this.#texts.get(title) ?? Promise.resolve(one.text());
    this.#texts.set(title, coming);
    const text = await coming;
    if (text === undefined && this.#texts.get(title) === coming) this.#texts.delete(title);
    if (mine !== this.#asked) return;
    if (text === undefined) {
      this.#say(`${title}: cancelled`);
      return;
    }
    this.#shown.hidden = false;
    this.#shown.setAttribute('aria-label', title);
    replace(this.#shown, text);
    const isCopied = await copy(text);
    if (mine !== this.#asked) return;
    const line = `${title}: ${isCopied ? 'copied' : 'below'}`;
    const note = one.note?.();
    this.#say(note ? `${line}. ${note}` : line);
    this.announce(line);
  }
}
