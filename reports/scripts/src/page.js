// What the page offers besides the timeline: copying, light and dark, printing, links into folded parts, fewer tab stops.

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

/** Copy and say so. */
async function copied(words) {
  const said = document.getElementById("said");
  const before = said.dataset.found ?? ""; // what the search says
  said.textContent = (await copy(words)) ? "Copied" : "The browser does not allow copying";
  setTimeout(() => { said.textContent = before; }, 2500);
}

function offer(id, act) {
  const button = document.getElementById(id);
  button.hidden = false;
  button.addEventListener("click", act);
  return button;
}

/** One tab stop for many links or buttons: arrow keys move among them, Tab leaves them. */
export function rove(root, selector) {
  if (!root) return;
  const all = () => [...root.querySelectorAll(selector)].filter((one) => !one.hidden && one.checkVisibility?.() !== false);
  const stop = (chosen) => { for (const one of root.querySelectorAll(selector)) one.tabIndex = one === chosen ? 0 : -1; };
  stop(all()[0]);
  root.addEventListener("focusin", (event) => event.target.matches(selector) && stop(event.target));
  root.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const list = all();
    const at = list.indexOf(event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey || !(by || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    list[by ? (at + by + list.length) % list.length : event.key === "Home" ? 0 : list.length - 1].focus();
  });
}

const THEMES = ["auto", "light", "dark"];

function themes() {
  const root = document.documentElement;
  const button = offer("theme-next", () => {
    const name = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
    window.postmortemTheme(name);
    try {
      localStorage.setItem("postmortem-theme", name);
    } catch { /* then only this page keeps it */ }
    tell();
    dispatchEvent(new Event("postmortem-theme"));
  });
  const tell = () => { button.textContent = `Theme: ${root.dataset.theme}`; };
  tell();
}

export function page() {
  document.documentElement.classList.add("js");
  const text = JSON.parse(document.getElementById("postmortem-markdown").textContent);
  offer("copy-chat", () => copied(text.chat));
  offer("copy-ticket", () => copied(text.text));
  offer("copy-link", () => copied(location.href));
  offer("print", () => window.print());
  themes();

  for (const head of document.querySelectorAll("figcaption")) {
    const address = head.querySelector(".address");
    if (address) address.after(make("button", { type: "button", className: "copy", title: "Copy this address", onclick: () => copied(address.textContent) }, "copy"));
  }
  for (const command of document.querySelectorAll("pre.command")) {
    const words = command.textContent.trim();
    command.append(" ", make("button", { type: "button", className: "copy", title: "Copy this command", onclick: () => copied(words) }, "copy"));
  }
  addEventListener("click", (event) => { // commands, and addresses that lead nowhere: in tables, and below the timeline
    const address = event.target.closest(".run, .address:not(a, figcaption *, th, :empty)");
    if (address && !event.target.closest("a, button") && !String(getSelection())) copied(address.textContent);
  });
  rove(document.getElementById("tools"), "button");
  rove(document.getElementById("verdict"), "a, summary, button");
  rove(document.querySelector("nav"), "a");
  rove(document.getElementById("chain"), "a, summary");

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open], .long)")];
    for (const part of opened) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    opened = [];
  });
  const follow = () => reveal(location.hash.length > 1 && document.getElementById(location.hash.slice(1)));
  addEventListener("hashchange", follow);
  follow();
}

/** Open the folded parts around an element, and show it. */
export function reveal(target, block = "start") {
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView({ block });
}
