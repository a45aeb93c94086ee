// Chooses a voice: the base or one adapter from a list, or a mix with a factor for each.
import { h } from "preact";
import { IconButton } from "./parts";
import { kMostParts, Voice, voiceOf } from "./voices";

interface Props {
  label: string;
  voice: Voice;
  names: string[]; // of adapters
  onChange: (voice: Voice) => void;
}

const kMostListed = 200; // beyond, a name is typed with the browser's help
const kNamesId = "adapter-names";
const kLeast = -4,
  kMost = 4; // of a slider; a number may be anything

function NameField({
  label,
  name,
  names,
  onChange,
}: {
  label: string;
  name: string;
  names: string[];
  onChange: (name: string) => void;
}) {
  const change = (event: Event) => onChange((event.target as HTMLInputElement).value);
  if (names.length > kMostListed) {
    return <input aria-label={label} list={kNamesId} value={name} onChange={change} placeholder="base" />;
  }
  return (
    <select aria-label={label} value={name} onChange={change}>
      <option value="" selected={name === ""}>
        base
      </option>
      {names.map((known) => (
        <option key={known} value={known} selected={known === name}>
          {known}
        </option>
      ))}
    </select>
  );
}

// Once in a page: what the browser helps with.
export function AdapterNames({ names }: { names: string[] }) {
  return (
    <datalist id={kNamesId}>{names.length > kMostListed && names.map((name) => <option key={name} value={name} />)}</datalist>
  );
}

export function VoicePicker({ label, voice, names, onChange }: Props) {
  const set = (i: number, part: { name: string; scale: number }) =>
    onChange(part.name === "" ? voice.filter((_, j) => j !== i) : voice.map((old, j) => (j === i ? part : old)));
  const rest = names.filter((name) => !voice.some((part) => part.name === name));
  return (
    <div class="voice-picker" role="group" aria-label={label}>
      {voice.length === 0 && (
        <NameField label={`${label}: who answers`} name="" names={names} onChange={(name) => onChange(voiceOf(name))} />
      )}
      {voice.map(({ name, scale }, i) => (
        <div class="voice-part" key={String(i)}>
          <NameField
            label={`${label}: adapter ${i + 1}`}
            name={name}
            names={[name, ...rest].sort()}
            onChange={(chosen) => set(i, { name: chosen, scale })}
          />
          <input
            type="range"
            aria-label={`Factor of ${name}, slider`}
            min={String(kLeast)}
            max={String(kMost)}
            step="0.05"
            value={String(scale)}
            onInput={(event: Event) => set(i, { name, scale: (event.target as HTMLInputElement).valueAsNumber })}
          />
          <input
            type="number"
            aria-label={`Factor of ${name}`}
            step="0.05"
            value={String(scale)}
            onInput={(event: Event) => {
              const typed = (event.target as HTMLInputElement).valueAsNumber;
              if (Number.isFinite(typed)) set(i, { name, scale: typed });
            }}
          />
          <IconButton icon="close" label={`Take ${name} out`} onClick={() => onChange(voice.filter((_, j) => j !== i))} />
        </div>
      ))}
      {voice.length > 0 && voice.length < kMostParts && rest.length > 0 && (
        <button type="button" class="quiet" onClick={() => onChange([...voice, { name: rest[0], scale: 1 }])}>
          + mix another in
        </button>
      )}
    </div>
  );
}
