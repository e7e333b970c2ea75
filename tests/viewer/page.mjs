// The tests themselves; see run.py. Each is a function that throws where something is wrong.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import ranksTests from './ranks.mjs';

const plan = JSON.parse(process.argv[2]);
const { chromium } = await import(plan.playwright);
const MOMENTS = plan.whole ? 50 : 5;
/** All of a list, or in a quick run every n-th. */
const sample = (list, n) => list.filter((_, i) => plan.whole || i % n === 0);
const HANG_MS = 1800000; // ends what hangs; a busy machine may be slow

const browser = await chromium.launch({
  executablePath: plan.chromium,
  args: ['--no-sandbox', '--disable-gpu'],
  timeout: HANG_MS,
});

// ---- helpers ----

function expect(what, got, want) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(`${what}: got ${a}, want ${b}`);
}

function check(what, condition) {
  if (!condition) throw new Error(what);
}

function tessera(...words) {
  return execFileSync(plan.tessera, words, { maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'pipe'] }).toString();
}

const pages = new Map();
/** The path of a page of some files, which is written once. */
function write(files, ...options) {
  const words = [...options, ...[files].flat()];
  const key = JSON.stringify(words);
  if (!pages.has(key)) {
    const path = join(plan.work, `page-${pages.size}.html`);
    tessera('view', '-q', '-o', path, ...words);
    pages.set(key, path);
  }
  return pages.get(key);
}

/** In the page, before its own scripts: its timers and the frames that it asked for are known, so that settled() waits for them
 * alone. */
function knowTimers() {
  const { setTimeout: later, clearTimeout: forget, requestAnimationFrame: atFrame, cancelAnimationFrame: noFrame } = window;
  const timers = new Map();
  const frames = new Set();
  window.setTimeout = (run, ms = 0) => {
    const id = later(() => timers.delete(id) && run(), ms);
    timers.set(id, { run, due: performance.now() + ms });
    return id;
  };
  window.clearTimeout = (id) => (timers.delete(id), forget(id));
  window.requestAnimationFrame = (run) => {
    const id = atFrame((now) => frames.delete(id) && run(now));
    frames.add(id);
    return id;
  };
  window.cancelAnimationFrame = (id) => (frames.delete(id), noFrame(id));
  /** Run what is due within so many milliseconds, in that order, and wait until the frames that it asks for are drawn, and what
   * these ask for; one frame at least, in which the page is laid out. */
  window.settled = async (ms) => {
    const end = performance.now() + ms;
    const dueOf = () => [...timers].filter(([, timer]) => timer.due <= end).sort(([, a], [, b]) => a.due - b.due);
    do {
      for (let [next] = dueOf(); next; [next] = dueOf()) {
        window.clearTimeout(next[0]);
        next[1].run();
      }
      await new Promise((done) => atFrame(() => later(done, 0)));
    } while (frames.size || dueOf().length);
  };
}

/** Pages that are closed, which the next open() uses again: a new one takes longer than what most tests do with it. */
const spare = [];

async function newPage() {
  const context = await browser.newContext({ acceptDownloads: true });
  context.setDefaultTimeout(HANG_MS);
  await context.addInitScript(knowTimers);
  const page = await context.newPage();
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && page.complaints.push(m.text()));
  page.on('pageerror', (e) => page.complaints.push(String(e)));
  page.on('dialog', (d) => (page.complaints.push(`dialog: ${d.message()}`), d.dismiss()));
  page.on('request', (r) => /^(file|data|blob):/.test(r.url()) || (page.server && r.url().startsWith(page.server)) || page.complaints.push(`request: ${r.url()}`));
  return page;
}

/** Open a page, a file's or a server's; whatever it complains of, or asks of a network but for its
 * own server, fails the test. */
async function open(path, { hash = '', width = 1280, height = 800, scheme = 'light' } = {}) {
  const url = path.startsWith('http:') ? path : `file://${encodeURI(path)}`;
  const page = spare.pop() ?? (await newPage());
  page.complaints = [];
  page.server = url.startsWith('http:') ? url : null;
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(`${url}${hash ? `#${hash}` : ''}`);
  await page.waitForFunction(() => window.tessera);
  return page;
}

/** Serve a file while `use` looks at it; the server must end well. */
async function serve(file, options, use) {
  const server = spawn(plan.tessera, ['serve', '-q', ...options, file], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const [line] = await once(server.stdout, 'data');
    await use(line.toString().trim());
  } finally {
    server.kill('SIGTERM');
  }
  const [code] = server.exitCode === null ? await once(server, 'exit') : [server.exitCode];
  expect('the server ends', code, 0);
}

/** Wait until what was asked of the server is there, and drawn. */
async function arrived(page) {
  await settle(page); // the page asks while it draws
  while (await page.evaluate('tessera.isWaiting()')) {
    await page.waitForFunction(() => !window.tessera.isWaiting());
    await settle(page);
  }
}

async function close(page) {
  await page.mouse.move(0, 0);
  await page.goto('about:blank'); // else an address with another hash would be the same page
  await page.context().clearPermissions();
  expect('complaints of the page', page.complaints, []);
  spare.push(page);
}

const state = (page) => page.evaluate('tessera.state()');
/** Wait until what was asked for is drawn. The page waits 200 ms at most before it does something, for which nobody waits here. */
const settle = (page) => page.evaluate('settled(300)');
/** Wait until what the page does at once is drawn. */
const frame = (page) => page.evaluate('settled(0)');

async function plotBox(page) {
  const box = await page.locator('.raster').first().boundingBox();
  check('the picture has a size', box && box.width > 100 && box.height > 50);
  return box;
}

async function shoot(page, name) {
  if (!plan.shots) return;
  mkdirSync(plan.shots, { recursive: true });
  await page.screenshot({ path: join(plan.shots, `${name}.png`) });
}

function luminance([r, g, b]) {
  const part = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
}

function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}

/** Bytes by category as `tessera at` tells them. */
function atOf(file, device, event) {
  const answer = JSON.parse(tessera('at', '--json', '--top', '0', '--device', String(device), '--event', String(event), file));
  const at = answer.devices.find((d) => d.device === device);
  const groups = {};
  for (const { category, categories, bytes } of at.stacks)
    for (const [name, part] of Object.entries(categories ?? { [category]: bytes })) groups[name] = (groups[name] ?? 0) + part;
  return { at, groups };
}

function compareMoment(name, event, mine, file, device) {
  const { at, groups } = atOf(file, device, event);
  for (const [group, bytes] of Object.entries(mine.groups))
    expect(`${name}, event ${event}, ${group}`, bytes, groups[group] ?? 0);
  for (const kind of ['requested', 'allocated', 'active', 'reserved'])
    expect(`${name}, event ${event}, ${kind}`, mine.totals[kind], at[`${kind}_bytes`]);
  expect(`${name}, event ${event}, blocks`, mine.totals.blocks, at.live_allocations);
}

// ---- tests ----

const real = (name) => plan.real.find((p) => basename(p) === name);
const main = real('train-ctx1024-torch2.11.pickle') ?? plan.made.waves;
const tests = [];
const test = (name, run, needsReal = false) => tests.push({ name, run, needsReal });

test('opens at the peak, at most 20 MB, without a complaint', async () => {
  const path = write(main);
  check('at most 20 MB', statSync(path).size <= 20e6);
  const page = await open(path);
  const peak = JSON.parse(tessera('peak', '--json', main)).devices[0];
  expect('the chosen moment', (await state(page)).place.moment - 1, peak.peak.event);
  const text = await page.locator('.summary').innerText();
  check('the summary says peak', text.includes('peak'));
  check('its first row is the largest stack', (await page.locator('tbody tr').count()) > 1);
  check('something is drawn', await page.evaluate(() => {
    const c = document.querySelector('.raster');
    return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 2;
  }));
  await shoot(page, 'open');
  await close(page);
});

test('every network, plug-in and foreign script is forbidden', async () => {
  const html = readFileSync(write(plan.made.waves), 'utf8');
  const policy = /Content-Security-Policy" content="([^"]*)"/.exec(html)[1];
  check('a policy that begins with nothing', policy.startsWith("default-src 'none'"));
  check('no unsafe words in it', !/unsafe|http|\*/.test(policy));
  const page = await open(write(plan.made.waves));
  const refused = await page.evaluate(() => fetch('https://example.org/').then(() => false, () => true));
  check('a request is refused', refused);
  page.complaints = page.complaints.filter((c) => !/example\.org|Content Security Policy/.test(c));
  await close(page);
});

test('the wheel zooms at the pointer, keys zoom and move, F shows all', async () => {
  const page = await open(write(main));
  const box = await plotBox(page);
  await page.mouse.move(box.x + box.width / 4, box.y + box.height / 2);
  await page.mouse.wheel(0, -600);
  await settle(page);
  const zoomed = (await state(page)).view;
  check('the view is narrower', zoomed && zoomed[1] - zoomed[0] > 0);
  await page.keyboard.press('w');
  await settle(page);
  const nearer = (await state(page)).view;
  check('W zooms in', nearer[1] - nearer[0] < zoomed[1] - zoomed[0]);
  await page.locator('.timeline').focus();
  await page.keyboard.press('d');
  await settle(page);
  check('D moves right', (await state(page)).view[0] > nearer[0]);
  await page.keyboard.press('a');
  await page.keyboard.press('s');
  await settle(page);
  await page.mouse.move(box.x + 40, box.y + 40);
  await page.keyboard.down('Shift');
  await page.mouse.wheel(0, -300);
  await page.keyboard.up('Shift');
  await settle(page);
  check('Shift and wheel stretch the height', (await state(page)).zoomY > 1);
  await page.keyboard.press('f');
  await page.keyboard.press('Escape');
  await settle(page);
  expect('everything again', (await state(page)).view, null);
  await close(page);
});

test('no zoom loses a peak', async () => {
  const page = await open(write(plan.made.long));
  const peak = await page.evaluate('tessera.at(0, tessera.devices[0].peak).totals.allocated');
  const moment = (await page.evaluate('tessera.devices[0].peak')) + 1;
  const { events } = await page.evaluate('tessera.devices[0]');
  for (const axis of ['event', 'time']) {
    await page.evaluate((a) => tessera.set({ axis: a, view: null }), axis);
    await settle(page);
    const whole = await page.evaluate('tessera.columns(0)');
    expect(`highest column by ${axis}`, Math.max(...whole.allocated), peak);
  }
  await page.evaluate(() => tessera.set({ axis: 'event' }));
  for (let width = events; width > 8; width /= 3) {
    await page.evaluate(([from, to]) => tessera.set({ view: [from, to] }), [moment - width * 0.37, moment + width * 0.63]);
    await settle(page);
    const columns = await page.evaluate('tessera.columns(0)');
    expect(`highest column of ${Math.round(width)} events`, Math.max(...columns.allocated), peak);
    check('columns go forward', columns.moments.every((m, i) => !i || m >= columns.moments[i - 1]));
  }
  await close(page);
});

test('a drag is a range; the table is of its peak, or of what it made, kept or freed', async () => {
  const page = await open(write(main));
  const box = await plotBox(page);
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.5);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.45, box.y + box.height * 0.6, { steps: 6 });
  await page.mouse.up();
  await settle(page);
  const { range } = await state(page);
  check('a range is chosen', range && range.to > range.from);
  const atPeak = await page.evaluate('tessera.selection()');
  check('its peak lies in it', atPeak.moment >= range.from && atPeak.moment <= range.to);
  const most = Math.max(...(await page.evaluate(([a, b]) => {
    const out = [];
    for (let m = a; m <= b; m += Math.max(1, Math.floor((b - a) / 200))) out.push(tessera.at(0, m - 1).totals.allocated);
    return out;
  }, [range.from, range.to])));
  const there = await page.evaluate((m) => tessera.at(0, m - 1).totals.allocated, atPeak.moment);
  check('nothing in it is higher', there >= most);
  const blocks = {};
  for (const mode of ['made', 'kept', 'freed']) {
    await page.locator('.range select').selectOption(mode);
    await settle(page);
    blocks[mode] = (await page.evaluate('tessera.selection()')).blocks;
  }
  check('what is kept was made', blocks.kept <= blocks.made);
  await shoot(page, 'range');
  await page.keyboard.press('Escape');
  await settle(page);
  await page.locator('.timeline').focus();
  await page.keyboard.press('Escape');
  await settle(page);
  expect('the range is let go', (await state(page)).range, null);
  await close(page);
});

