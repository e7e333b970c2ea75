// "Will it fit?": the questions `simulate` and `plan` as a form that answers while it is filled in.

import { h, replace } from '../src/dom.ts';
import { fileWord } from './dropped.ts';
import {
  barOf, categoryTable, type Device, type Explained, factsOf, notesOf, phaseTable, type Planned, planTable, sentenceOf, type Simulated, techniqueTable,
  verdictOf,
} from './fitanswer.ts';
import { Copies } from './fitcopy.ts';
import { blame, capacityOf, closeFields, defaultOf, formOf, type FormState, type Lists, refill } from './fitform.ts';
import { Stale } from './fitstale.ts';
import { missingIn, optionWords, pythonOf, questionWords, type Row, splitPlan, type Values, valuesOf } from './fitwords.ts';
import type { Done, Runner } from './job.ts';
import type { Question } from './main.ts';
import { quote, split } from './words.ts';

export interface Host {
  work: HTMLElement;
  files: Map<string, File>;
  // Several at once: the answer while typing, a search for a plan, what is copied besides, and what is drawn.
  quick: Runner;
  slow: Runner;
  aside: Runner;
  readonly drawn?: Runner;
  questions: Question[];
  lists: Lists;
  say(text: string): void;
  // Keep the words in the address.
  keep(options: string): void;
}

// A link names the file that this page is.
const ELSEWHERE = location.protocol === 'file:' ? 'On another machine, put what follows # behind the address of the page there.' : '';
const TYPING_MS = 150;
// What is wrong with a word that is being typed is said after a pause.
const PAUSE_MS = 800;
// Hidden, so that no file of the user has these names (dropped.ts).
const RUN_FILE = '.run.pickle';
const PAGE_FILE = '.run.html';
const PLAN_FILE = '.plan.json';
// What the form cannot say of a plan that was taken into it.
const TAKEN_FILE = 'taken-plan.json';
// The schema of a step graph is the first of its keys.
const GRAPH_MARK = '"tessera-step/';
const MARK_BYTES = 4096;
const NO_MODEL = 'Choose a model, or drop the config.json that the link was made with.';

// By its name, a model's description: of Hugging Face, or a step graph. Whether another file is one, the module says.
export const isModelFile = (name: string): boolean => /(?<!_)config[^/]*\.json$|\.graph$/i.test(name);
// Besides, what an option names.
const isOptionFile = (name: string): boolean => /\.(json|bin)$/i.test(name);

const lineOf = (words: string[]) => ['tessera', ...words].map(quote).join(' ');
const button = (text: string, onclick: () => void) => h('button', { type: 'button', onclick }, text);
// Of a command's messages, what is about the question.
const linesOf = (messages: string) => messages.trim().split('\n').filter((line) => !line.startsWith("Try 'tessera help")).join('\n');
const shortOf = (messages: string) => linesOf(messages).replace(/^tessera( [a-z]+)?: /gm, '');

// Why a command has no answer; without a reason, it was cancelled.
class Wrong {
  constructor(readonly reason?: string) {}
}

async function answerOf<T>(done: Done | Wrong): Promise<T | Wrong> {
  if (done instanceof Wrong) return done;
  if (done.status > 1) return new Wrong(done.messages);
  try {
    return JSON.parse(await done.output.text()) as T;
  } catch {
    return new Wrong('The answer is none that this form can show.');
  }
}

