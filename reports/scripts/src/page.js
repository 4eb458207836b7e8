// What the page offers besides the timeline: copying, printing with all parts open, links into folded parts.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// The clipboard is closed to some browsers on file:// pages; a selected text area is the old way in.
export async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    const area = make("textarea", { value: words });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function offer(id, act) {
  const button = document.getElementById(id);
  button.hidden = false;
  button.addEventListener("click", act);
}

export function page() {
  const text = JSON.parse(document.getElementById("postmortem-markdown").textContent).text;
  const said = document.getElementById("said");
  const copier = (words) => async () => {
    said.textContent = (await copy(words())) ? "Copied" : "The browser does not allow copying";
    setTimeout(() => { said.textContent = ""; }, 2500);
  };
  offer("copy-markdown", copier(() => text));
  offer("copy-link", copier(() => location.href));
  offer("print", () => window.print());

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open])")];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    opened = [];
  });
  addEventListener("hashchange", reveal);
  reveal();
}

/** A link to something inside a folded part opens it. */
export function reveal() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}
