// Finding a request by its name: fewer lanes as one types, Enter goes from one to the next.

import { el, setText } from "./dom.js";
import { number } from "./format.js";

export class Search {
  constructor(session) {
    this.session = session;
    this.input = el("input", {
      type: "search",
      placeholder: "Find a request ( / )",
      "aria-label": "Find a request",
      class: "search",
    });
    this.found = el("span", { class: "muted found", role: "status", "aria-live": "polite" });
    this.element = el("span", { class: "search-box" }, this.input, this.found);
    this.last = -1;
    this.input.addEventListener("input", () => {
      this.last = -1;
      session.setFilter(this.input.value);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next();
      if (event.key === "Escape") this.clear();
    });
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  clear() {
    this.input.value = "";
    this.session.setFilter("");
    this.input.blur();
  }

  get matches() {
    const { run } = this.session;
    const rows = [];
    for (let row = 0; row < run.numRequests; row++) if (this.session.matches(run, row)) rows.push(row);
    return rows;
  }

  /** Select the next match, and go to a step at which it is there. */
  next() {
    const rows = this.matches;
    if (!rows.length) return;
    const row = rows.find((candidate) => candidate > this.last) ?? rows[0];
    this.last = row;
    const { session } = this;
    if (!session.run.isAlive(row, session.frame)) session.goTo(session.run.facts.added[row]);
    session.select({ run: session.lead, kind: "request", row });
  }

  render() {
    setText(this.found, this.session.filter ? `${number(this.matches.length)} found` : "");
  }
}
