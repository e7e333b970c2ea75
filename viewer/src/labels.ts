// What is written over a picture: each label next to what it names, none over another, none cut by a border, and
// none over what it points at where there is another place.

import { cutText } from './dom.ts';

/** Left, right, top, bottom. */
export type Box = [number, number, number, number];

interface Label {
  text: string;
  x: number; // of what it names
  y: number; // where its middle wants to be
  colour: string;
  rank: number;
}

export const HEIGHT = 14;
const STEP = 15; // from a place to the next one
const NEAR = 3; // the same for a peak's, which leaves the rows above it to marks
const GAP = 7; // between a label and what it names
const EDGE = 3; // between a text and the end of its ground
const MOST_ROWS = 40;

/** The rank of a label: the first choose first. A peak's gives way upwards; a mark's downwards, as it names a place
 * on the axis, else along it, tied to it by a line; a limit's goes left along its line, below or above it; the last is left out. */
export const PEAK = 0;
export const MARK = 1;
export const LIMIT = 2;
export const ASIDE = 3;

/** Places for the left end and the middle of a label as wide as `width`, the best first. */
function places({ x, y, rank }: Label, width: number, [first, last, top, bottom]: Box): [number, number][] {
  const out: [number, number][] = [];
  const right = x + GAP;
  const left = x - GAP - width;
  const fit = (at: number) => Math.max(first + EDGE, Math.min(last - EDGE - width, at));
  const row = (at: number) => Math.max(top + HEIGHT / 2, Math.min(bottom - HEIGHT / 2, at));
  if (rank === ASIDE) return [[fit(left), row(y)]];
  if (rank === LIMIT) {
    for (let at = left; at >= first; at -= 4 * STEP) out.push([fit(at), row(y)], [fit(at), row(y - HEIGHT - 4)]);
    return out;
  }
  const sides = right + width + EDGE <= last ? [right, left] : [left, right];
  const rows: number[] = [];
  for (let i = 0, at = row(y); i < MOST_ROWS && at >= top + HEIGHT / 2 && at <= bottom - HEIGHT / 2; i++) {
    rows.push(at);
    at += rank === PEAK ? -NEAR : STEP;
  }
  if (rank === PEAK) rows.push(top + HEIGHT / 2);
  for (const at of rows) for (const side of sides) if (side >= first && side + width <= last) out.push([side, at]);
  // Along the axis, away from it, in the uppermost rows.
  for (const at of rows.slice(0, 3))
    for (let by = 4 * STEP; by < last - first; by += 4 * STEP)
      for (const side of [left - by, right + by]) if (side >= first + EDGE && side + width <= last - EDGE) out.push([side, at]);
  out.push([fit(sides[0]!), row(y)]);
  return out;
}

export class Labels {
  private readonly all: Label[] = [];

  /** `x` is where the thing is that it names, and `y` where its middle is to be. */
  add(text: string, x: number, y: number, colour: string, rank: number): void {
    this.all.push({ text, x, y, colour, rank });
  }

  /** Draw what has room within a box, and nothing beyond its borders. `hides` says whether a box would lie on what is
   * drawn. Returns the boxes of the texts. */
  draw(context: CanvasRenderingContext2D, paper: string, box: Box, hides: (box: Box) => boolean): { text: string; box: Box }[] {
    const drawn: { text: string; box: Box }[] = [];
    const [first, last] = box;
    context.textAlign = 'left';
    for (const label of [...this.all].sort((a, b) => a.rank - b.rank)) {
      const text = cutText(context, label.text, last - first - 2 * EDGE);
      if (!text) continue;
      const width = context.measureText(text).width;
      const own = ([x, y]: [number, number]): Box => [x - EDGE, x + width + EDGE, y - HEIGHT / 2, y + HEIGHT / 2];
      const free = places(label, width, box).filter((place) => {
        const [x0, x1, y0, y1] = own(place);
        return drawn.every(({ box: [a, b, c, d] }) => x1 <= a || x0 >= b || y1 <= c || y0 >= d);
      });
      const place = label.rank === ASIDE ? free.find((at) => !hides(own(at))) : (free.find((at) => !hides(own(at))) ?? free[0]);
      if (!place) continue;
      const ground = own(place);
      drawn.push({ text, box: ground });
      const [x, y] = place;
      if (hides(ground)) {
        context.fillStyle = paper;
        context.globalAlpha = 0.8;
        context.fillRect(ground[0], ground[2], ground[1] - ground[0], HEIGHT);
        context.globalAlpha = 1;
      }
      context.fillStyle = label.colour;
      const gap = label.x < ground[0] ? ground[0] - label.x : label.x - ground[1];
      if (gap > 2 * GAP && label.rank === MARK) context.fillRect(label.x < ground[0] ? label.x : ground[1], Math.round(y), gap, 1);
      context.fillText(text, x, y);
    }
    return drawn;
  }
}
