// What is written over a picture: each label next to what it names, none over another, none cut by a border.

import { cutText } from './dom.ts';

/** Left, right, top, bottom. */
export type Box = [number, number, number, number];

interface Label {
  text: string;
  left: number;
  y: number; // of its middle
  colour: string;
  rank: number;
}

const HEIGHT = 14;
const STEP = 60; // of what moves sideways
const TRIES = 12;
const EDGE = 3; // between a text and the end of its ground

/** The rank of a label: the first is where it wants to be; a mark's gives way by moving down, as it
 * names a place on the axis, a limit's by moving left along its line; the last is left out. */
export const PEAK = 0;
export const MARK = 1;
export const LIMIT = 2;
export const ASIDE = 3;

export class Labels {
  private readonly all: Label[] = [];

  /** `left` and `y` are where it is to begin, and its middle. */
  add(text: string, left: number, y: number, colour: string, rank: number): void {
    this.all.push({ text, left, y, colour, rank });
  }

  /** Draw what has room within a box, and nothing beyond its borders. Returns the boxes of the texts. */
  draw(context: CanvasRenderingContext2D, paper: string, box: Box): { text: string; box: Box }[] {
    const drawn: { text: string; box: Box }[] = [];
    const taken: Box[] = [];
    const [first, last, top, bottom] = box;
    context.textAlign = 'left';
    for (const { text: whole, left, y, colour, rank } of [...this.all].sort((a, b) => a.rank - b.rank)) {
      const text = cutText(context, whole, last - first - 2 * EDGE);
      const width = context.measureText(text).width;
      let x = Math.max(first + EDGE, Math.min(last - EDGE - width, left));
      let at = Math.max(top + HEIGHT / 2, Math.min(bottom - HEIGHT / 2, y));
      const isFree = () =>
        taken.every(([x0, x1, y0, y1]) => x + width + EDGE <= x0 || x - EDGE >= x1 || at + HEIGHT / 2 <= y0 || at - HEIGHT / 2 >= y1);
      for (let i = 0; i < TRIES && !isFree() && rank !== ASIDE; i++)
        if (rank === LIMIT) x -= STEP;
        else at += HEIGHT + 1;
      if (!text || !isFree() || x < first || at + HEIGHT / 2 > bottom) continue;
      const own: Box = [x - EDGE, x + width + EDGE, at - HEIGHT / 2, at + HEIGHT / 2];
      taken.push(own);
      drawn.push({ text, box: own });
      context.fillStyle = paper;
      if (rank !== ASIDE) context.fillRect(x - EDGE, at - HEIGHT / 2, width + 2 * EDGE, HEIGHT);
      context.fillStyle = colour;
      context.fillText(text, x, at);
    }
    return drawn;
  }
}
