// What is under the pointer, beside it.

import type { App } from './app.ts';
import { cardColour } from './card.ts';
import type { Device } from './device.ts';
import { h, replace } from './dom.ts';
import { clock, count, counted, duration, exact, hex, size } from './format.ts';
import { unnamed } from './names.ts';
import type { Hit } from './track.ts';

/** "after event 3,737", "before the first event". */
export function momentName(device: Device, moment: number): string {
  if (device.isStill) return 'when the snapshot was taken';
  return moment ? `after event ${count(moment - 1)}` : 'before the first event';
}

/** A moment's time, or about that. */
export function momentClock(device: Device, moment: number): string {
  const text = clock(device.head.firstTime + device.timeOf(moment));
  return device.hasTimeOf(moment) ? text : `about ${text.replace(/\d{3} UTC$/, ' UTC').replace(/  /, ' ')}`;
}

export function lifeOf(device: Device, a: number): string {
  const born = device.born[a]!;
  const died = device.died[a]!;
  const from = born ? `event ${count(born - 1)}` : 'before the recording';
  const to = died < device.moments ? `event ${count(died - 1)}` : 'the end';
  const time = born && died < device.moments && device.hasTimes ? device.timeOf(died) - device.timeOf(born) : NaN;
  const length = Number.isNaN(time) ? '' : `, ${duration(time)}`;
  return `${from} to ${to}${length}`;
}

