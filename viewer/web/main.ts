// The page: files that the user drops, the registry's questions with a form each, and their answers. All of it comes from the
// module, which is the command itself: this file knows no question and no option.

import { h, replace } from '../src/dom.ts';
import { size } from '../src/format.ts';
import { Asked, type Form, leaveQuestion, type State, VIEW } from './ask.ts';
import { addTo, byAge, byFolder, byName, droppedFiles, folderOf, type Given } from './dropped.ts';
import { Fit, isModelFile } from './fit.ts';
import type { Lists } from './fitform.ts';
import { listenToFrames } from './frame.ts';
import { Runner } from './job.ts';

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

// Of tsr_situation, in the order in which help lists them.
const SITUATIONS: [number, string][] = [[1, 'It ran out of memory'], [0, 'What used the memory'], [2, 'What changed'],
  [3, 'Before anything has run']];
// What is no question: the command's page.
const VIEWED: Question = { name: VIEW, summary: 'memory over time', situation: 0, subjects: ['FILE'], parameters: [] };
// No question, either: the form over `simulate` and `plan` (fit.ts).
const FIT = 'fit';
const FIT_TITLE = 'Will it fit?';
// So many snapshots at once are a job's.
const RANKS = 'ranks';
const MANY = 3;
const LISTED = 8;

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const say = (text: string) => replace(element('state'), text);

// ---- Files ----

const files = new Map<string, File>();
// Of the subjects of a question, the names.
const chosen: string[] = [];

const isBeside = (name: string) => /\.(json|py|md|txt|csv)$/i.test(name); // perhaps a description of a snapshot next to it

function addFiles(given: Given[]): void {
  const names = addTo(files, given);
  if (!names.length) {
    say('No file was added: a folder is dropped next to the picture, and hidden files are left out');
    return;
  }
  const renamed = names.filter((name) => !given.some(({ path }) => path === name));
  const snapshots = names.filter((name) => !isBeside(name));
  const others = [...files.keys()].filter((name) => !names.includes(name) && !isBeside(name));
  const asked = snapshots.length ? snapshots : names;
  // A snapshot that joins another is compared with it.
  const pair = [...asked, ...others].slice(0, 2);
  chosen.splice(0, chosen.length, ...(pair.length === 2 ? pair.sort(byAge(files)) : pair));
  if (current && current !== 'diff' && asked.length === 1) chosen.splice(0, chosen.length, asked[0]!, ...others.slice(0, 1));
  showFiles();
  if (renamed.length) say(`Another file has that name: added as ${renamed.join(', ')}`);
  if (current === FIT && fit.filesChanged(names)) return;
  if (names.every(isModelFile)) openFit('', true);
  else if ((asked.length >= MANY || (asked.length > 1 && folderOf(asked))) && current !== RANKS) open(RANKS, '');
  else if (!current || current === FIT) open(VIEW, '');
  else open(current, state.options);
}

function fileRow(path: string, shown: string): HTMLElement {
  return h('li', {}, h('span', { title: path }, shown), h('small', { class: 'muted' }, size(files.get(path)!.size)),
    h('button', { 'aria-label': `Remove ${path}`, onclick: () => removeFiles([path]) }, '\u00d7'));
}

function showFiles(): void {
  const groups = [...byFolder([...files.keys()].sort(byName))].sort(([a], [b]) => byName(a, b));
  replace(element('file-list'), ...groups.map(([folder, names]) => {
    const rows = h('ul', {}, ...names.map((name) => fileRow(name, folder ? name.slice(folder.length + 1) : name)));
    if (!folder && names.length <= LISTED) return rows;
    const title = folder ? `${folder}/` : 'Files';
    return h('details', { open: names.length <= LISTED }, h('summary', {}, `${title} (${names.length} file${names.length > 1 ? 's' : ''}) `,
      h('button', { 'aria-label': `Remove ${title}`, onclick: () => removeFiles(names) }, '\u00d7')), rows);
  }));
}

function removeFiles(names: string[]): void {
  for (const name of names) files.delete(name);
  const left = chosen.filter((name) => files.has(name));
  chosen.splice(0, chosen.length, ...(left.length ? left : [...files.keys()].slice(0, 1)));
  showFiles();
  if (current === FIT) fit.filesChanged([]);
  else if (current) open(current, state.options);
  element('choose').focus();
}

async function dropped(data: DataTransfer): Promise<void> {
  try {
    addFiles(await droppedFiles(data));
  } catch (reason) {
    say(`This browser cannot read a folder that is dropped here: use "Choose a folder". (${String(reason)})`);
  }
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
  const ended = () => document.body.classList.remove('dragging');
  document.addEventListener('dragleave', (event) => event.relatedTarget || ended());
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    ended();
    if (event.dataTransfer) void dropped(event.dataTransfer);
  });
}

// ---- State in the address: the question, its options and the form, never data ----

function readState(): State {
  const at = new URLSearchParams(location.hash.slice(1));
  const form = at.get('as');
  return { question: at.get('question') ?? undefined, options: at.get('options') ?? '', form: form === 'table' || form === 'json' ? form : 'text' as Form };
}

const state: State = readState();

