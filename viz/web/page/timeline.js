// Overview and lanes on one axis, and the pointer on them: wheel and drag move the view, a click goes to a step.

import { el } from "./dom.js";
import { count, number } from "./format.js";
import { Lanes } from "./lanes.js";
import { GUTTER, Overview } from "./overview.js";
import { RULER_HEIGHT } from "./ruler.js";

const CLICK_PX = 4;

export class Timeline {
  constructor(session, looks, tooltip) {
    this.session = session;
    this.tooltip = tooltip;
    this.overview = new Overview(session, looks);
    this.lanes = session.runs.map((_, index) => new Lanes(session, looks, index));
    const panes = this.lanes.map((lanes) => el("div", { class: "lane-pane" }, lanes.canvas));
    this.element = el("section", { class: "timeline", "aria-label": "Timeline" }, this.overview.canvas, ...panes);
    for (const lanes of this.lanes) this.listen(lanes);
    this.overview.canvas.addEventListener("wheel", (event) => this.zoomByWheel(event), { passive: false });
  }

  render() {
    for (const lanes of this.lanes) lanes.render();
    this.overview.render();
  }

  listen(lanes) {
    const { canvas } = lanes;
    canvas.addEventListener("wheel", (event) => this.wheel(event, lanes), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.grab(event, lanes));
    canvas.addEventListener("pointermove", (event) => this.hover(event, lanes));
    canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    canvas.addEventListener("keydown", (event) => {
      const direction = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!direction) return;
      event.preventDefault();
      lanes.choose(direction);
    });
  }

  // ---- moving the view ---------------------------------------------------------------------------------------------

  /** Zoom about the step one looks at, or about the middle if that is out of view. */
  zoom(factor) {
    const { axis, run, frame } = this.session;
    const x = axis.toX((axis.left(run, frame) + axis.right(run, frame)) / 2);
    axis.zoom(factor, x >= 0 && x <= axis.width ? x : axis.width / 2);
    this.session.changed();
  }

  pan(part) {
    this.session.axis.pan(part);
    this.session.changed();
  }

  fit() {
    this.session.axis.fit();
    this.session.changed();
  }

  /** Over lanes that scroll, the wheel scrolls them and zooms with Ctrl; elsewhere it zooms. Sideways it pans. */
  wheel(event, lanes) {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.session.axis.width);
    } else if (event.ctrlKey || event.offsetY < RULER_HEIGHT || lanes.highestTop === 0) {
      this.zoomByWheel(event);
    } else {
      event.preventDefault();
      lanes.scroll(event.deltaY);
    }
  }

  zoomByWheel(event) {
    event.preventDefault();
    this.session.axis.zoom(Math.exp(event.deltaY * 0.002), Math.max(0, event.offsetX - GUTTER));
    this.session.changed();
  }

  // ---- the pointer -------------------------------------------------------------------------------------------------

  /** A drag on the ruler moves the step, a drag on the lanes moves the view; a press without a drag is a click. */
  grab(down, lanes) {
    const { canvas } = lanes;
    const isRuler = down.offsetY < RULER_HEIGHT;
    const from = { x: down.offsetX, y: down.offsetY }; // after its time an event no longer knows its target
    let [x, y, hasMoved] = [from.x, from.y, false];
    canvas.setPointerCapture(down.pointerId);
    this.tooltip.hide();
    const drag = (event) => {
      hasMoved ||= Math.hypot(event.offsetX - from.x, event.offsetY - from.y) > CLICK_PX;
      if (isRuler) this.goTo(event.offsetX, lanes);
      else if (hasMoved) {
        this.pan((x - event.offsetX) / this.session.axis.width);
        lanes.scroll(y - event.offsetY);
        [x, y] = [event.offsetX, event.offsetY];
      }
    };
    const drop = () => {
      canvas.removeEventListener("pointermove", drag);
      if (!hasMoved) this.click(from, lanes);
    };
    canvas.addEventListener("pointermove", drag);
    canvas.addEventListener("pointerup", drop, { once: true });
  }

  goTo(x, lanes) {
    const { axis } = this.session;
    lanes.shownFrame = axis.frameAt(lanes.run, axis.toUnit(x - GUTTER));
    this.session.goTo(lanes.shownFrame, lanes.runIndex);
  }

  click({ x, y }, lanes) {
    const row = lanes.rowAt(y);
    if (x >= GUTTER) this.goTo(x, lanes);
    if (row !== null) this.session.select({ run: lanes.runIndex, kind: "request", row });
  }

  hover(event, lanes) {
    const row = lanes.rowAt(event.offsetY);
    if (event.buttons || row === null) return this.tooltip.hide();
    const { run } = lanes;
    if (event.offsetX < GUTTER) return this.tooltip.show(event, [run.labels[row]]);
    const { axis } = this.session;
    const frame = axis.frameAt(run, axis.toUnit(event.offsetX - GUTTER));
    if (!run.isAlive(row, frame)) return this.tooltip.hide();
    return this.tooltip.show(event, describe(run.request(row, frame), run.frames.step[frame]));
  }

  disconnect() {
    this.overview.disconnect();
    for (const lanes of this.lanes) lanes.disconnect();
  }
}

function describe(request, step) {
  const activity = { idle: "running, not scheduled" }[request.activity] ?? request.activity;
  const doing = request.scheduled ? `${activity}, ${count(request.scheduled, "token")}` : activity;
  return [
    `${request.label}, step ${step}`,
    doing,
    `${number(request.cached)} of ${count(request.tokens, "token")} cached`,
    ...(request.hit ? [`${number(request.hit)} of them found in the cache`] : []),
    ...(request.reason ? [`ends here: ${request.reason}`] : []),
  ];
}
