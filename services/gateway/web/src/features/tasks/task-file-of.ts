import type { TaskFile } from "@schemas/messages";

/** What tells one engine from the others in a task over several. */
const ENGINE_NAMES = ["base_runtime", "model", "runtime_image_tag"];

/** The task that measures one configuration of another again, under its load and on its engine. */
export function taskFileOf(
  task: TaskFile,
  ordinal: number,
  parameters: Record<string, unknown>,
): Record<string, unknown> {
  const { objective, constraints, timeout_per_iteration } = task.optimization ?? {};
  const engineNames = task.engines?.length ? ENGINE_NAMES : [];
  const flags: Record<string, unknown> = {};
  const engine: Record<string, unknown> = {};
  const blocks: Record<string, Record<string, unknown>> = {};
  for (const [name, value] of Object.entries(parameters)) {
    const [block = "", field] = name.split(".");
    if (field) {
      const kept = block === "gpus" ? task.gpus : {};
      blocks[block] = { ...kept, ...blocks[block], [field]: block === "env" ? [value] : value };
    } else if (engineNames.includes(name)) engine[name] = value;
    else flags[name] = [value];
  }
  const fields = Object.entries({
    ...task,
    ...engine,
    ...blocks,
    engines: null,
    task_name: `${task.task_name}-${ordinal}`,
    configurations: null,
    parameters: flags,
    optimization: Object.fromEntries(
      Object.entries({ objective, constraints, timeout_per_iteration }).filter(([, value]) =>
        Boolean(value),
      ),
    ),
  });
  return Object.fromEntries(fields.filter(([, value]) => value !== null && value !== ""));
}
