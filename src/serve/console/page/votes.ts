// Votes on answers that were compared: ratings by Elo, and pairs for preference training.

export interface Vote {
  id: string;
  time: number; // Unix time in milliseconds
  messages: object[]; // what was asked
  seed: number;
  answers: { voice: string; text: string }[];
  best: number | null; // null: none is better
}

export interface Rating {
  voice: string;
  elo: number;
  wins: number;
  losses: number;
  draws: number;
}

const kStart = 1000;
const kStep = 24;

function expected(own: number, other: number): number {
  return 1 / (1 + 10 ** ((other - own) / 400));
}

// Votes one after the other; the winner of one has won against each of the others. Two panes of one voice say nothing of it.
export function ratings(votes: Vote[]): Rating[] {
  const table = new Map<string, Rating>();
  const of = (voice: string): Rating => {
    if (!table.has(voice)) table.set(voice, { voice, elo: kStart, wins: 0, losses: 0, draws: 0 });
    return table.get(voice)!;
  };
  const meet = (a: Rating, b: Rating, points: number): void => {
    const change = kStep * (points - expected(a.elo, b.elo));
    a.elo += change;
    b.elo -= change;
    if (points === 0.5) {
      a.draws++;
      b.draws++;
    } else {
      a.wins++;
      b.losses++;
    }
  };
  for (const vote of [...votes].sort((a, b) => a.time - b.time)) {
    vote.answers.forEach((answer, i) => {
      vote.answers.forEach((other, j) => {
        if (answer.voice === other.voice) return;
        if (vote.best === i) meet(of(answer.voice), of(other.voice), 1);
        else if (vote.best === null && i < j) meet(of(answer.voice), of(other.voice), 0.5);
      });
    });
  }
  return [...table.values()].sort((a, b) => b.elo - a.elo);
}

// A line a pair, in the conversational form that trainers of preferences read.
export function preferencePairs(votes: Vote[]): string {
  const said = (content: string) => [{ role: "assistant", content }];
  const lines: string[] = [];
  for (const vote of votes) {
    if (vote.best === null) continue;
    const best = vote.answers[vote.best];
    vote.answers.forEach((other, i) => {
      if (i === vote.best || other.text === best.text) return;
      lines.push(
        JSON.stringify({
          prompt: vote.messages,
          chosen: said(best.text),
          rejected: said(other.text),
          chosen_model: best.voice,
          rejected_model: other.voice,
          seed: vote.seed,
        }),
      );
    });
  }
  return lines.join("\n") + (lines.length > 0 ? "\n" : "");
}
