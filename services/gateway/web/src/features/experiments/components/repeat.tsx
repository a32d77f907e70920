import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ExperimentCommands, LevelCommands } from "@schemas/messages";
import { CodeBlock } from "@/components/code-block";
import { Loaded } from "@/components/page";
import { useUrlState } from "@/lib/url-state";
import { commandsOptions } from "../api/get-commands";

/** Commands that repeat the experiment on another machine, with each load generator. */
export function Repeat({ experimentId }: { experimentId: string }) {
  const commands = useQuery(commandsOptions(experimentId));
  return <Loaded query={commands}>{(answer) => <RepeatContent commands={answer} />}</Loaded>;
}

function RepeatContent({ commands }: { commands: ExperimentCommands }) {
  const { command_line: start, notes } = commands.deployments;
  return (
    <>
      <section>
        <h2>
          <Trans>Start the engine</Trans>
        </h2>
        {start && <CodeBlock text={start} label={t`the command that starts the engine`} />}
        {notes.length > 0 && (
          <ul className="dim">
            {notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        )}
      </section>
      {commands.levels.length > 0 && <Loads levels={commands.levels} />}
    </>
  );
}

function Loads({ levels }: { levels: LevelCommands[] }) {
  const [chosen, setChosen] = useUrlState("load", "0");
  const level = levels[Number(chosen)] ?? levels[0];
  return (
    <section>
      <h2>
        <Trans>Send the same load</Trans>
      </h2>
      <Select
        label={t`Level`}
        maw={320}
        allowDeselect={false}
        data={levels.map((entry, index) => ({ value: String(index), label: loadText(entry) }))}
        value={chosen}
        onChange={(value) => setChosen(value ?? "0")}
      />
      {level?.commands.map(({ tool, command, reason }) => (
        <div key={tool}>
          <h3>{tool === "builtin" ? t`GPU Steward's own generator` : tool}</h3>
          {command ? (
            <CodeBlock text={command} label={t`the command of ${tool}`} />
          ) : (
            <p className="dim">
              <Trans>It cannot send this load: {reason}.</Trans>
            </p>
          )}
        </div>
      ))}
    </section>
  );
}

function loadText({ scenario, arrivals, num_concurrency: concurrency }: LevelCommands): string {
  return arrivals ? `${scenario}, ${arrivals}` : t`${scenario}, ${concurrency} at once`;
}
