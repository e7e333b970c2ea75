// The page: reads its data, puts its parts together, and redraws what a change concerns.

import { App } from './app.ts';
import { Axis } from './axis.ts';
import { fillRest } from './curves.ts';
import { decodePage, type Head } from './decode.ts';
import { Device } from './device.ts';
import { DiffTab } from './difftab.ts';
import { h, replace } from './dom.ts';
import { EventTab } from './eventtab.ts';
import { Findings } from './findings.ts';
import { Flame } from './flame.ts';
import { groupingOf, groupingsOf } from './groupings.ts';
import { Header } from './header.ts';
import { Help } from './help.ts';
import { handOnFiles, tellHost } from './host.ts';
import { keyTable, listenToKeys } from './keys.ts';
import { Legend } from './legend.ts';
import { LiveTab, Summary } from './livetab.ts';
import { Names } from './names.ts';
import { Pairs } from './pairs.ts';
import { Pin } from './pin.ts';
import { Segments } from './segments.ts';
import { decode, type State, Store } from './state.ts';
import { Timeline } from './timeline.ts';
import { Tooltip } from './tooltip.ts';

const TABS = ['Table', 'Flame graph', 'Segments', 'Difference', 'Events'];

/** The tracks that are compared at first: of two files, the first one's highest and the same device of the other. */
function comparedOf(head: Head, devices: Device[], highest: (some: Device[]) => Device): [number, number] | null {
  if (head.inputs.length !== 2) return null;
  const [one, two] = [0, 1].map((input) => devices.filter((d) => d.head.input === input)) as [Device[], Device[]];
  if (!one.length || !two.length) return null;
  const first = highest(one);
  const second = two.find((d) => d.head.device === first.head.device) ?? highest(two);
  const isSame = typeof first.head.device === 'number' ? typeof second.head.device === 'number' : first.head.device === second.head.device;
  return isSame ? [first.index, second.index] : null;
}

/** What a page shows when its URL says nothing: the highest peak of its files' GPUs. */
function initialState(head: Head, devices: Device[]): State {
  const isGpu = (d: Device) => typeof d.head.device === 'number';
  /** The track with the highest peak, of a GPU if there is one. */
  const highest = (some: Device[]): Device => some.reduce((best, d) =>
    (isGpu(d) !== isGpu(best) ? isGpu(d) : d.head.peakAllocated > best.head.peakAllocated) ? d : best);
  const track = highest(devices).index;
  const peak = (i: number) => ({ track: i, moment: devices[i]!.head.peak });
  const pair = comparedOf(head, devices, highest);
  /** Where a track is compared: at its peak, unless the page knows better. */
  const moments = pair && head.compared.find(({ tracks }) => tracks[0] === pair[0] && tracks[1] === pair[1])?.moments;
  const mark = (i: 0 | 1) => (pair ? { ...peak(pair[i]), ...(moments && { moment: moments[i] }) } : null);
  // Events of several devices do not correspond, but their times do.
  const isByTime = head.inputs.length === 1 && devices.filter((d) => !d.isStill).length > 1 && !head.eventCount && Axis.canBeTime(devices);
  return {
    axis: isByTime ? 'time' : 'event',
    by: head.by,
    layout: head.isOrdered ? 'bands' : 'grouped',
    view: head.eventCount ? [head.firstEvent, head.firstEvent + head.eventCount] : null,
    zoomY: 1,
    low: 0,
    place: peak(track),
    range: null,
    rangeMode: 'peak',
    marks: [mark(0), mark(1)],
    search: '',
    finding: null,
    only: [],
    tab: pair ? 4 : devices.every((d) => !d.hasHistory) ? 3 : 1,
    rows: 'stack',
    allFrames: false,
    isInverted: false,
    pin: null,
    theme: 'auto',
  };
}

class Page {
  readonly timeline: Timeline;
  private readonly header: Header;
  private readonly legend: Legend;
  private readonly summary: Summary;
  private readonly tabs: { draw: () => void; element: HTMLElement }[];
  readonly segments: Segments;
  readonly flame: Flame;
  private readonly pin: Pin;
  private readonly findings: Findings;
  private readonly tabList = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Details' });
  private readonly panel = h('div', { class: 'panel', role: 'tabpanel', id: 'panel', 'aria-labelledby': 'tab-1' });
  private pending = 0;
  private dirty = new Set<string>();

