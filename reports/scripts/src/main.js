// The page is complete without this script. With it: copying, search, sorting, and the interactive timeline in place of its picture.
import { decode, unpack } from "./data.js";
import { Finder } from "./find.js";
import { page } from "./page.js";
import { ranks } from "./ranks.js";
import { Timeline } from "./timeline.js";

async function timeline(place, unpacked) {
  const events = decode(await unpacked);
  document.documentElement.classList.add("live");
  finder.timeline = new Timeline(events, place);
}

page();
const finder = new Finder();
const block = document.getElementById("postmortem-events");
const place = document.getElementById("timeline-live");
if (block && place && typeof DecompressionStream !== "undefined" && typeof OffscreenCanvas !== "undefined") {
  const unpacked = unpack(block.textContent); // beside the first layout, on a thread of the browser's
  // The verdict is painted first; the timeline can wait for two frames.
  requestAnimationFrame(() => setTimeout(timeline, 0, place, unpacked));
}
requestAnimationFrame(() => setTimeout(ranks)); // it reads the whole document
