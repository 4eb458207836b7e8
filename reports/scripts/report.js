// The page is complete without this script: it offers copying, and opens folded parts for printing.
(() => {
  "use strict";
  const text = JSON.parse(document.getElementById("postmortem-markdown").textContent).text;
  const said = document.getElementById("said");

  // The clipboard is closed to some browsers on file:// pages; a selected text area is the old way in.
  async function copy(words) {
    try {
      await navigator.clipboard.writeText(words);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = words;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  function offer(id, words) {
    const button = document.getElementById(id);
    button.hidden = false;
    button.addEventListener("click", async () => {
      said.textContent = (await copy(words())) ? "Copied" : "The browser does not allow copying";
      setTimeout(() => { said.textContent = ""; }, 2500);
    });
  }

  offer("copy-markdown", () => text);
  offer("copy-link", () => location.href);
  const print = document.getElementById("print");
  print.hidden = false;
  print.addEventListener("click", () => window.print());

  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...folded()]; for (const part of opened) part.open = true; });
  addEventListener("afterprint", () => { for (const part of opened) part.open = false; opened = []; });

  // A link to something inside a folded part opens it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
