import assert from "node:assert/strict";
import { test } from "node:test";
import { EVERYTHING, filter, heat, lanesWith, narrows, ranks, rows } from "../src/filter.js";
import { JOB } from "./blocks.js";

function shown(wanted) {
  const events = JOB();
  const mask = new Uint8Array(events.count);
  const count = filter(events, { ...EVERYTHING, ...wanted }, mask);
  const found = [...mask.keys()].filter((i) => mask[i]);
  assert.equal(found.length, count);
  return found;
}

test("each filter keeps what it names", () => {
  assert.deepEqual(shown({}), [0, 1, 2, 3, 4, 5, 6]);
  assert.deepEqual(shown({ severities: 8 }), [1]);
  assert.deepEqual(shown({ severities: 2 | 4 }), [4, 6]);
  assert.deepEqual(shown({ family: "kernel" }), [0, 1]);
  assert.deepEqual(shown({ ranks: "1-2" }), [5, 6]);
  assert.deepEqual(shown({ text: "KILLED process 12" }), [1], "letters of either case, across template and number");
  assert.deepEqual(shown({ text: "r0.log" }), [2, 3, 4], "the file counts as text");
  assert.deepEqual(shown({ text: "step", ranks: "0", severities: 1 }), [2, 3]);
});

test("ranks are read as people write them; nonsense hides nothing", () => {
  assert.deepEqual([0, 3, 5, 7].map(ranks("0-3, 7")), [true, true, false, true]);
  assert.deepEqual([2, 3].map(ranks("0\u20132")), [true, false], "as the page writes them");
  assert.equal(ranks("abc"), null);
  assert.equal(ranks("  "), null);
  assert.equal(ranks("0")(null), false, "a line of no rank is not of rank 0");
  assert.equal(narrows({ ...EVERYTHING, ranks: "x" }), false);
});

const names = (events, found) => found.map((row) => `${events.head.hosts[row.host]}${row.head ? "" : `/${events.lanes[row.from].rank}`}[${row.from},${row.to})`);

test("a folded host is one row with all its lanes, an open one a row for each rank", () => {
  const events = JOB();
  assert.deepEqual(names(events, rows(events, new Set(), null)), ["node-a[0,3)", "node-b/2[3,4)"]);
  assert.deepEqual(names(events, rows(events, new Set([0]), null)), ["node-a[0,1)", "node-a/0[1,2)", "node-a/1[2,3)", "node-b/2[3,4)"]);
});

test("a filter takes away lanes, and hosts of which nothing is left", () => {
  const events = JOB();
  const mask = new Uint8Array(events.count);
  filter(events, { ...EVERYTHING, ranks: "1" }, mask);
  assert.deepEqual(names(events, rows(events, new Set([0]), lanesWith(events, mask))), ["node-a[0,1)", "node-a/1[2,3)"]);
});

test("in a heat map an open host is pinned above all hosts, or above all ranks", () => {
  const events = JOB();
  const shown = (single) => { const { pins, rows: all } = heat(events, new Set([0]), null, single, -1); return [names(events, pins), names(events, all)]; };
  const pinned = ["node-a[0,1)", "node-a/0[1,2)", "node-a/1[2,3)"];
  assert.deepEqual(shown(false), [pinned, ["node-a[0,3)", "node-b/2[3,4)"]]);
  assert.deepEqual(shown(true), [pinned, ["node-a[0,1)", "node-a/0[1,2)", "node-a/1[2,3)", "node-b/2[3,4)"]]);
});
