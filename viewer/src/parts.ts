// What a served page asks for while someone looks: stretches of a track with more of it told one by
// one than the page holds. Whoever draws asks `best` and takes what is there; what arrives later is
// drawn again.

import { fillRest } from './curves.ts';
import type { Device } from './device.ts';
import { decodePart } from './decode.ts';

const KEPT = 6; // parts of a track
const AROUND = 1000; // moments asked for beside what is wanted, at least

interface Wish {
  track: number;
  from: number;
  to: number;
}

export class Parts {
  private readonly known: Device[][];
  private wishes: Wish[] = [];
  private busy = false;
  private failed = '';

  constructor(
    private readonly bases: Device[],
    private readonly arrived: () => void,
  ) {
    this.known = bases.map(() => []);
  }

  get isWaiting(): boolean {
    return this.busy || this.wishes.length > 0;
  }

  get problem(): string {
    return this.failed;
  }

  /** Everything there is of a track, the page's own first. */
  of(track: number): Device[] {
    return [this.bases[track]!, ...this.known[track]!];
  }

  /** The device that tells most of a stretch; a better one is asked for. Moments, both included. */
  best(track: number, from: number, to: number): Device {
    const base = this.bases[track]!;
    if (!base.hasRest) return base;
    const length = to - from + 1;
    const covering = this.known[track]!.filter((d) => d.from <= from && d.to >= to);
    let best = base;
    for (const d of covering) if (better(d, best)) best = d;
    if (best !== base) this.touch(track, best);
    if (!best.hasRest) return best;
    const around = Math.max(AROUND, length >> 1);
    const wide: Wish = { track, from: Math.max(0, from - around), to: Math.min(base.moments - 1, to + around) };
    const isWideKnown = covering.some((d) => d.from >= wide.from && d.to <= wide.to);
    if (!isWideKnown) this.wish(wide);
    else if (length <= 2 && span(best) > 2) this.wish({ track, from, to });
    return best;
  }

  private touch(track: number, device: Device): void {
    const list = this.known[track]!;
    list.unshift(...list.splice(list.indexOf(device), 1));
  }

  /** What was wanted of a track before, and of a like length, is not wanted any more. */
  private wish(wish: Wish): void {
    const isLike = (w: Wish) => w.track === wish.track && Math.abs(Math.log2((w.to - w.from + 1) / (wish.to - wish.from + 1))) < 3;
    this.wishes = this.wishes.filter((w) => !isLike(w));
    this.wishes.push(wish);
    if (!this.busy) void this.work();
  }

  private async work(): Promise<void> {
    this.busy = true;
    await new Promise((done) => setTimeout(done, 60)); // while the wheel still turns
    for (let wish = this.wishes.shift(); wish; wish = this.wishes.shift()) {
      try {
        await this.fetch(wish);
        this.failed = '';
      } catch (error) {
        this.failed = error instanceof Error ? error.message : String(error);
        this.wishes = [];
      }
      this.busy = this.wishes.length > 0;
      this.arrived();
    }
    this.busy = false;
  }

  private async fetch({ track, from, to }: Wish): Promise<void> {
    const answer = await fetch(`part?track=${track}&from=${from}&to=${to}`, { credentials: 'omit', cache: 'no-store' });
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    const { cut, columns } = await decodePart(new Uint8Array(await answer.arrayBuffer()));
    const list = this.known[track]!;
    const part = this.bases[track]!.part(cut, columns);
    fillRest(part);
    list.unshift(part);
    list.splice(KEPT);
  }
}

function span(d: Device): number {
  return d.to - d.from + 1;
}

function better(a: Device, b: Device): boolean {
  if (a.hasRest !== b.hasRest) return !a.hasRest;
  return span(a) < span(b);
}
