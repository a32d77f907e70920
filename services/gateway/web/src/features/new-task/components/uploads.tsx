import { t } from "@lingui/core/macro";
import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { datasetsOptions } from "@/lib/api/get-datasets";
import { useNamespace } from "@/lib/url-state";
import { textAt, uploadOf, withUpload } from "../draft";
import { errorOf, type FormProps } from "./fields";

/** Of which uploaded file the load is made, in place of made prompts. */
export function Uploads(props: FormProps) {
  const [namespace] = useNamespace();
  const datasets = useQuery(datasetsOptions(namespace)).data?.datasets ?? [];
  const chosen = uploadOf(props.draft);
  const kinds = Object.fromEntries(datasets.map(({ name, contents }) => [name, contents.kind]));
  const names = Object.keys(kinds);
  const options = [
    { value: "", label: t`made for each scenario` },
    ...datasets.map(({ name, contents }) => ({ value: name, label: `${name}: ${contents.text}` })),
    ...(chosen !== "" && !names.includes(chosen) ? [{ value: chosen, label: chosen }] : []),
  ];
  if (options.length === 1 || textAt(props.draft, "benchmark.dataset.path")) return null;
  return (
    <NativeSelect
      size="xs"
      label={t`Prompts`}
      description={t`Datasets and traces are uploaded at Admin, Datasets`}
      data={options}
      value={chosen}
      error={
        errorOf({ ...props, path: "benchmark.dataset" }) ??
        errorOf({ ...props, path: "benchmark.trace" })
      }
      onChange={({ currentTarget: { value } }) =>
        props.onChange(withUpload(props.draft, value, kinds[value] ?? "dataset"))
      }
    />
  );
}
