// The page's data block -> events in columns.
//
// The block is base64 of gzip of: the length of a JSON header (4 bytes, little endian), the header, and the columns one after
// the other. Numbers are LEB128 varints. Events lie lane by lane, in time order within a lane, so a lane's part of a window
// of time is found by two binary searches. Texts are templates and what differs (postmortem/report/phrases.py); they are put
// together when somebody looks.

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

/** Read `count` varints; a gap in time may need more than 32 bits, hence no shifts. */
export function varints(bytes, from, count, out) {
  let at = from;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++];
    if (byte < 128) {
      out[i] = byte;
      continue;
    }
    let value = byte & 127;
    let scale = 128;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    out[i] = value;
  }
  return out;
}

const unzigzag = (n) => (n % 2 ? -(n + 1) / 2 : n / 2);

export function decode(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const part = {};
  let at = 4 + length;
  for (const [name, size] of head.columns) {
    part[name] = bytes.subarray(at, at + size);
    at += size;
  }
  return new Events(head, part);
}

export class Events {
  constructor(head, part) {
    const count = head.count;
    const column = (name, kind) => varints(part[name], 0, count, new kind(count));
    Object.assign(this, { head, count, part });
    this.lanes = head.lanes.map(([host, rank, state, refused]) => ({ host, rank, state, refused: !!refused }));
    this.starts = new Uint32Array(head.lanes.length + 1);
    head.lanes.forEach((lane, i) => { this.starts[i + 1] = this.starts[i] + lane[4]; });
    this.shape = column("shape", Uint32Array);
    this.source = column("source", Uint32Array);
    const sigma = column("sigma", Uint32Array);
    const severities = Uint8Array.from(head.shapes, (shape) => shape[1]);
    const sigmas = Float32Array.from(head.sigmas);
    this.sigma = new Float32Array(count);
    this.severity = new Uint8Array(count);
    this.time = column("time", Float64Array);
    this.line = column("line", Float64Array);
    this.lane = new Uint32Array(count);
    const { time: times, line: lines, lane: lanes, severity, shape } = this;
    for (let lane = 0; lane < this.lanes.length; lane++) {
      let [time, line] = [0, 0];
      for (let i = this.starts[lane], end = this.starts[lane + 1]; i < end; i++) {
        lanes[i] = lane;
        time += times[i];
        line += unzigzag(lines[i]);
        times[i] = time * head.unit;
        lines[i] = line;
        severity[i] = severities[shape[i]];
        this.sigma[i] = sigmas[sigma[i]];
      }
    }
    this.widest = Math.min(sigmas.reduce((most, one) => Math.max(most, one), 0), 86400);
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

  /** Where the arguments of each event begin in the three streams, and the numbers themselves; made when the first text is wanted. */
  index() {
    const { count, part, head } = this;
    const offsets = { words: new Uint32Array(count), digits: new Uint32Array(count), numbers: new Uint32Array(count) };
    const raw = part.numbers; // as many numbers as bytes that end one
    const values = varints(raw, 0, raw.reduce((sum, byte) => sum + (byte < 128 ? 1 : 0), 0), []);
    let [word, digit, number] = [0, 0, 0];
    for (let lane = 0; lane < this.lanes.length; lane++) {
      const last = new Map();
      for (let i = this.starts[lane]; i < this.starts[lane + 1]; i++) {
        const which = head.shapes[this.shape[i]][0];
        const before = last.get(which);
        const mine = number;
        offsets.words[i] = word;
        offsets.digits[i] = digit;
        offsets.numbers[i] = number;
        for (const slot of head.templates[which][1]) {
          if (!slot) word = part.words.indexOf(10, word) + 1;
          else if (slot[2]) {
            values[number] = unzigzag(values[number]) + (before === undefined ? 0 : values[before + number - mine]);
            number += 1;
          } else digit += slot[0] + Math.max(slot[1], 0);
        }
        last.set(which, mine);
      }
    }
    return { ...offsets, values };
  }

  text(i) {
    const [literals, slots] = this.head.templates[this.head.shapes[this.shape[i]][0]];
    if (!slots.length) return literals[0];
    const index = (this.indexed ??= this.index());
    let [word, digit, number] = [index.words[i], index.digits[i], index.numbers[i]];
    let out = literals[0];
    slots.forEach((slot, k) => {
      if (!slot) {
        const end = this.part.words.indexOf(10, word);
        out += UTF8.decode(this.part.words.subarray(word, end));
        word = end + 1;
      } else {
        const [whole, behind, counts] = slot;
        const wide = whole + Math.max(behind, 0);
        const digits = counts ? String(index.values[number++]).padStart(wide, "0") : UTF8.decode(this.part.digits.subarray(digit, digit + wide));
        if (!counts) digit += wide;
        out += behind < 0 ? digits : `${digits.slice(0, whole)}.${digits.slice(whole)}`;
      }
      out += literals[k + 1];
    });
    return out;
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

  who(i) {
    const { host, rank } = this.lanes[this.lane[i]];
    const name = this.head.hosts[host];
    return rank === null ? name || "no rank" : `rank ${rank}${name ? ` on ${name}` : ""}`;
  }
}

const UTF8 = new TextDecoder();