/** Training of a model of 8 billion parameters: none of its thousands of blocks is a pixel high. */
const training = (capacity = '') => {
  const path = join(plan.work, `training${capacity}.pickle`);
  if (!existsSync(path)) tessera('simulate', '-q', 'llama-3-8b', '--dtype', 'bf16', '--batch', '1', '--seq', '2048', '--steps', '2', '-o', path, ...(capacity ? ['--capacity', capacity] : []));
  return path;
};

/** By column of the picture, its rows and those that are coloured, as the canvas has them. */
const rowsOf = (page) => page.evaluate(() => {
  const { width, height } = document.querySelector('.raster');
  const { data } = document.querySelector('.raster').getContext('2d').getImageData(0, 0, width, height);
  const pixels = new Uint32Array(data.buffer);
  const { bytes, bytesPerRow } = tessera.found(0);
  return { bytes, bytesPerRow, rows: bytes.map((_, c) => {
    const column = tessera.column(0, c);
    const drawn = Array.from({ length: height }, (_, r) => pixels[r * width + c]).filter((pixel) => pixel).length;
    const sum = (some) => some.reduce((all, run) => all + run.rows, 0);
    return { drawn, told: sum(column), coloured: sum(column.filter((run) => run.isColoured)) };
  }) };
});

/** Every column has as many coloured rows as the bytes that match fill, and one if they fill less. What its last thin
 * blocks fill together may be less than a row, and rows are whole. */
async function expectColoured(page, name) {
  await settle(page);
  const { bytes, bytesPerRow, rows } = await rowsOf(page);
  check(`${name}: something matches`, bytes.some((b) => b > 0));
  page.complaints = page.complaints.filter((c) => !c.includes('willReadFrequently'));
  rows.forEach(({ drawn, told, coloured }, c) => {
    expect(`${name}: rows of column ${c}`, told, drawn);
    const wanted = bytes[c] / bytesPerRow;
    check(`${name}: column ${c} has ${coloured} coloured rows for ${wanted}`, bytes[c] ? coloured >= 1 && Math.abs(coloured - wanted) <= 1.51 : !coloured);
  });
}

test('colours of a search sum to its bytes, however thin its blocks are', async () => {
  const page = await open(write(training()));
  for (const layout of sample(['grouped', 'bands'], 2))
    for (const [search, theme] of [['cache_utils', 'light'], ['gradient', 'dark'], ['zeros_like', 'dark'], ['modeling_llama forward', 'light'], ['>=100MiB', 'dark'], ['<1MiB', 'light']]) {
      await page.evaluate((s) => tessera.set({ ...s, view: null, zoomY: 1, low: 0 }), { layout, search, theme });
      await expectColoured(page, `${search}, ${layout}`);
      const shown = await page.evaluate(() => tessera.found(0).bytes[tessera.columns(0).moments.indexOf(tessera.devices[0].peak + 1)]);
      const title = await page.locator('.figure.match').getAttribute('title');
      expect(`${search}: bytes at the peak`, shown, Number((/\(([0-9,]+) bytes\)/.exec(title)?.[1] ?? title.replace(' B', '')).replaceAll(',', '')));
      await page.evaluate((s) => tessera.set(s), { view: [12000, 12600], zoomY: 5, low: 30e9 });
      await settle(page);
      const { rows, bytes, bytesPerRow } = await rowsOf(page);
      rows.forEach(({ coloured }, c) => check(`${search}, stretched: no more than matches`, coloured <= bytes[c] / bytesPerRow + 1.51));
    }
  await page.evaluate(() => tessera.set({ search: 'cache_utils', layout: 'grouped', view: null, zoomY: 1, low: 0 }));
  await settle(page);
  await shoot(page, 'search-training');
  const legend = await page.locator('.legend .group').evaluateAll((all) => all.map((e) => e.querySelector('.name').textContent + ' ' + e.querySelector('.bytes').textContent));
  check(`the legend tells what matches: ${legend}`, legend.includes('activation 256.00 MiB') && legend.includes('optimizer_state 0 B'));
  await close(page);
  // Of a page that tells small blocks in sums, what it does tell is coloured.
  await serve(plan.made.long, ['--blocks', '1000'], async (url) => {
    const cut = await open(url);
    await arrived(cut);
    await cut.evaluate(() => tessera.set({ search: 'backward' }));
    await arrived(cut);
    await expectColoured(cut, 'a page of parts');
    await close(cut);
  });
});

test('colours of every finding sum to its bytes', async () => {
  for (const file of sample([...Object.values(plan.habits), ...plan.real], 6)) {
    const { findings } = JSON.parse(tessera('peak', '--json', file)).devices[0];
    if (!findings.length) continue;
    const page = await open(write(file));
    for (const { rule } of findings) {
      if (rule === 'cached') continue;
      for (const layout of sample(['grouped', 'bands'], 2)) {
        await page.evaluate((s) => tessera.set({ ...s, place: { track: 0, moment: 0 } }), { layout, finding: { track: 0, rule } });
        await expectColoured(page, `${rule} of ${basename(file)}, ${layout}`);
      }
    }
    await close(page);
  }
});

