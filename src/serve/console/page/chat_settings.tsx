// What a chat is asked with: who answers, the system prompt, sampling, tools.
import { h } from "preact";
import { TextField } from "./parts";
import { SamplingFields } from "./sampling_fields";
import { Chat } from "./tree";
import { VoicePicker } from "./voice_picker";

interface Props {
  chat: Chat;
  adapters: string[];
  onChange: (fields: Partial<Chat>) => void;
}

function isToolsText(text: string): boolean {
  try {
    return text.trim() === "" || Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
}

export function ChatSettings({ chat, adapters, onChange }: Props) {
  const typed = (event: Event) => (event.target as HTMLTextAreaElement).value;
  const good = isToolsText(chat.tools);
  return (
    <section class="chat-settings" aria-label="Settings of this chat">
      <VoicePicker label="Voice of this chat" voice={chat.voice} names={adapters} onChange={(voice) => onChange({ voice })} />
      <TextField
        label="System prompt"
        rows={2}
        text={chat.system}
        placeholder="none"
        onText={(system) => onChange({ system })}
      />
      <SamplingFields sampling={chat.sampling} onChange={(sampling) => onChange({ sampling })} />
      <details>
        <summary>Tools</summary>
        <label class="field">
          <span>Tools, as OpenAI's JSON array</span>
          <textarea
            rows={4}
            class="code-input"
            value={chat.tools}
            aria-invalid={String(!good)}
            placeholder='[{"type": "function", "function": {"name": "weather", "parameters": {…}}}]'
            onInput={(event: Event) => onChange({ tools: typed(event) })}
          />
        </label>
        {!good && (
          <p class="problem" role="status">
            This is no JSON array yet.
          </p>
        )}
      </details>
    </section>
  );
}
