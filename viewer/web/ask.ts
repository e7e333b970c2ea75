// One question: its form, its command line, and its answer as text, tables, JSON, or a page in a frame.

import { h, replace } from '../src/dom.ts';
import { size } from '../src/format.ts';
import { fileWord, folderOf, nameOf } from './dropped.ts';
import { closeFrame, frameOf } from './frame.ts';
import type { Done, Outcome, Runner } from './job.ts';
import type { Parameter, Question } from './main.ts';
import { tablesOf } from './table.ts';
import { quote, split } from './words.ts';

export type Form = 'text' | 'table' | 'json';

export interface State {
  question?: string;
  options: string;
  form: Form;
}

// What a question needs of the page around it.
export interface Host {
  runner: Runner;
  files: Map<string, File>;
  chosen: string[]; // of the files, for the question's subjects
  state: State;
  questions: Question[];
  say(text: string): void;
  keep(): void; // put the state into the address
  open(name: string, options: string, line?: string[]): void; // with `line`, that is what is asked
}

const FORMS: [Form, string][] = [['text', 'Text'], ['table', 'Table'], ['json', 'JSON']];
const SHOWN_BYTES = 4 << 20;
// Hidden, so that no file of the user has this name (dropped.ts).
const PAGE = '.page.html';
export const VIEW = 'view';
// Exit statuses (docs/exit-status.md).
const USAGE = 2;
const FAULT = 4;
const STALE_MS = 200;

type Values = Map<Parameter, string[]>;

function optionWords(values: Values): string[] {
  const words: string[] = [];
  for (const [parameter, given] of values) {
    if (parameter.is_operand) continue;
    for (const value of given) words.push(...(parameter.control === 'tick' ? [`--${parameter.option}`] : [`--${parameter.option}`, value]));
  }
  return words;
}

// Options that the address has, as values of the form; the words that are none of its options are kept as they are.
function valuesOf(question: Question, words: string[]): { values: Values; rest: string[] } {
  const values: Values = new Map();
  const rest: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const parameter = question.parameters.find((row) => !row.is_operand && `--${row.option}` === words[i]);
    if (!parameter) rest.push(words[i]!);
    else if (parameter.control === 'tick') values.set(parameter, ['yes']);
    else if (i + 1 < words.length) values.set(parameter, [...(values.get(parameter) ?? []), words[++i]!]);
  }
  return { values, rest };
}

let runs = 0;

// End what runs, whose answer is no longer wanted.
export function leaveQuestion(runner: Runner): void {
  runs++;
  runner.cancel();
  closeFrame();
}

export class Asked {
  readonly #host: Host;
  readonly #question: Question;
  readonly #values: Values;
  readonly #rest: string[];
  readonly #help = h('p', { class: 'muted help', id: 'option-help' });
  readonly #line = h('input', { 'aria-label': 'Command line, without the program\u2019s name', spellcheck: 'false', autocomplete: 'off' });
  readonly #answer = h('div', { class: 'answer', id: 'answer', tabindex: '0', role: 'tabpanel', 'aria-labelledby': 'form-text' });
  readonly #messages = h('p', { class: 'messages', role: 'alert' });
  readonly #hint = h('p', { class: 'hint' });
  readonly #progress = h('progress', { hidden: true, 'aria-label': 'Reading' });
  readonly #cancel: HTMLButtonElement;
  #urls: string[] = [];

  constructor(host: Host, question: Question) {
    this.#host = host;
    this.#question = question;
    const { values, rest } = valuesOf(question, split(host.state.options));
    this.#values = values;
    this.#rest = rest;
    this.#cancel = h('button', { hidden: true, onclick: () => host.runner.cancel() }, 'Cancel');
    this.#line.addEventListener('keydown', (event) => event.key === 'Enter' && this.#askLine());
  }

