// How the search orders what it finds (Sphinx's table of points): a phrase of pages.txt counts most, then titles; reasons and
// the list of changes come after what explains how something is done.
var Scorer = {
  score: ([page, , , , score]) =>
    page.startsWith("docs/questions/") ? score + 6 : /^(docs\/decisions\/|CHANGELOG|CONTRIBUTING)/.test(page) ? score * 0.3 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
