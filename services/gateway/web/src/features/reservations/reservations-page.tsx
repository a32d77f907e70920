import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { ReservationView } from "@schemas/messages";
import { Empty, Loaded, Page } from "@/components/page";
import { useMayChange, useMe } from "@/lib/api/get-me";
import { holdingOptions } from "@/lib/api/get-holding";
import { useNamespace, useUrlState } from "@/lib/url-state";
import { ReservationDialog } from "./components/reservation-dialog";
import { ReservationsTable } from "./components/reservations-table";
import { ReserveDialog } from "./components/reserve-dialog";
import { reservationsOf, WHOSE } from "./whose";

/** Who holds which GPUs until when, and what can be done about it. */
export function ReservationsPage() {
  const me = useMe();
  const [namespace] = useNamespace();
  const [chosen, setWhose] = useUrlState("whose", "all");
  const whose = WHOSE.find(({ value }) => value === chosen)?.value ?? "all";
  const [reserving, setReserving] = useUrlState("reserve", "");
  const [openedId, setOpenedId] = useUrlState("open", "");
  const holding = useQuery(holdingOptions);
  const mayReserve = useMayChange();
  return (
    <Page
      title={t`Reservations`}
      actions={
        mayReserve && (
          <Button size="compact-sm" onClick={() => setReserving("yes")}>
            <Trans>Reserve GPUs</Trans>
          </Button>
        )
      }
    >
      <SegmentedControl
        size="xs"
        aria-label={t`Whose`}
        data={WHOSE}
        value={whose}
        onChange={setWhose}
        mb="sm"
      />
      <Loaded query={holding}>
        {(all) => {
          const reservations = reservationsOf([...all.values()], whose, me).filter(
            (reservation) => !namespace || reservation.namespace === namespace,
          );
          return reservations.length === 0 ? (
            <Empty title={t`No reservations`}>
              {whose === "all" && !namespace
                ? t`No GPUs are held.`
                : t`None of these holds GPUs: choose All above, or all namespaces.`}
            </Empty>
          ) : (
            <ReservationsTable reservations={reservations} onOpen={setOpenedId} />
          );
        }}
      </Loaded>
      {openedId && holding.data && (
        <OpenedReservation
          key={openedId}
          found={holding.data.get(openedId)}
          onClose={() => setOpenedId("")}
        />
      )}
      {mayReserve && reserving && <ReserveDialog onClose={() => setReserving("")} />}
    </Page>
  );
}

interface OpenedReservationProps {
  found: ReservationView | undefined;
  onClose: () => void;
}

/** As it was last, where it has ended meanwhile: whoever ends it is told what came of that. */
function OpenedReservation({ found, onClose }: OpenedReservationProps) {
  const [latest, setLatest] = useState(found);
  if (found && found !== latest) setLatest(found);
  return latest && <ReservationDialog of={latest} onClose={onClose} />;
}
