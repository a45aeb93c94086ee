// What the browser keeps: chats and votes in IndexedDB. Where it refuses, they live as long as the page, and `isKept` says so.
import { Chat } from "./tree";
import { Vote } from "./votes";

type StoreName = "chats" | "votes";

const kVersion = 1;
const inMemory: Record<StoreName, Map<string, any>> = { chats: new Map(), votes: new Map() };

function open(): Promise<IDBDatabase | null> {
  return new Promise((resolve) => {
    try {
      const request = indexedDB.open("choral", kVersion);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("chats", { keyPath: "id" });
        request.result.createObjectStore("votes", { keyPath: "id" });
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = request.onblocked = () => resolve(null);
    } catch {
      resolve(null);
    }
  });
}

const database = open();

export async function isKept(): Promise<boolean> {
  return (await database) !== null;
}

async function inStore<T>(
  name: StoreName,
  mode: IDBTransactionMode,
  work: (store: IDBObjectStore) => IDBRequest<T>,
): Promise<T> {
  const db = (await database)!;
  return new Promise((resolve, reject) => {
    const request = work(db.transaction(name, mode).objectStore(name));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function all<T>(name: StoreName): Promise<T[]> {
  return (await isKept()) ? inStore(name, "readonly", (store) => store.getAll()) : [...inMemory[name].values()];
}

async function put(name: StoreName, value: { id: string }): Promise<void> {
  if (await isKept()) await inStore(name, "readwrite", (store) => store.put(value));
  else inMemory[name].set(value.id, value);
}

async function drop(name: StoreName, id: string): Promise<void> {
  if (await isKept()) await inStore(name, "readwrite", (store) => store.delete(id));
  else inMemory[name].delete(id);
}

export const chats = {
  all: () => all<Chat>("chats"),
  put: (chat: Chat) => put("chats", chat),
  drop: (id: string) => drop("chats", id),
};

export const votes = {
  all: () => all<Vote>("votes"),
  put: (vote: Vote) => put("votes", vote),
  drop: (id: string) => drop("votes", id),
};
