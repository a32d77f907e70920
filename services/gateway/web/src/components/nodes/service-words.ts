import { t } from "@lingui/core/macro";

export const SERVICE_WORDS = { cordon: t`Cordon`, uncordon: t`Uncordon`, drain: t`Drain` };
