// The page in a browser, from the file system. Prints one line for each test: name, then what is wrong as JSON.
// usage: browser.mjs PLAN.json: {playwright, browser, program, page, cases: [{line, files, form, output}], snapshot, broken}
import { readFileSync } from 'node:fs';
import testFit from './fit.mjs';

const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const playwright = await import(plan.playwright);
// Firefox as it is, by WebDriver BiDi; Chromium needs no sandbox around pages that are ours, and has none as root.
const how = plan.browser === 'firefox' ? { channel: 'moz-firefox' } : { args: ['--no-sandbox'] };
const browser = await playwright[plan.browser].launch({ executablePath: plan.program, ...how });
const context = await browser.newContext({ viewport: { width: 1200, height: 800 } });
const asked = [];
const errors = [];

async function open(hash = '') {
  const page = await context.newPage();
  page.on('request', (request) => asked.push(request.url()));
  page.on('pageerror', (error) => errors.push(String(error)));
  page.setDefaultTimeout(60000);
  await page.goto(`file://${plan.page}${hash}`);
  await page.waitForSelector('html[data-ready]');
  return page;
}

async function test(name, run) {
  const wrong = [];
  const check = (is, what) => is || wrong.push(what);
  try {
    await run(check);
  } catch (error) {
    wrong.push(String(error).slice(0, 500));
  }
  console.log(JSON.stringify({ name, wrong }));
}

const answer = async (page) => {
  await page.waitForFunction(() => !document.querySelector('progress:not([hidden])'));
  return page.evaluate(() => document.querySelector('#output')?.textContent ?? '');
};
const ask = async (page, line) => {
  await page.fill('.line input', line);
  await page.click('button.main');
  return answer(page);
};

