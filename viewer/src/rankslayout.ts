// Where the rows of the map are, in pixels below its top. Rows that all fit are low if they are many; those that come first in a segment because
// they ran out of memory or stand apart stay high enough to be read.

import type { Row } from './ranksdata.ts';
import type { Segment } from './ranksorder.ts';

export const HEADING = 20;
const FLAT_HEADING = 3; // if there are too many headings
const TALLEST = 20;
export const LETTERS = 12; // the height of a row that has room for its number
const MOST_FOR_TELLING = 0.3; // of the room

export interface Band {
  segment: Segment;
  top: number;
  heading: number;
  first: number; // its first row among all
  tall: number; // rows that are high
}

export class Layout {
  readonly bands: Band[];
  readonly rows: Row[];
  readonly height: number; // of most rows
  readonly tallHeight: number;
  readonly total: number;
  readonly isLargest: boolean;
  private readonly place: Map<Row, number>;

  /** `zoom` doubles the height of rows that all fit into `room`. */
  constructor(segments: Segment[], room: number, zoom: number) {
    this.rows = segments.flatMap((s) => s.rows);
    this.place = new Map(this.rows.map((row, i) => [row, i]));
    const titled = segments.filter((s) => s.title).length;
    const heading = titled * HEADING < room * 0.4 ? HEADING : FLAT_HEADING;
    const even = (room - titled * heading) / Math.max(1, this.rows.length);
    const telling = segments.reduce((n, s) => n + s.telling, 0);
    const hasTall = even < LETTERS && telling * LETTERS < room * MOST_FOR_TELLING;
    const fit = hasTall ? (room - titled * heading - telling * LETTERS) / Math.max(1, this.rows.length - telling) : even;
    this.height = Math.min(TALLEST, fit * 2 ** zoom);
    this.tallHeight = Math.max(this.height, LETTERS);
    this.isLargest = this.height >= TALLEST;
    let [top, first] = [0, 0];
    this.bands = segments.map((segment) => {
      const band = { segment, top, heading: segment.title ? heading : 0, first, tall: hasTall ? segment.telling : 0 };
      top += band.heading + this.within(band, segment.rows.length);
      first += segment.rows.length;
      return band;
    });
    this.total = top;
  }

  /** From a band's first row to one of its rows. */
  private within(band: Band, i: number): number {
    return i <= band.tall ? i * this.tallHeight : band.tall * this.tallHeight + (i - band.tall) * this.height;
  }

  /** The row of a band that is so far below its first one; a fraction of a row counts. */
  private rowWithin(band: Band, y: number): number {
    const tall = band.tall * this.tallHeight;
    return y < tall ? y / this.tallHeight : band.tall + (y - tall) / this.height;
  }

  placeOf(row: Row): number | undefined {
    return this.place.get(row);
  }

  private bandOf(at: number): Band {
    return this.bands.findLast((b) => b.first <= at && b.segment.rows.length > 0)!;
  }

  topOf(at: number): number {
    const band = this.bandOf(at);
    return band.top + band.heading + this.within(band, at - band.first);
  }

  heightOf(at: number): number {
    const band = this.bandOf(at);
    return at - band.first < band.tall ? this.tallHeight : this.height;
  }

  /** The row at a place, or -1. */
  rowAt(y: number): number {
    const band = this.bands.findLast((b) => b.top <= y);
    if (!band || y < band.top + band.heading) return -1;
    const i = Math.floor(this.rowWithin(band, y - band.top - band.heading));
    return i < band.segment.rows.length ? band.first + i : -1;
  }

  /** The rows that begin in a stretch of the map. */
  rowsIn(from: number, to: number): number[] {
    const out: number[] = [];
    for (const band of this.bands) {
      const begin = band.top + band.heading;
      const a = Math.max(0, Math.ceil(this.rowWithin(band, from - begin)));
      const b = Math.min(band.segment.rows.length, Math.ceil(this.rowWithin(band, to - begin)));
      for (let i = a; i < b; i++) out.push(band.first + i);
    }
    return out;
  }
}
