import { t } from "@lingui/core/macro";
import { useComputedColorScheme } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { GpuView, ReservationView, SeriesMetric } from "@schemas/messages";
import { GpuSeriesChart } from "@/components/chart/gpu-series-chart";
import { chartToken, seriesColors } from "@/components/chart/theme";
import { spanOf } from "@/lib/time-range";
import { seriesOptions } from "../api/get-series";
import { faultMarks, holderBands } from "../gpu-chart-marks";

const CHART_OPTIONS: Record<SeriesMetric, { title: string; unit: string; maximum?: number }> = {
  utilization_percent: { title: t`Utilization`, unit: "%", maximum: 100 },
  memory_used_mb: { title: t`Memory used`, unit: "GiB" },
  temperature_c: { title: t`Temperature`, unit: "°C" },
  power_draw_w: { title: t`Power`, unit: "W" },
};

const AXES_PX = 72;

interface SeriesChartProps {
  gpu: GpuView;
  /** All that may have held it. */
  reservations: ReservationView[];
  metric: SeriesMetric;
  range: string;
}

/** A metric of one GPU: who held it behind the line, and what of it there is, or may be. */
export function SeriesChart({ gpu, reservations, metric, range }: SeriesChartProps) {
  const { node_id: nodeId, uuid } = gpu;
  const query = useQuery(seriesOptions(nodeId, uuid, metric, range));
  const scheme = useComputedColorScheme("light");
  const { ref, width } = useElementSize();
  const updatedAt = query.dataUpdatedAt;
  const bands = useMemo(
    () => {
      const colors = seriesColors().slice(1);
      return holderBands(uuid, reservations, spanOf(range, updatedAt), colors, width - AXES_PX);
    },
    // The colours are read from the page as it is drawn.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [range, reservations, scheme, updatedAt, uuid, width],
  );
  const marks = useMemo(
    () => faultMarks(gpu, spanOf(range, updatedAt), chartToken("bad")),
    // As above.
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [gpu.recent_faults, range, scheme, updatedAt],
  );
  return (
    <div ref={ref}>
      <GpuSeriesChart
        {...CHART_OPTIONS[metric]}
        query={query}
        metric={metric}
        uuid={uuid}
        range={range}
        total={totalOf(gpu, metric)}
        bands={bands}
        marks={marks}
        group="gpu"
        heightPx={200}
        empty={t`No readings in this time range.`}
      />
    </div>
  );
}

/** The whole of which a reading is a part; undefined where there is none. */
function totalOf(gpu: GpuView, metric: SeriesMetric): number | null | undefined {
  if (metric === "memory_used_mb") return gpu.memory_total_mb;
  if (metric === "power_draw_w") return gpu.power_limit_w;
  return undefined;
}
