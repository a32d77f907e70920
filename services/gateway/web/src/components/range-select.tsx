import { Button, Group, Select, TextInput } from "@mantine/core";
import { useState } from "react";
import { moment } from "@/lib/time";
import { customRange, customSpan, RANGES, rangeWords, spanOf } from "@/lib/time-range";
import { useTimeRange } from "@/lib/url-state";
import { Dialog } from "./dialog";

const CUSTOM = "custom…";

interface RangeSelectProps {
  /** Shown above; without one it is told to screen readers only. */
  label?: string;
  className?: string;
}

/** Presets that end now, or two moments in the viewer's zone. */
export function RangeSelect({ label, className }: RangeSelectProps) {
  const [range, setRange] = useTimeRange();
  const [isAsking, setAsking] = useState(false);
  const custom = customSpan(range);
  const shown = [custom?.startMs, custom?.endMs].map(
    (ms) => ms && moment(new Date(ms).toISOString()).slice(0, -3),
  );
  return (
    <>
      <Select
        size="xs"
        w={custom ? 190 : 110}
        label={label}
        aria-label={label ? undefined : "Time range of charts"}
        className={className}
        data={[
          ...RANGES.map((value) => ({ value, label: rangeWords(value) })),
          ...(custom ? [{ value: range, label: shown.join(" – ") }] : []),
          CUSTOM,
        ]}
        allowDeselect={false}
        value={range}
        onChange={(value) => {
          if (value === CUSTOM) setAsking(true);
          else if (value) setRange(value);
        }}
      />
      {isAsking && (
        <RangeDialog range={range} onClose={() => setAsking(false)} onChosen={setRange} />
      )}
    </>
  );
}

interface RangeDialogProps {
  range: string;
  onClose: () => void;
  onChosen: (range: string) => void;
}

/** As an input of moments has it: local, without a zone. */
function local(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function RangeDialog({ range, onClose, onChosen }: RangeDialogProps) {
  const [initial] = useState(() => spanOf(range, Date.now()));
  const [start, setStart] = useState(local(initial.startMs));
  const [end, setEnd] = useState(local(initial.endMs));
  const span = { startMs: Date.parse(start), endMs: Date.parse(end) };
  const isWrong = !(span.startMs < span.endMs);
  return (
    <Dialog onClose={onClose} title="Time range of charts">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onChosen(customRange(span));
          onClose();
        }}
      >
        <TextInput
          type="datetime-local"
          label="From"
          required
          value={start}
          onChange={(event) => setStart(event.currentTarget.value)}
          data-autofocus
          mb="sm"
        />
        <TextInput
          type="datetime-local"
          label="To"
          required
          value={end}
          onChange={(event) => setEnd(event.currentTarget.value)}
          error={isWrong && "must be after the start"}
          mb="sm"
        />
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" disabled={isWrong}>
            Apply
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
