// The batch as it is now: which answers share the engine's steps, and who gives them.
import { h } from "preact";
import { Part, voiceLabel } from "./voices";

export interface Running {
  adapters: Part[];
  prompt_tokens: number;
  read_tokens: number; // of the prompt, so far
  made_tokens: number;
  guessed_tokens: number; // before they were drawn
  right_guesses: number;
}

interface Props {
  running: Running[];
  waiting: number;
  waitingFor: string[]; // names of adapters
}

const kMostRows = 32;

function summary(running: Running[]): string {
  if (running.length === 0) return "Nothing is being answered.";
  const voices = new Set(running.map((answer) => voiceLabel(answer.adapters))).size;
  const answers = running.length === 1 ? "1 answer" : `${running.length} answers`;
  return `${answers} of ${voices === 1 ? "1 voice" : `${voices} voices`} in each step.`;
}

function Row({ answer }: { key: string; answer: Running }) {
  const { adapters, prompt_tokens, read_tokens, made_tokens, guessed_tokens, right_guesses } = answer;
  return (
    <tr>
      <th scope="row">{voiceLabel(adapters)}</th>
      <td>{made_tokens > 0 ? "answers" : "reads its prompt"}</td>
      <td class="number">
        {read_tokens} of {prompt_tokens}
      </td>
      <td class="number">{made_tokens}</td>
      <td class="number">{guessed_tokens > 0 && `${right_guesses} of ${guessed_tokens}`}</td>
    </tr>
  );
}

export function LiveBatch({ running, waiting, waitingFor }: Props) {
  return (
    <section class="card live-batch" aria-label="Live batch">
      <h2>Live batch</h2>
      <p class="faint">
        {summary(running)}
        {waiting > 0 && ` ${waiting} wait${waitingFor.length > 0 ? `, for the base or ${waitingFor.join(", ")}` : ""}.`}
      </p>
      {running.length > 0 && (
        <div class="table-frame" tabIndex={0} role="region" aria-label="Answers in the batch">
          <table>
            <thead>
              <tr>
                <th scope="col">Who answers</th>
                <th scope="col">What it does</th>
                <th scope="col" class="number">
                  Prompt read
                </th>
                <th scope="col" class="number">
                  Tokens made
                </th>
                <th scope="col" class="number">
                  Guesses right
                </th>
              </tr>
            </thead>
            <tbody>
              {running.slice(0, kMostRows).map((answer, i) => (
                <Row key={String(i)} answer={answer} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {running.length > kMostRows && <p class="faint">{running.length - kMostRows} more.</p>}
    </section>
  );
}
