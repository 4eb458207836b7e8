// The interactive timeline: its state, and what the reader does to it.
import { chosen, controls, table, tip, told } from "./controls.js";
import { EVERYTHING, filter, heat, lanesWith, narrows, rows } from "./filter.js";
import { read, write } from "./link.js";
import { FOOT, HEAD, Picture, STRIP, TALL, plot } from "./draw.js";
import { around, clamp, panned, zoomed } from "./scale.js";

const MOST = 800; // pixels of lanes before they scroll: 64 ranks on 8 hosts fit
const OPEN = 80; // lanes up to which every host stands open; of more, the picture is a heat map below those that are pinned
const HEAT = 540; // pixels of a heat map
const PINNED = 3; // hosts
const NEAR = 8;

export class Timeline {
  constructor(events, place) {
    const { head } = events;
    const first = { start: head.window[0], span: head.window[1] - head.window[0] };
    Object.assign(this, { events, place, first, wanted: { ...EVERYTHING }, mask: new Uint8Array(events.count).fill(1), shown: events.count });
    this.state = {
      view: clamp(first, head.whole), whole: head.whole, zero: head.zero, slack: head.slack ?? 0, base: head.base, mask: this.mask, rows: [], pins: 0, body: HEAD, dense: false, by: "", high: 1, top: 0, at: -1,
      step: 20, chosen: -1, decisive: head.jumps.culprit ?? -1, cursor: null,
    };
    this.open = this.opened();
    this.parts = controls(head, {
      jump: (name) => this.jump(name), whole: () => this.see({ start: -Infinity, span: Infinity }), zoom: (factor) => this.zoom(factor, 0.5),
      help: () => this.parts.help.showModal(), filter: () => this.filtered(), table: () => this.table(), by: () => this.turn(),
    });
    place.append(this.parts.root);
    this.picture = new Picture(this.parts.canvas, events);
    this.listen();
    this.layout();
    this.centre(this.state.decisive);
    this.restore(location.hash);
    told(this.parts, events, this.state);
    this.paint();
  }

  /** Rows that scroll: all, or those below the pinned ones. */
  get deep() {
    return Math.max(0, this.state.rows.length - this.state.pins - this.visible);
  }

  /** Bring the lane of an event into sight where not all lanes are. */
  centre(i) {
    const { state, events } = this;
    const place = i < 0 ? -1 : state.rows.slice(state.pins).findIndex((row) => row.from <= events.lane[i] && events.lane[i] < row.to);
    if (place >= this.visible) state.top = Math.min(place - Math.floor(this.visible / 2), this.deep);
    this.resting = state.top;
  }

  /** Hosts that stand open at first: all, or those with a rank that is out of the ordinary; of very many those to blame. */
  opened() {
    const { lanes } = this.events;
    if (lanes.length <= OPEN) return new Set(lanes.map((lane) => lane.host));
    return new Set([...new Set(lanes.filter((lane) => lane.state === "cause").map((lane) => lane.host))].slice(0, PINNED));
  }

  /** Open a host; in a heat map that pins it, and few have room there. */
  unfold(host) {
    this.open.add(host);
    if (!this.state.dense) return;
    const blamed = (one) => this.events.lanes.some((lane) => lane.host === one && lane.state === "cause");
    for (const one of [...this.open]) if (this.open.size > PINNED && one !== host && !blamed(one)) this.open.delete(one);
  }

  // ── state ────────────────────────────────────────────────────────────────────────────────────────────────────────

  layout() {
    const { state } = this;
    const was = state.at;
    const at = was >= 0 ? state.rows[was] : null;
    const keep = narrows(this.wanted) ? lanesWith(this.events, this.mask) : null;
    const count = keep ? keep.reduce((sum, one) => sum + one, 0) : this.events.lanes.length;
    state.dense = count > OPEN;
    if (state.dense) this.dense(keep, count);
    else {
      Object.assign(state, { rows: rows(this.events, this.open, keep), pins: 0, body: HEAD });
      state.step = state.rows.length > 40 ? 11 : state.rows.length > 24 ? 18 : 22;
    }
    this.parts.by.hidden = !state.dense || this.events.head.hosts.length < 2;
    const same = (row) => row.from <= at.from && at.from < Math.max(row.to, row.from + 1) && (row.head === at.head || row.host === at.host);
    state.at = !at ? -1 : state.rows[was] && same(state.rows[was]) ? was : state.rows.findIndex(same);
    const wide = this.parts.stage.clientWidth || 800;
    const scrolling = Math.max(state.rows.length - state.pins, 2);
    this.visible = Math.min(scrolling, Math.floor((state.dense ? HEAT : MOST) / state.step));
    state.top = Math.min(state.top, this.deep);
    this.picture.resize(wide, state.body + Math.round(this.visible * state.step) + FOOT);
  }

