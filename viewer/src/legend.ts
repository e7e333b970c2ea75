// The legend: colours, names and bytes at the chosen moment, of what matches a search; a click isolates a group.

import type { App } from './app.ts';
import type { Device, Grouping } from './device.ts';
import { h, replace } from './dom.ts';
import { exact, size } from './format.ts';

const usedGroups = new WeakMap<Grouping, Set<number>>();

/** Groups that anything is ever in. */
function groupsUsed(grouping: Grouping): Set<number> {
  let used = usedGroups.get(grouping);
  if (used) return used;
  usedGroups.set(grouping, (used = new Set()));
  for (const g of grouping.group) used.add(g);
  const { restHigh } = grouping;
  if (!restHigh) return used;
  const buckets = restHigh.length / grouping.names.length;
  restHigh.forEach((bytes, i) => bytes && used!.add(Math.floor(i / buckets)));
  return used;
}

/** Bytes that match at a moment, by group. */
function matchingSums(device: Device, grouping: Grouping, matches: Uint8Array, moment: number): Float64Array {
  const sums = new Float64Array(grouping.names.length);
  for (const a of device.live(moment)) if (matches[a]) sums[grouping.group[a]!]! += device.requested(a);
  return sums;
}

export class Legend {
  readonly element = h('div', { class: 'legend', role: 'group', 'aria-label': 'Groups; press one to see it alone' });

  constructor(private readonly app: App) {}

  draw(): void {
    const { app } = this;
    const { place, only } = app.state;
    const { device, grouping, moment } = app.selection();
    const all = device.sumsAt(grouping, moment);
    const matches = app.matches(device);
    const sums = matches ? matchingSums(device, grouping, matches, moment) : all;
    const colours = app.colours(place.track);
    const visible = app.visible(place.track);
    const some = !visible.every((v) => v);
    const order = grouping.names.map((_, g) => g).sort((a, b) => sums[b]! - sums[a]! || a - b);
    const used = groupsUsed(app.grouping(place.track));
    const kept = grouping.names.map((_, g) => device.keptAt(grouping, g, moment));
    const total = sums.reduce((x, y) => x + y, 0);
    replace(
      this.element,
      ...order
        .filter((g) => used.has(g) || all[g] || kept[g])
        .map((g) => {
          const name = grouping.names[g]!;
          const swatch = h('span', { class: 'swatch' });
          swatch.style.background = colours[g]!.css;
          const bar = h('span', { class: 'bar' });
          bar.style.width = `${total ? (100 * sums[g]!) / total : 0}%`;
          bar.style.background = colours[g]!.css;
          return h(
            'button',
            {
              type: 'button',
              class: some && !visible[g] ? 'group off' : 'group',
              'aria-pressed': String(only.includes(name)),
              title: `${name}: ${exact(sums[g]!)}${matches ? ` match, of ${exact(all[g]!)}` : ''}${kept[g] ? ` in use, high-water mark ${exact(kept[g]!)}` : ''}. Click: this alone; with Shift or Ctrl: one more.`,
              onclick: (e: MouseEvent) => this.toggle(name, e.shiftKey || e.ctrlKey || e.metaKey),
            },
            swatch,
            h('span', { class: 'name' }, name),
            h('span', { class: 'bytes' }, size(sums[g]!)),
            kept[g]! > 0 && h('span', { class: 'kept' }, `high-water mark ${size(kept[g]!)}`),
            bar,
          );
        }),
      some && h('button', { type: 'button', class: 'plain', onclick: () => app.store.set({ only: [] }) }, 'show all groups'),
    );
  }

  private toggle(name: string, more: boolean): void {
    const { only } = this.app.state;
    const has = only.includes(name);
    if (more) this.app.store.set({ only: has ? only.filter((n) => n !== name) : [...only, name] });
    else this.app.store.set({ only: has && only.length === 1 ? [] : [name] });
  }
}
