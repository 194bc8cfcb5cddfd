// The page: what pointer, wheel and keys do.

/** Zoom of one press of a key or button, and of one notch of a wheel. */
const PRESS = 1.6;
const NOTCH = 1.25;
/** How far a key moves: a share of what is in view, or pixels. */
const MOVE = 0.2;
const SCROLL = 60;
/** How far a press may wander and still be a click, in pixels. */
const WANDER = 4;

class Page {
  constructor(data) {
    this.trace = new Trace(data);
    this.state = { hovered: -1, selected: -1, found: null, pointer: null };
    this.canvas = byId("canvas");
    this.scrollBar = byId("scroll");
    this.view = new View(this.trace.length, () => this.redraw());
    this.layout = new Layout(this.trace);
    this.scene = new Scene(this.canvas, this.trace, this.view, this.layout, this.state);
    this.panel = new Panel(this.trace, (op) => this.jump(op), (text) => this.seek(text));
    this.canvas.setAttribute("aria-label", `Timeline of ${plural(this.trace.count, "operation")} on ${plural(this.trace.tracks.length, "stream")}`);
    document.documentElement.style.setProperty("--content", `${this.layout.wanted + 1}px`);
    this.pointers = new Map();
    this.listen();
    this.watch();
  }

  /** Draws before the next frame, however often it is asked to. */
  redraw() {
    this.waiting ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.waiting);
    this.waiting = null;
    this.scene.draw();
  }

  /** Draws anew when the window or the colours change. */
  watch() {
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    this.resize();
    this.recolour();
  }

  resize() {
    this.scene.resize();
    const { scrollBar, layout } = this;
    scrollBar.style.top = `${layout.top}px`;
    scrollBar.style.height = `${layout.room}px`;
    scrollBar.hidden = layout.total <= layout.room;
    scrollBar.firstElementChild.style.height = `${layout.total}px`;
    this.draw();
  }

  recolour() {
    const chosen = document.documentElement.style.colorScheme;
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    byId("theme").setAttribute("aria-pressed", dark);
    this.scene.recolour();
    this.redraw();
  }

  toggleTheme() {
    const dark = byId("theme").getAttribute("aria-pressed") === "true";
    document.documentElement.style.colorScheme = dark ? "light" : "dark";
    this.recolour();
  }

  // Moving

  zoom(factor, at) {
    this.view.glide(...this.view.zoomed(factor, at));
  }

  move(share) {
    this.view.glide(...this.view.moved(share));
  }

  fit() {
    this.view.glide(...this.view.whole());
  }

  scrollBy(pixels) {
    if (!this.layout.scrollTo(this.layout.scroll + pixels)) return;
    this.scrolled();
  }

  scrolled() {
    this.scrollBar.scrollTop = this.layout.scroll;
    this.redraw();
  }

  /** Selects an operation; -1 for none. */
  select(op) {
    this.state.selected = op;
    this.panel.detail(op);
    byId("spoken").textContent = op < 0 ? "" : this.panel.sentence(op);
    if (op >= 0) {
      this.layout.reveal(this.trace.track[op]);
      this.scrolled();
    }
    this.redraw();
  }

  /** Selects an operation and moves just as far as is needed to see it. */
  step(op) {
    this.select(op);
    const [from, to] = this.view.goal;
    const [start, end] = [this.trace.start[op], this.trace.end[op]];
    const air = (to - from) * 0.1;
    if (start >= from && Math.min(end, start + air) <= to) return;
    const middle = Math.min((start + end) / 2, start + (to - from) / 2 - air);
    this.view.glide(middle - (to - from) / 2, middle + (to - from) / 2);
  }

  /** Selects an operation and zooms so that it is a good part of what is in view. */
  jump(op) {
    this.select(op);
    const middle = (this.trace.start[op] + this.trace.end[op]) / 2;
    const span = Math.max(this.trace.duration(op) * 3, 200);
    this.view.glide(middle - span / 2, middle + span / 2);
  }

  // Searching

  search(query) {
    const list = this.trace.matches(query);
    const { state } = this;
    state.found = null;
    if (list) {
      state.found = { list, has: new Uint8Array(this.trace.count), at: -1 };
      for (const op of list) state.found.has[op] = 1;
    }
    this.tellFound();
    this.redraw();
  }

  tellFound() {
    const { found } = this.state;
    const count = found?.list.length ?? 0;
    byId("found").textContent = !found ? "" : found.at < 0 ? `${whole(count)} found` : `${whole(found.at + 1)} of ${whole(count)}`;
    byId("next").disabled = byId("previous").disabled = count === 0;
  }

  /** Goes to the next (1) or the previous (-1) match, from the selected operation on. */
  follow(way) {
    const { found, selected } = this.state;
    if (!found?.list.length) return;
    const { list } = found;
    if (found.at >= 0 && list[found.at] === selected) {
      found.at = (found.at + way + list.length) % list.length;
    } else {
      const after = firstWhere(list.length, (i) => list[i] > selected);
      found.at = (way > 0 ? after : after - 1 + list.length) % list.length;
    }
    this.tellFound();
    this.step(list[found.at]);
  }

  seek(text) {
    byId("query").value = text;
    this.search(text);
    this.follow(1);
  }

  // Listening

  listen() {
    const { canvas } = this;
    const press = (id, action) => byId(id).addEventListener("click", action);
    press("zoom-in", () => this.zoom(PRESS));
    press("zoom-out", () => this.zoom(1 / PRESS));
    press("fit", () => this.fit());
    press("theme", () => this.toggleTheme());
    press("help", () => byId("keys").showModal());
    press("previous", () => this.follow(-1));
    byId("query").addEventListener("input", (event) => this.search(event.target.value));
    byId("query").addEventListener("keydown", (event) => this.searchKey(event));
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.follow(1);
    });
    this.tellFound();
    addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("dblclick", () => this.state.selected >= 0 && this.jump(this.state.selected));
    this.scrollBar.addEventListener("scroll", () => {
      if (this.layout.scrollTo(this.scrollBar.scrollTop)) this.redraw();
    });
  }

  searchKey(event) {
    if (event.key === "Enter" && event.shiftKey) {
      event.preventDefault();
      this.follow(-1);
    } else if (event.key === "Escape") {
      event.target.value = "";
      this.search("");
      this.canvas.focus();
    }
  }

  /** Keys work everywhere but where a text is typed, a dialog is open or a control has its own use for them. */
  key(event) {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, dialog")) return;
    const inTable = target.closest("#panel");
    if (inTable && /^(Arrow|Page|Home)/.test(event.key)) return;
    if (event.key === "Enter" && target !== this.canvas) return;
    const action = (event.shiftKey && this.shifted(event.key)) || this.plain(event.key);
    if (!action) return;
    event.preventDefault();
    action();
  }

  plain(key) {
    const { layout, state } = this;
    const actions = {
      "+": () => this.zoom(PRESS),
      "=": () => this.zoom(PRESS),
      "-": () => this.zoom(1 / PRESS),
      "_": () => this.zoom(1 / PRESS),
      w: () => this.zoom(PRESS, this.pointed()),
      s: () => this.zoom(1 / PRESS, this.pointed()),
      a: () => this.move(-MOVE),
      d: () => this.move(MOVE),
      ArrowLeft: () => this.move(-MOVE),
      ArrowRight: () => this.move(MOVE),
      ArrowUp: () => this.scrollBy(-SCROLL),
      ArrowDown: () => this.scrollBy(SCROLL),
      PageUp: () => this.scrollBy(-layout.room),
      PageDown: () => this.scrollBy(layout.room),
      0: () => this.fit(),
      Home: () => this.fit(),
      Enter: state.selected >= 0 ? () => this.jump(state.selected) : null,
      Escape: () => this.select(-1),
      n: () => this.follow(1),
      p: () => this.follow(-1),
      "/": () => byId("query").select(),
      "?": () => byId("keys").showModal(),
    };
    return actions[key.length === 1 ? key.toLowerCase() : key];
  }

  shifted(key) {
    const { trace, state } = this;
    const walk = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    if (!walk) return null;
    const [along, across] = walk;
    return () => {
      if (state.selected < 0) return this.step(this.firstInView());
      const track = trace.track[state.selected] + across;
      const time = (trace.start[state.selected] + trace.end[state.selected]) / 2;
      const next = across ? trace.nearest(track, time) : trace.beside(state.selected, along);
      this.step(next < 0 ? state.selected : next);
    };
  }

  /** Where somebody without a selected operation begins: in the first stream in sight. */
  firstInView() {
    return this.trace.nearest(this.layout.visible()[0], Math.max(0, this.view.from));
  }

  /** The time under the pointer, if it is on the timeline. */
  pointed() {
    const { pointer } = this.state;
    return pointer && pointer.x >= this.layout.left ? this.scene.time(pointer.x) : undefined;
  }

  wheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 33 : 1;
    const [across, along] = [event.deltaX * lines, event.deltaY * lines];
    const { x } = this.place(event);
    if (event.altKey || x < this.layout.left) return this.scrollBy(along);
    const sideways = event.shiftKey ? along || across : Math.abs(across) > Math.abs(along) ? across : 0;
    if (sideways) return this.view.show(...this.view.moved(sideways / this.scene.width));
    this.view.show(...this.view.zoomed(NOTCH ** (-along / 100), this.scene.time(x)));
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  press(event) {
    if (event.button !== 0) return;
    const place = this.place(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { ...place, pressed: place, overview: place.y < OVERVIEW });
    if (place.y < OVERVIEW) this.centre(place.x);
  }

  /** Moves the view so that its middle is what the overview has at that place. */
  centre(x) {
    const [least, most] = this.view.whole();
    const middle = least + ((x - this.layout.left) / this.scene.width) * (most - least);
    this.view.show(middle - this.view.span / 2, middle + this.view.span / 2);
  }

  point(event) {
    const place = this.place(event);
    const held = this.pointers.get(event.pointerId);
    if (!held) return this.hover(place, event);
    if (held.overview) this.centre(place.x);
    else if (this.pointers.size === 2) this.pinch(event.pointerId, place);
    else this.drag(held, place);
    Object.assign(held, place);
  }

  drag(held, place) {
    held.moved ||= Math.hypot(place.x - held.pressed.x, place.y - held.pressed.y) > WANDER;
    if (!held.moved) return;
    this.hover(null);
    this.canvas.classList.add("dragging");
    this.view.show(...this.view.moved((held.x - place.x) / this.scene.width));
    this.scrollBy(held.y - place.y);
  }

  /** Two fingers: the times under them stay under them. */
  pinch(id, place) {
    const [other] = [...this.pointers].filter(([key]) => key !== id).map(([, pointer]) => pointer);
    const held = this.pointers.get(id);
    held.moved = other.moved = true;
    const [before, after] = [Math.abs(held.x - other.x), Math.abs(place.x - other.x)];
    if (before > 8 && after > 8) this.view.show(...this.view.zoomed(after / before, this.scene.time(other.x)));
  }

  release(event) {
    const held = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    this.canvas.classList.remove("dragging");
    if (!held || held.moved || held.overview || event.type === "pointercancel") return;
    const place = this.place(event);
    this.select(this.scene.hit(place.x, place.y)?.op ?? -1);
  }

  hover(place, event) {
    const hit = place && this.scene.hit(place.x, place.y);
    this.state.pointer = place;
    this.state.hovered = hit?.op ?? -1;
    this.canvas.classList.toggle("over", Boolean(hit));
    this.panel.tip(hit ?? null, event?.clientX, event?.clientY);
    this.redraw();
  }
}

// For the console of the browser, and for the tests.
globalThis.page = new Page(JSON.parse(byId("trace").textContent));
