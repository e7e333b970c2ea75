// Above a difference of two tracks: when most is allocated in each phase of both, as `tessera diff` compares them. If
// the peaks are of different phases, their content differs by that alone, so one of the phases is compared at first.

import type { App } from './app.ts';
import type { HeadPhase } from './decode.ts';
import { h, replace } from './dom.ts';
import { delta, exact, size } from './format.ts';
import type { Place } from './state.ts';
import { PHASES } from './track.ts';

/** A row: the highest moments of a phase, or the peaks. */
interface Line {
  words: string;
  sides: [Side | null, Side | null];
}

type Side = Pick<HeadPhase, 'moment' | 'bytes'>;

function linesOf(app: App, a: number, b: number): Line[] {
  const heads = [a, b].map((track) => app.devices[track]!.head) as [App['devices'][0]['head'], App['devices'][0]['head']];
  const names = PHASES.filter((name) => heads.some((head) => head.phases.some((p) => p.phase === name)));
  const lines = names.map((name): Line => {
    const [one, other] = heads.map((head) => head.phases.find((p) => p.phase === name) ?? null) as [HeadPhase | null, HeadPhase | null];
    return { words: (one ?? other)!.words, sides: [one, other] };
  });
  const peaks = heads.map((head) => ({ moment: head.peak, bytes: head.peakAllocated })) as [Side, Side];
  return [{ words: 'all of it: the peaks', sides: peaks }, ...lines];
}

export class PhaseTable {
  private readonly body = h('tbody');
  readonly note = h('p', { class: 'hint phase-note', hidden: true });
  readonly element = h('details', { class: 'phases', hidden: true },
    h('summary', {}, 'Phase by phase'),
    h('table', { 'aria-label': 'Phases compared' },
      h('thead', {}, h('tr', {}, ...['most allocated in', 'A', 'B', 'change'].map((title, i) => h('th', { scope: 'col', class: i ? 'right' : 'left' }, title)))),
      this.body));
  private pair = ''; // the tracks of the rows

  draw(app: App, a: Place | null, b: Place | null): void {
    const compared = a && b && app.compared(a.track, b.track);
    this.element.hidden = this.note.hidden = true;
    if (!compared) return;
    const lines = linesOf(app, a.track, b.track);
    this.element.hidden = lines.length < 2;
    const pair = `${a.track} ${b.track}`;
    if (this.pair !== pair) this.element.open = compared.phase !== '';
    this.pair = pair;
    this.drawNote(app, a, b, compared);
    replace(this.body, ...lines.map((line) => this.row(app, a, b, line)));
  }

  /** Of which phases the peaks are, if that is why others are compared. */
  private drawNote(app: App, a: Place, b: Place, { phase, moments }: { phase: string; moments: [number, number] }): void {
    const of = (place: Place, isWanted: (p: HeadPhase) => boolean) => app.devices[place.track]!.head.phases.find(isWanted);
    const [one, other] = [of(a, (p) => p.hasPeak > 0), of(b, (p) => p.hasPeak > 0)];
    const [from, to] = [of(a, (p) => p.phase === phase), of(b, (p) => p.phase === phase)];
    const isShown = a.moment === moments[0] && b.moment === moments[1];
    this.note.hidden = !(one && other && from && to && isShown);
    if (this.note.hidden) return;
    this.note.textContent = `The peak of A’s trace is in ${one!.words}, that of B’s in ${other!.words}; what follows compares ${from!.words} of both: ${delta(to!.bytes - from!.bytes)}.`;
  }

  private row(app: App, a: Place, b: Place, { words, sides: [one, other] }: Line): HTMLElement {
    const isShown = !!one && !!other && one.moment === a.moment && other.moment === b.moment;
    const cell = (side: Side | null) => h('td', { class: 'right', title: side ? exact(side.bytes) : undefined }, side ? size(side.bytes) : '');
    const change = one && other ? other.bytes - one.bytes : 0;
    return h('tr', { class: isShown ? 'shown' : undefined },
      h('td', { class: 'left' }, one && other
        ? h('button', {
          type: 'button', class: 'plain', 'aria-pressed': String(isShown), title: 'compare these moments',
          onclick: () => app.store.set({ marks: [{ track: a.track, moment: one.moment }, { track: b.track, moment: other.moment }] }),
        }, words)
        : words),
      cell(one), cell(other),
      h('td', { class: `right ${change > 0 ? 'more' : 'less'}` }, one && other ? delta(change) : ''));
  }
}
