// Where things are on the canvas, in CSS pixels.

const OVERVIEW = 34;
const AXIS = 24;
const ROW = 22;
const QUEUE = 15;
const GAP = 6;
const CHART = 46;
/** Charts that belong to no stream stay in sight, so there may only be a few. */
const CHARTS = 3;

class Layout {
  constructor(trace) {
    this.trace = trace;
    this.top = OVERVIEW + AXIS;
    this.charts = trace.charts.slice(0, CHARTS);
    let y = GAP / 2;
    this.tops = trace.tracks.map((track) => {
      const top = y;
      y += this.heightOf(track);
      return top;
    });
    this.total = y + GAP / 2;
    this.scroll = 0;
    this.resize(0, 0);
  }

  heightOf(track) {
    return track.rows.length * ROW + (track.queue ? QUEUE : 0) + GAP;
  }

  /** What the canvas would need to show everything. */
  get wanted() {
    return this.top + this.total + this.charts.length * CHART;
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.left = width < 620 ? 132 : 188;
    this.right = Math.max(this.left + 1, width - 14);
    this.bottom = Math.max(this.top, height - this.charts.length * CHART);
    this.scrollTo(this.scroll);
  }

  /** How many pixels the streams have. */
  get room() {
    return this.bottom - this.top;
  }

  scrollTo(y) {
    const before = this.scroll;
    this.scroll = Math.round(Math.min(Math.max(0, y), Math.max(0, this.total - this.room)));
    return this.scroll !== before;
  }

  /** Scrolls just as far as is needed to see a stream. */
  reveal(track) {
    const top = this.tops[track];
    const bottom = top + this.heightOf(this.trace.tracks[track]);
    if (top < this.scroll) this.scrollTo(top - GAP);
    else if (bottom > this.scroll + this.room) this.scrollTo(bottom - this.room + GAP);
  }

  /** Where a stream begins on the canvas. */
  y(track) {
    return this.top + this.tops[track] - this.scroll;
  }

  /** The first and the last stream in sight. */
  visible() {
    const below = (y) => firstWhere(this.tops.length, (track) => this.tops[track] > y);
    return [Math.max(0, below(this.scroll) - 1), below(this.scroll + this.room) - 1];
  }

  /** The stream at a place, and which of its rows; nothing between and beside them. */
  at(y) {
    if (y < this.top || y >= this.bottom) return null;
    const place = y - this.top + this.scroll;
    const index = firstWhere(this.tops.length, (track) => this.tops[track] > place) - 1;
    const track = this.trace.tracks[index];
    if (!track) return null;
    return { track, row: Math.floor((place - this.tops[index]) / ROW) };
  }
}
