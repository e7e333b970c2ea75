// Tab 5: the events around the chosen moment, one by one; of a search, a finding or isolated groups only theirs. A
// click goes to the moment after an event.

import type { App } from './app.ts';
import type { Device } from './device.ts';
import { h, replace } from './dom.ts';
import { count, duration, exact, hex, size } from './format.ts';
import type { Names } from './names.ts';
import { groupCell, labelCell } from './rows.ts';

const AROUND = 60; // events shown before the chosen moment, and after it

interface Event {
  moment: number; // after it
  verb: string;
  ids: number[]; // its allocations, of which a page of a long trace may have several in one moment
  bytes: number;
}

/** What the event before a moment did, as far as the page has its block. */
function eventsAt(device: Device, moment: number): Event[] {
  if (device.isStill || moment < 1) return [];
  const out: Event[] = [];
  const add = (verb: string, ids: number[]) => ids.length && out.push({ moment, verb, ids, bytes: device.requested(ids[0]!) });
  const [from, to] = device.madeIn(moment, moment + 1);
  add('allocates', Array.from({ length: to - from }, (_, i) => from + i));
  const ended = device.endingAt(moment, false);
  add('frees', ended);
  add('gives back', device.endingAt(moment, true).filter((a) => !ended.includes(a)));
  const reserved = device.reservedAt(moment) - device.reservedAt(moment - 1);
  if (reserved) out.push({ moment, verb: reserved > 0 ? 'reserves' : 'releases', ids: [], bytes: Math.abs(reserved) });
  return out;
}

/** The same in a sentence; '' if nothing. */
export function eventText(names: Names, device: Device, moment: number): string {
  return eventsAt(device, moment).map(({ verb, ids, bytes }) => {
    const node = ids.length ? device.node(ids[0]!) : -1;
    return `${verb} ${size(bytes)}${ids.length > 1 ? ` and ${count(ids.length - 1)} more` : ''}${node < 0 ? '' : `, ${names.label(node)}`}`;
  }).join('; ');
}

export class EventTab {
  private readonly body = h('tbody');
  private readonly hint = h('p', { class: 'muted hint' });
  readonly element = h('div', { class: 'events' }, this.hint,
    h('table', { 'aria-label': 'Events around the chosen moment' },
      h('thead', {}, h('tr', {}, ...['event', 'time', 'what', 'bytes', 'address', 'group', 'allocated at'].map((title, i) =>
        h('th', { scope: 'col', class: [0, 1, 3, 4].includes(i) ? 'right' : `left${i === 6 ? ' c-label' : i === 2 ? ' c-group' : ''}` }, title)))),
      this.body));

  constructor(private readonly app: App) {}

  draw(): void {
    const { app } = this;
    const { device, moment, track } = app.selection();
    const wanted = this.wanted(device);
    const moments = wanted ? this.momentsOf(device, wanted, moment) : this.momentsAround(device, moment);
    const events = moments.flatMap((m) => {
      const all = eventsAt(device, m);
      const some = wanted ? all.map((e) => ({ ...e, ids: e.ids.filter((a) => wanted[a]) })).filter((e) => e.ids.length) : all;
      return some.length || wanted ? some : [{ moment: m, verb: '', ids: [], bytes: 0 }];
    });
    this.hint.textContent = device.isStill ? 'No event was recorded.'
      : `${wanted ? 'Events of what is shown' : 'Events'} around the chosen moment; , and . go from one to the next.`;
    replace(this.body, ...events.map((e) => this.row(device, track, e, e.moment === moment)));
    // The page itself, which scrolls where the window is narrow, stays where it is.
    const shown = this.body.querySelector<HTMLElement>('.shown');
    const panel = this.element.parentElement;
    if (shown && panel) panel.scrollTop = shown.offsetTop - panel.clientHeight / 2;
  }

  /** By allocation, whether its events are listed; NULL if all are. */
  private wanted(device: Device): Uint8Array | null {
    const { app } = this;
    const matches = app.matches(device);
    const visible = app.visible(device.index);
    if (visible.every((v) => v)) return matches;
    const { group } = app.grouping(device.index, device);
    return Uint8Array.from({ length: device.count }, (_, a) => (visible[group[a]!] && (!matches || matches[a]) ? 1 : 0));
  }

  private momentsAround(device: Device, moment: number): number[] {
    const from = Math.max(1, moment - AROUND);
    const to = Math.min(device.moments - 1, moment + AROUND);
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);
  }

  /** The nearest moments at which something of what is wanted begins or ends. */
  private momentsOf(device: Device, wanted: Uint8Array, moment: number): number[] {
    const found = new Set<number>();
    for (let a = 0; a < device.count; a++) {
      if (!wanted[a]) continue;
      for (const m of [device.born[a]!, device.released[a]!, device.died[a]!]) if (m > 0 && m < device.moments) found.add(m);
    }
    const all = [...found].sort((x, y) => x - y);
    const at = all.findIndex((m) => m > moment);
    const middle = at < 0 ? all.length : at;
    return all.slice(Math.max(0, middle - AROUND), middle + AROUND);
  }

  private row(device: Device, track: number, { moment, verb, ids, bytes }: Event, isShown: boolean): HTMLElement {
    const { app } = this;
    const a = ids[0] ?? -1;
    const grouping = app.grouping(track, device);
    const group = a < 0 ? -1 : grouping.group[a]!;
    const mark = device.marks.find((m) => m.moment === moment);
    const what = mark && !verb ? (mark.isOom ? 'runs out of memory' : 'snapshot') : verb || '(nothing that this page has)';
    const time = device.hasTimes ? duration(device.timeOf(moment)) : '';
    return h('tr', {
      tabindex: 0, class: isShown ? 'shown' : undefined,
      onclick: () => app.store.set({ place: { track, moment }, range: null, pin: a < 0 ? app.state.pin : { track, allocation: device.row(a), born: device.born[a]! } }),
      onkeydown: (e: KeyboardEvent) => e.key === 'Enter' && (e.currentTarget as HTMLElement).click(),
    },
    h('td', { class: 'right' }, count(moment - 1)),
    h('td', { class: 'right' }, time),
    h('td', { class: `c-group ${verb === 'allocates' || verb === 'reserves' ? 'more' : verb ? 'less' : 'muted'}` }, what),
    h('td', { class: 'right', title: bytes ? exact(bytes) : undefined }, bytes ? `${size(bytes)}${ids.length > 1 ? ` and ${count(ids.length - 1)} more` : ''}` : ''),
    h('td', { class: 'right' }, a < 0 ? '' : hex(device.address(a))),
    h('td', { class: 'left' }, group < 0 ? '' : groupCell({ group: grouping.names[group]!, colour: app.colours(track)[group]!.css })),
    h('td', { class: 'left c-label' }, a < 0 ? '' : labelCell({ label: app.names.label(device.node(a), device.isOlder(a)) })));
  }
}
