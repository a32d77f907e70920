import { t } from "@lingui/core/macro";
import { holderOf } from "@/domain/holder";
import { rangesOf } from "@/lib/ranges";

/** Who a reservation is of, by its id, as far as the page knows. */
export type HolderNames = ReadonlyMap<string, string>;

type Part = Record<string, unknown>;

const partOf = (value: unknown): Part =>
  typeof value === "object" && value !== null ? (value as Part) : {};
const partsOf = (value: unknown): Part[] => (Array.isArray(value) ? value.map(partOf) : []);
const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

function nameOf(id: unknown, names: HolderNames): string {
  const name = holderOf(names.get(textOf(id)) ?? "").name;
  return name || t`reservation …${textOf(id).slice(-8)}`;
}

/** "anna gets gpu-03: 0-3", "marek is refused: no GPU is an A100". */
export function outcomeSentences(outcomes: unknown, names: HolderNames): string[] {
  return partsOf(outcomes).map((outcome) => {
    const name = nameOf(outcome.reservation_id, names);
    const [reason] = partsOf(outcome.reasons).map(({ message }) => textOf(message));
    const because = reason ? `: ${reason}` : "";
    switch (outcome.type) {
      case "grant":
        return t`${name} gets ${placeText(partOf(outcome.placed)) || t`GPUs`}`;
      case "rejection":
        return t`${name} is refused${because}`;
      case "time_out":
        return t`${name} waited too long${because}`;
      case "preempt":
        return t`${name} gives way to ${nameOf(outcome.for_reservation_id, names)}`;
      default:
        return `${name}: ${textOf(outcome.type).replaceAll("_", " ")}`;
    }
  });
}

function placeText(placed: Part): string {
  return partsOf(placed.nodes)
    .map(({ node_id, devices }) => {
      const indexes = partsOf(devices).flatMap(({ device }) => {
        const { index } = partOf(device);
        return typeof index === "number" ? [index] : [];
      });
      return indexes.length > 0 ? `${textOf(node_id)}: ${rangesOf(indexes)}` : textOf(node_id);
    })
    .join("; ");
}

/** What led to it, as far as it is about somebody: requests, releases; the rest is counted. */
export function inputSentences(inputs: unknown, names: HolderNames): string[] {
  return partsOf(inputs).flatMap((input) => {
    switch (input.type) {
      case "request_queued": {
        const { reservation_id, request } = partOf(input.entry);
        const { gpus, nodes } = partOf(request);
        const count = Number(gpus ?? 0) * Number(nodes ?? 1);
        return [
          t`${nameOf(reservation_id, names)} asks for ${count === 1 ? t`1 GPU` : t`${count} GPUs`}`,
        ];
      }
      case "request_ended":
        return [t`${nameOf(input.reservation_id, names)} waits no longer`];
      case "lease_ended":
        return [t`${nameOf(input.reservation_id, names)} holds nothing any more`];
      case "node_gone":
        return [t`node ${textOf(input.node_id)} was removed`];
      default:
        return [];
    }
  });
}
