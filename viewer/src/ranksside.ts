// What the side shows while no rank is chosen: who stands apart, who ran out of memory, what is missing. And above the map, the verdict and the
// groups, as the command prints them.

import { h } from './dom.ts';
import { clean, count, duration, exact, size } from './format.ts';
import { type Fleet, type Row, rowName } from './ranksdata.ts';

const MOST = 200; // of a list; more are counted

const RANKS_BY: Record<string, string> = { sidecar: 'their sidecars', pattern: 'the pattern', name: 'their names', order: 'their order' };
const GROUPS_BY: Record<string, string> = { sidecar: 'the sidecars\u2019 mesh', name: 'the names\u2019 mesh', mesh: 'the given mesh', likeness: 'likeness' };

const plural = (n: number, word: string): string => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

function cells(tag: 'td' | 'th', texts: string[], isLeft: (i: number) => boolean): HTMLElement[] {
  return texts.map((text, i) => h(tag, { class: isLeft(i) ? 'left' : 'right', scope: tag === 'th' ? 'col' : undefined }, text));
}

/** "rank 3, 8 to 15, 20 and 4 more". */
function spans(ranks: number[]): string {
  const out: string[] = [];
  let i = 0;
  for (; i < ranks.length && out.length < 40; i++) {
    const first = i;
    while (ranks[i + 1] === ranks[i]! + 1) i++;
    out.push(first === i ? count(ranks[i]!) : `${count(ranks[first]!)} to ${count(ranks[i]!)}`);
  }
  return out.join(', ') + (i < ranks.length ? ` and ${count(ranks.length - i)} more` : '');
}

export function answerHead(fleet: Fleet, show: (group: string) => void): HTMLElement {
  const { answer, verdict } = fleet;
  const ranks = fleet.rows.filter((r) => !r.isMissing && !r.isOther).length;
  const of = answer.world_size !== null && answer.world_size > ranks ? ` of ${count(answer.world_size)}` : '';
  const basis = `${plural(ranks, 'rank')}${of} in ${plural(answer.files, 'file')}, known by ${RANKS_BY[answer.ranks_by] ?? answer.ranks_by}; equals by ${GROUPS_BY[answer.groups_by] ?? answer.groups_by}`;
  const isLeft = (i: number) => i === 0;
  const rows = answer.groups.map((g) => h('tr', { tabindex: 0, title: 'show only these', onclick: () => show(g.name), onkeydown: (e: KeyboardEvent) => e.key === 'Enter' && show(g.name) },
    ...cells('td', [g.name, count(g.ranks.length), size(g.min_bytes), size(g.median_bytes), size(g.max_bytes)], isLeft)));
  const table = h('table', { class: 'plain-table groups', 'aria-label': 'Groups of equals' },
    h('thead', {}, h('tr', {}, ...cells('th', ['equals', 'ranks', 'lowest peak', 'median', 'highest'], isLeft))), h('tbody', {}, ...rows));
  const isAlarm = answer.out_of_memory.length > 0;
  return h('details', { class: 'answer', open: true },
    h('summary', {}, h('strong', { class: isAlarm ? 'verdict alarm' : 'verdict' }, verdict)),
    ranks > 0 && h('p', { class: 'muted basis' }, basis), ranks > 0 && h('div', { class: 'groups-box' }, table));
}

export function overview(fleet: Fleet, go: (row: Row) => void): HTMLElement {
  const { answer, rows } = fleet;
  const element = h('div', { class: 'overview-side' });
  const add = (title: string, ...content: (Node | null)[]) => element.append(h('h3', {}, title), ...content.filter((n): n is Node => !!n));
  const more = (n: number) => (n > MOST ? h('p', { class: 'muted' }, `and ${count(n - MOST)} more`) : null);
  const button = (row: Row, ...content: (Node | string)[]) => h('button', { type: 'button', class: `finding ${row.isDead ? 'is-alarm' : ''}`, onclick: () => go(row) }, ...content);
  const apart = answer.outliers.map((o) => rows.find((r) => r.outlier === o)).filter((r): r is Row => !!r);
  if (apart.length)
    add(`Stand${apart.length === 1 ? 's' : ''} apart from ${apart.length === 1 ? 'its' : 'their'} equals`,
      h('div', { class: 'finding-list' }, ...apart.slice(0, MOST).map((row) => button(row,
        h('strong', {}, `${rowName(row).replace(/^r/, 'R')}: ${size(row.outlier!.excess_bytes)} more`), h('span', {}, clean(row.outlier!.cause))))), more(apart.length));
  const dead = rows.filter((r) => r.death).sort((a, b) => a.death - b.death);
  if (dead.length)
    add('Out of memory, in order', h('div', { class: 'finding-list' }, ...dead.slice(0, MOST).map((row) => button(row, h('strong', {}, rowName(row).replace(/^r/, 'R')), h('span', {}, `peak ${exact(row.peak)}`)))), more(dead.length));
  const isLeft = () => false;
  if (answer.stragglers.length)
    add('Late in their steps', h('table', { class: 'plain-table', 'aria-label': 'Late in their steps' },
      h('thead', {}, h('tr', {}, ...cells('th', ['rank', 'late by', 'of a step of', 'in', 'of steps'], isLeft))),
      h('tbody', {}, ...answer.stragglers.slice(0, MOST).map((s) => h('tr', {}, ...cells('td', [String(s.rank), duration(s.late_us), duration(s.step_us), count(s.late_steps), count(s.steps)], isLeft))))), more(answer.stragglers.length));
  if (answer.growth.length) {
    add('Growth from a rank\u2019s first snapshot to its last', h('table', { class: 'plain-table', 'aria-label': 'Growth' },
      h('thead', {}, h('tr', {}, ...cells('th', ['rank', 'snapshots', 'first', 'last', 'an hour'], isLeft))),
      h('tbody', {}, ...answer.growth.slice(0, MOST).map((g) => h('tr', {}, ...cells('td', [String(g.rank), count(g.snapshots), size(g.first_bytes), size(g.last_bytes), g.bytes_per_hour === null ? '' : size(g.bytes_per_hour)], isLeft))))), more(answer.growth.length));
  }
  if (answer.missing_parts.length) add('Missing parts', h('p', {}, `The sketches of part ${spans(answer.missing_parts)} are not there; their ranks are not counted as missing.`));
  else if (answer.missing.length) add('Missing', h('p', {}, `No snapshot of rank${answer.missing.length > 1 ? 's' : ''} ${spans(answer.missing)}`));
  if (answer.broken.length)
    add(`${plural(answer.broken.length, 'file')} could not be read`, h('ul', { class: 'broken' }, ...answer.broken.slice(0, MOST).map((b) => h('li', {}, h('bdi', {}, clean(b.path)), ': ', clean(b.message)))), more(answer.broken.length));
  if (fleet.head.others) element.append(h('p', { class: 'muted' }, 'The job is so large that fewer stacks and steps are listed of each rank.'));
  if (rows.length) element.append(h('p', { class: 'muted' }, 'Choose a rank in the map to see its own memory.'));
  return element;
}
