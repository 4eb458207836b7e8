import assert from "node:assert/strict";
import { test } from "node:test";
import { EVERYTHING } from "../src/filter.js";
import { read, write } from "../src/link.js";

test("what a link says is what it was made from", () => {
  const state = {
    view: { start: 12.5, span: 0.25 }, chosen: 417, top: 12, by: "rank",
    wanted: { severities: 12, family: "flight-recorder", ranks: "0-3, 7", text: "a&b=c #1 \u4e2d <script>" },
  };
  assert.deepEqual(read(write(state)), state);
  assert.deepEqual(read(write({ ...state, wanted: { ...EVERYTHING, severities: 0 } })).wanted.severities, 0);
});

test("the page as it opens needs no hash", () => {
  assert.equal(write({ view: null, chosen: -1, top: null, wanted: EVERYTHING }), "");
});

test("names of sections are not ours, and nonsense is left out", () => {
  assert.equal(read("#e4"), null);
  assert.equal(read(""), null);
  const said = read("#t=abc&z=-5&e=1.5&y=-3&s=&f=%F0");
  assert.deepEqual([said.view, said.chosen, said.top, said.wanted.severities], [null, -1, 0, 0]);
  assert.equal(read(`#q=${"x".repeat(9999)}`).wanted.text.length, 200);
});
