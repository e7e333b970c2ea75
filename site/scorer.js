// How the search orders what it finds (Sphinx's table of points): a phrase of pages.txt counts most, then titles; reasons and
// the list of changes come after what explains how something is done.
var Scorer = {
  score: (result) => {
    const [page, , , , score, , kind] = result;
    if (kind === "index") result[2] = ""; // a phrase leads to the page, which is then found once
    if (page.startsWith("docs/questions/")) return score + 6;
    return /^(docs\/decisions\/|CHANGELOG|CONTRIBUTING)/.test(page) ? score * 0.3 : score;
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
