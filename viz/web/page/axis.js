// The one horizontal axis: which part of the run is in view, in steps or in time, and where that is on the screen.

const FEWEST_STEPS = 6;
const FEWEST_NS = 1000;

export class Axis {
  constructor(runs) {
    this.runs = runs;
    this.width = 1;
    this.setMode("step");
  }

  /** `step`: every step is equally wide. `time`: as long as it took. */
  setMode(mode) {
    this.mode = mode;
    const ends = this.runs.map((run) => this.right(run, run.numFrames - 1));
    const starts = this.runs.map((run) => this.left(run, 0));
    this.extent = [Math.min(...starts), Math.max(...ends)];
    if (this.extent[1] <= this.extent[0]) this.extent[1] = this.extent[0] + this.fewest;
    this.fit();
  }

  get fewest() {
    return this.mode === "step" ? FEWEST_STEPS : FEWEST_NS;
  }

  /** Where a frame begins and ends, in units of the axis. */
  left(run, frame) {
    return this.mode === "step" ? run.frames.step[frame] : run.frames.start_ns[frame];
  }

  right(run, frame) {
    return this.mode === "step" ? run.frames.step[frame] + 1 : run.frames.end_ns[frame];
  }

  /** The frame that lies at `unit`, or the last one before it. */
  frameAt(run, unit) {
    if (this.mode === "step") return run.frameAtStep(Math.floor(unit));
    const frame = run.frameAtTime(unit);
    return frame + 1 < run.numFrames && run.frames.start_ns[frame + 1] <= unit ? frame + 1 : frame;
  }

  toX(unit) {
    return ((unit - this.start) * this.width) / (this.end - this.start);
  }

  toUnit(x) {
    return this.start + (x * (this.end - this.start)) / this.width;
  }

  // ---- moving ------------------------------------------------------------------------------------------------------

  fit() {
    [this.start, this.end] = this.extent;
    if (this.end - this.start < this.fewest) this.end = this.start + this.fewest;
  }

  /** Show this many units from `start` on, or all if there are fewer. */
  show(start, length) {
    this.start = start;
    this.end = start + Math.min(length, Math.max(this.fewest, this.extent[1] - this.extent[0]));
    this.pan(0);
  }

  /** Show a `factor` times as long part; what is at `x` stays there. */
  zoom(factor, x) {
    const unit = this.toUnit(x);
    const whole = Math.max(this.extent[1] - this.extent[0], this.fewest);
    const length = Math.min(whole, Math.max(this.fewest, (this.end - this.start) * factor));
    this.start = unit - (x / this.width) * length;
    this.end = this.start + length;
    this.pan(0);
  }

  /** Move the view by a part of its length, not beyond the ends of the run. */
  pan(part) {
    const length = this.end - this.start;
    const highest = Math.max(this.extent[0], this.extent[1] - length);
    this.start = Math.min(highest, Math.max(this.extent[0], this.start + part * length));
    this.end = this.start + length;
  }

  /** Bring `[left, right)` into view. */
  reveal(left, right) {
    const length = this.end - this.start;
    if (left < this.start) this.start = left - 0.2 * length;
    else if (right > this.end) this.start = right - 0.8 * length;
    else return;
    this.end = this.start + length;
    this.pan(0);
  }
}
