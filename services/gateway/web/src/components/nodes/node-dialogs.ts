export { AdmitDialog } from "./admit-dialog";
export { InviteDialog } from "./invite-dialog";
export { ServiceDialog } from "./service-dialog";
