import { t } from "@lingui/core/macro";
import { Select } from "@mantine/core";
import { Page } from "@/components/page";
import { useNow } from "@/lib/time";
import { rangeWords } from "@/lib/time-range";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { FailuresReport } from "./components/failures-report";
import { MyUsage } from "./components/my-usage";
import { PeopleReport } from "./components/people-report";
import { UsageReport } from "./components/usage-report";
import { WaitsReport } from "./components/waits-report";
import { WasteReport } from "./components/waste-report";
import { REPORT_RANGES, startOf } from "./report-range";
import { BY_WORDS } from "./usage";

/** Where GPU hours went, what was wasted, who waited, what failed. */
export function ReportsPage() {
  const [range, setRange] = useUrlState("report-range", "7d");
  const [by, setBy] = useUrlState("by", "namespace");
  const [namespace] = useNamespace();
  const startAt = startOf(range, useNow());
  const scope = { startAt, namespace };
  return (
    <Page
      title={t`Reports`}
      actions={
        <>
          <Select
            size="xs"
            w={110}
            aria-label={t`Report period`}
            data={REPORT_RANGES.map((value) => ({ value, label: rangeWords(value) }))}
            value={range}
            allowDeselect={false}
            onChange={(value) => value && setRange(value)}
          />
          <Select
            size="xs"
            w={150}
            aria-label={t`Usage by`}
            data={Object.entries(BY_WORDS).map(([value, word]) => ({
              value,
              label: t`by ${word}`,
            }))}
            value={by}
            allowDeselect={false}
            onChange={(value) => value && setBy(value)}
          />
        </>
      }
    >
      <MyUsage startAt={startAt} />
      <UsageReport scope={scope} by={by} />
      {by !== "person" && <PeopleReport scope={scope} />}
      <WasteReport scope={scope} />
      <WaitsReport scope={scope} />
      <FailuresReport scope={scope} />
    </Page>
  );
}
