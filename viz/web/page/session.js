// What one looks at: the step, the view, the selection. Everything on the page is drawn from a session, after it says
// that something has changed.

import { Axis } from "./axis.js";
import { lastAtMost } from "./track.js";

export const SPEEDS = [1, 2, 5, 10, 30, 100, 1000];

export class Session {
  /**
   * `difference`: of two runs, `{step, facts}`: where their decisions part (null if only options differ), in words;
   * null if they do not differ.
   */
  constructor(runs, difference) {
    this.runs = runs;
    this.difference = difference;
    this.differentStep = difference?.step ?? null;
    this.axis = new Axis(runs);
    this.frames = runs.map(() => 0);
    this.lead = 0;
    this.selection = null;
    this.filter = "";
    this.speed = 10;
    this.playing = false;
    this.jumpKind = null;
    this.listeners = [];
    this.isDue = false;
    this.isClosed = false;
  }

  // ---- listeners ---------------------------------------------------------------------------------------------------

  onChange(listener) {
    this.listeners.push(listener);
  }

  /** Draw again before the next frame of the screen, however often this is called. */
  changed() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => this.flush());
  }

  flush() {
    if (!this.isDue || this.isClosed) return;
    this.isDue = false;
    for (const listener of this.listeners) listener();
  }

  close() {
    this.isClosed = true;
    this.playing = false;
  }

  // ---- where one is ------------------------------------------------------------------------------------------------

  get run() {
    return this.runs[this.lead];
  }

  get frame() {
    return this.frames[this.lead];
  }

  /** Go to a frame of a run (by default the leading one); another run follows to the same step, or the same time. */
  goTo(frame, lead = this.lead) {
    const run = this.runs[lead];
    this.lead = lead;
    const target = Math.min(run.numFrames - 1, Math.max(0, frame));
    this.frames = this.runs.map((other, index) => {
      if (index === lead) return target;
      return this.axis.mode === "step"
        ? other.frameAtStep(run.frames.step[target])
        : other.frameAtTime(run.frames.end_ns[target]);
    });
    this.axis.reveal(this.axis.left(run, target), this.axis.right(run, target));
    this.changed();
  }

  goToStep(step, lead = this.lead) {
    this.goTo(this.runs[lead].frameAtStep(step), lead);
  }

  /** Go to the first decision in which two runs differ. */
  goToDifference() {
    if (this.differentStep !== null) this.goToStep(this.differentStep);
  }

  /** Go `count` frames on, or back if it is negative. */
  move(count) {
    this.goTo(this.frame + count);
  }

  /** The next frame of a kind after (`direction` 1) or before (-1) this one, or null. */
  nextOf(kindName, direction) {
    const jump = this.run.jumps.find(({ kind }) => kind.name === kindName);
    if (!jump) return null;
    const index = direction > 0 ? lastAtMost(jump.frames, this.frame) + 1 : lastAtMost(jump.frames, this.frame - 1);
    return jump.frames[index] ?? null;
  }

  jump(kindName, direction) {
    this.jumpKind = kindName;
    const frame = this.nextOf(kindName, direction);
    if (frame !== null) this.goTo(frame);
    else this.changed();
  }

  // ---- playing -----------------------------------------------------------------------------------------------------

  play(isPlaying = !this.playing) {
    if (isPlaying && this.frame === this.run.numFrames - 1) this.goTo(0);
    const wasPlaying = this.playing;
    this.playing = isPlaying;
    this.changed();
    if (isPlaying && !wasPlaying) this.tick(performance.now(), 0);
  }

  /** `owed`: the part of a step that is due but not gone yet. */
  tick(then, owed) {
    requestAnimationFrame((now) => {
      if (!this.playing || this.isClosed) return;
      const due = owed + (Math.min(250, now - then) / 1000) * this.speed;
      const steps = Math.floor(due);
      if (steps) this.move(steps);
      if (this.frame === this.run.numFrames - 1) this.play(false);
      else this.tick(now, due - steps);
    });
  }

  // ---- what one looks at -------------------------------------------------------------------------------------------

  /** `selection`: null, or `{run, kind: "request" | "block", row}`, `run` being an index. */
  select(selection) {
    this.selection = selection;
    this.changed();
  }

  isSelected(run, kind, row) {
    const { selection } = this;
    return selection !== null && selection.run === run && selection.kind === kind && selection.row === row;
  }

  matches(run, row) {
    return !this.filter || run.labels[row].toLowerCase().includes(this.filter);
  }

  setFilter(text) {
    this.filter = text.trim().toLowerCase();
    this.changed();
  }

  setMode(mode) {
    this.axis.setMode(mode);
    this.goTo(this.frame);
  }
}
