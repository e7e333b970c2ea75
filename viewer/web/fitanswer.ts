// What is drawn of the answers to "Will it fit?". Every number is one of the answer's; only the room that is left, or lacks, is a difference
// of two of them.

import { h } from '../src/dom.ts';
import { count, counted, duration, percent, size } from '../src/format.ts';
import { palette, type Theme } from '../src/theme.ts';

export interface Moment {
  step: number;
  phase: string;
  op: string;
  allocated_bytes: number;
  reserved_bytes: number;
}

export interface Device {
  parameters: number;
  capacity_bytes: number | null;
  fits: boolean;
  peak_reserved_bytes: number;
  peak: Moment;
  gpu: string | null;
  step_time_us: number | null;
  outside: { pytorch_bytes: number | null } | null;
  message?: string;
  categories: { name: string; bytes: number }[];
  phases: { name: string; allocated_bytes: number; step: number; op: string }[];
  notes: { message: string }[];
}

export interface Simulated {
  devices: Device[];
}

interface Cost {
  peak_allocated_bytes: number;
  step_time_us: number;
}

export interface Explained {
  without: Cost;
  techniques: { technique: string; choice: { [key: string]: unknown }; is_free: boolean; alone: Cost | null; so_far: Cost | null }[];
}

export interface Planned {
  verdict: string;
  budget_bytes: number;
  is_proved?: boolean;
  lower_bound?: { peak_bytes: number };
  question?: { begins_with?: { [key: string]: unknown } };
  plan?: { [key: string]: unknown };
  as_is?: Cost & { peak_reserved_bytes: number };
  predicted?: Cost & { peak_reserved_bytes: number };
  changes?: { technique: string; saved_bytes: number; cost_us: number }[];
}

// A number with its sign: times, shares and sizes of differences have one form.
const MINUS = '\u2212';
const signed = (value: number, text: (value: number) => string): string => {
  const whole = text(Math.abs(value));
  return /[1-9]/.test(whole) ? `${value < 0 ? MINUS : '+'}${whole}` : whole;
};
const change = (us: number, of: number): string => signed(us, (part) => percent(part, of));
const saved = (bytes: number): string => (bytes < 0 ? `${MINUS}${size(-bytes)}` : size(bytes));

