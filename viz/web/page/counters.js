// The numbers of a step, and totals up to it.

import { el, setText } from "./dom.js";
import { duration, number, percent } from "./format.js";

export class Counters {
  constructor(session, runIndex) {
    this.session = session;
    this.runIndex = runIndex;
    this.run = session.runs[runIndex];
    const names = [
      ["time", "Time"],
      ["tokens", this.run.budget ? "Token budget used" : "Tokens"],
      ["blocks", "KV blocks in use"],
      ["hits", "Prompt tokens hit"],
      ["preemptions", "Preemptions"],
      ["evictions", "Evictions"],
      ["generated", "Generated tokens"],
      ["finished", "Finished"],
    ];
    this.cells = Object.fromEntries(names.map(([name, label]) => [name, this.cell(label)]));
    const cells = Object.values(this.cells).map((cell) => cell.element);
    this.element = el(
      "section",
      { class: "panel counters-panel", "aria-label": "Counters" },
      el("dl", { class: "counters" }, ...cells),
    );
  }

  cell(label) {
    const value = el("span");
    const detail = el("span", { class: "muted" });
    const fill = el("span", { class: "meter-fill" });
    const meter = el("span", { class: "meter", hidden: true, "aria-hidden": "true" }, fill);
    return {
      element: el("div", {}, el("dt", {}, label), el("dd", {}, value, " ", detail, meter)),
      value,
      detail,
      fill,
      meter,
    };
  }

  set(name, value, detail = "", share = null) {
    const cell = this.cells[name];
    setText(cell.value, value);
    setText(cell.detail, detail);
    cell.meter.hidden = share === null;
    if (share !== null) cell.fill.style.width = `${Math.min(100, 100 * share)}%`;
  }

  render() {
    const { run } = this;
    const frame = this.session.frames[this.runIndex];
    const at = (column) => run.frames[column][frame];
    const tokens = run.stepTokens(frame);
    this.set("time", duration(at("end_ns")));
    if (run.budget) this.set("tokens", number(tokens), `of ${number(run.budget)}`, tokens / run.budget);
    else this.set("tokens", number(tokens));
    this.set("blocks", number(at("in_use")), `of ${number(run.numBlocks)}`, at("in_use") / run.numBlocks);
    const looked = at("looked_up_tokens");
    this.set(
      "hits",
      percent(at("hit_tokens"), looked),
      looked ? `${number(at("hit_tokens"))} of ${number(looked)}` : "",
    );
    this.set("preemptions", number(at("preemptions")));
    this.set("evictions", number(at("evictions")));
    this.set("generated", number(at("generated_tokens")));
    this.set("finished", number(at("finished")), `of ${number(run.numRequests)}`);
  }
}
