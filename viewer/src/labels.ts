// What is written over a picture: each label beside what it names, none over another.

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

  draw(context: CanvasRenderingContext2D, paper: string): void {
    const taken: [number, number, number, number][] = [];
    context.textAlign = 'left';
    for (const { text, left, y, colour, rank } of [...this.all].sort((a, b) => a.rank - b.rank)) {
      const width = context.measureText(text).width;
      let [x, at] = [left, y];
      const isFree = () =>
        taken.every(([x0, x1, y0, y1]) => x + width + 3 <= x0 || x - 3 >= x1 || at + HEIGHT / 2 <= y0 || at - HEIGHT / 2 >= y1);
      for (let i = 0; i < TRIES && !isFree() && rank !== ASIDE; i++)
        if (rank === LIMIT) x -= STEP;
        else at += HEIGHT + 1;
      if (!isFree() || x < 0) continue;
      taken.push([x - 3, x + width + 3, at - HEIGHT / 2, at + HEIGHT / 2]);
      context.fillStyle = paper;
      if (rank !== ASIDE) context.fillRect(x - 3, at - HEIGHT / 2, width + 6, HEIGHT);
      context.fillStyle = colour;
      context.fillText(text, x, at);
    }
  }
}
