import { Table, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReservationView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { duration, fullMoment, secondsSince, useNow } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { queueOptions } from "./api/get-queue";
import { WhyWaiting } from "./components/why-waiting";
import { asked } from "./request-words";
import classes from "./queue-page.module.css";

export function QueuePage() {
  const [namespace] = useNamespace();
  const queue = useQuery(queueOptions(namespace));
  return (
    <Page title="Queue">
      <Loaded query={queue}>
        {(waiting) =>
          waiting.length === 0 ? (
            <Empty title="Nothing waits">
              Every request {namespace && `of ${namespace} `}has its GPUs.{" "}
              <code>gpusteward reserve --gpus 1</code> asks for some.
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
            <Table.Th className="number">Place</Table.Th>
            <Table.Th>Who</Table.Th>
            <Table.Th>Asks for</Table.Th>
            <Table.Th className="number">Waits for</Table.Th>
            <Table.Th>Why it waits</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {waiting.map((each) => {
            const isOpen = opened === each.reservation_id;
            return [
              <Table.Tr key={each.reservation_id}>
                <Table.Td className="number">{each.queue_position ?? UNKNOWN}</Table.Td>
                <Table.Td>
                  <UnstyledButton
                    fz="inherit"
                    c="var(--gs-accent)"
                    aria-expanded={isOpen}
                    onClick={() => setOpened(isOpen ? "" : each.reservation_id)}
                  >
                    {each.holder || each.reservation_id.slice(-12)}
                  </UnstyledButton>{" "}
                  <span className="dim">{each.namespace}</span>
                </Table.Td>
                <Table.Td>{asked(each.request)}</Table.Td>
                <Table.Td className="number" title={fullMoment(each.requested_at)}>
                  {duration(Math.round(secondsSince(each.requested_at, now) ?? 0))}
                </Table.Td>
                <Table.Td>{each.summary || each.reason}</Table.Td>
              </Table.Tr>,
              isOpen && (
                <Table.Tr key={`${each.reservation_id}-why`}>
                  <Table.Td className={classes.wide} />
                  <Table.Td colSpan={4}>
                    <WhyWaiting waiting={each} />
                  </Table.Td>
                </Table.Tr>
              ),
            ];
          })}
        </Table.Tbody>
    </Table>
  );
}
