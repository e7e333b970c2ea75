// hostile.mjs PLAN: gives the page the files of each case, asks its question, and prints what is wrong. PLAN is JSON: {playwright, browser,
// program, page, hang_ms}. Each line of standard input is a case, {files: {name: base64}, words}, each line of standard output a
// list of what is wrong with it.
import { createInterface } from 'node:readline';

const plan = JSON.parse(process.argv[2]);
const playwright = await import(plan.playwright);
const how = plan.browser === 'firefox' ? { channel: 'moz-firefox' } : { args: ['--no-sandbox'] };
const browser = await playwright[plan.browser].launch({ executablePath: plan.program, ...how });
const quote = (word) => (/^[\w./:=,+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

let page;
let errors = [];
let asked = 0;
// A page holds what it was given until it is closed: start again now and then.
const MOST = 500;

async function open() {
  if (page) await page.close();
  page = await browser.newPage();
  page.on('pageerror', (error) => errors.push(`error: ${error}`));
  page.on('request', (request) => /^(file|blob|data):/.test(request.url()) || errors.push(`asked for ${request.url()}`));
  await page.goto(`file://${plan.page}#question=info`);
  await page.waitForSelector('html[data-ready]');
  asked = 0;
}

// In the page: replace its files and ask. Resolves to what the page shows in the end.
const ask = async ({ files, line, hang_ms }) => {
  for (const button of document.querySelectorAll('#file-list button')) button.click();
  const data = new DataTransfer();
  for (const [name, base64] of Object.entries(files))
    data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name));
  const input = document.querySelector('#files-input');
  input.files = data.files;
  input.dispatchEvent(new Event('change'));
  const box = document.querySelector('.line input');
  box.value = line;
  document.querySelector('.line button.main').click();
  const started = performance.now();
  while (document.querySelector('progress:not([hidden])')) {
    if (performance.now() - started > hang_ms) return { hung: true };
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const text = (selector) => document.querySelector(selector)?.textContent ?? '';
  return { messages: text('.messages'), state: text('#state'), has_answer: !!document.querySelector('.answer')?.children.length };
};

async function wrongOf(test) {
  if (!page || ++asked > MOST) await open();
  errors = [];
  const shown = await page.evaluate(ask, { files: test.files, line: test.words.map(quote).join(' '), hang_ms: plan.hang_ms });
  const wrong = errors;
  if (shown.hung) wrong.push('no end');
  else if (!shown.has_answer && !shown.messages) wrong.push(`neither an answer nor a message: ${shown.state}`);
  if (/unreachable|RuntimeError|could not be answered/.test(shown.messages ?? '')) wrong.push(shown.messages);
  if (wrong.length) await open();
  return wrong;
}

for await (const line of createInterface({ input: process.stdin })) {
  let wrong;
  try {
    wrong = await wrongOf(JSON.parse(line));
  } catch (error) {
    wrong = [String(error).slice(0, 500)];
    page = undefined;
  }
  process.stdout.write(`${JSON.stringify(wrong)}\n`);
}
await browser.close();
