// The page's data block -> events in columns.
//
// The block is base64 of gzip of: the length of a JSON header (4 bytes, little endian), the header, and the columns one after
// the other. Numbers are LEB128 varints. Events lie lane by lane, in time order within a lane, so a lane's part of a window
// of time is found by two binary searches. Texts are templates and arguments; they are put together when somebody looks.

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
    Object.assign(this, { head, count, words: part.words, offsets: null });
    this.lanes = head.lanes.map(([host, rank, state, refused]) => ({ host, rank, state, refused: !!refused }));
    this.starts = new Uint32Array(head.lanes.length + 1);
    head.lanes.forEach((lane, i) => { this.starts[i + 1] = this.starts[i] + lane[4]; });
    this.shape = column("shape", Uint32Array);
    this.source = column("source", Uint32Array);
    this.sigma = Float32Array.from(column("sigma", Uint32Array), (i) => head.sigmas[i]);
    this.severity = Uint8Array.from(this.shape, (i) => head.shapes[i][1]);
    this.time = column("time", Float64Array);
    this.line = column("line", Float64Array);
    this.lane = new Uint32Array(count);
    for (let lane = 0; lane < this.lanes.length; lane++) {
      let time = 0;
      let line = 0;
      for (let i = this.starts[lane]; i < this.starts[lane + 1]; i++) {
        this.lane[i] = lane;
        time += this.time[i];
        line += unzigzag(this.line[i]);
        this.time[i] = time * head.unit;
        this.line[i] = line;
      }
    }
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

  /** Where the arguments of each event begin; found when the first text is wanted. */
  index() {
    const offsets = new Uint32Array(this.count + 1);
    let next = 1;
    for (let i = 0; i < this.words.length && next <= this.count; i++) if (this.words[i] === 10) offsets[next++] = i + 1;
    return offsets;
  }

  text(i) {
    this.offsets ??= this.index();
    const template = this.head.templates[this.head.shapes[this.shape[i]][0]];
    if (template.length === 1) return template[0];
    const line = UTF8.decode(this.words.subarray(this.offsets[i], this.offsets[i + 1] - 1)).split("\t");
    let out = template[0];
    for (let k = 1; k < template.length; k++) out += line[k - 1] + template[k];
    return out;
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
