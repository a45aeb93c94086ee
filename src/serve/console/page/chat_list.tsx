// The chats that the browser keeps: search, export, import.
import { h } from "preact";
import { Icon, IconButton } from "./parts";
import { Chat } from "./tree";

const kMostListed = 300;

interface Props {
  chats: Chat[];
  current: string;
  search: string;
  isOpen: boolean; // where the window is narrow
  onSearch: (text: string) => void;
  onOpen: (chat: Chat) => void;
  onNew: () => void;
  onDrop: (chat: Chat) => void;
  onExport: () => void;
  onImport: (file: File) => void;
  onClose: () => void;
}

export function ChatList(props: Props) {
  const { chats, current, search, isOpen } = props;
  const importChosen = (event: Event) => {
    const input = event.target as HTMLInputElement;
    if (input.files?.[0]) props.onImport(input.files[0]);
    input.value = "";
  };
  return (
    <aside class={"chat-list" + (isOpen ? " open" : "")} aria-label="Chats">
      <div class="row">
        <button type="button" class="primary grow" onClick={props.onNew}>
          <Icon name="add" /> New chat
        </button>
        <IconButton icon="close" label="Close the list" class="list-switch" onClick={props.onClose} />
      </div>
      <input
        id="chat-search"
        type="search"
        aria-label="Search the chats"
        placeholder="Search"
        value={search}
        onInput={(event: Event) => props.onSearch((event.target as HTMLInputElement).value)}
      />
      <ul>
        {chats.slice(0, kMostListed).map((chat) => (
          <li key={chat.id} class={chat.id === current ? "current" : ""}>
            <button
              type="button"
              class="chat-link"
              aria-current={chat.id === current ? "true" : undefined}
              onClick={() => props.onOpen(chat)}
            >
              {chat.title || "New chat"}
            </button>
            <IconButton icon="trash" label={`Delete ${chat.title || "this chat"}`} onClick={() => props.onDrop(chat)} />
          </li>
        ))}
      </ul>
      {chats.length === 0 && (
        <p class="faint">{search ? "No chat has these words." : "What you ask is kept in this browser alone."}</p>
      )}
      {chats.length > kMostListed && <p class="faint">{chats.length - kMostListed} more: search for them.</p>}
      <div class="row chat-files">
        <button type="button" class="quiet" onClick={props.onExport}>
          Export
        </button>
        <label class="quiet button-like">
          Import
          <input
            type="file"
            class="hidden-file"
            accept=".json,application/json"
            aria-label="Import chats"
            onChange={importChosen}
          />
        </label>
      </div>
    </aside>
  );
}
