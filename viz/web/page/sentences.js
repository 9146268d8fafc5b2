// What happened, in words: templates filled with the names and numbers of a run. See sentences.py.

import { groupOffsets } from "./track.js";

export class Sentences {
  constructor(words, columns, numFrames) {
    this.kinds = words.kinds;
    this.texts = words.texts;
    this.templates = words.templates.map(([template, kind]) => ({ parts: template.split(/\{(\w)\}/), kind }));
    this.columns = columns;
    this.offsets = groupOffsets(columns.frame, numFrames);
  }

  /** A frame's sentences: each `{kind, parts}`, its parts `{text}`, `{request: row}` or `{block}`. */
  at(frame) {
    const sentences = [];
    for (let i = this.offsets[frame]; i < this.offsets[frame + 1]; i++) sentences.push(this.sentence(i));
    return sentences;
  }

  sentence(index) {
    const { parts: template, kind } = this.templates[this.columns.template[index]];
    const next = this.argumentsOf(index);
    const parts = [];
    template.forEach((part, i) => {
      if (i % 2 === 0) parts.push({ text: part });
      else if (part === "r") parts.push({ request: next() });
      else if (part === "b") parts.push(...blockList(next));
      else parts.push({ text: part === "t" ? this.texts[next()] : next().toLocaleString("en") });
    });
    return { kind: this.kinds[kind], parts };
  }

  argumentsOf(index) {
    let at = this.columns.first_argument[index];
    return () => this.columns.argument[at++];
  }

  /** For each kind that readers may jump to and that occurs: `{kind, frames}`, the frames in order. */
  jumps() {
    const found = this.kinds.map((kind) => ({ kind, frames: [] }));
    const numSentences = this.offsets[this.offsets.length - 1];
    for (let i = 0; i < numSentences; i++) {
      const { frames } = found[this.templates[this.columns.template[i]].kind];
      const frame = this.columns.frame[i];
      if (frames[frames.length - 1] !== frame) frames.push(frame);
    }
    return found.filter(({ kind, frames }) => kind.jump && frames.length);
  }

  /** `[frame, sentence]` of all that name a request, in order. */
  about(row, firstFrame, lastFrame) {
    const found = [];
    for (let frame = firstFrame; frame <= lastFrame; frame++) {
      for (let i = this.offsets[frame]; i < this.offsets[frame + 1]; i++) {
        if (this.names(i, row)) found.push([frame, this.sentence(i)]);
      }
    }
    return found;
  }

  names(index, row) {
    const next = this.argumentsOf(index);
    const marks = this.templates[this.columns.template[index]].parts;
    for (let i = 1; i < marks.length; i += 2) {
      if (marks[i] === "b") blockList(next);
      else if (next() === row && marks[i] === "r") return true;
    }
    return false;
  }
}

/** A sentence as one string. */
export function sentenceText({ parts }, labels) {
  return parts
    .map((part) => part.text ?? (part.request !== undefined ? labels[part.request] : String(part.block)))
    .join("");
}

/** Runs of neighbouring blocks: `3`, `4–9`, and how many more there are. */
function blockList(next) {
  const numOthers = next();
  const numRuns = next();
  const parts = [];
  for (let i = 0; i < numRuns; i++) {
    if (i) parts.push({ text: ", " });
    const [first, last] = [next(), next()];
    parts.push({ block: first });
    if (first !== last) parts.push({ text: Math.abs(last - first) > 1 ? "–" : ", " }, { block: last });
  }
  if (numOthers) parts.push({ text: ` and ${numOthers.toLocaleString("en")} more` });
  return parts;
}
