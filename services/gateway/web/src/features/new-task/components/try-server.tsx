import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Textarea } from "@mantine/core";
import { useState } from "react";
import type { ChatTurn, ServerAddress } from "@schemas/messages";
import { Failure } from "@/components/page";
import { number, withUnit } from "@/lib/units";
import { useAskServer } from "../api/ask-server";
import classes from "./try-server.module.css";

interface TryServerProps {
  nodeId: string;
  server: ServerAddress;
  model: string;
}

interface Turn extends ChatTurn {
  /** How fast it came, of an answer. */
  pace?: string;
}

/** A conversation with a server, to see that it answers before it is measured; kept nowhere. */
export function TryServer({ nodeId, server, model }: TryServerProps) {
  const [turns, setTurns] = useState<Turn[]>([]);
  const [text, setText] = useState("");
  const question = useAskServer();
  const send = () => {
    const content = text.trim();
    if (!content || question.isPending) return;
    const conversation: Turn[] = [...turns, { role: "user", content }];
    const messages = conversation.map(({ role, content: words }) => ({ role, content: words }));
    question.mutate(
      { nodeId, body: { ...server, model, messages, max_tokens: 512 } },
      {
        onSuccess: (answer) => {
          setText("");
          const speed =
            answer.output_tokens === null
              ? ""
              : `, ${withUnit(number(answer.output_tokens / answer.seconds), "tokens/s")}`;
          setTurns([
            ...conversation,
            {
              role: "assistant",
              content: answer.text || t`(an empty answer)`,
              pace: `${withUnit(number(answer.seconds), "s")}${speed}`,
            },
          ]);
        },
      },
    );
  };
  return (
    <section aria-label={t`Try it`}>
      <h2>
        <Trans>Try it</Trans>
      </h2>
      <div className={classes.turns} role="log" aria-label={t`Conversation`} tabIndex={0}>
        {turns.length === 0 && (
          <p className="dim">
            <Trans>Ask the model something. Nothing of it is stored.</Trans>
          </p>
        )}
        {turns.map((turn, place) => (
          <div key={place}>
            <strong>{turn.role === "user" ? t`You` : model}</strong>{" "}
            {turn.pace && <span className="dim">{turn.pace}</span>}
            <div className={classes.turn}>{turn.content}</div>
          </div>
        ))}
      </div>
      {question.error && <Failure error={question.error} />}
      <form
        className={classes.ask}
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <Textarea
          size="xs"
          autosize
          minRows={2}
          maxRows={6}
          maxLength={8000}
          aria-label={t`Message`}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
        <Button size="xs" type="submit" loading={question.isPending} disabled={!text.trim()}>
          <Trans>Send</Trans>
        </Button>
        <Button
          size="xs"
          variant="default"
          disabled={turns.length === 0}
          onClick={() => setTurns([])}
        >
          <Trans>Start over</Trans>
        </Button>
      </form>
    </section>
  );
}
