// Runs the command once: the part of WASI's preview 1 that it calls, on a tree of files in memory. There are no links, no
// permissions and no other processes; the clock, random numbers and the three standard streams are the host's.

import { find, type Folder, type Leaf, makeLeaf, readLeaf, writeLeaf } from './files.ts';

// Numbers of WASI's errors.
const OK = 0;
const EXISTS = 20;
const BAD_HANDLE = 8;
const INVALID = 28;
const IS_FOLDER = 31;
const ABSENT = 44;
const NOT_SUPPORTED = 58;
const NO_FOLDER = 54;
const TOO_LONG = 37;
const NOT_EMPTY = 55;

const CHARACTERS = 2;
const FOLDER = 3;
const REGULAR = 4;

const ROOT_HANDLE = 3;
const NAME_BYTES = 255; // of a name, as in the file systems of Linux, so that messages are the same

export interface Run {
  words: string[]; // the command line, the program's name first
  root: Folder;
  input?: Uint8Array; // standard input
  variables?: string[]; // NAME=value
  output(bytes: Uint8Array): void; // standard output; the bytes are the callee's to keep
  messages(bytes: Uint8Array): void; // standard error
  hasRead?(bytes: number): void; // of a user's file, since the last call
}

export interface Ended {
  status: number; // the exit status
  memory_bytes: number; // that the module had in the end, which is the most that it had
}

class Exit extends Error {
  constructor(readonly status: number) {
    super(`exit status ${status}`);
  }
}

interface Open {
  node?: Leaf | Folder; // none: a standard stream
  at: number;
  appends: boolean;
}

const text = new TextEncoder();
const decode = new TextDecoder();

