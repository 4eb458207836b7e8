import assert from "node:assert/strict";
import { test } from "node:test";
import { SHORTEST, clamp, clock, panned, seconds, tick, ticks, zoomed } from "../src/scale.js";

const WHOLE = [0, 1000];

test("zooming keeps the moment under the pointer where it is", () => {
  const before = { start: 100, span: 200 };
  for (const share of [0, 0.3, 1]) {
    const after = zoomed(before, 0.25, share, WHOLE);
    assert.ok(Math.abs(before.start + before.span * share - (after.start + after.span * share)) < 1e-9);
  }
});

test("nobody gets lost: the window stays in the job, and is neither empty nor endless", () => {
  let view = { start: 500, span: 100 };
  for (let i = 0; i < 100; i++) view = zoomed(view, 0.5, 0.5, WHOLE);
  assert.equal(view.span, SHORTEST);
  for (let i = 0; i < 100; i++) view = zoomed(view, 3, 0.5, WHOLE);
  assert.ok(view.start <= 0 && view.start + view.span >= 1000 && view.span < 1100);
  assert.equal(panned({ start: 0, span: 10 }, -50, WHOLE).start, -20);
  assert.deepEqual(clamp({ start: -1e12, span: Infinity }, WHOLE), { start: -20, span: 1040 });
});

test("a job of one moment has a window too", () => {
  const view = clamp({ start: 4.9, span: 1 }, [5, 5]);
  assert.ok(view.span > 0 && view.start <= 5 && view.start + view.span >= 5);
});

test("ticks are round moments, and never too many", () => {
  assert.deepEqual(ticks({ start: 0.4, span: 7 }, 0, 9)[0], [1, 2, 3, 4, 5, 6, 7]);
  for (const span of [0.002, 0.3, 61, 5000, 1e6, 3e7]) {
    const [moments] = ticks({ start: 17.3, span }, 3.1, 9);
    assert.ok(moments.length >= 1 && moments.length <= 10, `${span}: ${moments.length}`);
  }
});

test("times are said as in the rest of the report", () => {
  assert.equal(clock(1795209228.704), "21:13:48.704");
  assert.equal(clock(1795209228), "21:13:48");
  assert.equal(clock(1795209228.9996, 0), "21:13:49");
  assert.equal(tick(1795209228, 60), "21:13");
  assert.equal(tick(1795209228, 86400), "11-20");
  assert.equal(tick(1795209228.5, 0.5), "21:13:48.500");
  assert.deepEqual([0.004, 0.6, 37.01, 600, 3999, 86400, 1e6].map(seconds), ["4 ms", "0.6 s", "37 s", "10 min", "66 min 39 s", "24 h", "12 days"]);
});
