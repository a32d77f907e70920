import { t } from "@lingui/core/macro";
import type { Me, ReservationView } from "@schemas/messages";

export const WHOSE = [
  { value: "mine", label: t`Mine` },
  { value: "team", label: t`My namespaces` },
  { value: "all", label: t`All` },
];

/** Those that this person asked for, those of their namespaces, or all; who ends first comes first. */
export function reservationsOf(
  reservations: ReservationView[],
  whose: string,
  me: Me | undefined,
): ReservationView[] {
  const isShown = {
    mine: ({ requester }: ReservationView) => !!me?.person && requester === me.person,
    team: ({ namespace }: ReservationView) => !!me?.namespaces.includes(namespace),
  }[whose];
  return reservations
    .filter((reservation) => isShown?.(reservation) ?? true)
    .toSorted((a, b) => (a.lease_expires_at ?? "").localeCompare(b.lease_expires_at ?? ""));
}
