import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { decode, unpack } from "../src/data.js";
import { JOB, block } from "./blocks.js";

test("a text is put together from its template and its numbers", () => {
  const events = JOB();
  assert.deepEqual([0, 1, 2, 4].map((i) => events.text(i)), ["boot", "Killed process 123", "step 1 loss 2", "peer 3 is gone"]);
});

test("times and lines count on within a lane and start anew in the next", () => {
  const events = JOB();
  assert.deepEqual([...events.time], [0, 5, 1, 2, 6, 1, 400000]);
  assert.deepEqual([0, 1, 2, 3, 4, 5].map((i) => events.address(i)), ["kernel/dmesg:1", "kernel/dmesg:900", "r0.log:4", "r0.log:5", "r0.log:2", "r1.log:4"]);
  assert.equal(events.address(6), "r2.log", "a file without countable lines has no line number");
});

test("who says it", () => {
  const events = JOB();
  assert.deepEqual([events.who(0), events.who(4)], ["node-a", "rank 0 on node-a"]);
  assert.equal(events.lanes[3].refused, true);
});

test("a moment is found in its lane, and not in the next one", () => {
  const events = JOB();
  assert.equal(events.from(1, 1.5), 3);
  assert.equal(events.from(1, 99), events.starts[2]);
  assert.equal(events.from(1, -99), events.starts[1]);
});

test("the block comes out of base64 and gzip as it went in", async () => {
  const bytes = block([["", 0, "", 0, [[1, 1, "\u00e9 1 \u4e2d", "a.log", 3]]]]);
  const events = decode(await unpack(gzipSync(bytes).toString("base64")));
  assert.equal(events.text(0), "\u00e9 1 \u4e2d");
});
