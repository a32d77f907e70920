import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import type { StoredEvent } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { FilterSelect } from "@/components/filter-select";
import { eventKind, eventSentence, type EventNames } from "@/domain/event-words";
import { fullMoment, preciseMoment, useNow } from "@/lib/time";
import { useUrlState } from "@/lib/url-state";

interface EventListProps {
  /** Newest first. */
  events: StoredEvent[];
  names: EventNames;
  empty: string;
  older?: { isLoading: boolean; load: () => void };
  /** Further filters, beside that of the kind. */
  filters?: React.ReactNode;
}

/** What happened, as sentences, with a filter by kind. */
export function EventList({ events, names, empty, older, filters }: EventListProps) {
  const [kind, setKind] = useUrlState("event", "");
  const now = useNow();
  const kinds = [...new Set(events.map(({ type }) => type))].sort();
  const shown = kind ? events.filter(({ type }) => type === kind) : events;
  const columns: Column<StoredEvent>[] = [
    {
      name: t`When`,
      cell: ({ occurred_at: at, cursor }) => (
        <time dateTime={at} title={fullMoment(at)} className="nowrap" data-cursor={cursor}>
          {preciseMoment(at, now)}
        </time>
      ),
    },
    {
      name: t`Event`,
      isLong: true,
      cell: (event) => <span title={event.type}>{eventSentence(event, names)}</span>,
    },
  ];
  return (
    <>
      <div className="filters">
        <FilterSelect
          w={220}
          aria-label={t`Kind of event`}
          all={t`All kinds`}
          data={kinds.map((type) => ({ value: type, label: eventKind(type) }))}
          value={kind}
          onChange={setKind}
        />
        {filters}
      </div>
      <DataTable
        label={t`Events`}
        empty={empty}
        columns={columns}
        rows={shown}
        rowKey={(event) => String(event.cursor)}
      />
      {older && (
        <Button size="xs" variant="default" mt="sm" loading={older.isLoading} onClick={older.load}>
          <Trans>Load older events</Trans>
        </Button>
      )}
    </>
  );
}