  /** The rows of a heat map: hosts, or ranks where those have room or are asked for. */
  dense(keep, count) {
    const { state, events } = this;
    const single = state.by ? state.by === "rank" : events.head.hosts.length < 2 || count * 2 <= HEAT;
    const { pins, rows: all } = heat(events, this.open, keep, single, state.chosen >= 0 ? events.lane[state.chosen] : -1);
    const step = Math.min(Math.max(HEAT / all.length, 2), 14) * state.high;
    Object.assign(state, { rows: [...pins, ...all], pins: pins.length, body: HEAD + pins.length * TALL + (pins.length ? 8 : 0), step: Math.max(2, Math.floor(step)) });
    this.single = single;
    this.parts.by.textContent = single ? "Rows: ranks" : "Rows: hosts";
    this.parts.hint.textContent = `Each row is a ${single ? "rank" : "host"}, its color the worst line at that time. Click a name to pin it on top; drag to move, Ctrl and wheel to zoom, Alt and wheel for taller rows; ? for all keys.`;
  }

  /** A row for each rank instead of each host, or the other way round. */
  turn() {
    if (!this.state.dense) return;
    Object.assign(this.state, { by: this.single ? "host" : "rank", at: -1, top: 0 });
    this.layout();
    this.centre(this.state.decisive);
    this.changed();
  }

  stretch(factor) {
    if (!this.state.dense) return;
    this.state.high = Math.min(Math.max(this.state.high * factor, 1), 8);
    this.layout();
    this.changed();
  }

