// Drawing. Only what is in sight is looked at, and what is narrower than a few pixels is summed up
// in columns of one pixel, so that the number of operations hardly matters.

/** Narrower operations, in device pixels, become columns. */
const NARROW = 3;
/** More arrows than this are drawn faintly and without heads. */
const MANY_ARROWS = 250;
/** Even more would hide what they explain: then only those of one operation are drawn. */
const MOST_ARROWS = 600;
/** With more than this in the stretch of time, nobody needs to look for those in sight. */
const SOUGHT_ARROWS = 20_000;

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
const SMALL = FONT.replace("11px", "10px");

/** How operations look: as their kind, or one of these. */
const FAILED = 8;
const SKIPPED = 9;
const DIM = 10;

class Scene {
  /** `state` says what is hovered, selected and found, and where the pointer is. */
  constructor(canvas, trace, view, layout, state) {
    Object.assign(this, { canvas, trace, view, layout, state });
    this.context = canvas.getContext("2d", { alpha: false });
    this.columns = new Columns();
    this.widths = new Map();
    this.most = trace.activity.reduce((most, share) => Math.max(most, share), 0);
    this.failures = [];
    this.own = trace.kind.map((kind, op) => (trace.failure[op] ? FAILED : trace.skipped[op] ? SKIPPED : kind));
    for (let op = 0; op < trace.count; op++) if (trace.failure[op]) this.failures.push(op);
    this.recolour();
  }

  /** Reads the colours of the page again. */
  recolour() {
    const probe = document.body.appendChild(document.createElement("i"));
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const names = "page raised line grid text muted accent accent-soft shade ink failed failed-ink skipped dim area area-2 area-line";
    this.colours = Object.fromEntries(names.split(" ").map((name) => [name, read(name)]));
    const { failed, skipped, dim } = this.colours;
    this.looks = [...this.trace.kinds.map((kind) => read(`kind-${kind}`)), failed, skipped, dim];
    probe.remove();
    this.columns.recolour(this.looks, this.trace.waiting);
    this.patterns = null;
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    this.ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    this.layout.resize(clientWidth, clientHeight);
    this.patterns = null;
  }

  /** Draws everything. */
  draw() {
    const { context, layout, view, ratio } = this;
    this.drawn = { visited: 0, slices: 0, columns: 0, labels: 0, arrows: 0 };
    this.width = layout.right - layout.left;
    this.scale = this.width / view.span;
    this.patterns ??= this.makePatterns();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = "middle";
    context.fillStyle = this.colours.page;
    context.fillRect(0, 0, layout.width, layout.height);
    this.drawAxis();
    this.clipped(layout.top, layout.bottom, () => {
      this.drawStreams();
      this.drawArrows();
      this.drawMarked();
    });
    this.drawOverview();
    this.drawCharts();
    this.drawNames();
    this.drawPointer();
  }

  x(time) {
    return this.layout.left + (time - this.view.from) * this.scale;
  }

  time(x) {
    return this.view.from + (x - this.layout.left) / this.scale;
  }

  /** Runs `draw` with everything beside the time axis, above and below left alone. */
  clipped(top, bottom, draw) {
    const { context, layout } = this;
    context.save();
    context.beginPath();
    context.rect(layout.left, top, this.width, bottom - top);
    context.clip();
    draw();
    context.restore();
  }

  snap(value) {
    return Math.round(value * this.ratio) / this.ratio;
  }

  line(x0, y0, x1, y1, colour) {
    const { context, ratio } = this;
    context.fillStyle = colour;
    const thin = 1 / ratio;
    context.fillRect(this.snap(x0), this.snap(y0), Math.max(thin, x1 - x0), Math.max(thin, y1 - y0));
  }

  /** Writes a text where it has so much room, shortened if need be; says how wide it became. */
  write(text, x, y, room, colour, font = FONT, align = "left") {
    const { context } = this;
    const shown = this.shortened(text, room, font);
    if (!shown) return 0;
    context.font = font;
    context.textAlign = align;
    context.fillStyle = colour;
    context.fillText(shown, x, y);
    this.drawn.labels++;
    return shown === text ? this.measure(text, font) : room;
  }