  constructor(private readonly app: App) {
    const help = new Help();
    const tooltip = new Tooltip(app);
    this.timeline = new Timeline(app);
    this.timeline.onHover = (hit, event) => tooltip.show(hit, event);
    this.header = new Header(app, () => help.toggle());
    this.legend = new Legend(app);
    this.summary = new Summary(app);
    this.pin = new Pin(app);
    this.findings = new Findings(app);
    this.segments = new Segments(app);
    this.flame = new Flame(app, tooltip);
    this.tabs = [new LiveTab(app), this.flame, this.segments, new DiffTab(app), new EventTab(app)];
    const table = keyTable(app, this.timeline, {
      focusSearch: () => this.header.search.select(),
      toggleHelp: () => help.toggle(),
      closeHelp: () => help.close(),
    });
    help.fill(table);
    listenToKeys(table);
    const lower = h('div', { class: 'lower' }, this.tabList, this.panel, h('div', { class: 'side' }, this.pin.element, this.findings.element));
    replace(document.body, this.header.element, h('main', {}, h('div', { class: 'upper' }, this.timeline.element, this.legend.element), this.splitter(), this.summary.element, lower), tooltip.element, help.element);
    app.store.on((_, changed) => this.changed(changed));
    app.onArrival = () => this.redrawAll();
    // A ring around what has the focus helps those who come by keys, and is in others' way.
    const input = (kind: string) => () => (document.documentElement.dataset.input = kind);
    addEventListener('keydown', input('keys'), true);
    addEventListener('pointerdown', input('pointer'), true);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redrawAll());
    this.redrawAll();
  }

  private redrawAll(): void {
    document.documentElement.dataset.theme = this.app.theme;
    for (const part of ['timeline', 'legend', 'summary', 'tab', 'pin', 'header', 'findings']) this.dirty.add(part);
    this.schedule();
  }

  private changed(changed: Set<keyof State>): void {
    const has = (...keys: (keyof State)[]) => keys.some((k) => changed.has(k));
    if (has('theme')) return this.redrawAll();
    if (has('axis')) this.app.axis = new Axis(this.app.state.axis, this.app.devices);
    if (has('view', 'zoomY', 'low', 'axis', 'by', 'layout', 'search', 'finding', 'only')) this.dirty.add('timeline');
    else if (has('place', 'range', 'rangeMode', 'marks', 'pin')) this.dirty.add('over');
    if (has('place', 'finding')) this.dirty.add('findings');
    if (has('place', 'range', 'rangeMode', 'by', 'only', 'search', 'finding')) ['legend', 'summary', 'tab'].forEach((p) => this.dirty.add(p));
    if (has('tab', 'rows', 'allFrames', 'isInverted', 'marks')) this.dirty.add('tab');
    if (has('pin') && this.app.state.tab === 3) this.dirty.add('tab');
    if (has('pin', 'by')) this.dirty.add('pin');
    if (has('by', 'layout', 'axis', 'search')) this.dirty.add('header');
    if (has('place') && this.app.devices.length > 1) this.dirty.add('timeline');
    this.schedule();
  }

  private schedule(): void {
    if (this.dirty.has('timeline')) this.timeline.request('all');
    else if (this.dirty.has('over')) this.timeline.request('over');
    this.dirty.delete('timeline');
    this.dirty.delete('over');
    if (this.pending || !this.dirty.size) return;
    this.pending = window.setTimeout(() => {
      this.pending = 0;
      const dirty = this.dirty;
      this.dirty = new Set();
      if (dirty.has('header')) this.header.draw();
      if (dirty.has('legend')) this.legend.draw();
      if (dirty.has('summary')) this.summary.draw();
      if (dirty.has('tab')) this.drawTab();
      if (dirty.has('pin')) this.pin.draw();
      if (dirty.has('findings')) this.findings.draw();
    }, 0);
  }

  private drawTab(): void {
    const { tab } = this.app.state;
    replace(this.tabList, ...TABS.map((title, i) =>
      h('button', {
        type: 'button', role: 'tab', id: `tab-${i + 1}`, 'aria-controls': 'panel', 'aria-selected': String(tab === i + 1),
        onclick: () => this.app.store.set({ tab: i + 1 }),
      }, h('kbd', {}, String(i + 1)), ` ${title}`)));
    this.panel.setAttribute('aria-labelledby', `tab-${tab}`);
    const wanted = this.tabs[tab - 1]!;
    if (this.panel.firstChild !== wanted.element) replace(this.panel, wanted.element);
    wanted.draw();
  }

  /** The border between timeline and details: to be dragged, or moved by arrow keys. */
  private splitter(): HTMLElement {
    const bar = h('div', { class: 'splitter', role: 'separator', tabindex: 0, 'aria-orientation': 'horizontal', 'aria-label': 'Height of the timeline' });
    const set = (share: number) => document.documentElement.style.setProperty('--upper', `${Math.max(20, Math.min(85, share))}%`);
    const share = () => Number.parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--upper')) || 52;
    bar.addEventListener('pointerdown', (e) => bar.setPointerCapture(e.pointerId));
    bar.addEventListener('pointermove', (e) => {
      const main = bar.parentElement!.getBoundingClientRect();
      if (bar.hasPointerCapture(e.pointerId)) set((100 * (e.clientY - main.top)) / main.height);
    });
    bar.addEventListener('keydown', (e) => {
      if (e.key !== 'ArrowUp' && e.key !== 'ArrowDown') return;
      set(share() + (e.key === 'ArrowDown' ? 4 : -4));
      e.preventDefault();
      e.stopPropagation();
    });
    return bar;
  }
}

