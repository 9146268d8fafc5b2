// The two queues as they stand after the step. The tail of `running` meets the head of `waiting`: a request whose
// prompt is done moves up over that line, a preempted one moves down.

import { el, renew, setText } from "./dom.js";
import { number } from "./format.js";
import { link } from "./words.js";

const ROW_HEIGHT = 30;
const MOST_ENDED = 12;

export class Queues {
  constructor(session, looks, runIndex) {
    this.session = session;
    this.looks = looks;
    this.runIndex = runIndex;
    this.run = session.runs[runIndex];
    this.title = el("h2");
    this.ended = el("div", { class: "ended" });
    this.space = el("div", { class: "queue-space", role: "list", "aria-label": "Running and waiting requests" });
    this.list = el("div", { class: "queue-scroll", tabindex: "0", role: "group", "aria-label": "Queues" }, this.space);
    this.list.addEventListener("scroll", () => session.changed());
    this.element = el(
      "section",
      { class: "panel queues-panel", "aria-label": "Queues" },
      this.title,
      this.list,
      this.ended,
    );
    this.observer = new ResizeObserver(() => session.changed());
    this.observer.observe(this.list);
  }

  render() {
    const { run } = this;
    const frame = this.session.frames[this.runIndex];
    const { running, waiting, ended } = run.queues(frame);
    this.renderTitle(running.length, waiting.length);
    const lines = [
      { heading: "running", note: "head first", size: running.length },
      ...running.map((row) => ({ row })),
      { heading: "waiting", note: "head first", size: waiting.length },
      ...waiting.map((row) => ({ row })),
    ];
    this.space.style.height = `${lines.length * ROW_HEIGHT}px`;
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_HEIGHT) - 2);
    const end = Math.min(lines.length, first + Math.ceil(this.list.clientHeight / ROW_HEIGHT) + 5);
    const scale = this.scale(lines.slice(first, end), frame);
    const focused = this.focusedRow();
    const elements = [];
    for (let i = first; i < end; i++) {
      const line = lines[i];
      const element = line.heading ? this.heading(line) : this.row(run.request(line.row, frame), scale);
      element.style.top = `${i * ROW_HEIGHT}px`;
      elements.push(element);
    }
    this.space.replaceChildren(...elements);
    if (focused !== null) this.space.querySelector(`[data-row="${focused}"] button`)?.focus({ preventScroll: true });
    this.renderEnded(ended, frame);
  }

  /** The list is built anew at each step; who stands on a row by keyboard stays there. */
  focusedRow() {
    const line = this.list.getRootNode().activeElement?.closest?.("[data-row]");
    return line && this.space.contains(line) ? line.dataset.row : null;
  }

  renderTitle(numRunning, numWaiting) {
    const slots = this.run.options.max_num_seqs;
    const running = slots ? `${number(numRunning)} of ${number(slots)} slots` : number(numRunning);
    setText(this.title, `Running ${running} · waiting ${number(numWaiting)}`);
  }

  /** Tokens that a full bar stands for: a power of two, so that bars seldom change their scale. */
  scale(lines, frame) {
    let most = 8;
    for (const { row } of lines) {
      if (row !== undefined) most = Math.max(most, this.run.request(row, frame).tokens);
    }
    return 2 ** Math.ceil(Math.log2(most));
  }

  heading({ heading, note, size }) {
    return el(
      "div",
      { class: "queue-line queue-heading", role: "listitem" },
      el("strong", {}, heading),
      el("span", { class: "muted" }, size ? note : "empty"),
      el("span", { class: "muted spacer end" }, size ? "now, cached / tokens" : ""),
    );
  }

  row(request, scale) {
    const { row, activity, tokens, cached, scheduled, preemptions } = request;
    const glyph = el(
      "span",
      { class: "glyph", title: this.looks.label(activity), "aria-hidden": "true" },
      this.looks.glyph(activity),
    );
    glyph.style.color = `var(--${activity})`;
    const name = link(this.session, this.runIndex, "request", row);
    const badge = preemptions
      ? el("span", { class: "badge", title: `preempted ${preemptions} times` }, `▼${preemptions}`)
      : null;
    const now = scheduled ? el("span", { class: "now" }, `+${number(scheduled)}`) : null;
    const numbers = el("span", { class: "numbers" }, now, ` ${number(cached)} / ${number(tokens)}`);
    const spoken = el("span", { class: "visually-hidden" }, describeBar(request));
    const classes = ["queue-line", "queue-row"];
    if (this.session.isSelected(this.runIndex, "request", row)) classes.push("selected");
    if (!this.session.matches(this.run, row)) classes.push("dimmed");
    const attributes = { class: classes.join(" "), role: "listitem", "data-row": row };
    return el(
      "div",
      attributes,
      glyph,
      el("span", { class: "name" }, name, badge),
      bar(request, scale),
      numbers,
      spoken,
    );
  }

  renderEnded(rows, frame) {
    renew(this.ended, `${rows}`, () => {
      const shown = rows.slice(0, MOST_ENDED).map((row) => {
        const { reason } = this.run.request(row, frame);
        return el("span", { class: "chip" }, link(this.session, this.runIndex, "request", row), ` ${reason}`);
      });
      const more = rows.length > MOST_ENDED ? ` and ${number(rows.length - MOST_ENDED)} more` : "";
      return rows.length ? ["Ended in this step: ", ...shown, more] : [];
    });
  }

  disconnect() {
    this.observer.disconnect();
  }
}

/** Above: the KV of its tokens (hit, computed, scheduled now, still to compute). Below: prompt and generated tokens. */
function bar({ hit, cached, scheduled, tokens, prompt }, scale) {
  const before = Math.max(0, cached - scheduled);
  const reused = Math.min(hit, before);
  const kv = [
    ["hit", reused],
    ["computed", before - reused],
    ["scheduled", cached - before],
    ["remaining", tokens - cached],
  ];
  const text = [
    ["prompt", Math.min(prompt, tokens)],
    ["generated", tokens - prompt],
  ];
  const parts = (sizes) =>
    sizes
      .filter(([, size]) => size > 0)
      .map(([name, size]) => {
        const part = el("span", { class: `part ${name}` });
        part.style.width = `${(100 * size) / scale}%`;
        return part;
      });
  const lines = [el("span", { class: "kv" }, ...parts(kv)), el("span", { class: "text" }, ...parts(text))];
  return el("span", { class: "bar", "aria-hidden": "true" }, ...lines);
}

function describeBar({ hit, cached, scheduled, tokens, prompt }) {
  const words = [`${cached} of ${tokens} tokens cached`, `${tokens - prompt} generated`];
  if (hit) words.push(`${hit} reused`);
  if (scheduled) words.push(`${scheduled} computed in this step`);
  return words.join(", ");
}
