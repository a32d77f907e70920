import { Button, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Empty, Loaded, Page } from "@/components/page";
import { useMayChange, useMe } from "@/lib/api/get-me";
import { holdingOptions } from "@/lib/api/get-holding";
import { useNamespace, useUrlState } from "@/lib/url-state";
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
  const holding = useQuery(holdingOptions);
  const mayReserve = useMayChange();
  return (
    <Page
      title="Reservations"
      actions={
        mayReserve && (
          <Button size="compact-sm" onClick={() => setReserving("yes")}>
            Reserve GPUs
          </Button>
        )
      }
    >
      <SegmentedControl
        size="xs"
        aria-label="Whose"
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
            <Empty title="No reservations">
              {whose === "all" && !namespace
                ? "No GPUs are held."
                : "None of these holds GPUs: choose All above, or all namespaces."}
            </Empty>
          ) : (
            <ReservationsTable reservations={reservations} />
          );
        }}
      </Loaded>
      {mayReserve && reserving && <ReserveDialog onClose={() => setReserving("")} />}
    </Page>
  );
}
