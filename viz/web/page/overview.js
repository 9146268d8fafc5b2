// The whole run in one strip: tokens of each step, KV blocks in use, preemptions, and which part is in view.

import { Surface, el } from "./dom.js";

export const GUTTER = 132;
const BAND = 21;
const STRIP = 2 * BAND + 7;

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
    context.fillStyle = looks.colour("muted");
    context.fillText(`${name}KV in use`, 10, BAND / 2 + 1);
    context.fillText(`${name}tokens a step`, 10, 1.5 * BAND + 1);
  }

  /** Above: the share of KV blocks in use. Below: tokens, prefill under decode; beneath, preemptions. */
  drawStrip(context, run, bins) {
    const { looks } = this;
    const fill = (look, alpha, rectangle) => {
      context.fillStyle = looks.colour(look);
      context.globalAlpha = alpha;
      bins.forEach((bin, x) => bin && context.fillRect(...rectangle(bin, x)));
      context.globalAlpha = 1;
    };
    const inUse = (bin) => Math.max(1, (bin.inUse / run.numBlocks) * (BAND - 4));
    fill("in_use", 0.35, (bin, x) => [x, BAND - 1, 1, -inUse(bin)]);
    fill("in_use", 1, (bin, x) => [x, BAND - 1 - inUse(bin), 1, 1.2]);
    const most = bins.reduce((sum, bin) => Math.max(sum, bin ? bin.prefill + bin.decode : 0), 1);
    const height = (tokens) => (tokens ? Math.max(1, (tokens / most) * (BAND - 3)) : 0);
    fill("decode", 1, (bin, x) => [x, 2 * BAND, 1, -height(bin.prefill + bin.decode)]);
    fill("prefill", 1, (bin, x) => [x, 2 * BAND, 1, -height(bin.prefill)]);
    fill("preempted", 1, (bin, x) => (bin.preempted ? [x - 0.5, 2 * BAND + 1, 2, 5] : [0, 0, 0, 0]));
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
