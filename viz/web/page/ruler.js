// The scale above the lanes, with a flag at the step one looks at.

import { duration } from "./format.js";
import { GUTTER } from "./overview.js";

export const RULER_HEIGHT = 22;
const LABEL_WIDTH = 84;

/** Draw the ruler of `lanes`, over everything that lies beneath it. */
export function drawRuler(context, lanes, width, height) {
  const { session, looks, run, frame } = lanes;
  const { axis } = session;
  context.fillStyle = looks.colour("ground");
  context.fillRect(0, 0, width, RULER_HEIGHT);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = looks.colour("muted");
  const title = axis.mode === "step" ? "step" : "time";
  context.fillText(session.runs.length > 1 ? `${"AB"[lanes.runIndex]} · ${title}` : title, 10, RULER_HEIGHT / 2);
  const tick = niceTick((LABEL_WIDTH * (axis.end - axis.start)) / axis.width, axis.mode);
  for (let unit = Math.ceil(axis.start / tick) * tick; unit <= axis.end; unit += tick) {
    const x = GUTTER + axis.toX(axis.mode === "step" ? unit + 0.5 : unit);
    if (x > width) break;
    context.globalAlpha = 0.35;
    context.fillRect(x, RULER_HEIGHT - 5, 1, 5);
    context.globalAlpha = 1;
    context.fillText(axis.mode === "step" ? String(unit) : duration(unit), x + 4, RULER_HEIGHT / 2);
  }
  context.globalAlpha = 0.25;
  context.fillRect(0, RULER_HEIGHT - 1, width, 1);
  context.fillRect(GUTTER - 1, 0, 1, height);
  context.globalAlpha = 1;
  const [x0, x1] = [axis.toX(axis.left(run, frame)), axis.toX(axis.right(run, frame))];
  if (x1 >= 0 && x0 <= axis.width)
    drawFlag(context, looks, GUTTER + (x0 + x1) / 2, String(run.frames.step[frame]), width);
}

function drawFlag(context, looks, x, text, width) {
  const half = context.measureText(text).width / 2 + 6;
  const centre = Math.min(width - half, Math.max(GUTTER + half, x));
  context.fillStyle = looks.colour("ink");
  context.beginPath();
  context.roundRect(centre - half, 3, 2 * half, RULER_HEIGHT - 6, 4);
  context.fill();
  context.fillStyle = looks.colour("ground");
  context.textAlign = "center";
  context.fillText(text, centre, RULER_HEIGHT / 2 + 0.5);
  context.textAlign = "left";
}

/** The smallest of 1, 2, 5, 10, 20 ... that is at least `least`; whole numbers only for steps. */
function niceTick(least, mode) {
  const power = 10 ** Math.floor(Math.log10(least));
  const tick = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= least);
  return mode === "step" ? Math.max(1, Math.round(tick)) : tick;
}
