import { Table, UnstyledButton } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import type { ReservationView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { isOverQuota } from "@/domain/blockers";
import { holdingOptions } from "@/lib/api/get-holding";
import { duration, fullMoment, moment, roughly, secondsSince, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { explanationOptions } from "./api/get-explanation";
import { queueOptions } from "./api/get-queue";
import { BlockedBy } from "./components/blocked-by";
import { WhyWaiting } from "./components/why-waiting";
import { requestText } from "@/domain/request-words";
import classes from "./queue-page.module.css";

/** Of a long queue the first are explained in the list, the others once they are opened. */
const MOST_EXPLAINED = 25;
const SLOW_MS = 15_000;

export function QueuePage() {
  const [namespace] = useNamespace();
  const queue = useQuery(queueOptions(namespace));
  return (
    <Page title="Queue">
      <Loaded query={queue}>
        {(waiting) =>
          waiting.length === 0 ? (
            <Empty title="No waiting requests">
              Every request {namespace && `of ${namespace} `}has its GPUs.{" "}
              <code>gpusteward reserve --gpus 1</code> requests some.
            </Empty>
          ) : (
            <QueueTable waiting={waiting} />
          )
        }
      </Loaded>
    </Page>
  );
}

function QueueTable({ waiting }: { waiting: ReservationView[] }) {
  const [opened, setOpened] = useUrlState("open", "");
  const now = useNow();
  const holding = useQuery(holdingOptions).data;
  const explanations = useQueries({
    queries: waiting
      .slice(0, MOST_EXPLAINED)
      .map(({ reservation_id: id }) => ({ ...explanationOptions(id), refetchInterval: SLOW_MS })),
  });
  return (
    <Table verticalSpacing={4} aria-label="Waiting requests" className={classes.queue}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th className="number">Position</Table.Th>
          <Table.Th>Holder</Table.Th>
          <Table.Th>Request</Table.Th>
          <Table.Th className="number">Waiting for</Table.Th>
          <Table.Th>Expected start</Table.Th>
          <Table.Th>Blocked by</Table.Th>
          <Table.Th>Reason</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {waiting.map((reservation, index) => {
          const explanation = explanations[index]?.data;
          const isOpen = opened === reservation.reservation_id;
          return [
            <Table.Tr key={reservation.reservation_id}>
              <Table.Td className="number">
                {isOverQuota(explanation?.reasons ?? reservation.reasons)
                  ? "quota"
                  : (reservation.queue_position ?? UNKNOWN)}
              </Table.Td>
              <Table.Td>
                <UnstyledButton
                  fz="inherit"
                  c="var(--gs-accent)"
                  aria-expanded={isOpen}
                  onClick={() => setOpened(isOpen ? "" : reservation.reservation_id)}
                >
                  {reservation.holder || reservation.reservation_id.slice(-12)}
                </UnstyledButton>{" "}
                <span className="dim">{reservation.namespace}</span>
              </Table.Td>
              <Table.Td>{requestText(reservation.request)}</Table.Td>
              <Table.Td className="number" title={fullMoment(reservation.requested_at)}>
                {duration(Math.round(secondsSince(reservation.requested_at, now) ?? 0))}
              </Table.Td>
              <Table.Td>{startText(explanation?.expected_start_at, now)}</Table.Td>
              <Table.Td>
                <BlockedBy reasons={explanation?.reasons ?? []} holding={holding} now={now} />
              </Table.Td>
              <Table.Td>
                {explanation?.summary || reservation.summary || reservation.reason}
              </Table.Td>
            </Table.Tr>,
            isOpen && (
              <Table.Tr key={`${reservation.reservation_id}-why`}>
                <Table.Td className={classes.wide} />
                <Table.Td colSpan={6}>
                  <WhyWaiting waiting={reservation} />
                </Table.Td>
              </Table.Tr>
            ),
          ];
        })}
      </Table.Tbody>
    </Table>
  );
}

function startText(startAt: string | null | undefined, now: number): string {
  if (!startAt) return UNKNOWN;
  return `${moment(startAt, now)}, in about ${roughly(Math.max(0, -(secondsSince(startAt, now) ?? 0)))}`;
}
