// The site in a browser; see run.py. Each test throws where something is wrong.
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const plan = JSON.parse(process.argv[2]);
const { chromium } = await import(plan.playwright);
const WIDTHS = [360, 768, 1280];
const THEMES = ['light', 'dark'];

// What people search for, and the page that must come first.
const QUERIES = {
  'out of memory': 'docs/questions/out-of-memory.html',
  'expandable segments': 'docs/questions/out-of-memory.html',
  'fragmentation': 'docs/questions/out-of-memory.html',
  'which line': 'docs/questions/which-line.html',
  'memory leak': 'docs/questions/what-grew.html',
  'diff': 'docs/questions/what-grew.html',
  'will it fit': 'docs/questions/will-it-fit.html',
  'thousand ranks': 'docs/questions/thousand-ranks.html',
  'Mosaic': 'docs/questions/from-mosaic.html',
  'memory_viz': 'docs/questions/from-memory-viz.html',
  'exit status': 'docs/tour.html',
  'ZeRO': 'docs/distributed.html',
  'Slurm': 'docs/places/slurm.html',
  'LoRA': 'docs/train.html',
  'lora': 'docs/train.html',
  'certificate': 'docs/plan.html',
  'checkpointing': 'docs/techniques.html',
  'pytest': 'docs/ci.html',
  'notebook': 'docs/places/jupyter.html',
  'TESSERA_RECORD': 'docs/capture.html',
  'Prometheus': 'docs/ranks.html',
  'torchtitan': 'docs/places/torchtitan.html',
  'Hugging Face': 'docs/places/transformers.html',
  'DeepSpeed': 'docs/places/deepspeed.html',
  'FSDP': 'docs/places/fsdp2.html',
  'Kubernetes': 'docs/places/kubernetes.html',
  'wandb': 'docs/places/wandb.html',
  'vLLM': 'docs/places/vllm.html',
  'GitHub': 'docs/places/github.html',
  'MCP': 'docs/mcp.html',
  'Windows': 'docs/platforms.html',
  'accuracy': 'docs/accuracy.html',
  'step graph': 'docs/step-graph.html',
  'step graphs': 'docs/step-graph.html',
  'apply plan': 'docs/apply.html',
  'trainer callback': 'docs/places/transformers.html',
  'mcp': 'docs/mcp.html',
  'record without changing the script': 'docs/capture.html',
  'no gpu': 'docs/questions/no-gpu.html',
  'tessera trace': 'docs/python.html',
  '%%tessera': 'docs/places/jupyter.html',
  'context memory card budget': 'docs/plan.html',
  'python api': 'docs/python.html',
  'uninstall': 'docs/install.html',
  'plans': 'docs/plan.html',
  'published figure': 'docs/published.html',
  'architecture': 'docs/architecture.html',
};
const SHOTS = ['index.html', 'docs/questions/out-of-memory.html', 'docs/places/slurm.html', 'docs/accuracy.html', 'docs/published.html', 'docs/json.html', 'docs/decisions/index.html',
  'files/examples/peak.c.html'];

const site = pathToFileURL(`${plan.site}/`).href;
const files = readdirSync(plan.site, { recursive: true }).filter((name) => name.endsWith('.html')).sort();
const browser = await chromium.launch({ executablePath: plan.chromium, args: ['--no-sandbox', '--disable-gpu'] });
mkdirSync(plan.shots, { recursive: true });

/** A tab whose complaints, and requests of anything but files, are kept. */
async function tab(theme, width = 1280) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: theme });
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && page.complaints.push(m.text()));
  page.on('pageerror', (e) => page.complaints.push(String(e)));
  page.on('request', (r) => /^(file|data|blob):/.test(r.url()) || page.complaints.push(`request: ${r.url()}`));
  return page;
}

function expect(what, wrong) {
  if (wrong.length) throw new Error(`${what}: ${wrong.slice(0, 8).join(' | ')}`);
}

/** What is wider than the window and does not scroll by itself. */
const overflow = () => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return null;
  const wide = [...document.querySelectorAll('.content *')].find((e) => e.getBoundingClientRect().right > width + 1);
  return `${document.documentElement.scrollWidth} of ${width} px: ${wide ? wide.outerHTML.slice(0, 80) : '?'}`;
};

const brightness = () => {
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
  return (red + green + blue) / 3;
};

// Of each page its anchors and its links as the browser resolves them; eachPage fills them.
const anchors = new Map();
const wanted = [];