  // What is shown for the question.
  elements(): HTMLElement[] {
    const { parameters, subjects, main_options } = this.#question;
    const main = new Set((main_options ?? '').split(' '));
    const isMain = (row: Parameter) => row.is_operand || parameters.length <= 8 || main.has(row.option);
    const fields = (of: Parameter[]) => h('div', { class: 'fields' }, ...of.map((row) => this.#field(row)));
    const rarer = parameters.filter((row) => !isMain(row));
    const tabs = this.#tabs();
    tabs.hidden = this.#question.name === VIEW;
    this.#fill();
    return [
      h('h2', { class: 'offscreen' }, this.#question.summary),
      h('div', { class: 'ask' },
        h('div', { class: 'fields' }, ...subjects.map((_, i) => this.#subject(i)), subjects.length === 2 && this.#swap(), fields(parameters.filter(isMain))),
        rarer.length > 0 && h('details', {}, h('summary', {}, `${rarer.length} more options`), fields(rarer)),
        this.#help,
        h('div', { class: 'line' }, h('span', { class: 'muted' }, 'tessera'), this.#line,
          h('button', { class: 'main', onclick: () => this.#askLine() }, 'Ask'),
          h('button', { onclick: () => void this.#run(['help', this.#question.name], false) }, 'Help'), this.#progress, this.#cancel)),
      h('datalist', { id: 'file-names' }, ...[...this.#host.files.keys()].map((path) => h('option', { value: path }))),
      tabs, this.#messages, this.#hint, this.#answer,
    ];
  }

  // Ask what was typed, or as the form stands, if it can be asked.
  askAtOnce(line?: string[]): void {
    if (line) {
      this.#line.value = line.map(quote).join(' ');
      void this.#run(line, false);
      return;
    }
    const { subjects, parameters } = this.#question;
    const needed = this.#rest.length ? undefined : parameters.find((row) => row.is_operand && !row.is_many && !this.#values.get(row)?.length);
    const wantsFiles = subjects.length > this.#host.chosen.length || (!this.#host.files.size && parameters.some((row) => row.is_many));
    if (wantsFiles)
      replace(this.#answer, h('p', { class: 'muted' }, this.#host.chosen.length ? 'Drop a second snapshot to compare.' : 'Drop a snapshot first.'));
    else if (!subjects.length && needed) replace(this.#answer, h('p', { class: 'muted' }, `Fill in ${needed.name}. `,
      h('button', { onclick: () => this.#host.open('fit', '') }, 'Will it fit?'), ' asks the same with a form that answers while it is filled in.'));
    else void this.#run(split(this.#line.value), true);
  }

  #changed = () => {
    this.#fill();
    void this.#run(split(this.#line.value), true);
  };

  #fill(): void {
    const options = [...optionWords(this.#values), ...this.#rest];
    this.#host.state.options = options.map(quote).join(' ');
    this.#line.value = [this.#question.name, ...options, ...this.#operands()].map(quote).join(' ');
    this.#host.keep();
  }

  #operands(): string[] {
    const { files, chosen } = this.#host;
    const operands = this.#question.parameters.filter((parameter) => parameter.is_operand);
    const typed = operands.flatMap((parameter) => this.#values.get(parameter) ?? []);
    const names = [...files.keys()];
    const everything = operands.some((parameter) => parameter.is_many) && !typed.length ? [folderOf(names) ?? names].flat() : [];
    return [...chosen.slice(0, this.#question.subjects.length), ...typed, ...everything].map(fileWord);
  }

  // What was typed into the line: the form and the address follow it, where they have what it says.
  #askLine(): void {
    const words = split(this.#line.value);
    if (words[0] === 'tessera') words.shift();
    const question = this.#host.questions.find((row) => row.name === words[0]);
    if (!words.length) {
      this.#hint.textContent = 'Type a question, such as: peak FILE';
      return;
    }
    const isFile = (word: string) => this.#host.files.has(nameOf(word)) || folderOf([...this.#host.files.keys()]) === nameOf(word);
    const options = words.slice(1).filter((word) => !isFile(word)).map(quote).join(' ');
    const named = words.slice(1).map(nameOf).filter((word) => this.#host.files.has(word));
    if (question && words[0] !== this.#question.name) {
      if (named.length) this.#host.chosen.splice(0, named.length, ...named);
      this.#host.open(words[0]!, options, words);
      return;
    }
    if (question) {
      this.#host.state.options = options;
      this.#host.keep();
    }
    void this.#run(words, false);
  }

  // ---- The form ----

  // A field shows its help below the form while it has the focus or the pointer.
  #explained<T extends HTMLElement>(element: T, help: string): T {
    const show = () => (this.#help.textContent = help);
    element.addEventListener('focusin', show);
    element.addEventListener('pointerenter', show);
    return element;
  }

  #field(parameter: Parameter): HTMLElement {
    const set = (given: string[]) => {
      if (given.length) this.#values.set(parameter, given);
      else this.#values.delete(parameter);
      this.#changed();
    };
    const given = this.#values.get(parameter)?.[0] ?? '';
    const name = parameter.option;
    const described = { 'aria-describedby': 'option-help' };
    if (parameter.control === 'tick') {
      const box = h('input', { type: 'checkbox', checked: given !== '', ...described, onchange: () => set(box.checked ? ['yes'] : []) });
      return this.#explained(h('label', {}, box, name), parameter.help);
    }
    if (parameter.control === 'choose' && parameter.choices?.every((word) => !word.endsWith(':N'))) {
      const list = h('select', { ...described, onchange: () => set(list.value ? [list.value] : []) },
        ...['', ...parameter.choices].map((word) => h('option', { value: word, selected: word === given }, word || '(default)')));
      return this.#explained(h('label', {}, name, list), parameter.help);
    }
    const box = h('input', {
      placeholder: parameter.argument ?? '', value: given, list: parameter.control === 'file' ? 'file-names' : undefined, ...described,
      onchange: () => set(box.value.trim() ? (parameter.control === 'several' ? split(box.value) : [box.value.trim()]) : []),
    });
    return this.#explained(h('label', {}, name, box), parameter.help);
  }

  #subject(index: number): HTMLElement {
    const { files, chosen } = this.#host;
    const list = h('select', {
      onchange: () => {
        chosen[index] = list.value;
        this.#changed();
      },
    }, ...(chosen[index] === undefined ? [h('option', { value: '', selected: true, disabled: true }, '(drop another file)')] : []),
      ...[...files.keys()].map((name) => h('option', { value: name, selected: name === chosen[index] }, name)));
    return h('label', {}, this.#question.subjects[index]!.toLowerCase(), list);
  }

  #swap(): HTMLElement | false {
    if (this.#host.chosen.length < 2) return false;
    return h('button', {
      onclick: () => {
        this.#host.chosen.splice(0, 2, this.#host.chosen[1]!, this.#host.chosen[0]!);
        this.#host.open(this.#question.name, this.#host.state.options);
      },
    }, 'Swap');
  }

  #tabs(): HTMLElement {
    const { state } = this.#host;
    const select = (form: Form, takesFocus: boolean) => {
      state.form = form;
      this.#host.keep();
      for (const tab of tabs.children as HTMLCollectionOf<HTMLElement>) {
        const isOn = tab.id === `form-${form}`;
        tab.setAttribute('aria-selected', String(isOn));
        tab.tabIndex = isOn ? 0 : -1;
        if (isOn && takesFocus) tab.focus();
      }
      this.#answer.setAttribute('aria-labelledby', `form-${form}`);
      if (this.#host.files.size || !this.#question.subjects.length) void this.#run(split(this.#line.value), false);
    };
    const tabs = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Form of the answer' }, ...FORMS.map(([form, title]) => h('button', {
      role: 'tab', id: `form-${form}`, 'aria-controls': 'answer', 'aria-selected': String(state.form === form), tabindex: state.form === form ? 0 : -1,
      onclick: () => select(form, false),
    }, title)));
    tabs.addEventListener('keydown', (event) => {
      const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      const at = FORMS.findIndex(([form]) => form === state.form);
      if (step) select(FORMS[(at + step + FORMS.length) % FORMS.length]![0], true);
    });
    return tabs;
  }

  // ---- The answer ----

  #takesJson(words: string[]): boolean {
    const question = this.#host.questions.find((row) => row.name === words[0]);
    return this.#host.state.form !== 'text' && !!question && !words.includes('-o') && !words.includes('--json') && !words.includes('--format');
  }

  // Run the words and show what comes, unless something else is asked meanwhile. `isOurs`: nobody typed them, so what they lack is a hint.
  async #run(words: string[], isOurs: boolean): Promise<void> {
    const { runner, files, say } = this.#host;
    const isView = words[0] === VIEW && !words.includes('-o');
    const full = ['tessera', ...words, ...(isView ? ['-o', PAGE] : this.#takesJson(words) ? ['--json'] : [])];
    const read = [...files].filter(([path]) => words.some((word) => nameOf(word) === path || path.startsWith(`${nameOf(word)}/`)));
    const total = read.reduce((sum, [, file]) => sum + file.size, 0);
    const started = performance.now();
    const mine = ++runs;
    this.#progress.removeAttribute('value');
    this.#progress.hidden = this.#cancel.hidden = false;
    this.#messages.classList.remove('alarm');
    replace(this.#messages);
    replace(this.#hint);
    say('Reading ...');
    // An answer to something else must not be taken for this one's.
    const stale = setTimeout(() => {
      this.#answer.classList.add('is-stale');
      this.#answer.setAttribute('aria-busy', 'true');
    }, STALE_MS);
    const list = [...files].map(([path, file]) => ({ path, file }));
    const result = await runner.run(full, list, (bytes) => {
      if (mine !== runs) return;
      this.#progress.max = total || 1;
      this.#progress.value = Math.min(bytes, total);
      say(bytes < total ? `Reading: ${size(bytes)} of ${size(total)}` : 'Computing ...');
    });
    clearTimeout(stale);
    if (mine !== runs) return;
    this.#answer.classList.remove('is-stale');
    this.#answer.removeAttribute('aria-busy');
    await this.#end(words, result, { isView, isOurs, started });
    if (mine === runs) this.#progress.hidden = this.#cancel.hidden = true;
  }

  async #end(words: string[], result: Outcome, how: { isView: boolean; isOurs: boolean; started: number }): Promise<void> {
    const { say } = this.#host;
    if (result.kind === 'cancelled') {
      this.#clear();
      say('Cancelled');
      return;
    }
    if (result.kind === 'failed' || (result.status === FAULT && /out of memory/i.test(result.messages))) {
      this.#clear();
      this.#fail(result);
      say('Failed');
      return;
    }
    if (how.isOurs && result.status === USAGE) {
      this.#clear();
      this.#hint.textContent = result.messages.replace(/^tessera[^:]*: /gm, '').replace(/^Try .*$/gm, '').trim();
      say(`${words[0]} needs more`);
      return;
    }
    await this.#show(result, how.isView);
    say(`${words[0]}: ${((performance.now() - how.started) / 1000).toFixed(2)} s, ${size(result.memory_bytes)} of memory`);
  }

  #fail(result: Exclude<Outcome, { kind: 'cancelled' }>): void {
    this.#messages.classList.add('alarm');
    const reason = result.kind === 'failed' ? result.reason : '';
    if (result.kind === 'done' || result.isMemory)
      replace(this.#messages, 'Memory has run out: a page can use 4 GiB at most, and this browser may allow less. ' +
        'The command tessera reads this file on the same machine in less memory.');
    else if (/NotReadable|NotFound/.test(reason))
      replace(this.#messages, 'A file has been changed, renamed or removed since it was dropped: drop it again.');
    else replace(this.#messages, `The question could not be answered: ${reason}`);
  }

  #clear(): void {
    for (const url of this.#urls) URL.revokeObjectURL(url);
    this.#urls = [];
    closeFrame();
    replace(this.#answer);
    this.#answer.classList.remove('is-page');
  }

  #urlOf(blob: Blob): string {
    const url = URL.createObjectURL(blob);
    this.#urls.push(url);
    return url;
  }

  async #show(result: Done, isView: boolean): Promise<void> {
    this.#clear();
    this.#messages.classList.toggle('alarm', result.status > 1);
    replace(this.#messages, result.messages.trim());
    const page = isView ? result.written.find((file) => file.name === PAGE) : undefined;
    if (page) {
      this.#answer.classList.add('is-page');
      replace(this.#messages);
      replace(this.#answer, frameOf(page.data, () => replace(this.#hint, 'It ran out of memory. ',
        h('button', { onclick: () => this.#host.open('why', '') }, 'Why did it?'))));
      return;
    }
    const { form } = this.#host.state;
    const whole = result.output.size <= SHOWN_BYTES;
    const text = await (whole ? result.output : result.output.slice(0, SHOWN_BYTES)).text();
    const isJson = text.startsWith('{');
    const links = [...result.written.map(({ name, data }) => ({ name, data })),
      ...(result.output.size ? [{ name: isJson ? 'answer.json' : 'answer.txt', data: result.output }] : [])];
    const downloads = h('p', {}, ...links.map(({ name, data }) => h('a', { href: this.#urlOf(data), download: name.replace(/.*\//, '') }, `Save ${name} `)));
    const body = form === 'table' && whole && isJson ? tablesOf(this.#question.name, JSON.parse(text)) : [h('pre', { id: 'output' }, text)];
    replace(this.#answer, ...body, !whole && h('p', { class: 'muted' }, 'The rest is too long to show here: save it.'), links.length > 0 && downloads);
  }
}
