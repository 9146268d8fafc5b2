// The page as a whole: `mount` builds it into any element, in a shadow root of its own, so that neither its style nor
// that of the surroundings leaks.

import { Blocks } from "./blocks.js";
import { Counters } from "./counters.js";
import { decodeTables } from "./decode.js";
import { button, el } from "./dom.js";
import { number } from "./format.js";
import { Inspector } from "./inspector.js";
import { Help, Keys } from "./keys.js";
import { Legend } from "./legend.js";
import { Looks } from "./looks.js";
import { Queues } from "./queues.js";
import { Run } from "./run.js";
import { Search } from "./search.js";
import { Session } from "./session.js";
import { Timeline } from "./timeline.js";
import { Tooltip } from "./tooltip.js";
import { Transport } from "./transport.js";
import { Announcer, Words } from "./words.js";

const FIRST_VIEW = 240; // steps: few enough to tell them apart

/**
 * Build a replay of `data` (as page.py exports it) into `root`. `keyTarget`: whose key presses it takes, by default
 * those inside of `root`. Resolves to the app: `goToStep(step)`, `snapshot()`, `session`, `destroy()`.
 */
export async function mount(root, data, { keyTarget = root, styles = STYLES } = {}) {
  const tables = await Promise.all(data.runs.map((run) => decodeTables(run.tables)));
  const runs = data.runs.map((run, index) => new Run(run, tables[index], data.meanings));
  return new App(root, new Session(runs, data.difference), new Looks(data.looks), { keyTarget, styles });
}

class App {
  constructor(root, session, looks, { keyTarget, styles }) {
    this.root = root;
    this.session = session;
    this.looks = looks;
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    this.looks.apply(root, this.dark.matches ? "dark" : "light");
    this.followTheme = () => this.setTheme(this.dark.matches ? "dark" : "light");
    this.dark.addEventListener("change", this.followTheme);
    this.build(styles);
    this.keys = new Keys(this, keyTarget);
    this.help.fill(this.keys.commands);
    session.onChange(() => this.render());
    session.axis.show(0, FIRST_VIEW);
    session.goTo(0);
    session.flush();
  }

  // ---- building ----------------------------------------------------------------------------------------------------

  build(styles) {
    const { session, looks } = this;
    this.tooltip = new Tooltip();
    this.timeline = new Timeline(session, looks, this.tooltip);
    this.transport = new Transport(session, looks);
    this.search = new Search(session);
    this.legend = new Legend(looks);
    this.help = new Help();
    this.words = session.runs.map((_, index) => new Words(session, looks, index));
    this.inspector = new Inspector(session, this.words);
    this.announcer = new Announcer(session, this.words);
    this.panels = session.runs.map((_, index) => [
      this.words[index],
      new Counters(session, index),
      new Queues(session, looks, index),
      new Blocks(session, looks, index, this.tooltip),
    ]);
    const columns = this.panels.map(([words, counters, queues, blocks]) => {
      const told = el("div", { class: "told" }, words.element, counters.element);
      return el("div", { class: "run-panels" }, told, queues.element, blocks.element);
    });
    const isPair = session.runs.length > 1;
    const main = el(
      "main",
      { class: isPair ? "app pair" : "app" },
      ...[
        this.header(),
        ...this.banners(),
        this.transport.element,
        this.transport.jumpBar,
        this.timeline.element,
        el("div", { class: "panels" }, ...columns, this.inspector.element),
        this.legend.element,
        this.tooltip.element,
        this.help.element,
        this.announcer.element,
      ],
    );
    const shadow = this.root.shadowRoot ?? this.root.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(styles);
    shadow.adoptedStyleSheets = [sheet];
    shadow.replaceChildren(main);
  }

  header() {
    const names = this.session.runs.map((run, index) => {
      const letter = this.session.runs.length > 1 ? el("b", { class: "letter" }, "AB"[index]) : null;
      return el(
        "span",
        { class: "run-name" },
        letter,
        el("h1", {}, run.name),
        el("span", { class: "muted" }, optionsInWords(run)),
      );
    });
    const theme = button("Light or dark (L)", "theme", () => this.toggleTheme());
    const help = button("Keys (?)", "?", () => this.help.toggle());
    return el(
      "header",
      { class: "masthead" },
      ...names,
      el("span", { class: "spacer" }),
      this.search.element,
      theme,
      help,
    );
  }

  banners() {
    const { runs, difference } = this.session;
    const incomplete = runs
      .filter((run) => run.problem)
      .map((run) => {
        return el("div", { class: "banner", role: "alert" }, el("b", {}, "incomplete: "), run.problem);
      });
    const facts = difference?.facts.map((fact) => el("div", {}, fact)) ?? [];
    return facts.length ? [...incomplete, el("div", { class: "banner differs" }, ...facts)] : incomplete;
  }

  // ---- while it runs -----------------------------------------------------------------------------------------------

  render() {
    const parts = [this.transport, this.search, this.timeline, ...this.panels.flat(), this.inspector, this.announcer];
    for (const part of parts) part.render();
    this.onStep?.(this.session.run.frames.step[this.session.frame]);
  }

  toggleTheme() {
    this.setTheme(this.looks.theme === "dark" ? "light" : "dark");
  }

  setTheme(theme) {
    this.looks.apply(this.root, theme);
    this.legend.render();
    this.session.changed();
  }

  escape() {
    if (this.help.element.open) this.help.element.close();
    else if (this.session.selection) this.session.select(null);
    else this.search.clear();
  }

  goToStep(step) {
    this.session.goToStep(step);
    this.session.flush();
  }

  /** The state of a run (by default the leading one) at this moment as plain values. */
  snapshot(index = this.session.lead) {
    return this.session.runs[index].snapshot(this.session.frames[index]);
  }

  /** Stop, and take away all that was built. */
  destroy() {
    this.session.close();
    this.keys.disconnect();
    this.dark.removeEventListener("change", this.followTheme);
    for (const part of [this.timeline, this.legend, ...this.panels.flat()]) part.disconnect?.();
    this.root.shadowRoot.replaceChildren();
  }
}

function optionsInWords({ policy, backend, model, options, blockSize, numBlocks }) {
  const words = [policy.replaceAll("_", "-"), model ? `${model} on ${backend}` : backend];
  if (options.max_num_seqs) words.push(`${number(options.max_num_seqs)} slots`);
  if (options.max_num_batched_tokens) words.push(`budget ${number(options.max_num_batched_tokens)} tokens`);
  words.push(`${number(numBlocks)} blocks of ${number(blockSize)}`);
  if (options.enable_prefix_caching === false) words.push("no prefix cache");
  if (options.watermark_blocks) words.push(`watermark ${number(options.watermark_blocks)}`);
  return words.join(" · ");
}
