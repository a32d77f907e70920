import { t } from "@lingui/core/macro";
import { useSyncExternalStore } from "react";

/** What a change has done, said for a while; `undo` takes it back. */
export interface Toast {
  text: string;
  undo?: () => void;
}

export type ShownToast = Toast & { id: number };

const SHOWN_MS = 8_000;
const MOST = 3;

let shown: readonly ShownToast[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function show(toasts: readonly ShownToast[]): void {
  shown = toasts;
  listeners.forEach((listener) => listener());
}

export function showToast(toast: Toast): void {
  const id = ++lastId;
  show([...shown, { ...toast, id }].slice(-MOST));
  setTimeout(() => hideToast(id), SHOWN_MS);
}

/** What the button of a toast does: takes a change back, or says why it could not be. */
export const undoBy = (back: () => Promise<unknown>) => () =>
  void back().catch((error: unknown) => {
    const because = error instanceof Error ? error.message : String(error);
    showToast({ text: t`Not undone: ${because}` });
  });

export function hideToast(id: number): void {
  show(shown.filter((toast) => toast.id !== id));
}

export function useToasts(): readonly ShownToast[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => shown,
  );
}
