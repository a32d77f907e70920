import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { GpuView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Holder } from "@/components/holder";
import { When } from "@/components/when";
import { heldUntil } from "@/domain/held-until";
import { useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import {
  colorKey,
  colorsBy,
  gpuCount,
  holdersOf,
  type ColorBy,
  type HolderRow,
} from "../allocation";
import type { Holding } from "./node-row";
import classes from "./who-holds.module.css";

interface WhoHoldsProps {
  gpus: GpuView[];
  holding: Holding | undefined;
  /** Where the cells beside it have the colours of holders or teams. */
  colorBy: ColorBy | null;
}

/** Each holder with its GPUs, since when, and when it ends. */
export function WhoHolds({ gpus, holding, colorBy }: WhoHoldsProps) {
  const now = useNow();
  const colors = colorBy && colorsBy(gpus, colorBy);
  const columns: Column<HolderRow>[] = [
    {
      name: t`Holder`,
      sortBy: (row) => row.name,
      cell: (row) => (
        <span className={classes.name}>
          {colorBy && (
            <span
              className={classes.swatch}
              style={{
                background: `var(--gs-series-${colors?.get(colorKey(row, colorBy)) ?? 8})`,
              }}
            />
          )}
          <span>
            {row.holder ? <Holder of={row.holder} /> : row.name}
            <span className="dim">
              {" "}
              {[row.requester, row.namespace].filter(Boolean).join(", ")}
            </span>
          </span>
        </span>
      ),
    },
    {
      name: "GPUs",
      isNumber: true,
      sortBy: (row) => row.gpus,
      cell: (row) => (
        <span
          title={`${gpuCount(row.gpus)}, ${row.nodes === 1 ? t`1 node` : t`${row.nodes} nodes`}`}
        >
          {Math.round(row.gpus * 100) / 100}
        </span>
      ),
    },
    {
      name: t`Since`,
      cell: (row) => <When at={holding?.get(row.reservationId ?? "")?.granted_at} />,
    },
    {
      name: t`Ends`,
      cell: (row) => {
        const reservation = holding?.get(row.reservationId ?? "");
        return (
          <span className="nowrap">{(reservation && heldUntil(reservation, now)) ?? UNKNOWN}</span>
        );
      },
    },
  ];
  return (
    <section className={classes.list}>
      <h2>
        <Trans>Who holds what</Trans>
      </h2>
      <DataTable
        label={t`Who holds what`}
        columns={columns}
        rows={holdersOf(gpus)}
        rowKey={(row) => row.key}
        empty={t`Nobody holds a GPU.`}
      />
    </section>
  );
}
