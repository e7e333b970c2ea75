// The page: files that the user drops, the registry's questions with a form each, and their answers. All of it comes from the
// module, which is the command itself: this file knows no question and no option.

import { h, replace } from '../src/dom.ts';
import { Fit, isModelFile } from './fit.ts';
import type { Lists } from './fitform.ts';
import { type Done, type Outcome, Runner } from './job.ts';
import { tablesOf } from './table.ts';
import { quote, split } from './words.ts';

export interface Parameter {
  name: string;
  option: string;
  control: 'tick' | 'choose' | 'file' | 'several' | 'type';
  argument?: string;
  default?: number;
  help: string;
  is_operand: boolean;
  is_many: boolean;
  choices?: string[];
}

export interface Question {
  name: string;
  summary: string;
  main_options?: string;
  situation: number;
  subjects: string[];
  parameters: Parameter[];
}

type Form = 'text' | 'table' | 'json';

const FORMS: [Form, string][] = [['text', 'Text'], ['table', 'Table'], ['json', 'JSON']];
// Of tsr_situation, in the order in which help lists them.
const SITUATIONS: [number, string][] = [[1, 'It ran out of memory'], [0, 'What used the memory'], [2, 'What changed'],
  [3, 'Before anything has run']];
const SHOWN_BYTES = 4 << 20;
const PAGE = 'page.html';
// What is no question: the command's page.
const VIEW: Question = { name: 'view', summary: 'memory over time', situation: 0, subjects: ['FILE'], parameters: [] };

// No question, either: the form over `simulate` and `plan` (fit.ts).
const FIT = 'fit';

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const say = (text: string) => replace(element('state'), text);

// ---- Files ----

const files = new Map<string, File>();
// Of the subjects of a question, the names.
let chosen: string[] = [];

function addFiles(added: { path: string; file: File }[]): void {
  for (const { path, file } of added) files.set(path, file);
  // What is not a description beside another file is asked about first.
  const names = added.map(({ path }) => path).sort((a, b) => Number(/\.json$/.test(a)) - Number(/\.json$/.test(b)) || (a < b ? -1 : 1));
  chosen = [...names, ...[...files.keys()].filter((name) => !names.includes(name))].slice(0, 2);
  showFiles();
  if (current === FIT && fit.filesChanged(names)) return;
  if (!current && names.every(isModelFile)) openFit('');
  else void open(current && current !== FIT ? current : VIEW.name, true);
}

function showFiles(): void {
  replace(element('file-list'), ...[...files].map(([path, file]) =>
    h('li', {}, h('span', { title: path }, path), h('small', { class: 'muted' }, sizeText(file.size)),
      h('button', { 'aria-label': `Remove ${path}`, onclick: () => removeFile(path) }, '\u00d7'))));
}

function removeFile(path: string): void {
  files.delete(path);
  chosen = chosen.filter((name) => name !== path);
  if (!chosen.length) chosen = [...files.keys()].slice(0, 1);
  showFiles();
  if (current) void open(current, false);
}

const sizeText = (bytes: number) => (bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);

async function entryFiles(entry: FileSystemEntry, out: { path: string; file: File }[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    out.push({ path: entry.fullPath.replace(/^\//, ''), file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return;
    for (const inner of part) await entryFiles(inner, out);
  }
}

async function dropped(data: DataTransfer): Promise<void> {
  const out: { path: string; file: File }[] = [];
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => !!entry);
  if (entries.length) for (const entry of entries) await entryFiles(entry, out);
  else for (const file of data.files) out.push({ path: file.name, file });
  if (out.length) addFiles(out);
}

function listenForFiles(): void {
  const picked = (input: HTMLInputElement) => {
    addFiles([...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    input.value = '';
  };
  for (const [button, id] of [['choose', 'files-input'], ['choose-folder', 'folder-input']] as const) {
    const input = element<HTMLInputElement>(id);
    element(button).onclick = () => input.click();
    input.onchange = () => input.files?.length && picked(input);
  }
  document.addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('dragging');
  });
  document.addEventListener('dragleave', (event) => event.relatedTarget || document.body.classList.remove('dragging'));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    if (event.dataTransfer) void dropped(event.dataTransfer);
  });
}

// ---- State in the address: the question, its options and the form, never data ----

interface State {
  question?: string;
  options: string;
  form: Form;
}

function readState(): State {
  const at = new URLSearchParams(location.hash.slice(1));
  const form = at.get('as');
  return { question: at.get('question') ?? undefined, options: at.get('options') ?? '', form: form === 'table' || form === 'json' ? form : 'text' };
}

