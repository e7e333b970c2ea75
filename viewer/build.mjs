// Builds page.html, the template that the binary embeds: the program and the style sheet put into
// src/page.html, a policy that allows these two and nothing else, and a hash of the sources, by
// which tests/viewer/stale.py sees, without Node, that the template is of these sources.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url);
const path = (name) => new URL(name, here).pathname;
const out = process.argv[2] ?? path('page.html');

const bundle = await build({
  entryPoints: [path('src/main.ts')],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'ascii',
  legalComments: 'none',
  write: false,
});
const style = await build({ entryPoints: [path('src/style.css')], minify: true, charset: 'ascii', write: false });

const script = bundle.outputFiles[0].text.trim();
const css = style.outputFiles[0].text.trim();
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

// The same in tests/viewer/stale.py.
const sources = ['build.mjs', 'package-lock.json', ...readdirSync(path('src')).map((n) => `src/${n}`)].sort();
const all = createHash('sha256');
for (const name of sources) {
  const bytes = readFileSync(path(name));
  all.update(`${name} ${bytes.length}\n`).update(bytes);
}

const parts = { CSP: policy, SOURCES: all.digest('hex'), STYLE: css, SCRIPT: script };
const page = readFileSync(path('src/page.html'), 'utf8').replace(/@(CSP|SOURCES|STYLE|SCRIPT)@/g, (_, name) => parts[name]);
writeFileSync(out, page);
