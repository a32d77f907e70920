import { useMutation } from "@tanstack/react-query";
import * as endpoints from "@schemas/endpoints";
import { api } from "@/lib/api-client";

const LINES_A_TIME = 1000;
/** A log without an end is not read for ever. */
const MOST_READS = 1000;

/** All that is kept of the newest attempt's log. */
export function useWholeLog(experimentId: string, onRead: (text: string) => void) {
  return useMutation({
    mutationFn: async () => {
      const lines: string[] = [];
      let offset = 0;
      for (let read = 0; read < MOST_READS; read += 1) {
        const chunk = await api(endpoints.readLog, {
          place: { experiment_id: experimentId },
          query: { offset, lines: LINES_A_TIME },
        });
        lines.push(...chunk.lines);
        if (chunk.next_offset <= offset || chunk.lines.length === 0) break;
        offset = chunk.next_offset;
      }
      return `${lines.join("\n")}\n`;
    },
    onSuccess: onRead,
  });
}
