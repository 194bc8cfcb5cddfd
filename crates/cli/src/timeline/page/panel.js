// What is told in words: the summary, the facts of an operation, the tables.

/** Longer tables help nobody; the search finds the rest. */
const LONGEST = 100;
const LISTED = 500;

/** Makes an element. Texts of users only ever become text. */
function element(tag, properties = {}, ...children) {
  const { style, ...others } = properties;
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(others)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  for (const [name, value] of Object.entries(style ?? {})) made.style.setProperty(name, value);
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);

class Panel {
  /** `jump` shows an operation; `seek` searches for a text. */
  constructor(trace, jump, seek) {
    Object.assign(this, { trace, jump, seek });
    this.summarise();
    this.fillTables();
    this.chooseTabs();
    this.detail(-1);
  }

  // The summary

  summarise() {
    const { trace } = this;
    const name = trace.process || "Timeline";
    document.title = trace.process ? `${name} – timeline` : name;
    byId("title").textContent = name;
    byId("about").textContent = [
      trace.startUnixUs ? new Date(trace.startUnixUs / 1000).toLocaleString() : "",
      trace.device,
      trace.workers ? plural(trace.workers, "worker") : "",
      trace.version ? `clika_runtime ${trace.version}` : "",
    ].filter(Boolean).join("  ·  ");
    const figure = (label, value, properties = {}) => element("div", {}, element("dt", {}, label), element("dd", properties, value));
    const found = (count, word) => {
      if (!count) return figure(word, "0");
      const button = element("button", { type: "button", title: `Search what ${word}`, onclick: () => this.seek(word) }, whole(count));
      return figure(word, button, word === "failed" ? { className: "bad" } : {});
    };
    const overlap = trace.running > 0 ? trace.sum / trace.running : 1;
    byId("figures").replaceChildren(
      figure("duration", duration(trace.span)),
      figure("operations", whole(trace.count)),
      figure("streams", whole(trace.tracks.length)),
      figure("busy", percent(trace.running / trace.span), { title: "The share of time in which at least one operation ran" }),
      figure("overlap", `${overlap.toFixed(2)} ×`, { title: "All run times together, over the time in which at least one operation ran" }),
      found(trace.failed, "failed"),
      found(trace.skips, "skipped"),
    );
    const used = trace.kinds.filter((_, kind) => trace.kind.includes(kind));
    const states = [trace.failed && "failed", trace.skips && "skipped"].filter(Boolean);
    byId("legend").replaceChildren(...[...used, ...states].map((look) => element("li", {}, this.swatch(look), look)));
    this.notice();
  }

  notice() {
    const { trace } = this;
    const parts = [];
    if (trace.cutOff) parts.push("The trace was cut off: its process did not end in order, and the last operations may be missing.");
    if (trace.leftOut) parts.push(`${plural(trace.leftOut, "event")} could not be understood and ${trace.leftOut === 1 ? "was" : "were"} left out.`);
    byId("notice").textContent = parts.join(" ");
    byId("notice").hidden = parts.length === 0;
  }

  swatch(look) {
    const colour = this.trace.kinds.includes(look) ? `kind-${look}` : look;
    return element("span", { className: `swatch ${look}`, style: { "--colour": `var(--${colour})` } });
  }

  swatchOf(op) {
    const { trace } = this;
    return this.swatch(trace.failure[op] ? "failed" : trace.skipped[op] ? "skipped" : trace.kinds[trace.kind[op]]);
  }

  // The facts of an operation

  facts(op) {
    const { trace } = this;
    const size = trace.bytes[op];
    const time = trace.duration(op);
    const rate = size > 0 && time > 0 && trace.ran(op) ? ` (${shortened(size / time)} GB/s)` : "";
    const number = trace.number[op] >= 0 ? `, number ${whole(trace.number[op])}` : "";
    const facts = [
      ["failure", trace.text("failure", op), "bad"],
      ["skipped", trace.skipped[op] ? "since earlier work failed" : "", "bad"],
      ["kind", trace.kinds[trace.kind[op]]],
      ["stream", this.stream(op) + number],
      ["started at", moment(trace.start[op], 1)],
      ["took", duration(time)],
      ["submitted", trace.queued[op] >= 0 ? `${duration(trace.queued[op])} before it started` : ""],
      ["waited", trace.waited[op] >= 0 ? duration(trace.waited[op]) : ""],
      ["thread", trace.text("worker", op)],
      ["bytes", size >= 0 ? bytes(size) + rate : ""],
      ["line", trace.text("site", op)],
    ];
    return facts.filter(([, value]) => value);
  }

  stream(op) {
    const { name, process } = this.trace.tracks[this.trace.track[op]];
    return process ? `${name} of ${process}` : name;
  }

  list(facts) {
    const rows = facts.flatMap(([label, value, className = ""]) => [element("dt", {}, label), element("dd", { className }, ...[value].flat())]);
    return element("dl", { className: "facts" }, ...rows);
  }