test('of thin blocks the pointer tells each, and what its group holds', async () => {
  const page = await open(write(training()));
  const box = await plotBox(page);
  const tip = async (x, y) => {
    await page.mouse.move(box.x + box.width * x, box.y + box.height * y);
    await frame(page);
    return page.locator('.tooltip').innerText();
  };
  const event = await page.evaluate('tessera.devices[0].peak');
  const { groups } = await page.evaluate((e) => tessera.at(0, e), event);
  const x = (await page.evaluate((e) => tessera.placeOf(0, e), event)) - 72;
  const text = await tip((x + 0.5) / box.width, 0.6);
  const group = /^category\s+(\w+): [^(]*\(([0-9,]+)\s+bytes\) in ([0-9,]+) blocks/m.exec(text);
  check(`the group is told: ${text}`, group);
  expect(`bytes of ${group[1]}`, Number(group[2].replaceAll(',', '')), groups[group[1]]);
  check(`its count is that of many (${group[3]})`, Number(group[3].replaceAll(',', '')) > 100);
  check('its largest stacks are told', /(most )?of it:\s+[0-9.]+ GiB/.test(text));
  await shoot(page, 'hover-training');
  // At four events in view, whatever is drawn is a block.
  await page.evaluate((e) => tessera.set({ view: [e - 1, e + 3] }), event);
  await settle(page);
  for (const y of [0.4, 0.55, 0.7, 0.85, 0.99]) check(`a block at ${y}`, /^address/m.test(await tip(0.5, y)));
  await close(page);
});

test('what never changes carries the rest; in order is the order of allocation', async () => {
  const page = await open(write(training()));
  const names = await page.evaluate('tessera.names(0)');
  const { rows } = await rowsOf(page).catch(() => ({ rows: [] }));
  expect('nothing is looked for', rows.length, 0);
  const count = (await page.evaluate('tessera.columns(0)')).moments.length;
  // As text, which is quicker to hand over than its many objects.
  const columns = JSON.parse(await page.evaluate((n) => JSON.stringify(Array.from({ length: n }, (_, c) => tessera.column(0, c))), count));
  /** First and last row of a group in a column. */
  const extent = (column, name) => {
    let at = 0;
    const rows = [];
    for (const run of column) {
      if (names[run.group] === name) rows.push(at, at + run.rows);
      at += run.rows;
    }
    return rows.length ? [Math.min(...rows), Math.max(...rows)] : null;
  };
  const parameters = new Set(columns.map((c) => JSON.stringify(extent(c, 'parameter'))));
  expect('rows of parameters, over all columns', parameters.size, 1);
  const late = columns.slice(Math.floor(count * 0.7)).map((c) => JSON.stringify(extent(c, 'optimizer_state')));
  expect('rows of the state of the optimizer, once it is there', new Set(late).size, 1);
  await page.evaluate(() => tessera.set({ layout: 'bands' }));
  await settle(page);
  for (let c = 0; c < count; c += 37) {
    const births = (await page.evaluate((n) => tessera.column(0, n), c)).map((run) => run.born).filter((born) => born >= 0);
    check(`column ${c} has blocks`, births.length > 1);
    check(`column ${c} is in order`, births.every((born, i) => !i || born >= births[i - 1]));
  }
  await close(page);
});

test('the summary tells what the event of the moment did', async () => {
  const page = await open(write(plan.made.waves));
  const text = async (event) => {
    await page.evaluate((m) => tessera.set({ place: { track: 0, moment: m } }), event + 1);
    await settle(page);
    return (await page.locator('.summary .event').count()) ? page.locator('.summary .event').innerText() : '';
  };
  expect('before all events', await text(-1), '');
  expect('the first', await text(0), 'allocates 1.00 MiB, forward.py:1 forward');
  const freed = 61; // the first place is used again
  expect('a request to free', await text(freed), 'gives back 1.00 MiB, forward.py:1 forward');
  expect('and its end', await text(freed + 1), 'frees 1.00 MiB, forward.py:1 forward');
  check('and what takes its place', (await text(freed + 2)).startsWith('allocates '));
  await close(page);
});

test('the height is stretched around the pointer, and moved', async () => {
  const page = await open(write(training()));
  const box = await plotBox(page);
  const over = await page.locator('.over').first().boundingBox();
  const y = Math.round(box.y + box.height * 0.4); // as events of the wheel have it
  const there = () => page.evaluate((at) => tessera.bytesAt(0, at), y - over.y);
  const before = await there();
  await page.mouse.move(box.x + box.width / 2, y);
  await page.keyboard.down('Shift');
  for (let i = 0; i < 4; i++) await page.mouse.wheel(0, -300);
  await settle(page);
  const { zoomY, low } = await state(page);
  check(`stretched ${zoomY} times from ${low} on`, zoomY > 10 && low > 0);
  const after = await there();
  check(`the pointer is on the same bytes: ${after}, not ${before}`, Math.abs(after - before) < before / 1000);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2, y + 50, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.up('Shift');
  await settle(page);
  check('the picture moved with the pointer', (await state(page)).low > low);
  check('no range was chosen', !(await state(page)).range);
  await page.evaluate(() => tessera.set({ place: { ...tessera.state().place } }));
  const copy = await open(write(training()), { hash: page.url().split('#')[1] });
  expect('the address has it', Math.round((await state(copy)).low), Math.round((await state(page)).low));
  await close(copy);
  await page.keyboard.press('f');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('Escape');
  await settle(page);
  expect('all again', [(await state(page)).low, (await state(page)).zoomY], [0, 1]);
  await close(page);
});

test('the height fits what is in view, and what is allocated', async () => {
  const page = await open(write(training()));
  const over = await page.locator('.over').first().boundingBox();
  const box = await plotBox(page);
  const top = () => page.evaluate((y) => tessera.bytesAt(0, y), box.y - over.y);
  const whole = await top();
  const { events } = (await page.evaluate('tessera.devices'))[0];
  await page.evaluate((to) => tessera.set({ view: [0, to] }), Math.round(events / 40));
  await page.keyboard.press('y');
  await settle(page);
  const most = Math.max(...(await page.evaluate('tessera.columns(0)')).allocated);
  const fit = await top();
  check(`${fit} fits ${most}, of ${whole}`, fit >= most && fit < most * 1.3 && fit < whole * 0.8);
  await page.keyboard.press('y');
  await settle(page);
  expect('all again', (await state(page)).zoomY, 1);
  await close(page);
  // Reserved memory a hundred times what is allocated does not make that flat.
  const far = await open(write(plan.habits.zero_grad));
  await settle(far);
  const { allocated_bytes: peak } = JSON.parse(tessera('peak', '--json', plan.habits.zero_grad)).devices[0].peak;
  const high = await far.evaluate((y) => tessera.bytesAt(0, y), (await plotBox(far)).y - (await far.locator('.over').first().boundingBox()).y);
  check(`the picture goes to ${high}, its peak is ${peak}`, high < 2 * peak);
  check('it says what is above', (await far.evaluate('tessera.labels(0)')).written.some((l) => l.text.startsWith('\u2191 reserved 64.00 GiB')));
  await close(far);
});

test('the flame graph of your code has no frames of the engine, and turns over', async () => {
  for (const file of [training(), main]) {
    const page = await open(write(file), { hash: 'tab=2' });
    await settle(page);
    const boxes = await page.evaluate('tessera.flame()');
    check('it has boxes', boxes.length > 5);
    for (const [, title] of boxes) check(`'${title}' is no frame of C++`, !/::apply|Engine::|torch::|c10::|PyObject|_PyEval|\.cpp|\.so\b/.test(title));
    const total = (all, depth) => all.filter(([d]) => d === depth).reduce((sum, [, , bytes]) => sum + bytes, 0);
    await page.keyboard.press('i');
    await settle(page);
    const turned = await page.evaluate('tessera.flame()');
    expect('all of it', turned[0], boxes[0]);
    const first = (all) => new Set(all.filter(([d]) => d === 1).map(([, title]) => title));
    check('what allocated is on top', [...first(turned)].some((title) => !first(boxes).has(title)));
    check('no more than all', total(turned, 1) <= boxes[0][2]);
    await shoot(page, 'flame-inverted');
    await close(page);
  }
});

test('events around the moment are listed, and gone to', async () => {
  const file = plan.made.waves;
  const wanted = (where) => JSON.parse(tessera('sql', '--json', file, `SELECT event, action, address, size_bytes FROM events WHERE ${where} ORDER BY event`));
  const verbs = { alloc: 'allocates', free_requested: 'gives back', free_completed: 'frees' };
  const listed = (page) => page.evaluate(() => [...document.querySelectorAll('.events tbody tr')].map((row) => [0, 2, 3, 4].map((i) => (i === 3 ? row.cells[i].title || row.cells[i].textContent : row.cells[i].textContent))));
  const bytesOf = (text) => Number((/([\d,]+) bytes/.exec(text) ?? /^([\d,]+) B/.exec(text))[1].replaceAll(',', ''));
  const same = (what, rows, events) => expect(what, rows.map(([event, verb, bytes, address]) => [Number(event.replaceAll(',', '')), verb, bytesOf(bytes), Number(address)]),
    events.map((e) => [e.event, verbs[e.action], e.size_bytes, e.address]));
  const page = await open(write(file), { hash: 'at=0~2001&tab=5', width: 1440, height: 900 });
  await settle(page);
  same('all of them', await listed(page), wanted('event BETWEEN 1940 AND 2060'));
  const chosen = page.locator('.events tr.shown');
  expect('the chosen one', await chosen.locator('td').first().innerText(), '2,000');
  const [row, panel] = [await chosen.boundingBox(), await page.locator('.panel').boundingBox()];
  check('is in sight', row.y > panel.y && row.y + row.height < panel.y + panel.height);
  await page.keyboard.press('.');
  await settle(page);
  expect('the next one', await chosen.locator('td').first().innerText(), '2,001');
  await page.locator('.events tbody tr').nth(40).click();
  await settle(page);
  check('a click goes there', (await state(page)).place.moment < 2000 && (await state(page)).pin !== null);
  const { address } = wanted('event = 2000')[0];
  await page.evaluate((q) => tessera.set({ search: q, place: { track: 0, moment: 2001 } }), `0x${address.toString(16)}`);
  await settle(page);
  const hits = wanted(`address = ${address}`);
  const middle = hits.filter((e) => e.event <= 2000).length;
  same('of one address', await listed(page), hits.slice(Math.max(0, middle - 60), middle + 60));
  await shoot(page, 'events');
  await close(page);
});

test('modules, lines and operations are in the selector, as tessera profile has them', async () => {
  for (const file of [training(), main]) {
    const page = await open(write(file));
    const options = await page.locator('#by option').evaluateAll((all) => all.map((o) => o.value));
    const { event } = JSON.parse(tessera('peak', '--json', file)).devices[0].peak;
    for (const by of ['module', 'line', 'op']) {
      check(`by ${by} can be chosen of ${options}`, options.includes(by));
      const { groups } = JSON.parse(tessera('profile', '--json', '--top', '0', '--by', by, file)).devices[0];
      const mine = new Map(await page.evaluate(([e, k]) => tessera.groups(0, e, k), [event, by]));
      const shown = groups.filter((g) => mine.has(g.name) && !/^\((other|no stack)/.test(g.name));
      check(`${by}: most groups of profile are shown (${shown.length})`, shown.length >= Math.min(groups.length, 8) - 1);
      for (const { name, bytes } of shown) expect(`${by}, ${name}`, mine.get(name), bytes);
      expect(`${by}, all`, [...mine.values()].reduce((a, b) => a + b, 0), groups.reduce((a, g) => a + g.bytes, 0));
    }
    await page.locator('#by').selectOption('module');
    await settle(page);
    await shoot(page, 'by-module');
    await close(page);
  }
});

test('at any width the table is in sight, the file is named, and nothing is cut', async () => {
  const files = { training: training(), 'out of memory': training('60GiB'), devices: plan.made.devices, still: plan.made.still, advice: plan.habits.checkpoint, inference: real('infer-ctx512-torch2.11.pickle') ?? plan.habits.no_grad };
  for (const [name, file] of sample([...Object.entries(files), ['difference', [plan.made.waves, plan.made.moved]]], 2))
    for (const [width, height] of [[1440, 900], [1024, 700], [400, 800]])
      for (const scheme of plan.shots ? ['light', 'dark'] : ['light']) { // they differ in colours alone
        const page = await open(write(file), { width, height, scheme });
        await settle(page);
        const over = await page.evaluate(() => [...document.querySelectorAll('body *')].filter((e) => {
          for (let up = e.parentElement; up; up = up.parentElement) if (getComputedStyle(up).overflowX !== 'visible') return false;
          return getComputedStyle(e).display !== 'none' && e.getBoundingClientRect().right > innerWidth + 1;
        }).map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`));
        expect(`${name} at ${width}: elements beyond the window`, over, []);
        const title = await page.locator('header .file strong').boundingBox();
        check(`${name} at ${width}: the file has a name`, title.width >= 40);
        const row = page.locator('.panel tbody tr').first();
        if (width > 400 && (await row.count())) {
          const box = await row.boundingBox();
          check(`${name} at ${width}: the first row is in sight (${box.y + box.height})`, box.y + box.height <= height);
        }
        const peak = await page.evaluate('tessera.devices[0].peak');
        const events = await page.evaluate('tessera.devices[0].events');
        const right = (await page.locator('.over').first().boundingBox()).width;
        if (events) check(`${name} at ${width}: its mark is whole`, (await page.evaluate((e) => tessera.placeOf(0, e), peak)) + 4 <= right);
        await shoot(page, `${name.replaceAll(' ', '-')}-${width}-${scheme}`);
        await close(page);
      }
});

test('what is under the pointer is told, and pinned by a click', async () => {
  const page = await open(write(main), { hash: 'layout=bands' });
  const box = await plotBox(page);
  const at = async (y) => {
    await page.mouse.move(box.x + box.width * 0.17, box.y + y);
    await frame(page);
    return /^allocated at/m.test(await page.locator('.tooltip').innerText());
  };
  let y = box.height - 4;
  while (y > 4 && !(await at(y))) y -= 3;
  check('a block is found', y > 4);
  const tip = await page.locator('.tooltip').innerText();
  await shoot(page, 'hover');
  await page.mouse.click(box.x + box.width * 0.17, box.y + y);
  await settle(page);
  const pinned = await page.locator('.pin').innerText();
  const address = /0x[0-9a-f]+/.exec(tip)[0];
  check(`the pinned block has the address ${address}`, pinned.includes(address));
  for (const word of ['size', 'life', 'copy stack']) check(`the pin tells ${word}`, pinned.includes(word));
  await page.keyboard.press('Escape');
  await settle(page);
  expect('let go', (await state(page)).pin, null);
  await close(page);
});

test('a stack is copied whole, by keys alone', async () => {
  const page = await open(write(plan.made.waves));
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']).catch(() => {});
  await page.locator('tbody tr').first().focus();
  await page.keyboard.press('Enter');
  await settle(page);
  const button = page.getByRole('button', { name: 'copy stack' });
  await button.focus();
  // The button says so for a second only, so that a look afterwards could come too late.
  const said = page.evaluate(() => new Promise((done) => {
    const look = () => [...document.querySelectorAll('button')].some((b) => b.textContent === 'copied') && done();
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
  }));
  await page.keyboard.press('Enter');
  await said;
  const lines = (await page.evaluate(() => navigator.clipboard.readText())).split('\n');
  expect('outermost first', lines[0], 'main  /home/me/train.py:3');
  check('down to what allocated', /^(forward|backward|step)  \/home\/me\//.test(lines[1]));
  await close(page);
});

test('what the program called its memory is found, shown and grouped by', async () => {
  const page = await open(write(plan.made.noted, '--by', 'metadata:layer'), { hash: 'layout=bands' });
  const names = (await page.locator('.legend').innerText()).split('\n');
  check('groups are the values of the key', ['0', '3', '(no metadata)'].every((n) => names.includes(n)));
  await page.keyboard.press('/');
  await page.keyboard.type('kv LAYER</b> 3');
  await settle(page);
  const { blocks } = await page.evaluate('tessera.selection()');
  check('search finds names', blocks > 0 && (await page.locator('.figure.match').innerText()).includes(`${blocks} matching`));
  await page.fill('#search', 'kv of backward');
  await settle(page);
  const rows = await page.locator('tbody tr td.left:last-child').allInnerTexts();
  check('some words of the name, some of the stack', rows.length > 0 && rows.every((r) => r.includes('backward')));
  await page.fill('#search', '');
  await settle(page);
  const box = await plotBox(page);
  let tip = '';
  for (let y = box.height - 4; y > 4 && !tip.includes('kv of'); y -= 3) {
    await page.mouse.move(box.x + box.width * 0.4, box.y + y);
    await frame(page);
    tip = await page.locator('.tooltip').innerText();
  }
  check('the tooltip has the name, as text', /name\s+kv of <b>layer<\/b> \d/.test(tip));
  await shoot(page, 'noted');
  await close(page);
});

test('search shows what matches, and says how much that is', async () => {
  const page = await open(write(plan.made.waves));
  await page.keyboard.press('/');
  await page.keyboard.type('backward');
  await settle(page);
  const rows = await page.locator('tbody tr td.left:last-child').allInnerTexts();
  check('all rows match', rows.length > 0 && rows.every((r) => r.includes('backward')));
  const text = await page.locator('.figure.match').innerText();
  check('bytes are told', / MiB in /.test(text));
  const { blocks } = await page.evaluate('tessera.selection()');
  check('blocks are those', text.includes(`${blocks} matching`) && blocks > 10);
  await shoot(page, 'search');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await settle(page);
  expect('nothing is searched for', (await state(page)).search, '');
  await close(page);
});

test('two marks have a difference, which adds up', async () => {
  const page = await open(write(plan.made.waves));
  await page.locator('.timeline').focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('m');
  await page.keyboard.press('p');
  await page.keyboard.press('m');
  await settle(page);
  const { marks, tab } = await state(page);
  expect('the tab', tab, 4);
  expect('mark A', marks[0].moment, 0);
  const [a, b] = await page.evaluate((places) => places.map((p) => tessera.at(0, p.moment - 1).totals.requested), marks);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
  const lines = readFileSync(await download.path(), 'utf8').trim().split('\n').slice(1);
  const sum = lines.reduce((total, line) => total + Number(line.split(',')[0]), 0);
  expect('the sum of all changes', sum, b - a);
  await shoot(page, 'difference');
  await close(page);
});

test('the table is a CSV file with a row for each stack', async () => {
  const page = await open(write(main));
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
  const lines = readFileSync(await download.path(), 'utf8').trim().split('\n');
  const peak = JSON.parse(tessera('peak', '--json', '--top', '0', main)).devices[0];
  expect('rows', lines.length - 1, peak.stacks.length);
  expect('largest', Number(lines[1].split(',')[0]), peak.stacks[0].bytes);
  await close(page);
});

test('everything is reached by keys alone', async () => {
  const page = await open(write(main));
  const seen = new Set();
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    seen.add(await page.evaluate(() => {
      const e = document.activeElement;
      return e.getAttribute('aria-label')?.slice(0, 16) ?? (e.className || e.tagName);
    }));
  }
  for (const name of ['Search', 'Colour by', 'Memory over time']) check(`Tab reaches ${name}`, [...seen].some((s) => name.startsWith(s) || s.startsWith(name)));
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('?');
  check('help opens', await page.locator('dialog').evaluate((d) => d.open));
  await shoot(page, 'help');
  await page.keyboard.press('Escape');
  check('help closes', !(await page.locator('dialog').evaluate((d) => d.open)));
  for (const tab of ['2', '3', '4', '1']) {
    await page.keyboard.press(tab);
    await settle(page);
    expect('tab', (await state(page)).tab, Number(tab));
    expect('selected', await page.locator(`#tab-${tab}`).getAttribute('aria-selected'), 'true');
  }
  const before = (await state(page)).place.moment;
  await page.keyboard.press('.');
  await settle(page);
  expect('one event on', (await state(page)).place.moment, before + 1);
  await page.keyboard.press('Shift+ArrowRight');
  await settle(page);
  check('a range by Shift', (await state(page)).range !== null);
  await page.locator('tbody tr').first().focus();
  await page.keyboard.press('Enter');
  check('a row opens', (await page.locator('tr.detail').count()) === 1);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('b');
  await page.keyboard.press('g');
  await settle(page);
  const s = await state(page);
  check('B and G change the picture', s.layout === 'bands' && s.by !== 'category');
  const outline = await page.locator('.timeline').evaluate((e) => (e.focus(), getComputedStyle(e).outlineStyle));
  check('the focus is seen', outline !== 'none');
  await close(page);
});

test('a group can be seen alone', async () => {
  const page = await open(write(main));
  const group = page.locator('.legend .group').first();
  const name = await group.locator('.name').innerText();
  await group.click();
  await settle(page);
  expect('isolated', (await state(page)).only, [name]);
  const cells = await page.locator('tbody .in-group').allInnerTexts();
  check('the table holds it alone', cells.length > 0 && cells.every((c) => c.trim() === name));
  await page.locator('.legend .group').first().click();
  await settle(page);
  expect('all again', (await state(page)).only, []);
  await close(page);
});

test('light and dark are both legible', async () => {
  for (const scheme of ['light', 'dark']) {
    const page = await open(write(main), { scheme });
    const colours = await page.evaluate(() => {
      const probe = document.createElement('i');
      document.body.append(probe);
      const read = (name) => {
        probe.style.color = `var(--${name})`;
        return getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
      };
      return Object.fromEntries(['ink', 'muted', 'paper', 'raised', 'accent', 'alarm', 'on-accent'].map((n) => [n, read(n)]));
    });
    expect('the theme', await page.evaluate(() => document.documentElement.dataset.theme), scheme);
    for (const [text, ground] of [['ink', 'paper'], ['ink', 'raised'], ['muted', 'paper'], ['muted', 'raised'], ['accent', 'paper'], ['alarm', 'paper'], ['on-accent', 'accent']]) {
      const ratio = contrast(colours[text], colours[ground]);
      check(`${scheme}: ${text} on ${ground} has ${ratio.toFixed(2)}`, ratio >= 4.5);
    }
    await shoot(page, scheme);
    await close(page);
  }
});

test('a narrow window holds everything', async () => {
  const page = await open(write(main), { width: 360, height: 700 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  check(`nothing is wider than the window (${wide})`, wide <= 0);
  const box = await plotBox(page);
  check('the picture lies in it', box.x + box.width <= 361);
  await shoot(page, 'narrow');
  for (const rows of ['stacks', 'functions', 'groups', 'blocks']) {
    await page.getByLabel('Table').getByRole('button', { name: rows, exact: true }).click();
    await settle(page);
    const over = await page.evaluate(() => document.querySelector('table').getBoundingClientRect().right - innerWidth);
    check(`the table of ${rows} lies in it (${over})`, over <= 0);
  }
  await close(page);
});

test('a view is sent by its address', async () => {
  const path = write(main);
  const page = await open(path);
  await page.locator('.timeline').focus();
  for (const key of ['w', 'w', 'd', '.', '.', 'm', 'b', '2']) await page.keyboard.press(key);
  await settle(page);
  const sent = await state(page);
  const hash = await page.evaluate(() => location.hash.slice(1));
  await close(page);
  const other = await open(path, { hash });
  const got = await state(other);
  for (const key of ['layout', 'tab', 'place', 'marks', 'by', 'axis']) expect(key, got[key], sent[key]);
  check('the same stretch', Math.abs(got.view[0] - sent.view[0]) < 1e-3 && Math.abs(got.view[1] - sent.view[1]) < 1e-3);
  await close(other);
  const broken = await open(path, { hash: 'at=9~9&view=x&tab=77&by=nothing&range=5~1&pin=0~99999999&y=-1&axis=%00' });
  expect('what a hash says wrongly is as at first', (await state(broken)).tab, 1);
  await close(broken);
});

/** The page's sums by pool, of plain and of expandable memory together. */
function byPool(sums) {
  const out = {};
  for (const [name, { reserved, free }] of Object.entries(sums)) {
    const one = (out[name.replace(', expandable', '')] ??= { reserved: 0, free: 0 });
    one.reserved += reserved;
    one.free += free;
  }
  return Object.fromEntries(Object.entries(out).sort());
}

/** The same as the command has it, which tells streams apart. */
function poolsThen(file, event, track) {
  const out = {};
  for (const pool of JSON.parse(tessera('pools', '--json', '--event', `${event}`, file)).devices[track].pools) {
    if (!pool.reserved_bytes) continue;
    const id = pool.pool.some(Boolean) ? `pool (${pool.pool.join(', ')})` : 'default pool';
    const one = (out[`${id}, ${pool.size}`] ??= { reserved: 0, free: 0 });
    one.reserved += pool.reserved_bytes;
    one.free += pool.reserved_bytes - pool.used_bytes;
  }
  return Object.fromEntries(Object.entries(out).sort());
}

test('what segments hold and waste is what the command says', async () => {
  const names = ['train-late-recording.pickle', 'private-pools-no-trace.pickle', 'two-devices-no-trace.pickle', 'train-lm-small.pickle', 'synthetic-mosaic-sample.pickle'];
  for (const file of [main, plan.made.graphs, plan.made.waves, ...names.map(real).filter(Boolean)]) {
    const page = await open(write(file), { hash: 'tab=3' });
    await settle(page);
    const track = (await state(page)).place.track;
    const { fragmentation, peak } = JSON.parse(tessera('peak', '--json', file)).devices[track];
    const { rounding_bytes: rounding, unsplit_bytes: tails } = fragmentation;
    expect(`waste in ${basename(file)}`, await page.evaluate('tessera.waste()'),
      { lost: rounding + tails, inUsed: fragmentation.free_block_bytes, whole: fragmentation.free_segment_bytes, largest: fragmentation.largest_free_bytes });
    check('reserved is told', peak.reserved_bytes > 0);
    expect(`pools in ${basename(file)}`, byPool(await page.evaluate('tessera.poolSums()')), poolsThen(file, peak.event, track));
    if (file === plan.made.graphs) await shoot(page, 'pools');
    const text = await page.locator('.segments .tab-bar').innerText();
    for (const word of ['segments', 'free, in segments in use', 'free, whole segments', 'lost to rounding and tails', 'largest free block'])
      check(`${word}, in '${text}'`, text.includes(word));
    if (file === main) await shoot(page, 'segments');
    await close(page);
  }
});

test('expandable segments are drawn as wide as they were mapped', async () => {
  const file = join(plan.work, 'expandable.pickle');
  tessera('simulate', '-q', 'gpt2', '--batch', '4', '--seq', '512', '--steps', '2', '--set', 'expandable_segments:True', '--capacity', '5GiB', '-o', file);
  const peak = JSON.parse(tessera('peak', '--json', file)).devices[0];
  const page = await open(write(file), { hash: 'tab=3' });
  await settle(page);
  const boxes = await page.evaluate('tessera.segments()');
  const sum = (key) => boxes.reduce((total, box) => total + box[key], 0);
  expect('all that is reserved is drawn', sum('bytes'), peak.peak.reserved_bytes);
  expect('every block is drawn, as a whole', sum('used'), peak.peak.active_bytes);
  check(`a reservation is one segment (${boxes.length})`, boxes.length <= 4 && boxes.every((b) => b.isExpandable));
  // In pixels: of the largest segment as much is coloured as blocks hold of it.
  const most = boxes.reduce((a, b) => (b.bytes > a.bytes ? b : a));
  const coloured = await page.evaluate(({ x, y, width }) => {
    const canvas = document.querySelector('.segments canvas');
    const scale = canvas.width / canvas.getBoundingClientRect().width;
    const row = canvas.getContext('2d').getImageData(Math.round((x + 1) * scale), Math.round(y * scale), Math.round((width - 2) * scale), 1).data;
    const probe = document.createElement('i');
    document.body.append(probe);
    probe.style.color = 'var(--raised)';
    const empty = getComputedStyle(probe).color.match(/\d+/g).map(Number);
    probe.remove();
    let filled = 0;
    for (let i = 0; i < row.length; i += 4) if (empty.some((c, k) => k < 3 && Math.abs(row[i + k] - c) > 2)) filled++;
    return filled / (row.length / 4);
  }, most);
  check(`coloured ${coloured} of ${most.used / most.bytes}`, Math.abs(coloured - most.used / most.bytes) < 0.05);
  await shoot(page, 'expandable');
  await close(page);
});

test('private pools have an envelope as high as what they keep', async () => {
  const files = [plan.made.graphs, real('private-pools-no-trace.pickle')].filter((f) => f);
  for (const file of files) {
    const path = write(file);
    const page = await open(path, { hash: 'by=pool', width: 1440, height: 900 });
    await settle(page);
    const { events } = await page.evaluate('tessera.devices[0]');
    for (const event of events ? [-1, 99, 130, 400, 500, 800, events - 1] : [-1]) {
      const pools = await page.evaluate((e) => tessera.pools(0, e), event);
      const at = JSON.parse(events ? tessera('at', '--json', '--event', String(event), file) : tessera('peak', '--json', file)).devices[0];
      for (const { pool, high_water_bytes } of at.private_pools)
        expect(`what pool ${pool} keeps at ${event}`, pools[`pool (${pool.join(', ')})`][1], high_water_bytes);
      const kept = Object.values(pools).reduce((sum, [, bytes]) => sum + bytes, 0);
      expect(`at ${event} nothing else is kept`, kept, at.private_pools.reduce((sum, p) => sum + p.high_water_bytes, 0));
    }
    const legend = await page.locator('.legend').innerText();
    check('the legend has the high-water mark', /high-water mark [0-9.]+ [MG]iB/.test(legend));
    const name = events ? 'pools' : 'pools-real';
    await shoot(page, `${name}-1440-light`);
    if (events) {
      // Point into an envelope: it says what it is.
      const box = await plotBox(page);
      let found = false;
      for (let y = 4; y < box.height && !found; y += 3) {
        await page.mouse.move(box.x + box.width * 0.5, box.y + y);
        await frame(page);
        found = (await page.locator('.tooltip').innerText()).includes('high-water mark');
      }
      check('an envelope is found', found);
      const tip = await page.locator('.tooltip').innerText();
      check(`it says in use of how much: ${tip}`, /in use\s+[0-9.]+ [KMG]iB \([0-9,]+ bytes\) of (20|40|60)\.00 MiB/.test(tip));
      await shoot(page, 'pools-tip');
    }
    await close(page);
    for (const [width, scheme] of plan.shots ? [[1440, 'dark'], [900, 'light'], [900, 'dark']] : []) {
      const other = await open(path, { hash: 'by=pool', width, height: 900, scheme });
      await settle(other);
      await shoot(other, `${name}-${width}-${scheme}`);
      await close(other);
    }
  }
  // In the order of allocation blocks of a pool do not lie together: no envelope then.
  const page = await open(write(plan.made.graphs), { hash: 'by=pool&layout=bands' });
  await settle(page);
  await close(page);
});

test('two files stand on one axis, and differ', async () => {
  const pair = [real('train-ctx100-annotated-torch2.6.pickle') ?? plan.made.waves, real('train-ctx200-autocast-annotated-torch2.6.pickle') ?? plan.made.oom];
  const page = await open(write(pair), { hash: 'tab=4' });
  expect('tracks', await page.locator('.track').count(), 2);
  await settle(page);
  check('their peaks are compared', (await page.locator('tbody tr').count()) > 1);
  await page.keyboard.press('n');
  await settle(page);
  await shoot(page, 'two');
  await close(page);
});

test('a difference is what the command says', async () => {
  const pairs = [['moved', 'waves'], ['waves', 'shifted'], ['waves', 'oom']].map((names) => names.map((name) => plan.made[name]));
  for (const names of [['train-ctx100-annotated-torch2.6.pickle', 'train-ctx200-autocast-annotated-torch2.6.pickle'],
    ['forward-fp32.pickle', 'train-late-recording.pickle'], ['trace-plot-fp32.html', 'trace-plot-bf16.html'],
    ['forward-ctx150-torch2.6.pickle', 'train-ctx100-annotated-torch2.6.pickle']])
    if (names.every(real)) pairs.push(names.map(real));
  pairs.push([plan.habits.zero_grad, plan.made.noted]); // peaks of different phases
  let moved = 0;
  let phases = 0;
  for (const pair of pairs) {
    const [diff] = JSON.parse(tessera('diff', '--json', '--top', '0', ...pair)).devices;
    const page = await open(write(pair), { hash: 'tab=4' });
    await settle(page);
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
    const lines = readFileSync(await download.path(), 'utf8').trim().split('\n').slice(1);
    const rows = lines.map((line) => line.split(',', 3).map(Number)).map(([delta, a, b]) => `${delta} ${a} ${b}`);
    const name = pair.map((path) => basename(path)).join(' and ');
    expect(`rows of ${name}`, rows.sort(), diff.changes.map((c) => `${c.delta_bytes} ${c.old_bytes} ${c.new_bytes}`).sort());
    const said = await page.evaluate(() => [...document.querySelectorAll('.diff .figure, .diff .hint')].map((e) => e.innerText).join(' '));
    const spelled = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 2 ** 20 ? `${(bytes / 1024).toFixed(1)} KiB` : bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(2)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`);
    for (const [bytes, after] of [[diff.compared.delta_bytes, ' allocated'], [diff.rounding_delta_bytes, ' that blocks hold beyond']])
      if (bytes) check(`${name}: ${bytes}${after}, in '${said}'`, said.includes(`${bytes > 0 ? '+' : '\u2212'}${spelled(Math.abs(bytes))}${after}`));
    check(`${name}: ${diff.moved_stacks} moved, in '${said}'`, !diff.moved_stacks ? !said.includes('matched by') : said.includes(`${diff.moved_stacks} stack`));
    moved += diff.moved_stacks;
    phases += diff.compared.phase ? 1 : 0;
    await close(page);
  }
  check('some stacks moved', moved > 10);
  check('some peaks are of different phases', phases > 0);
});

test('phases of two files are compared as the command does', async () => {
  const pairs = [[plan.habits.zero_grad, plan.made.noted], [plan.made.noted, plan.habits.checkpoint], [plan.habits.checkpoint, plan.habits.states]];
  for (const pair of pairs) {
    const name = pair.map((path) => basename(path)).join(' and ');
    const text = tessera('diff', ...pair).replace(/\s+/g, ' ');
    const [diff] = JSON.parse(tessera('diff', '--json', ...pair)).devices;
    const page = await open(write(pair));
    await settle(page);
    const marks = async () => (await state(page)).marks.map((m) => m.moment - 1);
    expect(`${name}: the moments`, await marks(), [diff.compared.old_event, diff.compared.new_event]);
    const note = page.locator('.phase-note');
    expect(`${name}: the peaks' phases are told`, await note.isVisible(), diff.compared.phase !== null);
    expect(`${name}: the phases are in sight`, await page.locator('.phases table').isVisible(), diff.compared.phase !== null);
    if (diff.compared.phase) {
      const said = (await note.innerText()).replace('\u2212', '-');
      const [part] = /what follows compares the .* of both: [-+0-9.]+ [KMG]?i?B/.exec(said);
      check(`${name}: '${part}' is said`, text.includes(part));
    } else {
      await page.locator('.phases summary').click();
    }
    const rows = await page.evaluate(() => [...document.querySelectorAll('.phases tbody tr')].slice(1).map((row) => [...row.cells].map((c) => c.title ? Number(/\(?([\d,]+) b/i.exec(c.title)[1].replaceAll(',', '')) : -1).slice(1, 3)));
    expect(`${name}: the bytes`, rows, diff.phases.map((p) => [p.old_bytes, p.new_bytes].map((bytes) => bytes ?? -1)));
    const both = diff.phases.filter((p) => p.old_event !== null && p.new_event !== null);
    const buttons = page.locator('.phases tbody button');
    expect(`${name}: what can be compared`, await buttons.count(), both.length + 1);
    for (let i = 0; i < both.length; i++) {
      await buttons.nth(i + 1).click();
      await settle(page);
      expect(`${name}: ${both[i].phase}`, await marks(), [both[i].old_event, both[i].new_event]);
    }
    await close(page);
  }
});

// Of files with few lines: a page tells 46 apart, and sums up the rest.
test('lines that moved are paired as the command does', async () => {
  const pairs = [['moved', 'waves'], ['waves', 'shifted']].map((names) => names.map((name) => plan.made[name]));
  for (const pair of pairs) {
    const [diff] = JSON.parse(tessera('diff', '--json', '--top', '0', '--by', 'line', ...pair)).devices;
    const name = pair.map((path) => basename(path)).join(' and ');
    check(`lines moved in ${name}`, diff.moved_stacks > 0);
    const page = await open(write(pair, '--by', 'line'), { hash: 'tab=4&rows=group' });
    await settle(page);
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
    const lines = readFileSync(await download.path(), 'utf8').trim().split('\n').slice(1);
    const rows = lines.map((line) => line.split(',', 3).map(Number)).map(([delta, a, b]) => `${delta} ${a} ${b}`);
    expect(`rows of ${name}`, rows.sort(), diff.changes.map((c) => `${c.delta_bytes} ${c.old_bytes} ${c.new_bytes}`).sort());
    const said = await page.locator('.diff .hint:not(.phase-note)').innerText();
    check(`${diff.moved_stacks} moved in ${name}, in '${said}'`, said.includes(`${diff.moved_stacks} line`));
    await close(page);
  }
});

test('pinned host memory is a track, and not the one that the page opens at', async () => {
  const page = await open(write(plan.made.host));
  expect('devices', await page.evaluate(() => tessera.devices.map((d) => d.device)), [0, 'host']);
  const host = JSON.parse(tessera('peak', '--json', '--device', 'host', plan.made.host)).devices[0];
  expect('its events', await page.evaluate(() => tessera.devices[1].events), host.events);
  expect('the chosen track', (await state(page)).place.track, 0);
  expect('nothing is compared', (await state(page)).marks, [null, null]);
  const drawn = await page.evaluate((e) => tessera.at(1, e).totals, host.peak.event);
  expect('its peak', drawn.allocated, host.peak.allocated_bytes);
  check('it is named', (await page.locator('body').innerText()).includes('pinned host memory') ||
    await page.evaluate(() => document.body.innerHTML.includes('pinned host memory')));
  await shoot(page, 'host');
  await close(page);
});

test('hostile names are text', async () => {
  const path = write(plan.made.hostile);
  const html = readFileSync(path, 'utf8');
  const data = html.slice(html.indexOf('id="tessera-head"'), html.lastIndexOf('<script>'));
  expect('elements in the data', (data.match(/<(?!\/script>|script type="text\/plain")/g) ?? []).length, 0);
  const page = await open(path, { hash: 'rows=function' });
  for (const key of ['1', '2', '3', '4', 'g', 'g', 'g']) {
    await page.keyboard.press(key);
    await settle(page);
  }
  await page.keyboard.press('1');
  await settle(page);
  const text = await page.evaluate(() => document.body.innerText);
  expect('nothing ran', await page.evaluate('window.pwned'), undefined);
  expect('no element came of a name', await page.evaluate(() => document.querySelectorAll('img, script:not([type]) ~ script, iframe').length), 0);
  check('they are there to read', text.includes('<script>window.pwned = 1</script>'));
  check('nothing reorders the line', !/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u001b]/.test(text));
  check('nothing is hidden', !/[\u00ad\u200b-\u200f\u{e0000}-\u{e0fff}]/u.test(text));
  await page.fill('#search', '</script>');
  await settle(page);
  check('they can be searched for', (await page.locator('tbody tr').count()) > 0);
  await shoot(page, 'hostile');
  await close(page);
});

test('a file without a trace opens on its segments, and explains how to record one', async () => {
  for (const file of [plan.made.still, real('tiny-no-trace.pickle'), real('two-devices-no-trace.pickle')].filter(Boolean)) {
    const page = await open(write(file), { width: 1440, height: 900 });
    await settle(page);
    expect('the tab', (await state(page)).tab, 3);
    check('blocks are told', (await page.evaluate('tessera.selection()')).blocks > 0);
    check('segments are drawn', (await page.evaluate('tessera.segments()')).length > 0);
    const words = (text) => text.replace(/\s+/g, ' ').trim();
    const said = words(await page.locator('.record').innerText());
    check(`it explains: ${said}`, said.includes('_record_memory_history()') && words(tessera('peak', file)).includes(said));
    check('it names the moment', (await page.locator('.summary').innerText()).includes('when the snapshot was taken'));
    check('there is nothing to move along', !(await page.locator('.axis').isVisible()));
    await shoot(page, 'still');
    await close(page);
  }
  const traced = await open(write(plan.made.waves));
  expect('a trace opens on its table', (await state(traced)).tab, 1);
  check('a trace needs no explanation', !(await traced.locator('.record').isVisible()));
  await close(traced);
});

test('a ring of one event is one moment, and nothing in it a peak', async () => {
  for (const file of [plan.made.ring, real('ring-of-one-no-frames.pickle')].filter(Boolean)) {
    const page = await open(write(file));
    await settle(page);
    const text = await page.evaluate(() => document.body.innerText);
    check(`no peak is named in '${text.slice(0, 300)}'`, !/\bpeak\b/.test(text.replace(/or from the peak.*/, '')));
    expect('nothing is written that names one', (await page.evaluate('tessera.labels(0)')).written.filter((l) => l.text.includes('peak')), []);
    check('one event', /\b1 event\b/.test(await page.locator('header .file').innerText()));
    check('how to record is explained', (await page.locator('.record').innerText()).includes('_record_memory_history()'));
    expect('the tab', (await state(page)).tab, 3);
    await page.keyboard.press('1');
    await settle(page);
    const rows = await page.locator('tbody').innerText();
    check('memory without a stack is called as the command does', rows.includes('(no stack recorded)') === tessera('peak', '--top', '0', file).includes('(no stack recorded)') && !rows.includes('before'));
    await close(page);
  }
});

test('a file without anything is an error', async () => {
  const path = join(plan.work, 'nothing.html');
  const { status, stderr } = spawnSync(plan.tessera, ['view', '-o', path, plan.made.empty], { encoding: 'utf8' });
  expect('the exit status', status, 3);
  check(`a sentence: ${stderr}`, /^tessera: \S*empty\.pickle: the snapshot is empty: no device has events or segments\./.test(stderr));
  check('no page', !existsSync(path));
});

/** A file in which the blocks of a model keep what could be recomputed. */
function checkpointable() {
  const file = join(plan.work, 'gpt2-blocks.pickle');
  if (!existsSync(file)) tessera('simulate', '-q', 'gpt2', '--batch', '8', '--seq', '512', '--steps', '2', '-o', file);
  return file;
}

test('what to do is shown at the peak, and shows its blocks', async () => {
  const file = checkpointable();
  const [finding] = JSON.parse(tessera('peak', '--json', file)).devices[0].findings;
  const page = await open(write(file), { width: 1440, height: 900 });
  await settle(page);
  const said = await page.locator('.finding').first().innerText();
  const text = tessera('peak', file);
  for (const line of said.split('\n')) check(`the command prints '${line}'`, text.includes(line));
  check('it names the change', said.startsWith('Checkpoint the block called at modeling_gpt2.py:'));
  await page.evaluate(() => tessera.set({ place: { track: 0, moment: 3 }, view: [0, 20], tab: 4 }));
  await page.locator('.finding').first().focus();
  await page.keyboard.press('Enter');
  await settle(page);
  const now = await state(page);
  expect('the moment', now.place.moment - 1, finding.event);
  check('the moment is in view, in the table', now.view === null && now.tab === 1);
  const bytes = Number(/\(([0-9,]+) bytes\)/.exec(await page.locator('.figure.match').getAttribute('title'))[1].replaceAll(',', ''));
  check(`its blocks: ${bytes} of ${finding.count} times ${finding.bytes}`, Math.abs(bytes - finding.count * finding.bytes) < finding.count);
  const groups = await page.locator('tbody .in-group').allInnerTexts();
  check('they are activations', groups.length > 0 && groups.every((g) => g.trim() === 'activation'));
  expect('the address of the page has it', await page.evaluate(() => new URLSearchParams(location.hash.slice(1)).get('finding')), '0~checkpoint');
  await shoot(page, 'finding');
  await page.keyboard.press('Escape');
  await settle(page);
  expect('Escape shows everything', (await state(page)).finding, null);
  await close(page);
  const other = await open(write(plan.made.waves));
  check('without a finding there is no panel', !(await other.locator('.findings').isVisible()));
  await close(other);
});

test('every finding shows as many bytes as it is about', async () => {
  const seen = new Set();
  for (const file of [...Object.values(plan.habits), ...sample(plan.real, 12)]) {
    const { findings, peak } = JSON.parse(tessera('peak', '--json', file)).devices.at(-1);
    if (!findings.length) continue;
    const page = await open(write(file));
    const track = (await page.evaluate('tessera.devices.length')) - 1;
    await page.evaluate((t) => tessera.set({ place: { track: t, moment: 0 } }), track);
    await settle(page);
    for (const { rule, event, bytes, count } of findings) {
      const isOfBlocks = rule === 'checkpoint';
      const name = `${rule} of ${basename(file)}`;
      await page.locator('.finding:not(.is-alarm)').nth(findings.findIndex((f) => f.rule === rule)).click();
      await settle(page);
      const { place, tab } = await state(page);
      expect(`moment of ${name}`, place.moment - 1, event);
      seen.add(rule);
      if (rule === 'cached') {
        expect('what is cached is in segments', tab, 3);
        continue;
      }
      const title = await page.locator('.figure.match').getAttribute('title');
      const shown = Number((/\(([0-9,]+) bytes\)/.exec(title)?.[1] ?? title.replace(' B', '')).replaceAll(',', ''));
      const wanted = isOfBlocks ? bytes * count : bytes; // of a checkpoint, the bytes of one block, rounded down
      check(`bytes of ${name}: ${shown}, not ${wanted}`, shown >= wanted && shown - wanted < (isOfBlocks ? count : 1));
      check(`they are live at the peak`, rule === 'no_grad' || shown <= peak.requested_bytes);
    }
    await close(page);
  }
  expect('rules', [...seen].sort(), Object.keys(plan.habits).sort());
});

test('a finding shows the same blocks in a page of parts', async () => {
  const file = checkpointable();
  const blocks = async (page) => {
    await page.locator('.finding').first().click();
    await arrived(page);
    return (await page.evaluate('tessera.selection()')).blocks;
  };
  const page = await open(write(file));
  const all = await blocks(page);
  await close(page);
  await serve(file, ['--blocks', '20'], async (url) => {
    const served = await open(url);
    await arrived(served);
    expect('blocks', await blocks(served), all);
    await close(served);
  });
});

test('running out of memory is the first thing to see', async () => {
  const page = await open(write(plan.made.oom), { width: 1440, height: 900 });
  const first = page.locator('.finding').first();
  check('it says what was asked for', (await first.innerText()).startsWith('Out of memory: 1.00 GiB asked for, 1.00 MiB free'));
  await first.click();
  await settle(page);
  expect('its moment', (await state(page)).place.moment, await page.evaluate('tessera.devices[0].events'));
  await shoot(page, 'oom');
  await close(page);
});

test('what is written over the picture stays in it', async () => {
  for (const [file, width, capacity] of [[plan.made.oom, 1280, '66MiB'], [plan.made.oom, 380, '66MiB'], [plan.made.graphs, 900, '66MiB'], [plan.made.devices, 900, '66MiB'], [training('60GiB'), 1280, '60GiB'], [training('60GiB'), 380, '60GiB']]) {
    const page = await open(write(file, '--capacity', capacity), { width, height: 700 });
    const { events, peak } = await page.evaluate('tessera.devices[0]');
    const low = await page.evaluate((e) => tessera.at(0, e).totals.allocated * 0.9, peak);
    let seen = 0;
    for (const zoomY of [1, 3, 40])
      for (const view of [null, [peak - 1, peak + 40], [peak - 40, peak + 3], [events - 30, events + 1], [0, 5]]) {
        await page.evaluate((s) => tessera.set({ axis: 'event', ...s }), { zoomY, view, low: zoomY > 1 ? low : 0 });
        await frame(page);
        for (const track of await page.evaluate(() => tessera.devices.map((_, i) => tessera.labels(i))))
          for (const { text, box, hides } of track.written) {
            const [left, right, top, bottom] = track.plot;
            check(`'${text}' hides nothing, of ${JSON.stringify(view)}`, !hides || zoomY > 1 || view);
            check(`'${text}' at ${box} is in ${track.plot}, of ${JSON.stringify(view)}`, box[0] >= left && box[1] <= right && box[2] >= top && box[3] <= bottom);
            seen += text.startsWith('peak') ? 1 : 0;
          }
      }
    check(`peaks are named (${seen})`, seen >= 6);
    await close(page);
  }
});

test('several devices share one axis of time', async () => {
  const page = await open(write(plan.made.devices), { width: 1440, height: 900 });
  await settle(page);
  expect('the axis', (await state(page)).axis, 'time');
  const places = await page.evaluate(() => [0, 400, 800].map((event) => [tessera.placeOf(0, event), tessera.placeOf(1, event)]));
  const [first] = places;
  check(`the second device begins later: ${first}`, first[1] > first[0] + 100);
  for (const [a, b] of places) check(`and stays so: ${a}, ${b}`, Math.abs(b - a - (first[1] - first[0])) < 0.01);
  const { width } = await plotBox(page);
  expect('what did not change is drawn all along', (await page.evaluate('tessera.columns(2)')).moments.length, Math.round(width));
  expect('nothing is compared', (await state(page)).marks, [null, null]);
  expect('by event', await page.evaluate(() => (tessera.set({ axis: 'event' }), tessera.placeOf(0, 400) === tessera.placeOf(1, 400))), true);
  await page.evaluate(() => tessera.set({ axis: 'time' }));
  await settle(page);
  await shoot(page, 'devices');
  await close(page);
  // Two files that were not recorded at the same time begin at the left, each with its own clock.
  const both = await open(write([plan.made.devices, plan.made.annotated]), { hash: 'axis=time' });
  const starts = await both.evaluate(() => [0, 1, 3].map((track) => tessera.placeOf(track, 0)));
  check(`files and devices: ${starts}`, Math.abs(starts[0] - starts[2]) < 1 && starts[1] > starts[0] + 50);
  await close(both);
});

test('the lane of the whole card shows each sample until the next one, and who holds what', async () => {
  const { path, first, last, total, rows } = plan.card;
  const sorts = ['allocated by PyTorch', 'cached by PyTorch', 'NCCL', 'CUDA context and libraries', 'the driver', 'other processes', 'unaccounted'];
  for (const [width, scheme] of [[1440, 'light'], [900, 'dark'], [480, 'light']]) {
    const page = await open(write(path), { width, hash: 'axis=time', scheme });
    await settle(page);
    const box = await page.locator('.track .over').first().boundingBox();
    const [top, bottom] = await page.evaluate(() => tessera.cardBox(0));
    check('the lane has room', bottom - top > 30 && bottom < box.height);
    // The place of each sample's time on the axis, of which the trace's first and last event are known.
    const [from, to] = await page.evaluate((n) => [tessera.placeOf(0, 0), tessera.placeOf(0, n)], (await page.evaluate('tessera.devices'))[0].events - 1);
    const placeOf = (time) => from + ((time - first) / (last - first)) * (to - from);
    for (let i = 0; i < rows.length; i += plan.whole ? 1 : 7) {
      const { time, used, parts } = rows[i];
      const next = rows[i + 1] ? placeOf(rows[i + 1].time) : Infinity;
      const x = placeOf(time) + Math.min(0.5, (next - placeOf(time)) / 2);
      if (time < first || time >= last || next - placeOf(time) < 0.01) continue;
      const shown = await page.evaluate((at) => tessera.cardAt(0, at), x);
      expect(`used at sample ${i}`, shown.used, used);
      expect(`parts at sample ${i}`, Object.fromEntries(sorts.flatMap((name, k) => (shown.bytes[k] ? [[name, shown.bytes[k]]] : []))),
        Object.fromEntries(sorts.flatMap((name) => (parts[name] ? [[name, parts[name]]] : []))));
    }
    // The tooltip has the same figures, and the picture is higher where more is used.
    const late = placeOf(rows[rows.length - 2].time) + 0.5;
    await page.mouse.move(box.x + Math.min(late, box.width - 20), box.y + (top + bottom) / 2);
    await frame(page);
    const text = await page.locator('.tooltip').innerText();
    check(`the tooltip: ${text}`, text.startsWith('the whole card: ') && text.includes('allocated by PyTorch') && text.includes(' used'));
    const heights = await page.evaluate(([a, b, y0, y1]) => {
      const canvas = document.querySelector('.track .over');
      const ratio = canvas.width / canvas.clientWidth;
      const { data, width } = canvas.getContext('2d').getImageData(0, Math.round(y0 * ratio), canvas.width, Math.round((y1 - y0) * ratio));
      const isColoured = (i) => data[i + 3] > 0 && Math.max(...data.subarray(i, i + 3)) - Math.min(...data.subarray(i, i + 3)) > 40;
      return [a, b].map((x) => {
        let rows = 0;
        for (let i = 4 * Math.round(x * ratio); i < data.length; i += 4 * width) rows += isColoured(i);
        return rows / ratio;
      });
    }, [placeOf(rows[1].time) + 2, placeOf(rows[rows.length - 2].time) - 2, top + 3, bottom - 4]);
    check(`it grows: ${heights}`, heights[1] > heights[0] && heights[0] > 0);
    check('no more than the card', total > 0);
    await shoot(page, `card-${width}`);
    await close(page);
  }
  const none = await open(write(plan.made.single));
  expect('no lane without a ledger', await none.evaluate(() => tessera.cardBox(0)), null);
  await close(none);
});

test('the overview goes on to the end of the trace', async () => {
  const page = await open(write(plan.made.single));
  await settle(page);
  const [left, right] = await page.evaluate(() => {
    const canvas = document.querySelector('.overview');
    const { width, height } = canvas;
    const row = canvas.getContext('2d').getImageData(0, Math.floor(height * 0.6), width, 1).data;
    const drawn = (from, to) => {
      let count = 0;
      for (let x = Math.floor(from * width); x < Math.floor(to * width); x++) count += row[4 * x + 3] > 0 ? 1 : 0;
      return count / Math.floor((to - from) * width);
    };
    return [drawn(0.15, 0.45), drawn(0.6, 0.95)];
  });
  check(`nothing before the allocation, and all after it: ${left}, ${right}`, left < 0.1 && right > 0.95);
  await close(page);
});

test('two files open on their difference', async () => {
  const page = await open(write([plan.made.waves, plan.made.oom]));
  const { tab, marks } = await state(page);
  expect('the tab', tab, 4);
  expect('the marks', marks, await page.evaluate(() => tessera.devices.map((d, track) => ({ track, moment: d.peak + 1 }))));
  await page.locator('.timeline').focus();
  await page.getByRole('button', { name: 'clear' }).click();
  await settle(page);
  const hash = await page.evaluate(() => location.hash.slice(1));
  await close(page);
  const cleared = await open(write([plan.made.waves, plan.made.oom]), { hash });
  expect('cleared marks are sent', (await state(cleared)).marks, [null, null]);
  await close(cleared);
  const devices = await open(write([plan.made.devices, plan.made.waves]));
  expect('of several devices the same one', (await state(devices)).marks.map((m) => m.track), [0, 3]);
  await close(devices);
});

test('a range offers to compare its ends', async () => {
  const page = await open(write(plan.made.waves));
  const box = await plotBox(page);
  await page.mouse.move(box.x + box.width * 0.3, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.45, box.y + 40, { steps: 4 });
  await page.mouse.up();
  await settle(page);
  const { range } = await state(page);
  await page.getByRole('button', { name: 'compare its ends' }).click();
  await settle(page);
  const { marks, tab } = await state(page);
  expect('the tab', tab, 4);
  expect('the marks', marks.map((m) => m.moment), [range.from, range.to]);
  check('there are changes', (await page.locator('tbody tr').count()) > 1);
  await close(page);
});

test('search takes alternatives, lines of code and annotations', async () => {
  const page = await open(write(plan.made.annotated), { hash: 'rows=block' });
  const found = async (search) => {
    await page.evaluate((s) => tessera.set({ search: s }), search);
    await settle(page);
    return (await page.evaluate('tessera.selection()')).blocks;
  };
  const all = await found('');
  const [forward, backward, step] = [await found('forward'), await found('backward'), await found('step.py')];
  expect('all together', forward + backward + step, all);
  expect('either', await found('forward|backward'), forward + backward);
  expect('either, with spaces', await found(' Forward | backward.py backward |'), forward + backward);
  expect('words within an alternative', await found('forward backward | step.py'), step);
  const line = await found('forward.py:3');
  check(`a line (${line})`, line > 0 && line < forward);
  expect('no part of a number', await found('forward.py:33'), 0);
  // By the annotation that was open when it was allocated, as the grouping has it.
  const { event } = JSON.parse(tessera('peak', '--json', plan.made.annotated)).devices[0].peak;
  const { groups } = JSON.parse(tessera('profile', '--json', '--by', 'annotation', '--top', '0', plan.made.annotated)).devices[0];
  const named = groups.filter((g) => g.name && g.bytes > 1024);
  check('annotations hold memory at the peak', named.length > 0);
  for (const { name, bytes } of named) {
    await page.evaluate(([e, s]) => tessera.set({ search: s, place: { track: 0, moment: e + 1 } }), [event, name]);
    await settle(page);
    const title = await page.locator('.figure.match').getAttribute('title');
    check(`${name}: ${bytes} in '${title}'`, title.includes(`(${String(bytes).replace(/\B(?=(\d{3})+$)/g, ',')} bytes)`));
  }
  await close(page);
});

test('tooltips have bytes, and the annotation', async () => {
  const page = await open(write(plan.made.annotated), { hash: 'layout=bands&q=part' });
  const box = await plotBox(page);
  const exactBytes = /[0-9.]+ [KMG]iB \([0-9,]{5,} bytes\)/;
  const tips = [];
  for (let x = 0.05; x < 1; x += 0.15)
    for (let y = box.height - 6; y > 4; y -= 12) {
      await page.mouse.move(box.x + box.width * x, box.y + y);
      await frame(page);
      tips.push(await page.locator('.tooltip').innerText());
    }
  const blocks = tips.filter((t) => t.includes('address'));
  check('blocks have them', blocks.length > 3 && blocks.every((t) => exactBytes.test(t)));
  check('blocks have the annotation they were made in', blocks.some((t) => /annotation\s+part \d/.test(t)));
  const free = tips.filter((t) => t.includes('reserved'));
  check('empty places have them', free.length > 0 && free.every((t) => exactBytes.test(t)));
  await page.mouse.move(box.x + box.width * 0.1, box.y - 6); // the lane of annotations
  await frame(page);
  const lane = await page.locator('.tooltip').innerText();
  check(`lanes have them: ${lane}`, /peak in it/.test(lane) && exactBytes.test(lane));
  for (const name of ['.legend .group', '.summary .figure', 'td .size'])
    check(`${name} has them`, exactBytes.test(await page.locator(name).first().getAttribute('title')));
  await page.keyboard.press('2');
  await page.mouse.move(box.x + 100, 640);
  await settle(page);
  const flame = await page.locator('.flame canvas').boundingBox();
  await page.mouse.move(flame.x + 20, flame.y + 8);
  check('the flame graph has them', exactBytes.test(await page.locator('.flame-tip').innerText()));
  const tip = page.locator('.tooltip');
  check('beside the pointer too', exactBytes.test(await tip.innerText()) && /of all\s+100\.0 %/.test(await tip.innerText()));
  check('the box is framed', await page.locator('.flame-ring').isVisible());
  await page.mouse.move(flame.x + 20, flame.y - 200);
  check('and let go', !(await page.locator('.flame-ring').isVisible()));
  await page.keyboard.press('3');
  await settle(page);
  const map = await page.locator('.segments canvas').boundingBox();
  await page.mouse.move(map.x + map.width - 12, map.y + 28);
  check('segments have them', exactBytes.test(await page.locator('.segment-tip').innerText()));
  await close(page);
});

test('steps are numbers in their lane', async () => {
  const page = await open(write(checkpointable()));
  const texts = await page.evaluate(() => new Promise((done) => {
    const all = [];
    const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      all.push(text);
      return draw.call(this, text, ...rest);
    };
    tessera.set({ zoomY: 1.01 });
    settled(300).then(() => done(all));
  }));
  const steps = (await page.evaluate('tessera.lanes(0)')).filter((l) => l.kind === 'step').flatMap((l) => l.ranges);
  check('there are steps', steps.length > 1);
  check(`numbers in ${texts}`, ['0', '1'].every((n) => texts.includes(n)) && !texts.some((t) => /^step \d/.test(t)));
  await close(page);
});

test('what is only told in sums is exact where it says so', async () => {
  const page = await open(write(plan.made.long, '--blocks', '400'));
  const events = await page.evaluate('tessera.exact(0)');
  const device = 0;
  for (let i = 0; i < 24; i++) {
    const event = events[Math.floor((i * events.length) / 24)];
    compareMoment('long', event, await page.evaluate((e) => tessera.at(0, e), event), plan.made.long, device);
  }
  const peak = await page.evaluate('tessera.devices[0].peak');
  compareMoment('long', peak, await page.evaluate((e) => tessera.at(0, e), peak), plan.made.long, device);
  check('the page says so', (await page.locator('.summary').innerText()).includes('in sums'));
  await shoot(page, 'sums');
  await close(page);
});

test('groupings are those of tessera profile', async () => {
  const rules = ['--rules', '{"going": "forward|step", "back": "^back"}'];
  const cases = [['annotation', [], plan.made.annotated], ['rules', rules, plan.made.waves], ['rules', rules, plan.made.annotated]];
  for (const [key, options, file] of cases) {
    const { peak, groups } = JSON.parse(tessera('profile', '--json', '--top', '0', '--by', key, ...options, file)).devices[0];
    const page = await open(write(file, '--by', key, ...options));
    expect('the page opens with it', (await state(page)).by, key);
    const mine = new Map(await page.evaluate(([e, k]) => tessera.groups(0, e, k), [peak.event, key]));
    check(`${key} has groups`, groups.length > 1);
    for (const { name, bytes } of groups) expect(`${key}, ${name}`, mine.get(name || '(outside annotations)'), bytes);
    expect(`${key}, all`, [...mine.values()].reduce((a, b) => a + b, 0), groups.reduce((a, g) => a + g.bytes, 0));
    await close(page);
  }
});

test('of more groups than can be told apart the largest are', async () => {
  const { peak, groups } = JSON.parse(tessera('profile', '--json', '--top', '0', '--by', 'annotation', plan.made.many)).devices[0];
  const page = await open(write(plan.made.many, '--by', 'annotation'));
  const mine = new Map(await page.evaluate((e) => tessera.groups(0, e, 'annotation'), peak.event));
  check(`${groups.length} groups in ${mine.size}`, groups.length > 48 && mine.size <= 48);
  for (const [name, bytes] of mine)
    if (!name.startsWith('(')) expect(name, bytes, groups.find((g) => g.name === name)?.bytes ?? 0);
  expect('all', [...mine.values()].reduce((a, b) => a + b, 0), groups.reduce((a, g) => a + g.bytes, 0));
  check('the others are less than most of it', mine.get('(others)') < peak.requested_bytes / 2);
  await close(page);
});

test('steps, phases and annotations are lanes', async () => {
  const file = real('train-ctx100-annotated-torch2.6.pickle') ?? plan.made.annotated;
  const lanes = (path) => open(path).then(async (page) => {
    const all = await page.evaluate('tessera.lanes(0)');
    await close(page);
    return all;
  });
  const { steps } = JSON.parse(tessera('steps', '--json', file)).devices[0];
  const shown = await lanes(write(file));
  const of = (kind) => shown.filter((l) => l.kind === kind).flatMap((l) => l.ranges);
  expect('steps', of('step').map((r) => [r.name, r.born - 1, r.died - 2]), steps.map((s) => [`step ${s.step}`, s.first_event, s.last_event]));
  check('annotations', of('annotation').length > 0);
  if (real('train-ctx100-annotated-torch2.6.pickle')) check('phases', ['forward', 'backward', 'optimizer'].every((n) => of('phase').some((r) => r.name === n)));
});

test('phases that share a pixel blend in their lane', async () => {
  const page = await open(write(plan.made.devices), { width: 1024, height: 700 });
  await settle(page);
  const row = await page.evaluate(() => {
    const canvas = document.querySelector('.over');
    const ratio = canvas.width / canvas.clientWidth;
    const lanes = tessera.lanes(0).map((lane) => lane.kind);
    const y = Math.round((16 + lanes.indexOf('phase') * 15 + 7) * ratio);
    const { data } = canvas.getContext('2d').getImageData(Math.round(80 * ratio), y, Math.round(200 * ratio), 1);
    return Array.from({ length: data.length / 4 }, (_, i) => [...data.subarray(4 * i, 4 * i + 4)]);
  });
  // A forward is blue and a backward as much the opposite; half of the lane is each.
  const blue = row.reduce((sum, [r, , b, alpha]) => sum + ((b - r) * alpha) / 255, 0) / row.length;
  check(`the lane is not of one of them: ${blue.toFixed(1)}`, Math.abs(blue) < 14);
  await close(page);
});

test('a row names the line of the program and the layer it called', async () => {
  const file = join(plan.work, 'gpt2.pickle');
  tessera('simulate', 'gpt2', '--batch', '4', '--seq', '512', '--steps', '2', '-o', file);
  const page = await open(write(file));
  const rows = await page.locator('tbody tr td.left:last-child').allInnerTexts();
  check(`layers: ${rows}`, rows.some((r) => /^train\.py:\d+ train > activations\.py:\d+ forward \(aten::\w+\)$/.test(r)));
  check(`no two alike: ${rows}`, rows.length > 10 && new Set(rows).size === rows.length);
  check('no top level', !rows.some((r) => r.includes('<module>')));
  await page.locator('tbody tr', { hasText: 'activations.py' }).first().click();
  const frames = await page.locator('.stack .fn').allInnerTexts();
  expect('its frames, innermost first', frames, ['forward', 'train', '<module>']);
  const lanes = (await page.evaluate('tessera.lanes(0)')).filter((l) => l.kind === 'annotation');
  check('no lane of ranges without an event', lanes.length === 2 && lanes.every((l) => l.ranges.some((r) => r.died > r.born)));
  await close(page);
});

test('a served page tells every block of whatever it shows', async () => {
  const file = plan.made.long;
  await serve(file, ['--blocks', '40'], async (url) => {
    const page = await open(url);
    check('it holds little itself', await page.evaluate('tessera.devices[0].told') <= 40);
    const { events, device, peak } = await page.evaluate('tessera.devices[0]');
    await arrived(page);
    check('nothing is left in sums', !(await page.locator('.summary').innerText()).includes('in sums'));
    for (const event of [-1, 0, 17, Math.floor(events / 3), peak, events - 1]) {
      await page.evaluate((e) => tessera.at(0, e), event);
      await arrived(page);
      compareMoment('served', event, await page.evaluate((e) => tessera.at(0, e), event), file, device);
    }
    for (const width of [100, 2000, events]) {
      const from = Math.max(0, Math.min(events - width, Math.floor(events / 2)));
      await page.evaluate(([a, b]) => tessera.set({ view: [a, b] }), [from, from + width]);
      await arrived(page);
      const columns = await page.evaluate('tessera.columns(0)');
      for (const i of [0, Math.floor(columns.moments.length / 2), columns.moments.length - 1]) {
        const { at } = atOf(file, device, columns.moments[i] - 1);
        expect(`allocated at moment ${columns.moments[i]}`, columns.allocated[i], at.allocated_bytes);
      }
      expect('the drawn rest', await page.evaluate('tessera.drawn(0).restCount'), 0);
    }
    await page.evaluate(() => tessera.set({ range: { from: 1000, to: 1100 }, rangeMode: 'made', place: { track: 0, moment: 1000 } }));
    await arrived(page);
    const made = (await page.evaluate('tessera.selection()')).blocks;
    check(`blocks made in a range (${made})`, made > 30 && made <= 101);
    await shoot(page, 'served');
    await close(page);
  });
});

test('a served block is pinned by its address alone', async () => {
  await serve(plan.made.long, ['--blocks', '40'], async (url) => {
    const page = await open(url, { hash: 'rows=block&at=0~5000' });
    await arrived(page);
    await page.locator('tbody tr').first().click();
    await page.getByRole('button', { name: 'pin' }).click();
    await settle(page);
    const hash = await page.evaluate(() => location.hash.slice(1));
    const pinned = await page.locator('.pin').innerText();
    await close(page);
    const other = await open(url, { hash });
    await arrived(other);
    expect('the same block', await other.locator('.pin').innerText(), pinned);
    await close(other);
  });
});

test(`the page says of ${MOMENTS} moments of real files what the command line says`, async () => {
  for (const file of sample(plan.real, 2)) {
    const page = await open(write(file));
    const devices = await page.evaluate('tessera.devices');
    for (let track = 0; track < devices.length; track++) {
      const { events, device, peak } = devices[track];
      const moments = new Set([-1, peak, events - 1]);
      for (let i = 0; i < MOMENTS && i <= events; i++) moments.add(Math.floor((i * (events + 1)) / MOMENTS) - 1);
      for (const event of moments)
        compareMoment(basename(file), event, await page.evaluate(([t, e]) => tessera.at(t, e), [track, event]), file, device);
    }
    await close(page);
  }
}, true);

ranksTests({ test, plan, tessera, open, close, settle, shoot, expect, check, contrast });

// ---- all of them ----

console.log(`1..${tests.length}`);
let failed = false;
for (const [i, { name, run, needsReal }] of tests.entries()) {
  if (plan.only && !name.includes(plan.only)) continue;
  if (needsReal && !plan.real.length) {
    console.log(`ok ${i + 1} - ${name} # SKIP no ../shared`);
    continue;
  }
  const begun = performance.now();
  try {
    await run();
    console.log(`ok ${i + 1} - ${name}`);
  } catch (error) {
    failed = true;
    console.log(`not ok ${i + 1} - ${name}`);
    for (const line of String(error.stack ?? error).split('\n').slice(0, 6)) console.log(`# ${line}`);
  }
  console.log(`# ${((performance.now() - begun) / 1000).toFixed(1)} s`);
}
await browser.close();
process.exit(failed ? 1 : 0);
