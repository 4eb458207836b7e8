// The page is complete without this script. With it: copying, unfolding, and the interactive timeline in place of its picture.
import { decode, unpack } from "./data.js";
import { page } from "./page.js";
import { Timeline } from "./timeline.js";

async function timeline() {
  const block = document.getElementById("postmortem-events");
  const place = document.getElementById("timeline-live");
  if (!block || !place || typeof DecompressionStream === "undefined" || typeof OffscreenCanvas === "undefined") return;
  const events = decode(await unpack(block.textContent));
  document.documentElement.classList.add("live");
  new Timeline(events, place);
}

page();
// The verdict is painted first; the events can wait for two frames.
requestAnimationFrame(() => setTimeout(timeline, 0));
