// Tests of the page that `tessera ranks --html` writes; page.mjs runs them with its own.
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

export default function ranksTests({ test, plan, tessera, open, close, settle, shoot, expect, check, contrast }) {
  const pages = new Map();
  /** The page of a folder of ranks, which is written once. */
  const write = (folder) => {
    if (!pages.has(folder)) {
      const path = join(plan.work, `ranks-${pages.size}.html`);
      tessera('ranks', '-q', '--html', path, folder);
      pages.set(folder, path);
    }
    return pages.get(folder);
  };
  const answerOf = (folder) => JSON.parse(tessera('ranks', '--json', '-q', folder));
  const { fleet, hostile, many, dumps, paces } = plan.ranks;
  const order = (page) => page.evaluate('tessera.order()');
  const state = (page) => page.evaluate('tessera.state()');
  const click = async (page, rank) => {
    const { x, y } = await page.evaluate((r) => tessera.boxOf(r), rank);
    await page.mouse.click(x, y);
    await settle(page);
  };
  const sideText = (page) => page.locator('.side-rank').innerText();

  test('ranks: opens with the verdict, the groups and every rank', async () => {
    const path = write(fleet.path);
    const answer = answerOf(fleet.path);
    const page = await open(path);
    const [verdict] = tessera('ranks', '-q', fleet.path).split('\n');
    expect('the verdict', await page.locator('.verdict').innerText(), verdict);
    expect('groups', await page.locator('.groups tbody tr').count(), answer.groups.length);
    expect('rows', (await order(page)).sort((a, b) => a - b), [...answer.ranks.map((r) => r.rank), ...answer.missing].sort((a, b) => a - b));
    const side = await sideText(page);
    check('the fault is listed', side.includes(`Rank ${fleet.fault}`));
    check('who ran out is listed', side.includes('Out of memory'));
    check('what is missing is listed', side.includes(`No snapshot of rank ${fleet.missing}`));
    check('what is broken is listed', side.includes('could not be read') && side.includes('rank99'));
    check('the map is drawn', await page.evaluate(() => {
      const c = document.querySelector('.map-canvas');
      return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 20;
    }));
    await shoot(page, 'ranks');
    await close(page);
  });

  test('ranks: what is drawn is what the answer and the snapshots have', async () => {
    const answer = answerOf(fleet.path);
    const page = await open(write(fleet.path));
    const columns = await page.evaluate('tessera.columns()');
    expect('clocks are aligned', columns.align, 'steps');
    let most = 0;
    for (const [i, said] of answer.ranks.entries()) {
      const values = (await page.evaluate((n) => tessera.values(n), i)).filter((v) => v !== null && !Number.isNaN(v));
      expect(`rank ${said.rank}: its highest moment`, Math.max(...values), said.peak_allocated_bytes);
      most = Math.max(most, ...values);
    }
    expect('the darkest colour', columns.max, most);
    await page.evaluate(() => tessera.set({ view: 'category' }));
    await settle(page);
    for (const [g, group] of answer.groups.entries()) {
      const members = answer.ranks.map((r, i) => (r.group === group.name ? i : -1)).filter((i) => i >= 0);
      const values = [];
      for (const i of members) values.push(await page.evaluate((n) => tessera.values(n), i));
      const medians = await page.evaluate((n) => tessera.medians(n), g);
      medians.forEach((median, c) => {
        const sorted = values.map((v) => v[c]).sort((a, b) => a - b);
        expect(`${group.name}: median of column ${c}`, median, sorted[(sorted.length - 1) >> 1]);
      });
      members.forEach((i, k) => expect(`categories of rank ${answer.ranks[i].rank}`, values[k].reduce((a, b) => a + b, 0), answer.ranks[i].peak_allocated_bytes));
    }
    await shoot(page, 'ranks-categories');
    await close(page);
  });

  test('ranks: sorted by group with those that stand apart first, by size, by rank; searched', async () => {
    const answer = answerOf(fleet.path);
    const page = await open(write(fleet.path));
    const groupOf = new Map(answer.ranks.map((r) => [r.rank, r.group]));
    const grouped = await order(page);
    const names = grouped.map((r) => groupOf.get(r)).filter((g, i, all) => i === 0 || g !== all[i - 1]);
    expect('each group once', new Set(names).size, names.length);
    expect('the fault is the first of its group', grouped.find((r) => groupOf.get(r) === groupOf.get(fleet.fault)), fleet.fault);
    expect('what is missing comes last', grouped.at(-1), fleet.missing);
    await page.getByRole('button', { name: 'by size' }).click();
    await settle(page);
    const peakOf = new Map(answer.ranks.map((r) => [r.rank, r.peak_allocated_bytes]));
    const peaks = (await order(page)).filter((r) => peakOf.has(r)).map((r) => peakOf.get(r));
    expect('highest first', peaks, [...peaks].sort((a, b) => b - a));
    await page.keyboard.press('s');
    await settle(page);
    const numbers = await order(page);
    expect('by number', numbers, [...numbers].sort((a, b) => a - b));
    for (const [query, wanted] of [['3', [3]], ['1-3', [1, 2, 3]], ['oom', answer.out_of_memory], ['outlier', [fleet.fault]], ['missing', [fleet.missing]], ['no such rank', []]]) {
      await page.fill('#search', query);
      await settle(page);
      expect(`search for ${query}`, await order(page), wanted);
    }
    await page.locator('.groups tbody tr').first().click();
    await settle(page);
    expect('a group alone', await order(page), answer.ranks.filter((r) => r.group === answer.groups[0].name).map((r) => r.rank));
    await close(page);
  });

  test('ranks: a click opens a rank, and the address keeps it', async () => {
    const answer = answerOf(fleet.path);
    const outlier = answer.outliers.find((o) => o.rank === fleet.fault);
    const page = await open(write(fleet.path));
    await click(page, fleet.fault);
    expect('the rank that is open', (await state(page)).chosen, String(fleet.fault));
    const text = await sideText(page);
    check('its peak to the byte', text.includes(answer.ranks.find((r) => r.rank === fleet.fault).peak_allocated_bytes.toLocaleString('en-US')));
    check('its cause', text.includes(outlier.cause));
    check('compared with', text.includes(`Difference to rank ${outlier.compared_with}`));
    check('how to open the snapshot', text.includes(`tessera view -o rank${fleet.fault}.html`));
    const changes = page.getByRole('table', { name: 'Difference by stack' }).locator('tbody tr');
    expect('its changes', await changes.count(), outlier.changes.length);
    await changes.first().click();
    check('a row shows its stack', (await page.locator('.side-rank .stack li').count()) > 0);
    await shoot(page, 'ranks-rank');
    await page.evaluate(() => tessera.set({ view: 'category', sort: 'size', colour: 'difference' }));
    await settle(page);
    const hash = await page.evaluate(() => location.hash.slice(1));
    await close(page);
    const again = await open(write(fleet.path), { hash });
    await settle(again);
    expect('the same view', [(await state(again)).chosen, (await state(again)).view, (await state(again)).sort, (await state(again)).colour], [String(fleet.fault), 'category', 'size', 'difference']);
    check('the same rank', (await sideText(again)).startsWith(`Rank ${fleet.fault}`));
    await click(again, fleet.missing);
    check('a missing rank has a view that says so', (await sideText(again)).includes('No snapshot of this rank'));
    await close(again);
    const odd = await open(write(fleet.path), { hash: 'chosen=123456&view=upside&sort=%3Cb%3E&theme=none' });
    expect('a wrong address is as none', [(await state(odd)).view, (await state(odd)).sort, (await state(odd)).theme], ['time', 'group', 'auto']);
    await close(odd);
  });

  test('ranks: keys reach everything', async () => {
    const page = await open(write(fleet.path));
    const rows = await order(page);
    await page.locator('.map-scroll').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    expect('the second row', await page.evaluate('tessera.cursor()'), rows[1]);
    check('it is announced', (await page.locator('.map [role="status"]').innerText()).startsWith(`rank ${rows[1]},`));
    await page.keyboard.press('Enter');
    await settle(page);
    expect('Enter opens it', (await state(page)).chosen, String(rows[1]));
    await page.keyboard.press('ArrowDown');
    await settle(page);
    expect('an open view follows', (await state(page)).chosen, String(rows[2]));
    await page.keyboard.press('Escape');
    await settle(page);
    expect('Escape closes it', (await state(page)).chosen, '');
    await page.keyboard.press('Home');
    await page.keyboard.press('p');
    await page.keyboard.press('n');
    check('n goes to a rank that is marked', [fleet.fault, ...answerOf(fleet.path).out_of_memory].includes(await page.evaluate('tessera.cursor()')));
    for (const [key, what, values] of [['t', 'view', ['category', 'time']], ['d', 'colour', ['difference', 'size']], ['s', 'sort', ['size', 'rank', 'group']]])
      for (const value of values) {
        await page.keyboard.press(key);
        await settle(page);
        expect(`${key}: ${what}`, (await state(page))[what], value);
      }
    await page.keyboard.press('/');
    await page.keyboard.type('outlier');
    await settle(page);
    expect('searched', await order(page), [fleet.fault]);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await settle(page);
    expect('and everything again', (await order(page)).length, rows.length);
    await page.keyboard.press('?');
    check('help', await page.locator('dialog.help').isVisible());
    await page.keyboard.press('Escape');
    await close(page);
  });

  test('ranks: pointing at a cell says whose it is and how much', async () => {
    const answer = answerOf(fleet.path);
    const page = await open(write(fleet.path));
    const { x, y } = await page.evaluate((r) => tessera.boxOf(r), fleet.fault);
    await page.mouse.move(x, y);
    await settle(page);
    const text = await page.locator('.tooltip').innerText();
    check('the rank', text.startsWith(`Rank ${fleet.fault}`));
    check('its peak', text.includes(answer.ranks.find((r) => r.rank === fleet.fault).peak_allocated_bytes.toLocaleString('en-US')));
    check('what was allocated', /allocated\s+[\d.]+ [KMG]iB/.test(text) && /median here/.test(text));
    await page.mouse.move(5, 5);
    await settle(page);
    check('it goes away', await page.locator('.tooltip').isHidden());
    await close(page);
  });

  test('ranks: every network is forbidden, and hostile names are text', async () => {
    const path = write(hostile);
    const html = readFileSync(path, 'utf8');
    const policy = /Content-Security-Policy" content="([^"]*)"/.exec(html)[1];
    check('a policy that begins with nothing', policy.startsWith("default-src 'none'") && !/unsafe|http|\*|'self'/.test(policy));
    const data = html.slice(html.indexOf('id="tessera-head"'), html.lastIndexOf('<script>'));
    expect('elements in the data', (data.match(/<(?!\/script>|script type="text\/plain")/g) ?? []).length, 0);
    const page = await open(path);
    let text = await page.evaluate(() => document.body.innerText);
    for (const rank of await order(page)) {
      await click(page, rank);
      text += await page.evaluate(() => document.body.innerText);
      for (const row of await page.locator('.side-rank tbody tr[tabindex]').all()) await row.click();
      text += await page.evaluate(() => document.body.innerText);
    }
    expect('nothing ran', await page.evaluate('window.pwned'), undefined);
    expect('no element came of a name', await page.evaluate(() => document.querySelectorAll('img, script:not([type]) ~ script, iframe, b').length), 0);
    check('they are there to read', text.includes('<script>window.pwned = 1') && text.includes('onerror='));
    check('nothing reorders the line', !/[\u202a-\u202e\u2066-\u2069\u0000-\u0008\u001b]/.test(text));
    check('nothing is hidden', !/[\u00ad\u200b-\u200f\u{e0000}-\u{e0fff}]/u.test(text));
    const commands = await page.locator('.command code').allInnerTexts();
    check('a path that a shell reads as it is', commands.length > 0 && commands.every((c) => !/[$;`]/.test(c.replace(/\$'(?:\\.|[^'\\])*'|'[^']*'/g, ''))));
    const refused = await page.evaluate(() => fetch('https://example.org/').then(() => false, () => true));
    check('a request is refused', refused);
    page.complaints = page.complaints.filter((c) => !/example\.org|Content Security Policy/.test(c));
    await shoot(page, 'ranks-hostile');
    await close(page);
  });

  test('ranks: ten thousand of them, of which each can be chosen', async () => {
    const path = write(many.path);
    check('a page of at most 5 MB', statSync(path).size <= 5e6);
    const page = await open(path);
    expect('rows', (await order(page)).length, many.count);
    const box = await page.evaluate((r) => tessera.boxOf(r), many.fault);
    check('who stands apart has room', box.height >= 10);
    await click(page, many.fault);
    expect('and is chosen by a click', (await state(page)).chosen, String(many.fault));
    await shoot(page, 'ranks-many');
    await page.fill('#search', String(many.count - 1));
    await settle(page);
    await click(page, many.count - 1);
    expect('another by its number', (await state(page)).chosen, String(many.count - 1));
    await page.fill('#search', '');
    await settle(page);
    await page.locator('.map-scroll').focus();
    for (let i = 0; i < 12; i++) await page.keyboard.press('+');
    await page.keyboard.press('End');
    await settle(page);
    const last = (await order(page)).at(-1);
    expect('the last row is in view', await page.evaluate('tessera.cursor()'), last);
    const at = await page.evaluate((r) => tessera.boxOf(r), last);
    check('as high as others', at.height > 10 && at.y < 800);
    await close(page);
  });

  test('ranks: clocks are aligned by the steps, and who is late is told', async () => {
    for (const { path, step, ahead, late } of paces) {
      const page = await open(write(path));
      expect('how', (await page.evaluate('tessera.columns()')).align, 'steps');
      const begins = await page.evaluate('tessera.begins()');
      const rows = await page.evaluate(() => Array.from({ length: tessera.rows }, (_, i) => [tessera.row(i).rank, tessera.row(i).first]));
      // What is left of the clocks: all traces begin when the job does.
      const off = rows.map(([rank, first], i) => begins[i] - (first - ahead[rank])).sort((a, b) => a - b);
      const middle = off[off.length >> 1];
      check(`${path}: within a step (${off[0] - middle} to ${off.at(-1) - middle} of ${step} us)`, off.at(-1) - middle < step * 1.1 && middle - off[0] < step * 1.1);
      check('who is late', new RegExp(`Late in their steps[^]*\\n${late}\\t`).test(await sideText(page)));
      await shoot(page, 'ranks-late');
      await close(page);
    }
  });

  test('ranks: dumps without a trace are shown by category', async () => {
    const page = await open(write(dumps));
    expect('rows', (await order(page)).length, 3);
    expect('why the map is empty', await page.evaluate('tessera.columns().blank'), ['no trace', 'no trace', 'no trace']);
    check('the side tells of growth', (await sideText(page)).includes('Growth'));
    await page.evaluate(() => tessera.set({ view: 'category' }));
    await click(page, 1);
    check('no trace', (await sideText(page)).includes('no trace'));
    await close(page);
  });

  test('ranks: both themes can be read, and a narrow window', async () => {
    for (const scheme of ['light', 'dark']) {
      const page = await open(write(fleet.path), { scheme });
      expect('the theme', await page.evaluate(() => document.documentElement.dataset.theme), scheme);
      await click(page, fleet.fault);
      const pairs = await page.evaluate(() => {
        const rgb = (text) => text.match(/[\d.]+/g).map(Number);
        const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
        return [...document.querySelectorAll('.verdict, .basis, .badge, .note, .side-rank td, .side-rank dd, .side-rank dt, .command code')].map((e) => [e.className || e.tagName, rgb(getComputedStyle(e).color).slice(0, 3), ground(e).slice(0, 3)]);
      });
      for (const [name, ink, paper] of pairs) check(`${scheme}: ${name} can be read`, contrast(ink, paper) >= 4.5);
      await shoot(page, `ranks-${scheme}`);
      await close(page);
    }
    const page = await open(write(fleet.path), { width: 640, height: 900 });
    check('nothing is wider than the window', await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await shoot(page, 'ranks-narrow');
    await close(page);
  });
}
