import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Table, UnstyledButton } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import type { Explanation, ReservationView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { isOverQuota } from "@/domain/blockers";
import { holderOf } from "@/domain/holder";
import { holdingOptions } from "@/lib/api/get-holding";
import { duration, fullMoment, moment, roughly, secondsSince, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { explanationOptions } from "./api/get-explanation";
import { queueOptions } from "./api/get-queue";
import { agendaOf } from "./agenda";
import { Agenda } from "./components/agenda";
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
    <Page title={t`Queue`}>
      <Loaded query={queue}>
        {(waiting) => <Queue waiting={waiting} namespace={namespace} />}
      </Loaded>
    </Page>
  );
}

function Queue({ waiting, namespace }: { waiting: ReservationView[]; namespace: string }) {
  const now = useNow();
  const holding = useQuery(holdingOptions).data;
  const explanations = useQueries({
    queries: waiting
      .slice(0, MOST_EXPLAINED)
      .map(({ reservation_id: id }) => ({ ...explanationOptions(id), refetchInterval: SLOW_MS })),
  }).map(({ data }) => data);
  const ofNamespace = [...(holding?.values() ?? [])].filter(
    (reservation) => !namespace || reservation.namespace === namespace,
  );
  const starts = waiting.map((of, index) => ({ of, at: explanations[index]?.expected_start_at }));
  const entries = agendaOf(ofNamespace, starts, now);
  return (
    <>
      {waiting.length === 0 ? (
        <Empty title={t`No waiting requests`}>
          {namespace
            ? t`Every request of ${namespace} has its GPUs.`
            : t`Every request has its GPUs.`}{" "}
          <Trans>
            <code>gpusteward reserve --gpus 1</code> requests some.
          </Trans>
        </Empty>
      ) : (
        <QueueTable waiting={waiting} explanations={explanations} holding={holding} />
      )}
      {(waiting.length > 0 || entries.length > 0) && <Agenda entries={entries} now={now} />}
    </>
  );
}

interface QueueTableProps {
  waiting: ReservationView[];
  /** Of the first of them, in their order. */
  explanations: (Explanation | undefined)[];
  holding: ReadonlyMap<string, ReservationView> | undefined;
}

function QueueTable({ waiting, explanations, holding }: QueueTableProps) {
  const [opened, setOpened] = useUrlState("open", "");
  const now = useNow();
  return (
    <Table verticalSpacing={4} aria-label={t`Waiting requests`} className={classes.queue}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th className="number">
            <Trans>Position</Trans>
          </Table.Th>
          <Table.Th>
            <Trans>Holder</Trans>
          </Table.Th>
          <Table.Th>
            <Trans>Request</Trans>
          </Table.Th>
          <Table.Th className="number">
            <Trans>Waiting for</Trans>
          </Table.Th>
          <Table.Th>
            <Trans>Expected start</Trans>
          </Table.Th>
          <Table.Th>
            <Trans>Blocked by</Trans>
          </Table.Th>
          <Table.Th>
            <Trans>Reason</Trans>
          </Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {waiting.map((reservation, index) => {
          const explanation = explanations[index];
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
                  {holderOf(reservation.holder).name || reservation.reservation_id.slice(-12)}
                </UnstyledButton>{" "}
                <span className="dim">
                  {[reservation.requester, reservation.namespace].filter(Boolean).join(", ")}
                </span>
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
  return t`${moment(startAt, now)}, in about ${roughly(Math.max(0, -(secondsSince(startAt, now) ?? 0)))}`;
}
