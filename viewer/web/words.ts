// A command line as text: words, quoted where they have blanks or quotes.

export const quote = (word: string): string => (/^[^\s'"]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

export function split(line: string): string[] {
  const words: string[] = [];
  for (const [whole] of line.matchAll(/(?:[^\s'"]+|'[^']*'?|"[^"]*"?)+/g))
    words.push(whole.replace(/'([^']*)'?|"([^"]*)"?/g, (_, single, double) => single ?? double ?? ''));
  return words;
}
