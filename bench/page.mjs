// page.mjs TESSERA FILE [ROUNDS]: how fast a page is made, and how fast it is to look at, as a row of Markdown.
//
//   peak, view   wall time of `tessera peak` and `tessera view`, start of the process included: the
//                medians of rounds that take turns
//   page         its bytes
//   ready        from navigation to the first picture, in headless Chromium without a GPU, 1440 x 900
//   draw         the script of one frame: the least of several at each zoom, from everything to a few
//                events, panning; the largest of these, by groups and in order
//   task         the longest task of the browser, whatever it did and waited for, while the keys zoom
//                in, pan, zoom out and the wheel turns
//   served       the same of `tessera serve`, and the longest answer to what its page asked for
//
// `./run viewer` installs what it needs.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from '../viewer/node_modules/playwright-core/index.mjs';

const [tessera, file, rounds = '5'] = process.argv.slice(2);
const work = mkdtempSync(join(tmpdir(), 'tessera-page-'));
const page = join(work, 'page.html');

function timed(...words) {
  const start = process.hrtime.bigint();
  execFileSync(tessera, words, { stdio: 'ignore' });
  return Number(process.hrtime.bigint() - start) / 1e6;
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** Keys and wheel, as someone who looks around. */
async function lookAround(tab) {
  const press = async (key, times) => {
    for (let i = 0; i < times; i++) {
      await tab.keyboard.press(key);
      await tab.waitForTimeout(60);
    }
  };
  await tab.focus('.timeline');
  await press('w', 25);
  await press('d', 15);
  await press('s', 12);
  await press('a', 15);
  await press('s', 20);
  await press('b', 1);
  await tab.mouse.move(700, 300);
  for (let i = 0; i < 12; i++) {
    await tab.mouse.wheel(0, i < 8 ? -200 : 200);
    await tab.waitForTimeout(60);
  }
}

/** The script of one frame where drawing takes longest: the least of several, as others use the
 * machine too. */
async function slowestDraw(tab) {
  const { events } = await tab.evaluate('tessera.devices[0]');
  let slowest = 0;
  for (const layout of ['grouped', 'bands'])
    for (let width = events; width > 500; width /= 2) {
      let least = Infinity;
      for (let i = 0; i < 12; i++) {
        await tab.evaluate('tessera.frames().splice(0)');
        const from = Math.min(events * 0.3, events - width) + i * width * 1e-3;
        await tab.evaluate((patch) => tessera.set(patch), { layout, view: [from, from + width] });
        await tab.waitForTimeout(40);
        const frames = await tab.evaluate('tessera.frames()');
        if (frames.length) least = Math.min(least, Math.max(...frames));
      }
      if (least < Infinity) slowest = Math.max(slowest, least);
    }
  return slowest;
}

async function look(url) {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  const tab = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  let answer = 0;
  tab.on('requestfinished', (r) => r.url().includes('part?') && (answer = Math.max(answer, r.timing().responseEnd)));
  await tab.goto(url);
  await tab.waitForFunction(() => window.tessera, null, { timeout: 60000 });
  const ready = await tab.evaluate('tessera.readyMs');
  await tab.waitForTimeout(1500);
  await tab.evaluate('window.long = [0]; new PerformanceObserver((l) => { for (const e of l.getEntries()) long.push(e.duration); }).observe({ entryTypes: ["longtask"] })');
  await lookAround(tab);
  const task = Math.max(...(await tab.evaluate('long')));
  const frame = await slowestDraw(tab);
  await browser.close();
  return { ready, frame, task, answer };
}

async function lookAtServer() {
  const server = spawn(tessera, ['serve', '-q', file], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(server.stdout, 'data');
  const seen = await look(line.toString().trim());
  server.kill('SIGTERM');
  return seen;
}

const times = { peak: [], view: [] };
for (let i = 0; i < Number(rounds); i++) {
  times.peak.push(timed('peak', '-q', file));
  times.view.push(timed('view', '-q', '-o', page, file));
}
const bytes = statSync(page).size;
const opened = await look(`file://${page}`);
const served = await lookAtServer();
rmSync(work, { recursive: true });
const ms = (value) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const task = (value) => (value ? ms(value) : 'below 50 ms');
console.log('| file | peak | view | view : peak | page | ready | slowest draw | longest task | served: ready | slowest draw | longest task | longest answer |');
console.log('|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|');
const [peak, view] = [median(times.peak), median(times.view)];
console.log(`| ${(statSync(file).size / 1e6).toFixed(1)} MB | ${ms(peak)} | ${ms(view)} | ${(view / peak).toFixed(2)} | ${(bytes / 1e6).toFixed(2)} MB | ${ms(opened.ready)} | ${ms(opened.frame)} | ${task(opened.task)} | ${ms(served.ready)} | ${ms(served.frame)} | ${task(served.task)} | ${ms(served.answer)} |`);
