// A lane for each request: what it did in every step. Only lanes with something in view are there.

import { Surface, el } from "./dom.js";
import { count } from "./format.js";
import { LANE_HEIGHT, Marker } from "./marks.js";
import { GUTTER } from "./overview.js";
import { drawRuler, RULER_HEIGHT } from "./ruler.js";

const BROKEN = ["aborted", "error"];

export class Lanes {
  constructor(session, looks, runIndex) {
    this.session = session;
    this.looks = looks;
    this.runIndex = runIndex;
    this.run = session.runs[runIndex];
    this.top = 0;
    this.rows = [];
    this.shownFrame = -1;
    this.canvas = el("canvas", {
      class: "lanes",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "request lanes",
    });
    this.surface = new Surface(this.canvas, (context, width, height) => this.draw(context, width, height));
  }

  render() {
    this.surface.render();
    const chosen = this.session.selection;
    const name =
      chosen && chosen.kind === "request" && chosen.run === this.runIndex
        ? `, ${this.run.labels[chosen.row]} selected`
        : "";
    this.canvas.setAttribute("aria-label", `${count(this.rows.length, "request lane")}${name}. Arrow keys choose one.`);
  }

  get frame() {
    return this.session.frames[this.runIndex];
  }

  // ---- which lanes, and where --------------------------------------------------------------------------------------

  /** Requests that lived in the part of the run in view and match the filter, in order of arrival. */
  rowsInView() {
    const { axis } = this.session;
    const [first, last] = [axis.frameAt(this.run, axis.start), axis.frameAt(this.run, axis.end)];
    const { added, ended } = this.run.facts;
    const rows = [];
    for (let row = 0; row < this.run.numRequests; row++) {
      const isInView = added[row] <= last && (ended[row] < 0 || ended[row] >= first);
      if (isInView && this.session.matches(this.run, row)) rows.push(row);
    }
    return rows;
  }

  get highestTop() {
    return Math.max(0, this.rows.length * LANE_HEIGHT - (this.surface.height - RULER_HEIGHT));
  }

  /** Scroll by pixels; false if there is nothing to scroll. */
  scroll(pixels) {
    this.top += pixels;
    this.session.changed();
    return this.highestTop > 0;
  }

  rowAt(y) {
    return y < RULER_HEIGHT ? null : (this.rows[Math.floor((y - RULER_HEIGHT + this.top) / LANE_HEIGHT)] ?? null);
  }

  /** Keep the lane at the top where it is while others come and go; after a step, show who runs. */
  settle() {
    const anchor = this.rows[Math.floor(this.top / LANE_HEIGHT)];
    const offset = this.top % LANE_HEIGHT;
    this.rows = this.rowsInView();
    const index = anchor === undefined ? -1 : this.rows.findIndex((row) => row >= anchor);
    if (index >= 0) this.top = index * LANE_HEIGHT + offset;
    if (this.shownFrame !== this.frame) {
      this.shownFrame = this.frame;
      this.follow();
    }
    this.top = Math.min(this.highestTop, Math.max(0, this.top));
  }

  follow() {
    const alive = this.rows.map((row, index) => (this.run.isAlive(row, this.frame) ? index : -1)).filter((i) => i >= 0);
    if (!alive.length) return;
    const [low, high] = [alive[0] * LANE_HEIGHT, (alive[alive.length - 1] + 1) * LANE_HEIGHT];
    const height = this.surface.height - RULER_HEIGHT;
    if (low >= this.top && high <= this.top + height) return;
    if (high - low > height && low >= this.top && low < this.top + height / 2) return;
    this.top = Math.max(0, low - LANE_HEIGHT);
  }

  /** Select the next lane (`direction` 1) or the one before (-1). */
  choose(direction) {
    const { selection } = this.session;
    const current = selection && selection.kind === "request" ? this.rows.indexOf(selection.row) : -1;
    const firstShown = Math.ceil(this.top / LANE_HEIGHT);
    const index = current < 0 ? firstShown : Math.min(this.rows.length - 1, Math.max(0, current + direction));
    if (this.rows[index] === undefined) return;
    const [low, high] = [index * LANE_HEIGHT, (index + 1) * LANE_HEIGHT - (this.surface.height - RULER_HEIGHT)];
    this.top = Math.max(high, Math.min(low, this.top));
    this.session.select({ run: this.runIndex, kind: "request", row: this.rows[index] });
  }

