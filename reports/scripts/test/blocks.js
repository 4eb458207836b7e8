// A data block made by hand, as postmortem/report/columns.py makes it.
import { decode } from "../src/data.js";

export function varint(number) {
  const out = [];
  let rest = number;
  while (rest > 127) {
    out.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  return [...out, rest];
}

const zigzag = (n) => (n < 0 ? -2 * n - 1 : 2 * n);

/** lanes: [[host, rank, state, refused, [[time, severity, text, path, line, sigma], ...]], ...] */
export function block(lanes, extra = {}) { // all arguments written out; the other ways are tested on blocks of Python's making
  const tables = { hosts: [], templates: [], patterns: [""], shapes: [], sources: [], families: ["console", "kernel"], sigmas: [0] };
  const number = (table, value) => {
    const known = table.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
    return known >= 0 ? known : table.push(value) - 1;
  };
  const columns = { time: [], line: [], shape: [], source: [], sigma: [], words: [], digits: [], numbers: [] };
  const all = [];
  const rows = lanes.map(([host, rank, state, refused, events]) => {
    let [before, previous] = [0, 0];
    for (const [time, severity, text, path, line = 0, sigma = 0] of events) {
      const moment = Math.round(time * 1e4);
      const args = text.match(/\d+/g) ?? [];
      const template = number(tables.templates, [text.split(/\d+/), args.map(() => 0)]);
      columns.time.push(...varint(moment - before));
      columns.line.push(...varint(zigzag(line - previous)));
      columns.shape.push(...varint(number(tables.shapes, [template, severity, 0])));
      columns.source.push(...varint(number(tables.sources, [path, path.startsWith("kernel") ? 1 : 0])));
      columns.sigma.push(...varint(number(tables.sigmas, sigma)));
      columns.words.push(...new TextEncoder().encode(args.map((one) => `${one}\n`).join("")));
      [before, previous] = [moment, line];
      all.push(time);
    }
    return [number(tables.hosts, host), rank, state, refused, events.length];
  });
  const head = {
    version: 1, unit: 1e-4, base: 1795209228, count: all.length, lanes: rows, zero: null, window: [0, 10], whole: [Math.min(...all), Math.max(...all)],
    proofs: [], jumps: { first: null, culprit: null, teardown: null }, ...tables, ...extra, columns: Object.entries(columns).map(([name, part]) => [name, part.length]),
  };
  const told = new TextEncoder().encode(JSON.stringify(head));
  const bytes = new Uint8Array([...new Uint8Array(new Uint32Array([told.length]).buffer), ...told, ...Object.values(columns).flat()]);
  return bytes;
}

export const JOB = () => decode(block([
  ["node-a", null, "", 0, [[0, 0, "boot", "kernel/dmesg", 1], [5, 3, "Killed process 123", "kernel/dmesg", 900]]],
  ["node-a", 0, "victim", 0, [[1, 0, "step 1 loss 2", "r0.log", 4], [2, 0, "step 2 loss 3", "r0.log", 5], [6, 2, "peer 3 is gone", "r0.log", 2, 0.5]]],
  ["node-a", 1, "cause", 0, [[1, 0, "step 1 loss 9", "r1.log", 4]]],
  ["node-b", 2, "victim", 1, [[400000, 1, "retry 77", "r2.log"]]],
]));
