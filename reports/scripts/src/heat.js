// Many lanes as an image: each row of pixels is a host or a rank, each pixel the worst of what it said then.
import { BROAD } from "./data.js";

/**
 * Shade rows of lanes over a window. A line without a usable time has no pixel of its own: from when to when it may have
 * been written is tinted, where nothing else is. `tones` are four colours as pixels, `tint` makes one paler; `before` is an
 * image that may be painted over.
 */
export function shade(events, mask, rows, view, wide, tones, tint, before = null) {
  const worst = new Uint8Array(wide * rows.length);
  const vague = events.widest >= BROAD ? new Uint8Array(worst.length) : null;
  const scale = (wide - 1) / Math.max(view.span, 1e-6);
  rows.forEach((row, y) => {
    for (let lane = row.from; lane < row.to; lane++) {
      let done = -1; // the row's tint so far: many lines share one doubt
      for (let i = events.from(lane, view.start - events.widest), end = events.starts[lane + 1]; i < end; i++) {
        const x = (events.time[i] - view.start) * scale;
        if (x - events.widest * scale > wide) break;
        if (!mask[i]) continue;
        const level = events.severity[i] + 1;
        if (level > 1 && events.sigma[i] >= BROAD) {
          const half = events.sigma[i] * scale;
          for (let at = Math.max(0, done, Math.round(x - half)), last = Math.min(wide - 1, Math.round(x + half)); at <= last; at++) vague[y * wide + at] = Math.max(vague[y * wide + at], level);
          done = Math.max(done, Math.round(x + half));
        } else if (x > -0.5 && x < wide - 0.5) {
          const cell = y * wide + Math.round(x);
          if (worst[cell] < level) worst[cell] = level;
        }
      }
    }
  });
  const high = Math.max(rows.length, 1);
  const canvas = before && before.width === wide && before.height === high ? before : new OffscreenCanvas(wide, high);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let cell = 0; cell < worst.length; cell++) {
    const level = worst[cell];
    if (level && (level > 1 || !pixels[cell])) pixels[cell] = tones[level - 1];
    else if (vague && !level && vague[cell] && !pixels[cell]) pixels[cell] = tint(tones[vague[cell] - 1]);
    if (level > 1 && (cell + 1) % wide && worst[cell + 1] < level) pixels[cell + 1] = tones[level - 1]; // one pixel of trouble must not drown
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
