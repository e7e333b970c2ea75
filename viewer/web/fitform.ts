// The fields of "Will it fit?": one for each option of `simulate`, in the registry's words.

import { h, replace } from '../src/dom.ts';
import { count, roundSize } from '../src/format.ts';
import { type Row, TICKED, type Values } from './fitwords.ts';
import type { Question } from './main.ts';

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
const WIDE_LETTERS = 24;

// A card's memory as it is typed.
export const capacityOf = (card: Card): string =>
  card.memory_bytes % GIB === 0 ? `${card.memory_bytes / GIB}GiB` : String(card.memory_bytes);

const helpId = (name: string) => `fit-help-${name}`;
const wrongId = (name: string) => `fit-wrong-${name}`;
const CLOSED_ID = 'fit-closed';

// A field with its name, its help, which is seen while it has the focus, and what is wrong with it.
function labelled(row: Row, input: HTMLElement): HTMLElement {
  input.setAttribute('aria-describedby', helpId(row.option));
  return h('div', { class: 'field' }, h('label', { title: row.help }, h('span', {}, row.option), input),
    h('p', { class: 'wrong', id: wrongId(row.option), hidden: true }), h('p', { class: 'help', id: helpId(row.option) }, row.help));
}

// `changed` gets true while the user may still be typing.
type Changed = (isTyping: boolean) => void;

function listed(id: string, words: string[]): HTMLElement {
  return h('datalist', { id }, ...words.map((word) => h('option', { value: word })));
}