export class Fit {
  readonly #host: Host;
  readonly #simulate: Question;
  readonly #plan: Question;
  #state: FormState = { model: '', values: new Map() };
  // Of the model that was asked last.
  #isModelFile = false;
  #isGraph = false;
  // Texts of the page that options name.
  #texts = new Map<string, Blob>();
  #timer = 0;
  #pause = 0;
  // What is to be said after the pause.
  #held: (() => void) | undefined;
  #asked = 0;
  // What was asked last.
  #key = '';
  #tried = 0;
  // Of the search for a plan, and of the timeline, the last: what comes for an earlier one is not shown.
  #searched = 0;
  #drawn = 0;
  #page = '';
  #run: Device | undefined;
  #whole: Device | undefined;
  readonly #live = h('p', { class: 'offscreen', role: 'status', 'aria-live': 'polite', 'aria-atomic': 'true' });
  readonly #note = h('p', { class: 'muted note', hidden: true });
  readonly #form = h('div', {});
  readonly #verdict = h('p', { class: 'verdict' });
  readonly #picture = h('div', {});
  readonly #facts = h('div', { class: 'columns' });
  readonly #saves = h('div', { class: 'scroll' });
  readonly #planned = h('div', {});
  readonly #allow = h('input', {});
  readonly #find = button('', () => void this.#search());
  readonly #timeline = h('div', { class: 'timeline' });
  readonly #rest: HTMLElement;
  readonly #copies = new Copies('fit-output', (line) => this.#announce(line), () => this.#host.aside.cancel());
  readonly #answer = h('div', {}, this.#verdict, this.#picture, this.#facts);
  readonly #staleAnswer = new Stale(this.#answer, 'Simulating', () => this.#host.quick.cancel());
  readonly #staleSaves = new Stale(this.#saves, 'What each technique saves', () => this.#host.quick.cancel());
  readonly #stalePlan = new Stale(this.#planned, 'Searching', () => this.#host.slow.cancel());
  readonly #staleTimeline = new Stale(this.#timeline, 'Drawing', () => this.#drawing.cancel());

