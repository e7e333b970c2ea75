// Keys, in one table: what they do and what help says of them. They are where the fingers of users
// of trace viewers expect them.

import type { App } from './app.ts';
import { groupingsOf } from './groupings.ts';
import type { Place } from './state.ts';
import { copy } from './dom.ts';
import type { Timeline } from './timeline.ts';
import { Axis } from './axis.ts';

export interface Actions {
  focusSearch: () => void;
  toggleHelp: () => void;
  closeHelp: () => boolean;
}

export interface Key {
  keys: string[];
  shown: string;
  help: string;
  run: (e: KeyboardEvent) => void;
}

export function keyTable(app: App, timeline: Timeline, actions: Actions): Key[] {
  const { store } = app;
  const device = () => app.devices[app.state.place.track]!;
  const go = (moment: number, extend: boolean) => {
    const { place, range } = app.state;
    const last = device().moments - 1;
    const to = Math.max(0, Math.min(last, moment));
    if (extend) {
      const anchor = range ? (place.moment === range.to ? range.from : range.to) : place.moment;
      store.set({ place: { ...place, moment: to }, range: { from: Math.min(anchor, to), to: Math.max(anchor, to) } });
    } else {
      store.set({ place: { ...place, moment: to }, range: null });
    }
    keepInView(app, timeline, to);
  };
  const stepBy = () => {
    const [from, to] = timeline.range;
    const moments = app.axis.moment(device(), to) - app.axis.moment(device(), from);
    return Math.max(1, Math.round(moments / 400));
  };
  const current = () => app.state.place.moment;
  const setMark = () => {
    const here: Place = { track: app.state.place.track, moment: app.selection().moment };
    const [a, b] = app.state.marks;
    store.set({ marks: !a || (a && b) ? [here, null] : [a, here], tab: a && !b ? 4 : app.state.tab });
  };
  const focus = () => {
    const { range, place, pin } = app.state;
    const d = device();
    let span: [number, number] | null = range ? [range.from, range.to + 1] : null;
    const pinned = pin && app.find(pin.track, pin.allocation);
    if (!span && pinned) span = [pinned.device.born[pinned.a]!, pinned.device.died[pinned.a]!];
    const before = JSON.stringify(app.state.view);
    if (span) {
      const [a, b] = [app.axis.x(d, span[0]), app.axis.x(d, Math.min(span[1], d.moments - 1))];
      const air = (b - a) * 0.06;
      timeline.show(a - air, b + air);
    } else if (!app.state.view) {
      const x = app.axis.x(d, place.moment);
      const width = (app.axis.extent[1] - app.axis.extent[0]) / 12;
      timeline.show(x - width / 2, x + width / 2);
      return;
    }
    if (JSON.stringify(app.state.view) === before) store.set({ view: null, zoomY: 1, low: 0 });
  };
  const escape = () => {
    if (actions.closeHelp()) return;
    const { search, range, pin, only, finding } = app.state;
    if (search) store.set({ search: '' });
    else if (finding) store.set({ finding: null });
    else if (range) store.set({ range: null });
    else if (pin) store.set({ pin: null });
    else if (only.length) store.set({ only: [] });
    else store.set({ view: null, zoomY: 1, low: 0 });
  };
  const cycleBy = (by: number) => {
    const all = groupingsOf(device()).map((g) => g.key);
    const at = all.indexOf(app.grouping(app.state.place.track).key);
    store.set({ by: all[(at + by + all.length) % all.length]!, only: [] });
  };
  const toAxis = () => {
    if (Axis.canBeTime(app.devices)) store.set({ axis: app.state.axis === 'event' ? 'time' : 'event', view: null });
  };
  const track = (by: number) => {
    const n = app.devices.length;
    const next = (app.state.place.track + by + n) % n;
    store.set({ place: { track: next, moment: app.devices[next]!.head.peak }, range: null });
  };
  const edge = (by: number) => {
    const lanes = timeline.tracks[app.state.place.track]!.lanes;
    const edges = [...new Set([...lanes.flatMap((l) => l.ranges.map((r) => r.born)), ...device().marks.map((m) => m.moment), device().head.peak])].sort((a, b) => a - b);
    const next = by > 0 ? edges.find((m) => m > current()) : [...edges].reverse().find((m) => m < current());
    if (next !== undefined) go(next, false);
  };
  const copyStack = () => {
    const { pin } = app.state;
    const found = pin && app.find(pin.track, pin.allocation);
    const { hit } = timeline;
    const node = found ? found.device.node(found.a) : hit && hit.allocation >= 0 ? hit.device.node(hit.allocation) : -1;
    if (node >= 0) void copy(app.names.text(node));
  };
  return [
    { keys: ['w', 'W', '+', '='], shown: 'W', help: 'zoom in', run: () => timeline.zoom(1 / 1.4) },
    { keys: ['s', 'S', '-'], shown: 'S', help: 'zoom out', run: () => timeline.zoom(1.4) },
    { keys: ['a', 'A'], shown: 'A', help: 'move left', run: () => timeline.pan(-0.12) },
    { keys: ['d', 'D'], shown: 'D', help: 'move right', run: () => timeline.pan(0.12) },
    { keys: ['ArrowLeft'], shown: '← →', help: 'choose an earlier or later moment; with Shift: a range', run: (e) => go(current() - stepBy(), e.shiftKey) },
    { keys: ['ArrowRight'], shown: '', help: '', run: (e) => go(current() + stepBy(), e.shiftKey) },
    { keys: [','], shown: ', .', help: 'one event back or on', run: () => go(current() - 1, false) },
    { keys: ['.'], shown: '', help: '', run: () => go(current() + 1, false) },
    { keys: ['['], shown: '[ ]', help: 'previous or next step, phase, annotation or mark', run: () => edge(-1) },
    { keys: [']'], shown: '', help: '', run: () => edge(1) },
    { keys: ['Home'], shown: 'Home End', help: 'first or last moment', run: (e) => go(0, e.shiftKey) },
    { keys: ['End'], shown: '', help: '', run: (e) => go(device().moments - 1, e.shiftKey) },
    { keys: ['ArrowUp'], shown: '↑ ↓', help: 'stretch or shrink the height', run: () => timeline.zoomY(1.25) },
    { keys: ['ArrowDown'], shown: '', help: '', run: () => timeline.zoomY(0.8) },
    { keys: ['y', 'Y'], shown: 'Y', help: 'stretch the height to what is in view; again: all of it', run: () => timeline.fitHeight() },
    { keys: ['p', 'P'], shown: 'P', help: 'to the peak', run: () => go(device().head.peak, false) },
    { keys: ['f', 'F'], shown: 'F', help: 'zoom to what is chosen; again: everything', run: focus },
    { keys: ['m', 'M'], shown: 'M', help: 'set mark A, then mark B: their difference is tab 4', run: setMark },
    { keys: ['c', 'C'], shown: 'C', help: 'copy the stack of the pinned block, else of the one under the pointer', run: copyStack },
    { keys: ['i', 'I'], shown: 'I', help: 'turn the flame graph over', run: () => store.set({ isInverted: !app.state.isInverted }) },
    { keys: ['/'], shown: '/', help: 'search: words that all must be found; a | b finds either; >16MiB finds larger blocks', run: () => actions.focusSearch() },
    { keys: ['Escape'], shown: 'Esc', help: 'let go: search, finding, range, pin, isolated groups, zoom', run: escape },
    { keys: ['1'], shown: '1 to 5', help: 'table, flame graph, segments, difference, events', run: () => store.set({ tab: 1 }) },
    ...['2', '3', '4', '5'].map((k) => ({ keys: [k], shown: '', help: '', run: () => store.set({ tab: Number(k) }) })),
    { keys: ['g'], shown: 'G', help: 'colour by the next grouping; with Shift: the previous', run: () => cycleBy(1) },
    { keys: ['G'], shown: '', help: '', run: () => cycleBy(-1) },
    { keys: ['b', 'B'], shown: 'B', help: 'grouped, or all blocks in the order they were made', run: () => store.set({ layout: app.state.layout === 'grouped' ? 'bands' : 'grouped' }) },
    { keys: ['t', 'T'], shown: 'T', help: 'axis of time or of events', run: toAxis },
    { keys: ['n', 'N'], shown: 'N', help: 'next file or device', run: () => track(1) },
    { keys: ['?'], shown: '?', help: 'this help', run: () => actions.toggleHelp() },
  ];
}

function keepInView(app: App, timeline: Timeline, moment: number): void {
  const [from, to] = timeline.range;
  const x = app.axis.x(app.devices[app.state.place.track]!, moment);
  if (x < from || x > to) timeline.show(x - (to - from) / 2, x + (to - from) / 2);
}

export function listenToKeys(table: Key[]): void {
  const byKey = new Map(table.flatMap((row) => row.keys.map((k) => [k, row] as const)));
  document.addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const target = e.target as HTMLElement;
    const isTyping = target instanceof HTMLInputElement || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;
    if (isTyping && e.key !== 'Escape') return;
    if (isTyping) target.blur();
    const inPanel = !!target.closest('.panel, header');
    if (inPanel && (e.key.startsWith('Arrow') || e.key === 'Home' || e.key === 'End')) return; // they scroll
    const row = byKey.get(e.key);
    if (!row) return;
    e.preventDefault();
    row.run(e);
  });
}
