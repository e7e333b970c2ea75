// The worker: runs one command line on the user's files, which it reads in slices, and sends back what the command printed and wrote.
// Each message to it is a Job; to cancel one, the page ends the worker.

import { type Folder, makeFolder, makeLeaf, mount, readLeaf, sliced, type Source } from './files.ts';
import { run } from './wasi.ts';

export interface Job {
  module: WebAssembly.Module;
  words: string[];
  files: { path: string; file: File }[];
}

export interface Written {
  name: string;
  data: Blob;
}

export type Report =
  | { kind: 'progress'; bytes: number }
  | { kind: 'done'; status: number; output: Blob; messages: string; written: Written[]; memory_bytes: number }
  | { kind: 'failed'; reason: string; isMemory: boolean };

const SLICE_BYTES = 32 << 20;
const PROGRESS_MS = 100;

// A worker's scope, of which lib.dom declares a page's.
declare class FileReaderSync {
  readAsArrayBuffer(blob: Blob): ArrayBuffer;
}

const reader = new FileReaderSync();

function blobSource(file: File): Source {
  return {
    size: file.size,
    read: (offset, size) => new Uint8Array(reader.readAsArrayBuffer(file.slice(offset, offset + size))),
  };
}

const send = (report: Report) => (self as unknown as { postMessage(message: Report): void }).postMessage(report);

function writtenIn(folder: Folder, path: string, out: Written[]): Written[] {
  for (const [name, node] of folder.entries) {
    if (node.kind === 'folder') writtenIn(node, `${path}${name}/`, out);
    else if (!node.source) out.push({ name: path + name, data: new Blob([readLeaf(node, 0, node.size) as BlobPart]) });
  }
  return out;
}

async function work(job: Job): Promise<void> {
  const root = makeFolder();
  for (const { path, file } of job.files)
    mount(root, path, makeLeaf(sliced(blobSource(file), Math.min(SLICE_BYTES, Math.max(1, file.size))), file.lastModified));
  const output: BlobPart[] = [];
  const messages: Uint8Array[] = [];
  let bytes = 0;
  let sentMs = performance.now();
  try {
    const ended = await run(job.module, {
      words: job.words,
      root,
      output: (part) => output.push(part as BlobPart),
      messages: (part) => messages.push(part),
      hasRead(count) {
        bytes += count;
        if (performance.now() - sentMs < PROGRESS_MS) return;
        sentMs = performance.now();
        send({ kind: 'progress', bytes });
      },
    });
    const said = await new Blob(messages as BlobPart[]).text();
    send({
      kind: 'done', status: ended.status, output: new Blob(output), messages: said, written: writtenIn(root, '', []),
      memory_bytes: ended.memory_bytes,
    });
  } catch (reason) {
    const text = String(reason);
    send({ kind: 'failed', reason: text, isMemory: reason instanceof RangeError || /memory/i.test(text) });
  }
}

self.onmessage = (event: MessageEvent<Job>) => void work(event.data);
