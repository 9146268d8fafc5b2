// Packed columns back into typed arrays: the other direction of columns.py.

const ARRAYS = { u8: Uint8Array, i32: Int32Array, f64: Float64Array };

/** `{layout, bytes}` -> `{table: {column: typed array}}`; columns are named `table.column`. */
export async function decodeTables({ layout, bytes }) {
  const stream = await inflate(fromBase64(bytes));
  const tables = {};
  let at = 0;
  for (const [name, kind, length] of layout) {
    const column = new ARRAYS[kind](length);
    at = readColumn(stream, at, column);
    const [tableName, columnName] = name.split(".");
    (tables[tableName] ??= {})[columnName] = column;
  }
  return tables;
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

/** Each number is a zigzag-folded difference in groups of seven bits. Sums, not shifts: it may exceed 32 bits. */
function readColumn(stream, start, column) {
  let at = start;
  let value = 0;
  for (let i = 0; i < column.length; i++) {
    let byte = stream[at++];
    let folded = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = stream[at++];
      folded += (byte & 127) * scale;
    }
    value += folded % 2 ? -(folded + 1) / 2 : folded / 2;
    column[i] = value;
  }
  return at;
}
