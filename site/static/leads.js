// The search knows titles alone; below each, how its page begins (LEADS, which build.py writes).
window.addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  const root = new URL(document.documentElement.dataset.content_root, location.href).href;
  const describe = () => {
    for (const link of results.querySelectorAll("li > a:only-child")) {
      const text = LEADS[link.href.slice(root.length).split(/[?#]/)[0].replace(/\.html$/, "")];
      if (!text) continue;
      const lead = link.parentElement.appendChild(document.createElement("p"));
      lead.className = "lead";
      lead.textContent = text;
    }
  };
  new MutationObserver(describe).observe(results, { childList: true, subtree: true });
});