/** For tests: what the page says of a moment, in numbers. */
function hook(app: App, page: Page): object {
  return {
    devices: app.devices.map((d) => ({ device: d.head.device, events: d.head.events, label: d.label, peak: d.head.peak - 1, told: d.count })),
    at: (track: number, event: number) => {
      const device = app.deviceFor(track, event + 1);
      const grouping = device.grouping('category');
      const sums = device.sumsAt(grouping, event + 1);
      return { totals: device.totalsAt(event + 1), groups: Object.fromEntries(grouping.names.map((n, g) => [n, sums[g]])) };
    },
    groups: (track: number, event: number, key: string) => {
      const device = app.deviceFor(track, event + 1);
      const grouping = groupingOf(device, key);
      const sums = device.sumsAt(grouping, event + 1);
      return grouping.names.map((name, g) => [name, sums[g]]);
    },
    labels: (track: number) => page.timeline.tracks[track]!.labels(),
    column: (track: number, c: number) => page.timeline.tracks[track]!.column(c),
    found: (track: number) => page.timeline.tracks[track]!.found(),
    bytesAt: (track: number, y: number) => page.timeline.tracks[track]!.bytesAt(y),
    groupings: (track: number) => groupingsOf(app.devices[track]!).map((g) => g.key),
    names: (track: number) => app.grouping(track).names,
    flame: () => page.flame.shown(),
    placeOf: (track: number, event: number) => page.timeline.tracks[track]!.placeOf(event + 1),
    /** The lane of the whole card: where it is, and what it shows at a place. */
    cardBox: (track: number) => page.timeline.tracks[track]!.cardBox(),
    cardAt: (track: number, x: number) => page.timeline.tracks[track]!.cardAt(x),
    lanes: (track: number) => page.timeline.tracks[track]!.lanes,
    state: () => app.state,
    set: (patch: Partial<State>) => app.store.set(patch),
    /** What the columns of a track show: their moments and what is allocated there. */
    columns: (track: number) => page.timeline.tracks[track]!.columns(),
    /** Events at which sums of what is not told one by one are exact. */
    exact: (track: number) => [...app.devices[track]!.high, ...app.devices[track]!.low].map((m) => m - 1),
    /** By name of a group: in use, and kept by private pools. */
    pools: (track: number, event: number) => {
      const device = app.deviceFor(track, event + 1);
      const grouping = device.grouping('pool');
      const sums = device.sumsAt(grouping, event + 1);
      return Object.fromEntries(grouping.names.map((name, g) => [name, [sums[g], device.keptAt(grouping, g, event + 1)]]));
    },
    segments: () => page.segments.drawn(),
    waste: () => page.segments.waste(),
    /** By name of a pool of blocks, at the chosen moment. */
    poolSums: () => Object.fromEntries(page.segments.pools()),
    drawn: (track: number) => page.timeline.tracks[track]!.drawnHead(),
    isWaiting: () => app.isWaiting,
    frames: () => page.timeline.frameTimes,
    selection: () => ({ moment: app.selection().moment, blocks: app.selection().ids.length }),
  };
}

async function main(): Promise<void> {
  const start = performance.now();
  const { head, columns } = await decodePage();
  const names = new Names(columns);
  const devices = head.devices.map((_, i) => new Device(i, head, columns, names));
  devices.forEach(fillRest);
  const initial = initialState(head, devices);
  const tracks = devices.map((d) => ({ moments: d.moments }));
  const state = decode(location.hash.slice(1), initial, tracks);
  if (!Axis.canBeTime(devices)) state.axis = 'event';
  const app = new App(head, names, devices, new Pairs(columns, names), new Store(state, initial));
  const { classList } = document.documentElement;
  const isStill = devices.every((d) => !d.hasHistory);
  const narrow = matchMedia('(max-width: 820px)');
  const layOut = () => classList.toggle('strip', isStill || narrow.matches); // what to do: above the tabs, not next to them
  classList.toggle('still', isStill);
  narrow.addEventListener('change', layOut);
  layOut();
  document.title = `${devices[0]!.label.replace(/^.*[\\/]/, '')}${head.inputs.length > 1 ? ' and others' : ''} - tessera`;
  const page = new Page(app);
  handOnFiles();
  if (devices.some((d) => d.marks.some((mark) => mark.isOom))) tellHost({ tessera: 'out of memory' });
  addEventListener('hashchange', () => {
    app.store.set(decode(location.hash.slice(1), initial, tracks));
  });
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const ready = performance.now();
    Object.assign(window, { tessera: { ...hook(app, page), readyMs: ready, scriptMs: ready - start } });
    document.documentElement.dataset.ready = 'true';
  }));
}

main().catch((error: unknown) => {
  const message = error instanceof Error ? error.message : String(error);
  replace(document.body, h('p', { class: 'failed', role: 'alert' }, `This page cannot be shown: ${message}. It needs a browser of 2023 or later.`));
});
