// Sends an adapter to the server, piece by piece, and has it loaded.
import { call, json } from "./api";
import type { FileToSend } from "./sent_files";

const kPieceBytes = 4 << 20;

interface SentPiece {
  received: number;
}

async function sendFile(id: string, file: FileToSend, onSent: (bytes: number) => void, signal: AbortSignal): Promise<void> {
  let at = 0;
  while (at < file.content.size) {
    const bytes = file.content.slice(at, at + kPieceBytes);
    const { received } = await json<SentPiece>(`v1/adapter_uploads/${id}/${file.name}?offset=${at}`, {
      method: "PUT",
      bytes,
      signal,
    });
    onSent(received - at);
    at = received;
  }
}

export interface LoadFields {
  lora_name: string;
  pinned: boolean;
  load_inplace: boolean;
}

// `onSent`: bytes so far. Of what fails the server keeps nothing.
export async function sendAdapter(
  files: FileToSend[],
  fields: LoadFields,
  onSent: (bytes: number) => void,
  signal: AbortSignal,
): Promise<void> {
  const sizes = files.map(({ name, content }) => ({ name, bytes: content.size }));
  const { id } = await json<{ id: string }>("v1/adapter_uploads", { body: { files: sizes }, signal });
  try {
    let sent = 0;
    for (const file of files) await sendFile(id, file, (bytes) => onSent((sent += bytes)), signal);
  } catch (failure) {
    await call(`v1/adapter_uploads/${id}`, { method: "DELETE" }).catch(() => undefined);
    throw failure;
  }
  await call(`v1/adapter_uploads/${id}/load`, { body: fields, signal });
}
