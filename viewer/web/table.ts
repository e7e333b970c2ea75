// A JSON answer as tables: an object's plain fields in rows of two, each list of objects as a table of its own.

import { h } from '../src/dom.ts';

type Value = null | boolean | number | string | Value[] | { [key: string]: Value };

const ROWS_MOST = 2000;

const isObject = (value: Value | undefined): value is { [key: string]: Value } =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isRows = (value: Value): value is { [key: string]: Value }[] => Array.isArray(value) && value.length > 0 && value.every(isObject);

function short(value: Value | undefined): string {
  if (value === undefined || value === null) return '';
  if (typeof value === 'number') return value.toLocaleString('en-US');
  if (typeof value !== 'object') return String(value);
  if (isRows(value) && 'name' in value[0]! && 'line' in value[0]!)
    return value.map((frame) => `${short(frame.name)} (${short(frame.file)}:${frame.line})`).slice(0, 3).join(' < ');
  if (isObject(value)) return Object.entries(value).map(([key, of]) => `${key} ${short(of)}`).join(', ');
  return value.map(short).join(', ');
}

const cell = (value: Value | undefined) => h('td', { class: typeof value === 'number' ? 'number' : undefined }, short(value));

function rowsTable(name: string, rows: { [key: string]: Value }[]): HTMLElement {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const rest = rows.length - ROWS_MOST;
  return h('table', {}, h('caption', {}, name + (rest > 0 ? ` (the first ${ROWS_MOST.toLocaleString('en-US')} rows)` : '')),
    h('thead', {}, h('tr', {}, ...keys.map((key) => h('th', { scope: 'col' }, key)))),
    h('tbody', {}, ...rows.slice(0, ROWS_MOST).map((row) => h('tr', {}, ...keys.map((key) => cell(row[key]))))));
}

// The tables of a value that is called `name`.
export function tablesOf(name: string, value: Value): HTMLElement[] {
  if (isRows(value)) {
    const nested = value.some((row) => Object.values(row).some((field) => isRows(field) && !('line' in field[0]!)));
    if (!nested) return [rowsTable(name, value)];
    return value.flatMap((row, i) => tablesOf(value.length > 1 ? `${name} ${i + 1}` : name, row));
  }
  if (!isObject(value)) return [h('p', {}, `${name}: ${short(value)}`)];
  const fields = Object.entries(value).flatMap(([key, field]): [string, Value][] =>
    isObject(field) ? Object.entries(field).map(([inner, of]) => [`${key} ${inner}`, of]) : [[key, field]]);
  const large = fields.filter(([, field]) => isRows(field));
  const plain = fields.filter(([, field]) => !isRows(field));
  return [
    h('table', {}, h('caption', {}, name),
      h('tbody', {}, ...plain.map(([key, field]) => h('tr', {}, h('th', { scope: 'row' }, key), cell(field))))),
    ...large.flatMap(([key, field]) => tablesOf(key, field)),
  ];
}
