// "Will it fit?": the questions `simulate` and `plan` as a form that answers while it is filled in.

import { copy, h, replace } from '../src/dom.ts';
import {
  barOf, categoryTable, type Device, type Explained, factsOf, phaseTable, type Planned, planTable, type Simulated, techniqueTable, verdictOf,
} from './fitanswer.ts';
import { capacityOf, formOf, type FormState, type Lists } from './fitform.ts';
import { missingIn, optionWords, pythonOf, questionWords, type Values, valuesOf, valuesOfChoice } from './fitwords.ts';
import { type Done, Runner } from './job.ts';
import type { Question } from './main.ts';
import { quote, split } from './words.ts';

export interface Host {
  work: HTMLElement;
  files: Map<string, File>;
  // Three at once: the answer while typing, a search for a plan, and what is drawn or copied besides.
  quick: Runner;
  slow: Runner;
  aside: Runner;
  drawn?: Runner;
  questions: Question[];
  lists: Lists;
  say(text: string): void;
  // Keep the words in the address.
  keep(options: string): void;
}

const TYPING_MS = 150;
const RUN_FILE = 'run.pickle';
const PAGE_FILE = 'run.html';
const PLAN_FILE = 'plan.json';

// By its name, a model's description: of Hugging Face, or a step graph.
export const isModelFile = (name: string): boolean => /config[^/]*\.json$|\.graph$/i.test(name);

const lineOf = (words: string[]) => ['tessera', ...words].map(quote).join(' ');
const button = (text: string, onclick: () => void) => h('button', { type: 'button', onclick }, text);

// Something with a text to copy; the text may take a run.
interface Copied {
  title: string;
  text(): Promise<string> | string;
}

export class Fit {
  readonly #host: Host;
  readonly #simulate: Question;
  readonly #plan: Question;
  #state: FormState = { model: '', values: new Map() };
  #timer = 0;
  #asked = 0;
  #page = '';
  #run: Device | undefined;
  #whole: Device | undefined;
  readonly #form = h('div', {});
  readonly #verdict = h('p', { class: 'verdict', role: 'status', 'aria-live': 'polite', 'aria-atomic': 'true' });
  readonly #picture = h('div', {});
  readonly #facts = h('div', { class: 'columns' });
  readonly #saves = h('div', { class: 'scroll' });
  readonly #planned = h('div', { class: 'planned', 'aria-live': 'polite' });
  readonly #copies = h('div', {});
  readonly #timeline = h('div', { class: 'timeline' });

