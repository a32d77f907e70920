import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { Facts } from "@/components/facts";
import { Loaded } from "@/components/page";
import { useMe } from "@/lib/api/get-me";
import { namespacesOptions } from "@/lib/api/get-namespaces";
import { withUnit } from "@/lib/units";
import { usageOptions } from "../api/get-usage";
import type { ReportScope } from "../api/report-options";
import { hoursOf } from "../hours";
import { meanOf } from "../usage";
import { LimitUse } from "./limit-use";

/** What the viewer's own namespaces held, against what they may; an admin's are all, below. */
export function MyUsage({ startAt }: { startAt: string }) {
  const me = useMe();
  if (!me || me.role === "admin") return null;
  return (
    <section aria-label={t`My usage`}>
      {me.namespaces.map((namespace) => (
        <MyNamespace key={namespace} namespace={namespace} startAt={startAt} />
      ))}
    </section>
  );
}

function MyNamespace(scope: ReportScope) {
  const query = useQuery(usageOptions(scope, "namespace"));
  const uses = useQuery(namespacesOptions).data?.namespaces;
  const use = uses?.find(({ namespace }) => namespace === scope.namespace);
  return (
    <Loaded query={query}>
      {(view) => {
        const line = view.lines.find(({ name }) => name === scope.namespace);
        const hours = (value: number | undefined) => withUnit(hoursOf(value ?? 0), "GPU-h");
        return (
          <Facts
            facts={[
              [t`My usage`, scope.namespace],
              [t`held`, hours(line?.gpu_hours)],
              [t`used`, hours(line?.used_hours)],
              [t`idle`, hours(line?.idle_hours)],
              [t`cost`, withUnit(hoursOf(line?.cost), view.currency)],
              [t`previous period`, hours(line?.previous_gpu_hours)],
              [
                t`GPUs`,
                <LimitUse
                  key="limit"
                  now={use?.gpus ?? 0}
                  mean={line ? meanOf(line, view) : 0}
                  limit={use?.gpu_limit ?? line?.gpu_limit ?? null}
                />,
              ],
            ]}
          />
        );
      }}
    </Loaded>
  );
}
