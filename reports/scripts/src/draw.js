// Rows, window, filter -> pixels. Knows no input and keeps no state but what it has measured of the page.
//
// The shape says how bad, the colour whose; the same marks as in the static picture. Where a lane has more events than the
// window has pixels, one mark stands for its neighbours, the worst on top.
import { BROAD } from "./data.js";
import { shade } from "./heat.js";
import { clock, day, seconds, stamp, tick, ticks } from "./scale.js";

export const GLYPHS = { cause: "\u25c6", victim: "\u25bd", silent: "\u25cc", healthy: "\u25cf", unknown: "\u00b7" };
export const STRIP = 34; // height of the overview
export const HEAD = STRIP + 26; // where the lanes begin
export const FOOT = 22;
export const TALL = 20; // a pinned lane
const RIGHT = 12;
const PLAIN = 128; // bit of a pixel that holds an ordinary line
const COLOURS = ["card", "ink", "quiet", "line", "code", "link", "cause", "cause-soft", "victim", "silent", "healthy"];

/** The colours of the style sheet, dark or light as it is now. */
export function palette(element) {
  const style = getComputedStyle(element);
  const found = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim() || "#888"]));
  return { ...found, unknown: found.quiet, "": found.quiet };
}

/** A colour as a pixel of an image. */
function pixel(colour, alpha) {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const { data } = context.getImageData(0, 0, 1, 1);
  data[3] = alpha;
  return new Uint32Array(data.buffer)[0];
}

/** The same pixel, at a sixth of its weight. */
const paler = (tone) => ((tone & 0xffffff) | (Math.round((tone >>> 24) / 6) << 24)) >>> 0;

export const left = (width) => (width < 560 ? 92 : 168);

/** Pixel -> share of the window, and back. */
export const plot = (width) => ({ from: left(width), to: width - RIGHT, wide: Math.max(width - RIGHT - left(width), 10) });

export class Picture {
  constructor(canvas, events) {
    Object.assign(this, { canvas, events, context: canvas.getContext("2d"), strip: null, width: 0, height: 0 });
    this.hatch = null;
    this.image = null;
  }

  /** Fit the bitmap to the element. */
  resize(width, height) {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    Object.assign(this, { width, height, ratio, strip: null });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.worst = new Uint8Array(Math.ceil(width) + 2);
  }

  draw(state) {
    const { context } = this;
    this.colours ??= palette(this.canvas);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.colours.card;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.axes(state);
    this.lanes(state);
    this.overview(state);
    this.cursors(state);
  }

  x(view, time) {
    const area = plot(this.width);
    return area.from + ((time - view.start) / view.span) * area.wide;
  }

  // ── overview: all lanes as pixels, the worst in each ─────────────────────────────────────────────────────────────

