import { agoText, fullMoment, moment, useNow, zonedMoment } from "@/lib/time";
import { UNKNOWN } from "@/lib/units";

interface WhenProps {
  at: string | null | undefined;
  /** "3 min ago" in place of the moment itself, which is told on hover. */
  isRelative?: boolean;
  /** With the zone, where no other moment stands beside it. */
  isZoned?: boolean;
}

/** A moment in the viewer's zone: whole on hover. */
export function When({ at, isRelative, isZoned }: WhenProps) {
  const now = useNow();
  if (!at) return <>{UNKNOWN}</>;
  return (
    <time dateTime={at} title={fullMoment(at)} className="nowrap">
      {isRelative ? agoText(at, now) : isZoned ? zonedMoment(at, now) : moment(at, now)}
    </time>
  );
}
