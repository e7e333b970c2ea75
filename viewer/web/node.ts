// node tessera.mjs MODULE: runs command lines in Node as the page does in a browser, for tests. Each line of standard input is a
// request, {"words": [...], "files": {name: path}, "take": name}; each line of standard output its answer: status, the two streams, and the
// file `take` that the run wrote, in base64.

import { closeSync, openSync, readFileSync, readSync, statSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { find, makeFolder, makeLeaf, mount, readLeaf, sliced, type Source } from './files.ts';
import { run } from './wasi.ts';

function fileSource(path: string): Source & { close(): void } {
  const handle = openSync(path, 'r');
  return {
    size: statSync(path).size,
    read(offset, size) {
      const data = new Uint8Array(size);
      return data.subarray(0, readSync(handle, data, 0, size, offset));
    },
    close: () => closeSync(handle),
  };
}

const module = await WebAssembly.compile(readFileSync(process.argv[2]));

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line) as { words: string[]; files?: Record<string, string>; input?: string; take?: string };
  const root = makeFolder();
  const sources = Object.entries(request.files ?? {}).map(([name, path]) => ({ name, source: fileSource(path) }));
  for (const { name, source } of sources) mount(root, name, makeLeaf(sliced(source, 32 << 20)));
  const streams: [Uint8Array[], Uint8Array[]] = [[], []];
  let ended = { status: -1, memory_bytes: 0 };
  let failure: string | undefined;
  const started = performance.now();
  try {
    ended = await run(module, {
      words: ['tessera', ...request.words],
      root,
      input: Buffer.from(request.input ?? '', 'utf8'),
      output: (bytes) => streams[0].push(bytes),
      messages: (bytes) => streams[1].push(bytes),
    });
  } catch (reason) {
    failure = String(reason);
  }
  for (const { source } of sources) source.close();
  const written = request.take ? find(root, request.take) : undefined;
  process.stdout.write(`${JSON.stringify({
    ...ended,
    failure,
    ms: performance.now() - started,
    output: Buffer.concat(streams[0]).toString('base64'),
    messages: Buffer.concat(streams[1]).toString('base64'),
    taken: written?.kind === 'file' ? Buffer.from(readLeaf(written, 0, written.size)).toString('base64') : undefined,
  })}\n`);
}
