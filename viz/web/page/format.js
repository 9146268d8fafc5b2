// Numbers, times and counts as text.

export function number(value) {
  return value.toLocaleString("en");
}

export function count(value, thing) {
  return `${number(value)} ${thing}${value === 1 ? "" : "s"}`;
}

/** A duration or a moment in the unit that fits it, to about four digits. */
export function duration(ns) {
  if (ns === 0) return "0 s";
  const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const value = ns / unit;
  return `${value.toLocaleString("en", { maximumSignificantDigits: value >= 1000 ? 7 : 4 })} ${name}`;
}

export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

export function ordinal(value) {
  const ending = { 1: "st", 2: "nd", 3: "rd" }[value % 100 > 10 && value % 100 < 14 ? 0 : value % 10] ?? "th";
  return `${number(value)}${ending}`;
}