const theme = (): Theme => (document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light');

// What is taken of a card besides PyTorch's share, at most, where that is not counted (docs/plan.md).
const OUTSIDE_BYTES = 0.8 * (1 << 30);

// What the answer says first. `whole` is the run on a card without a limit, where the run on the card ended early.
export function verdictOf(run: Device, whole: Device | undefined): { text: string; kind: 'good' | 'alarm' | 'plain' } {
  const needs = (of: Device) => `It needs ${size(of.peak_reserved_bytes)}, of which ${size(of.peak.allocated_bytes)} are allocated.`;
  if (run.capacity_bytes === null) return { text: `${needs(run)} Choose a card (gpu), or type its memory (capacity).`, kind: 'plain' };
  const share = run.outside?.pytorch_bytes ?? run.capacity_bytes;
  const card = share < run.capacity_bytes ? `${size(run.capacity_bytes)}, of which PyTorch can have ${size(share)}` : size(run.capacity_bytes);
  const left = share - run.peak_reserved_bytes;
  if (run.fits && !run.outside && left < OUTSIDE_BYTES)
    return { text: `Fits in ${card} barely: ${size(left)} are left, and the driver and the CUDA context take 0.3 to 0.8 GiB of a card. ${needs(run)}`, kind: 'plain' };
  if (run.fits) return { text: `Fits in ${card}: ${size(left)} are left. ${needs(run)}`, kind: 'good' };
  if (!whole) return { text: `Does not fit in ${card}.`, kind: 'alarm' };
  const lacks = whole.peak_reserved_bytes - share;
  return { text: `Does not fit in ${card}: ${lacks > 0 ? `${size(lacks)} are missing. ` : ''}${needs(whole)}`, kind: 'alarm' };
}

const placed = (element: HTMLElement, left: number, width: number): HTMLElement => {
  element.style.left = `${(100 * left).toFixed(3)}%`;
  element.style.width = `${(100 * width).toFixed(3)}%`;
  return element;
};

// The peak against the card, in colours of the page of `view`.
export function barOf(run: Device, capacity: number | null): HTMLElement {
  const whole = Math.max(run.peak_reserved_bytes, capacity ?? 0, 1);
  const colours = palette('category', run.categories.map(({ name }) => name), theme());
  let at = 0;
  const parts = run.categories.map(({ name, bytes }, i) => {
    const part = placed(h('span', { class: 'part', title: `${name}: ${size(bytes)}` }), at / whole, bytes / whole);
    part.style.background = colours[i]!.css;
    at += bytes;
    return part;
  });
  const kept = placed(h('span', { class: 'part kept', title: 'reserved, not allocated at the peak' }), at / whole,
    Math.max(0, run.peak_reserved_bytes - at) / whole);
  const card = capacity !== null && placed(h('span', { class: 'card', title: `the card: ${size(capacity)}` }), 0, capacity / whole);
  const label = `${run.categories.map(({ name, bytes }) => `${name} ${size(bytes)}`).join(', ')}; reserved ${size(run.peak_reserved_bytes)}` +
    (capacity === null ? '' : `; the card has ${size(capacity)}`);
  const reserved = h('span', {}, `${size(run.peak_reserved_bytes)} reserved`);
  const limit = capacity !== null && h('span', {}, `the card: ${size(capacity)}`);
  // The longer of the two ends on the right; the mark of a card that is too small has its name below it.
  const isSmall = capacity !== null && capacity < run.peak_reserved_bytes;
  if (limit && isSmall) limit.style.marginLeft = `${Math.min(45, (100 * capacity) / whole)}%`;
  return h('div', {}, h('div', { class: 'bar', role: 'img', 'aria-label': `Peak by category: ${label}` }, ...parts, kept, card),
    h('p', { class: 'scale muted', 'aria-hidden': 'true' }, ...(isSmall ? [limit, reserved] : [reserved, limit])));
}

const heading = (cell: string | Node) => h('th', { scope: 'row' }, cell);
const row = (name: string | Node, ...cells: (string | Node)[]) => h('tr', {}, heading(name), ...cells.map((cell) => h('td', { class: 'number' }, cell)));
// Columns of numbers have their heads on the right.
const table = (caption: string, heads: string[], rows: HTMLElement[]) => h('table', {}, h('caption', {}, caption),
  h('thead', {}, h('tr', {}, ...heads.map((head, i) => {
    const isNumber = rows[0]?.children[i]?.className === 'number';
    return h('th', { scope: 'col', class: isNumber ? 'number' : undefined }, head);
  }))), h('tbody', {}, ...rows));

export function categoryTable(run: Device): HTMLElement {
  const colours = palette('category', run.categories.map(({ name }) => name), theme());
  return table('At the peak', ['what', 'bytes', 'share'], run.categories.map(({ name, bytes }, i) => {
    const swatch = h('i', { class: 'swatch' });
    swatch.style.background = colours[i]!.css;
    return row(h('span', {}, swatch, name), size(bytes), percent(bytes, run.peak.allocated_bytes));
  }));
}

export function phaseTable(run: Device): HTMLElement {
  return table('By phase', ['phase', 'its peak', 'step', 'while'],
    run.phases.map((phase) => {
    const line = row(phase.name, size(phase.allocated_bytes), String(phase.step));
    line.append(h('td', {}, phase.op));
    return line;
  }));
}

export function factsOf(run: Device): string {
  const time = run.step_time_us === null ? '' : ` A step takes about ${duration(run.step_time_us)}${run.gpu ? ` on the ${run.gpu}` : ''}.`;
  return `${count(run.parameters)} parameters. The peak is in the ${run.peak.phase} of step ${run.peak.step} (${run.peak.op}).${time}`;
}

// What each technique saves, alone and after those above it. `use` takes it into the form; it is undefined for what the form has not.
export function techniqueTable(answer: Explained, use: (choice: { [key: string]: unknown }) => (() => void) | undefined): HTMLElement {
  const { without } = answer;
  const saves = (cost: Cost | null) => (cost ? saved(without.peak_allocated_bytes - cost.peak_allocated_bytes) : '-');
  const time = (cost: Cost | null) => (cost ? change(cost.step_time_us - without.step_time_us, without.step_time_us) : '-');
  return table('What each technique saves', ['technique', 'alone saves', 'time', 'peak so far', 'a step', ''],
    answer.techniques.map(({ technique, choice, alone, so_far }) => {
      const used = alone ? use(choice) : undefined;
      return row(technique, saves(alone), time(alone), so_far ? size(so_far.peak_allocated_bytes) : '-',
        so_far ? duration(so_far.step_time_us) : '-', used ? h('button', { type: 'button', 'aria-label': `Use ${technique}`, onclick: used }, 'Use') : '');
    }));
}

export function planTable(answer: Planned): HTMLElement[] {
  const { as_is, predicted, changes } = answer;
  const line = (name: string, cost: (Cost & { peak_reserved_bytes: number }) | undefined) => (cost
    ? [row(name, size(cost.peak_reserved_bytes), size(cost.peak_allocated_bytes), duration(cost.step_time_us))] : []);
  return [
    table('The plan', ['', 'reserved', 'allocated', 'a step'], [...line('as it is', as_is), ...line('this plan', predicted)]),
    ...(changes?.length ? [table('Its changes', ['change', 'saved', 'time'],
      changes.map((one) => row(one.technique, saved(one.saved_bytes), change(one.cost_us, as_is?.step_time_us ?? 0))))] : []),
  ];
}

// What a search for a plan found, as a sentence.
export function sentenceOf(answer: Planned): { text: string; kind: 'good' | 'alarm' } {
  const { as_is, predicted, verdict } = answer;
  const card = size(answer.budget_bytes);
  const needs = predicted ? `${size(predicted.peak_reserved_bytes)} reserved, ${duration(predicted.step_time_us)} a step` : '';
  const before = as_is ? ` (as it is: ${size(as_is.peak_reserved_bytes)}, ${duration(as_is.step_time_us)})` : '';
  if (verdict === 'does_not_fit') {
    const least = answer.is_proved && answer.lower_bound ? ` No plan needs less than ${size(answer.lower_bound.peak_bytes)} at its peak.` : '';
    return { text: `No plan that fits in ${card} was found; the nearest needs ${needs}${before}.${least}`, kind: 'alarm' };
  }
  const changes = answer.changes?.length ?? 0;
  const how = verdict === 'fits' ? (changes ? `as it is, and is faster with ${counted(changes, 'change')}` : 'as it is') : `with ${counted(changes, 'change')}`;
  return { text: `Fits in ${card} ${how}: ${needs}${before}.`, kind: 'good' };
}

// "2 notes", which unfold.
export const notesOf = (run: Device): HTMLElement | false => run.notes.length > 0 && h('details', {},
  h('summary', {}, counted(run.notes.length, 'note')), h('ul', {}, ...run.notes.map(({ message }) => h('li', {}, message))));
