// Making elements. Text only ever becomes text nodes and attribute values, never markup.

/** An element. Of its attributes, `on` holds listeners by event; true sets one, false and null leave it out. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const ICONS = {
  first: "M4 3v10M13 3 6 8l7 5z",
  previous: "M11 3 4 8l7 5z",
  play: "M4 2.5v11l9-5.5z",
  pause: "M5 3v10M11 3v10",
  next: "M5 3l7 5-7 5z",
  last: "M12 3v10M3 3l7 5-7 5z",
  close: "M4 4l8 8M12 4l-8 8",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  theme: "M8 1.8a6.2 6.2 0 1 0 0 12.4 6.2 6.2 0 0 0 0-12.4zM8 3.6v8.8a4.4 4.4 0 0 0 0-8.8z",
};

/** A small drawing that takes the colour of the text around it. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon (or text), named `label` for those who do not see it. */
export function button(label, content, onClick, attributes = {}) {
  const face = ICONS[content] ? icon(content) : content;
  return el(
    "button",
    { type: "button", title: label, "aria-label": label, on: { click: onClick }, ...attributes },
    face,
  );
}

/** Set an element's text, touching the document only if it changes. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Make an element's children anew, but only for another `key`: what stays also keeps the focus. */
export function renew(element, key, makeChildren) {
  if (element.renewedFor === key) return;
  element.renewedFor = key;
  element.replaceChildren(...makeChildren());
}

/** A canvas that keeps to its parent's size: calls `draw(context, width, height)` in CSS pixels. */
export class Surface {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.draw = draw;
    this.width = this.height = 0;
    this.observer = new ResizeObserver(() => this.render());
    this.observer.observe(canvas);
  }

  render() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixels[0] || this.canvas.height !== pixels[1]) {
      [this.canvas.width, this.canvas.height] = pixels;
    }
    [this.width, this.height] = [width, height];
    if (!width || !height) return;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.draw(this.context, width, height);
  }

  disconnect() {
    this.observer.disconnect();
  }
}
