// The top line: which file, search, grouping, layout, axis, theme, help.

import type { App } from './app.ts';
import { Axis } from './axis.ts';
import { Choice } from './choice.ts';
import { h } from './dom.ts';
import { groupingsOf } from './groupings.ts';
import { count, counted, size } from './format.ts';

export class Header {
  readonly element: HTMLElement;
  readonly search: HTMLInputElement;
  private readonly by: HTMLSelectElement;
  private readonly layout: Choice;
  private readonly axis: Choice;
  private readonly theme: HTMLButtonElement;
  private timer = 0;

  constructor(
    private readonly app: App,
    help: () => void,
  ) {
    const { store } = app;
    this.search = h('input', { type: 'search', id: 'search', placeholder: 'Search  ( / )', title: 'Functions, files, file.py:12, names, annotations, 0x addresses, sizes such as >16MiB. All words must be found; a | b finds either.', 'aria-label': 'Search', spellcheck: 'false', autocomplete: 'off' });
    this.search.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => store.set({ search: this.search.value }), 120);
    });
    this.by = h('select', { id: 'by', 'aria-label': 'Colour by', onchange: () => store.set({ by: this.by.value, only: [] }) });
    for (const g of groupingsOf(app.devices[0]!)) this.by.append(h('option', { value: g.key }, `by ${g.title}`));
    this.layout = new Choice('Layout', [
      ['grouped', 'groups', 'stacked group upon group (B)'],
      ['bands', 'in order', 'blocks upon each other in the order in which they were made (B)'],
    ], (layout) => store.set({ layout: layout as 'bands' }));
    this.axis = new Choice('Axis', [
      ['event', 'events', 'along the axis: events (T)'],
      ['time', 'time', Axis.canBeTime(app.devices) ? 'along the axis: time (T)' : 'this file has no times'],
    ], (axis) => store.set({ axis: axis as 'time', view: null }));
    if (!Axis.canBeTime(app.devices)) this.axis.disable('time');
    this.theme = h('button', { type: 'button', 'aria-label': 'Light or dark', title: 'light or dark', onclick: () => store.set({ theme: app.theme === 'light' ? 'dark' : 'light' }) }, '◐');
    this.element = h('header', {},
      h('h1', {}, 'tessera'),
      h('div', { class: 'file' }, ...this.title()),
      this.search, this.by, this.layout.element, this.axis.element, this.theme,
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
    const parts = [h('strong', { title }, name), h('span', { class: 'muted' }, `${several ? '' : `${size(input.bytes)}, `}${counted(events, 'event')}`)];
    if (warnings.length)
      parts.push(h('details', { class: 'warnings' }, h('summary', {}, `${warnings.length} ${warnings.length === 1 ? 'note' : 'notes'}`),
        h('ul', {}, ...warnings.map((w) => h('li', {}, `${w.code} (${count(w.count)}): ${w.message}`)))));
    return parts;
  }

  draw(): void {
    const { state } = this.app;
    if (document.activeElement !== this.search) this.search.value = state.search;
    this.by.value = this.app.grouping(state.place.track).key;
    this.layout.show(state.layout);
    this.axis.show(state.axis);
  }
}
