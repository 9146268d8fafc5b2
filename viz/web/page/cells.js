// Drawing the block grid: cells as large as fit, down to a few pixels for thousands of blocks.

const LARGEST = 54;
const LABELS_FROM = 15;
const NAMES_FROM = 27;
const IDS_FROM = 40;
const DETAILS_FROM = 7;

export class BlockCells {
  constructor(session, looks, runIndex) {
    this.session = session;
    this.looks = looks;
    this.runIndex = runIndex;
    this.run = session.runs[runIndex];
    this.size = 1;
    this.columns = 1;
  }

  blockAt(x, y) {
    const column = Math.floor(x / this.size);
    const block = Math.floor(y / this.size) * this.columns + column;
    return column < 0 || column >= this.columns || block < 0 || block >= this.run.numBlocks ? null : block;
  }

  /** The largest cells with which all blocks fit. */
  fit(width, height) {
    const { numBlocks } = this.run;
    let size = Math.min(LARGEST, Math.max(2, Math.floor(Math.sqrt((width * height) / numBlocks))));
    while (size > 2 && Math.ceil(numBlocks / Math.floor(width / size)) * size > height) size--;
    this.size = size;
    this.columns = Math.max(1, Math.floor(width / size));
    if (this.columns > 8 && numBlocks > this.columns) this.columns -= this.columns % 8; // easier to count
    if (Math.ceil(numBlocks / this.columns) * size > height) this.columns = Math.max(1, Math.floor(width / size));
  }

  draw(context, width, height, { codes, focused, isFocused, frame }) {
    this.fit(width, height);
    const { run, size, columns } = this;
    const highlighted = this.highlighted(frame);
    const isFaint = highlighted.size > 1 && size < DETAILS_FROM;
    for (let block = 0; block < run.numBlocks; block++) {
      const [x, y] = [(block % columns) * size, Math.floor(block / columns) * size];
      context.globalAlpha = isFaint && !highlighted.has(block) ? 0.25 : 1;
      this.cell(context, run.meanings.blocks[codes[block]], x, y);
      if (size >= LABELS_FROM) this.label(context, block, run.meanings.blocks[codes[block]], x, y, frame);
    }
    context.globalAlpha = 1;
    if (!isFaint) for (const block of highlighted) this.ring(context, block, 2);
    if (isFocused && focused !== null) this.ring(context, focused, 3);
  }

  /** The blocks of the selected request, or the selected block. */
  highlighted(frame) {
    const { selection } = this.session;
    if (!selection || selection.run !== this.runIndex) return new Set();
    if (selection.kind === "block") return new Set([selection.row]);
    return new Set(this.run.isAlive(selection.row, frame) ? this.run.blockTable(selection.row, frame) : []);
  }

  cell(context, look, x, y) {
    const { looks, size } = this;
    const gap = size >= DETAILS_FROM ? 2 : size > 3 ? 1 : 0;
    const inner = size - gap;
    context.fillStyle = looks.colour(look);
    context.fillRect(x, y, inner, inner);
    if (size < DETAILS_FROM) return;
    if (look === "free") {
      context.strokeStyle = looks.colour("remaining");
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, inner - 1, inner - 1);
    } else if (look === "cached") {
      context.fillStyle = looks.colour("ground");
      context.fillRect(x + 2, y + 2, inner - 4, inner - 4);
      context.fillStyle = looks.hatch(context, "cached");
      context.fillRect(x + 2, y + 2, inner - 4, inner - 4);
    } else if (look === "shared" && size < LABELS_FROM) {
      context.fillStyle = looks.colour("ground");
      context.fillRect(x + inner / 2 - 1.5, y + inner / 2 - 1.5, 3, 3);
    } else if (look === "allocated" || look === "evicted") {
      if (size < IDS_FROM) this.sign(context, look, x + inner / 2, y + inner / 2, inner / 3.6);
      else this.sign(context, look, x + inner - 9, y + 9, 5);
    }
  }

  /** `+` for handed out, `×` for handed out after its content was evicted. */
  sign(context, look, x, y, half) {
    context.strokeStyle = this.looks.inkOn(look);
    context.lineWidth = Math.max(1, half / 3);
    context.beginPath();
    for (const [dx, dy] of look === "allocated"
      ? [
          [half, 0],
          [0, half],
        ]
      : [
          [half, half],
          [half, -half],
        ]) {
      context.moveTo(x - dx * 0.8, y - dy * 0.8);
      context.lineTo(x + dx * 0.8, y + dy * 0.8);
    }
    context.stroke();
  }

  /** In large cells: who holds the block, or how many do; in still larger ones its id and how full it is. */
  label(context, block, look, x, y, frame) {
    const { run, size } = this;
    const inner = size - 2;
    const isLarge = size >= IDS_FROM;
    const owners = run.holdingsIn(block, frame);
    const isNamed = owners.length === 1 && size >= NAMES_FROM && (isLarge || look === "in_use");
    const name = owners.length > 1 ? `${owners.length}×` : isNamed ? run.labels[run.holdings.row[owners[0]]] : "";
    context.save();
    context.beginPath();
    context.rect(x + 1, y, inner - 2, inner);
    context.clip();
    context.fillStyle = owners.length ? this.looks.inkOn(look) : this.looks.colour("ink");
    context.textBaseline = "middle";
    if (name) {
      context.font = `${size >= NAMES_FROM ? 11 : 9}px system-ui, sans-serif`;
      const isWide = context.measureText(name).width > inner - 5;
      context.textAlign = isWide ? "left" : "center";
      context.fillText(name, isWide ? x + 3 : x + inner / 2, y + inner / 2 + 1);
    }
    if (isLarge) {
      context.textAlign = "left";
      context.font = "9px system-ui, sans-serif";
      context.fillText(String(block), x + 3, y + 8);
      if (owners.length)
        this.fill(context, run.block(block, frame).tokens / run.blockSize, x + 4, y + inner - 8, inner - 8);
    }
    context.restore();
  }

  /** A gauge of the slots that hold KV. */
  fill(context, share, x, y, width) {
    context.globalAlpha = 0.35;
    context.fillRect(x, y, width, 4);
    context.globalAlpha = 1;
    context.fillRect(x, y, width * share, 4);
  }

  ring(context, block, lineWidth) {
    const { size, columns } = this;
    const [x, y] = [(block % columns) * size, Math.floor(block / columns) * size];
    const inner = size - (size >= DETAILS_FROM ? 2 : 0);
    context.lineWidth = lineWidth + 2;
    context.strokeStyle = this.looks.colour("ground");
    context.strokeRect(x, y, inner, inner);
    context.lineWidth = lineWidth;
    context.strokeStyle = this.looks.colour("ink");
    context.strokeRect(x, y, inner, inner);
  }
}
