import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { GpuLink, GpuView } from "@schemas/messages";
import { UNKNOWN } from "@/lib/units";
import { kindsIn, linkOf } from "../topology";
import classes from "./topology.module.css";

/** How each two GPUs of a node are connected, as `nvidia-smi topo -m` has it. */
export function Topology({ gpus, links }: { gpus: GpuView[]; links: GpuLink[] }) {
  if (links.length === 0)
    return (
      <p className="dim">
        <Trans>The agent of this node reports no links between its GPUs.</Trans>
      </p>
    );
  return (
    <>
      <div className={classes.scroll} tabIndex={0} role="region" aria-label={t`Links between GPUs`}>
        <table className={classes.table}>
          <thead>
            <tr>
              <th scope="col">
                <Trans>GPU</Trans>
              </th>
              {gpus.map((gpu) => (
                <th key={gpu.uuid} scope="col">
                  {gpu.index}
                </th>
              ))}
              <th scope="col">
                <Trans>NUMA</Trans>
              </th>
            </tr>
          </thead>
          <tbody>
            {gpus.map((gpu) => (
              <tr key={gpu.uuid}>
                <th scope="row">{gpu.index}</th>
                {gpus.map((other) => {
                  const link = linkOf(links, gpu, other);
                  return (
                    <td key={other.uuid} title={link?.meaning} data-near={link?.isNvlink}>
                      {other === gpu ? "·" : (link?.word ?? UNKNOWN)}
                    </td>
                  );
                })}
                <td>{gpu.numa_node ?? UNKNOWN}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p className="dim">
        {kindsIn(links)
          .map(([word, meaning]) => `${word}: ${meaning}`)
          .join("; ")}
        .
      </p>
    </>
  );
}
