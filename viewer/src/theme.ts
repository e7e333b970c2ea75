// Colours. A group's colour is stable: categories have their own, others go by name.

export type Theme = 'light' | 'dark';

const CATEGORY: Record<string, number> = {
  parameter: 0,
  activation: 1,
  gradient: 2,
  optimizer_state: 3,
  temporary: 4,
  recomputed: 13,
  input: 8,
  communication: 9,
  workspace: 6,
  buffer: 7,
  kv_cache: 10,
  cast: 5,
  unknown: 12,
};

// Hues that stay apart for most kinds of colour vision, of like weight on the page.
const LIGHT = [
  '#4878a8', '#e09438', '#5a9e57', '#8a6cb0', '#3c9d9b', '#d0719c', '#a3765a', '#9a9a3c', '#6fa8d6',
  '#c4534c', '#6a6fc0', '#7f9482', '#a4abb5', '#d9b36a', '#8cc084', '#b9a0d0',
];
const DARK = [
  '#5c8fc4', '#dc9a4a', '#69ab66', '#9a80c4', '#4aaba8', '#d883aa', '#b08566', '#a8a84c', '#7db4e0',
  '#cf6660', '#7f84d2', '#8ba28e', '#808894', '#d6b774', '#92c48b', '#bda8d6',
];

export interface Swatch {
  css: string;
  shades: number[]; // ABGR: as drawn
  faint: number[]; // above the lowest moment of a column
  dim: number; // what a search does not match
  edge: number;
}

function rgb(hex: string): [number, number, number] {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function pack(r: number, g: number, b: number): number {
  const c = (x: number) => Math.max(0, Math.min(255, Math.round(x)));
  return ((255 << 24) | (c(b) << 16) | (c(g) << 8) | c(r)) >>> 0;
}

function mix(hex: string, other: string, part: number): number {
  const [a, b] = [rgb(hex), rgb(other)];
  return pack(a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part, a[2] + (b[2] - a[2]) * part);
}

function swatch(css: string, theme: Theme): Swatch {
  const paper = theme === 'light' ? '#ffffff' : '#14171c';
  const far = theme === 'light' ? '#ffffff' : '#000000';
  const near = theme === 'light' ? '#000000' : '#ffffff';
  const shades = [0, 0.09, 0.17, 0.05, 0.13].map((part) => mix(css, far, part));
  const [r, g, b] = rgb(css);
  const grey = 0.3 * r + 0.59 * g + 0.11 * b;
  const hex = `#${[grey, grey, grey].map((x) => Math.round(x).toString(16).padStart(2, '0')).join('')}`;
  return {
    css,
    shades,
    faint: shades.map((_, i) => mix(css, paper, 0.4 + i * 0.02)),
    dim: mix(hex, paper, 0.78),
    edge: mix(css, near, 0.14),
  };
}

function hash(text: string): number {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return h >>> 0;
}

const QUIET = /^\((before|outside|no |none|other|smaller)|^unknown$/;

/** A colour for each group of a grouping. */
export function palette(key: string, names: string[], theme: Theme): Swatch[] {
  const hues = theme === 'light' ? LIGHT : DARK;
  const taken = new Set<number>();
  return names.map((name) => {
    let at = key === 'category' ? CATEGORY[name] : undefined;
    if (at === undefined && QUIET.test(name)) at = taken.has(12) ? 11 : 12;
    if (at === undefined) {
      at = hash(name) % 12;
      for (let i = 0; i < 16 && (taken.has(at) || at === 12); i++) at = (at + 1) % 16;
    }
    taken.add(at);
    return swatch(hues[at]!, theme);
  });
}

/** What canvases need of the style sheet. */
export function ink(): Record<'ink' | 'muted' | 'line' | 'paper' | 'accent' | 'alarm' | 'raised', string> {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: get('ink'),
    muted: get('muted'),
    line: get('line'),
    paper: get('paper'),
    raised: get('raised'),
    accent: get('accent'),
    alarm: get('alarm'),
  };
}
