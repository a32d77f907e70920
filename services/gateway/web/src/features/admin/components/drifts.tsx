import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Switch } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { Drift } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Empty, Loaded } from "@/components/page";
import { StateMark } from "@/components/state-mark";
import { paths } from "@/lib/paths";
import { duration, moment, secondsSince, useNow } from "@/lib/time";
import { useSharedSearch, useUrlState } from "@/lib/url-state";
import { driftsOptions } from "../api/get-drifts";

const words = (code: string) => code.replaceAll("_", " ");

/** Where what is reserved, what runs and what is used disagree. */
export function Drifts() {
  const [ended, setEnded] = useUrlState("ended", "");
  const drifts = useQuery(driftsOptions(ended === "yes"));
  const now = useNow();
  const search = useSharedSearch();
  const columns: Column<Drift>[] = [
    {
      name: t`Kind`,
      sortBy: (drift) => drift.drift,
      cell: (drift) => (
        <StateMark kind={drift.ended_at ? "unknown" : "attention"} word={words(drift.drift)} />
      ),
    },
    { name: t`Node`, sortBy: (drift) => drift.node_id, cell: (drift) => drift.node_id },
    {
      name: "GPU",
      cell: (drift) =>
        drift.device_uuid && (
          <Link
            className="mono"
            to={{ pathname: paths.gpu(drift.node_id, drift.device_uuid), search }}
          >
            …{drift.device_uuid.slice(-8)}
          </Link>
        ),
    },
    {
      name: t`Duration`,
      isNumber: true,
      sortBy: (drift) => -Date.parse(drift.since_at),
      cell: (drift) => {
        const end = drift.ended_at ? Date.parse(drift.ended_at) : now;
        return duration(Math.round(secondsSince(drift.since_at, end) ?? 0));
      },
    },
    { name: t`Since`, cell: (drift) => moment(drift.since_at, now) },
    { name: t`Action`, cell: (drift) => words(drift.action) },
    { name: t`Details`, cell: (drift) => drift.detail },
  ];
  return (
    <>
      <Switch
        size="xs"
        mb="sm"
        label={t`Include drifts resolved in the last 24 h`}
        checked={ended === "yes"}
        onChange={(event) => setEnded(event.currentTarget.checked ? "yes" : "")}
      />
      <Loaded query={drifts}>
        {(all) =>
          all.length === 0 ? (
            <Empty title={t`No drift`}>
              <Trans>Reservations, running processes and GPU usage agree.</Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Drift`}
              columns={columns}
              rows={all}
              rowKey={(drift) => drift.drift_id}
            />
          )
        }
      </Loaded>
    </>
  );
}
