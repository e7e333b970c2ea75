// Numbers and names as people read them, spelled as the command line spells them.

const UNITS = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** "512 B", "32.0 KiB", "17.80 GiB". */
export function size(bytes: number): string {
  if (Math.abs(bytes) < 1024) return `${Math.round(bytes)} B`;
  let value = bytes;
  let unit = -1;
  while (Math.abs(value) >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit++;
  }
  const digits = unit === 0 ? 1 : 2;
  // 1023.999 KiB is 1.00 MiB, not 1024.0 KiB.
  if (Math.abs(Number(value.toFixed(digits))) >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit++;
  }
  return `${value.toFixed(unit === 0 ? 1 : 2)} ${UNITS[unit]}`;
}

/** The size and, where that is rounded, the bytes: "17.80 GiB (19,112,345,600 bytes)". */
export function exact(bytes: number): string {
  return Math.abs(bytes) < 1024 ? size(bytes) : `${size(bytes)} (${count(bytes)} bytes)`;
}

/** A size with its sign: "+1.50 GiB". */
export function delta(bytes: number): string {
  return `${bytes > 0 ? '+' : bytes < 0 ? '−' : ''}${size(Math.abs(bytes))}`;
}

/** For an axis: as few digits as tell it apart. */
export function roundSize(bytes: number): string {
  return size(bytes).replace(/\.0+ /, ' ').replace(/(\.\d)0 /, '$1 ');
}

/** The unit that suits a number of bytes: its size in bytes, and its name. */
export function unitOf(bytes: number): [number, string] {
  const power = Math.max(0, Math.min(UNITS.length, Math.floor(Math.log(Math.max(1, bytes)) / Math.log(1024))));
  return [1024 ** power, power ? UNITS[power - 1]! : 'B'];
}

/** "22,331". */
export function count(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** "1 block", "2 blocks". */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

export function percent(part: number, whole: number): string {
  return `${(whole > 0 ? (100 * part) / whole : 0).toFixed(1)} %`;
}

/** A span of time in the unit that fits. */
export function duration(us: number): string {
  const sign = us < 0 ? '−' : '';
  const t = Math.abs(us);
  if (t < 1000) return `${sign}${Math.round(t)} µs`;
  if (t < 1e6) return `${sign}${(t / 1e3).toFixed(2)} ms`;
  if (t < 60e6) return `${sign}${(t / 1e6).toFixed(3)} s`;
  if (t < 3600e6) return `${sign}${(t / 60e6).toFixed(2)} min`;
  return `${sign}${(t / 3600e6).toFixed(2)} h`;
}

/** "2026-07-12 16:40:22.365713 UTC". */
export function clock(us: number): string {
  const ms = Math.floor(us / 1000);
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${us} µs`;
  const rest = String(Math.round(us - ms * 1000)).padStart(3, '0');
  return date.toISOString().replace('T', ' ').replace('Z', `${rest} UTC`);
}

export function hex(value: bigint): string {
  return `0x${value.toString(16)}`;
}

// Characters that move the cursor, end a line, reorder what follows or are not drawn, and lone surrogates.
const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\udb40-\udb43][\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A stranger's text with everything unseen spelled out; it is only ever set as text. */
export function clean(text: string): string {
  return text.replace(UNSEEN, (c) => {
    const code = c.codePointAt(0)!;
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return '\u2421';
    return `\u27e8${code.toString(16).toUpperCase().padStart(4, '0')}\u27e9`;
  });
}

/** The last part of a path; the whole of "<stdin>" and the like. */
export function baseName(path: string): string {
  if (path.startsWith('<')) return path;
  const at = Math.max(path.lastIndexOf('/'), path.lastIndexOf('\\'));
  return path.slice(at + 1);
}
