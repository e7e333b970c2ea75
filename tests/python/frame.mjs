// A page of a notebook in Chromium: prints, as JSON, what is seen of the frame in it, and of what it does around itself.
import { pathToFileURL } from 'node:url';

const [playwright, executablePath, path, shot] = process.argv.slice(2);
const { chromium } = await import(playwright);
const HANG_MS = 1800000; // ends what hangs; a busy machine may be slow

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'], timeout: HANG_MS });
const context = await browser.newContext({ viewport: { width: 1040, height: 900 }, acceptDownloads: true });
context.setDefaultTimeout(HANG_MS);
const page = await context.newPage();
const seen = { complaints: [], requests: [] };
page.on('console', (m) => ['error', 'warning'].includes(m.type()) && seen.complaints.push(m.text()));
page.on('pageerror', (e) => seen.complaints.push(String(e)));
page.on('dialog', (d) => (seen.complaints.push(`dialog: ${d.message()}`), d.dismiss()));
const url = pathToFileURL(path).href;
page.on('request', (r) => r.url() !== url && !/^(blob|about):/.test(r.url()) && seen.requests.push(r.url()));

/** Wait until a change is drawn, and would be in the address. */
const settle = (frame) => frame.evaluate(() => new Promise((done) => {
  setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))), 300);
}));

await page.goto(url);
const frame = await (await page.waitForSelector('iframe')).contentFrame();
await frame.waitForFunction(() => window.tessera);
await settle(frame);
seen.focus = await page.evaluate(() => document.activeElement.tagName);
seen.devices = await frame.evaluate(() => window.tessera.devices);
seen.text = await frame.evaluate(() => document.body.innerText);
seen.colours = await frame.evaluate(() => {
  const canvas = [...document.querySelectorAll('canvas')].sort((a, b) => b.width * b.height - a.width * a.height)[0];
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
});
seen.reaches = await frame.evaluate(() => {
  try {
    return Boolean(parent.document.body);
  } catch {
    return false;
  }
});
const box = await frame.locator('canvas').first().boundingBox();
const history = await page.evaluate(() => window.history.length);
const view = () => frame.evaluate(() => JSON.stringify(window.tessera.state().view));
const whole = await view();

// Who scrolls the notebook passes over the page; who has clicked into it zooms.
await page.mouse.move(box.x + box.width / 2, box.y + 60);
await page.mouse.wheel(0, 120);
await page.waitForFunction(() => scrollY > 0);
await settle(frame);
seen.passesOver = (await view()) === whole;
await page.evaluate(() => scrollTo(0, 0));
if (shot) await page.screenshot({ path: shot });
await page.mouse.click(box.x + box.width / 2, box.y + 60);
await page.mouse.wheel(0, -120);
await frame.waitForFunction((old) => JSON.stringify(window.tessera.state().view) !== old, whole);
await settle(frame);
seen.steps = (await page.evaluate(() => window.history.length)) - history;
seen.address = await page.evaluate(() => location.href) === url && await frame.evaluate(() => location.href);

const [saved] = await Promise.all([page.waitForEvent('download'), frame.getByText('CSV').click()]);
seen.saved = saved.suggestedFilename();
await context.close();
await browser.close();
console.log(JSON.stringify(seen));
