// The stretch of time that is shown.

/** Nobody needs less than this on the screen, in nanoseconds. */
const SHORTEST = 20;
/** How long a movement takes, in milliseconds. */
const GLIDE = 140;

class View {
  constructor(length, changed) {
    this.length = length;
    this.changed = changed;
    [this.from, this.to] = this.whole();
  }

  /** Everything, with a little air. */
  whole() {
    const air = this.length * 0.01;
    return [-air, this.length + air];
  }

  get span() {
    return this.to - this.from;
  }

  /** Shows another stretch, as far as there is something to show. */
  show(from, to) {
    this.target = null;
    this.set(...this.bounded(from, to));
  }

  /** Moves there in a short time, unless the user wants no motion. */
  glide(from, to) {
    const target = this.bounded(from, to);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.show(...target);
    const start = [this.from, this.to];
    const began = performance.now();
    this.target = target;
    const step = (now) => {
      if (this.target !== target) return;
      const part = Math.min(1, Math.max(0, (now - began) / GLIDE));
      const eased = 1 - (1 - part) ** 3;
      this.set(...target.map((end, i) => start[i] + (end - start[i]) * eased));
      if (part < 1) requestAnimationFrame(step);
      else this.target = null;
    };
    requestAnimationFrame(step);
  }

  /** Where a movement under way will end; what follows starts from there. */
  get goal() {
    return this.target ?? [this.from, this.to];
  }

  /** The stretch after zooming by a factor, with one moment where it is. */
  zoomed(factor, at) {
    const [from, to] = this.goal;
    const fixed = at ?? (from + to) / 2;
    return [fixed - (fixed - from) / factor, fixed + (to - fixed) / factor];
  }

  /** The stretch after moving by a share of what is shown. */
  moved(share) {
    const [from, to] = this.goal;
    return [from + (to - from) * share, to + (to - from) * share];
  }

  bounded(from, to) {
    const [least, most] = this.whole();
    const span = Math.min(Math.max(to - from, SHORTEST), most - least);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - span / 2, least), most - span);
    return [start, start + span];
  }

  set(from, to) {
    if (from === this.from && to === this.to) return;
    [this.from, this.to] = [from, to];
    this.changed();
  }
}
