import { useMemo } from "react";
import { Link } from "react-router";
import type { GpuView } from "@schemas/messages";
import { StateMark } from "@/components/state-mark";
import { paths } from "@/lib/paths";
import { useNow } from "@/lib/time";
import { percent } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";
import { gpuState } from "../gpu-state";
import { heldUntil } from "@/domain/held-until";
import { slicesOf, type GpuSlices, type Slice } from "../slices";
import type { Holding } from "./node-row";
import classes from "./allocation.module.css";

/** Who has which part of each GPU, to scale. */
export function Allocation({ gpus, holding }: { gpus: GpuView[]; holding: Holding | undefined }) {
  const search = useSharedSearch();
  const cut = useMemo(() => slicesOf(gpus), [gpus]);
  return (
    <ul className={classes.list}>
      {cut.map(({ gpu, slices }) => (
        <li key={gpu.uuid} className={classes.line}>
          <Link
            to={{ pathname: paths.gpu(gpu.node_id, gpu.uuid), search }}
            aria-label={label({ gpu, slices })}
          >
            {gpu.index}
          </Link>
          <Wrong gpu={gpu} />
          <span className={classes.bar} aria-hidden>
            {slices.map((slice) => (
              <Part key={slice.key} slice={slice} holding={holding} />
            ))}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** What holders alone do not show. */
function Wrong({ gpu }: { gpu: GpuView }) {
  const state = gpuState(gpu);
  return (state.kind === "attention" || state.kind === "bad") && <StateMark {...state} />;
}

const describe = (slice: Slice) => `${slice.word}, ${percent(slice.share * 100)}`;

function label({ gpu, slices }: GpuSlices): string {
  return `${gpu.node_id} GPU ${gpu.index}: ${slices.map(describe).join("; ")}`;
}

function Part({ slice, holding }: { slice: Slice; holding: Holding | undefined }) {
  const now = useNow();
  const reservation = holding?.get(slice.reservationId ?? "");
  const until = reservation && heldUntil(reservation, now);
  return (
    <span
      className={classes.part}
      data-kind={slice.kind}
      style={{ flexGrow: slice.share }}
      title={until ? `${describe(slice)}, ${until}` : describe(slice)}
    >
      {slice.word}
      {until && <span className="dim"> {until}</span>}
    </span>
  );
}