  shortened(text, room, font) {
    const width = this.measure(text, font);
    if (width <= room) return text;
    const kept = Math.floor((room / width) * text.length) - 1;
    return kept < 2 ? "" : `${text.slice(0, kept)}…`;
  }

  measure(text, font) {
    const key = font === SMALL ? `\u0000${text}` : text;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size > 50_000) this.widths.clear();
      this.context.font = font;
      // A text of a megabyte has no room anywhere: its beginning is long enough to know.
      const start = text.slice(0, 400);
      width = (this.context.measureText(start).width * text.length) / Math.max(1, start.length);
      this.widths.set(key, width);
    }
    return width;
  }

  makePatterns() {
    const { context } = this;
    const hatch = (colour, size, back) => {
      const side = Math.round(size * this.ratio);
      const tile = new OffscreenCanvas(side, side);
      const c = tile.getContext("2d");
      if (back) {
        c.fillStyle = back;
        c.fillRect(0, 0, side, side);
      }
      c.strokeStyle = colour;
      c.lineWidth = this.ratio;
      c.beginPath();
      for (const shift of [-side, 0, side]) {
        c.moveTo(shift - 1, side + 1);
        c.lineTo(shift + side + 1, -1);
      }
      c.stroke();
      const pattern = context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / this.ratio));
      return pattern;
    };
    const { failed, dim } = this.colours;
    return {
      wait: hatch(this.looks[this.trace.waiting], 6),
      failed: hatch("#ffffff66", 5, failed),
      dim: hatch(dim, 6),
    };
  }

  // The time axis

  drawAxis() {
    const { context, layout, view, colours } = this;
    const step = niceStep((104 / this.width) * view.span);
    const latest = Math.max(view.to, -view.from);
    const y = layout.top - AXIS / 2;
    context.fillStyle = colours.raised;
    context.fillRect(0, OVERVIEW, layout.width, AXIS);
    for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) {
      const x = this.x(n * step);
      this.line(x, layout.top - 5, x, layout.height, colours.grid);
      if (x + 8 < layout.right) this.write(moment(n * step, step, latest), x + 4, y, 100, colours.muted, SMALL);
    }
    this.line(0, layout.top, layout.width, layout.top, colours.line);
  }

  // The streams

  drawStreams() {
    const { trace, layout } = this;
    const [first, last] = layout.visible();
    const rows = [];
    this.marks = [];
    this.waits = [];
    for (let index = first; index <= last; index++) {
      const track = trace.tracks[index];
      const y = layout.y(index);
      track.rows.forEach((row, depth) => rows.push({ row, y: y + depth * ROW + 1 }));
      if (track.queue) this.area(track.queue, y + track.rows.length * ROW, QUEUE - 1);
    }
    this.columns.begin(Math.ceil(this.width * this.ratio), rows.length);
    rows.forEach(({ row, y }, index) => this.drawRow(row, y, index));
    this.drawn.columns = this.columns.paint(this.context, layout.left, this.ratio, rows.map(({ y }) => y), ROW - 3);
    this.drawWaits();
    for (const [x, y] of this.marks) this.mark(x, y);
  }

  drawRow({ operations, reach }, y, index) {
    const { view: { from, to }, columns, own, trace: { start, end } } = this;
    const found = this.state.found?.has;
    const scale = this.scale * this.ratio;
    const first = firstWhere(reach.length, (i) => reach[i] >= from);
    let marked = -Infinity;
    let i = first;
    for (; i < operations.length; i++) {
      const op = operations[i];
      if (start[op] > to) break;
      const x0 = (start[op] - from) * scale;
      const x1 = (end[op] - from) * scale;
      const look = found && !found[op] ? DIM : own[op];
      if (x1 - x0 >= NARROW) this.drawSlice(op, look, x0, x1, y);
      else columns.add(x0, x1, look);
      if (own[op] === FAILED && x0 - marked > 6 && x1 >= 0) {
        marked = x0;
        this.marks.push([this.layout.left + Math.max(0, x0) / this.ratio, y]);
      }
    }
    this.drawn.visited += i - first;
    columns.end(index);
  }

  drawSlice(op, look, x0, x1, y) {
    const { context, trace, ratio, layout, colours } = this;
    const start = Math.round(Math.max(x0, -8));
    const end = Math.round(Math.min(x1, this.width * ratio + 8)) - (x1 - x0 > 5 ? 1 : 0);
    const [x, width, height] = [layout.left + start / ratio, (end - start) / ratio, ROW - 3];
    this.drawn.slices++;
    let ink = colours.ink;
    if (look === FAILED) {
      context.fillStyle = this.patterns.failed;
      ink = colours["failed-ink"];
    } else if (trace.kind[op] === trace.waiting && look !== SKIPPED) {
      return void this.waits.push({ op, look, x, y, width });
    } else {
      context.fillStyle = look === SKIPPED ? colours.page : this.looks[look];
      if (look === SKIPPED || look === DIM) ink = colours.muted;
    }
    context.fillRect(x, y, width, height);
    if (look === SKIPPED) this.outline(x, y, width, height);
    if (width > 26) this.label(op, look, Math.max(x, layout.left), x + width, y + height / 2 + 0.5, ink);
  }

  /** Waiting is no work: slim bands, all at once since patterns are slow to begin with. */
  drawWaits() {
    const { context, patterns } = this;
    for (const dim of [false, true]) {
      const waits = this.waits.filter(({ look }) => (look === DIM) === dim);
      if (!waits.length) continue;
      context.fillStyle = dim ? patterns.dim : patterns.wait;
      context.beginPath();
      for (const { x, y, width } of waits) context.rect(x, y + 6, width, ROW - 15);
      context.fill();
    }
    for (const wait of this.waits) if (wait.width > 80) this.labelWait(wait);
  }

  labelWait({ op, look, x, y, width }) {
    const { context, colours, layout } = this;
    const from = Math.max(x, layout.left);
    const room = Math.min(x + width, layout.right) - from - 24;
    const text = `${this.trace.title(op)} ${duration(this.trace.duration(op))}`;
    const wide = this.measure(text, SMALL);
    if (wide > room) return;
    context.fillStyle = colours.page;
    context.fillRect(from + 8, y, wide + 8, ROW - 3);
    this.write(text, from + 12, y + (ROW - 3) / 2 + 0.5, room, look === DIM ? colours.dim : colours.muted, SMALL);
  }

  /** The dashed edge of what was skipped. */
  outline(x, y, width, height) {
    const { context, ratio } = this;
    const half = 0.5 / ratio;
    context.strokeStyle = this.colours.skipped;
    context.lineWidth = 1 / ratio;
    context.setLineDash([3, 2]);
    context.strokeRect(x + half, y + half, width - 2 * half, height - 2 * half);
    context.setLineDash([]);
  }

  /** The name of an operation, and how long it took if there is room for that too. */
  label(op, look, from, to, y, ink) {
    const { trace, context } = this;
    const room = Math.min(to, this.layout.right) - from - 9;
    const prefix = look === FAILED ? "✕ " : "";
    if (look === FAILED) {
      // The hatching must not make the name hard to read.
      const width = Math.min(room + 4, this.measure(prefix + trace.title(op), FONT) + 5);
      context.fillStyle = this.colours.failed;
      if (width > 20) context.fillRect(from + 2, y - 8, width, 15);
    }
    const width = this.write(prefix + trace.title(op), from + 5, y, room, ink);
    const time = duration(trace.duration(op));
    const left = room - width - 12;
    if (!width || this.measure(time, SMALL) > left) return;
    context.globalAlpha = 0.65;
    this.write(time, from + 5 + width + 8, y, left + 4, ink, SMALL);
    context.globalAlpha = 1;
  }

  /** A notch above what failed: it stays in sight when the operation itself is less than a pixel. */
  mark(x, y) {
    const { context } = this;
    context.fillStyle = this.colours.failed;
    context.beginPath();
    context.moveTo(x - 4, y - 3);
    context.lineTo(x + 4, y - 3);
    context.lineTo(x, y + 3);
    context.fill();
  }

  // The waits

  drawArrows() {
    const { trace, view, layout, state } = this;
    const { arrows } = trace;
    const [high, low] = layout.visible();
    const paths = [];
    const latest = new Map();
    const first = firstWhere(arrows.count, (i) => arrows.reach[i] >= view.from);
    const end = firstWhere(arrows.count, (i) => arrows.start[i] > view.to);
    for (let i = first; i < end && end - first <= SOUGHT_ARROWS; i++) {
      const [from, to] = [trace.track[arrows.from[i]], trace.track[arrows.to[i]]];
      const place = from * trace.tracks.length + to;
      if (Math.max(from, to) < high || Math.min(from, to) > low) continue;
      const x = this.x(arrows.end[i]);
      if (Math.abs(x - (latest.get(place) ?? -Infinity)) < 4) continue;
      latest.set(place, x);
      paths.push(this.ends(i));
    }
    const many = paths.length > MANY_ARROWS;
    if (paths.length <= MOST_ARROWS) this.strokeArrows(paths, this.colours.muted, 1, many ? 0.3 : 0.6, !many);
    for (const op of new Set([state.selected, state.hovered])) {
      const own = arrows.of.get(op);
      if (own) this.strokeArrows(own.slice(0, MANY_ARROWS).map((i) => this.ends(i)), this.colours.accent, 1.75, 1, true);
    }
  }

  ends(i) {
    const { arrows } = this.trace;
    return [this.x(arrows.start[i]), this.middle(arrows.from[i]), this.x(arrows.end[i]), this.middle(arrows.to[i])];
  }

  /** The height at which an operation lies. */
  middle(op) {
    return this.layout.y(this.trace.track[op]) + (this.trace.row[op] + 0.5) * ROW;
  }

  strokeArrows(paths, colour, width, alpha, heads) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    for (const [x0, y0, x1, y1] of paths) {
      const bend = Math.min(60, Math.max(10, Math.abs(x1 - x0) / 2));
      const tip = heads ? x1 - 4 : x1;
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0, tip - bend, y1, tip, y1);
    }
    context.stroke();
    if (heads) {
      context.beginPath();
      for (const [, , x, y] of paths) {
        context.moveTo(x, y);
        context.lineTo(x - 6, y - 3.5);
        context.lineTo(x - 6, y + 3.5);
      }
      context.fill();
    }
    context.globalAlpha = 1;
    this.drawn.arrows += paths.length;
  }

  /** Frames around what is hovered and what is selected. */
  drawMarked() {
    const { context, state, colours } = this;
    for (const [op, width, colour] of [[state.hovered, 1, colours.text], [state.selected, 2, colours.accent]]) {
      if (op < 0) continue;
      const [x0, x1] = [this.x(this.trace.start[op]), this.x(this.trace.end[op])];
      const wide = Math.max(4, x1 - x0);
      const x = (x0 + x1 - wide) / 2;
      const y = this.middle(op) - ROW / 2 + 1;
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(this.snap(x) - width / 2, y - width / 2, wide + width - 1, ROW - 3 + width);
    }
  }

  // Counters

  /** A counter as areas between `top` and `top + height`, the highest of each pixel. */
  area(counter, top, height) {
    const { view, layout, context, colours, scale: wide } = this;
    const { times, levels } = counter;
    const pixels = Math.ceil(this.width);
    const first = Math.max(0, firstWhere(times.length, (i) => times[i] > view.from) - 1);
    const end = firstWhere(times.length, (i) => times[i] > view.to);
    const place = (time) => Math.min(pixels - 1, Math.max(0, Math.floor((time - view.from) * wide)));
    const peaks = levels.map((level, series) => {
      const peak = new Float64Array(pixels);
      for (let i = first, from = first < end ? place(times[i]) : 0; i < end; ) {
        const block = i % BLOCK === 0 && i + BLOCK < end && place(times[i + BLOCK]) === from;
        const height = block ? counter.peaks[series][i / BLOCK] : level[i];
        i += block ? BLOCK : 1;
        const to = place(i < times.length ? times[i] : this.trace.length);
        for (let pixel = from; pixel <= to; pixel++) if (height > peak[pixel]) peak[pixel] = height;
        from = to;
      }
      return peak;
    });
    const scale = counter.top > 0 ? (height - 1) / counter.top : 0;
    for (let series = levels.length - 1; series >= 0; series--) {
      context.fillStyle = series % 2 ? colours["area-2"] : colours.area;
      this.fillArea(peaks[series], layout.left, top + height, scale);
    }
  }

  /** Fills below levels that are one pixel wide each. */
  fillArea(levels, left, bottom, scale) {
    const { context } = this;
    let last = bottom;
    context.beginPath();
    context.moveTo(left, bottom);
    for (let pixel = 0; pixel < levels.length; pixel++) {
      const y = this.snap(bottom - Math.max(0, levels[pixel]) * scale);
      if (y === last) continue;
      context.lineTo(left + pixel, last);
      context.lineTo(left + pixel, y);
      last = y;
    }
    context.lineTo(left + levels.length, last);
    context.lineTo(left + levels.length, bottom);
    context.fill();
  }

  drawCharts() {
    const { layout, colours, context } = this;
    context.fillStyle = colours.page;
    context.fillRect(0, layout.bottom, layout.left, layout.height - layout.bottom);
    layout.charts.forEach((chart, index) => {
      const top = layout.bottom + index * CHART;
      this.clipped(top, top + CHART, () => this.area(chart, top + 5, CHART - 6));
      this.line(0, top, layout.width, top, colours.line);
    });
  }

  // Beside and above

  drawNames() {
    const { context, trace, layout, colours, state } = this;
    const [first, last] = layout.visible();
    const room = layout.left - 24;
    context.save();
    context.beginPath();
    context.rect(0, layout.top + 1, layout.left, layout.height);
    context.clip();
    context.fillStyle = colours.page;
    context.fillRect(0, layout.top, layout.left, layout.height);
    for (let index = first; index <= last; index++) {
      const track = trace.tracks[index];
      const y = layout.y(index);
      const chosen = state.selected >= 0 && trace.track[state.selected] === index;
      if (chosen) {
        context.fillStyle = colours.accent;
        context.fillRect(0, y + 1, 3, ROW - 3);
      }
      const share = track.busy / trace.span;
      this.write(percent(share), layout.left - 10, y + 9, 50, colours.muted, SMALL, "right");
      this.write(track.name, 12, y + 9, room - 34, colours.text);
      context.fillStyle = colours.grid;
      context.fillRect(12, y + 17, layout.left - 22, 2);
      context.fillStyle = colours["area-line"];
      context.fillRect(12, y + 17, (layout.left - 22) * share, 2);
      if (track.queue) this.drawQueueName(track, y + track.rows.length * ROW + QUEUE / 2);
    }
    context.fillStyle = colours.page;
    context.fillRect(0, layout.bottom, layout.left, layout.height);
    layout.charts.forEach((chart, index) => this.drawChartName(chart, layout.bottom + index * CHART));
    context.restore();
    this.line(layout.left, 0, layout.left, layout.height, colours.line);
  }

  drawQueueName({ queue }, y) {
    const { layout, colours } = this;
    const value = queue.at(this.moment());
    this.write("queued", 12, y, 60, colours.muted, SMALL);
    this.write(value, layout.left - 10, y, 60, colours.muted, SMALL, "right");
  }

  drawChartName(chart, top) {
    const { layout, colours } = this;
    const room = layout.left - 20;
    this.line(0, top, layout.left, top, colours.line);
    this.write(chart.name, 12, top + 13, room, colours.text);
    const most = `≤ ${chart.say(chart.top)}`;
    const left = room - this.measure(chart.name, FONT) - 8;
    if (this.measure(most, SMALL) <= left) this.write(most, layout.left - 10, top + 13, left, colours.muted, SMALL, "right");
    this.write(chart.at(this.moment()), 12, top + 30, room, colours.muted, SMALL);
  }

  /** The time that values are told for: that under the pointer, else the last in sight. */
  moment() {
    const { pointer } = this.state;
    const inside = pointer && pointer.x >= this.layout.left && pointer.x <= this.layout.right;
    return inside ? this.time(pointer.x) : Math.min(this.view.to, this.trace.length);
  }

  /** The whole trace in small: how many streams ran, what failed, and the stretch in view. */
  drawOverview() {
    const { context, layout, trace, view, colours } = this;
    context.fillStyle = colours.page;
    context.fillRect(0, 0, layout.width, OVERVIEW);
    const pixels = Math.ceil(this.width);
    const levels = new Float64Array(pixels);
    const [least, most] = view.whole();
    const place = (time) => ((time - least) / (most - least)) * this.width;
    const stretch = trace.length / STRETCHES;
    for (let i = 0; i < STRETCHES; i++) {
      const from = Math.max(0, Math.floor(place(i * stretch)));
      const to = Math.min(pixels - 1, Math.floor(place((i + 1) * stretch)));
      for (let pixel = from; pixel <= to; pixel++) levels[pixel] = Math.max(levels[pixel], trace.activity[i]);
    }
    context.fillStyle = colours.area;
    this.fillArea(levels, layout.left, OVERVIEW, this.most > 0 ? (OVERVIEW - 6) / this.most : 0);
    let marked = -Infinity;
    for (const op of this.failures) {
      const x = place(trace.start[op]);
      if (x - marked < 2) continue;
      marked = x;
      this.line(layout.left + x, 2, layout.left + x, 8, colours.failed);
    }
    const [from, to] = [layout.left + place(view.from), layout.left + place(view.to)];
    context.fillStyle = colours.shade;
    context.fillRect(layout.left, 0, from - layout.left, OVERVIEW);
    context.fillRect(to, 0, layout.right - to, OVERVIEW);
    context.fillStyle = colours.accent;
    const wide = Math.max(2, to - from);
    context.fillRect(from, OVERVIEW - 2, wide, 2);
    this.write("running", 12, OVERVIEW / 2, layout.left - 50, colours.muted, SMALL);
    this.write(`≤ ${Math.ceil(this.most - 1e-6)}`, layout.left - 10, OVERVIEW / 2, 40, colours.muted, SMALL, "right");
    this.line(0, OVERVIEW, layout.width, OVERVIEW, colours.line);
  }

  /** The time under the pointer. */
  drawPointer() {
    const { context, layout, state, colours } = this;
    if (!state.pointer || state.pointer.x < layout.left || state.pointer.x > layout.right || state.pointer.y < OVERVIEW) return;
    const { x } = state.pointer;
    const text = moment(this.time(x), niceStep(this.view.span / this.width), Math.max(this.view.to, -this.view.from));
    const width = this.measure(text, SMALL) + 12;
    const left = Math.min(Math.max(x - width / 2, layout.left + 1), layout.right - width);
    context.globalAlpha = 0.5;
    this.line(x, layout.top, x, layout.height, colours.text);
    context.globalAlpha = 1;
    context.fillStyle = colours.text;
    context.fillRect(left, OVERVIEW + 4, width, AXIS - 8);
    this.write(text, left + 6, layout.top - AXIS / 2, width, colours.page, SMALL);
  }

  /** The operation at a place, and how many others share that place. */
  hit(x, y) {
    const { trace, layout } = this;
    const place = layout.at(y);
    const row = place?.track.rows[place.row];
    if (!row || x < layout.left || x > layout.right) return null;
    const [early, time, late] = [this.time(x - 2), this.time(x), this.time(x + 2)];
    let best = -1;
    let merit = -Infinity;
    let count = 0;
    for (let i = firstWhere(row.reach.length, (i) => row.reach[i] >= early); i < row.operations.length; i++) {
      const op = row.operations[i];
      if (trace.start[op] > late) break;
      if (trace.end[op] < early) continue;
      count++;
      // Narrow ones are hard to meet, so they come before a wide neighbour; what failed, before all.
      const exact = trace.start[op] <= time && time <= trace.end[op];
      const narrow = trace.duration(op) * this.scale < NARROW;
      const own = (narrow ? (trace.failure[op] ? 4 : 2) : 0) + (exact ? 1 : 0) + trace.duration(op) / (trace.length + 1);
      if (own > merit) [best, merit] = [op, own];
    }
    return best < 0 ? null : { op: best, others: count - 1 };
  }
}

