// One recorded run. Everything here is a question about a frame (the state right after a step), answered from the
// tables that Python computed: no rule of scheduling is known in this file.

import { Sentences } from "./sentences.js";
import { Track, groupOffsets, lastAtMost } from "./track.js";

const WAITING = 1;
const RUNNING = 2;
const QUEUE_NAMES = ["finished", "waiting", "running"];
const FRAME_NOTES = ["", "cut short", "after the last step"];

export class Run {
  constructor(payload, tables, meanings) {
    for (const name of ["name", "problem", "backend", "policy", "model", "options", "ids", "finish_reasons"]) {
      this[name] = payload[name];
    }
    this.labels = payload.ids.map(String);
    this.frames = tables.frame;
    this.numFrames = this.frames.step.length;
    this.facts = tables.request;
    this.numRequests = payload.ids.length;
    this.motion = new Track(tables.motion);
    this.place = new Track(tables.place);
    this.blocks = new Track(tables.block);
    this.numBlocks = this.blocks.first.length - 1;
    this.blockSize = payload.options.block_size;
    this.hashes = tables.hash;
    this.holdings = tables.holding;
    this.holdingsOfBlock = groupOffsets(this.holdings.block, this.numBlocks);
    this.holdingsOfRequest = indexByRow(this.holdings.row, this.numRequests);
    this.sentences = new Sentences(payload.words, tables.sentence, this.numFrames);
    this.jumps = this.sentences.jumps();
    this.meanings = meanings;
    this.budget = payload.options.max_num_batched_tokens ?? null;
  }

  // ---- frames ------------------------------------------------------------------------------------------------------

  stepTokens(frame) {
    return this.frames.prefill_tokens[frame] + this.frames.decode_tokens[frame];
  }

  /** The frame of a step, or of the last step before it. */
  frameAtStep(step) {
    return Math.max(0, lastAtMost(this.frames.step, step));
  }

  /** The last frame that is over at this time. */
  frameAtTime(timeNs) {
    return Math.max(0, lastAtMost(this.frames.end_ns, timeNs));
  }

  /** `prefill`, `decode`, `mixed` or `empty`, and what is special about the frame. */
  phase(frame) {
    const { prefill_tokens: prefill, decode_tokens: decode, kind } = this.frames;
    const name = prefill[frame] ? (decode[frame] ? "mixed" : "prefill") : decode[frame] ? "decode" : "empty";
    return { name, note: FRAME_NOTES[kind[frame]] };
  }

  // ---- requests ----------------------------------------------------------------------------------------------------

  /** Whether a request has come by this frame, and had not ended before it. */
  isAlive(row, frame) {
    const ended = this.facts.ended[row];
    return this.facts.added[row] <= frame && (ended < 0 || ended >= frame);
  }

  /** A request at a frame at which it is, or was, alive. */
  request(row, frame) {
    const last = this.facts.ended[row] < 0 ? frame : Math.min(frame, this.facts.ended[row]);
    const motion = this.motion.at(row, last);
    const place = this.place.at(row, last);
    const value = (column) => this.motion.value(column, motion, last);
    return {
      row,
      label: this.labels[row],
      activity: this.meanings.activities[value("activity")],
      queue: QUEUE_NAMES[this.place.value("queue", place, last)],
      rank: this.place.value("rank", place, last),
      preemptions: this.place.value("preemptions", place, last),
      scheduled: value("scheduled"),
      hit: value("hit"),
      tokens: value("tokens"),
      cached: value("cached"),
      prompt: this.facts.prompt[row],
      maxTokens: this.facts.max_tokens[row],
      reason: this.facts.ended[row] === last ? this.finish_reasons[this.facts.reason[row]] : null,
    };
  }

  /** Rows in queue order, and those that ended in this frame. */
  queues(frame) {
    const rows = { waiting: [], running: [], ended: [] };
    for (let row = 0; row < this.numRequests; row++) {
      if (!this.isAlive(row, frame)) continue;
      const point = this.place.at(row, frame);
      if (point < 0) continue;
      const queue = this.place.columns.queue[point];
      (queue === WAITING ? rows.waiting : queue === RUNNING ? rows.running : rows.ended).push(row);
    }
    const rank = (row) => this.place.columns.rank[this.place.at(row, frame)];
    for (const queue of [rows.waiting, rows.running]) queue.sort((a, b) => rank(a) - rank(b));
    return rows;
  }

  /** A request's block table: block ids in order of their position. */
  blockTable(row, frame) {
    const held = this.holdingsOfRequest.of(row).filter((holding) => this.holds(holding, frame));
    held.sort((a, b) => this.holdings.position[a] - this.holdings.position[b]);
    return held.map((holding) => this.holdings.block[holding]);
  }

  // ---- blocks ------------------------------------------------------------------------------------------------------

