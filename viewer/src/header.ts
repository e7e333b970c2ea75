// The top line: which file, search, grouping, layout, axis, theme, help.

import type { App } from './app.ts';
import { Axis } from './axis.ts';
import { h } from './dom.ts';
import { groupingsOf } from './groupings.ts';
import { count, size } from './format.ts';

export class Header {
  readonly element: HTMLElement;
  readonly search: HTMLInputElement;
  private readonly by: HTMLSelectElement;
  private readonly layout: HTMLButtonElement;
  private readonly axis: HTMLButtonElement;
  private readonly theme: HTMLButtonElement;
  private timer = 0;

  constructor(
    private readonly app: App,
    help: () => void,
  ) {
    const { store } = app;
    this.search = h('input', { type: 'search', id: 'search', placeholder: 'Search functions, files, 0x addresses  ( / )', 'aria-label': 'Search', spellcheck: 'false', autocomplete: 'off' });
    this.search.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => store.set({ search: this.search.value }), 120);
    });
    this.by = h('select', { id: 'by', 'aria-label': 'Colour by', onchange: () => store.set({ by: this.by.value, only: [] }) });
    for (const g of groupingsOf(app.devices[0]!)) this.by.append(h('option', { value: g.key }, `by ${g.title}`));
    this.layout = h('button', { type: 'button', onclick: () => store.set({ layout: app.state.layout === 'grouped' ? 'bands' : 'grouped' }) });
    this.axis = h('button', { type: 'button', onclick: () => store.set({ axis: app.state.axis === 'event' ? 'time' : 'event', view: null }) });
    this.axis.disabled = !Axis.canBeTime(app.devices);
    if (this.axis.disabled) this.axis.title = 'this file has no times';
    this.theme = h('button', { type: 'button', 'aria-label': 'Light or dark', title: 'light or dark', onclick: () => store.set({ theme: app.theme === 'light' ? 'dark' : 'light' }) }, '◐');
    this.element = h('header', {},
      h('h1', {}, 'tessera'),
      h('div', { class: 'file' }, ...this.title()),
      this.search, this.by, this.layout, this.axis, this.theme,
      h('button', { type: 'button', 'aria-label': 'Help', title: 'keys (?)', onclick: help }, '?'));
  }

  private title(): HTMLElement[] {
    const { head, devices } = this.app;
    const several = head.inputs.length > 1;
    const input = head.inputs[0]!;
    const events = devices.reduce((sum, d) => sum + d.head.events, 0);
    const name = several ? `${head.inputs.length} files` : devices[0]!.label.replace(/^.*[\\/]/, '');
    const title = several ? devices.map((d) => d.label).join('\n') : devices[0]!.label;
    const warnings = [...head.inputs.flatMap((i) => i.warnings), ...devices.flatMap((d) => d.head.warnings)];
    const parts = [h('strong', { title }, name), h('span', { class: 'muted' }, `${several ? '' : `${size(input.bytes)}, `}${count(events)} events`)];
    if (warnings.length)
      parts.push(h('details', { class: 'warnings' }, h('summary', {}, `${warnings.length} ${warnings.length === 1 ? 'note' : 'notes'}`),
        h('ul', {}, ...warnings.map((w) => h('li', {}, `${w.code} (${count(w.count)}): ${w.message}`)))));
    return parts;
  }

  draw(): void {
    const { state } = this.app;
    if (document.activeElement !== this.search) this.search.value = state.search;
    this.by.value = this.app.grouping(state.place.track).key;
    this.layout.textContent = state.layout === 'grouped' ? 'stacked' : 'in order';
    this.layout.title = state.layout === 'grouped' ? 'stacked group upon group; press for blocks in the order they were made (B)' : 'blocks in the order they were made; press to stack by group (B)';
    this.axis.textContent = state.axis === 'event' ? 'events' : 'time';
    if (!this.axis.disabled) this.axis.title = `axis of ${state.axis === 'event' ? 'events' : 'time'}; press to change (T)`;
  }
}
