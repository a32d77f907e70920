const SHAPES = {
  fleet: "M3 3h5v5H3zM12 3h5v5h-5zM3 12h5v5H3zM12 12h5v5h-5z",
  tasks: "M3 5h2M8 5h9M3 10h2M8 10h9M3 15h2M8 15h9",
  reservations: "M4 4h12v12H4zM4 8h12M8 2v4M12 2v4M7 12l2 2 4-4",
  queue: "M4 4h12M6 8h8M4 12h12M8 16h4",
  monitoring: "M2 11h4l2-6 4 10 2-4h4",
  reports: "M4 17V9M10 17V3M16 17v-6",
  admin: "M10 2l7 3v5c0 4-3 7-7 8-4-1-7-4-7-8V5z",
  person: "M10 3a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7M3 17c0-3 3-5 7-5s7 2 7 5",
  search: "M9 3a6 6 0 1 1 0 12A6 6 0 0 1 9 3M13.5 13.5 17 17",
  sun: "M10 6a4 4 0 1 1 0 8 4 4 0 0 1 0-8M10 1v2M10 17v2M1 10h2M17 10h2",
  collapse: "M12 5l-5 5 5 5",
  expand: "M8 5l5 5-5 5",
  more: "M4 10h.01M10 10h.01M16 10h.01",
} as const;

export type IconName = keyof typeof SHAPES;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      width={18}
      height={18}
      viewBox="0 0 20 20"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.6}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden
      style={{ flex: "none" }}
    >
      <path d={SHAPES[name]} />
    </svg>
  );
}
