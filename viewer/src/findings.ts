// What to do: where memory ran out, what `tessera peak` advises for the chosen device, and for files without a
// trace how to record one. A finding that is chosen shows its moment, and its blocks alone.

import type { App } from './app.ts';
import type { Device } from './device.ts';
import { h, replace } from './dom.ts';
import { count, size } from './format.ts';
import { momentName } from './tooltip.ts';

interface Item {
  rule: string;
  change: string;
  evidence: string[];
  moment: number;
  isAlarm?: boolean;
}

export class Findings {
  private readonly body = h('div', { class: 'finding-list' });
  private readonly heading = h('summary');
  readonly element = h('details', { class: 'findings', open: true, hidden: true }, this.heading, this.body);

  constructor(private readonly app: App) {}

  draw(): void {
    const { app } = this;
    const device = app.devices[app.state.place.track]!;
    const { howToRecord } = app.head;
    const items = itemsOf(device);
    this.heading.textContent = app.devices.length > 1 && items.length ? `What to do, ${app.title(device.index)}` : 'What to do';
    this.element.hidden = !items.length && !howToRecord;
    replace(this.body,
      howToRecord && h('p', { class: 'record' }, howToRecord),
      ...items.map((item) => this.card(device, item)));
  }

  private card(device: Device, item: Item): HTMLElement {
    const { finding } = this.app.state;
    const isChosen = finding?.track === device.index && finding.rule === item.rule;
    return h('button', {
      type: 'button', class: item.isAlarm ? 'finding is-alarm' : 'finding', 'aria-pressed': String(isChosen),
      title: `${isChosen ? 'Everything again' : `Go ${momentName(device, item.moment)}${device.findingRows(item.rule) ? ', and show its blocks alone' : ''}`}`,
      onclick: () => (isChosen ? this.app.store.set({ finding: null }) : this.choose(device, item)),
    }, h('strong', {}, item.change), ...item.evidence.map((line) => h('span', {}, line)));
  }

  private choose(device: Device, item: Item): void {
    const { axis, state, store } = this.app;
    const x = axis.x(device, item.moment);
    const isSeen = !state.view || (x >= state.view[0] && x <= state.view[1]);
    store.set({
      finding: { track: device.index, rule: item.rule },
      place: { track: device.index, moment: item.moment },
      range: null,
      search: '',
      only: [],
      view: isSeen ? state.view : null,
      tab: item.rule === 'cached' ? 3 : state.tab === 4 ? 1 : state.tab,
    });
  }
}

function itemsOf(device: Device): Item[] {
  const oom = device.marks.findLast((mark) => mark.isOom);
  const failure: Item[] = oom ? [{
    rule: 'oom',
    change: `Out of memory: ${size(oom.bytes)} asked for, ${size(oom.free)} free.`,
    evidence: [`It failed at event ${count(oom.moment - 1)}. tessera why explains it, and estimates what would have helped.`],
    moment: oom.moment,
    isAlarm: true,
  }] : [];
  return [...failure, ...device.head.findings];
}
