// Which rows the map has, and in which order.

import { count, size } from './format.ts';
import { type Fleet, type Row, rowName } from './ranksdata.ts';

export type Sort = 'group' | 'size' | 'rank';

/** Rows one below the other, with or without a heading. */
export interface Segment {
  title: string;
  rows: Row[];
  telling: number; // how many of them come first because they ran out of memory or stand apart
}

function words(fleet: Fleet, row: Row): string {
  const axes = Object.entries(row.coordinates).map(([name, at]) => `${name}=${at}`);
  return [rowName(row), fleet.answer.groups[row.group]?.name, row.path, ...axes, row.outlier?.cause, row.outlier && 'outlier', row.isDead && 'oom out of memory', row.isMissing && 'missing']
    .filter(Boolean).join(' ').toLowerCase();
}

/** Whether a row is meant by what was typed: numbers and ranges of ranks, a group's name, or words that all must be found. */
export function finder(fleet: Fleet, query: string): (row: Row) => boolean {
  const text = query.trim().toLowerCase();
  if (!text) return () => true;
  const ranges = text.split(/[\s,]+/).map((w) => /^(\d+)(?:-(\d+))?$/.exec(w));
  if (ranges.every(Boolean)) {
    const spans = ranges.map((m) => [Number(m![1]), Number(m![2] ?? m![1])] as const);
    return (row) => spans.some(([a, b]) => row.rank >= a && row.rank <= b);
  }
  const groups = new Set(fleet.answer.groups.map((g, i) => (g.name.toLowerCase() === text ? i : -1)).filter((i) => i >= 0));
  if (groups.size) return (row) => groups.has(row.group);
  const wanted = text.split(/\s+/);
  return (row) => {
    const said = words(fleet, row);
    return wanted.every((w) => said.includes(w));
  };
}

const excess = (row: Row): number => row.outlier?.excess_bytes ?? 0;
/** Those that ran out of memory first, in order of death, then those that stand apart. */
const telling = (a: Row, b: Row): number => (a.death || Infinity) - (b.death || Infinity) || excess(b) - excess(a);
const byRank = (a: Row, b: Row): number => a.rank - b.rank || Number(a.isOther) - Number(b.isOther);

export function arrange(fleet: Fleet, sort: Sort, query: string): Segment[] {
  const rows = fleet.rows.filter(finder(fleet, query));
  const isTelling = (r: Row) => r.death > 0 || !!r.outlier;
  if (sort === 'rank') return [{ title: '', rows: rows.sort(byRank), telling: 0 }];
  const present = rows.filter((r) => !r.isMissing);
  const missing = rows.filter((r) => r.isMissing).sort(byRank);
  const segments: Segment[] = [];
  if (sort === 'size') segments.push({ title: '', rows: present.sort((a, b) => b.peak - a.peak || byRank(a, b)), telling: 0 });
  else
    fleet.answer.groups.forEach((group, g) => {
      const members = present.filter((r) => r.group === g);
      const first = members.filter(isTelling).sort((a, b) => telling(a, b) || byRank(a, b));
      const said = members.length === group.ranks.length ? count(members.length) : `${count(members.length)} of ${count(group.ranks.length)}`;
      const title = `${group.name}: ${said} ${members.length === 1 ? 'rank' : 'ranks'}, median ${size(group.median_bytes)}`;
      if (members.length) segments.push({ title, rows: [...first, ...members.filter((r) => !isTelling(r)).sort(byRank)], telling: first.length });
    });
  if (missing.length) segments.push({ title: `no snapshot: ${count(missing.length)} ${missing.length === 1 ? 'rank' : 'ranks'}`, rows: missing, telling: 0 });
  return segments;
}
