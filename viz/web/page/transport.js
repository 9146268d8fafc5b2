// Stepping, playing and jumping.

import { button, el, icon, setText } from "./dom.js";
import { count, duration, number } from "./format.js";
import { SPEEDS } from "./session.js";

export class Transport {
  constructor(session, looks) {
    this.session = session;
    this.looks = looks;
    this.jumps = [];
    this.element = el("div", { class: "transport", role: "toolbar", "aria-label": "Steps" }, ...this.steps());
    this.jumpBar = el("div", { class: "jumps", role: "toolbar", "aria-label": "Jump to an event" });
    this.lead = -1;
  }

  steps() {
    const { session } = this;
    this.playButton = button("Play (Space)", "play", () => session.play(), { class: "play" });
    this.stepInput = el("input", {
      type: "text",
      inputmode: "numeric",
      "aria-label": "Step",
      class: "step-input",
      size: "7",
    });
    this.stepInput.addEventListener("change", () => this.goToInput());
    this.total = el("span", { class: "muted" });
    this.time = el("span", { class: "muted time" });
    const speeds = SPEEDS.map((speed) =>
      el("option", { value: speed, selected: speed === session.speed }, `${speed} / s`),
    );
    const speedSelect = el(
      "select",
      { "aria-label": "Steps per second when playing", title: "Steps per second" },
      ...speeds,
    );
    speedSelect.addEventListener("change", () => (session.speed = Number(speedSelect.value)));
    return [
      el(
        "span",
        { class: "group" },
        button("First step (Home)", "first", () => session.goTo(0)),
        button("Previous step (,)", "previous", () => session.move(-1)),
        this.playButton,
        button("Next step (.)", "next", () => session.move(1)),
        button("Last step (End)", "last", () => session.goTo(session.run.numFrames - 1)),
      ),
      speedSelect,
      el("label", { class: "step" }, "Step ", this.stepInput),
      this.total,
      this.time,
      el("span", { class: "spacer" }),
      this.axisChoice(),
      this.differenceButton(),
    ];
  }

  axisChoice() {
    const { session } = this;
    this.modes = ["step", "time"].map((mode) => {
      const text = mode === "step" ? "steps" : "time";
      return el("button", { type: "button", "data-mode": mode, on: { click: () => session.setMode(mode) } }, text);
    });
    return el("span", { class: "group", role: "group", "aria-label": "Axis of the timeline (T)" }, ...this.modes);
  }

  differenceButton() {
    const { session } = this;
    if (session.runs.length < 2) return null;
    if (session.differentStep === null) return el("span", { class: "muted" }, "Both runs made the same decisions.");
    const go = () => session.goToDifference();
    return button("First difference (X)", "First difference", go, { class: "difference" });
  }

  goToInput() {
    const step = Number(this.stepInput.value);
    if (Number.isFinite(step)) this.session.goToStep(step);
    this.session.changed();
  }

  // ---- jumps -------------------------------------------------------------------------------------------------------

  /** `‹ preemption 12 ›` for each kind of event that occurs. */
  buildJumps() {
    const { session, looks } = this;
    this.lead = session.lead;
    this.jumps = session.run.jumps.map(({ kind, frames }) => {
      const go = (direction) => () => session.jump(kind.name, direction);
      const back = button(`Previous ${kind.label}`, "left", go(-1));
      const on = button(`Next ${kind.label}`, "right", go(1));
      const glyph = el("span", { class: "glyph", "aria-hidden": "true" }, looks.glyph(kind.look));
      glyph.style.color = `var(--${kind.look.replaceAll("_", "-")})`;
      const tally = el("span", { class: "muted" }, number(frames.length));
      const name = el("button", { type: "button", class: "kind", on: { click: go(1) } }, glyph, kind.label, tally);
      name.title = `In ${count(frames.length, "step")}. Then [ and ] go back and on.`;
      return { kind, back, on, element: el("span", { class: "jump group" }, back, name, on) };
    });
    const whose = session.runs.length > 1 ? el("b", {}, `In ${"AB"[session.lead]}`) : "";
    this.jumpBar.replaceChildren(whose, ...this.jumps.map((jump) => jump.element));
  }

  render() {
    const { session } = this;
    const { run, frame } = session;
    if (this.lead !== session.lead) this.buildJumps();
    for (const { kind, back, on, element } of this.jumps) {
      // Not `disabled`: that would take the focus away from who steps by keyboard.
      back.setAttribute("aria-disabled", String(session.nextOf(kind.name, -1) === null));
      on.setAttribute("aria-disabled", String(session.nextOf(kind.name, 1) === null));
      element.classList.toggle("chosen", session.jumpKind === kind.name);
    }
    this.renderPlay();
    if (this.stepInput.getRootNode().activeElement !== this.stepInput) this.stepInput.value = run.frames.step[frame];
    setText(this.total, `of ${run.frames.step[run.numFrames - 1]}`);
    setText(this.time, duration(run.frames.end_ns[frame]));
    for (const mode of this.modes) mode.setAttribute("aria-pressed", String(mode.dataset.mode === session.axis.mode));
  }

  renderPlay() {
    const face = this.session.playing ? "pause" : "play";
    if (this.playButton.dataset.face === face) return;
    this.playButton.dataset.face = face;
    this.playButton.setAttribute("aria-label", face === "play" ? "Play (Space)" : "Pause (Space)");
    this.playButton.replaceChildren(icon(face));
  }
}
