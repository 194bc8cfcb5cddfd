// Numbers as people read them.

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

/** A span of time in nanoseconds, to three or four digits: "1.25 ms". */
function duration(ns) {
  const [unit, size] = UNITS.find(([, size]) => ns >= size * 0.99995) ?? UNITS[3];
  const value = ns / size;
  const digits = unit === "ns" || value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
  return `${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

/** A moment to the nearest `step`, in the unit that suits times up to `latest`. */
function moment(ns, step, latest = Math.abs(ns)) {
  const [unit, size] = UNITS.find(([, size]) => Math.max(latest, step) >= size) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  const value = Math.abs(ns) < step / 2 ? 0 : ns / size;
  return `${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

/** Bytes, in units of 1,024. */
function bytes(count) {
  for (const [unit, power] of [["GiB", 30], ["MiB", 20], ["KiB", 10]]) {
    if (Math.abs(count) >= 2 ** power) return `${shortened(count / 2 ** power)} ${unit}`;
  }
  return `${whole(count)} B`;
}

const whole = (count) => Math.round(count).toLocaleString("en");
const shortened = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3, useGrouping: false });
const percent = (share) => `${(share * 100).toLocaleString("en", { maximumFractionDigits: share > 0 && share < 0.0995 ? 1 : 0 })} %`;
const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
