// Details of the selected request or block, with all that happened to it.

import { button, el, renew } from "./dom.js";
import { describeBlock } from "./blocks.js";
import { count, duration, number } from "./format.js";
import { link } from "./words.js";

const MOST_ITEMS = 400;
const EVERY_STEP = ["decode", "still_held"]; // the lanes show these

export class Inspector {
  constructor(session, words) {
    this.session = session;
    this.words = words;
    this.body = el("div", { class: "inspector-body" });
    this.title = el("h2");
    const close = button("Close (Esc)", "close", () => session.select(null));
    const heading = el("header", {}, this.title, close);
    this.element = el("aside", { class: "inspector", hidden: true, "aria-label": "Details" }, heading, this.body);
    this.subject = "";
  }

  render() {
    const { selection, frames } = this.session;
    this.element.hidden = !selection;
    if (!selection) return;
    const subject = `${selection.run} ${selection.kind} ${selection.row}`;
    const top = subject === this.subject ? this.body.scrollTop : 0;
    const focused = subject === this.subject ? this.buttons.indexOf(this.body.getRootNode().activeElement) : -1;
    this.subject = subject;
    const run = this.session.runs[selection.run];
    renew(this.body, `${subject} ${frames[selection.run]}`, () => {
      return selection.kind === "request" ? this.request(run, selection) : this.block(run, selection);
    });
    this.body.scrollTop = top;
    this.buttons[focused]?.focus({ preventScroll: true });
  }

  get buttons() {
    return Array.from(this.body.querySelectorAll("button"));
  }

  heading(text, run) {
    this.title.textContent = this.session.runs.length > 1 ? `${text} in ${"AB"[this.session.runs.indexOf(run)]}` : text;
  }

  // ---- a request ---------------------------------------------------------------------------------------------------

  request(run, { run: index, row }) {
    const frame = this.session.frames[index];
    const { facts } = run;
    this.heading(run.labels[row], run);
    const state = run.request(row, Math.max(frame, facts.added[row]));
    const rows = [
      ["Prompt", count(state.prompt, "token")],
      ["To generate", `at most ${count(state.maxTokens, "token")}`],
      ["Arrived", `${duration(facts.arrival_ns[row])}, before ${this.stepName(run, facts.added[row])}`],
      ["First token", facts.first_token[row] < 0 ? "not yet in this trace" : this.firstToken(run, row)],
      ["Ended", facts.ended[row] < 0 ? "not in this trace" : this.end(run, row)],
    ];
    const isHere = run.isAlive(row, frame);
    return [
      definitions(rows),
      el("h3", {}, isHere ? "At this step" : "Not here at this step"),
      ...(isHere ? this.requestNow(run, index, state, frame) : []),
      el("h3", {}, "Everything that happened to it"),
      this.history(run, index, row),
    ];
  }

  requestNow(run, index, state, frame) {
    const blocks = run
      .blockTable(state.row, frame)
      .flatMap((block) => [link(this.session, index, "block", block), " "]);
    const rows = [
      ["State", state.reason ? `ended: ${state.reason}` : `${state.queue} (${state.activity})`],
      ["Tokens", `${number(state.tokens)}, of them ${number(state.tokens - state.prompt)} generated`],
      ["Cached", `${number(state.cached)}, of them ${number(state.hit)} found in the cache`],
      ["Computed now", count(state.scheduled, "token")],
      ["Preempted", count(state.preemptions, "time")],
    ];
    const table = el("p", { class: "block-table" }, blocks.length ? "Block table: " : "No block table", ...blocks);
    return [definitions(rows), table];
  }

  stepName(run, frame) {
    return frame < run.numFrames ? `step ${run.frames.step[frame]}` : "the end";
  }

  firstToken(run, row) {
    const frame = run.facts.first_token[row];
    return `after ${duration(run.frames.end_ns[frame] - run.facts.arrival_ns[row])}, in ${this.stepName(run, frame)}`;
  }

  end(run, row) {
    const frame = run.facts.ended[row];
    const took = run.frames.end_ns[frame] - run.facts.arrival_ns[row];
    return `${run.finish_reasons[run.facts.reason[row]]} after ${duration(took)}, in ${this.stepName(run, frame)}`;
  }

  history(run, index, row) {
    const last = run.facts.ended[row] < 0 ? run.numFrames - 1 : run.facts.ended[row];
    const all = run.sentences.about(row, run.facts.added[row], last);
    const told = all.filter(([, { kind }]) => !EVERY_STEP.includes(kind.name));
    const items = told.slice(0, MOST_ITEMS).map(([frame, sentence]) => {
      const item = this.words[index].item(sentence);
      item.prepend(this.stepLink(run, index, frame));
      return item;
    });
    if (told.length > MOST_ITEMS)
      items.push(el("li", { class: "muted" }, `and ${number(told.length - MOST_ITEMS)} more`));
    return el("ul", { class: "words history" }, ...items);
  }

  stepLink(run, index, frame) {
    const step = String(run.frames.step[frame]);
    const isNow = frame === this.session.frames[index];
    const attributes = { class: "link step-link", ...(isNow ? { "aria-current": "step" } : {}) };
    return button(`Go to step ${step}`, step, () => this.session.goTo(frame, index), attributes);
  }

  // ---- a block -----------------------------------------------------------------------------------------------------

  block(run, { run: index, row: block }) {
    const frame = this.session.frames[index];
    this.heading(`Block ${block}`, run);
    const [title, ...lines] = describeBlock(run, block, frame);
    const holdings = run.holdingsIn(block, null);
    const items = holdings.slice(0, MOST_ITEMS).map((holding) => this.holding(run, index, holding, frame));
    if (holdings.length > MOST_ITEMS)
      items.push(el("li", { class: "muted" }, `and ${number(holdings.length - MOST_ITEMS)} more`));
    return [
      el("ul", { class: "plain" }, ...[title.split(": ")[1], ...lines].map((line) => el("li", {}, line))),
      el("h3", {}, `Every holder: ${number(holdings.length)}`),
      el("ul", { class: "holders" }, ...items),
    ];
  }

  holding(run, index, holding, frame) {
    const { row, start, end, position } = run.holdings;
    const until = end[holding] < 0 ? "the end" : this.stepLink(run, index, Math.min(end[holding], run.numFrames - 1));
    const from = this.stepLink(run, index, Math.min(start[holding], run.numFrames - 1));
    const isNow = run.holds(holding, frame);
    return el(
      "li",
      { class: isNow ? "now" : "" },
      link(this.session, index, "request", row[holding]),
      el("span", { class: "muted" }, ` as block ${position[holding]} of its table, steps `, from, " to ", until),
    );
  }
}

function definitions(rows) {
  return el("dl", { class: "facts" }, ...rows.flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)]));
}
