export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Which of what lies on the page in this order an arrow key leads to from one of it; null: none that way, or no such key. */
export function arrowTarget(boxes: Box[], from: number, key: string): number | null {
  const last = boxes.length - 1;
  const start = boxes[from];
  if (!start) return null;
  switch (key) {
    case "ArrowLeft":
      return from > 0 ? from - 1 : null;
    case "ArrowRight":
      return from < last ? from + 1 : null;
    case "Home":
      return 0;
    case "End":
      return last;
    case "ArrowUp":
      return nearest(boxes, start, (box) => start.top - (box.top + box.height));
    case "ArrowDown":
      return nearest(boxes, start, (box) => box.top - (start.top + start.height));
    default:
      return null;
  }
}

/** Beyond the start by `away`: of the nearest row what lies most straight ahead. */
function nearest(boxes: Box[], start: Box, away: (box: Box) => number): number | null {
  const aside = (box: Box) => Math.abs(box.left + box.width / 2 - (start.left + start.width / 2));
  let target: number | null = null;
  let least = Infinity;
  boxes.forEach((box, index) => {
    // A pixel of overlap is a border, not the same row.
    if (away(box) < -1) return;
    const distance = away(box) * 2 + aside(box);
    if (distance < least) {
      least = distance;
      target = index;
    }
  });
  return target;
}
