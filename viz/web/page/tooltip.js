// A few lines beside the pointer.

import { el } from "./dom.js";

export class Tooltip {
  constructor() {
    this.element = el("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
  }

  /** Show `lines` at a pointer event, on the side where there is room. */
  show(event, lines) {
    this.element.replaceChildren(...lines.map((line) => el("div", {}, line)));
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const x = event.clientX + 14 + width > window.innerWidth ? event.clientX - width - 10 : event.clientX + 14;
    const y = event.clientY + 16 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 16;
    this.element.style.transform = `translate(${Math.max(0, x)}px, ${Math.max(0, y)}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}
