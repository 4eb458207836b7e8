// What the reader wants to see -> one byte for each event, and the rows that stay.

export const EVERYTHING = { severities: 15, family: "", ranks: "", text: "" };

/** "0-3, 7" -> a test for ranks; null where nothing can be read from it, which means all. */
export function ranks(words) {
  const spans = [];
  for (const part of words.split(/[,\s]+/).filter(Boolean)) {
    const found = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(part);
    if (found) spans.push([Number(found[1]), Number(found[2] ?? found[1])]);
  }
  return spans.length ? (rank) => rank !== null && spans.some(([first, last]) => first <= rank && rank <= last) : null;
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

/** Lanes that hold an event which passed the filter. */
export function lanesWith(events, mask) {
  const keep = new Uint8Array(events.lanes.length);
  for (let i = 0; i < events.count; i++) if (mask[i]) keep[events.lane[i]] = 1;
  return keep;
}
