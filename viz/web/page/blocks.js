// The KV pool: a cell for each block.

import { Surface, el, renew, setText } from "./dom.js";
import { count, number, ordinal } from "./format.js";
import { BlockCells } from "./cells.js";
import { link } from "./words.js";

const LISTED_FREE = 6;
const STATES = ["in_use", "shared", "cached", "free"];
const MARKS_OF_STEP = ["allocated", "evicted"];

export class Blocks {
  constructor(session, looks, runIndex, tooltip) {
    this.session = session;
    this.looks = looks;
    this.runIndex = runIndex;
    this.run = session.runs[runIndex];
    this.tooltip = tooltip;
    this.codes = new Uint8Array(this.run.numBlocks);
    this.focused = null;
    this.title = el("h2");
    this.tally = el("div", { class: "tally" });
    this.free = el("div", { class: "free-list muted" });
    this.canvas = el("canvas", {
      class: "blocks",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "block grid",
    });
    this.cells = new BlockCells(session, looks, runIndex);
    this.surface = new Surface(this.canvas, (context, width, height) => this.cells.draw(context, width, height, this));
    const frame = el("div", { class: "blocks-frame" }, this.canvas);
    this.spoken = el("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
    const parts = [this.title, this.tally, frame, this.free, this.spoken];
    this.element = el("section", { class: "panel blocks-panel", "aria-label": "KV blocks" }, ...parts);
    this.listen();
  }

  get frame() {
    return this.session.frames[this.runIndex];
  }

  render() {
    const { run, frame } = this;
    run.fillBlockCodes(frame, this.codes);
    setText(this.title, `KV blocks: ${number(run.numBlocks)} of ${count(run.blockSize, "token")}`);
    this.renderTally();
    this.renderFree();
    this.surface.render();
    this.canvas.setAttribute(
      "aria-label",
      `${count(run.numBlocks, "block")}. Arrow keys move, Enter shows the holders.`,
    );
  }

  /** The legend, with how many there are of each. */
  renderTally() {
    const tally = this.run.blockTally(this.frame);
    const entry = (name) => {
      const swatch = el("span", { class: `swatch ${name}`, "aria-hidden": "true" }, this.looks.glyph(name));
      const size = el("b", {}, number(tally[name]));
      const attributes = { class: tally[name] ? "entry" : "entry none", title: this.looks.label(name) };
      return el("span", attributes, swatch, `${name.replace("_", " ")} `, size);
    };
    const marks = el(
      "span",
      { class: "tally" },
      el("span", { class: "muted" }, "this step:"),
      ...MARKS_OF_STEP.map(entry),
    );
    this.tally.replaceChildren(...STATES.map(entry), marks);
  }

  renderFree() {
    const free = this.run.freeBlocks(this.frame);
    const listed = free.slice(0, LISTED_FREE);
    renew(this.free, `${free.length} ${listed}`, () => {
      const links = listed.flatMap((block, i) => [i ? ", " : "", link(this.session, this.runIndex, "block", block)]);
      const next = free.length ? [", handed out next: ", ...links, free.length > LISTED_FREE ? " …" : ""] : [];
      return [count(free.length, "free block"), ...next];
    });
  }

  // ---- pointer and keys --------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    canvas.addEventListener("click", (event) => this.show(this.cells.blockAt(event.offsetX, event.offsetY)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.focus(this.focused ?? 0));
    canvas.addEventListener("blur", () => this.session.changed());
  }

  hover(event) {
    const block = this.cells.blockAt(event.offsetX, event.offsetY);
    if (block === null) this.tooltip.hide();
    else this.tooltip.show(event, this.describe(block));
  }

  show(block) {
    if (block === null) return;
    this.focused = block;
    this.session.select({ run: this.runIndex, kind: "block", row: block });
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.cells.columns, ArrowDown: this.cells.columns };
    if (event.key in steps) this.focus((this.focused ?? 0) + steps[event.key]);
    else if (event.key === "Enter") this.show(this.focused);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focus(block) {
    if (block < 0 || block >= this.run.numBlocks) return;
    this.focused = block;
    setText(this.spoken, this.describe(block).join(", "));
    this.session.changed();
  }

  get isFocused() {
    return this.canvas.getRootNode().activeElement === this.canvas;
  }

  describe(block) {
    return describeBlock(this.run, block, this.frame);
  }

  disconnect() {
    this.surface.disconnect();
  }
}

/** What there is to say of a block, line by line. */
export function describeBlock(run, block, frame) {
  const { state, change, references, hash, owners, tokens, since, freeRank } = run.block(block, frame);
  const names = owners
    .slice(0, 4)
    .map((row) => run.labels[row])
    .join(", ");
  const age =
    since < 0 ? "since the start" : `since step ${run.frames.step[since]} (${count(frame - since, "step")} ago)`;
  const lines = [`Block ${block}: ${state.replace("_", " ")}`, change ? `${change} in this step` : age];
  if (owners.length) lines.push(`held by ${names}${owners.length > 4 ? ` and ${owners.length - 4} more` : ""}`);
  lines.push(`${count(references, "reference")}, ${number(tokens)} of ${count(run.blockSize, "token")}`);
  if (hash) lines.push(`hash ${hash}`);
  if (freeRank !== null) lines.push(`${ordinal(run.freeBlocks(frame).indexOf(block) + 1)} in the free list`);
  return lines;
}
