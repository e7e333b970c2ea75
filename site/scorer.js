// How the search orders what it finds (Sphinx's table of points): a phrase of pages.txt counts most, then titles, in the singular or the
// plural; reasons, how tessera is built, its speed and the list of changes come after what explains how something is done.

/** The words of a text without the endings of plurals. */
const stems = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_%.]+/u).filter(Boolean).map((word) => word.replace(/(?<=..[^s])s$/, ""));
const asked = stems(new URLSearchParams(window.location.search).get("q") ?? "");

/** Points for a title that consists of the words of the query, or contains them. */
function ofTitle(title) {
  const words = stems(title);
  if (!asked.length || !asked.every((word) => words.includes(word))) return 0;
  return words.length === asked.length ? 40 : 8;
}

var Scorer = {
  score: (result) => {
    const [page, title, anchor, , score, , kind] = result;
    if (kind === "index") {
      result[2] = ""; // a phrase leads to the page, which is then found once
      return score;
    }
    if (/^(docs\/(decisions|upstream|architecture|benchmarks)|CHANGELOG|CONTRIBUTING)/.test(page)) return score * 0.3;
    return score + (page.startsWith("docs/questions/") ? 6 : 0) + (anchor ? 0 : ofTitle(title));
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
