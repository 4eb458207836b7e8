import assert from "node:assert/strict";
import { test } from "node:test";
import { holds, sorted } from "../src/ranks.js";

const row = (ranks, ...cells) => ({ ranks, cells: [ranks, ...cells] });
const ROWS = [row("10", "victim", "n10"), row("9", "victim", ""), row("0\u20138, 11\u20131023", "healthy", "n2")];

test("numbers sort as numbers, and what is empty comes last either way", () => {
  assert.deepEqual(sorted(ROWS, 0, false).map((one) => one.ranks[0]), ["0", "9", "1"]);
  assert.deepEqual(sorted(ROWS, 2, false).map((one) => one.cells[2]), ["n2", "n10", ""]);
  assert.deepEqual(sorted(ROWS, 2, true).map((one) => one.cells[2]), ["n10", "n2", ""]);
  assert.deepEqual(sorted(ROWS, -1, false), ROWS);
});

test("a number finds the ranks that are it, wherever they stand in a span; words find words", () => {
  const found = (words) => ROWS.filter((one) => holds(one, words)).map((one) => ROWS.indexOf(one));
  assert.deepEqual(found("523"), [2]);
  assert.deepEqual(found("1"), [2], "not rank 10");
  assert.deepEqual(found("9-10"), [0, 1]);
  assert.deepEqual(found("VICTIM"), [0, 1]);
  assert.deepEqual(found("n2"), [2]);
});
