// Builds the templates that the binary embeds, page.html and ranks.html, in this folder or the one that is given: a program and a style
// sheet put into src/page.html, a policy that allows these two and nothing else, and a hash of the sources, by
// which tests/viewer/stale.py sees, without Node, that the templates are of these sources.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url);
const path = (name) => new URL(name, here).pathname;
const folder = process.argv[2] ?? path('.');

// The same in tests/viewer/stale.py.
const sources = ['build.mjs', 'package-lock.json', ...readdirSync(path('src')).map((n) => `src/${n}`)].sort();
const all = createHash('sha256');
for (const name of sources) {
  const bytes = readFileSync(path(name));
  all.update(`${name} ${bytes.length}\n`).update(bytes);
}
const hashOfSources = all.digest('hex');

const bundle = async (name, how) => {
  const built = await build({ entryPoints: [path(`src/${name}`)], bundle: true, minify: true, charset: 'ascii', write: false, ...how });
  return built.outputFiles[0].text.trim();
};

async function make(program, sheet, out) {
  const script = await bundle(program, { format: 'iife', target: 'es2022', legalComments: 'none' });
  const css = await bundle(sheet, {});
  if (/<\/script|<!--/i.test(script) || /<\/style/i.test(css)) throw new Error('the program would end its own element');
  const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  const policy = [
    "default-src 'none'",
    "connect-src 'none'", // a server that serves the page allows itself: src/reader/page/embed.py
    `script-src ${hash(script)}`,
    `style-src ${hash(css)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const parts = { CSP: policy, SOURCES: hashOfSources, STYLE: css, SCRIPT: script };
  const page = readFileSync(path('src/page.html'), 'utf8').replace(/@(CSP|SOURCES|STYLE|SCRIPT)@/g, (_, name) => parts[name]);
  writeFileSync(join(folder, out), page);
}

await make('main.ts', 'style.css', 'page.html');
await make('ranks.ts', 'ranks.css', 'ranks.html');
