// From the page's two data elements to typed arrays. How each column is coded is said where it is
// packed, in src/page/; columns are read by name, so that one more does not disturb.

export interface Warning {
  code: string;
  count: number;
  message: string;
}

/** What a user can do, as `tessera peak` lists it. */
export interface Finding {
  rule: string;
  change: string;
  evidence: string[];
  moment: number;
  blocks: number; // in the column finding.RULE; 0 if it is not about single blocks
}

/** What is told of a stretch of a device, in a page and in the parts of a served one. */
export interface HeadCut {
  from: number;
  to: number;
  allocations: number;
  restCount: number;
  restLargest: number;
  bucketMoments: number;
  buckets: number;
}

export interface HeadDevice extends HeadCut {
  input: number;
  device: number | 'host' | 'cpu'; // pinned host memory, the CPU's
  events: number;
  hasHistory: number; // 0: too few events for a history, or none; it shows one moment
  peak: number;
  peakAllocated: number;
  maxReserved: number;
  timeStep: number;
  timeCount: number;
  firstTime: number;
  phases: HeadPhase[];
  groupings: { key: string; title: string; names: string[] }[];
  warnings: Warning[];
  findings: Finding[];
  card: HeadCard | null; // without a ledger, or an axis for it
}

/** What the whole card was used for: columns have its samples. */
export interface HeadCard {
  samples: number;
  most: number; // used at one of them
  total: number; // the card's memory; 0: not known
  sorts: string[]; // of holders
}

/** When most is allocated in a phase. */
export interface HeadPhase {
  phase: string;
  words: string; // in a sentence: "the backward pass"
  moment: number;
  bytes: number;
  hasPeak: number;
}

/** The moments at which `tessera diff` compares two tracks: their peaks, unless these are of different phases. */
export interface HeadCompared {
  tracks: [number, number];
  phase: string; // '': the peaks
  moments: [number, number];
}

export interface Head {
  schema: string;
  version: string;
  by: string;
  isOrdered: number;
  firstEvent: number;
  eventCount: number;
  capacity: number;
  howToRecord: string; // '' if a device has a history
  isServed: number;
  inputs: { path: string; bytes: number; format: string; warnings: Warning[] }[];
  devices: HeadDevice[];
  compared: HeadCompared[]; // of each two tracks of different files; none if there are many
  columns: [string, number][];
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as unknown as { fromBase64?: (t: string) => Uint8Array<ArrayBuffer> })
    .fromBase64;
  if (native) return native.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads one column from its start. */
export class Reader {
  constructor(
    readonly bytes: Uint8Array,
    private at = 0,
  ) {}

  get ended(): boolean {
    return this.at >= this.bytes.length;
  }

  number(): number {
    const bytes = this.bytes;
    let byte = bytes[this.at++]!;
    if (byte < 128) return byte;
    let value = byte & 127;
    let scale = 128;
    do {
      byte = bytes[this.at++]!;
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  }

  signed(): number {
    const value = this.number();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  big(): bigint {
    let value = 0n;
    for (let i = 7; i >= 0; i--) value = (value << 8n) | BigInt(this.bytes[this.at + i]!);
    this.at += 8;
    return value;
  }
}

export class Columns {
  private readonly places = new Map<string, Uint8Array>();

  constructor(directory: [string, number][], bytes: Uint8Array) {
    let at = 0;
    for (const [name, length] of directory) {
      this.places.set(name, bytes.subarray(at, at + length));
      at += length;
    }
  }

  has(name: string): boolean {
    return this.places.has(name);
  }

  bytes(name: string): Uint8Array {
    return this.places.get(name) ?? new Uint8Array(0);
  }

  reader(name: string): Reader {
    return new Reader(this.bytes(name));
  }

  numbers(name: string, count: number): Uint32Array<ArrayBuffer> {
    const out = new Uint32Array(count);
    const bytes = this.bytes(name);
    let at = 0;
    for (let i = 0; i < count; i++) {
      let byte = bytes[at++]!;
      let value = byte & 127;
      for (let shift = 7; byte > 127; shift += 7) {
        byte = bytes[at++]!;
        value |= (byte & 127) << shift;
      }
      out[i] = value;
    }
    return out;
  }

  /** Each the difference from the one before. */
  differences(name: string, count: number): Uint32Array<ArrayBuffer> {
    const out = this.numbers(name, count);
    let value = 0;
    for (let i = 0; i < count; i++) {
      const coded = out[i]!;
      value += (coded >>> 1) ^ -(coded & 1);
      out[i] = value;
    }
    return out;
  }

  /** The same for numbers past 32 bits. */
  sums(name: string, count: number): Float64Array<ArrayBuffer> {
    const out = new Float64Array(count);
    const reader = this.reader(name);
    let value = 0;
    for (let i = 0; i < count && !reader.ended; i++) {
      value += reader.signed();
      out[i] = value;
    }
    return out;
  }
}

/** A page's head, which lists its columns, and these. */
export async function decodePage<H extends { columns: [string, number][] } = Head>(): Promise<{ head: H; columns: Columns }> {
  const headElement = document.getElementById('tessera-head');
  const dataElement = document.getElementById('tessera-data');
  if (!headElement || !dataElement) throw new Error('this page has no data in it');
  const head = JSON.parse(headElement.textContent ?? '') as H;
  const bytes = await inflate(fromBase64((dataElement.textContent ?? '').trim()));
  dataElement.textContent = ''; // the text is not needed any more
  return { head, columns: new Columns(head.columns, bytes) };
}

/** An answer of `tessera serve`: the length of its head, the head, the columns. */
export async function decodePart(bytes: Uint8Array<ArrayBuffer>): Promise<{ cut: HeadCut; columns: Columns }> {
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const cut = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as HeadCut & { columns: [string, number][] };
  return { cut, columns: new Columns(cut.columns, await inflate(bytes.slice(4 + length))) };
}
