import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { FailureLine } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Loaded } from "@/components/page";
import { paths } from "@/lib/paths";
import { moment } from "@/lib/time";
import { whole } from "@/lib/units";
import { failuresOptions } from "../api/get-failures";
import type { ReportScope } from "../api/report-options";
import { Report } from "./report";

const FAILURES: Column<FailureLine>[] = [
  {
    name: t`Failed`,
    sortBy: (line) => line.of,
    cell: (line) => (line.of === "attempt" ? t`experiment attempt` : line.of),
  },
  {
    name: t`Reason`,
    sortBy: (line) => line.reason,
    cell: (line) => line.reason.replaceAll("_", " "),
  },
  {
    name: t`Count`,
    isNumber: true,
    sortBy: (line) => line.count,
    cell: (line) => whole(line.count),
  },
  { name: t`Last`, sortBy: (line) => line.last_at, cell: (line) => moment(line.last_at) },
  { name: t`Last message`, isLong: true, cell: (line) => line.message },
];

/** What failed, and why. */
export function FailuresReport({ scope }: { scope: ReportScope }) {
  const query = useQuery(failuresOptions(scope));
  return (
    <Loaded query={query}>
      {(view) =>
        view.lines.length === 0 ? (
          <Empty title={t`No failures`}>
            <Trans>
              Everything that <Link to={paths.tasks()}>ran</Link> in this time range succeeded.
            </Trans>
          </Empty>
        ) : (
          <Report
            title={t`Failures`}
            empty=""
            csv={{
              name: "failures",
              columns: ["of", "reason", "count", t`last at`, "message"],
              rows: view.lines.map((line) => [
                line.of,
                line.reason,
                line.count,
                line.last_at,
                line.message,
              ]),
            }}
          >
            <DataTable
              label={t`Failures`}
              columns={FAILURES}
              rows={view.lines}
              rowKey={(line) => `${line.of} ${line.reason}`}
            />
          </Report>
        )
      }
    </Loaded>
  );
}
