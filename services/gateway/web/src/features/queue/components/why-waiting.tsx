import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { GpuRequest, ReservationView } from "@schemas/messages";
import { Loaded } from "@/components/page";
import { withoutUnfit } from "@/domain/blockers";
import { byNodes } from "@/domain/gathered-reasons";
import { useMayChange } from "@/lib/api/get-me";
import { moment, roughly, secondsSince, useNow } from "@/lib/time";
import { explanationOptions } from "../api/get-explanation";
import { ReplaceDialog } from "./replace-dialog";

/** All reasons by node, when it starts, and the smallest change with which it would run. */
export function WhyWaiting({ waiting }: { waiting: ReservationView }) {
  const explanation = useQuery(explanationOptions(waiting.reservation_id));
  const [replacement, setReplacement] = useState<GpuRequest | null>(null);
  const now = useNow();
  const mayChange = useMayChange();
  return (
    <Loaded query={explanation}>
      {({ reasons: all, expected_start_at: startAt, suggestion, summary }) => {
        const { reasons, unfit } = withoutUnfit(all);
        return (
          <>
            {summary && <p>{summary}</p>}
            <p>
              <strong>
                <Trans>Expected start:</Trans>{" "}
              </strong>
              {startAt
                ? t`${moment(startAt, now)}, in about ${roughly(-(secondsSince(startAt, now) ?? 0))}`
                : t`unknown: a reservation it waits for has no end time`}
            </p>
            {suggestion && (
              <p>
                <strong>
                  <Trans>What would help:</Trans>{" "}
                </strong>
                {suggestion.message}{" "}
                {mayChange && (
                  <Button size="compact-xs" onClick={() => setReplacement(suggestion.request)}>
                    <Trans>Request that instead</Trans>
                  </Button>
                )}
              </p>
            )}
            {replacement && (
              <ReplaceDialog
                waiting={waiting}
                request={replacement}
                onClose={() => setReplacement(null)}
              />
            )}
            {byNodes(reasons).map(({ nodes, sentences }) => (
              <section key={nodes}>
                <strong>{nodes}</strong>
                <ul>
                  {sentences.map(({ message, title }) => (
                    <li key={message} title={title}>
                      {message}
                    </li>
                  ))}
                </ul>
              </section>
            ))}
            {unfit > 0 && (
              <p className="dim">
                {unfit === 1
                  ? t`1 GPU could never serve this request and is left out.`
                  : t`${unfit} GPUs could never serve this request and are left out.`}
              </p>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
