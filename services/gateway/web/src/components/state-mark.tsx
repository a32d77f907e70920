import classes from "./state-mark.module.css";

export type StateKind = "ok" | "busy" | "attention" | "bad" | "unknown";

/** A state by shape, colour and word, so that none of them is needed alone. */
export function StateMark({
  kind,
  word,
  title,
}: {
  kind: StateKind;
  word: string;
  title?: string;
}) {
  return (
    <span className={classes.mark} data-kind={kind} title={title}>
      <svg width={10} height={10} viewBox="0 0 10 10" aria-hidden>
        {SHAPES[kind]}
      </svg>
      <span>{word}</span>
    </span>
  );
}

const SHAPES: Record<StateKind, React.ReactNode> = {
  ok: <circle cx={5} cy={5} r={4} fill="none" stroke="currentColor" strokeWidth={2} />,
  busy: <circle cx={5} cy={5} r={4.5} fill="currentColor" />,
  attention: <path d="M5 0.5 9.7 9.5H.3z" fill="currentColor" />,
  bad: <rect x={0.5} y={0.5} width={9} height={9} fill="currentColor" />,
  unknown: <path d="M1 5h8" stroke="currentColor" strokeWidth={2.4} />,
};