/** Columns of one device pixel: what runs there the longest, and for how much of the time. */
class Columns {
  constructor() {
    this.width = this.rows = 0;
  }

  recolour(looks, waiting) {
    this.weights = looks.map((_, look) => (look === FAILED ? 1e6 : look === DIM ? 1e-6 : look === waiting ? 1e-3 : 1));
    this.waiting = waiting;
    this.colours = Uint32Array.from(looks, (colour) => {
      const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
      return (blue << 16) | (green << 8) | red;
    });
  }

  /** Gets ready for so many rows. */
  begin(width, rows) {
    if (width !== this.width) {
      this.cover = new Float32Array(width);
      this.best = new Float32Array(width);
      this.look = new Uint8Array(width);
    }
    if (width !== this.width || rows > this.rows) {
      this.canvas = new OffscreenCanvas(Math.max(1, width), Math.max(1, rows));
      this.context = this.canvas.getContext("2d");
      this.image = this.context.createImageData(Math.max(1, width), Math.max(1, rows));
      this.words = new Uint32Array(this.image.data.buffer);
      [this.width, this.rows] = [width, rows];
    }
    this.words.fill(0);
    this.filled = 0;
    [this.first, this.last] = [Infinity, -1];
  }

  /** Adds what lies between two places, which are less than a few pixels apart. */
  add(x0, x1, look) {
    const from = Math.max(0, Math.floor(x0));
    const to = Math.min(this.width - 1, Math.floor(Math.max(x0, x1)));
    if (from > to) return;
    const { cover, best } = this;
    // What failed stays in sight whatever is beside it, and work hides waiting.
    const weight = this.weights[look];
    for (let pixel = from; pixel <= to; pixel++) {
      const part = Math.max(0.02, Math.min(x1, pixel + 1) - Math.max(x0, pixel));
      cover[pixel] += look === this.waiting ? 1e-3 : part;
      if (part * weight > best[pixel]) {
        best[pixel] = part * weight;
        this.look[pixel] = look;
      }
    }
    if (from < this.first) this.first = from;
    if (to > this.last) this.last = to;
  }

  /** Ends a row: its columns become pixels. */
  end(row) {
    for (let pixel = this.first; pixel <= this.last; pixel++) {
      const cover = this.cover[pixel];
      if (cover === 0) continue;
      const look = this.look[pixel];
      const strength = look === FAILED ? 1 : 0.3 + 0.7 * Math.min(1, cover);
      const alpha = Math.round(255 * (look === SKIPPED ? 0.6 : look === this.waiting ? 0.3 : 1) * strength);
      this.words[row * this.width + pixel] = (alpha << 24) | this.colours[look];
      this.cover[pixel] = this.best[pixel] = 0;
      this.filled++;
    }
    [this.first, this.last] = [Infinity, -1];
  }

  /** Draws all rows, each as high as an operation; says how many columns had something. */
  paint(context, left, ratio, tops, height) {
    if (this.filled === 0) return 0;
    this.context.putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    tops.forEach((y, row) => context.drawImage(this.canvas, 0, row, this.width, 1, left, y, this.width / ratio, height));
    return this.filled;
  }
}

/** The least of 1, 2, 5, 10, … that is not below `least`. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].find((factor) => factor * power >= least) * power;
}