  // ---- drawing -----------------------------------------------------------------------------------------------------

  draw(context, width, height) {
    const { axis } = this.session;
    axis.width = Math.max(1, width - GUTTER);
    this.settle();
    context.save();
    context.beginPath();
    context.rect(0, RULER_HEIGHT, width, height - RULER_HEIGHT);
    context.clip();
    this.drawCursor(context, height);
    const first = Math.floor(this.top / LANE_HEIGHT);
    const end = Math.min(this.rows.length, Math.ceil((this.top + height - RULER_HEIGHT) / LANE_HEIGHT));
    for (let i = first; i < end; i++) this.drawLane(context, i, RULER_HEIGHT + i * LANE_HEIGHT - this.top, width);
    context.restore();
    drawRuler(context, this, width, height);
  }

  drawLane(context, index, top, width) {
    const { looks } = this;
    const row = this.rows[index];
    const isSelected = this.session.isSelected(this.runIndex, "request", row);
    context.fillStyle = looks.colour("ink");
    context.globalAlpha = isSelected ? 0.12 : index % 2 ? 0.025 : 0;
    context.fillRect(0, top, width, LANE_HEIGHT);
    context.globalAlpha = this.run.isAlive(row, this.frame) ? 1 : 0.55;
    context.save();
    context.beginPath();
    context.rect(10, top, GUTTER - 18, LANE_HEIGHT);
    context.clip();
    context.font = `${isSelected ? "600 " : ""}12px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.fillText(this.run.labels[row], 10, top + LANE_HEIGHT / 2 + 1);
    context.restore();
    context.globalAlpha = 1;
    context.save();
    context.beginPath();
    context.rect(GUTTER, top, width - GUTTER, LANE_HEIGHT);
    context.clip();
    context.translate(GUTTER, 0);
    this.drawStretches(new Marker(context, looks), row, top);
    context.restore();
  }

  drawStretches(marker, row, top) {
    const { axis } = this.session;
    const { run } = this;
    const { columns, frame: frames } = run.motion;
    const [first, end] = run.motion.span(row);
    const last = run.facts.ended[row] < 0 ? run.numFrames - 1 : run.facts.ended[row];
    const lastInView = Math.min(last, axis.frameAt(run, axis.end));
    const hits = [];
    for (let i = Math.max(first, run.motion.at(row, axis.frameAt(run, axis.start))); i < end; i++) {
      const [from, to] = [frames[i], i + 1 < end ? frames[i + 1] - 1 : last];
      if (from > lastInView) break;
      const [x0, x1] = [axis.toX(axis.left(run, from)), axis.toX(axis.right(run, to))];
      marker.stretch(run.meanings.activities[columns.activity[i]], top, x0, x1, to - from + 1, columns.scheduled[i]);
      if (columns.hit[i] && (i === first || !columns.hit[i - 1])) hits.push(x0);
    }
    for (const x of hits) marker.diamond(x + 1, top);
    if (run.facts.ended[row] >= 0) {
      const reason = run.finish_reasons[run.facts.reason[row]];
      marker.end(axis.toX(axis.right(run, last)), top, BROKEN.includes(reason));
    }
  }

  /** The steps of this moment and of the first difference, as columns behind the lanes. */
  drawCursor(context, height) {
    const { axis, differentStep } = this.session;
    const column = (frame, look, alpha) => {
      const [x0, x1] = [axis.toX(axis.left(this.run, frame)), axis.toX(axis.right(this.run, frame))];
      if (x1 < 0) return;
      context.fillStyle = this.looks.colour(look);
      context.globalAlpha = x1 - x0 > 4 ? alpha : 0.6;
      context.fillRect(GUTTER + x0, RULER_HEIGHT, Math.max(1.5, x1 - x0), height);
      context.globalAlpha = 1;
    };
    if (differentStep !== null) column(this.run.frameAtStep(differentStep), "evicted", 0.25);
    column(this.frame, "ink", 0.1);
  }

  disconnect() {
    this.surface.disconnect();
  }
}