async function eachPage(theme) {
  const page = await tab(theme);
  const wrong = [];
  for (const file of files) {
    await page.goto(site + file);
    const light = await page.evaluate(brightness);
    if ((light > 128) !== (theme === 'light')) wrong.push(`${file}: brightness ${light}`);
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      const found = await page.evaluate(overflow);
      if (found) wrong.push(`${file}: ${found}`);
      if (SHOTS.includes(file)) await page.screenshot({ path: join(plan.shots, `${file.replace(/\W/g, '-')}-${width}-${theme}.png`) });
    }
    if (theme !== THEMES[0]) continue;
    const [ids, found] = await page.evaluate(() => [[...document.querySelectorAll('[id]')].map((e) => e.id), [...document.links].map((a) => a.href)]);
    anchors.set(join(plan.site, file), new Set(ids));
    wanted.push(...found.filter((href) => href.startsWith('file:')).map((href) => [file, href]));
  }
  await page.context().close();
  expect('pages', [...wrong, ...page.complaints]);
}

function links() {
  if (wanted.length < 5000) throw new Error(`${wanted.length} links: this test is blind`);
  const dead = new Set();
  for (const [file, href] of wanted) {
    const [address, anchor] = href.split('#');
    const path = fileURLToPath(address.split('?')[0]);
    if (!existsSync(path)) dead.add(`${file}: ${relative(plan.site, path)}`);
    else if (anchor && anchors.has(path) && !anchors.get(path).has(decodeURIComponent(anchor))) dead.add(`${file}: ${relative(plan.site, path)}#${anchor}`);
  }
  expect('dead links', [...dead]);
}

const fileOf = (href) => relative(plan.site, fileURLToPath(href.split(/[?#]/)[0]));

/** The addresses that the search finds, in its order. */
async function search(page, query) {
  await page.goto(`${site}index.html`);
  await page.fill('.sidebar-search', query);
  await page.press('.sidebar-search', 'Enter');
  await page.waitForFunction(() => /finished|found|did not match/.test(document.querySelector('.search-summary')?.textContent ?? ''));
  return page.evaluate(() => [...document.querySelectorAll('#search-results ul.search li > a')].map((a) => a.href.split('?')[0] + new URL(a.href).hash));
}

async function searches() {
  const page = await tab('light');
  const wrong = [];
  for (const [query, want] of Object.entries(QUERIES)) {
    const found = await search(page, query);
    if (query === 'ZeRO') await page.screenshot({ path: join(plan.shots, 'search.png') });
    const first = found.slice(0, 3).map(fileOf);
    if (first[0] !== want) wrong.push(`${query}: ${first.join(', ')}, not ${want}`);
    const twice = found.find((href, i) => found.indexOf(href) < i);
    if (twice) wrong.push(`${query}: twice ${fileOf(twice)}`);
    if (!(await page.textContent('#search-results li p.lead'))) wrong.push(`${query}: no lead`);
  }
  if ((await search(page, 'zyzzyva')).length) wrong.push('found what is nowhere');
  await page.context().close();
  expect('searches', [...wrong, ...page.complaints]);
}

/** A click changes the theme, which stays on the next page. */
async function themes() {
  const page = await tab('light');
  await page.goto(`${site}index.html`);
  for (let clicks = 0; clicks < 3 && (await page.evaluate(brightness)) > 128; clicks++) await page.click('.content-icon-container .theme-toggle');
  if ((await page.evaluate(brightness)) > 128) throw new Error('no click makes the page dark');
  await page.goto(`${site}docs/plan.html`);
  if ((await page.evaluate(brightness)) > 128) throw new Error('the next page is light again');
  await page.context().close();
}

/** On a phone the navigation is behind a button. */
async function drawer() {
  const page = await tab('light', 360);
  await page.goto(`${site}docs/plan.html`);
  await page.click('.mobile-header .nav-overlay-icon, .mobile-header label[for="__navigation"]');
  await page.waitForTimeout(500);
  await page.screenshot({ path: join(plan.shots, 'drawer.png') });
  await page.click('.sidebar-tree a[href$="out-of-memory.html"]');
  await page.waitForURL(/out-of-memory/);
  await page.context().close();
}

const tests = [...THEMES.map((theme) => [`${files.length} pages at ${WIDTHS.join(', ')} px, ${theme}`, () => eachPage(theme)]), ['links', links],
  [`${Object.keys(QUERIES).length} searches`, searches], ['the theme', themes], ['navigation on a phone', drawer]];
let failed = 0;
let number = plan.first;
for (const [title, test] of tests) {
  try {
    await test();
    console.log(`ok ${number} - ${title}`);
  } catch (error) {
    failed++;
    console.log(`not ok ${number} - ${title}\n# ${error.message.split('\n').join('\n# ')}`);
  }
  number++;
}
await browser.close();
console.log(`1..${number - 1}`);
process.exit(failed ? 1 : 0);