await test('every question gives the bytes that the command gives', async (check) => {
  const page = await open('#question=peak');
  let given = '';
  for (const { line, files, form, output } of plan.cases) {
    if (files.length && `${files}` !== given) {
      await page.setInputFiles('#files-input', files);
      await page.waitForFunction((name) => document.querySelector('#file-list').textContent.includes(name), files[0].replace(/.*\//, ''));
      given = `${files}`;
    }
    await answer(page);
    await page.click(`[role=tab]:has-text("${form === 'json' ? 'JSON' : 'Text'}")`);
    const got = await ask(page, line);
    check(got === output, `${line} ${form}: ${JSON.stringify(got.slice(0, 200))} for ${JSON.stringify(output.slice(0, 200))}`);
  }
  await page.close();
});

// What a user drags from the file manager; only Chromium can be told to.
async function drag(page, x, y, paths) {
  const session = await context.newCDPSession(page);
  const data = { items: [], files: paths, dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'dragOver', 'drop']) {
    await session.send('Input.dispatchDragEvent', { type, x, y, data });
    await page.waitForTimeout(150);
  }
}
const listed = (page) => page.evaluate(() => [...document.querySelectorAll('#file-list li span')].map((span) => span.title));
const has = (page, name) => page.waitForFunction((name) =>
  [...document.querySelectorAll('#file-list li span')].some((span) => span.title === name), name);
const base = (path) => path.replace(/.*\//, '');

if (plan.browser === 'chromium')
  await test('files and folders are dragged onto the page, and onto the picture of another', async (check) => {
    const page = await open();
    await drag(page, 700, 400, [plan.snapshot]);
    await has(page, base(plan.snapshot));
    const frame = await (await page.waitForSelector('iframe')).contentFrame();
    await frame.waitForSelector('canvas');
    check((await page.title()).includes('view'), `the title is ${await page.title()}`);
    await page.waitForTimeout(300);
    await drag(page, 700, 400, [plan.second]);
    await has(page, base(plan.second));
    check(!(await page.evaluate(() => document.body.classList.contains('dragging'))), 'the page still waits for a drop');
    await drag(page, 700, 10, [plan.ranks]);
    await has(page, `ranks/rank1.${base(plan.snapshot).replace(/^[^.]*\./, '')}`);
    check(page.url().includes('question=ranks'), `a folder of ranks opens ${page.url()}`);
    check((await answer(page)).includes('2 ranks'), await answer(page));
    check(!(await listed(page)).some((name) => name.includes('/.')), 'a hidden file is listed');
    await page.close();
  });

await test('going back asks what was asked before, of the same files', async (check) => {
  const page = await open();
  await page.setInputFiles('#files-input', [plan.snapshot]);
  await page.click('.question:has-text("peak")');
  const first = await answer(page);
  await page.click('.question:has-text("steps")');
  await answer(page);
  await page.goBack();
  await page.waitForFunction(() => document.querySelector('.line input').value.startsWith('peak'));
  check((await answer(page)) === first, 'another answer after going back');
  await page.goForward();
  await page.waitForFunction(() => document.querySelector('.line input').value.startsWith('steps'));
  check((await page.evaluate(() => document.activeElement?.tagName)) !== undefined, 'no focus');
  await page.click('#home');
  check(await page.isVisible('.drop'), 'no way back to the start page');
  await page.close();
});

await test('options of one question are not asked of another', async (check) => {
  const page = await open('#question=fit&options=gpt2+--batch+2+--gpu+t4');
  await page.waitForFunction(() => /fits|does not fit/i.test(document.querySelector('.verdict')?.textContent ?? ''));
  await page.setInputFiles('#files-input', [plan.snapshot]);
  await page.waitForSelector('iframe');
  check(!page.url().includes('gpt2'), page.url());
  check(!(await page.textContent('.messages')), await page.textContent('.messages'));
  await page.close();
});

await test('names of files: the same twice, one that the page writes, and one that begins like an option', async (check) => {
  const page = await open('#question=info');
  const bytes = readFileSync(plan.snapshot);
  const file = (name, data = bytes) => ({ name, mimeType: 'application/octet-stream', buffer: data });
  await page.setInputFiles('#files-input', [file('snapshot.pickle')]);
  await answer(page);
  await page.setInputFiles('#files-input', [file('snapshot.pickle', readFileSync(plan.second))]);
  await answer(page);
  check((await listed(page)).includes('snapshot (2).pickle'), `${await listed(page)}`);
  for (const name of ['--json.pickle', 'page.html']) {
    await page.setInputFiles('#files-input', [file(name)]);
    check((await answer(page)).length > 0, `${name}: ${await page.textContent('.messages')}`);
  }
  await page.click('.question:has-text("view")');
  await page.waitForSelector('iframe');
  await page.click('[aria-label="Remove page.html"]');
  check(!(await listed(page)).includes('page.html'), 'a file stays');
  await page.close();
});

await test('keys reach everything, and what is asked is announced once', async (check) => {
  const page = await open();
  await page.setInputFiles('#files-input', [plan.snapshot]);
  await page.focus('.question[data-name=peak]');
  await page.keyboard.press('Enter');
  await answer(page);
  check((await page.evaluate(() => document.activeElement.dataset.name)) === 'peak', 'the question lost the focus');
  await page.focus('[role=tab][aria-selected=true]');
  await page.keyboard.press('ArrowRight');
  await page.waitForSelector('.answer table');
  check((await page.getAttribute('.answer', 'aria-labelledby')) === 'form-table', 'the panel is not its tab\u2019s');
  const live = await page.evaluate(() => [...document.querySelectorAll('[aria-live], [role=status], [role=alert]')].filter((one) =>
    one.textContent.length > 300).map((one) => one.id || one.className));
  check(live.length === 0, `announces whole answers: ${live}`);
  await page.focus('.fields select, .fields input');
  check((await page.textContent('#option-help')).length > 0 || !(await page.$('.fields [aria-describedby]')), 'no help for an option');
  const tree = await page.evaluate(() => [...document.querySelectorAll('button, input, select, progress, iframe')].filter((one) =>
    !one.hidden && !one.closest('[hidden]') && !(one.textContent.trim() || one.getAttribute('aria-label') || one.title || one.closest('label'))).map((one) => one.outerHTML));
  check(tree.length === 0, `without a name: ${tree}`);
  await page.close();
});

await test('what a question lacks is asked for, and is no error', async (check) => {
  const page = await open();
  await page.setInputFiles('#files-input', [plan.snapshot]);
  await page.click('.question[data-name=at]');
  await page.waitForFunction(() => document.querySelector('.hint')?.textContent);
  check(!(await page.textContent('.messages')), 'a red message');
  await page.click('.question[data-name=diff]');
  await page.waitForFunction(() => /second/.test(document.querySelector('.answer')?.textContent ?? ''));
  await page.close();
});

await test('the frame has the page\u2019s theme', async (check) => {
  const page = await open();
  await page.setInputFiles('#files-input', [plan.snapshot]);
  const frame = await (await page.waitForSelector('iframe')).contentFrame();
  await frame.waitForSelector('html[data-theme=light]');
  await page.click('#theme');
  await frame.waitForSelector('html[data-theme=dark]');
  check(true, '');
  await page.close();
});

await test('a dropped file is drawn and answers', async (check) => {
  const page = await open();
  const bytes = readFileSync(plan.snapshot).toString('base64');
  await page.evaluate((base64) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], 'dropped.pickle.xz'));
    document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, bytes);
  const frame = await (await page.waitForSelector('iframe')).contentFrame();
  await frame.waitForSelector('canvas');
  check((await frame.textContent('header')).includes('dropped.pickle.xz'), 'the page of view has another file');
  await page.click('.question:has-text("peak")');
  check((await answer(page)).includes('peak'), 'no answer of peak');
  await page.click('[role=tab]:has-text("Table")');
  await page.waitForSelector('.answer table');
  const address = page.url();
  check(address.includes('question=peak') && address.includes('as=table'), `the address lacks the question: ${address}`);
  check(!address.includes('dropped'), `the address has data: ${address}`);
  await page.close();
});

