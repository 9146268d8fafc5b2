// The whole run in one strip: tokens of each step, KV blocks in use, preemptions, and which part is in view.

import { Surface, el } from "./dom.js";

export const GUTTER = 132;
const STRIP = 44;

export class Overview {
  constructor(session, looks) {
    this.session = session;
    this.looks = looks;
    this.bins = new Map();
    this.canvas = el("canvas", { class: "overview", "aria-hidden": "true" });
    this.canvas.style.height = `${STRIP * session.runs.length}px`;
    this.surface = new Surface(this.canvas, (context, width) => this.draw(context, width));
    this.canvas.addEventListener("pointerdown", (event) => this.scrub(event, true));
    this.canvas.addEventListener("pointermove", (event) => event.buttons & 1 && this.scrub(event, false));
  }

  render() {
    this.surface.render();
  }

  /** Go to the step under the pointer; the view follows. */
  scrub(event, isFirst) {
    if (isFirst) this.canvas.setPointerCapture(event.pointerId);
    const { session } = this;
    const [low, high] = session.axis.extent;
    const part = (event.offsetX - GUTTER) / (this.surface.width - GUTTER);
    const lead = Math.min(session.runs.length - 1, Math.max(0, Math.floor(event.offsetY / STRIP)));
    session.goTo(session.axis.frameAt(session.runs[lead], low + part * (high - low)), lead);
  }

  draw(context, width) {
    const plot = Math.max(1, width - GUTTER);
    this.session.runs.forEach((run, index) => {
      context.save();
      context.translate(0, index * STRIP);
      this.drawLabels(context, index);
      context.translate(GUTTER, 0);
      this.drawStrip(context, run, this.binned(run, Math.floor(plot)));
      context.restore();
    });
    this.drawView(context, plot);
  }

  drawLabels(context, index) {
    const { looks } = this;
    const name = this.session.runs.length > 1 ? `${"AB"[index]} ` : "";
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const entries = [
      ["decode", `${name}tokens a step`, 13],
      ["in_use", `${name}KV in use`, 29],
    ];
    for (const [look, text, y] of entries) {
      context.fillStyle = looks.colour(look);
      if (look === "decode") context.fillRect(10, y - 4, 9, 8);
      else context.fillRect(10, y - 1, 9, 2);
      context.fillStyle = looks.colour("muted");
      context.fillText(text, 25, y + 0.5);
    }
  }

  drawStrip(context, run, bins) {
    const { looks } = this;
    const floor = STRIP - 8;
    const scale = (floor - 5) / run.mostTokens;
    context.fillStyle = looks.colour("decode");
    bins.forEach((bin, x) => bin && context.fillRect(x, floor, 1, -(bin.decode + bin.prefill) * scale));
    context.fillStyle = looks.colour("prefill");
    bins.forEach((bin, x) => bin && context.fillRect(x, floor, 1, -bin.prefill * scale));
    context.strokeStyle = looks.colour("ground");
    for (const [colour, lineWidth] of [["ground", 3.5], ["in_use", 1.5]]) {
      context.strokeStyle = looks.colour(colour);
      context.lineWidth = lineWidth;
      context.beginPath();
      bins.forEach((bin, x) => bin && context.lineTo(x + 0.5, floor - (bin.inUse / run.numBlocks) * (floor - 5)));
      context.stroke();
    }
    context.fillStyle = looks.colour("preempted");
    bins.forEach((bin, x) => bin && bin.preempted && context.fillRect(x - 0.5, floor + 2, 2, 5));
  }

  drawView(context, plot) {
    const { axis, differentStep, lead, frame, run } = this.session;
    const [low, high] = axis.extent;
    const height = this.surface.height;
    const x = (unit) => GUTTER + ((unit - low) / (high - low)) * plot;
    context.fillStyle = this.looks.colour("ground");
    context.globalAlpha = 0.55;
    context.fillRect(GUTTER, 0, x(axis.start) - GUTTER, height);
    context.fillRect(x(axis.end), 0, GUTTER + plot - x(axis.end), height);
    context.globalAlpha = 1;
    context.strokeStyle = this.looks.colour("muted");
    context.lineWidth = 1;
    context.strokeRect(x(axis.start) + 0.5, 0.5, Math.max(2, x(axis.end) - x(axis.start) - 1), height - 1);
    if (differentStep !== null) {
      context.fillStyle = this.looks.colour("evicted");
      context.fillRect(x(axis.left(run, run.frameAtStep(differentStep))) - 1, 0, 2, height);
    }
    context.fillStyle = this.looks.colour("ink");
    context.fillRect(x(axis.left(this.session.runs[lead], frame)) - 0.75, 0, 1.5, height);
  }

  /** Means over the frames of each pixel; empty where there is no frame. */
  binned(run, width) {
    const key = `${this.session.axis.mode} ${width} ${this.session.runs.indexOf(run)}`;
    if (!this.bins.has(key)) {
      if (this.bins.size > 8) this.bins.clear();
      this.bins.set(key, this.bin(run, width));
    }
    return this.bins.get(key);
  }

  bin(run, width) {
    const { axis } = this.session;
    const [low, high] = axis.extent;
    const { frames } = run;
    const toPixel = (unit) => Math.min(width - 1, Math.floor(((unit - low) / (high - low)) * width));
    const bins = new Array(width).fill(null);
    for (let frame = 0; frame < run.numFrames; frame++) {
      const preempted = frames.preemptions[frame] > (frame ? frames.preemptions[frame - 1] : 0);
      const last = Math.max(toPixel(axis.left(run, frame)), toPixel(axis.right(run, frame)) - 1);
      for (let x = toPixel(axis.left(run, frame)); x <= last; x++) {
        const bin = (bins[x] ??= { count: 0, prefill: 0, decode: 0, inUse: 0, preempted: false });
        bin.count++;
        bin.prefill += frames.prefill_tokens[frame];
        bin.decode += frames.decode_tokens[frame];
        bin.inUse += frames.in_use[frame];
        bin.preempted ||= preempted;
      }
    }
    for (const bin of bins) {
      if (bin) for (const sum of ["prefill", "decode", "inUse"]) bin[sum] /= bin.count;
    }
    return bins;
  }

  disconnect() {
    this.surface.disconnect();
  }
}
