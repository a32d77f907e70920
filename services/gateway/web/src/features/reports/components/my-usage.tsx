import { useQuery } from "@tanstack/react-query";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { useMe } from "@/lib/api/get-me";
import { number, percent, withUnit } from "@/lib/units";
import { usageOptions } from "../api/get-usage";
import type { ReportScope } from "../api/report-options";

/** What the viewer's own namespaces held, against what they may. */
export function MyUsage({ startAt }: { startAt: string }) {
  const me = useMe();
  return (
    <section aria-label="My usage">
      {me?.namespaces.map((namespace) => (
        <MyNamespace key={namespace} namespace={namespace} startAt={startAt} />
      ))}
    </section>
  );
}

function MyNamespace(scope: ReportScope) {
  const query = useQuery(usageOptions(scope, "namespace"));
  return (
    <Loaded query={query}>
      {(view) => {
        const line = view.lines.find(({ name }) => name === scope.namespace);
        const hours = (value: number | undefined) =>
          withUnit(number(Math.round((value ?? 0) * 100) / 100), "GPU-h");
        return (
          <Facts
            facts={[
              ["My usage", scope.namespace],
              ["held", hours(line?.gpu_hours)],
              ["used", hours(line?.used_hours)],
              ["idle", hours(line?.idle_hours)],
              ["previous period", hours(line?.previous_gpu_hours)],
              ["share of limit", line?.gpu_limit ? percent(line.limit_percent) : "no limit"],
            ]}
          />
        );
      }}
    </Loaded>
  );
}