// What an empty field stands for, in the words of help.
export const defaultOf = (row: Row): string => {
  if (row.default !== undefined) return count(row.default);
  const [, said] = /\(default: ([^();,]+)/.exec(row.help) ?? /(\S+) \(default/.exec(row.help) ?? /\((\S+), default/.exec(row.help) ?? [];
  return said?.trim() ?? '';
};

function optionField(row: Row, state: FormState, lists: Lists, changed: Changed): HTMLElement {
  const set = (value: string, isTyping: boolean) => {
    if (value) state.values.set(row.option, value);
    else state.values.delete(row.option);
    changed(isTyping);
  };
  const given = state.values.get(row.option) ?? '';
  if (row.control === 'tick') {
    const box = h('input', { type: 'checkbox', name: row.option, checked: given !== '', onchange: () => set(box.checked ? TICKED : '', false) });
    return labelled(row, box);
  }
  // Words such as chunked:N are typed.
  const isOpen = !row.choices || row.choices.some((word) => word.includes(':'));
  if (!isOpen) {
    const title = (word: string) => {
      const card = row.option === 'gpu' ? lists.cards.find((one) => one.name === word) : undefined;
      if (card) return `${card.title}, ${roundSize(card.memory_bytes)}`;
      return word || (row.choices!.includes(defaultOf(row)) ? `${defaultOf(row)} (default)` : '(default)');
    };
    // A word that is no choice is kept as it was given: the command says what is wrong with it.
    const words = ['', ...row.choices!, ...(given && !row.choices!.includes(given) ? [given] : [])];
    const list = h('select', { name: row.option, onchange: () => set(list.value, false) },
      ...words.map((word) => h('option', { value: word, selected: word === given }, title(word))));
    const field = labelled(row, list);
    field.classList.toggle('wide', words.some((word) => title(word).length > WIDE_LETTERS));
    return field;
  }
  const listId = row.choices ? `fit-${row.option}-words` : row.argument === 'FILE' || row.control === 'file' ? 'fit-files' : undefined;
  const box = h('input', {
    name: row.option, value: given, placeholder: defaultOf(row), list: listId,
    spellcheck: 'false', autocomplete: 'off', inputmode: row.default === undefined ? undefined : 'numeric',
    oninput: () => set(box.value.trim(), true), onchange: () => set(box.value.trim(), false),
  });
  const field = labelled(row, box);
  if (row.choices) field.append(listed(listId!, row.choices));
  return field;
}

function modelField(row: Row, state: FormState, lists: Lists, files: string[], changed: Changed): HTMLElement {
  const set = (isTyping: boolean) => {
    state.model = box.value.trim();
    changed(isTyping);
  };
  const box = h('input', {
    name: row.option, value: state.model, list: 'fit-models', required: true, spellcheck: 'false', autocomplete: 'off',
    placeholder: 'a name, or a file that is dropped', oninput: () => set(true), onchange: () => set(false),
  });
  const field = labelled(row, box);
  field.classList.add('wide');
  field.append(listed('fit-models', [...lists.models, ...files]));
  return field;
}

// All fields; those that help does not list first are folded away.
export function formOf(question: Question, state: FormState, lists: Lists, files: string[], changed: Changed): HTMLFormElement {
  const main = [...FIRST, ...(question.main_options ?? '').split(' ')];
  const isMain = (row: Row) => row.control !== 'file' && main.includes(row.option);
  const rows = question.parameters.filter((row) => !row.is_operand);
  const fields = (of: Row[]) => of.map((row) => optionField(row, state, lists, changed));
  const first = rows.filter(isMain).sort((a, b) => main.indexOf(a.option) - main.indexOf(b.option));
  const rest = rows.filter((row) => !isMain(row));
  const used = rest.some((row) => state.values.has(row.option));
  return h('form', { class: 'fit-form fit-fields', 'aria-label': 'The training', onsubmit: (event: Event) => event.preventDefault() },
    ...question.parameters.filter((row) => row.is_operand).map((row) => modelField(row, state, lists, files, changed)),
    h('p', { class: 'muted closed', id: CLOSED_ID, hidden: true },
      'A step graph is simulated as it was traced: the options that are off do not apply to it, and are not passed.'),
    ...fields(first),
    h('details', { open: used }, h('summary', {}, `${rest.length} more options`), h('div', { class: 'fit-fields' }, ...fields(rest))),
    listed('fit-files', files));
}

type Input = HTMLInputElement | HTMLSelectElement;

const inputOf = (form: HTMLElement, name: string): Input | undefined => [...form.querySelectorAll<Input>('input, select')].find((one) => one.name === name);

// Close the fields that do not apply to a step graph, or open them again.
export function closeFields(form: HTMLElement, question: Question, isGraph: boolean): void {
  form.querySelector<HTMLElement>(`#${CLOSED_ID}`)!.hidden = !isGraph;
  for (const row of question.parameters as Row[]) {
    const input = inputOf(form, row.option);
    const isClosed = isGraph && !row.is_of_graphs;
    if (!input || input.disabled === isClosed) continue;
    input.disabled = isClosed;
    input.setAttribute('aria-describedby', isClosed ? CLOSED_ID : helpId(row.option));
  }
}

// Say what is wrong at the fields that it is about; no names: nothing is.
export function blame(form: HTMLElement, names: string[], message: string): void {
  for (const input of form.querySelectorAll<Input>('[aria-invalid]')) {
    input.removeAttribute('aria-invalid');
    input.setAttribute('aria-describedby', helpId(input.name));
  }
  for (const place of form.querySelectorAll<HTMLElement>('.wrong')) place.hidden = true;
  for (const name of names) {
    const input = inputOf(form, name);
    const place = input?.closest('.field')?.querySelector<HTMLElement>('.wrong');
    if (!input || !place) continue;
    input.setAttribute('aria-invalid', 'true');
    input.setAttribute('aria-describedby', `${place.id} ${helpId(name)}`);
    replace(place, message);
    place.hidden = false;
    const folded = input.closest('details');
    if (folded) folded.open = true;
  }
}

// Draw the form anew, with the focus where it was.
export function refill(place: HTMLElement, form: HTMLFormElement): void {
  const old = document.activeElement as Input | null;
  const name = place.contains(old) ? old?.name : undefined;
  const wasOpen = place.querySelector('details')?.open;
  replace(place, form);
  if (wasOpen) form.querySelector('details')!.open = true;
  if (name) inputOf(form, name)?.focus({ preventScroll: true });
}
