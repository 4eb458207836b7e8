// A data block made by hand, as postmortem/report/columns.py makes it.
import { decode } from "../src/data.js";

/** lanes: [[host, rank, state, refused, [[time, severity, text, path, line, sigma], ...]], ...] */
export function block(lanes, extra = {}) {
  const tables = { hosts: [], templates: [], patterns: [""], shapes: [], sources: [], families: ["console", "kernel"], sigmas: [0] };
  const number = (table, value) => {
    const known = table.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
    return known >= 0 ? known : table.push(value) - 1;
  };
  const columns = { time: [], line: [], shape: [], source: [], sigma: [] };
  const numbers = [];
  const all = [];
  const rows = lanes.map(([host, rank, state, refused, events]) => {
    let [before, previous] = [0, 0];
    for (const [time, severity, text, path, line = 0, sigma = 0] of events) {
      const moment = Math.round(time * 1e4);
      const args = text.match(/\d+/g) ?? [];
      const template = number(tables.templates, text.split(/\d+/).join("\0"));
      const places = (numbers[template] ??= args.map(() => []));
      args.forEach((one, k) => places[k].push(one));
      columns.time.push(moment - before);
      columns.line.push(line - previous);
      columns.shape.push(number(tables.shapes, [template, severity, 0]));
      columns.source.push(number(tables.sources, [path, path.startsWith("kernel") ? 1 : 0]));
      columns.sigma.push(number(tables.sigmas, sigma));
      [before, previous] = [moment, line];
      all.push(time);
    }
    return [number(tables.hosts, host), rank, state, refused, events.length];
  });
  const head = {
    unit: 1e-4, base: 1795209228, lanes: rows, zero: null, window: [0, 10], whole: [Math.min(...all), Math.max(...all)],
    proofs: [], jumps: { first: null, culprit: null, teardown: null }, ...tables, ...columns, numbers: numbers.flat().map(String), ...extra,
  };
  return new TextEncoder().encode(JSON.stringify(head));
}

export const JOB = () => decode(block([
  ["node-a", null, "", 0, [[0, 0, "boot", "kernel/dmesg", 1], [5, 3, "Killed process 123", "kernel/dmesg", 900]]],
  ["node-a", 0, "victim", 0, [[1, 0, "step 1 loss 2", "r0.log", 4], [2, 0, "step 2 loss 3", "r0.log", 5], [6, 2, "peer 3 is gone", "r0.log", 2, 0.5]]],
  ["node-a", 1, "cause", 0, [[1, 0, "step 1 loss 9", "r1.log", 4]]],
  ["node-b", 2, "victim", 1, [[400000, 1, "retry 77", "r2.log"]]],
]));
