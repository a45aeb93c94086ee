// Ratings out of the votes, and the votes as a file.
import { Component, h } from "preact";
import { Dialog, save } from "./parts";
import { preferencePairs, ratings, Vote } from "./votes";

export class VotesTable extends Component<{ votes: Vote[]; onDrop: () => void }, { isAsking: boolean }> {
  state = { isAsking: false };

  render({ votes, onDrop }: { votes: Vote[]; onDrop: () => void }, { isAsking }: { isAsking: boolean }) {
    if (votes.length === 0)
      return <p class="faint">No votes yet. They make a rating of the voices, and pairs for preference training.</p>;
    return (
      <section class="card" aria-label="Votes">
        <h2>Votes: {votes.length}</h2>
        <div class="table-frame" tabIndex={0} role="region" aria-label="Ratings">
          <table>
            <thead>
              <tr>
                <th scope="col">Voice</th>
                <th scope="col" class="number">
                  Elo
                </th>
                <th scope="col" class="number">
                  Won
                </th>
                <th scope="col" class="number">
                  Lost
                </th>
                <th scope="col" class="number">
                  Drawn
                </th>
              </tr>
            </thead>
            <tbody>
              {ratings(votes).map(({ voice, elo, wins, losses, draws }) => (
                <tr key={voice}>
                  <th scope="row">{voice}</th>
                  <td class="number">{Math.round(elo)}</td>
                  <td class="number">{wins}</td>
                  <td class="number">{losses}</td>
                  <td class="number">{draws}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <div class="row">
          <button type="button" onClick={() => save("choral-preferences.jsonl", "application/jsonl", preferencePairs(votes))}>
            Export as preference pairs
          </button>
          <button type="button" class="quiet" onClick={() => this.setState({ isAsking: true })}>
            Delete the votes
          </button>
        </div>
        {isAsking && (
          <Dialog title="Delete all votes?" onClose={() => this.setState({ isAsking: false })}>
            <p>The ratings begin anew then.</p>
            <div class="row end">
              <button type="button" class="quiet" onClick={() => this.setState({ isAsking: false })}>
                Keep them
              </button>
              <button
                type="button"
                class="danger"
                onClick={() => {
                  this.setState({ isAsking: false });
                  onDrop();
                }}
              >
                Delete
              </button>
            </div>
          </Dialog>
        )}
      </section>
    );
  }
}
