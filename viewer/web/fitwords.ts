// The form of "Will it fit?" as words of a command line, as Python, and back. Which options a question has comes from the registry.

import { fileWord } from './dropped.ts';
import type { Parameter, Question } from './main.ts';

// A parameter of `simulate`: whether it is open for a step graph, which fixes all others.
export type Row = Parameter & { is_of_graphs?: boolean };

// By option; a tick is 'yes'. An option that is absent has the command's default.
export type Values = Map<string, string>;

export const TICKED = 'yes';

const rowsOf = (question: Question) => question.parameters.filter((row) => !row.is_operand);

// The options that a question has, in the order of the registry.
export function optionWords(question: Question, values: Values): string[] {
  return rowsOf(question).flatMap((row) => {
    const value = values.get(row.option);
    if (value === undefined) return [];
    return row.control === 'tick' ? [`--${row.option}`] : [`--${row.option}`, value];
  });
}

export const questionWords = (question: Question, model: string, values: Values): string[] =>
  [question.name, fileWord(model), ...optionWords(question, values)];

// Options of the form that a question has not.
export const missingIn = (question: Question, values: Values): string[] =>
  [...values.keys()].filter((option) => !question.parameters.some((row) => row.option === option));

const literal = (row: Parameter, value: string): string => {
  if (row.control === 'tick') return 'True';
  return row.control === 'type' && /^\d+$/.test(value) ? value : JSON.stringify(value);
};

export function pythonOf(question: Question, model: string, values: Values): string {
  const given = rowsOf(question).filter((row) => values.has(row.option));
  const parts = [JSON.stringify(model), ...given.map((row) => `${row.name}=${literal(row, values.get(row.option)!)}`)];
  return `import tessera\n\nprint(tessera.${question.name}(${parts.join(', ')}))\n`;
}

// The model and the options of words. What the question does not have is kept apart, with what may be its value.
export function valuesOf(question: Question, words: string[]): { model?: string; values: Values; unknown: string[] } {
  const values: Values = new Map();
  const unknown: string[] = [];
  let model: string | undefined;
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    const [name, joined] = /^--[^=]+=/.test(word) ? [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)] : [word, undefined];
    const row = rowsOf(question).find((one) => `--${one.option}` === name);
    const next = (): string | undefined => joined ?? words[++i];
    if (row?.control === 'tick' && joined === undefined) values.set(row.option, TICKED);
    else if (row && (joined !== undefined || i + 1 < words.length)) values.set(row.option, next()!);
    else if (word.startsWith('-')) {
      unknown.push(word);
      if (!row && joined === undefined && words[i + 1]?.startsWith('-') === false) unknown.push(words[++i]!);
    } else if (model === undefined) model = word;
    else unknown.push(word);
  }
  return { model, values, unknown };
}

// The keys of a plan, {"gelu": "fused"}, that are options, and those that no option stands for.
export function splitPlan(question: Question, plan: { [key: string]: unknown }): { values: Values; rest: { [key: string]: unknown } } {
  const values: Values = new Map();
  const rest: { [key: string]: unknown } = {};
  for (const [key, value] of Object.entries(plan)) {
    const row = rowsOf(question).find((one) => one.name === key);
    if (!row || (typeof value === 'object' && value !== null)) rest[key] = value;
    else if (value !== false) values.set(row.option, value === true ? TICKED : String(value));
  }
  return { values, rest };
}
