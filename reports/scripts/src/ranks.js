// The table of ranks: alike ranks together as the page has them, or every rank by itself; sorted, searched, filtered.
import { spans } from "./filter.js";
import { make } from "./page.js";

const PART = 100; // rows that are made at once
const FEW = 8; // ranks
const COLUMNS = [
  ["ranks", (rank) => rank.rank], ["state", (rank) => rank.state], ["host", (rank) => rank.host], ["exit", (rank) => rank.exit],
  ["last step", (rank) => rank.last_step], ["last collective", (rank) => rank.last_collective], ["why", (rank) => rank.why],
  ["last line", ({ last_line: line }) => line && (line.line ? `${line.source}:${line.line}` : line.source)],
];
const collator = new Intl.Collator("en", { numeric: true });

/** Rows in the order of column `by`; what is empty comes last either way. */
export function sorted(rows, by, down) {
  const order = (a, b) => (a.cells[by] && b.cells[by] ? collator.compare(a.cells[by], b.cells[by]) * (down ? -1 : 1) : (b.cells[by] ? 1 : 0) - (a.cells[by] ? 1 : 0));
  return by < 0 ? rows : [...rows].sort(order);
}

/** Whether a row holds what is searched for: one of the ranks, where ranks are named, else the words. */
export function holds(row, words) {
  const wanted = /^[\d\s,\u2013-]+$/.test(words) ? spans(words) : [];
  if (wanted.length) return spans(row.ranks).some(([a, b]) => wanted.some(([c, d]) => a <= d && c <= b));
  return row.cells.join(" ").toLowerCase().includes(words.trim().toLowerCase());
}

const value = (found) => (found === null || found === undefined ? "" : String(found));

class Ranks {
  constructor(place, table, list) {
    Object.assign(this, { table, list, by: -1, down: false, most: PART, every: false });
    this.body = table.tBodies[0];
    this.names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    this.groups = [...this.body.rows].map((row) => ({
      row, state: row.className.slice(2), count: Number(row.dataset.count), ranks: row.cells[0].querySelector("details")?.lastChild.textContent ?? row.cells[0].firstChild.textContent,
      cells: [...row.cells].map((cell) => cell.textContent.trim()),
    }));
    const states = [...new Set(this.groups.map((one) => one.state))];
    const field = { spellcheck: false, autocomplete: "off" };
    this.text = make("input", { type: "search", size: 22, placeholder: "rank, host, words", oninput: () => this.render(true), ...field });
    this.state = make("select", { onchange: () => this.render(true) }, make("option", { value: "" }, "all states"), ...states.map((one) => make("option", { value: one }, one)));
    this.each = make("input", { type: "checkbox", onchange: () => { this.every = this.each.checked; this.render(true); } });
    this.said = make("span", { className: "rank-count", role: "status" });
    this.more = make("button", { type: "button", hidden: true, onclick: () => { this.most += 10 * PART; this.render(); } }, "Show more");
    place.append(make(
      "p", { className: "tl-filters" }, make("label", {}, "search ", this.text), make("label", {}, "state ", this.state),
      ...(list.length > this.groups.length ? [make("label", {}, this.each, " one row per rank")] : []), this.said,
    ));
    table.after(this.more);
    [...table.tHead.rows[0].cells].forEach((cell, i) => cell.replaceChildren(make("button", { type: "button", className: "sort", onclick: () => this.sort(i) }, this.names[i])));
  }

  sort(i) {
    this.down = this.by === i && !this.down;
    this.by = i;
    [...this.table.tHead.rows[0].cells].forEach((cell, k) => {
      if (k === i) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.render(true);
  }

  /** One row for each rank, with the cells that the table has. */
  singles() {
    this.ones ??= this.list.map((rank) => ({
      state: value(rank.state), count: 1, ranks: value(rank.rank), cells: this.names.map((name) => value(COLUMNS.find(([one]) => one === name)[1](rank))),
    }));
    return this.ones;
  }

  render(anew) {
    if (anew) this.most = PART;
    const all = this.every ? this.singles() : this.groups;
    const state = this.state.value;
    const found = sorted(all.filter((one) => (!state || one.state === state) && (!this.text.value.trim() || holds(one, this.text.value))), this.by, this.down);
    this.body.replaceChildren(...found.slice(0, this.most).map((one) => one.row ?? (one.row = this.row(one))));
    this.more.hidden = found.length <= this.most;
    const count = (list) => list.reduce((sum, one) => sum + one.count, 0).toLocaleString("en");
    this.said.textContent = found.length === all.length ? "" : this.every ? `${count(found)} of ${count(all)} ranks` : `${found.length} of ${all.length} groups`;
  }

  row({ cells, state }) {
    const head = this.groups.find((one) => one.state === state)?.row.cells[1];
    return make("tr", { className: `r-${state}` }, ...cells.map((words, i) => {
      if (i === 1 && head) return head.cloneNode(true);
      const className = { host: "host", why: "why", "last line": "address" }[this.names[i]] ?? "";
      return make(i ? "td" : "th", { "data-label": this.names[i], className, ...(i ? {} : { scope: "row" }) }, words);
    }));
  }
}

export function ranks() {
  const [place, table] = ["rank-tools", "rank-groups"].map((id) => document.getElementById(id));
  if (!place || table.tBodies[0].rows.length < 2) return;
  const list = JSON.parse(document.getElementById("postmortem-incident").textContent).ranks;
  if (!Array.isArray(list) || list.length < FEW) return; // each is in sight
  new Ranks(place, table, list.filter((one) => one && typeof one === "object"));
}