  /** Shows an operation beside the tables; -1 for none. */
  detail(op) {
    const { trace } = this;
    if (op < 0) {
      byId("details-title").textContent = "Operation";
      byId("facts").replaceChildren(element("p", { className: "none" }, "Choose one in the timeline or in a table to keep its facts here."));
    } else {
      byId("details-title").textContent = trace.title(op);
      const links = (arrows, end) => arrows.slice(0, 20).map((i) => this.link(trace.arrows[end][i]));
      const waits = [["waits for", links(trace.arrows.into(op), "from")], ["lets go on", links(trace.arrows.outOf(op), "to")]];
      byId("facts").replaceChildren(this.list([...this.facts(op), ...waits.filter(([, links]) => links.length)]));
    }
    for (const row of document.querySelectorAll("tr.jump")) {
      if (Number(row.dataset.op) === op) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  link(op) {
    return element("button", { type: "button", onclick: () => this.jump(op) }, `${this.trace.title(op)} on ${this.stream(op)}`);
  }

  /** The facts as one sentence, for those who hear them. */
  sentence(op) {
    return `${this.trace.title(op)}: ${this.facts(op).map(([label, value]) => `${label} ${value}`).join(", ")}.`;
  }

  /** Shows the facts beside the pointer; `null` hides them. */
  tip(hit, x, y) {
    const tip = byId("tip");
    tip.hidden = hit === null;
    if (hit === null) return;
    if (this.tipped !== hit.op || this.tippedOthers !== hit.others) {
      [this.tipped, this.tippedOthers] = [hit.op, hit.others];
      const title = element("h2", {}, this.swatchOf(hit.op), this.trace.title(hit.op));
      tip.replaceChildren(title, this.list(this.facts(hit.op)));
      if (hit.others) tip.append(element("p", { className: "more" }, `and ${whole(hit.others)} more within two pixels`));
    }
    const { offsetWidth: width, offsetHeight: height } = tip;
    const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - height - 4))}px`;
  }

  // The tables

  fillTables() {
    const { trace } = this;
    const name = (op, text = trace.title(op)) => element("button", { type: "button", title: text }, this.swatchOf(op), element("span", {}, text));
    const cell = (text, className = "") => element("td", { className, title: text }, text);
    const row = (op, ...cells) => element("tr", { className: "jump", "data-op": op, onclick: () => this.jump(op) }, ...cells);

    const longest = trace.longest(LONGEST).map((op) => row(op,
      element("td", {}, name(op)),
      cell(duration(trace.duration(op)), "number"),
      cell(moment(trace.start[op], 1e3, trace.length), "number"),
      cell(this.stream(op), "middle"),
      cell(trace.text("site", op), "middle wide"),
    ));
    this.table("longest", [["operation"], ["took", "number"], ["started at", "number"], ["stream", "middle"], ["line", "middle wide"]], longest);

    const groups = trace.byName();
    const names = groups.slice(0, LISTED).map(({ longest, count, sum }) => row(longest,
      element("td", {}, name(longest)),
      cell(whole(count), "number"),
      cell(duration(sum), "number"),
      element("td", { className: "share wide" }, this.bar(sum / trace.sum)),
      cell(duration(sum / count), "number"),
      cell(duration(trace.duration(longest)), "number"),
    ));
    this.table("names", [["name"], ["times", "number"], ["together", "number"], ["of all", "share wide"], ["mean", "number"], ["longest", "number"]], names, groups.length);

    const tracks = trace.tracks.filter((track) => track.operations).sort((a, b) => b.busy - a.busy);
    const streams = tracks.slice(0, LISTED).map((track) => {
      const first = track.rows[0].operations[0];
      const text = track.process ? `${track.name} of ${track.process}` : track.name;
      return row(first,
        element("td", {}, element("button", { type: "button", title: text }, element("span", {}, text))),
        cell(whole(track.operations), "number"),
        cell(duration(track.busy), "number"),
        element("td", { className: "share" }, this.bar(track.busy / trace.span)),
      );
    });
    this.table("streams", [["stream"], ["operations", "number"], ["ran for", "number"], ["busy", "share"]], streams, tracks.length);
  }

  bar(share) {
    const part = `${(Math.min(1, share) * 100).toFixed(1)}%`;
    return element("div", { className: "bar" }, element("i", { style: { "--part": part } }), percent(share));
  }

  table(id, heads, rows, all = rows.length) {
    const head = element("tr", {}, ...heads.map(([text, className = ""]) => element("th", { scope: "col", className }, text)));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    byId(id).replaceChildren(table);
    if (all > rows.length) byId(id).append(element("p", { className: "none" }, `The first ${whole(rows.length)} of ${whole(all)}.`));
  }

  chooseTabs() {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    const choose = (chosen) => {
      for (const tab of tabs) {
        tab.setAttribute("aria-selected", tab === chosen);
        tab.tabIndex = tab === chosen ? 0 : -1;
        byId(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
      }
    };
    tabs.forEach((tab, index) => {
      tab.onclick = () => choose(tab);
      tab.onkeydown = (event) => {
        const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!way) return;
        const next = tabs[(index + way + tabs.length) % tabs.length];
        choose(next);
        next.focus();
      };
    });
  }
}
