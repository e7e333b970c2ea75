// "Will it fit?" in a browser: what it shows is the command's. browser.mjs calls this; `plan.fit` is plan_of_page's of fit.py.

const settled = (page) => page.waitForSelector('html[data-fit=explained], html[data-fit=failed]');

// The text behind a button, once it is there.
async function copied(page, place, title) {
  await page.click(`${place} button:text-is("${title}")`);
  await page.waitForFunction(([at, name]) => {
    const said = document.querySelector(at)?.parentElement.querySelector('.said');
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
    check((await copied(page, '.planned', 'Text')) === expected.plan_text, 'another text of the plan');
    await page.waitForTimeout(200);
    let workers = 0;
    page.on('worker', () => workers++);
    await copied(page, '.planned', 'JSON');
    await copied(page, '.planned', 'Text');
    check(workers === 0, 'searched again for the same text');
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

  const at = (options) => open(`#${new URLSearchParams({ question: 'fit', options })}`);
  const verdict = (page) => page.textContent('.verdict');

  await test('will it fit: a click ends the typing, and does what it says', async (check) => {
    const page = await at('gpt2 --capacity 3GiB');
    await settled(page);
    await page.focus('[name=batch]');
    await page.keyboard.type('2');
    await page.click('.planned button:has-text("Find a plan")');
    await page.waitForSelector('.planned table');
    check((await copied(page, '.planned', 'JSON')) === expected.plan, 'another plan');
    await page.waitForTimeout(400);
    check(await page.isVisible('.planned table'), 'the plan has gone');
    await page.focus('[name=batch]');
    await page.keyboard.type('0');
    const line = await copied(page, ALONG, 'Command line');
    check(line.includes('--batch 20'), line);
    await page.close();
  });

  await test('will it fit: a link without a model asks for it, and words that are no option are said', async (check) => {
    const page = await at('--batch 2 --nothing gpt2');
    await settled(page);
    check((await verdict(page)).startsWith('Choose a model'), await verdict(page));
    check((await page.inputValue('[name=model]')) === '', await page.inputValue('[name=model]'));
    check((await page.textContent('.note')).includes('--nothing gpt2'), await page.textContent('.note'));
    await page.setInputFiles('#files-input', expected.config);
    await page.waitForSelector('html[data-fit=explained]');
    check((await page.inputValue('[name=batch]')) === '2', 'the options of the link have gone');
    const link = await copied(page, ALONG, 'Link');
    check(!link.includes('config') && link.includes('batch'), link);
    check((await page.textContent(`${ALONG} .said`)).includes('drop it again'), await page.textContent(`${ALONG} .said`));
    await page.close();
  });

  await test('will it fit: of two texts asked one after the other, the later is shown', async (check) => {
    const page = await at('gpt2 --gpu t4');
    await settled(page);
    await page.evaluate((along) => {
      const press = (title) => [...document.querySelectorAll(`${along} button`)].find((one) => one.textContent === title).click();
      press('Text');
      press('Command line');
    }, ALONG);
    await page.waitForTimeout(700);
    const shown = await page.textContent('#fit-output');
    check(shown.startsWith('tessera simulate'), shown.slice(0, 100));
    await page.evaluate((along) => {
      const press = (title) => [...document.querySelectorAll(`${along} button`)].find((one) => one.textContent === title).click();
      press('JSON');
      press('Text');
    }, ALONG);
    await page.waitForFunction(() => document.querySelector('[aria-label="Take it along"] .said').textContent.startsWith('Text: '));
    check((await page.textContent('#fit-output')) === expected.cases[0].text, 'another text');
    await page.close();
  });

  await test('will it fit: what is old is dimmed while the new is computed, and can be cancelled', async (check) => {
    const page = await at('gpt2 --gpu t4');
    await settled(page);
    await page.fill('[name=batch]', '1000000');
    await page.waitForSelector('.scroll.is-stale[aria-busy]');
    check(await page.isDisabled('.scroll button >> nth=0'), 'a choice of the old table can be used');
    await page.click('.busy:visible button:text-is("Cancel")');
    await settled(page);
    check((await page.locator('.is-stale').count()) === 0, 'still dimmed');
    await page.fill('[name=batch]', '1');
    await page.waitForSelector('html[data-fit=explained]');
    await page.waitForSelector('.scroll table');
    await page.close();
  });

  await test('will it fit: what is wrong is said at the end of typing, at its field, without what is below', async (check) => {
    const page = await at('gpt2 --gpu t4');
    await settled(page);
    await page.focus('[name=model]');
    await page.keyboard.press('End');
    await page.keyboard.type('-mediu');
    await page.waitForTimeout(300);
    check((await page.locator('.alarm').count()) === 0, 'an error while a name is being typed');
    await page.keyboard.type('m');
    await settled(page);
    check((await page.locator('.alarm').count()) === 0, await verdict(page));
    await page.fill('[name=zero]', '2');
    await page.waitForSelector('html[data-fit=failed]');
    check(!(await verdict(page)).includes('tessera help'), await verdict(page));
    check((await page.getAttribute('[name=ranks]', 'aria-invalid')) === 'true', 'the field is not marked');
    const at2 = (await page.getAttribute('[name=ranks]', 'aria-describedby')).split(' ')[0];
    check((await page.textContent(`#${at2}`)).includes('ranks'), 'the field does not say what is wrong');
    check((await page.locator('.fit-answer h3:visible, .fit-answer button:visible').count()) === 0, 'headings of nothing');
    await page.fill('[name=zero]', '');
    await page.waitForSelector('html[data-fit=explained]');
    check((await page.locator('[aria-invalid]').count()) === 0, 'still marked');
    for (const model of ['--help', '', '-x.json']) {
      await page.fill('[name=model]', model);
      await page.waitForSelector('html[data-fit=failed]');
      check((await page.getAttribute('[name=model]', 'aria-invalid')) === 'true', `${model}: ${await verdict(page)}`);
      await page.fill('[name=model]', 'gpt2');
      await page.waitForSelector('html[data-fit=explained]');
    }
    await page.close();
  });

  await test('will it fit: a dropped file is the model only if it is one', async (check) => {
    const page = await at('gpt2 --gpu t4');
    await settled(page);
    for (const name of ['rates.json', 'ds_config.json', 'strange.bin']) {
      await page.setInputFiles('#files-input', expected.files[name]);
      await page.waitForFunction((file) => document.querySelector('.note').textContent.includes(file), name);
      await settled(page);
      check((await page.inputValue('[name=model]')) === 'gpt2', `${name} is the model`);
      check(/^(Fits|Does)/.test(await verdict(page)), await verdict(page));
    }
    const offered = await page.$$eval('#fit-files option', (list) => list.map((one) => one.value));
    check(offered.includes('rates.json'), `${offered}`);
    await page.setInputFiles('#files-input', expected.files['mine.json']);
    await page.waitForFunction(() => document.querySelector('[name=model]').value === 'mine.json');
    await settled(page);
    check(/^(Fits|Does)/.test(await verdict(page)), await verdict(page));
    await page.close();
  });

  await test('will it fit: a step graph closes the options that it fixes', async (check) => {
    const page = await at('gpt2 --gpu t4 --batch 4');
    await settled(page);
    await page.setInputFiles('#files-input', expected.files.graph);
    await page.waitForFunction(() => document.querySelector('[name=model]').value === 'bert.graph');
    await settled(page);
    check((await verdict(page)).startsWith('Fits'), await verdict(page));
    check(await page.isDisabled('[name=batch]') && !(await page.isDisabled('[name=gpu]')), 'fields');
    check(await page.isVisible('.closed'), 'no reason');
    const line = await copied(page, ALONG, 'Command line');
    check(!line.includes('batch'), line);
    await page.click('.planned button:has-text("Find a plan")');
    await page.waitForSelector('.planned .verdict');
    await page.fill('[name=model]', 'gpt2');
    await page.waitForSelector('[name=batch]:enabled');
    await page.waitForSelector('html[data-fit=explained]');
    check((await copied(page, ALONG, 'Command line')).includes('--batch 4'), 'what was typed has gone');
    await page.close();
  });

  await test('will it fit: a plan is taken into the form, and predicts what is then simulated', async (check) => {
    const page = await at('gpt2 --capacity 700MiB --batch 2 --checkpoint full');
    await settled(page);
    await page.fill('[name=checkpoint]', '');
    await settled(page);
    await page.click('.planned button:has-text("Find a plan")');
    await page.click('.planned button:text-is("Use this plan")');
    await page.waitForSelector('html[data-fit=explained]');
    const { plan, predicted } = JSON.parse(expected.small);
    check((await page.inputValue('[name=loss]')) === plan.loss, await page.inputValue('[name=loss]'));
    check((await page.inputValue('[name=plan]')) === 'taken-plan.json', 'blocks have gone');
    check((await page.textContent('.note')).includes('blocks'), await page.textContent('.note'));
    const { devices: [device] } = JSON.parse(await copied(page, ALONG, 'JSON'));
    check(device.peak.allocated_bytes === predicted.peak_allocated_bytes, `${device.peak.allocated_bytes} for ${predicted.peak_allocated_bytes}`);
    check((await verdict(page)).startsWith('Fits'), await verdict(page));
    await page.close();
  });

  await test('will it fit: a plan that does not fit says so, also in its texts', async (check) => {
    const page = await at('gpt2 --capacity 200MiB');
    await settled(page);
    await page.click('.planned button:has-text("Find a plan")');
    await page.waitForSelector('.planned .verdict.alarm');
    check(/^No plan that fits in 200.00 MiB was found; the nearest needs [\d.]+ MiB/.test(await page.textContent('.planned .verdict')), await page.textContent('.planned .verdict'));
    check((await copied(page, '.planned', 'hf')).startsWith('# This plan does not fit'), 'the text does not say so');
    check((await page.textContent('.planned .said')).includes('does not fit'), 'nor does the page');
    await page.close();
  });

  await test('will it fit: help is seen with the focus, and what is closed or empty can be read', async (check) => {
    const page = await at('gpt2 --gpu rtx5070ti');
    await page.setViewportSize({ width: 390, height: 844 });
    await settled(page);
    check(await page.isHidden('#fit-help-seq'), 'help without the focus');
    await page.focus('[name=seq]');
    check(await page.isVisible('#fit-help-seq'), 'no help');
    check((await page.getAttribute('[name=seq]', 'aria-describedby')) === 'fit-help-seq', 'help is not its description');
    const gpu = await page.$eval('[name=gpu]', (list) => list.getBoundingClientRect().width);
    check(gpu > 300, `the cards have ${gpu} pixels`);
    const live = await page.$$eval('.fit [role=status], .fit [aria-live]:not([aria-live=off])', (list) => list.length);
    check(live === 1, `${live} live regions`);
    check(/^Fits in [\d.]+ GiB(, of which PyTorch can have [\d.]+ GiB)?: [\d.]+ GiB are left\.$/.test(await page.textContent('.fit [role=status]')), await page.textContent('.fit [role=status]'));
    const levels = await page.$$eval('h1, #work h2, #work h3', (list) => list.map((one) => one.tagName).join(' '));
    check(/^H1 H2( H3)+$/.test(levels), levels);
    check((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, 'wider than the screen');
    await page.close();
  });

  await test('will it fit: what is typed last does not show in another question', async (check) => {
    const page = await at('gpt2 --gpu t4');
    await settled(page);
    await page.focus('[name=batch]');
    await page.keyboard.type('9');
    await page.click('.question:has-text("peak")');
    await page.waitForTimeout(600);
    check(page.url().includes('question=peak') && !page.url().includes('batch'), page.url());
    await page.close();
  });

  await test('will it fit: a model that is removed is none, and what else is typed stays', async (check) => {
    const page = await at('gpt2 --gpu t4 --batch 2');
    await page.setInputFiles('#files-input', expected.config);
    await page.waitForFunction(() => document.querySelector('[name=model]').value.startsWith('config-'));
    await page.waitForSelector('html[data-fit=explained]');
    await page.click('[aria-label^="Remove config-"]');
    await page.waitForSelector('html[data-fit=failed]');
    check((await verdict(page)).startsWith('Choose a model'), await verdict(page));
    check((await page.inputValue('[name=batch]')) === '2', 'the batch has gone');
    await page.fill('[name=model]', 'gpt2');
    await page.waitForSelector('html[data-fit=explained]');
    await page.close();
  });
}
