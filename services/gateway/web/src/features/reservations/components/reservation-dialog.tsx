import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Checkbox, Group } from "@mantine/core";
import { useState } from "react";
import type { ReservationView } from "@schemas/messages";
import { CopyText } from "@/components/copy-text";
import { Dialog } from "@/components/dialog";
import { Failure } from "@/components/page";
import { holderOf } from "@/domain/holder";
import { heldUntil } from "@/domain/held-until";
import { useMe } from "@/lib/api/get-me";
import { duration, useNow } from "@/lib/time";
import { useChangeReservation, type ReservationChange } from "../api/change-reservation";
import { mayChange } from "../may-change";
import { devicesText, usageText } from "../usage-text";

interface ReservationDialogProps {
  of: ReservationView;
  onClose: () => void;
}

/** How its GPUs are used, and what can be done with it; a release is asked for twice. */
export function ReservationDialog({ of, onClose }: ReservationDialogProps) {
  const now = useNow();
  const me = useMe();
  const change = useChangeReservation();
  const [isReleasing, setReleasing] = useState(false);
  const [isStopped, setStopped] = useState(false);
  const name = holderOf(of.holder).name || of.reservation_id;
  const lease = of.request.lease_ttl_seconds;

  function send(kind: ReservationChange): void {
    change.mutate({ change: kind, of, isStopped }, { onSuccess: onClose });
  }

  return (
    <Dialog onClose={onClose} title={t`Reservation of ${name}`} size="lg">
      <p>
        {devicesText(of)}
        <span className="dim"> {heldUntil(of, now) ?? ""}</span>
      </p>
      {of.devices.length > 0 && <CopyText text={usageText(of)} label={t`how to use its GPUs`} />}
      <CopyText
        text={`gpusteward release ${of.reservation_id}`}
        label={t`the command that ends it`}
      />
      {change.error && <Failure error={change.error} />}
      {isReleasing ? (
        <>
          <p>
            <Trans>
              <strong>This gives the GPUs back, and cannot be undone.</strong> Where something may
              still run on them, they are given to nobody else until the node shows that nothing
              does.
            </Trans>
          </p>
          <Checkbox
            label={t`Nothing of it is running any more: free them at once`}
            checked={isStopped}
            onChange={(event) => setStopped(event.currentTarget.checked)}
            mb="sm"
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setReleasing(false)}>
              <Trans>Keep it</Trans>
            </Button>
            <Button color="red" loading={change.isPending} onClick={() => send("release")}>
              <Trans>
                Release {of.devices.length === 1 ? t`1 GPU` : t`${of.devices.length} GPUs`}
              </Trans>
            </Button>
          </Group>
        </>
      ) : (
        mayChange(me, of) && (
          <Group justify="flex-end" mt="sm">
            <Button variant="default" color="red" onClick={() => setReleasing(true)}>
              <Trans>Release…</Trans>
            </Button>
            <Button loading={change.isPending} onClick={() => send("renew")}>
              {lease ? t`Renew for ${duration(lease)}` : t`Renew`}
            </Button>
          </Group>
        )
      )}
    </Dialog>
  );
}
