import { Table, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReservationView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { duration, fullMoment, secondsSince, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { queueOptions } from "./api/get-queue";
import { WhyWaiting } from "./components/why-waiting";
import { requestText } from "./request-words";
import classes from "./queue-page.module.css";

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
  return (
    <Table verticalSpacing={4} aria-label="Waiting requests" className={classes.queue}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th className="number">Position</Table.Th>
          <Table.Th>Holder</Table.Th>
          <Table.Th>Request</Table.Th>
          <Table.Th className="number">Waiting for</Table.Th>
          <Table.Th>Reason</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {waiting.map((reservation) => {
          const isOpen = opened === reservation.reservation_id;
          return [
            <Table.Tr key={reservation.reservation_id}>
              <Table.Td className="number">{reservation.queue_position ?? UNKNOWN}</Table.Td>
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
              <Table.Td>{reservation.summary || reservation.reason}</Table.Td>
            </Table.Tr>,
            isOpen && (
              <Table.Tr key={`${reservation.reservation_id}-why`}>
                <Table.Td className={classes.wide} />
                <Table.Td colSpan={4}>
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