await test('a file that is no snapshot is refused, and the page goes on', async (check) => {
  const page = await open('#question=peak');
  await page.setInputFiles('#files-input', [...plan.broken, plan.snapshot]);
  for (const path of plan.broken) {
    const name = path.replace(/.*\//, '');
    await ask(page, `peak ${name}`);
    check((await page.textContent('.messages')).includes(name), `no message about ${name}`);
  }
  check((await ask(page, `peak ${plan.snapshot.replace(/.*\//, '')}`)).includes('peak'), 'no answer afterwards');
  await page.close();
});

await test('what runs can be cancelled', async (check) => {
  const page = await open('#question=plan');
  await page.fill('.line input', 'plan gpt2-xl --budget 20GiB --batch 32');
  await page.click('button.main');
  await page.click('button:has-text("Cancel")');
  await page.waitForFunction(() => document.querySelector('#state').textContent === 'Cancelled');
  check((await ask(page, 'simulate gpt2')).includes('gpt2'), 'no answer afterwards');
  await page.close();
});

await test('what a browser lacks is said', async (check) => {
  const page = await open('#question=peak');
  await ask(page, 'sql nothing');
  check((await page.textContent('.messages')).includes('not in the browser'), await page.textContent('.messages'));
  await page.close();
});

await testFit({ open, test, plan });

await test('no request leaves the page', async (check) => {
  const page = await open();
  const refused = await page.evaluate(async () => {
    const outcomes = [];
    for (const url of ['https://example.com/', 'http://127.0.0.1:9/'])
      outcomes.push(await fetch(url, { mode: 'no-cors' }).then(() => 'sent', () => 'refused'));
    const image = new Image();
    outcomes.push(await new Promise((resolve) => {
      image.onload = () => resolve('sent');
      image.onerror = () => resolve('refused');
      image.src = 'https://example.com/x.png';
    }));
    return outcomes;
  });
  check(refused.every((outcome) => outcome === 'refused'), JSON.stringify(refused));
  const sent = asked.filter((url) => !/^(file|blob|data):/.test(url) && !url.startsWith('https://example.com/') && !url.startsWith('http://127.0.0.1:9/'));
  check(sent.length === 0, `asked for ${sent}`);
  check(asked.filter((url) => url.startsWith('file:')).every((url) => url.split('#')[0].endsWith('tessera.html')), 'another file');
  check(errors.length === 0, errors.join('; '));
  await page.close();
});

await browser.close();