  overview({ view, whole, mask }) {
    const { context, colours, events } = this;
    const area = plot(this.width);
    this.strip ??= this.grid(whole, mask, Math.round(area.wide), Math.max(1, Math.min(events.lanes.length, STRIP - 10)));
    context.fillStyle = colours.code;
    context.fillRect(area.from, 4, area.wide, STRIP - 10);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.strip, area.from, 4, area.wide, STRIP - 10);
    const length = Math.max(whole[1] - whole[0], 1e-6);
    const place = (time) => area.from + Math.min(Math.max((time - whole[0]) / length, 0), 1) * area.wide;
    const [from, to] = [place(view.start), place(view.start + view.span)];
    context.strokeStyle = colours.link;
    context.lineWidth = 1.5;
    context.strokeRect(from - 2, 2, Math.max(to - from, 3) + 4, STRIP - 6);
    this.label(`${area.from < 120 ? "all" : "whole job"}, ${seconds(length)}`, 4, STRIP / 2 - 1, colours.quiet, area.from - 12);
  }

  tones() {
    const { colours } = this;
    this.pixels ??= [[colours.quiet, 115], [colours.victim, 255], [colours.cause, 205], [colours.cause, 255]].map(([colour, alpha]) => pixel(colour, alpha));
    return this.pixels;
  }

  /** All lanes in a few rows of pixels. */
  grid(whole, mask, wide, high) {
    const { events } = this;
    const edge = (y) => Math.round((y * events.lanes.length) / high);
    const rows = Array.from({ length: high }, (_, y) => ({ from: edge(y), to: edge(y + 1) }));
    return shade(events, mask, rows, { start: whole[0], span: whole[1] - whole[0] }, wide, this.tones(), paler);
  }

  // ── axes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

  axes({ view, zero, base }) {
    const { context, colours, height } = this;
    const area = plot(this.width);
    const most = Math.max(2, Math.min(9, Math.floor(area.wide / 84)));
    context.textAlign = "center";
    const inside = (x) => x > area.from + 24 && x < area.to - 24;
    const [moments, wide] = ticks({ start: base + view.start, span: view.span }, 0, most);
    for (const moment of moments) {
      const x = this.x(view, moment - base);
      context.fillStyle = colours.line;
      context.fillRect(Math.round(x), HEAD, 1, height - HEAD - FOOT);
      if (inside(x)) this.label(tick(moment, wide), x, height - FOOT / 2, colours.quiet);
    }
    if (zero !== null) {
      for (const moment of ticks(view, zero, most)[0]) {
        const offset = moment - zero;
        const x = this.x(view, moment);
        if (inside(x) && Math.abs(offset) > wide / 2) this.label((offset > 0 ? "+" : "\u2212") + seconds(offset), x, HEAD - 12, colours.quiet);
      }
    }
    context.textAlign = "left";
    const narrow = area.from < 120;
    const [first, last] = [view.start, view.start + view.span].map((moment) => day(base + moment).slice(narrow ? -5 : 0));
    this.label(first === last ? "UTC" : `UTC ${first}`, 4, height - FOOT / 2, colours.quiet, area.from - 8);
    if (zero !== null) this.label(narrow ? "offset" : "from the decisive line", 4, HEAD - 12, colours.quiet, area.from - 8);
  }

  label(words, x, y, colour, most) {
    this.context.fillStyle = colour;
    if (!most) return this.context.fillText(words, x, y);
    let shown = words;
    while (shown && this.context.measureText(shown === words ? words : `${shown}\u2026`).width > most) shown = shown.slice(0, -1);
    return this.context.fillText(shown === words ? words : `${shown}\u2026`, x, y);
  }

  // ── lanes ────────────────────────────────────────────────────────────────────────────────────────────────────────

  lanes(state) {
    const { context } = this;
    const area = plot(this.width);
    const { rows, pins, body } = state;
    for (let place = 0; place < pins; place++) this.row(state, rows[place], HEAD + place * TALL, TALL, area, place === state.at);
    context.save();
    context.beginPath();
    context.rect(0, body, this.width, this.height - body - FOOT);
    context.clip();
    const shown = Math.ceil((this.height - body - FOOT) / state.step);
    const part = rows.slice(pins + state.top, pins + state.top + shown);
    if (state.dense) this.heat(state, part, area);
    else part.forEach((row, k) => this.row(state, row, body + k * state.step, state.step, area, pins + state.top + k === state.at));
    context.restore();
    const all = rows.length - pins;
    if (all > shown) { // how far down this is, for lanes scroll without a bar of their own
      const high = this.height - body - FOOT;
      context.fillStyle = this.colours.quiet;
      context.fillRect(this.width - 5, body + (state.top / all) * high, 3, (shown / all) * high);
    }
  }

  /** Rows of a few pixels: an image, and as many names as there is room for. */
  heat(state, part, area) {
    const { context, colours, events } = this;
    const { view, mask, step, body, pins, top, at, chosen, decisive } = state;
    const wide = Math.round(area.wide);
    this.image = shade(events, mask, part, view, wide, this.tones(), paler, this.image);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, area.from, body, wide, part.length * step);
    const name = (row) => (row.head || !row.lonely ? events.host(row) : `rank ${events.lanes[row.from].rank}`);
    const blamed = (row) => { for (let lane = row.from; lane < row.to; lane++) if (events.lanes[lane].state === "cause") return true; return false; };
    const named = part.map((row, k) => ({ row, k, worth: pins + top + k === at ? 3 : blamed(row) ? 2 : 1 })).sort((a, b) => b.worth - a.worth || a.k - b.k);
    const taken = [];
    const begins = (k) => k === 0 || k === part.length - 1 || part[k].host !== part[k - 1].host; // not every eighth rank
    for (const { row, k, worth } of named) {
      const y = Math.min(Math.max(body + (k + 0.5) * step, body + 6), body + part.length * step - 6);
      if (worth > 1) {
        context.strokeStyle = worth === 3 ? colours.link : colours.cause;
        context.lineWidth = 1;
        context.strokeRect(area.from - 5, body + k * step - 0.5, wide + 8, step + 1);
      }
      if ((worth === 1 && !begins(k)) || taken.some((other) => Math.abs(other - y) < 13)) continue;
      taken.push(y);
      this.label(`${worth === 2 ? `${GLYPHS.cause} ` : ""}${name(row)}`, worth === 2 ? 4 : 16, y, worth === 3 ? colours.link : worth === 2 ? colours.cause : colours.quiet, area.from - (worth === 2 ? 12 : 24));
    }
    for (const i of [decisive, chosen]) { // two events that must not drown in pixels
      const k = i < 0 ? -1 : part.findIndex((row) => row.from <= events.lane[i] && events.lane[i] < row.to);
      const x = i < 0 ? 0 : this.x(view, events.time[i]);
      if (k < 0 || x < area.from || x > area.to || events.broad(i)) continue;
      if (i === decisive) this.mark(4, x, body + (k + 0.5) * step, colours.cause, 0.6);
      if (i === chosen) this.ring(x, body + (k + 0.5) * step, 7);
    }
  }

  row(state, row, top, step, area, current) {
    const { context, colours, events } = this;
    const { view } = state;
    const middle = top + step / 2;
    const lane = events.lanes[row.from];
    const owner = row.head ? "" : lane.state;
    if (owner === "cause") {
      context.fillStyle = colours["cause-soft"];
      context.fillRect(0, top + 1, this.width, step - 2);
    }
    if (lane && lane.refused) {
      context.fillStyle = this.hatched();
      context.fillRect(area.from, top + 3, area.wide, step - 6);
    }
    if (current) {
      context.strokeStyle = colours.link;
      context.lineWidth = 1.5;
      context.strokeRect(1, top + 1, this.width - 2, step - 2);
    }
    this.name(row, lane, middle, area);
    context.save();
    context.beginPath();
    context.rect(area.from - 7, top, area.wide + 14, step);
    context.clip();
    if (!row.head) this.life(view, row, middle, area);
    for (let one = row.from; one < row.to; one++) this.bands(state, one, middle, step);
    for (let one = row.from; one < row.to; one++) this.intervals(state, one, middle, step);
    this.marks(state, row, middle, step, area);
    context.restore();
  }

  name(row, lane, middle, area) {
    const { context, colours, events } = this;
    const host = events.host(row);
    if (row.head) {
      context.font = "600 11px system-ui, sans-serif";
      this.label(`${row.lonely ? "" : row.unfolded ? "\u25be " : "\u25b8 "}${host}`, 4, middle, colours.ink, area.from - 12);
      context.font = "11px system-ui, sans-serif";
      return;
    }
    const tone = lane.state === "cause" || lane.state === "silent" ? colours[lane.state] : colours.ink;
    const place = row.lonely && events.head.hosts[row.host] ? ` on ${host}` : "";
    this.label(`${GLYPHS[lane.state] ?? GLYPHS.unknown} ${lane.rank === null ? host : `rank ${lane.rank}`}${place}`, 16, middle, tone, area.from - 24);
  }

  /** From the first line of a rank to its last; dots where it says nothing any more. */
  life(view, row, middle, area) {
    const { context, colours, events } = this;
    const [first, last] = [events.starts[row.from], events.starts[row.to] - 1];
    if (last < first) return;
    const x = (time) => Math.min(Math.max(this.x(view, time), area.from), area.to);
    context.fillStyle = colours.line;
    context.fillRect(x(events.time[first]), middle - 1, x(events.time[last]) - x(events.time[first]), 2);
    for (let dot = Math.max(x(events.time[last]), area.from) + 5; dot < area.to; dot += 5) context.fillRect(dot, middle - 0.5, 1, 1);
  }

  /** Where an event may really lie: one standard deviation on each side. */
  bands({ view, mask }, lane, middle, step) {
    const { context, colours, events } = this;
    const pixel = view.span / plot(this.width).wide;
    const end = events.starts[lane + 1];
    const reach = Math.min(step / 2 - 3, 6);
    context.fillStyle = colours[events.lanes[lane].state] ?? colours.quiet;
    context.globalAlpha = 0.16;
    let [open, close] = [0, -1];
    const flush = () => close > open && context.fillRect(open, middle - reach, close - open, 2 * reach);
    for (let i = events.from(lane, view.start - 120); i < end && events.time[i] < view.start + view.span + 120; i++) {
      if (!mask[i] || !events.severity[i] || events.sigma[i] < 3 * pixel || events.broad(i)) continue;
      const [from, to] = [this.x(view, events.time[i] - events.sigma[i]), this.x(view, events.time[i] + events.sigma[i])];
      if (from > close) {
        flush();
        [open, close] = [from, to];
      } else close = Math.max(close, to);
    }
    flush();
    context.globalAlpha = 1;
  }

  /** Lines without a usable time: from when to when they were written, overlapping ones as one. */
  intervals({ view, mask, chosen, decisive }, lane, middle, step) {
    const { context, colours, events } = this;
    const reach = Math.min(step / 2 - 3, 5);
    let open = null;
    const flush = () => {
      if (!open) return;
      context.strokeStyle = open.colour;
      context.lineWidth = open.thick;
      context.setLineDash([5, 3]);
      context.beginPath();
      for (const x of [open.from, open.to]) {
        context.moveTo(x, middle - reach);
        context.lineTo(x, middle + reach);
      }
      context.moveTo(open.from, middle);
      context.lineTo(open.to, middle);
      context.stroke();
      context.setLineDash([]);
    };
    for (let i = events.from(lane, view.start - events.widest); i < events.starts[lane + 1] && events.time[i] < view.start + view.span + events.widest; i++) {
      if (!mask[i] || !events.broad(i)) continue;
      const [from, to] = [this.x(view, events.time[i] - events.sigma[i]), this.x(view, events.time[i] + events.sigma[i])];
      const [colour, thick] = i === chosen ? [colours.link, 3] : i === decisive ? [colours.cause, 3] : [colours[events.lanes[lane].state] ?? colours.quiet, 1.6];
      if (open && from <= open.to) {
        open.to = Math.max(open.to, to);
        if (thick > open.thick || i === chosen) Object.assign(open, { colour, thick });
        continue;
      }
      flush();
      open = { from, to, colour, thick };
    }
    flush();
  }

  marks({ view, mask, chosen, decisive }, row, middle, step, area) {
    const { context, colours, events, worst } = this;
    const small = step < 14;
    worst.fill(0);
    const scale = area.wide / view.span;
    const late = [];
    for (let lane = row.from; lane < row.to; lane++) {
      const end = events.starts[lane + 1];
      const owner = colours[events.lanes[lane].state] ?? colours.quiet;
      for (let i = events.from(lane, view.start); i < end; i++) {
        const x = (events.time[i] - view.start) * scale;
        if (x > area.wide) break;
        if (!mask[i] || events.broad(i)) continue;
        const severity = events.severity[i];
        const special = i === chosen || i === decisive;
        if (severity === 0 && !special) {
          worst[Math.floor(x)] |= PLAIN;
          continue;
        }
        const cell = Math.floor(x / 5) * 5; // shapes are wider than a pixel: one for each five, the worst
        if (!special && (worst[cell] & ~PLAIN) > severity) continue;
        worst[cell] = (worst[cell] & PLAIN) | (severity + 1);
        late.push([i, area.from + x, owner]);
      }
    }
    this.plain(area, middle, small ? 2 : 4);
    late.sort((a, b) => (a[0] === decisive) - (b[0] === decisive) || events.severity[a[0]] - events.severity[b[0]]);
    for (const [i, x, owner] of late) {
      this.mark(i === decisive ? 4 : events.severity[i], x, middle, i === decisive ? colours.cause : owner, small ? 0.6 : 1);
      if (i === chosen) this.ring(x, middle, small ? 6 : 9);
    }
  }

  /** Ordinary lines as ticks; where they stand side by side, as one bar, or a full row would be a thousand strokes. */
  plain(area, middle, reach) {
    const { context, colours, worst } = this;
    context.fillStyle = colours.quiet;
    const wide = Math.floor(area.wide) + 1;
    for (let x = 0; x <= wide; x++) {
      if (!(worst[x] & PLAIN)) continue;
      const from = x;
      while (x <= wide && worst[x] & PLAIN) x++;
      context.fillRect(area.from + from, middle - reach, x - from + 0.3, 2 * reach);
    }
  }

  mark(severity, x, y, colour, size) {
    const { context, colours } = this;
    const reach = [4, 4, 5.5, 6, 9][severity] * size;
    context.beginPath();
    if (severity > 2) {
      context.moveTo(x, y - reach);
      context.lineTo(x + reach, y);
      context.lineTo(x, y + reach);
      context.lineTo(x - reach, y);
    } else if (severity === 2) {
      context.moveTo(x - reach, y - 0.8 * reach);
      context.lineTo(x + reach, y - 0.8 * reach);
      context.lineTo(x, y + reach);
    } else if (severity === 1) context.arc(x, y, reach, 0, 7);
    else return context.fillRect(x - 1, y - reach, 2, 2 * reach);
    context.closePath();
    context.fillStyle = severity === 1 ? colours.card : colour;
    context.fill();
    context.strokeStyle = severity === 1 ? colour : colours.card;
    context.lineWidth = severity === 1 ? 1.6 : 1;
    return context.stroke();
  }

  ring(x, y, reach) {
    const { context, colours } = this;
    context.beginPath();
    context.arc(x, y, reach, 0, 7);
    context.strokeStyle = colours.link;
    context.lineWidth = 2;
    context.stroke();
  }

  hatched() {
    if (this.hatch) return this.hatch;
    const canvas = new OffscreenCanvas(6, 6);
    const context = canvas.getContext("2d");
    context.strokeStyle = this.colours.line;
    context.lineWidth = 1.4;
    for (const shift of [-6, 0, 6]) {
      context.moveTo(shift, 6);
      context.lineTo(shift + 6, 0);
    }
    context.stroke();
    this.hatch = this.context.createPattern(canvas, "repeat");
    return this.hatch;
  }

  // ── the decisive moment, and the reader's own ────────────────────────────────────────────────────────────────────

  cursors({ view, zero, slack, base, cursor }) {
    const { context, colours, height } = this;
    const area = plot(this.width);
    const line = (time, colour, dash, words) => {
      const x = this.x(view, time);
      if (x < area.from || x > area.to) return;
      context.strokeStyle = colour;
      context.lineWidth = 1.3;
      context.setLineDash(dash ?? []);
      context.beginPath();
      context.moveTo(x, HEAD - 4);
      context.lineTo(x, height - FOOT + 2);
      if (dash) context.stroke();
      context.setLineDash([]);
      const half = context.measureText(words).width / 2 + 5;
      const middle = Math.min(Math.max(x, area.from + half), area.to - half);
      context.fillStyle = colours.card;
      context.fillRect(middle - half, HEAD - 20, 2 * half, 15);
      context.textAlign = "center";
      this.label(words, middle, HEAD - 12, colour);
      context.textAlign = "left";
    };
    if (zero !== null && slack >= BROAD) this.doubt(view, zero, slack, area);
    if (zero !== null) line(zero, colours.cause, slack < BROAD ? [4, 3] : null, stamp(base + zero, slack));
    if (cursor !== null) {
      const offset = zero === null ? "" : ` (${cursor < zero ? "\u2212" : "+"}${seconds(cursor - zero)})`;
      line(cursor, colours.link, [], clock(base + cursor) + offset);
    }
  }

  /** The decisive moment, where it is known to the minute only. */
  doubt(view, zero, slack, area) {
    const { context, colours, height } = this;
    const [from, to] = [zero - slack, zero + slack].map((time) => Math.min(Math.max(this.x(view, time), area.from), area.to));
    context.fillStyle = colours.cause;
    context.globalAlpha = 0.08;
    context.fillRect(from, HEAD - 4, to - from, height - FOOT - HEAD + 6);
    context.globalAlpha = 1;
  }
}
