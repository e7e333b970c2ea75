// web.mjs FOLDER: builds FOLDER/tessera.html, one file with the page, its worker and the module FOLDER/tessera.wasm, and
// FOLDER/tessera.mjs, which runs the module in Node, for tests and to ask it for its questions.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url);
const path = (name) => new URL(name, here).pathname;
const folder = process.argv[2];

const bundle = async (name, how) => {
  const built = await build({ entryPoints: [path(`web/${name}`)], bundle: true, minify: true, charset: 'ascii', write: false,
    legalComments: 'none', target: 'es2022', ...how });
  return built.outputFiles[0].text.trim();
};

const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

// The pages that the module writes are shown in a frame of this one, whose policy holds for them as well.
const allowed = (kind) => ['page.html', 'ranks.html'].map((name) =>
  readFileSync(path(name), 'utf8').match(new RegExp(`${kind} ('sha256-[^']+')`))[1]).join(' ');

const script = await bundle('main.ts', { format: 'iife' });
const worker = await bundle('worker.ts', { format: 'iife' });
const css = await bundle('style.css', { target: undefined });
if ([script, worker].some((text) => /<\/script|<!--/i.test(text))) throw new Error('a program would end its own element');

const policy = [
  "default-src 'none'",
  "connect-src 'none'",
  `script-src ${hash(script)} ${allowed('script-src')} 'wasm-unsafe-eval'`,
  `style-src ${hash(css)} ${allowed('style-src')}`,
  'worker-src blob:',
  'frame-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

// The module's own lists of questions, models and cards: nobody who opens the page waits for them.
const node = join(folder, 'tessera.mjs');
const wasm = join(folder, 'tessera.wasm');
writeFileSync(node, await bundle('node.ts', { format: 'esm', platform: 'node' }));

function said(...words) {
  const answer = JSON.parse(execFileSync(process.execPath, [node, wasm], { input: JSON.stringify({ words }), maxBuffer: 1 << 26 }));
  if (answer.status !== 0) throw new Error(`${words.join(' ')}: ${answer.failure ?? answer.status}`);
  return JSON.parse(Buffer.from(answer.output, 'base64').toString('utf8'));
}

const registry = { questions: said('web', 'questions'), lists: said('web', 'lists') };

const parts = {
  REGISTRY: JSON.stringify(registry).replaceAll('<', '\\u003c'),
  CSP: policy,
  STYLE: css,
  SCRIPT: script,
  WORKER: worker,
  MODULE: gzipSync(readFileSync(wasm), { level: 9 }).toString('base64'),
};
const page = readFileSync(path('web/page.html'), 'utf8').replace(/@(CSP|STYLE|SCRIPT|WORKER|REGISTRY|MODULE)@/g, (_, name) => parts[name]);
writeFileSync(join(folder, 'tessera.html'), page);
