// The numbers of many rows over a run, kept as the points where they bend: see tracks.py.

export class Track {
  /** `table`: `first`, `frame`, and columns; a column `x` may have a column `x_growth`. */
  constructor(table) {
    this.first = table.first;
    this.frame = table.frame;
    this.columns = table;
    this.hints = Int32Array.from(this.first.subarray(0, this.first.length - 1));
  }

  /** The point that holds for `row` at `frame`; -1 before its first. */
  at(row, frame) {
    const end = this.first[row + 1];
    let low = this.first[row];
    if (low === end || this.frame[low] > frame) return -1;
    const hint = this.hints[row];
    if (this.frame[hint] <= frame) {
      // Mostly one looks again at the same frame, or at the next.
      if (hint + 1 === end || this.frame[hint + 1] > frame) return hint;
      if (hint + 2 === end || this.frame[hint + 2] > frame) return (this.hints[row] = hint + 1);
      low = hint + 2;
    }
    let high = end;
    while (high - low > 1) {
      const middle = (low + high) >>> 1;
      if (this.frame[middle] <= frame) low = middle;
      else high = middle;
    }
    return (this.hints[row] = low);
  }

  /** A column's value at `frame`, going on from `point`. */
  value(column, point, frame) {
    const growth = this.columns[`${column}_growth`];
    const value = this.columns[column][point];
    return growth ? value + growth[point] * (frame - this.frame[point]) : value;
  }

  /** The points of a row: from `[0]` up to, not including, `[1]`. */
  span(row) {
    return [this.first[row], this.first[row + 1]];
  }
}

/** Index of the last element of a sorted array that is at most `value`; -1 if all are greater. */
export function lastAtMost(sorted, value) {
  let low = -1;
  let high = sorted.length;
  while (high - low > 1) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle;
    else high = middle;
  }
  return low;
}

/** Offsets by which a column of small numbers, sorted, falls into groups 0 .. `count` - 1. */
export function groupOffsets(sorted, count) {
  const offsets = new Int32Array(count + 1);
  for (const value of sorted) if (value < count) offsets[value + 1]++;
  for (let i = 0; i < count; i++) offsets[i + 1] += offsets[i];
  return offsets;
}
