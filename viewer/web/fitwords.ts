// The form of "Will it fit?" as words of a command line, as Python, and back. Which options a question has comes from the registry.

import type { Parameter, Question } from './main.ts';

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
  [question.name, model, ...optionWords(question, values)];

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

// The model and the options of words; those that the question does not have are left out.
export function valuesOf(question: Question, words: string[]): { model: string; values: Values } {
  const values: Values = new Map();
  let model = '';
  for (let i = 0; i < words.length; i++) {
    const row = rowsOf(question).find((one) => `--${one.option}` === words[i]);
    if (row?.control === 'tick') values.set(row.option, TICKED);
    else if (row && i + 1 < words.length) values.set(row.option, words[++i]!);
    else if (!words[i]!.startsWith('--')) model = words[i]!;
  }
  return { model, values };
}

// A choice of a plan, {"gelu": "fused"}, as options; undefined if it has a key that no option stands for.
export function valuesOfChoice(question: Question, choice: { [key: string]: unknown }): Values | undefined {
  const values: Values = new Map();
  for (const [key, value] of Object.entries(choice)) {
    const row = rowsOf(question).find((one) => one.name === key);
    if (!row || (typeof value === 'object' && value !== null)) return undefined;
    values.set(row.option, value === true ? TICKED : String(value));
  }
  return values;
}
