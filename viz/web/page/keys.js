// The keyboard: everything that can be done here, each with its key, and the list of them.

import { button, el } from "./dom.js";

const ZOOM = 0.7;
const PAN = 0.15;

/** `[keys, what it says in the list, what it does]`. */
function commands(app) {
  const { session, timeline } = app;
  const jump = (direction) => session.jump(session.jumpKind ?? session.run.jumps[0]?.kind.name, direction);
  const nextKind = () => {
    const names = session.run.jumps.map(({ kind }) => kind.name);
    session.jumpKind = names[(names.indexOf(session.jumpKind) + 1) % names.length] ?? null;
    session.changed();
  };
  return [
    [[".", "ArrowRight"], "next step", () => session.move(1)],
    [[",", "ArrowLeft"], "previous step", () => session.move(-1)],
    [[">"], "ten steps on", () => session.move(10)],
    [["<"], "ten steps back", () => session.move(-10)],
    [["Home"], "first step", () => session.goTo(0)],
    [["End"], "last step", () => session.goTo(session.run.numFrames - 1)],
    [[" "], "play, pause", () => session.play()],
    [["]"], "next event of the chosen kind", () => jump(1)],
    [["["], "previous event of the chosen kind", () => jump(-1)],
    [["e"], "choose the next kind of event", nextKind],
    [["x"], "first difference of two runs", () => session.goToDifference()],
    [["w"], "zoom in", () => timeline.zoom(ZOOM)],
    [["s"], "zoom out", () => timeline.zoom(1 / ZOOM)],
    [["a"], "move the view left", () => timeline.pan(-PAN)],
    [["d"], "move the view right", () => timeline.pan(PAN)],
    [["f"], "fit the whole run", () => timeline.fit()],
    [["t"], "axis in steps or in time", () => session.setMode(session.axis.mode === "step" ? "time" : "step")],
    [["/"], "find a request", () => app.search.focus()],
    [["g"], "go to a step", () => app.transport.stepInput.select()],
    [["l"], "light or dark", () => app.toggleTheme()],
    [["?"], "this list", () => app.help.toggle()],
    [["Escape"], "close details, or this list", () => app.escape()],
  ];
}

const SHOWN = { " ": "Space", ArrowRight: "→", ArrowLeft: "←", Escape: "Esc" };

/** Listens on `target`. Where text is typed only Escape counts, and Space presses the button that has the focus. */
export class Keys {
  constructor(app, target) {
    this.commands = commands(app);
    this.byKey = new Map(this.commands.flatMap(([keys, , run]) => keys.map((key) => [key, run])));
    this.target = target;
    this.listener = (event) => this.press(event);
    target.addEventListener("keydown", this.listener);
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const focused = event.composedPath()[0];
    const isTyping = focused instanceof HTMLInputElement || focused instanceof HTMLSelectElement;
    if (isTyping && event.key !== "Escape") return;
    if (event.key === " " && focused instanceof HTMLButtonElement) return;
    const run = this.byKey.get(event.key.length === 1 ? event.key.toLowerCase() : event.key);
    if (!run) return;
    event.preventDefault();
    run();
  }

  disconnect() {
    this.target.removeEventListener("keydown", this.listener);
  }
}

export class Help {
  constructor() {
    this.list = el("dl", { class: "keys" });
    const close = button("Close (Esc)", "close", () => this.element.close());
    const heading = el("header", {}, el("h2", {}, "Keys"), close);
    const wheel =
      "The wheel zooms over the overview and the ruler and scrolls the lanes (Ctrl: zooms them); sideways, or with " +
      "Shift, it moves the view. Drag the lanes to move them, the ruler or the overview to move the step. In the " +
      "lanes the arrow keys choose a request, in the block grid a block.";
    this.element = el(
      "dialog",
      { class: "help", "aria-label": "Keys" },
      heading,
      this.list,
      el("p", { class: "muted" }, wheel),
    );
  }

  /** The list of an app's commands. */
  fill(commandList) {
    const entries = commandList.map(([keys, text]) => {
      const caps = keys.flatMap((key, i) => [
        i ? " " : "",
        el("kbd", {}, SHOWN[key] ?? (key.length === 1 ? key.toUpperCase() : key)),
      ]);
      return el("div", {}, el("dt", {}, ...caps), el("dd", {}, text));
    });
    this.list.replaceChildren(...entries);
  }

  toggle() {
    if (this.element.open) this.element.close();
    else this.element.showModal();
  }
}