  render() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.frame = 0;
    this.picture.draw(this.state);
    if (!this.place.dataset.drawn) performance.mark("postmortem-timeline");
    this.place.dataset.drawn = String(Number(this.place.dataset.drawn ?? 0) + 1);
  }

  changed() {
    this.render();
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      history.replaceState(null, "", this.link() || location.pathname + location.search);
      if (this.parts.table.open) this.table();
      told(this.parts, this.events, this.state);
    }, 150);
  }

  link() {
    const { state } = this;
    const same = Math.abs(state.view.start - this.first.start) < 1e-6 && Math.abs(state.view.span - this.first.span) < 1e-6;
    return write({ view: same ? null : state.view, chosen: state.chosen, wanted: this.wanted, top: state.top === this.resting ? null : state.top, by: state.by });
  }

  /** Show what a link says; parts of it that cannot be are left out. */
  restore(hash) {
    const said = read(hash);
    if (!said) return;
    this.wanted = said.wanted;
    if (!this.events.head.families.includes(said.wanted.family)) this.wanted.family = "";
    this.fill();
    this.sift();
    if (said.view) this.state.view = clamp(said.view, this.state.whole);
    this.state.by = said.by;
    this.layout();
    if (said.chosen >= 0 && said.chosen < this.events.count) this.choose(said.chosen, false);
    if (said.top !== null) this.state.top = Math.min(said.top, this.deep);
    this.place.scrollIntoView();
    this.render();
  }

  fill() {
    const { parts, wanted } = this;
    parts.boxes.forEach((box, i) => { box.checked = Boolean((wanted.severities >> i) & 1); });
    parts.family.value = wanted.family;
    parts.ranks.value = wanted.ranks;
    parts.text.value = wanted.text;
  }

  sift() {
    this.shown = filter(this.events, this.wanted, this.mask);
    this.picture.strip = null;
    const all = this.events.count.toLocaleString("en");
    if (narrows(this.wanted)) this.parts.tools.open = true;
    this.parts.count.textContent = this.shown === this.events.count ? "" : `${this.shown.toLocaleString("en")} of ${all} events`;
  }

  /** Go to the field for text, which may be folded. */
  search() {
    this.parts.tools.open = true;
    this.parts.text.focus();
  }

  filtered() {
    const { parts } = this;
    this.wanted = {
      severities: parts.boxes.reduce((bits, box, i) => bits | (box.checked ? 1 << i : 0), 0), family: parts.family.value,
      ranks: parts.ranks.value, text: parts.text.value,
    };
    clearTimeout(this.sifting);
    this.sifting = setTimeout(() => {
      this.sift();
      this.layout();
      this.changed();
    }, 120);
  }

  table() {
    if (this.parts.table.open) table(this.parts, this.events, this.state);
  }

  // ── moving ───────────────────────────────────────────────────────────────────────────────────────────────────────

  see(view) {
    this.state.view = clamp({ start: Number.isFinite(view.start) ? view.start : this.state.whole[0] - 1e9, span: view.span }, this.state.whole);
    this.hover(null);
    this.changed();
  }

  zoom(factor, share) {
    this.see(zoomed(this.state.view, factor, share, this.state.whole));
  }

  scroll(by) {
    const top = Math.min(Math.max(this.state.top + by, 0), this.deep);
    if (top === this.state.top) return false;
    this.state.top = top;
    this.changed();
    return true;
  }

  jump(name) {
    const i = this.events.head.jumps[name];
    if (i === null) return;
    if (!this.mask[i]) this.clear();
    const { span } = this.state.view;
    this.state.view = around(this.state.view, this.events.time[i], Math.min(span, Math.max(this.first.span / 2, 2)), this.state.whole);
    this.choose(i, true);
    this.parts.canvas.focus({ preventScroll: true });
  }

  clear() {
    this.wanted = { ...EVERYTHING };
    this.fill();
    this.sift();
    this.layout();
  }

  /** Make `i` the chosen event: its lane is unfolded and in sight, and so is its moment. */
  choose(i, told = true) {
    const { state, events } = this;
    state.chosen = i;
    if (i >= 0) {
      const lane = events.lane[i];
      if (!state.rows.some((row) => row.from <= lane && lane < row.to)) this.unfold(events.lanes[lane].host);
      if (!this.open.has(events.lanes[lane].host) && events.lanes[lane].rank !== null) this.unfold(events.lanes[lane].host);
      this.layout();
      state.at = state.rows.findIndex((row) => row.from <= lane && lane < row.to);
      this.reach();
      const share = (events.time[i] - state.view.start) / state.view.span;
      if (share < 0.02 || share > 0.98) state.view = around(state.view, events.time[i], state.view.span, state.whole);
      state.cursor = events.time[i];
    } else state.cursor = null;
    chosen(this.parts, events, i);
    if (told) this.changed();
  }

  reach() {
    const { state } = this;
    const place = state.at - state.pins;
    if (place < 0) return;
    if (place < state.top) state.top = place;
    if (place >= state.top + this.visible) state.top = place - this.visible + 1;
  }

  /** The event before or after the chosen one in its row, among those that are shown. */
  next(by) {
    const { state, events, mask } = this;
    const row = state.rows[state.at];
    if (!row) return;
    const now = state.chosen >= 0 && row.from <= events.lane[state.chosen] && events.lane[state.chosen] < row.to ? state.chosen : -1;
    const from = now >= 0 ? events.time[now] : by > 0 ? state.view.start : state.view.start + state.view.span;
    let best = -1;
    const better = (i) => best < 0 || (events.time[i] - events.time[best] || i - best) * by < 0;
    for (let lane = row.from; lane < row.to; lane++) {
      for (let i = now >= 0 && events.lane[now] === lane ? now + by : events.from(lane, from) - (by < 0 ? 1 : 0); i >= events.starts[lane] && i < events.starts[lane + 1]; i += by) {
        if (!mask[i] || (events.time[i] === from && now >= 0 && (i - now) * by <= 0)) continue;
        if (better(i)) best = i;
        break;
      }
    }
    if (best >= 0) this.choose(best);
  }

  move(by) {
    const { state } = this;
    if (!state.rows.length) return;
    state.at = state.at < 0 ? (by > 0 ? (state.pins ? 0 : state.top) : state.rows.length - 1) : Math.min(Math.max(state.at + by, 0), state.rows.length - 1);
    this.reach();
    state.chosen = -1;
    const row = state.rows[state.at];
    const lane = this.events.lanes[row.from];
    const name = row.head ? this.events.host(row) : `rank ${lane.rank}, ${lane.state}`;
    this.parts.canvas.setAttribute("aria-label", `Timeline, lane ${state.at + 1} of ${state.rows.length}: ${name}`);
    chosen(this.parts, this.events, -1);
    this.changed();
  }

  edge(last) {
    const row = this.state.rows[this.state.at];
    if (!row) return;
    let best = -1;
    for (let lane = row.from; lane < row.to; lane++) {
      for (let i = this.events.starts[lane]; i < this.events.starts[lane + 1]; i++) {
        if (this.mask[i] && (best < 0 || (last ? this.events.time[i] >= this.events.time[best] : this.events.time[i] < this.events.time[best]))) best = i;
      }
    }
    if (best >= 0) this.choose(best);
  }

  fold(place) {
    const row = this.state.rows[place];
    if (!row || (row.lonely && !this.state.dense) || !(row.head || this.state.dense)) return false;
    if (!this.open.delete(row.host)) this.unfold(row.host);
    this.layout();
    this.changed();
    return true;
  }

  // ── the reader ───────────────────────────────────────────────────────────────────────────────────────────────────

  listen() {
    const { canvas, stage } = this.parts;
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.pointer(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, this.share(event)));
    this.parts.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && event.target !== canvas && !this.parts.help.open) canvas.focus();
    });
    addEventListener("hashchange", () => this.restore(location.hash));
    new ResizeObserver(() => {
      if (stage.clientWidth === this.picture.width) return;
      this.layout();
      this.render();
    }).observe(stage);
    const repaint = () => {
      Object.assign(this.picture, { colours: null, strip: null, hatch: null, pixels: null });
      this.render();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    addEventListener("postmortem-theme", repaint);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = event.shiftKey && event.key.startsWith("Arrow") ? "Shift" : "";
    const act = {
      ArrowLeft: () => this.next(-1), ArrowRight: () => this.next(1), ArrowUp: () => this.move(-1), ArrowDown: () => this.move(1),
      ShiftArrowLeft: () => this.see(panned(this.state.view, -0.2, this.state.whole)), ShiftArrowRight: () => this.see(panned(this.state.view, 0.2, this.state.whole)),
      PageUp: () => this.move(-this.visible), PageDown: () => this.move(this.visible), Home: () => this.edge(false), End: () => this.edge(true),
      "+": () => this.zoom(0.5, this.middle()), "=": () => this.zoom(0.5, this.middle()), "-": () => this.zoom(2, this.middle()), 0: () => this.see({ start: -Infinity, span: Infinity }),
      f: () => this.jump("first"), c: () => this.jump("culprit"), t: () => this.jump("teardown"), " ": () => this.fold(this.state.at),
      r: () => this.turn(), "[": () => this.stretch(0.5), "]": () => this.stretch(2),
      Enter: () => this.follow(), "/": () => this.search(), "?": () => this.parts.help.showModal(),
      Escape: () => (this.state.chosen >= 0 ? this.choose(-1) : (this.clear(), this.changed())),
    }[by + event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Zoom about the chosen event if it is in sight. */
  middle() {
    const { view, cursor } = this.state;
    const share = cursor === null ? 0.5 : (cursor - view.start) / view.span;
    return share >= 0 && share <= 1 ? share : 0.5;
  }

  follow() {
    const link = this.parts.chosen.querySelector("a");
    if (link) {
      clearTimeout(this.later); // the address is the evidence's from here on; the window's, still to be written, would replace it
      link.click();
    } else if (this.state.chosen < 0) this.fold(this.state.at);
  }

  share(event) {
    const area = plot(this.picture.width);
    return Math.min(Math.max((event.offsetX - area.from) / area.wide, 0), 1);
  }

  wheel(event) {
    if (event.altKey && this.state.dense) {
      this.stretch(event.deltaY < 0 ? 1.25 : 0.8);
      event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 60) * 0.004), this.share(event));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.see(panned(this.state.view, (event.deltaX || event.deltaY) / 800, this.state.whole));
    else if (document.activeElement !== this.parts.canvas || !this.scroll(Math.sign(event.deltaY) * 2)) return; // the page scrolls
    event.preventDefault();
  }

  rowAt(y) {
    const { rows: all, pins, body, step, top } = this.state;
    if (y < HEAD || y >= this.picture.height - FOOT) return -1;
    if (y < body) return Math.floor((y - HEAD) / TALL) < pins ? Math.floor((y - HEAD) / TALL) : -1;
    const place = pins + top + Math.floor((y - body) / step);
    return place < all.length ? place : -1;
  }

  /** The mark under the pointer, the worst of those that are near, and how many others there are. */
  hit(x, y) {
    const { state, events, mask } = this;
    const row = state.rows[this.rowAt(y)];
    const area = plot(this.picture.width);
    if (!row || x < area.from - NEAR) return [-1, 0];
    const moment = state.view.start + ((x - area.from) / area.wide) * state.view.span;
    const near = (NEAR / area.wide) * state.view.span;
    let [best, count] = [-1, 0];
    const off = (i) => Math.abs(events.time[i] - moment);
    const worth = (i) => (i === state.decisive ? 9 : events.severity[i]) - (events.broad(i) ? 0.9 : off(i) / near);
    const far = Math.max(near, events.widest);
    for (let lane = row.from; lane < row.to; lane++) {
      for (let i = events.from(lane, moment - far); i < events.starts[lane + 1] && events.time[i] <= moment + far; i++) {
        if (!mask[i] || off(i) > (events.broad(i) ? events.sigma[i] : near)) continue;
        count += 1;
        if (best < 0 || worth(i) > worth(best)) best = i;
      }
    }
    return [best, Math.max(0, count - 1)];
  }

  hover(event) {
    const { tip: box } = this.parts;
    box.hidden = true;
    if (!event) {
      if (this.state.chosen < 0) this.state.cursor = null;
      return this.render();
    }
    const area = plot(this.picture.width);
    if (event.offsetX >= area.from && event.offsetX <= area.to) this.state.cursor = this.state.view.start + this.share(event) * this.state.view.span;
    const [i, more] = this.hit(event.offsetX, event.offsetY);
    this.parts.canvas.style.cursor = i >= 0 ? "pointer" : event.offsetY < STRIP ? "crosshair" : event.offsetX < area.from ? "default" : "grab";
    if (i >= 0 && event.pointerType !== "touch") {
      tip(this.parts, this.events, i, more);
      box.hidden = false;
      const wide = this.picture.width;
      box.style.left = `${Math.max(0, Math.min(event.offsetX + 14, wide - box.offsetWidth - 4))}px`;
      const below = event.offsetY + 18;
      box.style.top = `${below + box.offsetHeight > this.picture.height + 40 ? event.offsetY - box.offsetHeight - 12 : below}px`;
    }
    return this.render();
  }

  down(event) {
    if (event.button) return;
    this.drag = { x: event.offsetX, y: event.offsetY, view: this.state.view, moved: false, strip: event.offsetY < STRIP };
    this.parts.canvas.setPointerCapture(event.pointerId);
    if (this.drag.strip) this.locate(event);
  }

  /** In the overview: the window goes where the pointer is. */
  locate(event) {
    const { whole, view, rows: all } = this.state;
    const moment = whole[0] + this.share(event) * (whole[1] - whole[0]);
    this.see(around(view, moment, view.span, whole));
    const lane = Math.min(Math.max((event.offsetY - 4) / (STRIP - 10), 0), 0.999) * this.events.lanes.length;
    const place = all.slice(this.state.pins).findIndex((row) => lane < row.to);
    if (place >= 0 && this.deep) this.scroll(place - Math.floor(this.visible / 2) - this.state.top);
  }

  pointer(event) {
    const { drag } = this;
    if (!drag) return this.hover(event);
    if (drag.strip) return this.locate(event);
    const by = event.offsetX - drag.x;
    if (!drag.moved && Math.abs(by) < 4 && Math.abs(event.offsetY - drag.y) < 4) return undefined;
    drag.moved = true;
    const rowsMoved = Math.round((drag.y - event.offsetY) / this.state.step);
    if (rowsMoved) {
      this.scroll(rowsMoved);
      drag.y = event.offsetY;
    }
    return this.see(panned(drag.view, -by / plot(this.picture.width).wide, this.state.whole));
  }

  up(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.moved || drag.strip) return;
    const place = this.rowAt(event.offsetY);
    if (event.offsetX < plot(this.picture.width).from && this.fold(place)) return;
    const [i] = this.hit(event.offsetX, event.offsetY);
    this.state.at = place;
    this.choose(i);
  }

  // ── the search of the page ───────────────────────────────────────────────────────────────────────────────────────

  counted(words) {
    return filter(this.events, { ...EVERYTHING, text: words }, new Uint8Array(this.events.count));
  }

  seek(words) {
    this.wanted = { ...EVERYTHING, text: words };
    this.fill();
    this.sift();
    this.state.view = clamp({ start: -Infinity, span: Infinity }, this.state.whole);
    this.layout();
    this.changed();
    this.place.scrollIntoView();
  }
}
