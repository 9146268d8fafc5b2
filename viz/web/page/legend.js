// What the marks on the lanes and the parts of the bars mean.

import { Surface, el } from "./dom.js";
import { LANE_HEIGHT, Marker } from "./marks.js";

const LANES = [
  ["waiting", "waiting"],
  ["held", "held"],
  ["prefill", "prefill"],
  ["decode", "decode"],
  ["idle", "running, not scheduled"],
  ["preempted", "preempted"],
];
const BARS = [
  ["hit", "prefix hit"],
  ["computed", "computed"],
  ["scheduled", "scheduled now"],
  ["remaining", "still to do"],
  ["prompt", "prompt"],
  ["generated", "generated"],
];

export class Legend {
  constructor(looks) {
    this.looks = looks;
    this.surfaces = [];
    const lanes = LANES.map(([activity, label]) =>
      this.mark(label, 26, (marker) => marker.stretch(activity, 0, 1, 25, activity === "decode" ? 4 : 1, 0)),
    );
    const hit = this.mark("prefix hit", 14, (marker) => marker.diamond(7, 0));
    const end = this.mark("finished", 9, (marker) => marker.end(0, 0, false));
    const broken = this.mark("aborted", 10, (marker) => marker.end(0, 0, true));
    const bars = BARS.map(([name, label]) => {
      return el("span", { class: "entry" }, el("span", { class: `part sample ${name}`, "aria-hidden": "true" }), label);
    });
    this.element = el(
      "footer",
      { class: "legend", "aria-label": "Legend" },
      el("span", { class: "legend-group" }, el("b", {}, "Lanes"), ...lanes, hit, end, broken),
      el("span", { class: "legend-group" }, el("b", {}, "Bars"), ...bars),
    );
  }

  mark(label, width, draw) {
    const canvas = el("canvas", { class: "mark", "aria-hidden": "true" });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${LANE_HEIGHT}px`;
    this.surfaces.push(new Surface(canvas, (context) => draw(new Marker(context, this.looks))));
    return el("span", { class: "entry" }, canvas, label);
  }

  /** After a change of theme. */
  render() {
    for (const surface of this.surfaces) surface.render();
  }

  disconnect() {
    for (const surface of this.surfaces) surface.disconnect();
  }
}
