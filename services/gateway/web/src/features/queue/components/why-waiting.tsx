import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReservationView } from "@schemas/messages";
import { Failure, Loaded } from "@/components/page";
import { withoutUnfit } from "@/domain/blockers";
import { byNodes } from "@/domain/gathered-reasons";
import { useMayChange } from "@/lib/api/get-me";
import { moment, roughly, secondsSince, useNow } from "@/lib/time";
import { explanationOptions } from "../api/get-explanation";
import { useReplaceRequest } from "../api/replace-request";

/** All reasons by node, when it starts, and the smallest change with which it would run. */
export function WhyWaiting({ waiting }: { waiting: ReservationView }) {
  const explanation = useQuery(explanationOptions(waiting.reservation_id));
  const replace = useReplaceRequest();
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
              <strong>Expected start: </strong>
              {startAt
                ? `${moment(startAt, now)}, in about ${roughly(-(secondsSince(startAt, now) ?? 0))}`
                : "unknown: a reservation it waits for has no end time"}
            </p>
            {suggestion && (
              <p>
                <strong>What would help: </strong>
                {suggestion.message}{" "}
                {mayChange && (
                  <Button
                    size="compact-xs"
                    loading={replace.isPending}
                    onClick={() => replace.mutate({ waiting, request: suggestion.request })}
                  >
                    Request that instead
                  </Button>
                )}
              </p>
            )}
            {replace.error && <Failure error={replace.error} />}
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
                {unfit === 1 ? "1 GPU" : `${unfit} GPUs`} could never serve this request and{" "}
                {unfit === 1 ? "is" : "are"} left out.
              </p>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
