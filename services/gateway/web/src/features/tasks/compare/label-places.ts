interface Size {
  width: number;
  height: number;
}

interface Place {
  x: number;
  y: number;
}

const GAP_PX = 6;
const MOST_LINES = 2;

/** Puts one label after the other beside its point, where none before it lies; null where there is no room near it. */
export function labelPlaces(): (point: Place, size: Size) => Place | null {
  const placed: (Place & Size)[] = [];
  return (point, { width, height }) => {
    const lines = Array.from({ length: MOST_LINES }, (_, line) => line + 1).flatMap((line) => [
      -line,
      line,
    ]);
    for (const line of [0, ...lines]) {
      for (const x of [point.x + GAP_PX, point.x - GAP_PX - width]) {
        const label = { x, y: point.y - height / 2 + line * height, width, height };
        if (x < 0 || placed.some((other) => overlaps(label, other))) continue;
        placed.push(label);
        return { x: label.x, y: label.y };
      }
    }
    return null;
  };
}

function overlaps(one: Place & Size, other: Place & Size): boolean {
  return (
    one.x < other.x + other.width &&
    other.x < one.x + one.width &&
    one.y < other.y + other.height &&
    other.y < one.y + one.height
  );
}
