import { hideToast, useToasts } from "@/lib/toasts";
import classes from "./toasts.module.css";

/** What the last changes have done, each with its way back where there is one. */
export function Toasts() {
  const toasts = useToasts();
  return (
    <div className={classes.toasts} role="status" aria-label="Changes">
      {toasts.map(({ id, text, undo }) => (
        <div key={id} className={classes.toast}>
          <span>{text}</span>
          {undo && (
            <button
              type="button"
              onClick={() => {
                hideToast(id);
                undo();
              }}
            >
              Undo
            </button>
          )}
          <button type="button" aria-label={`Close: ${text}`} onClick={() => hideToast(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
