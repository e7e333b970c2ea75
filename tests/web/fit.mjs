// "Will it fit?" in a browser: what it shows is the command's. browser.mjs calls this; `plan.fit` is plan_of_page's of fit.py.

const settled = (page) => page.waitForSelector('html[data-fit=explained], html[data-fit=failed]');

// The text behind a button, once it is there.
async function copied(page, place, title) {
  await page.click(`${place} button:text-is("${title}")`);
  await page.waitForFunction(([at, name]) => {
    const said = document.querySelector(at)?.parentElement.querySelector('[role=status]');
    return said?.textContent.startsWith(`${name}: `);
  }, [`${place} pre`, title]);
  return page.textContent(`${place} pre`);
}

const ALONG = '[aria-label="Take it along"]';

export default async function fit({ open, test, plan: { fit: expected } }) {
  await test('will it fit: an address is answered with the bytes of the command', async (check) => {
    for (const { options, words, text, json } of expected.cases) {
      const page = await open(`#${new URLSearchParams({ question: 'fit', options })}`);
      await settled(page);
      const line = await copied(page, ALONG, 'Command line');
      check([...line.split(' ')].sort().join(' ') === ['tessera', ...words].sort().join(' '), `${line} for ${words.join(' ')}`);
      check((await copied(page, ALONG, 'JSON')) === json, `${options}: other JSON`);
      check((await copied(page, ALONG, 'Text')) === text, `${options}: other text`);
      const { devices: [device] } = JSON.parse(json);
      const verdict = await page.textContent('.verdict');
      const kind = device.capacity_bytes === null ? 'It needs' : device.fits ? 'Fits in' : 'Does not fit in';
      check(verdict.startsWith(kind), `${options}: ${verdict}`);
      check(new URLSearchParams(new URL(page.url()).hash.slice(1)).get('question') === 'fit', 'the address has lost its question');
      await page.close();
    }
  });

  await test('will it fit: the form has what the module lists, with a name for each field, and is filled in by keyboard', async (check) => {
    const page = await open();
    await page.click('.question:has-text("Will it fit?")');
    await settled(page);
    const models = await page.$$eval('#fit-models option', (list) => list.map((option) => option.value));
    check(expected.models.every((name) => models.includes(name)), `models: ${models}`);
    const cards = await page.$$eval('[name=gpu] option', (list) => list.map((option) => option.value).filter(Boolean));
    check(`${cards}` === `${expected.cards.map(({ name }) => name)}`, `cards: ${cards}`);
    const nameless = await page.$$eval('.fit input, .fit select', (list) => list.filter((one) => !one.labels?.length).map((one) => one.name));
    check(nameless.length === 0, `no label: ${nameless}`);
    const before = await page.textContent('.verdict');
    await page.focus('[name=batch]');
    await page.keyboard.type('64');
    await page.waitForFunction((text) => document.querySelector('.verdict').textContent !== text, before);
    check((await page.textContent('.verdict')).startsWith('Does not fit'), await page.textContent('.verdict'));
    check(await page.evaluate(() => document.activeElement.name === 'batch'), 'the focus has gone');
    check(page.url().includes('batch+64'), page.url());
    await page.fill('[name=batch]', 'many');
    await page.waitForSelector('.verdict.alarm:has-text("batch")');
    await page.close();
  });

  await test('will it fit: a technique is taken into the form, and a plan is the command\'s', async (check) => {
    const page = await open(`#${new URLSearchParams({ question: 'fit', options: 'gpt2 --capacity 3GiB --batch 2' })}`);
    await settled(page);
    await page.click('.planned button:has-text("Find a plan")');
    await page.waitForSelector('.planned table');
    check((await copied(page, '.planned', 'JSON')) === expected.plan, 'another plan');
    check((await copied(page, '.planned', 'hf')).includes('TrainingArguments'), 'nothing to paste');
    await page.click('button[aria-label="Use no key-value cache"]');
    await page.waitForFunction(() => location.hash.includes('no-kv-cache'));
    check(await page.isChecked('[name=no-kv-cache]'), 'not ticked');
    await settled(page);
    await page.click('summary:has-text("Memory over time")');
    await page.frameLocator('.timeline iframe').locator('canvas').first().waitFor();
    await page.close();
  });

  await test('will it fit: a config.json is a model, and the address does not name it', async (check) => {
    const page = await open();
    await page.setInputFiles('#files-input', expected.config);
    await page.waitForFunction(() => document.querySelector('[name=model]').value.startsWith('config-'));
    await settled(page);
    check(/^(Fits|Does)/.test(await page.textContent('.verdict')), await page.textContent('.verdict'));
    check(!page.url().includes('config'), page.url());
    await page.close();
  });
}
