// The fields of "Will it fit?": one for each option of `simulate`, in the registry's words.

import { h } from '../src/dom.ts';
import { count, roundSize } from '../src/format.ts';
import { TICKED, type Values } from './fitwords.ts';
import type { Parameter, Question } from './main.ts';

// What the module lists beside the questions: `web lists`.
export interface Lists {
  models: string[];
  cards: { name: string; title: string; memory_bytes: number }[];
}

export type Card = Lists['cards'][number];

export interface FormState {
  model: string;
  values: Values;
}

const GIB = 2 ** 30;
// Before what help lists first: the card is what the form asks about.
const FIRST = ['gpu', 'capacity'];

// A card's memory as it is typed.
export const capacityOf = (card: Card): string =>
  card.memory_bytes % GIB === 0 ? `${card.memory_bytes / GIB}GiB` : String(card.memory_bytes);

const labelled = (name: string, help: string, input: HTMLElement) => {
  input.setAttribute('aria-description', help);
  input.dataset.help = help;
  return h('label', { title: help }, h('span', {}, name), input);
};

// `changed` gets true while the user may still be typing.
type Changed = (isTyping: boolean) => void;

function listed(id: string, words: string[]): HTMLElement {
  return h('datalist', { id }, ...words.map((word) => h('option', { value: word })));
}

function optionField(row: Parameter, state: FormState, lists: Lists, changed: Changed): HTMLElement {
  const set = (value: string, isTyping: boolean) => {
    if (value) state.values.set(row.option, value);
    else state.values.delete(row.option);
    changed(isTyping);
  };
  const given = state.values.get(row.option) ?? '';
  if (row.control === 'tick') {
    const box = h('input', { type: 'checkbox', name: row.option, checked: given !== '', onchange: () => set(box.checked ? TICKED : '', false) });
    return labelled(row.option, row.help, box);
  }
  // Words such as chunked:N are typed.
  const isOpen = !row.choices || row.choices.some((word) => word.includes(':'));
  if (!isOpen) {
    const title = (word: string) => {
      const card = row.option === 'gpu' ? lists.cards.find((one) => one.name === word) : undefined;
      return card ? `${card.title}, ${roundSize(card.memory_bytes)}` : word || '(default)';
    };
    const list = h('select', { name: row.option, onchange: () => set(list.value, false) },
      ...['', ...row.choices!].map((word) => h('option', { value: word, selected: word === given }, title(word))));
    return labelled(row.option, row.help, list);
  }
  const listId = row.choices ? `fit-${row.option}-words` : row.control === 'file' ? 'fit-files' : undefined;
  const box = h('input', {
    name: row.option, value: given, placeholder: row.default === undefined ? row.argument ?? '' : count(row.default), list: listId,
    spellcheck: 'false', autocomplete: 'off', inputmode: row.default === undefined ? undefined : 'numeric',
    oninput: () => set(box.value.trim(), true), onchange: () => set(box.value.trim(), false),
  });
  const field = labelled(row.option, row.help, box);
  if (row.choices) field.append(listed(listId!, row.choices));
  return field;
}

function modelField(row: Parameter, state: FormState, lists: Lists, files: string[], changed: Changed): HTMLElement {
  const set = (isTyping: boolean) => {
    state.model = box.value.trim();
    changed(isTyping);
  };
  const box = h('input', {
    name: row.option, value: state.model, list: 'fit-models', required: true, spellcheck: 'false', autocomplete: 'off',
    oninput: () => set(true), onchange: () => set(false),
  });
  const field = labelled(row.option, row.help, box);
  field.classList.add('wide');
  field.append(listed('fit-models', [...lists.models, ...files]));
  return field;
}

// All fields; those that help does not list first are folded away. The help of the field with the focus is shown below them.
export function formOf(question: Question, state: FormState, lists: Lists, files: string[], changed: Changed): HTMLElement {
  const main = [...FIRST, ...(question.main_options ?? '').split(' ')];
  const isMain = (row: Parameter) => row.control !== 'file' && main.includes(row.option);
  const rows = question.parameters.filter((row) => !row.is_operand);
  const fields = (of: Parameter[]) => of.map((row) => optionField(row, state, lists, changed));
  const first = rows.filter(isMain).sort((a, b) => main.indexOf(a.option) - main.indexOf(b.option));
  const rest = rows.filter((row) => !isMain(row));
  const used = rest.some((row) => state.values.has(row.option));
  const help = h('p', { class: 'muted help', 'aria-hidden': 'true' });
  const form = h('form', { class: 'fit-form fit-fields', 'aria-label': 'The training', onsubmit: (event: Event) => event.preventDefault() },
    ...question.parameters.filter((row) => row.is_operand).map((row) => modelField(row, state, lists, files, changed)),
    ...fields(first),
    h('details', { open: used }, h('summary', {}, `${rest.length} more options`), h('div', { class: 'fit-fields' }, ...fields(rest))), help,
    listed('fit-files', files));
  form.addEventListener('focusin', (event) => (help.textContent = (event.target as HTMLElement).dataset.help ?? ''));
  return form;
}
