import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { customRange, spanOf } from "@/lib/time-range";
import { Dialog } from "./dialog";
import { DialogActions } from "./dialog-actions";

interface RangeDialogProps {
  range: string;
  onClose: () => void;
  onChosen: (range: string) => void;
}

/** As an input of moments has it: local, without a zone. */
function local(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Asks for two moments in the viewer's zone. */
export function RangeDialog({ range, onClose, onChosen }: RangeDialogProps) {
  const [initial] = useState(() => spanOf(range, Date.now()));
  const [start, setStart] = useState(local(initial.startMs));
  const [end, setEnd] = useState(local(initial.endMs));
  const span = { startMs: Date.parse(start), endMs: Date.parse(end) };
  const isWrong = !(span.startMs < span.endMs);
  return (
    <Dialog onClose={onClose} title={t`Time range of charts`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onChosen(customRange(span));
          onClose();
        }}
      >
        <TextInput
          type="datetime-local"
          label={t`From`}
          required
          value={start}
          onChange={(event) => setStart(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        <TextInput
          type="datetime-local"
          label={t`To`}
          required
          value={end}
          onChange={(event) => setEnd(event.currentTarget.value)}
          error={isWrong && t`must be after the start`}
          mb="sm"
        />
        <DialogActions onCancel={onClose}>
          <Button type="submit" disabled={isWrong}>
            <Trans>Apply</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
