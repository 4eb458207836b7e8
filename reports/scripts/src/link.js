// The state of the timeline <-> the hash of the page's address, so that a link shows a colleague the same window.
//
//     #t=12.5&z=30&e=417&s=fatal,error&f=kernel&r=0-3&q=timeout&y=12&b=rank
//
// t: seconds since the first event; z: length of the window; e: the chosen event; y: the first row; b: what a row of a large job is. What is as at first
// is left out.
// A hash without "=" is the name of a section and none of our business.
import { SEVERITIES } from "./data.js";
import { EVERYTHING } from "./filter.js";

const round = (value) => String(Number(value.toPrecision(9)));

export function write({ view, chosen, wanted, top, by }) {
  const parts = new URLSearchParams();
  if (view) {
    parts.set("t", round(view.start));
    parts.set("z", round(view.span));
  }
  if (chosen >= 0) parts.set("e", String(chosen));
  if (wanted.severities !== EVERYTHING.severities) parts.set("s", SEVERITIES.filter((_, i) => (wanted.severities >> i) & 1).join(",") || "none");
  if (wanted.family) parts.set("f", wanted.family);
  if (wanted.ranks) parts.set("r", wanted.ranks);
  if (wanted.text) parts.set("q", wanted.text);
  if (top !== null) parts.set("y", String(top));
  if (by) parts.set("b", by);
  return parts.size ? `#${parts}` : "";
}

export function read(hash) {
  if (!hash.includes("=")) return null;
  const parts = new URLSearchParams(hash.slice(1));
  const number = (name) => (parts.has(name) && Number.isFinite(Number(parts.get(name))) ? Number(parts.get(name)) : null);
  const [start, span] = [number("t"), number("z")];
  const said = parts.get("s");
  return {
    view: start !== null && span > 0 ? { start, span } : null,
    chosen: Number.isInteger(number("e")) ? number("e") : -1,
    by: ["host", "rank"].includes(parts.get("b")) ? parts.get("b") : "",
    top: number("y") === null ? null : Math.max(0, Math.trunc(number("y"))),
    wanted: {
      severities: said === null ? EVERYTHING.severities : said.split(",").reduce((bits, name) => bits | (SEVERITIES.includes(name) ? 1 << SEVERITIES.indexOf(name) : 0), 0),
      family: parts.get("f") ?? "",
      ranks: (parts.get("r") ?? "").slice(0, 200),
      text: (parts.get("q") ?? "").slice(0, 200),
    },
  };
}
