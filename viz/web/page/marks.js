// How an activity looks on a lane: its height and texture tell it apart even without colour.

export const LANE_HEIGHT = 20;
const BASELINE = 17;
const FULL = 14;
const CELLS_FROM = 5; // pixels a step, from which on steps are drawn one by one
const NUMBERS_FROM = 24;

const MARKS = {
  waiting: { height: 2, dots: true },
  held: { height: 8, hatch: true },
  prefill: { height: FULL },
  decode: { height: 8 },
  idle: { height: 2 },
  preempted: { height: FULL, least: 2.5, sign: "down" },
  finished: { height: 2 },
};

/** Draws stretches of lanes: `(x0, x1)` in pixels, `count` steps in it, each of `tokens` tokens. */
export class Marker {
  constructor(context, looks) {
    this.context = context;
    this.looks = looks;
  }

  stretch(activity, top, x0, x1, count, tokens) {
    const mark = MARKS[activity];
    const width = Math.max(x1 - x0, mark.least ?? 0.6);
    const cell = width / count;
    if (mark.dots) this.dots(top, x0, x1);
    else if (cell >= CELLS_FROM && mark.height > 2) {
      for (let i = 0; i < count; i++) this.bar(activity, mark, top, x0 + i * cell + 0.5, cell - 1, tokens);
    } else this.bar(activity, mark, top, x0, width, 0);
  }

  dots(top, x0, x1) {
    const { context } = this;
    context.fillStyle = this.looks.colour("waiting");
    if (x1 - x0 < 5) context.fillRect(x0, top + BASELINE - 2, x1 - x0, 2);
    else for (let x = x0 + 1; x < x1 - 1; x += 5) context.fillRect(x, top + BASELINE - 2, 2, 2);
  }

  bar(activity, mark, top, x, width, tokens) {
    const { context, looks } = this;
    const y = top + BASELINE - mark.height;
    if (mark.hatch) {
      context.fillStyle = looks.hatch(context, activity);
      context.fillRect(x, y, width, mark.height);
      context.fillStyle = looks.colour(activity);
      context.fillRect(x, top + BASELINE - 1, width, 1);
      return;
    }
    context.fillStyle = looks.colour(activity);
    context.fillRect(x, y, width, mark.height);
    if (mark.sign && width >= 9) this.triangle(x + width / 2, y + mark.height / 2, looks.inkOn(activity));
    if (tokens > 0 && width >= NUMBERS_FROM && mark.height === FULL) this.number(tokens, x + width / 2, y, activity);
  }

  number(tokens, x, y, activity) {
    const { context } = this;
    context.fillStyle = this.looks.inkOn(activity);
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(String(tokens), x, y + FULL / 2 + 0.5);
    context.textAlign = "left";
  }

  triangle(x, y, colour) {
    const { context } = this;
    context.fillStyle = colour;
    context.beginPath();
    context.moveTo(x - 3.5, y - 2.5);
    context.lineTo(x + 3.5, y - 2.5);
    context.lineTo(x, y + 3.5);
    context.fill();
  }

  /** Where a request found leading blocks in the cache. */
  diamond(x, top) {
    const { context } = this;
    const [y, half] = [top + BASELINE - FULL / 2, 5];
    context.fillStyle = this.looks.colour("hit");
    context.strokeStyle = this.looks.colour("ground");
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, y - half);
    context.lineTo(x + half, y);
    context.lineTo(x, y + half);
    context.lineTo(x - half, y);
    context.closePath();
    context.stroke();
    context.fill();
  }

  /** Where a request ended: a square, or a cross if it did not come to its end. */
  end(x, top, wasBroken) {
    const { context } = this;
    const y = top + BASELINE - 7;
    if (!wasBroken) {
      context.fillStyle = this.looks.colour("finished");
      context.fillRect(x + 1, y, 5, 7);
      return;
    }
    context.strokeStyle = this.looks.colour("preempted");
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x + 1, y);
    context.lineTo(x + 7, y + 6);
    context.moveTo(x + 7, y);
    context.lineTo(x + 1, y + 6);
    context.stroke();
  }
}