let state: State = readState();

function writeState(): void {
  const at = new URLSearchParams();
  if (state.question) at.set('question', state.question);
  if (state.options) at.set('options', state.options);
  if (state.form !== 'text') at.set('as', state.form);
  history.replaceState(null, '', `#${at}`);
}

// ---- Questions ----

let runner: Runner;
let questions: Question[] = [];
let current: string | undefined;
let fit: Fit;

function showQuestions(): void {
  const button = (question: Question) => h('button', {
    class: 'question', 'aria-current': question.name === current ? 'true' : undefined, onclick: () => {
      state = { ...state, options: '' };
      void open(question.name, true);
    },
  }, question.name, h('small', {}, question.summary));
  const groups = SITUATIONS.map(([situation, title]) => {
    const of = [VIEW, ...questions].filter((question) => question.situation === situation);
    return h('div', {}, h('h2', {}, title), ...of.map(button));
  });
  const title = 'Will it fit?';
  replace(element('questions'), h('button', {
    class: 'question', 'aria-current': current === FIT ? 'true' : undefined, onclick: () => openFit(''),
  }, title, h('small', {}, 'a training run on a card, before anything has run')), ...groups);
}

// Options of the form as words.
type Values = Map<Parameter, string[]>;

function optionWords(values: Values): string[] {
  const words: string[] = [];
  for (const [parameter, given] of values) {
    if (parameter.is_operand) continue;
    for (const value of given) words.push(...(parameter.control === 'tick' ? [`--${parameter.option}`] : [`--${parameter.option}`, value]));
  }
  return words;
}

function operandWords(question: Question, values: Values): string[] {
  const operands = question.parameters.filter((parameter) => parameter.is_operand);
  const typed = operands.flatMap((parameter) => values.get(parameter) ?? []);
  const everything = operands.some((parameter) => parameter.is_many) && !typed.length ? [...files.keys()] : [];
  return [...chosen.slice(0, question.subjects.length), ...typed, ...everything];
}

function field(parameter: Parameter, values: Values, changed: () => void): HTMLElement {
  const set = (given: string[]) => {
    if (given.length) values.set(parameter, given);
    else values.delete(parameter);
    changed();
  };
  const given = values.get(parameter)?.[0] ?? '';
  const name = parameter.option;
  if (parameter.control === 'tick') {
    const box = h('input', { type: 'checkbox', checked: given !== '', onchange: () => set(box.checked ? ['yes'] : []) });
    return h('label', { title: parameter.help }, box, name);
  }
  if (parameter.control === 'choose' && parameter.choices?.every((word) => !word.endsWith(':N'))) {
    const list = h('select', { onchange: () => set(list.value ? [list.value] : []) },
      ...['', ...parameter.choices].map((word) => h('option', { value: word, selected: word === given }, word || '(default)')));
    return h('label', { title: parameter.help }, name, list);
  }
  const box = h('input', {
    placeholder: parameter.argument ?? '', value: given, list: parameter.control === 'file' ? 'file-names' : undefined,
    onchange: () => set(box.value.trim() ? (parameter.control === 'several' ? split(box.value) : [box.value.trim()]) : []),
  });
  return h('label', { title: parameter.help }, name, box);
}

