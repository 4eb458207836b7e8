// Search over the whole page: the text of every part, folded or not, and the lines of the timeline.
import { reveal } from "./page.js";

const MOST = 2000; // matches that are marked

/** Every place where `words` stands in the text below `root`, letters of either case. */
export function matches(root, words, most = MOST) {
  const needle = words.toLowerCase();
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && found.length < most; node = walker.nextNode()) {
    const lower = node.data.toLowerCase();
    if (lower.length !== node.data.length || node.parentElement.closest("dialog, [hidden], .picture, button")) continue;
    for (let at = lower.indexOf(needle); at >= 0 && found.length < most; at = lower.indexOf(needle, at + needle.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + needle.length);
      found.push(range);
    }
  }
  return found;
}

const paint = (name, ranges) => globalThis.CSS?.highlights?.set(name, new Highlight(...ranges));

export class Finder {
  constructor() {
    const by = (id) => document.getElementById(id);
    Object.assign(this, { field: by("find"), said: by("said"), before: by("find-before"), next: by("find-next"), more: by("find-lines"), found: [], at: -1, timeline: null });
    by("search").hidden = false;
    this.field.addEventListener("input", () => {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.look(), 150);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.clear();
      else return;
      event.preventDefault();
    });
    this.before.addEventListener("click", () => this.go(-1));
    this.next.addEventListener("click", () => this.go(1));
    this.more.addEventListener("click", () => this.timeline.seek(this.words));
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, canvas")) return;
      event.preventDefault();
      this.field.focus();
    });
  }

  clear() {
    this.field.value = "";
    this.look();
  }

  look() {
    clearTimeout(this.later);
    const words = this.field.value.trim();
    this.words = words;
    this.found = words ? matches(document.querySelector("main"), words) : [];
    this.at = -1;
    this.lines = words && this.timeline ? this.timeline.counted(words) : 0;
    this.before.hidden = this.next.hidden = !this.found.length;
    this.show();
  }

  show() {
    const { found, at, words, lines } = this;
    const most = found.length === MOST ? "+" : "";
    const place = at >= 0 ? `${at + 1} of ${found.length}${most}` : `${found.length}${most} found`;
    this.said.textContent = this.said.dataset.found = words ? place : "";
    this.more.hidden = !lines;
    this.more.textContent = `${lines.toLocaleString("en")} in the timeline`;
    paint("found", found);
    paint("found-now", at >= 0 ? [found[at]] : []);
  }

  go(by) {
    if (this.words !== this.field.value.trim()) this.look();
    const { found } = this;
    if (!found.length) return;
    this.at = this.at < 0 ? (by > 0 ? 0 : found.length - 1) : (this.at + by + found.length) % found.length;
    reveal(found[this.at].startContainer.parentElement, "center");
    this.show();
  }
}
