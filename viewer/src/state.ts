// What the page shows, in one place; and the same as text in the URL, so that a view can be sent.

import type { AxisKind } from './axis.ts';
import { writeHash } from './dom.ts';

export interface Place {
  track: number;
  moment: number;
}

export type RangeMode = 'peak' | 'made' | 'kept' | 'freed';
export type Rows = 'stack' | 'function' | 'block' | 'group';

export interface State {
  axis: AxisKind;
  by: string;
  layout: 'grouped' | 'bands';
  view: [number, number] | null; // null: everything
  zoomY: number;
  low: number; // bytes at the lower border of the timeline
  place: Place;
  range: { from: number; to: number } | null; // moments of place.track, both included
  rangeMode: RangeMode;
  marks: [Place | null, Place | null];
  search: string;
  finding: { track: number; rule: string } | null; // what it is about is shown alone
  only: string[]; // names of groups; empty: all
  tab: number; // 1 to 5
  rows: Rows;
  allFrames: boolean;
  isInverted: boolean; // the flame graph
  pin: { track: number; allocation: number; born: number } | null; // its number in the trace, its moment
  theme: 'auto' | 'light' | 'dark';
}

const LAYOUTS = ['grouped', 'bands'];
const MODES = ['peak', 'made', 'kept', 'freed'];
const ROWS = ['stack', 'function', 'block', 'group'];
const THEMES = ['auto', 'light', 'dark'];

export type Listener = (state: State, changed: Set<keyof State>) => void;

export class Store {
  private readonly listeners: Listener[] = [];
  private timer = 0;

  constructor(
    public state: State,
    private readonly initial: State,
  ) {}

  on(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(patch: Partial<State>): void {
    const changed = new Set<keyof State>();
    for (const key of Object.keys(patch) as (keyof State)[])
      if (JSON.stringify(patch[key]) !== JSON.stringify(this.state[key])) changed.add(key);
    if (!changed.size) return;
    this.state = { ...this.state, ...patch };
    for (const listener of this.listeners) listener(this.state, changed);
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => writeHash(encode(this.state, this.initial)), 200);
  }
}

export function encode(s: State, initial: State): string {
  const out = new URLSearchParams();
  const put = (key: string, value: string | number, plain: string | number) => {
    if (value !== plain) out.set(key, String(value));
  };
  put('axis', s.axis, initial.axis);
  put('by', s.by, initial.by);
  put('layout', s.layout, initial.layout);
  if (s.view) put('view', viewText(s.view), initial.view ? viewText(initial.view) : '');
  else if (initial.view) out.set('view', 'all');
  put('y', Number(s.zoomY.toFixed(3)), 1);
  put('low', Math.round(s.low), 0);
  if (s.place.track !== initial.place.track || s.place.moment !== initial.place.moment)
    out.set('at', `${s.place.track}~${s.place.moment}`);
  if (s.range) out.set('range', `${s.range.from}~${s.range.to}`);
  put('mode', s.rangeMode, 'peak');
  s.marks.forEach((m, i) => {
    if (m) out.set('ab'[i]!, `${m.track}~${m.moment}`);
    else if (initial.marks[i]) out.set('ab'[i]!, 'none');
  });
  put('q', s.search, '');
  if (s.finding) out.set('finding', `${s.finding.track}~${s.finding.rule}`);
  for (const name of s.only) out.append('only', name);
  put('tab', s.tab, initial.tab);
  put('rows', s.rows, 'stack');
  if (s.allFrames) out.set('frames', 'all');
  if (s.isInverted) out.set('flame', 'inverted');
  if (s.pin) out.set('pin', `${s.pin.track}~${s.pin.allocation}~${s.pin.born}`);
  put('theme', s.theme, 'auto');
  return out.toString();
}

function viewText(view: [number, number]): string {
  return view.map((x) => Number(x.toPrecision(12))).join('~');
}

function pair(text: string | null): [number, number] | null {
  const parts = (text ?? '').split('~').map(Number);
  return parts.length === 2 && parts.every(Number.isFinite) ? [parts[0]!, parts[1]!] : null;
}

/** A state from a URL; what it does not say, or says wrongly, is as at first. */
export function decode(text: string, initial: State, tracks: { moments: number }[]): State {
  const q = new URLSearchParams(text);
  const state: State = { ...initial };
  const oneOf = <T extends string>(key: string, all: string[], plain: T): T => {
    const value = q.get(key);
    return value !== null && all.includes(value) ? (value as T) : plain;
  };
  const placeOf = (key: string): Place | null => {
    const p = pair(q.get(key));
    const track = p && tracks[p[0]];
    if (!p || !track || p[1] < 0 || p[1] >= track.moments) return null;
    return { track: p[0], moment: Math.floor(p[1]) };
  };
  state.axis = oneOf('axis', ['event', 'time'], initial.axis);
  state.by = q.get('by') ?? initial.by;
  state.layout = oneOf('layout', LAYOUTS, initial.layout);
  const view = pair(q.get('view'));
  if (q.get('view') === 'all') state.view = null;
  else if (view && view[1] > view[0]) state.view = view;
  const y = Number(q.get('y') ?? 1);
  if (y > 0 && y < 1e6) state.zoomY = y;
  const low = Number(q.get('low') ?? 0);
  if (low > 0 && state.zoomY > 1) state.low = low;
  state.place = placeOf('at') ?? initial.place;
  const range = pair(q.get('range'));
  const last = tracks[state.place.track]!.moments - 1;
  if (range && range[0] >= 0 && range[1] >= range[0] && range[1] <= last)
    state.range = { from: Math.floor(range[0]), to: Math.floor(range[1]) };
  state.rangeMode = oneOf('mode', MODES, 'peak');
  const markOf = (key: string, plain: Place | null) => (q.get(key) === 'none' ? null : (placeOf(key) ?? plain));
  state.marks = [markOf('a', initial.marks[0]), markOf('b', initial.marks[1])];
  state.search = q.get('q') ?? '';
  const [of, rule] = (q.get('finding') ?? '').split('~');
  if (rule && tracks[Number(of)]) state.finding = { track: Number(of), rule };
  state.only = q.getAll('only');
  const tab = Number(q.get('tab'));
  if (tab >= 1 && tab <= 5) state.tab = Math.floor(tab);
  state.rows = oneOf('rows', ROWS, 'stack');
  state.allFrames = q.get('frames') === 'all';
  state.isInverted = q.get('flame') === 'inverted';
  const [track, allocation, born] = (q.get('pin') ?? '').split('~').map((part) => Number.parseInt(part, 10));
  if (tracks[track!] && allocation! >= 0 && born! >= 0 && born! < tracks[track!]!.moments)
    state.pin = { track: track!, allocation: allocation!, born: born! };
  state.theme = oneOf('theme', THEMES, 'auto');
  return state;
}
