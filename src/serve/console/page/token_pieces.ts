// Tokens as what is drawn: a piece is one of them, or those that a character is cut into.
import { Token } from "./answers";

export interface Piece {
  from: number;
  to: number; // behind the last
  text: string;
}

const kMostCut = 8; // tokens; more are no character

function isWhole(bytes: number[]): boolean {
  if (bytes.every((byte) => byte < 0x80)) return true;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
    return true;
  } catch {
    return false;
  }
}

function pieceAt(tokens: Token[], from: number): Piece {
  const { bytes, token } = tokens[from];
  if (bytes === null || isWhole(bytes)) return { from, to: from + 1, text: token };
  let joined = bytes;
  let to = from + 1;
  while (to < tokens.length && to - from < kMostCut && !isWhole(joined)) joined = joined.concat(tokens[to++].bytes ?? []);
  if (!isWhole(joined)) return { from, to: from + 1, text: token };
  return { from, to, text: new TextDecoder().decode(new Uint8Array(joined)) };
}

// Of tokens that become more: only the end is looked at again.
export class Pieces {
  private tokens: Token[] = [];
  private known: Piece[] = [];

  of(tokens: Token[]): Piece[] {
    if (tokens !== this.tokens) this.known = [];
    this.tokens = tokens;
    this.known.splice(Math.max(0, this.known.length - kMostCut));
    for (let from = this.known.at(-1)?.to ?? 0; from < tokens.length; from = this.known.at(-1)!.to) {
      this.known.push(pieceAt(tokens, from));
    }
    return this.known;
  }
}
