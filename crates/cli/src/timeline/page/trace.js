// The trace: the columns of numbers that the page was given, and what follows from them.

/** Operations lie in one another at most this deep; what is deeper shares the last row. */
const DEEPEST = 12;
/** The share of time that the overview shows is known for so many stretches. */
const STRETCHES = 2048;

class Trace {
  constructor(data) {
    Object.assign(this, {
      process: data.process,
      version: data.version,
      device: data.device,
      workers: data.workers,
      startUnixUs: data.startUnixUs,
      cutOff: data.cutOff,
      leftOut: data.leftOut,
      kinds: data.kinds,
      strings: data.strings,
    });
    const { operations, arrows } = data;
    this.count = operations.duration.length;
    this.start = sums(operations.start);
    this.end = this.start.map((start, op) => start + operations.duration[op]);
    this.track = Uint32Array.from(operations.track);
    this.name = Uint32Array.from(operations.name);
    this.kind = Uint8Array.from(operations.kind);
    this.number = Float64Array.from(operations.number);
    this.queued = Float64Array.from(operations.queued);
    this.waited = Float64Array.from(operations.waited);
    this.worker = Uint32Array.from(operations.worker);
    this.bytes = Float64Array.from(operations.bytes);
    this.site = Uint32Array.from(operations.site);
    this.failure = Uint32Array.from(operations.failure);
    this.skipped = Uint8Array.from(operations.skipped);
    this.waiting = this.kinds.indexOf("wait");
    this.tracks = data.tracks.map(([name, process], index) => ({ index, name, process, rows: [], operations: 0, busy: 0, queue: null }));
    this.arrows = new Arrows(arrows);
    this.counters = data.counters.map((counter) => new Counter(counter));
    this.length = Math.max(1, this.latest());
    this.arrange();
    this.sumUp();
    this.charts = this.counters.filter((counter) => !this.belongs(counter));
  }

  latest() {
    let latest = 0;
    for (const end of this.end) latest = Math.max(latest, end);
    for (const { times } of this.counters) latest = Math.max(latest, times.at(-1) ?? 0);
    return latest;
  }

  /** A counter is shown under the stream that it belongs to, the first of each stream. */
  belongs(counter) {
    const track = this.tracks[counter.track];
    if (track && !track.queue) track.queue = counter;
    return track?.queue === counter;
  }

  /** Shares out the operations of each stream over rows, so that those in one another lie below. */
  arrange() {
    const rows = this.tracks.map(() => []);
    this.row = new Uint8Array(this.count);
    for (let op = 0; op < this.count; op++) {
      const own = rows[this.track[op]];
      let depth = own.findIndex((row) => row.end <= this.start[op]);
      if (depth < 0) depth = Math.min(own.length, DEEPEST - 1);
      const row = (own[depth] ??= { operations: [], reach: [], end: 0 });
      row.end = Math.max(row.end, this.end[op]);
      row.operations.push(op);
      row.reach.push(row.end);
      this.row[op] = depth;
      this.tracks[this.track[op]].operations++;
    }
    for (const track of this.tracks) {
      track.rows = rows[track.index].map(({ operations, reach }) => ({
        operations: Uint32Array.from(operations),
        reach: Float64Array.from(reach), // up to where any operation so far lasts: it only grows
      }));
    }
  }

  /** How busy the streams were, and how much they overlapped. Waiting and skipped work does not run. */
  sumUp() {
    const covered = new Float64Array(this.tracks.length);
    const activity = new Activity(this.length);
    let [first, last, anyCovered] = [Infinity, 0, 0];
    Object.assign(this, { running: 0, sum: 0, failed: 0, skips: 0 });
    for (let op = 0; op < this.count; op++) {
      const [start, end, track] = [this.start[op], this.end[op], this.track[op]];
      first = Math.min(first, start);
      last = Math.max(last, end);
      if (this.failure[op]) this.failed++;
      if (this.skipped[op]) this.skips++;
      if (!this.ran(op)) continue;
      const own = Math.max(0, end - Math.max(start, covered[track]));
      activity.add(end - own, end);
      this.tracks[track].busy += own;
      this.sum += own;
      this.running += Math.max(0, end - Math.max(start, anyCovered));
      covered[track] = Math.max(covered[track], end);
      anyCovered = Math.max(anyCovered, end);
    }
    this.span = Math.max(1, last - first);
    this.activity = activity.finish();
  }

  ran(op) {
    return this.kind[op] !== this.waiting && !this.skipped[op];
  }

  duration(op) {
    return this.end[op] - this.start[op];
  }

  text(column, op) {
    return this.strings[this[column][op]];
  }

  /** What the operation is called: traces of other programs may leave the name out. */
  title(op) {
    return this.text("name", op) || this.kinds[this.kind[op]];
  }

  /** The operations that ran for the longest, longest first. */
  longest(count) {
    const ran = [];
    for (let op = 0; op < this.count; op++) if (this.ran(op)) ran.push(op);
    return ran.sort((a, b) => this.duration(b) - this.duration(a)).slice(0, count);
  }