/** Name and value, row by row. */
export function facts(rows: [string, string][]): HTMLElement {
  return h('dl', { class: 'facts' }, ...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

export function blockFacts(app: App, device: Device, a: number): [string, string][] {
  const grouping = app.grouping(device.index, device);
  const rows: [string, string][] = [
    ['size', exact(device.requested(a))],
    ['block', device.block(a) === device.requested(a) ? 'the same' : exact(device.block(a))],
    ['address', hex(device.address(a))],
    ['life', lifeOf(device, a)],
    [grouping.title, grouping.names[grouping.group[a]!]!],
  ];
  if (device.died[a]! > device.released[a]! + 1)
    rows.push(['given back', `${momentName(device, device.released[a]!)}, then waiting for a stream`]);
  const said = device.said(a);
  if (said !== null) rows.push(['name', said]);
  for (const kind of ['annotation', 'metadata'] as const) {
    const names = device.rangesAt(a, kind).filter((name) => name !== said);
    if (names.length && grouping.key !== kind) rows.push([kind, names.join(' > ')]);
  }
  const node = device.node(a);
  if (node >= 0) rows.push(['allocated at', app.names.label(node)]);
  return rows;
}

const LARGEST = 4;

/** What a group holds at a moment, as far as a search leaves it: bytes, blocks, and which stacks hold most. */
function groupView(app: App, device: Device, g: number, moment: number): HTMLElement {
  const grouping = app.grouping(device.index, device);
  const { ids, rest } = app.filter(device, device.live(moment).filter((a) => grouping.group[a] === g), moment);
  const stacks = new Map<number, { bytes: number; blocks: number }>();
  let bytes = rest ? rest[g]! : 0;
  for (const a of ids) {
    const node = device.isOlder(a) ? -2 : device.node(a);
    let stack = stacks.get(node);
    if (!stack) stacks.set(node, (stack = { bytes: 0, blocks: 0 }));
    stack.bytes += device.requested(a);
    stack.blocks++;
    bytes += device.requested(a);
  }
  const most = [...stacks].sort((a, b) => b[1].bytes - a[1].bytes || a[0] - b[0]).slice(0, LARGEST);
  const matching = app.matches(device) ? ' that match' : '';
  return h('div', { class: 'tip-group' },
    facts([[grouping.title, `${grouping.names[g]!}: ${exact(bytes)} in ${counted(ids.length, 'block')}${matching}${rest?.[g] ? ' and those that are told in sums' : ''}`]]),
    h('div', { class: 'muted' }, most.length < stacks.size ? 'most of it:' : 'of it:'),
    ...most.map(([node, stack]) => h('div', { class: 'tip-row' }, h('span', {}, size(stack.bytes)), h('span', { class: 'muted' }, counted(stack.blocks, 'block')), h('span', { class: 'name' }, app.names.label(node, node === -2)))));
}

export class Tooltip {
  readonly element = h('div', { class: 'tooltip', role: 'tooltip', hidden: true });

  private peak = { key: '', text: '' }; // of the range that was shown last

  constructor(private readonly app: App) {}

  /** The most that is allocated from a moment to before another. The page's own data has it, also of a served page. */
  private peakIn(track: number, born: number, died: number): string {
    const device = this.app.devices[track]!;
    const key = `${track} ${born} ${died}`;
    if (this.peak.key !== key) {
      const at = this.app.peakOf(device, born, Math.max(born, Math.min(died, device.moments) - 1));
      this.peak = { key, text: exact(device.totalsAt(at).allocated) };
    }
    return this.peak.text;
  }

  show(hit: Hit | null, event: PointerEvent | null): void {
    if (!hit || !event) {
      this.element.hidden = true;
      return;
    }
    const { app } = this;
    const { device } = hit;
    const grouping = app.grouping(hit.track, device);
    if (hit.lane) {
      replace(this.element, h('strong', {}, hit.lane.name || '(no name)'), facts([
        [hit.lane.title, `events ${count(hit.lane.born - 1)} to ${count(hit.lane.died - 2)}`],
        ['peak in it', this.peakIn(hit.track, hit.lane.born, hit.lane.died)],
        ...(device.hasTimes ? [['time', duration(device.timeOf(hit.lane.died) - device.timeOf(hit.lane.born))] as [string, string]] : []),
      ]));
    } else if (hit.sample >= 0 && app.devices[hit.track]!.card) {
      this.showCard(app.devices[hit.track]!, hit.sample);
    } else if (hit.allocation >= 0) {
      const node = device.node(hit.allocation);
      const own = node < 0 ? [] : app.names.own(node).slice(-5).reverse();
      replace(
        this.element,
        h('strong', {}, size(device.requested(hit.allocation))),
        facts(blockFacts(app, device, hit.allocation)),
        h('div', { class: 'tip-stack' }, ...own.map((f) => h('div', {}, `${app.names.place(f)} ${app.names.brief(f)}`))),
        node < 0 && h('div', { class: 'muted' }, unnamed(device.isOlder(hit.allocation))),
        hit.isThin && groupView(app, device, grouping.group[hit.allocation]!, hit.moment),
      );
    } else {
      const rows: [string, string][] = [];
      if (device.hasTimes) rows.push(['time', momentClock(device, hit.moment)]);
      if (hit.isKept) {
        const kept = device.keptAt(grouping, hit.group, hit.moment);
        const live = device.sumsAt(grouping, hit.moment)[hit.group]!;
        rows.push(['here', `up to the high-water mark of ${grouping.names[hit.group]!}`]);
        rows.push(['in use', `${exact(live)} of ${exact(kept)}`]);
      }
      const totals = device.totalsAt(hit.moment);
      rows.push(['allocated', exact(totals.allocated)], ['reserved', exact(totals.reserved)]);
      replace(this.element, h('strong', {}, momentName(device, hit.moment)), facts(rows), hit.group >= 0 && !hit.isKept && groupView(app, device, hit.group, hit.moment));
    }
    this.put(event);
  }

  /** The whole card at a sample, by who holds it. */
  private showCard(device: Device, i: number): void {
    const card = device.card!;
    const total = card.head.total ? ` of ${size(card.head.total)}` : '';
    const rows = card.head.sorts.map((name, sort) => ({ name, sort, bytes: card.bytes[sort]![i]! })).filter(({ bytes }) => bytes > 0);
    replace(
      this.element,
      h('strong', {}, `the whole card: ${size(card.used[i]!)}${total} used`),
      h('dl', { class: 'facts' }, ...rows.flatMap(({ name, sort, bytes }) => {
        const swatch = h('span', { class: 'card-sort' });
        swatch.style.background = cardColour(this.app.theme, sort);
        return [h('dt', {}, swatch, name), h('dd', {}, exact(bytes))];
      })),
      h('div', { class: 'muted' }, `sampled at ${clock(card.time(device, i))}`),
    );
  }

  /** Show something else beside the pointer. */
  say(event: PointerEvent | null, ...content: Node[]): void {
    this.element.hidden = !event;
    if (!event) return;
    replace(this.element, ...content);
    this.put(event);
  }

  private put(event: PointerEvent): void {
    this.element.hidden = false;
    const box = this.element.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 14, innerHeight - box.height - 6);
    this.element.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }
}
