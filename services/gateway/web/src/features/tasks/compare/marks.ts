import type { ExperimentDetail } from "@schemas/messages";

/** One of the page's colours and one of the shapes, which no other experiment of a chart has together. */
export interface Mark {
  /** From 1, as in `--gs-series-1`. */
  series: number;
  shape: number;
}

const COLORS = 8;

/** Paths of 10 by 10, told apart at 8 pixels. */
export const SHAPES = [
  "M5 0A5 5 0 1 0 5 10A5 5 0 1 0 5 0Z",
  "M1 1H9V9H1Z",
  "M5 0L10 9H0Z",
  "M5 0L10 5L5 10L0 5Z",
  "M0 1H10L5 10Z",
  "M3.4 0H6.6V3.4H10V6.6H6.6V10H3.4V6.6H0V3.4H3.4Z",
  "M2 0L5 3L8 0L10 2L7 5L10 8L8 10L5 7L2 10L0 8L3 5L0 2Z",
  "M5 0L6.4 3.4L10 3.7L7.2 6.1L8.1 9.7L5 7.7L1.9 9.7L2.8 6.1L0 3.7L3.6 3.4Z",
  "M2.5 0.7H7.5L10 5L7.5 9.3H2.5L0 5Z",
];

export const DASHES = ["solid", "dashed", "dotted"] as const;

/**
 * By their ordinals, so that an experiment keeps its mark as others come; where two would have the same one, the later
 * takes the next that is free. Beyond 72 experiments marks repeat.
 */
export function marksOf(experiments: ExperimentDetail[]): Map<string, Mark> {
  const count = COLORS * SHAPES.length;
  const taken = new Set<number>();
  return new Map(
    experiments
      .toSorted((a, b) => a.ordinal - b.ordinal)
      .map(({ experiment_id, ordinal }) => {
        let place = (ordinal - 1) % count;
        while (taken.has(place) && taken.size < count) place = (place + 1) % count;
        taken.add(place);
        return [experiment_id, { series: (place % COLORS) + 1, shape: Math.floor(place / COLORS) }];
      }),
  );
}
