// Server-sent events out of a body, as the standard's event stream interpretation has them; only their data is wanted here.

const kMostBytes = 16 << 20; // of one event

function joined(lines: string[]): string | null {
  const data = lines
    .filter((line) => line === "data" || line.startsWith("data:"))
    .map((line) => line.slice(5).replace(/^ /, ""));
  return data.length > 0 ? data.join("\n") : null;
}

// The data of each event. An event that the end of the stream cuts off is none.
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      if (rest.length > kMostBytes) throw new Error("an event of the stream is too long");
      const heldBack = rest.endsWith("\r") ? "\r" : ""; // "\n" may follow in the next piece
      const pieces = rest.slice(0, rest.length - heldBack.length).split(/\r\n|\n|\r/);
      rest = pieces.pop()! + heldBack;
      for (const line of pieces) {
        if (line !== "") {
          lines.push(line);
          continue;
        }
        const data = joined(lines);
        lines = [];
        if (data !== null) yield data;
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