  constructor(host: Host) {
    this.#host = host;
    this.#simulate = host.questions.find(({ name }) => name === 'simulate')!;
    this.#plan = host.questions.find(({ name }) => name === 'plan')!;
    this.#rest = h('div', { hidden: true }, this.#staleSaves.element,
      h('section', { class: 'planned', 'aria-label': 'A plan that fits' }, h('h3', {}, 'A plan that fits'), this.#offer(), this.#stalePlan.element),
      h('details', { ontoggle: (event: Event) => (event.target as HTMLDetailsElement).open && void this.#showTimeline() },
        h('summary', {}, 'Memory over time'), this.#staleTimeline.element),
      h('section', { 'aria-label': 'Take it along' }, h('h3', {}, 'Take it along'), this.#copies.element));
    // Colours follow the theme.
    new MutationObserver(() => this.#draw()).observe(document.documentElement, { attributeFilter: ['data-theme'] });
  }

  get #drawing(): Runner {
    return this.#host.drawn ?? this.#host.aside;
  }

  // Show the form with the words that the address has.
  open(options: string): void {
    this.leave();
    const { model, values, unknown } = valuesOf(this.#simulate, split(options));
    if (!options) {
      const [card] = this.#host.lists.cards;
      if (card) values.set('gpu', card.name);
    }
    // A link without a model was made with a file.
    this.#state = { values, model: model || ([...this.#host.files.keys()].find(isModelFile) ?? (options ? '' : this.#host.lists.models[0]!)) };
    this.#texts.clear();
    this.#remark(unknown.length ? `Left out, as simulate has no such option: ${unknown.map(quote).join(' ')}` : '');
    replace(this.#host.work, h('div', { class: 'fit', 'aria-live': 'off' },
      h('section', { 'aria-labelledby': 'fit-title' }, h('h2', { id: 'fit-title' }, 'Will it fit?'), this.#note, this.#form),
      h('section', { class: 'fit-answer', 'aria-label': 'Verdict and figures' }, this.#live, this.#staleAnswer.element, this.#rest)));
    this.#fill();
    void this.#ask();
  }

  // Another question is opened: nothing that is still under way here may show.
  leave(): void {
    this.#forget();
    this.#tried++;
    this.#asked++;
    delete document.documentElement.dataset.fit;
  }

  // Files were dropped, or removed: none is added then. False if none of them can be a model, or what an option names.
  filesChanged(added: string[]): boolean {
    const model = added.find(isModelFile);
    const others = added.filter((name) => !isModelFile(name) && isOptionFile(name));
    if (added.length && !model && !others.length) return false;
    const hasGone = this.#isModelFile && !this.#host.files.has(this.#state.model);
    this.#state.model = model ?? (hasGone ? [...this.#host.files.keys()].find(isModelFile) ?? '' : this.#state.model);
    this.#remark('');
    this.#fill();
    void this.#ask();
    if (!model && others.length) void this.#tryModels(others);
    return true;
  }

  // A description of a model may have any name: the first file that the module can simulate is one.
  async #tryModels(names: string[]): Promise<void> {
    const mine = ++this.#tried;
    for (const name of names) {
      // What else is asked cancels this.
      let done: Done | Wrong;
      do done = await this.#done(this.#host.aside, ['simulate', fileWord(name)]);
      while (done instanceof Wrong && done.reason === undefined && mine === this.#tried);
      if (mine !== this.#tried) return;
      if (done instanceof Wrong || done.status > 1) continue;
      this.#state.model = name;
      this.#fill();
      this.#changed(false);
      return;
    }
    this.#remark(`${names.join(', ')}: no model. Options that name a file have it in their list.`);
  }

  #remark(text: string): void {
    replace(this.#note, text);
    this.#note.hidden = !text;
  }

  #announce(line: string): void {
    replace(this.#live, line);
  }

  #fill(): void {
    refill(this.#form, formOf(this.#simulate, this.#state, this.#host.lists, [...this.#host.files.keys()], (isTyping) => {
      clearTimeout(this.#timer);
      if (isTyping) this.#timer = window.setTimeout(() => this.#changed(true), TYPING_MS);
      else this.#changed(false);
    }));
    closeFields(this.#form, this.#simulate, this.#isGraph);
  }

  // A change that changes no word asks nothing: a click elsewhere ends the typing, too.
  #changed(isTyping: boolean): void {
    clearTimeout(this.#timer);
    if (this.#key !== this.#keyOf()) void this.#ask(isTyping);
    else if (!isTyping) this.#held?.();
  }

  #keyOf(): string {
    return JSON.stringify([this.#state.model, ...optionWords(this.#simulate, this.#state.values)]);
  }

  // What is asked: a card has the memory of its data sheet, unless another is typed; a step graph has most options in it.
  #values(): Values {
    const rows: Row[] = this.#simulate.parameters;
    const values: Values = new Map([...this.#state.values].filter(([option]) =>
      !this.#isGraph || rows.find((row) => row.option === option)?.is_of_graphs));
    const card = this.#host.lists.cards.find(({ name }) => name === values.get('gpu'));
    if (card && !values.has('capacity')) values.set('capacity', capacityOf(card));
    return values;
  }

  #words(question: Question, more: Values = new Map()): string[] {
    return questionWords(question, this.#state.model, new Map([...this.#values(), ...more]));
  }

  #isFile(option: string, value: string): boolean {
    return this.#host.files.has(value) || this.#simulate.parameters.find((row) => row.option === option)?.control === 'file';
  }

  // Names of files that the words have, and the address has not.
  #filesNamed(): string[] {
    const { model, values } = this.#state;
    return [...(this.#host.files.has(model) ? [model] : []), ...[...values].filter(([option, value]) => this.#isFile(option, value)).map(([, value]) => value)];
  }

  #keep(): void {
    const { model } = this.#state;
    const values = new Map([...this.#state.values].filter(([option, value]) => !this.#isFile(option, value)));
    const options = optionWords(this.#simulate, values);
    const words = [...(this.#host.files.has(model) || !model ? [] : [model]), ...options];
    // Without any word, the address would be that of the form as it begins.
    this.#host.keep((words.length ? words : ['']).map(quote).join(' '));
  }

  // The files of a run: the user's, and texts of the page.
  #files(texts: { [name: string]: Blob }): { path: string; file: File }[] {
    return [...[...this.#host.files].map(([path, file]) => ({ path, file })),
      ...[...this.#texts, ...Object.entries(texts)].map(([path, data]) => ({ path, file: new File([data], path) }))];
  }

  async #done(runner: Runner, words: string[], texts: { [name: string]: Blob } = {}): Promise<Done | Wrong> {
    const result = await runner.run(['tessera', ...words], this.#files(texts), () => undefined);
    if (result.kind === 'done') return result;
    return new Wrong(result.kind === 'cancelled' ? undefined : result.isMemory ? 'Memory has run out.' : result.reason);
  }

  // What the module would say takes a run of its own for each option.
  async #readKind(): Promise<boolean> {
    const file = this.#host.files.get(this.#state.model);
    this.#isModelFile = file !== undefined;
    return file !== undefined && (await file.slice(0, MARK_BYTES).text()).includes(GRAPH_MARK);
  }

  // End what is under way, and forget what belongs to the words before.
  #forget(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#pause);
    this.#held = undefined;
    this.#drawn++;
    this.#searched++;
    for (const runner of [this.#host.slow, this.#host.aside, this.#drawing]) runner.cancel();
    this.#copies.reset();
    this.#stalePlan.end();
    replace(this.#planned);
  }

  async #ask(isTyping = false): Promise<void> {
    this.#forget();
    const mine = ++this.#asked;
    const isOld = () => mine !== this.#asked;
    this.#key = this.#keyOf();
    document.documentElement.dataset.fit = 'asking';
    this.#staleAnswer.start();
    this.#staleSaves.start();
    this.#staleTimeline.start();
    let wrong: Wrong | undefined;
    try {
      const isGraph = await this.#readKind();
      if (isOld()) return;
      this.#isGraph = isGraph;
      closeFields(this.#form, this.#simulate, isGraph);
      this.#keep();
      this.#offerBudget();
      wrong = await this.#answerTo(isOld);
    } catch (reason) {
      wrong = new Wrong(String(reason));
    }
    if (isOld()) return;
    if (wrong) this.#failLater(wrong, isTyping);
    else await this.#explain(isOld);
  }

  // Ask `simulate`. Returns what is wrong if it has no answer.
  async #answerTo(isOld: () => boolean): Promise<Wrong | undefined> {
    if (!this.#state.model) return new Wrong(NO_MODEL);
    const run = await this.#simulated(this.#words(this.#simulate));
    if (isOld() || run instanceof Wrong) return run instanceof Wrong ? run : undefined;
    // On a card that is too small the run ends early: what it needs is what it takes on a large one.
    const values = this.#values();
    values.delete('capacity');
    const whole = run.fits ? undefined : await this.#simulated(questionWords(this.#simulate, this.#state.model, values));
    if (isOld() || whole instanceof Wrong) return whole instanceof Wrong ? whole : undefined;
    this.#run = run;
    this.#whole = whole;
    this.#succeed();
    return undefined;
  }

  async #simulated(words: string[]): Promise<Device | Wrong> {
    const answer = await answerOf<Simulated>(await this.#done(this.#host.quick, [...words, '--json']));
    return answer instanceof Wrong ? answer : answer.devices[0] ?? new Wrong('The answer has no device.');
  }

  #succeed(): void {
    blame(this.#form, [], '');
    this.#staleAnswer.end();
    this.#draw();
    this.#announce(this.#verdict.textContent!.replace(/(?<=\.) .*/, ''));
    this.#host.say('');
    this.#rest.hidden = false;
    document.documentElement.dataset.fit = 'answered';
    this.#offerCopies();
    if (this.#timeline.closest('details')!.open) void this.#showTimeline();
    else this.#clearTimeline();
  }

  // A word that is being typed is not wrong yet.
  #failLater(wrong: Wrong, isTyping: boolean): void {
    this.#held = () => {
      clearTimeout(this.#pause);
      this.#held = undefined;
      this.#fail(wrong);
    };
    if (!isTyping || wrong.reason === undefined) return this.#held();
    for (const stale of [this.#staleAnswer, this.#staleSaves, this.#staleTimeline]) stale.hold();
    this.#pause = window.setTimeout(this.#held, PAUSE_MS - TYPING_MS);
  }

  #fail(wrong: Wrong): void {
    this.#run = this.#whole = undefined;
    for (const stale of [this.#staleAnswer, this.#staleSaves]) stale.end();
    this.#clearTimeline();
    this.#copies.reset();
    for (const place of [this.#picture, this.#facts, this.#saves]) replace(place);
    this.#rest.hidden = true;
    const message = wrong.reason === undefined ? 'Cancelled.' : shortOf(wrong.reason);
    this.#verdict.className = `verdict ${wrong.reason === undefined ? 'plain' : 'alarm'}`;
    replace(this.#verdict, message, wrong.reason === undefined && button('Ask again', () => void this.#ask()));
    blame(this.#form, wrong.reason === undefined ? [] : this.#namesIn(wrong.reason), message);
    this.#announce(message.replace(/\n.*/s, ''));
    this.#host.say('');
    document.documentElement.dataset.fit = 'failed';
  }

  // The fields that a message is about: the options that it names, else the one whose value it begins with.
  #namesIn(messages: string): string[] {
    const model = this.#simulate.parameters.find((row) => row.is_operand)!.option;
    if (messages === NO_MODEL) return [model];
    const named = [...linesOf(messages).matchAll(/--([a-z][a-z-]*)/g)].map(([, name]) => name!);
    const subjects = [[model, fileWord(this.#state.model)], ...this.#state.values];
    const about = subjects.filter(([, value]) => messages.startsWith(`tessera: ${value}: `)).map(([name]) => name!);
    return about.length ? about : named;
  }

  #say(run: Device, whole?: Device): void {
    const { text, kind } = verdictOf(run, whole);
    this.#verdict.className = `verdict ${kind}`;
    replace(this.#verdict, text);
  }

  #draw(): void {
    const run = this.#run;
    if (!run) return;
    const shown = this.#whole ?? run;
    this.#say(run, this.#whole);
    replace(this.#picture, barOf(shown, run.capacity_bytes), h('p', { class: 'muted' }, factsOf(shown)),
      run.message && h('details', {}, h('summary', {}, 'What PyTorch says'), h('p', {}, run.message)), notesOf(shown));
    replace(this.#facts, categoryTable(shown), phaseTable(shown));
  }

  // What each technique saves, after the answer that does not wait for it. A step graph has made these choices.
  async #explain(isOld: () => boolean): Promise<void> {
    const answer = this.#isGraph ? undefined
      : await answerOf<Explained>(await this.#done(this.#host.quick, [...this.#words(this.#plan), '--json']));
    if (isOld()) return;
    this.#staleSaves.end();
    if (!answer) replace(this.#saves);
    else if (answer instanceof Wrong) this.#saysNothing(answer);
    else this.#drawSaves(answer);
    document.documentElement.dataset.fit = 'explained';
  }

  #saysNothing({ reason }: Wrong): void {
    replace(this.#saves, h('p', { class: 'muted' }, `What each technique saves: ${reason === undefined ? 'cancelled. ' : shortOf(reason)}`,
      reason === undefined && button('Compute it', () => {
        const mine = this.#asked;
        this.#staleSaves.start();
        void this.#explain(() => mine !== this.#asked);
      })));
  }

  #drawSaves(answer: Explained): void {
    const missing = missingIn(this.#plan, this.#state.values).filter((option) => option !== 'capacity');
    replace(this.#saves, techniqueTable(answer, (choice) => {
      const { values, rest } = splitPlan(this.#simulate, choice);
      return Object.keys(rest).length ? undefined : () => this.#take(values);
    }), h('p', { class: 'muted' }, '"-" where the model or an earlier choice does not allow a technique. "So far" includes those above; of two that ' +
      'exclude one another, the later counts.'), missing.length > 0 && h('p', { class: 'muted' }, `Without ${missing.join(', ')}, which plans do not have.`));
  }

  // Take choices into the form, and ask.
  #take(values: Values): void {
    for (const [option, value] of values) this.#state.values.set(option, value);
    this.#fill();
    const [first] = values.keys();
    const field = first && this.#form.querySelector<HTMLElement>(`[name="${first}"]`);
    if (field) {
      const folded = field.closest('details');
      if (folded) folded.open = true;
      field.focus({ preventScroll: true });
    }
    void this.#ask();
  }

  // ---- Plans ----

  #offer(): HTMLElement {
    const row = this.#plan.parameters.find(({ option }) => option === 'allow')!;
    this.#allow.placeholder = defaultOf(row);
    this.#allow.setAttribute('aria-describedby', 'fit-help-allow');
    this.#allow.addEventListener('keydown', (event) => event.key === 'Enter' && this.#find.click());
    return h('div', { class: 'field' }, h('p', { class: 'fields' }, this.#find, h('label', { title: row.help }, row.option, this.#allow)),
      h('p', { class: 'help', id: 'fit-help-allow' }, row.help));
  }

  #offerBudget(): void {
    const budget = this.#values().get('capacity');
    replace(this.#find, budget ? `Find a plan for ${budget}` : 'Find a plan: choose a card first');
    this.#find.disabled = !budget;
    const capacity = this.#form.querySelector<HTMLInputElement>('[name=capacity]');
    const row = this.#simulate.parameters.find(({ option }) => option === 'capacity')!;
    if (capacity) capacity.placeholder = (!this.#state.values.has('capacity') && budget) || defaultOf(row);
  }

  async #search(): Promise<void> {
    const mine = ++this.#searched;
    const allow = this.#allow.value.trim();
    const more: Values = new Map([['budget', this.#values().get('capacity')!], ...(allow ? [['allow', allow] as [string, string]] : [])]);
    const words = this.#words(this.#plan, more);
    replace(this.#planned);
    this.#stalePlan.start();
    const done = await this.#done(this.#host.slow, [...words, '--json']);
    const answer = await answerOf<Planned>(done);
    if (mine !== this.#searched) return;
    this.#stalePlan.end();
    if (answer instanceof Wrong) {
      const message = answer.reason === undefined ? 'Cancelled.' : shortOf(answer.reason);
      replace(this.#planned, h('p', { class: answer.reason === undefined ? 'muted' : 'alarm' }, message));
      this.#announce(message.replace(/\n.*/s, ''));
      return;
    }
    this.#showPlan(answer, words, more, await (done as Done).output.text());
  }

  #showPlan(answer: Planned, words: string[], more: Values, json: string): void {
    const { text, kind } = sentenceOf(answer);
    const { plan } = answer;
    const copies = new Copies('fit-plan', (line) => this.#announce(line), () => [this.#host.aside, this.#host.slow].forEach((one) => one.cancel()));
    const says = kind === 'alarm' ? `This plan does not fit: ${text}` : '';
    const texts: { [name: string]: Blob } = plan ? { [PLAN_FILE]: new Blob([JSON.stringify(plan)]) } : {};
    const targets = plan ? this.#plan.parameters.find(({ option }) => option === 'for')?.choices ?? [] : [];
    const pasted = async (target: string) => {
      const whole = await this.#output(this.#words(this.#plan, new Map([['plan', PLAN_FILE], ['for', target]])), texts);
      // These texts begin with a comment, where their language has them.
      const [mark] = /^(#|\/\/) /.exec(whole ?? '') ?? [];
      return says && mark ? `${mark}${says}\n${whole}` : whole;
    };
    replace(this.#planned, h('p', { class: `verdict ${kind}` }, text), ...planTable(answer),
      plan && h('p', { class: 'fields' }, button('Use this plan', () => this.#use(plan, answer.question?.begins_with ?? {}))), copies.element);
    copies.offer([
      { title: 'Command line', text: () => lineOf(words) },
      { title: 'Python', text: () => pythonOf(this.#plan, this.#state.model, new Map([...this.#values(), ...more])) },
      // A search of its own, which no other text ends.
      { title: 'Text', text: () => this.#output(words, {}, this.#host.slow) },
      { title: 'JSON', text: () => json },
      ...(plan ? [{ title: 'Plan', text: () => JSON.stringify(plan), note: () => says }] : []),
      ...targets.map((target) => ({ title: target, text: () => pasted(target), note: () => says })),
    ]);
    this.#announce(text.replace(/(?<=\.) .*/, ''));
  }

  // Take a plan into the form instead of the choices that it began with. What has no field goes into a file that --plan names.
  #use(plan: { [key: string]: unknown }, begun: { [key: string]: unknown }): void {
    const { version, ...choices } = plan;
    const { values, rest } = splitPlan(this.#simulate, choices);
    for (const { name, option } of this.#simulate.parameters) if (name in begun) this.#state.values.delete(option);
    this.#state.values.delete('plan');
    this.#texts.delete(TAKEN_FILE);
    const keys = Object.keys(rest);
    if (keys.length) {
      this.#texts.set(TAKEN_FILE, new Blob([JSON.stringify({ ...rest, version })]));
      values.set('plan', TAKEN_FILE);
    }
    this.#remark(keys.length ? `The form has no field for what the plan says of ${keys.join(', ')}: that is in ${TAKEN_FILE}, which --plan names. It can be copied below.` : '');
    this.#take(values);
  }

  // ---- Texts, and memory over time ----

  // What a command prints, or its messages; undefined if it was cancelled.
  async #output(words: string[], texts?: { [name: string]: Blob }, runner = this.#host.aside): Promise<string | undefined> {
    const done = await this.#done(runner, words, texts);
    if (done instanceof Wrong) return done.reason;
    return done.status > 1 ? done.messages : done.output.text();
  }

  // The words are those of the moment in which a button is pressed.
  #offerCopies(): void {
    const lacks = () => {
      const names = this.#filesNamed();
      const [are, them] = names.length > 1 ? ['are', 'them'] : ['is', 'it'];
      return names.length ? `${names.join(', ')} ${are} not in it: to open the link, drop ${them} again.` : '';
    };
    const words = () => this.#words(this.#simulate);
    this.#copies.offer([
      { title: 'Command line', text: () => lineOf(words()) },
      { title: 'Python', text: () => pythonOf(this.#simulate, this.#state.model, this.#values()) },
      { title: 'Text', text: () => this.#output(words()) },
      { title: 'JSON', text: () => this.#output([...words(), '--json']) },
      { title: 'Link', text: () => location.href, note: () => [lacks(), ELSEWHERE].filter(Boolean).join(' ') },
      ...[...this.#texts].map(([title, data]) => ({ title, text: () => data.text() })),
    ]);
  }

  #clearTimeline(): void {
    this.#drawn++;
    this.#staleTimeline.end();
    replace(this.#timeline);
    URL.revokeObjectURL(this.#page);
  }

  // The page of `view` of the run, which is drawn as it is of a recorded one.
  async #showTimeline(): Promise<void> {
    if (!this.#run) return;
    const mine = ++this.#drawn;
    const values = this.#values();
    if (this.#whole) values.delete('capacity');
    this.#staleTimeline.start();
    const written = async (words: string[], name: string, texts: { [name: string]: Blob } = {}): Promise<Blob | Wrong> => {
      const done = await this.#done(this.#drawing, [...words, '-o', name], texts);
      return done instanceof Wrong ? done : done.written.find((one) => one.name === name)?.data ?? new Wrong(done.messages);
    };
    const run = await written(questionWords(this.#simulate, this.#state.model, values), RUN_FILE);
    if (mine !== this.#drawn) return;
    const page = run instanceof Wrong ? run : await written(['view', RUN_FILE], PAGE_FILE, { [RUN_FILE]: run });
    if (mine !== this.#drawn) return;
    this.#clearTimeline();
    if (page instanceof Wrong) {
      replace(this.#timeline, h('p', { class: 'muted' }, page.reason === undefined ? 'Cancelled. ' : shortOf(page.reason),
        button('Draw it again', () => void this.#showTimeline())));
      return;
    }
    this.#page = URL.createObjectURL(new Blob([page], { type: 'text/html' }));
    replace(this.#timeline, h('iframe', { src: this.#page, title: 'memory over time' }));
  }
}
