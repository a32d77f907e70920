import type { Me, ReservationView } from "@schemas/messages";

/** As the gateway decides: an admin all, others what is of their namespaces, a viewer nothing. */
export function mayChange(me: Me | undefined, { namespace }: ReservationView): boolean {
  if (me === undefined || me.role === "viewer") return false;
  return me.role === "admin" || me.namespaces.includes(namespace);
}
