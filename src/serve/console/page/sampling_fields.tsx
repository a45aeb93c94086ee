import { h } from "preact";
import { NumberField } from "./parts";
import { kSamplingFields, Sampling } from "./sampling";

export function SamplingFields({ sampling, onChange }: { sampling: Sampling; onChange: (sampling: Sampling) => void }) {
  return (
    <div class="sampling" role="group" aria-label="Sampling">
      {kSamplingFields.map(({ name, label, min, max, step }) => (
        <NumberField
          key={name}
          label={label}
          min={min}
          max={max}
          step={step}
          value={sampling[name]}
          onChange={(value) => {
            const next = { ...sampling };
            if (value === undefined) delete next[name];
            else next[name] = value;
            onChange(next);
          }}
        />
      ))}
    </div>
  );
}
