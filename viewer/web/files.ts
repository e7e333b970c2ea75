// The files that a run of the command sees: a tree in memory, whose leaves are either a user's file, read in slices, or bytes that
// the run has written.

// What a file's bytes come from. `read` returns up to `size` of them from `offset` on.
export interface Source {
  readonly size: number;
  read(offset: number, size: number): Uint8Array;
}

export interface Leaf {
  kind: 'file';
  inode: bigint; // differ, because the command tells files apart by them
  changedMs: number;
  source?: Source; // of a file that is only read
  bytes: Uint8Array; // with room at its end
  size: number;
}

export interface Folder {
  kind: 'folder';
  inode: bigint;
  changedMs: number;
  entries: Map<string, Leaf | Folder>;
}

let inodes = 0n;

export const makeFolder = (): Folder => ({ kind: 'folder', inode: ++inodes, changedMs: 0, entries: new Map() });

export const makeLeaf = (source?: Source, changedMs = 0): Leaf => ({
  kind: 'file',
  inode: ++inodes,
  changedMs,
  source,
  bytes: new Uint8Array(0),
  size: source ? source.size : 0,
});

// Put a file at a path such as `dumps/rank0.pickle`, with the folders that it needs.
export function mount(root: Folder, path: string, leaf: Leaf): void {
  const names = path.split('/').filter((name) => name && name !== '.' && name !== '..');
  const last = names.pop();
  if (!last) return;
  let at = root;
  for (const name of names) {
    let next = at.entries.get(name);
    if (next?.kind !== 'folder') at.entries.set(name, (next = makeFolder()));
    at = next;
  }
  at.entries.set(last, leaf);
}

export function find(root: Folder, path: string): Leaf | Folder | undefined {
  let at: Leaf | Folder | undefined = root;
  const trail: Folder[] = [];
  for (const name of path.split('/')) {
    if (!name || name === '.') continue;
    if (at?.kind !== 'folder') return undefined;
    if (name === '..') at = trail.pop() ?? root;
    else {
      trail.push(at);
      at = at.entries.get(name);
    }
  }
  return at;
}

export function readLeaf(leaf: Leaf, offset: number, size: number): Uint8Array {
  const most = Math.max(0, Math.min(size, leaf.size - offset));
  if (!most) return new Uint8Array(0);
  return leaf.source ? leaf.source.read(offset, most) : leaf.bytes.subarray(offset, offset + most);
}

export function writeLeaf(leaf: Leaf, offset: number, data: Uint8Array): void {
  const end = offset + data.length;
  if (end > leaf.bytes.length) {
    const grown = new Uint8Array(Math.max(end, 2 * leaf.bytes.length, 4096));
    grown.set(leaf.bytes.subarray(0, leaf.size));
    leaf.bytes = grown;
  }
  leaf.bytes.set(data, offset);
  leaf.size = Math.max(leaf.size, end);
}

// A source read through another's slices of `slice` bytes, of which the last is kept: each read of the system costs much.
export function sliced(source: Source, slice: number): Source {
  let held = new Uint8Array(0);
  let from = 0;
  return {
    size: source.size,
    read(offset, size) {
      if (offset < from || offset >= from + held.length) {
        from = offset;
        held = new Uint8Array(source.read(offset, Math.min(slice, source.size - offset)));
      }
      return held.subarray(offset - from, offset - from + size);
    },
  };
}
