import { t } from "@lingui/core/macro";
import { Select } from "@mantine/core";
import { Suspense, useState } from "react";
import { latePart } from "@/lib/parts";
import { moment } from "@/lib/time";
import { customSpan, RANGES, rangeWords } from "@/lib/time-range";
import { useTimeRange } from "@/lib/url-state";
import { withLaterStyles } from "./later-styles";

const RangeDialog = latePart(async () => ({
  default: (await withLaterStyles(import("./range-dialog"))).RangeDialog,
}));
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
    (ms) => ms && moment(new Date(ms).toISOString()),
  );
  return (
    <>
      <Select
        size="xs"
        w={custom ? 190 : 110}
        label={label}
        aria-label={label ? undefined : t`Time range of charts`}
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
        <Suspense>
          <RangeDialog range={range} onClose={() => setAsking(false)} onChosen={setRange} />
        </Suspense>
      )}
    </>
  );
}
