// Small parts that several views are made of.
import { Component, h } from "preact";

export function bytesText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const unit = Math.min(Math.floor(Math.log2(bytes) / 10), 4);
  return `${(bytes / 2 ** (10 * unit)).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export function secondsText(milliseconds: number): string {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(2)} s`;
}

export function reasonOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}

export function save(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// --- icons: strokes of a 24 × 24 square ---

const kIcons = {
  add: "M12 5v14M5 12h14",
  again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v11H9zM15 9V5H5v11h4",
  dark: "M20 14A8 8 0 1 1 10 4a6.5 6.5 0 0 0 10 10z",
  edit: "M4 20l1-4L16 5l3 3L8 19z",
  file: "M7 3h7l5 5v13H7zM14 3v5h5",
  heat: "M4 4h16v16H4zM4 9.3h16M4 14.7h16M9.3 4v16M14.7 4v16",
  key: "M11 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM11 12h10v4M17 12v3",
  left: "M14 6l-6 6 6 6",
  light:
    "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5",
  menu: "M4 7h16M4 12h16M4 17h16",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  right: "M10 6l6 6-6 6",
  send: "M5 12h13M12 5l7 7-7 7",
  stop: "M7 7h10v10H7z",
  system: "M3 5h18v11H3zM8 20h8M12 16v4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  tune: "M4 8h9M19 8h1M4 16h1M11 16h9M16 5.5v5M8 13.5v5",
  up: "M12 19V5M5 12l7-7 7 7",
};

export type IconName = keyof typeof kIcons;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={kIcons[name]} />
    </svg>
  );
}

interface IconButtonProps {
  icon: IconName;
  label: string;
  onClick: (event: Event) => void;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  class?: string;
}

export function IconButton({ icon, label, onClick, disabled, pressed, expanded, class: more }: IconButtonProps) {
  return (
    <button
      type="button"
      class={`icon-button ${more ?? ""}`}
      aria-label={label}
      title={label}
      disabled={disabled}
      onClick={onClick}
      aria-pressed={pressed === undefined ? undefined : String(pressed)}
      aria-expanded={expanded === undefined ? undefined : String(expanded)}
    >
      <Icon name={icon} />
    </button>
  );
}

// --- fields ---

interface NumberFieldProps {
  key?: string;
  label: string;
  value: number | undefined;
  min: number;
  max: number;
  step: number;
  placeholder?: string;
  onChange: (value: number | undefined) => void;
}

// Empty is a value too: whoever is asked chooses.
export function NumberField({ label, value, min, max, step, placeholder, onChange }: NumberFieldProps) {
  const read = (event: Event) => {
    const { value: text, valueAsNumber: number } = event.target as HTMLInputElement;
    if (text === "") onChange(undefined);
    else if (Number.isFinite(number) && number >= min && number <= max) onChange(number);
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        value={value === undefined ? "" : String(value)}
        min={String(min)}
        max={String(max)}
        step={String(step)}
        placeholder={placeholder ?? "the server's"}
        onInput={read}
      />
    </label>
  );
}

interface TextFieldProps {
  label: string;
  text: string;
  rows: number;
  placeholder?: string;
  onText: (text: string) => void;
}

export function TextField({ label, text, rows, placeholder, onText }: TextFieldProps) {
  const typed = (event: Event) => onText((event.target as HTMLTextAreaElement).value);
  return (
    <label class="field grow">
      <span>{label}</span>
      <textarea rows={rows} value={text} placeholder={placeholder} onInput={typed} />
    </label>
  );
}

interface CheckBoxProps {
  label: string;
  isOn: boolean;
  disabled?: boolean;
  onSwitch: () => void;
}

export function CheckBox({ label, isOn, disabled, onSwitch }: CheckBoxProps) {
  return (
    <label class="check">
      <input type="checkbox" checked={isOn} disabled={disabled} onChange={onSwitch} /> {label}
    </label>
  );
}

// --- dialogs ---

interface DialogProps {
  title: string;
  onClose: () => void;
  children?: JSX.Element[];
}

// Modal, with the browser's own focus trap; Escape closes it.
export class Dialog extends Component<DialogProps, {}> {
  private element: HTMLDialogElement | null = null;

  componentDidMount() {
    this.element?.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.props.onClose();
    });
    this.element?.showModal();
  }

  componentWillUnmount() {
    this.element?.close();
  }

  render({ title, onClose, children }: DialogProps) {
    return (
      <dialog ref={(element?: Element) => (this.element = (element as HTMLDialogElement) ?? null)} aria-label={title}>
        <header class="dialog-head">
          <h2>{title}</h2>
          <IconButton icon="close" label="Close" onClick={onClose} />
        </header>
        {children}
      </dialog>
    );
  }
}

export function Notice({ text, kind, onClose }: { text: string; kind: "error" | "good" | "note"; onClose?: () => void }) {
  return (
    <div class={`notice ${kind}`} role={kind === "error" ? "alert" : "status"}>
      <span>{text}</span>
      {onClose && <IconButton icon="close" label="Dismiss" onClick={onClose} />}
    </div>
  );
}