  constructor(host: Host) {
    this.#host = host;
    this.#simulate = host.questions.find(({ name }) => name === 'simulate')!;
    this.#plan = host.questions.find(({ name }) => name === 'plan')!;
    // Colours follow the theme.
    new MutationObserver(() => this.#draw()).observe(document.documentElement, { attributeFilter: ['data-theme'] });
  }

  // Show the form with the words that the address has.
  open(options: string): void {
    this.#state = valuesOf(this.#simulate, split(options));
    if (!options) {
      const [card] = this.#host.lists.cards;
      if (card) this.#state.values.set('gpu', card.name);
    }
    this.#state.model ||= this.#fileModel() ?? this.#host.lists.models[0]!;
    replace(this.#host.work, h('div', { class: 'fit', 'aria-live': 'off' }, this.#form,
      h('section', { class: 'fit-answer', 'aria-label': 'Answer' }, this.#verdict, this.#picture, this.#facts, this.#saves,
        h('section', { 'aria-label': 'A plan that fits' }, h('h2', {}, 'A plan that fits'), this.#planned),
        h('details', { ontoggle: (event: Event) => (event.target as HTMLDetailsElement).open && void this.#showTimeline() },
          h('summary', {}, 'Memory over time'), this.#timeline),
        h('section', { 'aria-label': 'Take it along' }, h('h2', {}, 'Take it along'), this.#copies))));
    this.#fill();
    void this.#ask();
  }

  // Another question is asked.
  leave(): void {
    clearTimeout(this.#timer);
    this.#asked++;
  }

  // Files were dropped; false if none of them can be a model, or what an option names.
  filesChanged(added: string[]): boolean {
    const known = added.filter((name) => /\.(json|graph|bin)$/i.test(name));
    if (!known.length) return false;
    this.#state.model = known.find(isModelFile) ?? known[0]!;
    this.#fill();
    void this.#ask();
    return true;
  }

  #fileModel(): string | undefined {
    return [...this.#host.files.keys()].find(isModelFile);
  }

  #fill(): void {
    replace(this.#form, formOf(this.#simulate, this.#state, this.#host.lists, [...this.#host.files.keys()], (isTyping) => {
      clearTimeout(this.#timer);
      if (isTyping) this.#timer = window.setTimeout(() => void this.#ask(), TYPING_MS);
      else void this.#ask();
    }));
  }

  // What is asked: a card has the memory of its data sheet, unless another is typed.
  #values(): Values {
    const values: Values = new Map(this.#state.values);
    const card = this.#host.lists.cards.find(({ name }) => name === values.get('gpu'));
    if (card && !values.has('capacity')) values.set('capacity', capacityOf(card));
    return values;
  }

  #words(question: Question, more: Values = new Map()): string[] {
    return questionWords(question, this.#state.model, new Map([...this.#values(), ...more]));
  }

  #keep(): void {
    const isFile = (value: string) => this.#host.files.has(value);
    const values = new Map([...this.#state.values].filter(([option, value]) =>
      !isFile(value) && this.#simulate.parameters.find((row) => row.option === option)?.control !== 'file'));
    const words = [...(isFile(this.#state.model) ? [] : [this.#state.model]), ...optionWords(this.#simulate, values)];
    this.#host.keep(words.map(quote).join(' '));
  }

  // The files of a run: the user's, and texts of the page.
  #files(texts: { [name: string]: Blob } = {}): { path: string; file: File }[] {
    return [...[...this.#host.files].map(([path, file]) => ({ path, file })),
      ...Object.entries(texts).map(([path, data]) => ({ path, file: new File([data], path) }))];
  }

  // The answer of a command; undefined if something else was asked meanwhile.
  async #done(runner: Runner, words: string[], texts?: { [name: string]: Blob }): Promise<Done | undefined> {
    const result = await runner.run(['tessera', ...words], this.#files(texts), () => undefined);
    if (result.kind === 'failed') this.#fail(result.isMemory ? 'Memory has run out.' : result.reason);
    return result.kind === 'done' ? result : undefined;
  }

  async #ask(): Promise<void> {
    clearTimeout(this.#timer);
    const mine = ++this.#asked;
    const isOld = () => mine !== this.#asked;
    const started = performance.now();
    this.#keep();
    this.#host.slow.cancel();
    this.#host.aside.cancel();
    document.documentElement.dataset.fit = 'asking';
    const capacity = this.#form.querySelector<HTMLInputElement>('[name=capacity]');
    const row = this.#simulate.parameters.find(({ option }) => option === 'capacity');
    if (capacity) capacity.placeholder = this.#values().get('capacity') ?? row?.argument ?? '';
    const words = this.#words(this.#simulate);
    const run = await this.#simulated(words);
    if (!run || isOld()) return;
    if (!run.fits) this.#say(run);
    // On a card that is too small the run ends early: what it needs is what it takes on a large one.
    const values = this.#values();
    values.delete('capacity');
    const whole = run.fits ? undefined : await this.#simulated(questionWords(this.#simulate, this.#state.model, values));
    if (isOld()) return;
    this.#run = run;
    this.#whole = whole;
    this.#draw();
    this.#host.say(`Will it fit: ${((performance.now() - started) / 1000).toFixed(2)} s`);
    document.documentElement.dataset.fit = 'answered';
    this.#offerPlan();
    this.#offerCopies(this.#copies, [
      { title: 'Command line', text: () => lineOf(words) },
      { title: 'Python', text: () => pythonOf(this.#simulate, this.#state.model, this.#values()) },
      { title: 'Text', text: () => this.#output(words) },
      { title: 'JSON', text: () => this.#output([...words, '--json']) },
      { title: 'Link', text: () => location.href },
    ], 'fit-output');
    if (this.#timeline.closest('details')?.open) void this.#showTimeline();
    await this.#explain(isOld);
  }

  async #simulated(words: string[]): Promise<Device | undefined> {
    const done = await this.#done(this.#host.quick, [...words, '--json']);
    if (!done) return undefined;
    if (done.status > 1) {
      this.#fail(done.messages.trim().replace(/^tessera: /, ''));
      return undefined;
    }
    return (JSON.parse(await done.output.text()) as Simulated).devices[0];
  }

  #fail(reason: string): void {
    this.#run = this.#whole = undefined;
    this.#verdict.className = 'verdict alarm';
    replace(this.#verdict, reason);
    for (const place of [this.#picture, this.#facts, this.#saves, this.#planned, this.#copies]) replace(place);
    this.#host.say('');
    document.documentElement.dataset.fit = 'failed';
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
      run.message && h('details', {}, h('summary', {}, 'What PyTorch says'), h('p', {}, run.message)),
      shown.notes.length > 0 && h('details', {}, h('summary', {}, `${shown.notes.length} notes`),
        h('ul', {}, ...shown.notes.map(({ message }) => h('li', {}, message)))));
    replace(this.#facts, categoryTable(shown), phaseTable(shown));
  }

  // What each technique saves, after the answer that does not wait for it.
  async #explain(isOld: () => boolean): Promise<void> {
    const done = await this.#done(this.#host.quick, [...this.#words(this.#plan), '--json']);
    if (!done || isOld()) return;
    if (done.status > 1) {
      replace(this.#saves, h('p', { class: 'muted' }, `What techniques save: ${done.messages.trim().replace(/^tessera: /, '')}`));
      return;
    }
    const answer = JSON.parse(await done.output.text()) as Explained;
    const missing = missingIn(this.#plan, this.#state.values).filter((option) => option !== 'capacity');
    replace(this.#saves, techniqueTable(answer, (choice) => {
      const values = valuesOfChoice(this.#simulate, choice);
      return values && (() => {
        for (const [option, value] of values) this.#state.values.set(option, value);
        this.#fill();
        const [first] = values.keys();
        this.#form.querySelector<HTMLElement>(`[name="${first}"]`)?.focus({ preventScroll: true });
        void this.#ask();
      });
    }), h('p', { class: 'muted' }, '"-" where the model or an earlier choice does not allow a technique. "So far" includes those above; of two that ' +
      'exclude one another, the later counts.'), missing.length > 0 && h('p', { class: 'muted' }, `Without ${missing.join(', ')}, which plans do not have.`));
    document.documentElement.dataset.fit = 'explained';
  }

  #offerPlan(): void {
    const budget = this.#values().get('capacity');
    const row = this.#plan.parameters.find(({ option }) => option === 'allow')!;
    const allow = h('input', { placeholder: row.argument ?? '', 'aria-description': row.help });
    replace(this.#planned, budget ? h('p', { class: 'fields' }, button(`Find a plan for ${budget}`, () => void this.#find(budget, allow.value.trim())),
      h('label', { title: row.help }, row.option, allow)) : h('p', { class: 'muted' }, 'A plan needs a card, or its memory (capacity).'));
  }

  async #find(budget: string, allow: string): Promise<void> {
    const more: Values = new Map([['budget', budget], ...(allow ? [['allow', allow] as [string, string]] : [])]);
    const words = this.#words(this.#plan, more);
    const [offer] = this.#planned.children;
    const output = h('div', {}, h('p', { class: 'fields' }, h('progress', { 'aria-label': 'Searching' }),
      button('Cancel', () => this.#host.slow.cancel())));
    replace(this.#planned, offer!, output);
    const done = await this.#done(this.#host.slow, [...words, '--json']);
    if (!done) {
      replace(output);
      return;
    }
    if (done.status > 1) {
      replace(output, h('p', { class: 'alarm' }, done.messages.trim()));
      return;
    }
    const answer = JSON.parse(await done.output.text()) as Planned;
    const copies = h('div', {});
    replace(output, h('p', { class: `verdict ${answer.verdict.startsWith('fits') ? 'good' : 'alarm'}` }, answer.verdict.replaceAll('_', ' ')), ...planTable(answer), copies);
    const plan = answer.plan && JSON.stringify(answer.plan);
    const targets = this.#plan.parameters.find(({ option }) => option === 'for')?.choices ?? [];
    const pasted = (target: string) => this.#output(
      [...this.#words(this.#plan, new Map([['plan', PLAN_FILE], ['for', target]]))], { [PLAN_FILE]: new Blob([plan!]) });
    this.#offerCopies(copies, [
      { title: 'Command line', text: () => lineOf(words) },
      { title: 'Python', text: () => pythonOf(this.#plan, this.#state.model, new Map([...this.#values(), ...more])) },
      { title: 'Text', text: () => this.#output(words) },
      { title: 'JSON', text: () => done.output.text() },
      ...(plan ? [{ title: 'Plan', text: () => plan }, ...targets.map((target) => ({ title: target, text: () => pasted(target) }))] : []),
    ], 'fit-plan');
  }

  async #output(words: string[], texts?: { [name: string]: Blob }): Promise<string> {
    const result = await this.#host.aside.run(['tessera', ...words], this.#files(texts), () => undefined);
    if (result.kind !== 'done') return '';
    return result.status > 1 ? result.messages : result.output.text();
  }

  // Buttons, one for each text; the text is shown, and put on the clipboard.
  #offerCopies(place: HTMLElement, copies: Copied[], id: string): void {
    const shown = h('pre', { id, tabindex: '0', hidden: true });
    const said = h('span', { class: 'muted', role: 'status' });
    replace(place, h('p', { class: 'fields' }, ...copies.map(({ title, text }) => button(title, () => {
      replace(said, 'Computing ...');
      void Promise.resolve(text()).then(async (whole) => {
        shown.hidden = false;
        shown.setAttribute('aria-label', title);
        replace(shown, whole);
        const isCopied = await copy(whole);
        replace(said, isCopied ? `${title}: copied` : `${title}: below`);
      });
    })), said), shown);
  }

  // The page of `view` of the run, which is drawn as it is of a recorded one.
  async #showTimeline(): Promise<void> {
    if (!this.#run) return;
    const values = this.#values();
    if (this.#whole) values.delete('capacity');
    const run = await this.#done(this.#host.aside, [...questionWords(this.#simulate, this.#state.model, values), '-o', RUN_FILE]);
    const pickle = run?.written.find(({ name }) => name === RUN_FILE);
    const page = pickle && (await this.#done(this.#host.aside, ['view', RUN_FILE, '-o', PAGE_FILE], { [RUN_FILE]: pickle.data }))
      ?.written.find(({ name }) => name === PAGE_FILE);
    if (!page) return;
    URL.revokeObjectURL(this.#page);
    this.#page = URL.createObjectURL(new Blob([page.data], { type: 'text/html' }));
    replace(this.#timeline, h('iframe', { src: this.#page, title: 'memory over time' }));
  }
}
