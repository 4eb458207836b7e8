// The page's data block -> events in columns.
//
// The block is base64 of gzip of JSON (postmortem/report/columns.py). Events lie lane by lane, in time order within a lane, so a
// lane's part of a window of time is found by two binary searches. Times and lines are differences to the one before. Texts are
// templates and columns of numbers; they are put together when somebody looks.

export const BROAD = 30; // seconds of error from which on a line has no place on the clock, as in postmortem/report/text.py
export const SEVERITIES = ["info", "warning", "error", "fatal"];

/** Decompress the block. Browsers that cannot (before 2023) throw, and keep the picture that is in the page. */
export async function unpack(base64) {
  const raw = atob(base64);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function decode(bytes) {
  return new Events(JSON.parse(new TextDecoder().decode(bytes)));
}

export class Events {
  constructor(head) {
    const count = head.shape.length;
    Object.assign(this, { head, count });
    this.lanes = head.lanes.map(([host, rank, state, refused]) => ({ host, rank, state, refused: !!refused }));
    this.starts = new Uint32Array(head.lanes.length + 1);
    head.lanes.forEach((lane, i) => { this.starts[i + 1] = this.starts[i] + lane[4]; });
    this.shape = Uint32Array.from(head.shape);
    this.source = Uint32Array.from(head.source);
    this.sigma = Float32Array.from(head.sigma, (sigma) => head.sigmas[sigma]);
    this.severity = Uint8Array.from(head.shape, (shape) => head.shapes[shape][1]);
    this.time = new Float64Array(count);
    this.line = new Float64Array(count);
    this.lane = new Uint32Array(count);
    for (let lane = 0; lane < this.lanes.length; lane++) {
      let [time, line] = [0, 0];
      for (let i = this.starts[lane], end = this.starts[lane + 1]; i < end; i++) {
        this.lane[i] = lane;
        this.time[i] = (time += head.time[i]) * head.unit;
        this.line[i] = line += head.line[i];
      }
    }
    this.widest = Math.min(head.sigmas.reduce((most, one) => Math.max(most, one), 0), 86400);
  }

  /** The first event of a lane at or after `time`; the end of the lane if there is none. */
  from(lane, time) {
    let low = this.starts[lane];
    let high = this.starts[lane + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The texts' parts: of each template its words and its first column of numbers, of each event its place in those columns. */
  index() {
    const { templates, shapes, numbers } = this.head;
    const words = templates.map((template) => template.split("\0"));
    const first = [0];
    words.forEach((parts, i) => first.push(first[i] + parts.length - 1));
    const seen = new Uint32Array(templates.length);
    const place = Uint32Array.from(this.shape, (shape) => seen[shapes[shape][0]]++);
    return { words, first, place, columns: numbers.map((column) => column.split(",")) };
  }

  text(i) {
    const { words, first, place, columns } = (this.indexed ??= this.index()); // made when the first text is wanted
    const template = this.head.shapes[this.shape[i]][0];
    return words[template].reduce((out, word, k) => out + columns[first[template] + k - 1][place[i]] + word);
  }

  /** Whether a mark at one moment would lie. */
  broad(i) {
    return this.sigma[i] >= BROAD && this.severity[i] > 0;
  }

  pattern(i) {
    return this.head.patterns[this.head.shapes[this.shape[i]][2]];
  }

  family(i) {
    return this.head.sources[this.source[i]][1];
  }

  address(i) {
    const path = this.head.sources[this.source[i]][0];
    return this.line[i] ? `${path}:${this.line[i]}` : path;
  }

  /** The name of a host's row; ranks whose host no line names have none. */
  host(row) {
    return this.head.hosts[row.host] || (this.lanes[row.from].rank === null ? this.head.nameless : "ranks");
  }

  who(i) {
    const { host, rank } = this.lanes[this.lane[i]];
    const name = this.head.hosts[host];
    return rank === null ? name || this.head.nameless : `rank ${rank}${name ? ` on ${name}` : ""}`;
  }
}
