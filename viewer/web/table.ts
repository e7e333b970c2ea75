// A JSON answer as tables: each list of objects is a table, and the other fields of the object follow in a table of two columns. Empty
// fields are left out, and so are those that only name the answer (ABOUT).

import { h } from '../src/dom.ts';
import { size } from '../src/format.ts';

type Value = null | boolean | number | string | Value[] | { [key: string]: Value };

const ROWS_MOST = 2000;
const ABOUT = ['schema', 'command', 'inputs'];

const isEmpty = (value: Value): boolean => value === null || value === '' || (Array.isArray(value) && !value.length);

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

function cell(key: string, value: Value | undefined): HTMLElement {
  if (typeof value !== 'number') return h('td', {}, short(value));
  if (/(^|_| )bytes$/.test(key)) return h('td', { class: 'number', title: `${value.toLocaleString('en-US')} B` }, size(value));
  return h('td', { class: 'number' }, /(^|_| )(line|time_us)$/.test(key) ? String(value) : short(value));
}

function rowsTable(name: string, rows: { [key: string]: Value }[]): HTMLElement {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row).filter((key) => !isEmpty(row[key]!))))];
  const isNumber = (key: string) => rows.some((row) => typeof row[key] === 'number');
  const rest = rows.length - ROWS_MOST;
  return h('table', {}, h('caption', {}, name + (rest > 0 ? ` (the first ${ROWS_MOST.toLocaleString('en-US')} rows)` : '')),
    h('thead', {}, h('tr', {}, ...keys.map((key) => h('th', { scope: 'col', class: isNumber(key) ? 'number' : undefined }, key)))),
    h('tbody', {}, ...rows.slice(0, ROWS_MOST).map((row) => h('tr', {}, ...keys.map((key) => cell(key, row[key]))))));
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
  const large = fields.filter(([key, field]) => isRows(field) && !ABOUT.includes(key));
  const plain = fields.filter(([key, field]) => !isRows(field) && !isEmpty(field) && !ABOUT.includes(key));
  return [
    ...large.flatMap(([key, field]) => tablesOf(key, field)),
    ...(plain.length ? [h('table', {}, h('caption', {}, name),
      h('tbody', {}, ...plain.map(([key, field]) => h('tr', {}, h('th', { scope: 'row' }, key), cell(key, field)))))] : []),
  ];
}
