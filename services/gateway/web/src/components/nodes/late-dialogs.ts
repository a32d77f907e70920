import { withLaterStyles } from "@/components/later-styles";
import { latePart, loadPart } from "@/lib/parts";

const load = () => withLaterStyles(import("./node-dialogs"));
const LATER_MS = 2_000;

// The first page is drawn without them; soon they are there, also where the connection is gone by then.
setTimeout(() => void loadPart(load, { waits: true }).catch(() => undefined), LATER_MS);

export const AdmitDialog = latePart(async () => ({ default: (await load()).AdmitDialog }));
export const InviteDialog = latePart(async () => ({ default: (await load()).InviteDialog }));
export const ServiceDialog = latePart(async () => ({ default: (await load()).ServiceDialog }));
