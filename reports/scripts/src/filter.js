// What the reader wants to see -> one byte for each event, and the rows that stay.

export const EVERYTHING = { severities: 15, family: "", ranks: "", text: "" };

/** "0-3, 7" -> [[0, 3], [7, 7]]; what cannot be read as ranks is left out. */
export function spans(words) {
  const found = words.split(/[,\s]+/).map((part) => /^(\d{1,9})(?:[-\u2013](\d{1,9}))?$/.exec(part)).filter(Boolean);
  return found.map(([, first, last]) => [Number(first), Number(last ?? first)]);
}

/** A test for ranks; null where nothing can be read from the words, which means all. */
export function ranks(words) {
  const found = spans(words);
  return found.length ? (rank) => rank !== null && found.some(([first, last]) => first <= rank && rank <= last) : null;
}

/** Whether the filter takes rows away, not only marks: severities alone do not. */
export const narrows = (wanted) => Boolean(wanted.family || wanted.text || ranks(wanted.ranks));

/** Fill `mask` with 1 for events to show; return how many those are. */
export function filter(events, wanted, mask) {
  const family = wanted.family ? events.head.families.indexOf(wanted.family) : -1;
  const chosen = ranks(wanted.ranks);
  const needle = wanted.text.toLowerCase();
  const of = (list, read) => Uint8Array.from(list, (one) => (read(one).toLowerCase().includes(needle) ? 1 : 0));
  const lanes = chosen && events.lanes.map((lane) => chosen(lane.rank));
  const families = wanted.family ? Uint8Array.from(events.head.sources, ([, one]) => (one === family ? 1 : 0)) : null;
  const patterns = needle && of(events.head.patterns, (one) => one);
  const paths = needle && of(events.head.sources, ([path]) => path);
  let count = 0;
  for (let i = 0; i < events.count; i++) {
    let shown = (wanted.severities >> events.severity[i]) & 1;
    if (shown && lanes) shown = lanes[events.lane[i]] ? 1 : 0;
    if (shown && families) shown = families[events.source[i]];
    if (shown && needle) {
      shown = patterns[events.head.shapes[events.shape[i]][2]] || paths[events.source[i]] || (events.text(i).toLowerCase().includes(needle) ? 1 : 0);
    }
    mask[i] = shown;
    count += shown;
  }
  return count;
}

/**
 * The rows of the picture. Lanes lie host by host, a host's own lane first, so a row is a span of lanes: a folded host is
 * all of its lanes, an open one a row for itself and one for each rank.
 */
export function rows(events, open, keep) {
  const out = [];
  for (let from = 0; from < events.lanes.length; ) {
    const host = events.lanes[from].host;
    let to = from;
    while (to < events.lanes.length && events.lanes[to].host === host) to++;
    const kept = [];
    for (let lane = from; lane < to; lane++) if (!keep || keep[lane]) kept.push(lane);
    const own = events.lanes[from].rank === null;
    if (kept.length) {
      const unfolded = open.has(host);
      const lonely = to - from === 1;
      if (lonely) out.push({ host, from, to, head: own, unfolded: false, lonely });
      else {
        out.push({ host, from, to: unfolded ? from + (own ? 1 : 0) : to, head: true, unfolded, lonely, last: to });
        if (unfolded) for (const lane of kept) if (events.lanes[lane].rank !== null) out.push({ host, from: lane, to: lane + 1, head: false, unfolded, lonely });
      }
    }
    from = to;
  }
  return out;
}

/**
 * The rows of a job of many lanes: `pins`, the open hosts with their ranks (of large ones those to blame, and the chosen
 * one), and below them all hosts or all ranks, a few pixels each.
 */
export function heat(events, open, keep, single, chosen) {
  const { lanes } = events;
  const size = new Map();
  for (const lane of lanes) size.set(lane.host, (size.get(lane.host) ?? 0) + 1);
  const told = (row) => row.head || size.get(row.host) <= 17 || lanes[row.from].state === "cause" || row.from === chosen;
  const pins = rows(events, open, keep).filter((row) => open.has(row.host) && told(row)).slice(0, 28);
  const each = [];
  if (single) lanes.forEach((lane, i) => { if (!keep || keep[i]) each.push({ host: lane.host, from: i, to: i + 1, head: lane.rank === null, unfolded: false, lonely: true }); });
  return { pins, rows: single ? each : rows(events, new Set(), keep) };
}

/** Lanes that hold an event which passed the filter. */
export function lanesWith(events, mask) {
  const keep = new Uint8Array(events.lanes.length);
  for (let i = 0; i < events.count; i++) if (mask[i]) keep[events.lane[i]] = 1;
  return keep;
}