  /** What all blocks look like: their state, or the mark of this step; an index of `meanings.blocks` each. */
  fillBlockCodes(frame, codes) {
    const { state } = this.blocks.columns;
    const marks = this.meanings.changes.map((name) => this.meanings.blocks.indexOf(name));
    for (let block = 0; block < this.numBlocks; block++) {
      const point = this.blocks.at(block, frame);
      const mark = marks[this.changeAt(point, frame)];
      codes[block] = mark < 0 ? state[point] : mark;
    }
  }

  /** How many blocks are in each state, and how many have a mark of this step. */
  blockTally(frame) {
    const { state } = this.blocks.columns;
    const names = [...this.meanings.blocks, ...this.meanings.changes];
    const tally = Object.fromEntries(names.map((name) => [name, 0]));
    for (let block = 0; block < this.numBlocks; block++) {
      const point = this.blocks.at(block, frame);
      tally[this.meanings.blocks[state[point]]]++;
      tally[this.meanings.changes[this.changeAt(point, frame)]]++;
    }
    return tally;
  }

  /** What this very frame did to a block, as an index of `meanings.changes`. */
  changeAt(point, frame) {
    return this.blocks.frame[point] === frame ? this.blocks.columns.change[point] : 0;
  }

  block(block, frame) {
    const point = this.blocks.at(block, frame);
    const { state, references, hash, free_rank: freeRank } = this.blocks.columns;
    const owners = this.holdingsIn(block, frame);
    return {
      block,
      state: this.meanings.blocks[state[point]],
      change: this.meanings.changes[this.changeAt(point, frame)],
      references: references[point],
      hash: hash[point] < 0 ? null : this.hashText(hash[point]),
      freeRank: references[point] ? null : freeRank[point],
      owners: owners.map((holding) => this.holdings.row[holding]),
      tokens: this.tokensIn(owners, frame, hash[point]),
      since: this.stateSince(block, point),
    };
  }

  /** How many of a block's slots hold KV: what its owners' cached tokens reach of it; a cached one is full. */
  tokensIn(owners, frame, hash) {
    if (hash >= 0) return this.blockSize;
    const filled = owners.map((holding) => {
      const cached = this.request(this.holdings.row[holding], frame).cached;
      return cached - this.holdings.position[holding] * this.blockSize;
    });
    return Math.min(this.blockSize, Math.max(0, ...filled));
  }

  /** The frame since which a block has been in the state of `point`; -1: from the start. */
  stateSince(block, point) {
    const { state } = this.blocks.columns;
    let first = point;
    while (first > this.blocks.first[block] && state[first - 1] === state[point]) first--;
    return this.blocks.frame[first];
  }

  hashText(code) {
    const hex = (value) => value.toString(16).padStart(8, "0");
    return hex(this.hashes.high[code]) + hex(this.hashes.low[code]);
  }

  holds(holding, frame) {
    const end = this.holdings.end[holding];
    return this.holdings.start[holding] <= frame && (end < 0 || end > frame);
  }

  /** Holdings of a block: those in force at `frame`, or with `null` all of them, in order of time. */
  holdingsIn(block, frame) {
    const found = [];
    for (let i = this.holdingsOfBlock[block]; i < this.holdingsOfBlock[block + 1]; i++) {
      if (frame === null || this.holds(i, frame)) found.push(i);
    }
    return found;
  }

  /** The free list, its head (the block handed out next) first. */
  freeBlocks(frame) {
    const { references, free_rank: freeRank } = this.blocks.columns;
    const free = [];
    for (let block = 0; block < this.numBlocks; block++) {
      const point = this.blocks.at(block, frame);
      if (!references[point]) free.push([freeRank[point], block]);
    }
    return free.sort((a, b) => a[0] - b[0]).map(([, block]) => block);
  }

  // ---- all of it ---------------------------------------------------------------------------------------------------

  /** The whole state at a frame as plain values, as the Python replayer has it. */
  snapshot(frame) {
    const { waiting, running } = this.queues(frame);
    const requests = [...running, ...waiting].map((row) => {
      const { queue, tokens, cached, preemptions, prompt, maxTokens } = this.request(row, frame);
      return {
        id: this.ids[row],
        queue,
        tokens,
        cached,
        preemptions,
        prompt,
        maxTokens,
        blocks: this.blockTable(row, frame),
      };
    });
    const blocks = Array.from({ length: this.numBlocks }, (_, block) => this.block(block, frame));
    return {
      step: this.frames.step[frame],
      timeNs: this.frames.end_ns[frame],
      waiting: waiting.map((row) => this.ids[row]),
      running: running.map((row) => this.ids[row]),
      requests,
      freeBlocks: this.freeBlocks(frame),
      references: blocks.map((block) => block.references),
      hashes: blocks.map((block) => block.hash),
    };
  }
}

/** Which holdings belong to which request: `.of(row)` is a list of their indices. */
function indexByRow(rows, numRows) {
  const offsets = groupOffsets(rows, numRows);
  const next = offsets.slice();
  const indices = new Int32Array(rows.length);
  for (let i = 0; i < rows.length; i++) indices[next[rows[i]]++] = i;
  return { of: (row) => Array.from(indices.subarray(offsets[row], offsets[row + 1])) };
}
