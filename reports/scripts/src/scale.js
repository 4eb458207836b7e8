// Time -> pixels and words. Times are seconds since the header's `base`; `view` is { start, span }.
import { BROAD } from "./data.js";

const STEPS = [1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
export const SHORTEST = 0.002;

/** Keep the window inside the job, with a margin, and neither too short nor too long. */
export function clamp({ start, span }, [first, last]) {
  const margin = Math.max((last - first) * 0.02, 0.05);
  const whole = last - first + 2 * margin;
  const kept = Math.min(Math.max(span, SHORTEST), whole);
  return { start: Math.min(Math.max(start, first - margin), last + margin - kept), span: kept };
}

/** Change the span by `factor`; the moment at `share` of the width stays where it is. */
export function zoomed(view, factor, share, whole) {
  const anchor = view.start + view.span * share;
  const span = Math.min(Math.max(view.span * factor, SHORTEST), (whole[1] - whole[0]) * 1.04 + 0.1);
  return clamp({ start: anchor - span * share, span }, whole);
}

export function panned(view, share, whole) {
  return clamp({ start: view.start + view.span * share, span: view.span }, whole);
}

/** A window around a moment, as wide as it was unless the moment would stand at its edge. */
export function around(view, moment, span, whole) {
  return clamp({ start: moment - span / 2, span }, whole);
}

export function step(span, most) {
  return STEPS.find((one) => span / one <= most) ?? 86400 * Math.ceil(span / 86400 / most);
}

/** Round moments inside the window, counted from `origin`. */
export function ticks(view, origin, most) {
  const wide = step(view.span, most);
  const out = [];
  for (let n = Math.ceil((view.start - origin) / wide); origin + n * wide <= view.start + view.span && out.length < 50; n++) {
    out.push(origin + n * wide);
  }
  return [out, wide];
}

/** Time of day in UTC. */
export function clock(epoch, digits = 3) {
  const stamp = new Date(digits ? Math.round(epoch * 1000) : Math.round(epoch) * 1000);
  return stamp.toISOString().slice(11, digits ? 23 : 19).replace(/\.000$/, "");
}

/** Time of day with no more digits than are known. */
export const stamp = (epoch, sigma) => (sigma >= BROAD ? `about ${new Date(epoch * 1000).toISOString().slice(11, 16)}` : sigma < 1 ? clock(epoch) : new Date(epoch * 1000).toISOString().slice(11, 19));

/** Stamps without a year stand in 1972, stamps since boot in 1970: what nobody wrote is not shown. */
export const day = (epoch) => new Date(epoch * 1000).toISOString().slice(epoch >= 4e8 ? 0 : epoch >= 6.3e7 ? 5 : 10, 10);

export function tick(epoch, wide) {
  if (wide >= 86400) return day(epoch).slice(-5);
  if (wide >= 60) return clock(epoch, 0).slice(0, 5);
  if (wide >= 1) return clock(epoch, 0);
  const stamp = new Date(epoch * 1000 + 1e-4).toISOString();
  return wide < 0.001 ? stamp.slice(17, 19) + (epoch % 1).toFixed(4).slice(1) : stamp.slice(11, 23);
}

/** 0.004 -> "4 ms", 4000 -> "1 h 6 min"; the same words as in the rest of the report. */
export function seconds(value) {
  const number = Math.abs(value);
  if (number === 0) return "0 s";
  if (number < 0.0005) return `${Number((number * 1000).toFixed(1))} ms`;
  if (number < 0.0995) return `${Number((number * 1000).toFixed(number < 0.00995 ? 1 : 0))} ms`;
  if (number < 120) return `${Number(number.toFixed(number < 0.995 ? 2 : 1))} s`;
  const whole = Math.round(number);
  if (whole < 7200) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  const minutes = Math.round(number / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  return `${Math.round(minutes / 1440)} days`;
}
