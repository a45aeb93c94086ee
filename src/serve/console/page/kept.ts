// Small settings that the browser keeps. One that keeps nothing (a private window) loses them with the page.

export function kept(name: string, storage: () => Storage = () => localStorage): string | null {
  try {
    return storage().getItem("choral." + name);
  } catch {
    return null;
  }
}

export function keep(name: string, value: string | null, storage: () => Storage = () => localStorage): void {
  try {
    if (value === null) storage().removeItem("choral." + name);
    else storage().setItem("choral." + name, value);
  } catch {
    // Nothing to be done; the page goes on with what it has.
  }
}

export function keptJson<T>(name: string, otherwise: T): T {
  try {
    return JSON.parse(kept(name) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}
