// The user's files: collected from what was dropped or chosen, under names that differ.

export interface Given {
  path: string;
  file: File;
}

// What a folder has besides.
const isHidden = (path: string) => path.split('/').some((name) => name.startsWith('.'));

async function ofHandle(handle: FileSystemHandle, path: string, out: Given[]): Promise<void> {
  if (handle.kind === 'file') {
    out.push({ path, file: await (handle as FileSystemFileHandle).getFile() });
    return;
  }
  const inner = (handle as FileSystemDirectoryHandle & { values(): AsyncIterable<FileSystemHandle> }).values();
  for await (const entry of inner) await ofHandle(entry, `${path}/${entry.name}`, out);
}

async function ofEntry(entry: FileSystemEntry, out: Given[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    out.push({ path: entry.fullPath.replace(/^\//, ''), file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return;
    for (const inner of part) await ofEntry(inner, out);
  }
}

type Item = DataTransferItem & { getAsFileSystemHandle?(): Promise<FileSystemHandle | null> };

// The files of a drop, those in folders too. Everything is taken from the items before the first wait, as they are empty after it. A file is
// taken as it is: on a page from a disk, Chromium can't read the entry that stands for it, nor a folder's, for which it has
// handles. Rejects if a folder can't be read.
export function droppedFiles(data: DataTransfer): Promise<Given[]> {
  const items = [...data.items].filter((item) => item.kind === 'file') as Item[];
  if (!items.length) return Promise.resolve([...data.files].map((file) => ({ path: file.name, file })));
  const taken = items.map((item) => {
    const entry = item.webkitGetAsEntry?.();
    if (!entry?.isDirectory) return { file: item.getAsFile() };
    return { entry, handle: item.getAsFileSystemHandle?.().catch(() => null) };
  });
  return (async () => {
    const out: Given[] = [];
    for (const { file, entry, handle } of taken) {
      if (file) out.push({ path: file.name, file });
      const folder = await handle;
      if (folder) await ofHandle(folder, folder.name, out);
      else if (entry) await ofEntry(entry, out);
    }
    return out;
  })();
}

const isSame = (a: File, b: File) => a.size === b.size && a.lastModified === b.lastModified && a.name === b.name;

// Add files to those that are there, and return the names that they have now: another file of the same name gets a number.
export function addTo(files: Map<string, File>, given: Given[]): string[] {
  const names: string[] = [];
  const visible = given.filter(({ path }) => !isHidden(path));
  for (const { path, file } of visible.sort((a, b) => byName(a.path, b.path))) {
    let name = path;
    for (let i = 2; files.has(name) && !isSame(files.get(name)!, file); i++) name = path.replace(/(\.[^/]*)?$/, ` (${i})$1`);
    files.set(name, file);
    names.push(name);
  }
  return names;
}

export const byName = (a: string, b: string): number => a.localeCompare(b, 'en', { numeric: true });

// The older file first: what has changed since is asked of pairs.
export const byAge = (files: Map<string, File>) => (a: string, b: string): number =>
  (files.get(a)?.lastModified ?? 0) - (files.get(b)?.lastModified ?? 0) || byName(a, b);

// The folder that contains all files, or undefined if they are not in one folder.
export function folderOf(names: string[]): string | undefined {
  const [first] = names;
  const folder = first?.includes('/') ? first.slice(0, first.indexOf('/')) : undefined;
  return folder !== undefined && names.every((name) => name.startsWith(`${folder}/`)) ? folder : undefined;
}

// Names by the folder that they were dropped in; '' for none.
export function byFolder(names: string[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const name of names) {
    const folder = name.includes('/') ? name.slice(0, name.indexOf('/')) : '';
    groups.set(folder, [...(groups.get(folder) ?? []), name]);
  }
  return groups;
}

// A file as a word of a command line. "./" keeps a name such as "--json.pickle" from being read as an option.
export const fileWord = (name: string): string => (name.startsWith('-') ? `./${name}` : name);
export const nameOf = (word: string): string => word.replace(/^\.\//, '');
