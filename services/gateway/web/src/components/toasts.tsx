import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { hideToast, useToasts } from "@/lib/toasts";
import classes from "./toasts.module.css";

/** What the last changes have done, each with its way back where there is one. */
export function Toasts() {
  const toasts = useToasts();
  return (
    <div className={classes.toasts} role="status" aria-label={t`Changes`}>
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
              <Trans>Undo</Trans>
            </button>
          )}
          <button type="button" aria-label={t`Close: ${text}`} onClick={() => hideToast(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