  /** What ran, summed up by name and kind, the largest sum first. */
  byName() {
    const groups = new Map();
    for (let op = 0; op < this.count; op++) {
      if (!this.ran(op)) continue;
      const key = this.name[op] * this.kinds.length + this.kind[op];
      let group = groups.get(key);
      if (!group) groups.set(key, (group = { longest: op, count: 0, sum: 0 }));
      group.count++;
      group.sum += this.duration(op);
      if (this.duration(op) > this.duration(group.longest)) group.longest = op;
    }
    return [...groups.values()].sort((a, b) => b.sum - a.sum);
  }

  /** The operations whose name, file, failure or state has the text, in order. */
  matches(query) {
    const wanted = query.trim().toLowerCase();
    if (!wanted) return null;
    const has = Uint8Array.from(this.strings, (text) => text.toLowerCase().includes(wanted));
    const failed = "failed".startsWith(wanted) && wanted.length > 3;
    const skipped = "skipped".startsWith(wanted) && wanted.length > 3;
    const found = [];
    for (let op = 0; op < this.count; op++) {
      const hit = has[this.name[op]] || has[this.site[op]] || has[this.failure[op]];
      if (hit || (failed && this.failure[op]) || (skipped && this.skipped[op])) found.push(op);
    }
    return found;
  }

  /** The operation before (-1) or after (1) on the same stream. */
  beside(op, way) {
    for (let next = op + way; next >= 0 && next < this.count; next += way) {
      if (this.track[next] === this.track[op]) return next;
    }
    return op;
  }

  /** The operation of a stream that is the nearest to a time. */
  nearest(track, time) {
    let best = -1;
    let distance = Infinity;
    for (const { operations } of this.tracks[track]?.rows ?? []) {
      const at = firstWhere(operations.length, (i) => this.start[operations[i]] > time);
      for (const op of [operations[at - 1], operations[at]]) {
        if (op === undefined) continue;
        const away = Math.max(this.start[op] - time, time - this.end[op], 0);
        if (away < distance) [best, distance] = [op, away];
      }
    }
    return best;
  }
}

/** Waits between operations, in the order of their starts. */
class Arrows {
  constructor({ from, to, start, end }) {
    this.count = from.length;
    this.from = Uint32Array.from(from);
    this.to = Uint32Array.from(to);
    this.start = Float64Array.from(start);
    this.end = Float64Array.from(end);
    let reach = -Infinity;
    this.reach = this.start.map((start, i) => (reach = Math.max(reach, start, end[i])));
    this.of = new Map();
    for (let i = 0; i < this.count; i++) {
      for (const op of new Set([from[i], to[i]])) {
        if (!this.of.has(op)) this.of.set(op, []);
        this.of.get(op).push(i);
      }
    }
  }

  into = (op) => (this.of.get(op) ?? []).filter((i) => this.to[i] === op);
  outOf = (op) => (this.of.get(op) ?? []).filter((i) => this.from[i] === op);
}

/** So many samples of a counter in a row are summed up, for when they share a pixel. */
const BLOCK = 16;

/** Values over time; each holds until the next. What several series have is stacked. */
class Counter {
  constructor({ name, track, series, times, values }) {
    Object.assign(this, { name, track, series });
    this.times = sums(times);
    this.values = values.map((column) => Float64Array.from(column));
    // How high the areas are, one on the other.
    this.levels = [];
    for (const column of this.values) {
      const below = this.levels.at(-1);
      this.levels.push(below ? column.map((value, i) => value + below[i]) : column);
    }
    this.peaks = this.levels.map((level) => {
      const peaks = new Float64Array(Math.ceil(level.length / BLOCK)).fill(-Infinity);
      level.forEach((height, i) => {
        const block = Math.floor(i / BLOCK);
        peaks[block] = Math.max(peaks[block], height);
      });
      return peaks;
    });
    this.top = this.peaks.reduce((most, peaks) => peaks.reduce((most, peak) => Math.max(most, peak), most), 0);
    this.say = name.includes("memory") || name.includes("bytes") ? bytes : shortened;
  }

  /** What it said at a time: one text. */
  at(time) {
    const i = firstWhere(this.times.length, (i) => this.times[i] > time) - 1;
    const say = (column) => this.say(i < 0 ? 0 : column[i]);
    if (this.series.length === 1) return say(this.values[0]);
    return this.series.map((name, s) => `${name} ${say(this.values[s])}`).join(", ");
  }
}

/** How many streams ran in each stretch of time. */
class Activity {
  constructor(length) {
    this.width = length / STRETCHES;
    this.part = new Float64Array(STRETCHES + 1);
    this.change = new Float64Array(STRETCHES + 2);
  }

  add(from, to) {
    const [a, b] = [from / this.width, to / this.width];
    const [first, last] = [Math.floor(a), Math.min(STRETCHES, Math.floor(b))];
    if (first === last) {
      this.part[first] += b - a;
    } else {
      this.part[first] += first + 1 - a;
      this.part[last] += b - last;
      this.change[first + 1] += 1;
      this.change[last] -= 1;
    }
  }

  finish() {
    let whole = 0;
    return this.part.map((part, i) => part + (whole += this.change[i])).subarray(0, STRETCHES);
  }
}

/** Running sums: how times are written as steps. */
function sums(steps) {
  let sum = 0;
  return Float64Array.from(steps, (step) => (sum += step));
}

/** The first index for which a question, once true, stays true; `length` if it is never. */
function firstWhere(length, isTrue) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isTrue(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
