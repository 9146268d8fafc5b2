// Colours, glyphs and patterns by meaning, as palette.py names them.

export class Looks {
  constructor(looks) {
    this.looks = looks;
    this.theme = "light";
    this.patterns = new Map();
  }

  /** Set the theme and hand all colours to the style sheet: `--ground`, `--in-use` ... */
  apply(host, theme) {
    this.theme = theme;
    this.patterns.clear();
    host.dataset.theme = theme;
    for (const name of Object.keys(this.looks)) {
      host.style.setProperty(`--${name.replaceAll("_", "-")}`, this.colour(name));
    }
  }

  colour(name) {
    return this.looks[name][this.theme];
  }

  glyph(name) {
    return this.looks[name].glyph;
  }

  label(name) {
    return this.looks[name].label;
  }

  /** Black or white, whichever reads better on a colour. */
  inkOn(name) {
    const [red, green, blue] = [1, 3, 5].map((i) => parseInt(this.colour(name).slice(i, i + 2), 16));
    return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14171b" : "#ffffff";
  }

  /** Diagonal lines in a look's colour: what tells a bar apart where colours do not. */
  hatch(context, name) {
    if (!this.patterns.has(name)) this.patterns.set(name, context.createPattern(this.drawHatch(name), "repeat"));
    return this.patterns.get(name);
  }

  drawHatch(name) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const context = tile.getContext("2d");
    context.strokeStyle = this.colour(name);
    context.lineWidth = 2.2;
    for (const offset of [-6, 0, 6]) {
      context.moveTo(offset - 1, 7);
      context.lineTo(offset + 7, -1);
    }
    context.stroke();
    return tile;
  }
}