function subjectField(question: Question, index: number, changed: () => void): HTMLElement {
  const list = h('select', {
    onchange: () => {
      chosen[index] = list.value;
      changed();
    },
  }, ...[...files.keys()].map((name) => h('option', { value: name, selected: name === chosen[index] }, name)));
  return h('label', {}, question.subjects[index]!, list);
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

function openFit(options: string): void {
  runner.cancel();
  current = FIT;
  state = { ...state, question: FIT, options };
  writeState();
  showQuestions();
  fit.open(options);
}

async function open(name: string, asks: boolean): Promise<void> {
  if (name === FIT) return openFit(state.options);
  const question = [VIEW, ...questions].find((row) => row.name === name);
  if (!question) return;
  if (current !== name) runner.cancel();
  current = name;
  state.question = name;
  writeState();
  showQuestions();
  const { values, rest } = valuesOf(question, split(state.options));
  const line = h('input', { 'aria-label': 'Command line', spellcheck: 'false', autocomplete: 'off' });
  const answer = h('div', { class: 'answer', id: 'answer', tabindex: '0' });
  const messages = h('p', { class: 'messages', role: 'alert' });
  const progress = h('progress', { hidden: true });
  const cancel = h('button', { hidden: true, onclick: () => runner.cancel() }, 'Cancel');
  const fill = () => {
    const options = [...optionWords(values), ...rest];
    state.options = options.map(quote).join(' ');
    line.value = [name, ...options, ...operandWords(question, values)].map(quote).join(' ');
    writeState();
  };
  const changed = () => {
    fill();
    void ask();
  };
  const askWords = (words: string[]) => answerOf(words, { progress, cancel, answer, messages });
  const ask = () => askWords(split(line.value));
  const main = new Set((question.main_options ?? '').split(' '));
  const isMain = (row: Parameter) => row.is_operand || question.parameters.length <= 8 || main.has(row.option);
  const fields = (of: Parameter[]) => h('div', { class: 'fields' }, ...of.map((row) => field(row, values, changed)));
  const rarer = question.parameters.filter((row) => !isMain(row));
  const tabs = h('div', { class: 'tabs', role: 'tablist' }, ...FORMS.map(([form, title]) => h('button', {
    role: 'tab', 'aria-selected': String(state.form === form), onclick: (event: Event) => {
      state.form = form;
      writeState();
      for (const tab of tabs.children) tab.setAttribute('aria-selected', String(tab === event.currentTarget));
      void ask();
    },
  }, title)));
  tabs.hidden = name === VIEW.name;
  line.addEventListener('keydown', (event) => event.key === 'Enter' && void ask());
  const subjects = question.subjects.map((_, i) => subjectField(question, i, changed));
  replace(element('work'),
    h('div', { class: 'ask' },
      h('div', { class: 'fields' }, ...subjects, fields(question.parameters.filter(isMain))),
      rarer.length > 0 && h('details', {}, h('summary', {}, `${rarer.length} more options`), fields(rarer)),
      h('div', { class: 'line' }, h('span', { class: 'muted' }, 'tessera'), line,
        h('button', { class: 'main', onclick: () => void ask() }, 'Ask'),
        h('button', { onclick: () => void askWords(['help', name]) }, 'Help'), progress, cancel)),
    h('datalist', { id: 'file-names' }, ...[...files.keys()].map((path) => h('option', { value: path }))),
    tabs, messages, answer);
  fill();
  const needsFile = question.subjects.length > 0;
  if (needsFile && !files.size) replace(answer, h('p', { class: 'muted' }, 'Drop a snapshot first.'));
  else if (asks && (needsFile || (files.size > 0 && question.parameters.some((row) => row.is_many)))) await ask();
}

interface Places {
  progress: HTMLProgressElement;
  cancel: HTMLButtonElement;
  answer: HTMLElement;
  messages: HTMLElement;
}

let runs = 0;

// Run the words and show what comes, unless something else is asked meanwhile.
async function answerOf(words: string[], at: Places): Promise<void> {
  const isView = words[0] === VIEW.name && !words.includes('-o');
  const full = ['tessera', ...words, ...(isView ? ['-o', PAGE] : state.form === 'text' || words[0] === 'help' ? [] : ['--json'])];
  const total = words.reduce((sum, word) => sum + (files.get(word)?.size ?? 0), 0);
  const started = performance.now();
  const mine = ++runs;
  at.progress.removeAttribute('value');
  at.progress.hidden = at.cancel.hidden = false;
  at.messages.classList.remove('alarm');
  replace(at.messages);
  say('Reading ...');
  const list = [...files].map(([path, file]) => ({ path, file }));
  const result = await runner.run(full, list, (bytes) => {
    at.progress.max = total || 1;
    at.progress.value = Math.min(bytes, total);
    say(bytes < total ? `Reading: ${sizeText(bytes)} of ${sizeText(total)}` : 'Computing ...');
  });
  if (mine !== runs) return;
  await showEnd(words, result, isView, started, at);
  at.progress.hidden = at.cancel.hidden = true;
}

async function showEnd(words: string[], result: Outcome, isView: boolean, started: number, at: Places): Promise<void> {
  if (result.kind === 'cancelled') {
    say('Cancelled');
    return;
  }
  if (result.kind === 'failed' || (result.status === 4 && /out of memory/i.test(result.messages))) {
    const isMemory = result.kind === 'done' || result.isMemory;
    at.messages.classList.add('alarm');
    replace(at.messages, isMemory
      ? 'Memory has run out: a page can use 4 GiB at most, and this browser may allow less. The command tessera reads this file on the same machine in less memory.'
      : `The question could not be answered: ${result.kind === 'failed' ? result.reason : ''}`);
    replace(at.answer);
    say('Failed');
    return;
  }
  await show(result, isView, at);
  say(`${words[0]}: ${((performance.now() - started) / 1000).toFixed(2)} s, ${sizeText(result.memory_bytes)} of memory`);
}

let shownUrls: string[] = [];

function urlOf(blob: Blob): string {
  const url = URL.createObjectURL(blob);
  shownUrls.push(url);
  return url;
}

async function show(result: Done, isView: boolean, at: Places): Promise<void> {
  for (const url of shownUrls) URL.revokeObjectURL(url);
  shownUrls = [];
  at.messages.classList.toggle('alarm', result.status > 1);
  replace(at.messages, result.messages.trim());
  const page = isView ? result.written.find((file) => file.name === PAGE) : undefined;
  if (page) {
    const source = urlOf(new Blob([page.data], { type: 'text/html' }));
    at.answer.classList.add('is-page');
    replace(at.messages);
    replace(at.answer, h('iframe', { src: source, title: 'memory over time' }));
    return;
  }
  at.answer.classList.remove('is-page');
  const whole = result.output.size <= SHOWN_BYTES;
  const text = await (whole ? result.output : result.output.slice(0, SHOWN_BYTES)).text();
  const links = [...result.written.map(({ name, data }) => ({ name, data })), ...(result.output.size ? [{
    name: state.form === 'text' ? 'answer.txt' : 'answer.json', data: result.output }] : [])];
  const downloads = h('p', {}, ...links.map(({ name, data }) => h('a', { href: urlOf(data), download: name.replace(/.*\//, '') }, `Save ${name} `)));
  const isTable = state.form === 'table' && whole && text.startsWith('{');
  const body = isTable ? tablesOf('answer', JSON.parse(text)) : [h('pre', { id: 'output' }, text)];
  replace(at.answer, ...body, !whole && h('p', { class: 'muted' }, 'The rest is too long to show here.'), links.length > 0 && downloads);
}

// ---- Start ----

function welcome(): void {
  replace(element('work'), h('div', { class: 'welcome' },
    h('p', {}, 'Where the memory of a GPU job went: which lines of the program held it at the peak, why it ran out, and what would help.'),
    h('div', { class: 'drop' }, 'Drop memory snapshots here'),
    h('p', {}, h('button', { class: 'main', onclick: () => openFit('') }, 'Will it fit?'), ' before anything has run: models on cards'),
    h('p', { class: 'muted' }, 'Snapshots of PyTorch (torch.cuda.memory._dump_snapshot), pickle, JSON or the page of memory_viz, also compressed ' +
      '(gz, zst, xz, zip), one or several, or a folder with one for each rank, with their sidecars.'),
    h('p', { class: 'muted' }, 'Nothing leaves this page: it has no server, and its security policy forbids it to connect anywhere.'),
    h('p', { class: 'muted' }, 'Not in the browser: threads (a large file takes longer than with the command), training, tracing models with Python, and SQL.')));
}

// Compile the module that the page carries, packed and in base64, while it is unpacked.
function moduleOf(base64: string): Promise<WebAssembly.Module> {
  const text = atob(base64.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const bytes = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(bytes, { headers: { 'content-type': 'application/wasm' } }));
}

function listenForTheme(): void {
  const root = document.documentElement;
  if (matchMedia('(prefers-color-scheme: dark)').matches) root.dataset.theme = 'dark';
  element('theme').onclick = () => (root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark');
}

async function start(): Promise<void> {
  listenForTheme();
  listenForFiles();
  welcome();
  // What the module says of itself was asked when the page was built, so that nobody waits for the module to see the questions.
  const said = JSON.parse(element('registry').textContent ?? '') as { questions: Question[]; lists: Lists };
  questions = said.questions;
  // After the page was drawn: it can be read and filled in meanwhile.
  const module = new Promise<string>((resolve) => setTimeout(() => resolve(element('module').textContent ?? ''))).then(moduleOf);
  const source = element('worker').textContent ?? '';
  const runnerOf = () => new Runner(module, source);
  runner = runnerOf();
  runner.warm();
  fit = new Fit({
    work: element('work'), files, quick: runner, slow: runnerOf(), aside: runnerOf(), questions, say, lists: said.lists,
    keep: (options) => {
      state.options = options;
      writeState();
    },
  });
  showQuestions();
  say('Ready');
  document.documentElement.dataset.ready = 'yes';
  window.addEventListener('hashchange', () => {
    state = readState();
    if (state.question) void open(state.question, true);
  });
  if (state.question) await open(state.question, true);
}

start().catch((reason: unknown) => say(`This browser cannot run the page: ${String(reason)}`));