function addressOf(): string {
  const at = new URLSearchParams();
  if (state.question) at.set('question', state.question);
  if (state.options) at.set('options', state.options);
  if (state.form !== 'text') at.set('as', state.form);
  return `#${at}`;
}

// The address follows the state; another question is a step to go back from.
function keep(isStep = false): void {
  const address = addressOf();
  if (address === (location.hash || '#')) return;
  if (isStep) history.pushState(null, '', address);
  else history.replaceState(null, '', address);
}

function follow(): void {
  if (addressOf() === (location.hash || '#')) return;
  Object.assign(state, { question: undefined }, readState());
  if (state.question) open(state.question, state.options, undefined, false);
  else welcome();
}

// ---- Questions ----

let runner: Runner;
let questions: Question[] = [];
let current: string | undefined;
let fit: Fit;

function showQuestions(): void {
  const button = (name: string, title: string, summary: string, act: () => void) =>
    h('button', { class: 'question', 'data-name': name, onclick: act }, title, h('small', {}, summary));
  const groups = SITUATIONS.map(([situation, title]) => h('div', {}, h('h2', {}, title),
    ...[VIEWED, ...questions].filter((question) => question.situation === situation)
      .map((question) => button(question.name, question.name, question.summary, () => open(question.name, '')))));
  replace(element('questions'), button(FIT, FIT_TITLE, 'a training run on a card, before anything has run', () => openFit('')), ...groups);
}

// Which one is asked: its button keeps the focus.
function mark(name: string | undefined): void {
  current = name;
  for (const button of element('questions').querySelectorAll<HTMLElement>('.question')) {
    if (button.dataset.name === name) {
      button.setAttribute('aria-current', 'true');
      button.scrollIntoView({ block: 'nearest' });
    } else button.removeAttribute('aria-current');
  }
  document.title = name ? `${name === FIT ? FIT_TITLE : name}${chosen[0] && name !== FIT ? ` ${chosen[0]}` : ''} - tessera` : 'tessera';
}

function leave(): void {
  leaveQuestion(runner);
  fit.leave();
}

function openFit(options: string, hasFile = false): void {
  leave();
  const isStep = current !== FIT;
  mark(FIT);
  Object.assign(state, { question: FIT, options });
  keep(isStep);
  if (hasFile) say('Computing ...');
  fit.open(options);
}

function open(name: string, options: string, line?: string[], isStep = name !== current): void {
  if (name === FIT) return openFit(options);
  const question = [VIEWED, ...questions].find((row) => row.name === name);
  if (!question) return welcome();
  leave();
  Object.assign(state, { question: name, options });
  if (isStep) keep(true);
  mark(name);
  say('');
  const asked = new Asked({ runner, files, chosen, state, questions: [VIEWED, ...questions], say, keep: () => keep(), open }, question);
  const isFromWork = element('work').contains(document.activeElement); // whose button goes away
  replace(element('work'), ...asked.elements());
  if (isFromWork) element('work').focus();
  asked.askAtOnce(line);
}

// ---- Start ----

function welcome(): void {
  mark(undefined);
  Object.assign(state, { question: undefined, options: '' });
  keep();
  replace(element('work'), h('div', { class: 'welcome' },
    h('h2', { class: 'lead' }, 'Where the memory of a GPU job went'),
    h('p', {}, 'Which lines of the program held it at the peak, why it ran out, and what would help.'),
    h('button', { class: 'drop', onclick: () => element('files-input').click() }, 'Drop memory snapshots here, or choose them'),
    h('p', {}, 'Nothing has run yet? ', h('button', { class: 'main', onclick: () => openFit('') }, FIT_TITLE), ' tells how much memory a model needs on a card.'),
    h('p', { class: 'muted' }, 'Snapshots of PyTorch (torch.cuda.memory._dump_snapshot): pickle, JSON or the page of memory_viz, also compressed ' +
      '(gz, zst, xz, zip), one or several, or a folder with one for each rank.'),
    h('p', { class: 'muted' }, 'Nothing leaves this page: it has no server, and its security policy forbids it to connect anywhere.'),
    h('p', { class: 'muted' }, 'Only the command can train, trace a model with Python, and run SQL; it also reads large files faster, since a page has one thread.')));
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

function start(): void {
  listenForTheme();
  listenForFiles();
  listenToFrames((dropped) => addFiles(dropped.map((file) => ({ path: file.name, file }))));
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
    work: element('work'), files, quick: runner, slow: runnerOf(), aside: runnerOf(), drawn: runnerOf(), questions, say, lists: said.lists,
    keep: (options) => {
      state.options = options;
      keep();
    },
  });
  showQuestions();
  say('Ready');
  document.documentElement.dataset.ready = 'yes';
  element('home').onclick = () => {
    leave();
    welcome();
  };
  element('skip').onclick = (event) => {
    event.preventDefault();
    element('work').focus();
  };
  addEventListener('popstate', follow);
  addEventListener('hashchange', follow);
  if (state.question) open(state.question, state.options, undefined, false);
  else welcome();
}

try {
  start();
} catch (reason) {
  say(`This browser cannot run the page: ${String(reason)}`);
}
