// The buttons, fields, the details of the chosen event, the table and the list of keys around the canvas.
// Whatever a log said goes in as text, never as markup.
import { BROAD, SEVERITIES } from "./data.js";
import { make, rove } from "./page.js";
import { clock, day, seconds, stamp } from "./scale.js";

export const KEYS = [
  ["\u2190 \u2192", "event before, event after, in this lane"],
  ["\u2191 \u2193", "lane above, lane below"],
  ["+ \u2212", "zoom in, zoom out"],
  ["Shift \u2190 \u2192", "move the window"],
  ["Home End", "first event, last event of the lane"],
  ["f c t", "first anomaly, culprit, teardown"],
  ["0", "the whole job"],
  ["Space", "fold or unfold a host; pin it, if there are many"],
  ["r", "a row for each host, or for each rank, if there are many"],
  ["[ ]", "lower rows, higher rows, if there are many"],
  ["Enter", "go to the evidence of the chosen event"],
  ["/", "filter by text"],
  ["Esc", "choose nothing, clear the filter"],
  ["?", "these keys"],
];
const TABLE = 200;
const FEW = 8; // lanes

const button = (words, title, act) => make("button", { type: "button", title, onclick: act }, words);

/** Build everything; `on` holds what the timeline does. */
export function controls(head, on) {
  const parts = {};
  const jump = (name, words, key) => {
    if (head.jumps[name] === null) return [];
    return [button(words, `${words} (${key})`, () => on.jump(name))];
  };
  const moves = make(
    "p", { className: "tl-moves", role: "toolbar", "aria-label": "Window of the timeline" },
    ...jump("first", "First anomaly", "f"), ...jump("culprit", "Culprit", "c"), ...jump("teardown", "Teardown", "t"),
    button("Whole job", "Whole job (0)", on.whole), button("+", "Zoom in (+)", () => on.zoom(0.5)), button("\u2212", "Zoom out (\u2212)", () => on.zoom(2)),
    button("Keys", "Keys (?)", on.help),
  );
  moves.children[moves.children.length - 3].setAttribute("aria-label", "Zoom in");
  moves.children[moves.children.length - 2].setAttribute("aria-label", "Zoom out");
  parts.by = button("", "What a row is (r)", on.by);
  parts.by.hidden = true;
  moves.append(parts.by);
  rove(moves, "button");
  parts.boxes = SEVERITIES.map((name, i) => make("input", { type: "checkbox", checked: true, onchange: on.filter, value: String(i) }));
  const names = ["other", "warning", "error", "fatal"];
  const severities = make("span", { className: "tl-severities", role: "group", "aria-label": "Severity" });
  rove(severities, "input");
  for (const i of [3, 2, 1, 0]) severities.append(make("label", {}, parts.boxes[i], ` ${names[i]}`));
  parts.family = make("select", { onchange: on.filter }, make("option", { value: "" }, "all kinds"), ...[...head.families].sort().map((one) => make("option", { value: one }, one)));
  parts.ranks = make("input", { type: "text", size: 8, placeholder: "0\u20133, 7", oninput: on.filter, spellcheck: false, autocomplete: "off" });
  parts.text = make("input", { type: "search", size: 16, placeholder: "in the lines", oninput: on.filter, spellcheck: false, autocomplete: "off" });
  parts.count = make("span", { className: "tl-count", role: "status" });
  const filters = make(
    "p", { className: "tl-filters" }, severities,
    make("label", {}, "log ", parts.family), make("label", {}, "ranks ", parts.ranks), make("label", {}, "text ", parts.text), parts.count,
  );
  parts.canvas = make("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "timeline", "aria-describedby": "tl-hint" });
  parts.canvas.setAttribute("aria-label", "Timeline of all ranks");
  parts.tip = make("div", { className: "tl-tip", hidden: true });
  parts.stage = make("div", { className: "tl-stage" }, parts.canvas, parts.tip);
  parts.window = make("p", { className: "quiet tl-window" });
  parts.hint = make("p", { className: "quiet", id: "tl-hint" }, "Drag to move, Ctrl and wheel to zoom, click a mark for its line. Keyboard: arrows, + and \u2212; ? for all keys.");
  parts.chosen = make("div", { className: "tl-chosen", "aria-live": "polite" });
  parts.body = make("tbody");
  parts.told = make("p", { className: "quiet" });
  parts.table = make(
    "details", { className: "tl-table", ontoggle: on.table }, make("summary", {}, "Events in this window as a table"), parts.told,
    make("table", { className: "cards" }, make("thead", {}, make("tr", {}, ...["time (UTC)", "who", "severity", "line", "where"].map((name) => make("th", { scope: "col" }, name)))), parts.body),
  );
  parts.help = make(
    "dialog", { className: "tl-help", "aria-label": "Keys of the timeline" }, make("h3", {}, "Keys of the timeline"),
    make("dl", {}, ...KEYS.map(([keys, what]) => make("div", {}, make("dt", {}, keys), make("dd", {}, what)))),
    make("form", { method: "dialog" }, make("button", {}, "Close")),
  );
  // few lanes need no tools: these fold away, and open with the first key or filter
  parts.tools = make("details", { className: "tl-tools", open: head.lanes.length >= FEW }, make("summary", {}, "Zoom and filter"), moves, filters, parts.hint);
  parts.root = make("div", { className: "tl" }, parts.tools, parts.stage, parts.window, parts.chosen, parts.table, parts.help);
  return parts;
}

const moment = (events, i) => stamp(events.head.base + events.time[i], events.severity[i] ? events.sigma[i] : 0);

/** "12:54:37.201 UTC ± 3 ms", with the distance to the decisive line. */
export function when(events, i) {
  const { zero, slack } = events.head;
  const sigma = events.sigma[i] >= 0.0005 && !events.broad(i) ? ` \u00b1 ${seconds(events.sigma[i])}` : "";
  const offset = zero === null || slack >= BROAD || events.broad(i) || Math.abs(events.time[i] - zero) < 1e-4 ? "" : `, ${seconds(events.time[i] - zero)} ${events.time[i] < zero ? "before" : "after"} the decisive line`;
  return `${moment(events, i)} UTC${sigma}${offset}`;
}

const word = (severity) => (severity ? SEVERITIES[severity] : "line");

/** What the pointer is over. */
export function tip(parts, events, i, more) {
  parts.tip.replaceChildren(
    make("strong", {}, `${events.who(i)}, ${word(events.severity[i])}`), make("span", {}, when(events, i)),
    make("code", {}, events.text(i).slice(0, 240)), make("span", { className: "address" }, events.address(i)),
    ...(more ? [make("span", {}, `and ${more} more here: zoom in`)] : []),
  );
}

/** The chosen event, below the canvas: the whole line and its address, to copy or to follow. */
export function chosen(parts, events, i) {
  if (i < 0) return parts.chosen.replaceChildren();
  const proof = new Map(events.head.proofs).get(i);
  const linked = proof !== undefined && document.getElementById(`e${proof}`);
  const address = make(linked ? "a" : "span", { className: "address" }, events.address(i));
  if (linked) address.href = `#e${proof}`;
  return parts.chosen.replaceChildren(
    make("p", { className: "tl-facts" }, make("strong", {}, `${events.who(i)}, ${word(events.severity[i])}`), make("span", {}, when(events, i)), make("span", { className: "pattern" }, events.pattern(i) || events.head.families[events.family(i)])),
    make("p", { className: "cite" }, address, make("code", {}, events.text(i))),
  );
}

/** The table for those who cannot see the canvas: what the window holds, worst first if it is too much. */
export function table(parts, events, { view, mask }) {
  const found = [];
  for (let lane = 0; lane < events.lanes.length; lane++) {
    for (let i = events.from(lane, view.start); i < events.starts[lane + 1] && events.time[i] <= view.start + view.span; i++) if (mask[i]) found.push(i);
  }
  const kept = found.length > TABLE ? found.sort((a, b) => events.severity[b] - events.severity[a] || events.time[a] - events.time[b]).slice(0, TABLE) : found;
  kept.sort((a, b) => events.time[a] - events.time[b] || a - b);
  const cell = (label, words, className = "") => make("td", { "data-label": label, className }, words);
  parts.body.replaceChildren(...kept.map((i) => make(
    "tr", {}, cell("time (UTC)", moment(events, i), "moment"), cell("who", events.who(i), "who"), cell("severity", word(events.severity[i])),
    make("td", { "data-label": "line" }, make("code", {}, events.text(i))), cell("where", events.address(i), "address"),
  )));
  const { base } = events.head;
  parts.told.textContent = `${day(base + view.start)} ${clock(base + view.start)} to ${clock(base + view.start + view.span)} UTC: ${
    found.length > kept.length ? `the ${kept.length} worst of ${found.length.toLocaleString("en")} events` : `${kept.length.toLocaleString("en")} events`}`;
}

/** What of the job the window shows, and how much lies before and behind it. */
export function told(parts, events, { view, whole }) {
  const { base } = events.head;
  let [before, behind] = [0, 0];
  for (let lane = 0; lane < events.lanes.length; lane++) {
    const [first, end] = [events.starts[lane], events.starts[lane + 1]];
    before += events.from(lane, view.start) - first;
    behind += end - events.from(lane, view.start + view.span);
  }
  const count = (n) => n.toLocaleString("en");
  const [from, to] = [Math.max(view.start, whole[0]), Math.min(view.start + view.span, whole[1])];
  parts.window.textContent = before + behind === 0 ? "" : `${clock(base + from, 0)} to ${clock(base + to, 0)} UTC, ${seconds(to - from)} of ${seconds(whole[1] - whole[0])}: ${
    count(events.count - before - behind)} events, ${count(before)} before and ${count(behind)} after.`;
}
