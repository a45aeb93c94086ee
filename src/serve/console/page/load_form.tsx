// Loads an adapter that lies on the server's disk.
import { h } from "preact";

interface Props {
  isBusy: boolean;
  onLoad: (name: string, path: string, pinned: boolean, inPlace: boolean) => void;
}

export function LoadForm({ isBusy, onLoad }: Props) {
  const submit = (event: Event) => {
    event.preventDefault();
    const form = (event.target as HTMLFormElement).elements;
    const input = (name: string) => form.namedItem(name) as HTMLInputElement;
    onLoad(input("name").value.trim(), input("path").value.trim(), input("pinned").checked, input("inplace").checked);
  };
  return (
    <form class="card load-form" aria-label="Load an adapter" onSubmit={submit}>
      <h2>Load from the server’s disk</h2>
      <div class="row wrap">
        <label class="field">
          <span>Name</span>
          <input name="name" required autocomplete="off" />
        </label>
        <label class="field grow">
          <span>Path on the server (of a folder, or in the adapter root)</span>
          <input name="path" required autocomplete="off" />
        </label>
        <label class="check">
          <input type="checkbox" name="pinned" /> Pinned
        </label>
        <label class="check">
          <input type="checkbox" name="inplace" /> Replace one of that name
        </label>
        <button type="submit" class="primary" disabled={isBusy}>
          Load
        </button>
      </div>
    </form>
  );
}
