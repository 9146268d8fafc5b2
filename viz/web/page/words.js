// What was decided in this step, in words.

import { button, el, renew, setText } from "./dom.js";
import { count, duration } from "./format.js";
import { sentenceText } from "./sentences.js";

export class Words {
  constructor(session, looks, runIndex) {
    this.session = session;
    this.looks = looks;
    this.runIndex = runIndex;
    this.run = session.runs[runIndex];
    this.title = el("h2", { class: "words-title" });
    this.list = el("ul", { class: "words" });
    this.element = el(
      "section",
      { class: "panel words-panel", "aria-label": "What was decided" },
      this.title,
      this.list,
    );
  }

  render() {
    const frame = this.session.frames[this.runIndex];
    renew(this.title, frame, () => this.heading(frame));
    renew(this.list, frame, () => {
      const items = this.run.sentences.at(frame).map((sentence) => this.item(sentence));
      return items.length ? items : [el("li", { class: "muted" }, "No decision is recorded.")];
    });
  }

  heading(frame) {
    const { run } = this;
    const { name, note } = run.phase(frame);
    const start = run.frames.start_ns[frame];
    const took = duration(run.frames.end_ns[frame] - start);
    const details = `${count(run.stepTokens(frame), "token")} in ${took}, from ${duration(start)}`;
    const letter = this.session.runs.length > 1 ? `${"AB"[this.runIndex]} · ` : "";
    return [
      `${letter}Step ${run.frames.step[frame]} `,
      el("span", { class: `phase ${name}` }, note ? `${name}, ${note}` : name),
      el("span", { class: "muted details" }, details),
    ];
  }

  item({ kind, parts }) {
    const glyph = el("span", { class: "glyph", "aria-hidden": "true" }, this.looks.glyph(kind.look));
    glyph.style.color = `var(--${kind.look.replaceAll("_", "-")})`;
    return el("li", { class: kind.name }, glyph, el("span", {}, ...parts.map((part) => this.part(part))));
  }

  part(part) {
    if (part.text !== undefined) return part.text;
    const isRequest = part.request !== undefined;
    const [kind, row] = isRequest ? ["request", part.request] : ["block", part.block];
    return link(this.session, this.runIndex, kind, row);
  }

  /** One sentence for screen readers. */
  summary(frame) {
    const { run } = this;
    const sentences = run.sentences.at(frame).map((sentence) => sentenceText(sentence, run.labels));
    const most = 6;
    const more = sentences.length > most ? ` And ${sentences.length - most} more.` : "";
    return `Step ${run.frames.step[frame]}, ${run.phase(frame).name}. ${sentences.slice(0, most).join(". ")}.${more}`;
  }
}

/** A request or a block by its name, which shows its details. */
export function link(session, runIndex, kind, row) {
  const text = kind === "request" ? session.runs[runIndex].labels[row] : String(row);
  const select = () => session.select({ run: runIndex, kind, row });
  return button(`Details of ${kind} ${text}`, text, select, { class: `link ${kind}` });
}

/** Tells screen readers what happened, but not while the run is playing. */
export class Announcer {
  constructor(session, words) {
    this.session = session;
    this.words = words;
    this.element = el("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  }

  render() {
    if (!this.session.playing) setText(this.element, this.words[this.session.lead].summary(this.session.frame));
  }
}
