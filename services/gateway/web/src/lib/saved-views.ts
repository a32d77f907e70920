import { useSyncExternalStore } from "react";

/** What somebody chose on a page, by a name; `search` is the address after its path. */
export interface SavedView {
  name: string;
  search: string;
}

const PREFIX = "gpusteward-views-";
const MOST = 50;
const listeners = new Set<() => void>();

/** Of this browser; what is no list of views is no view. */
function read(page: string): SavedView[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(PREFIX + page) ?? "[]");
    return Array.isArray(stored) ? stored.filter(isView) : [];
  } catch {
    return [];
  }
}

const isView = (value: unknown): value is SavedView =>
  typeof value === "object" &&
  value !== null &&
  typeof (value as SavedView).name === "string" &&
  typeof (value as SavedView).search === "string";

/** False where the browser keeps nothing, in a private window or with its storage full. */
function write(page: string, views: SavedView[]): boolean {
  try {
    localStorage.setItem(PREFIX + page, JSON.stringify(views.slice(-MOST)));
  } catch {
    return false;
  }
  listeners.forEach((listener) => listener());
  return true;
}

export const saveView = (page: string, view: SavedView): boolean =>
  write(page, [...read(page).filter(({ name }) => name !== view.name), view]);

export const removeView = (page: string, name: string): boolean =>
  write(
    page,
    read(page).filter((view) => view.name !== name),
  );

export function useSavedViews(page: string): SavedView[] {
  const text = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      addEventListener("storage", listener);
      return () => {
        listeners.delete(listener);
        removeEventListener("storage", listener);
      };
    },
    () => localStorage.getItem(PREFIX + page),
  );
  return text === null ? [] : read(page);
}