// Run the module. Throws what WebAssembly throws: RuntimeError for a trap, RangeError for lack of memory.
export async function run(module: WebAssembly.Module, how: Run): Promise<Ended> {
  const opened = new Map<number, Open>();
  for (let handle = 0; handle < 3; handle++) opened.set(handle, { at: 0, appends: false });
  opened.set(ROOT_HANDLE, { node: how.root, at: 0, appends: false });
  let memory: WebAssembly.Memory;
  const view = () => new DataView(memory.buffer);
  const bytes = (at: number, size: number) => new Uint8Array(memory.buffer, at, size);
  const path = (at: number, size: number) => decode.decode(bytes(at, size).slice());

  // Arrays of (address, size) that data is read to or written from.
  const pieces = (at: number, count: number) => {
    const v = view();
    return Array.from({ length: count }, (_, i) => bytes(v.getUint32(at + 8 * i, true), v.getUint32(at + 8 * i + 4, true)));
  };

  const list = (items: string[], addresses: number, at: number) => {
    for (const item of items) {
      const encoded = text.encode(`${item}\0`);
      view().setUint32(addresses, at, true);
      bytes(at, encoded.length).set(encoded);
      addresses += 4;
      at += encoded.length;
    }
    return OK;
  };
  const sizes = (items: string[], count: number, size: number) => {
    view().setUint32(count, items.length, true);
    view().setUint32(size, items.reduce((sum, item) => sum + text.encode(item).length + 1, 0), true);
    return OK;
  };

  const stat = (node: Leaf | Folder | undefined, at: number) => {
    const v = view();
    const time = BigInt(Math.round(node?.changedMs ?? 0)) * 1000000n;
    bytes(at, 64).fill(0);
    v.setBigUint64(at, 1n, true);
    v.setBigUint64(at + 8, node?.inode ?? 0n, true);
    v.setUint8(at + 16, node ? (node.kind === 'folder' ? FOLDER : REGULAR) : CHARACTERS);
    v.setBigUint64(at + 24, 1n, true);
    v.setBigUint64(at + 32, BigInt(node?.kind === 'file' ? node.size : 0), true);
    for (const field of [40, 48, 56]) v.setBigUint64(at + field, time, true);
    return OK;
  };

  // The folder and the last name of a path that may not exist yet.
  const parent = (handle: number, at: number, size: number): { folder: Folder; name: string } | undefined => {
    const base = opened.get(handle)?.node;
    const names = path(at, size).split('/').filter((name) => name && name !== '.');
    const name = names.pop();
    const folder = base?.kind === 'folder' ? find(base, names.join('/')) : undefined;
    return name && folder?.kind === 'folder' ? { folder, name } : undefined;
  };
  const node = (handle: number, at: number, size: number) => {
    const base = opened.get(handle)?.node;
    return base?.kind === 'folder' ? find(base, path(at, size)) : undefined;
  };

  const read = (leaf: Leaf, from: number, into: Uint8Array[]) => {
    let got = 0;
    for (const piece of into) {
      let filled = 0;
      while (filled < piece.length) {
        const data = readLeaf(leaf, from + got + filled, piece.length - filled);
        if (!data.length) break;
        piece.set(data, filled);
        filled += data.length;
      }
      got += filled;
      if (filled < piece.length) break;
    }
    if (leaf.source && got) how.hasRead?.(got);
    return got;
  };
  const input: Leaf = { ...makeLeaf(), bytes: how.input ?? new Uint8Array(0), size: how.input?.length ?? 0 };

  const system = {
    args_get: (addresses: number, at: number) => list(how.words, addresses, at),
    args_sizes_get: (count: number, size: number) => sizes(how.words, count, size),
    environ_get: (addresses: number, at: number) => list(how.variables ?? [], addresses, at),
    environ_sizes_get: (count: number, size: number) => sizes(how.variables ?? [], count, size),
    clock_time_get(clock: number, _precision: bigint, at: number) {
      const ms = clock === 0 ? Date.now() : performance.now();
      view().setBigUint64(at, BigInt(Math.round(ms * 1e6)), true);
      return OK;
    },
    random_get(at: number, size: number) {
      for (let done = 0; done < size; done += 65536) {
        const part = new Uint8Array(Math.min(65536, size - done));
        crypto.getRandomValues(part);
        bytes(at + done, part.length).set(part);
      }
      return OK;
    },
    fd_allocate(handle: number, offset: bigint, size: bigint) {
      const leaf = opened.get(handle)?.node;
      if (leaf?.kind !== 'file' || leaf.source) return INVALID;
      leaf.size = Math.max(leaf.size, Number(offset + size));
      if (leaf.bytes.length < leaf.size) {
        const grown = new Uint8Array(leaf.size);
        grown.set(leaf.bytes);
        leaf.bytes = grown;
      }
      return OK;
    },
    fd_close: (handle: number) => (opened.delete(handle) ? OK : BAD_HANDLE),
    fd_fdstat_get(handle: number, at: number) {
      const open = opened.get(handle);
      if (!open) return BAD_HANDLE;
      bytes(at, 24).fill(0);
      // A stream that could not be a terminal: those may be sought.
      view().setUint8(at, open.node ? (open.node.kind === 'folder' ? FOLDER : REGULAR) : REGULAR);
      view().setUint16(at + 2, open.appends ? 1 : 0, true);
      for (const field of [8, 16]) view().setBigUint64(at + field, 0xffffffffffffffffn, true);
      return OK;
    },
    fd_fdstat_set_flags(handle: number, flags: number) {
      const open = opened.get(handle);
      if (open) open.appends = (flags & 1) !== 0;
      return open ? OK : BAD_HANDLE;
    },
    fd_filestat_get(handle: number, at: number) {
      const open = opened.get(handle);
      return open ? stat(open.node, at) : BAD_HANDLE;
    },
    fd_filestat_set_size(handle: number, size: bigint) {
      const leaf = opened.get(handle)?.node;
      if (leaf?.kind !== 'file' || leaf.source) return INVALID;
      const wanted = Number(size);
      if (wanted > leaf.size) writeLeaf(leaf, wanted, new Uint8Array(0));
      leaf.size = wanted;
      return OK;
    },
    fd_prestat_get(handle: number, at: number) {
      if (handle !== ROOT_HANDLE) return BAD_HANDLE;
      view().setUint32(at, 0, true);
      view().setUint32(at + 4, 1, true);
      return OK;
    },
    fd_prestat_dir_name(_handle: number, at: number, _size: number) {
      bytes(at, 1)[0] = '/'.charCodeAt(0);
      return OK;
    },
    fd_pread(handle: number, at: number, count: number, offset: bigint, got: number) {
      const leaf = opened.get(handle)?.node;
      if (leaf?.kind === 'folder') return IS_FOLDER;
      if (!leaf) return BAD_HANDLE;
      view().setUint32(got, read(leaf, Number(offset), pieces(at, count)), true);
      return OK;
    },
    fd_read(handle: number, at: number, count: number, got: number) {
      const open = opened.get(handle);
      if (!open) return BAD_HANDLE;
      if (open.node?.kind === 'folder') return IS_FOLDER;
      const done = read(open.node ?? input, open.at, pieces(at, count));
      open.at += done;
      view().setUint32(got, done, true);
      return OK;
    },
    fd_pwrite(handle: number, at: number, count: number, offset: bigint, put: number) {
      const leaf = opened.get(handle)?.node;
      if (leaf?.kind !== 'file' || leaf.source) return BAD_HANDLE;
      let done = 0;
      for (const piece of pieces(at, count)) {
        writeLeaf(leaf, Number(offset) + done, piece);
        done += piece.length;
      }
      view().setUint32(put, done, true);
      return OK;
    },
    fd_write(handle: number, at: number, count: number, put: number) {
      const open = opened.get(handle);
      if (!open || handle === 0) return BAD_HANDLE;
      let done = 0;
      for (const piece of pieces(at, count)) {
        if (handle <= 2) (handle === 1 ? how.output : how.messages)(piece.slice());
        else if (open.node?.kind !== 'file' || open.node.source) return BAD_HANDLE;
        else {
          if (open.appends) open.at = open.node.size;
          writeLeaf(open.node, open.at, piece);
          open.at += piece.length;
        }
        done += piece.length;
      }
      view().setUint32(put, done, true);
      return OK;
    },
    fd_seek(handle: number, offset: bigint, whence: number, at: number) {
      const open = opened.get(handle);
      if (open?.node?.kind !== 'file') return 70; // a stream
      const from = whence === 0 ? 0 : whence === 1 ? open.at : open.node.size;
      const to = from + Number(offset);
      if (to < 0) return INVALID;
      open.at = to;
      view().setBigUint64(at, BigInt(to), true);
      return OK;
    },
    fd_readdir(handle: number, at: number, room: number, cookie: bigint, used: number) {
      const folder = opened.get(handle)?.node;
      if (folder?.kind !== 'folder') return NO_FOLDER;
      let done = 0;
      for (const [i, [name, entry]] of [...folder.entries].entries()) {
        if (i < Number(cookie)) continue;
        const encoded = text.encode(name);
        const record = new Uint8Array(24 + encoded.length);
        const v = new DataView(record.buffer);
        v.setBigUint64(0, BigInt(i + 1), true);
        v.setBigUint64(8, entry.inode, true);
        v.setUint32(16, encoded.length, true);
        v.setUint8(20, entry.kind === 'folder' ? FOLDER : REGULAR);
        record.set(encoded, 24);
        const part = record.subarray(0, room - done);
        bytes(at + done, part.length).set(part);
        done += part.length;
        if (done >= room) break;
      }
      view().setUint32(used, done, true);
      return OK;
    },
    path_create_directory: () => NOT_SUPPORTED,
    path_filestat_get(handle: number, _flags: number, at: number, size: number, out: number) {
      const found = node(handle, at, size);
      return found ? stat(found, out) : ABSENT;
    },
    path_link: () => NOT_SUPPORTED,
    path_open(handle: number, _follow: number, at: number, size: number, how: number, rights: bigint, _inherited: bigint, flags: number, out: number) {
      const creates = how & 1, wantsFolder = how & 2, isNew = how & 4, empties = how & 8;
      const writes = (rights & 64n) !== 0n;
      if (size > NAME_BYTES && path(at, size).split('/').some((name) => text.encode(name).length > NAME_BYTES)) return TOO_LONG;
      let found = node(handle, at, size);
      if (found && creates && isNew) return EXISTS;
      if (!found && creates) {
        const place = parent(handle, at, size);
        if (!place) return ABSENT;
        place.folder.entries.set(place.name, (found = makeLeaf(undefined, Date.now())));
      }
      if (!found) return ABSENT;
      if (wantsFolder && found.kind !== 'folder') return NO_FOLDER;
      if (found.kind === 'folder' && writes) return IS_FOLDER;
      if (found.kind === 'file' && empties) {
        if (found.source) return 69; // read-only
        found.size = 0;
      }
      let number = ROOT_HANDLE + 1;
      while (opened.has(number)) number++;
      opened.set(number, { node: found, at: 0, appends: (flags & 1) !== 0 });
      view().setUint32(out, number, true);
      return OK;
    },
    path_readlink: (handle: number, at: number, size: number) => (node(handle, at, size) ? INVALID : ABSENT),
    path_remove_directory: () => NOT_EMPTY,
    path_rename(fromHandle: number, from: number, fromSize: number, toHandle: number, to: number, toSize: number) {
      const old = parent(fromHandle, from, fromSize);
      const place = parent(toHandle, to, toSize);
      const moved = old?.folder.entries.get(old.name);
      if (!old || !moved || !place) return ABSENT;
      old.folder.entries.delete(old.name);
      place.folder.entries.set(place.name, moved);
      return OK;
    },
    path_unlink_file(handle: number, at: number, size: number) {
      const place = parent(handle, at, size);
      return place?.folder.entries.delete(place.name) ? OK : ABSENT;
    },
    poll_oneoff: () => NOT_SUPPORTED,
    proc_exit(status: number): never {
      throw new Exit(status);
    },
  };

  const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: system });
  memory = instance.exports.memory as WebAssembly.Memory;
  try {
    (instance.exports._start as () => void)();
    return { status: 0, memory_bytes: memory.buffer.byteLength };
  } catch (reason) {
    if (reason instanceof Exit) return { status: reason.status, memory_bytes: memory.buffer.byteLength };
    throw reason;
  }
}
