import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Autocomplete, Button, Group, NumberInput, Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Dialog } from "@/components/dialog";
import { DialogActions } from "@/components/dialog-actions";
import { Failure } from "@/components/page";
import { gpusOptions } from "@/lib/api/get-gpus";
import { useMe } from "@/lib/api/get-me";
import { namespacesOptions } from "@/lib/api/get-namespaces";
import { useNamespace } from "@/lib/url-state";
import { useReserve } from "../api/reserve";

const MINUTE_SECONDS = 60;
const MEBIBYTES_PER_GIBIBYTE = 1024;
const LEASES = [
  { value: "10", label: t`10 minutes, renewed by hand or by \`gpusteward exec\`` },
  { value: "60", label: t`1 hour` },
  { value: "480", label: t`8 hours` },
  { value: "1440", label: t`24 hours` },
];

/** What most people ask for; the rest is the command line's. */
export function ReserveDialog({ onClose }: { onClose: () => void }) {
  const me = useMe();
  const [chosen] = useNamespace();
  const gpus = useQuery(gpusOptions).data ?? [];
  const names = useQuery(namespacesOptions).data?.namespaces.map((use) => use.namespace) ?? [];
  const allowed = me?.role === "admin" ? names : (me?.namespaces ?? []);
  const [count, setCount] = useState<number | string>(1);
  const [nodes, setNodes] = useState<number | string>(1);
  const [model, setModel] = useState("");
  const [memory, setMemory] = useState<number | string>("");
  const [lease, setLease] = useState("60");
  const [namespace, setNamespace] = useState(chosen || (allowed[0] ?? "default"));
  const [holder, setHolder] = useState("");
  const reserve = useReserve();

  function send(): void {
    reserve.mutate(
      {
        namespace,
        holder,
        request: {
          gpus: Number(count) || 1,
          nodes: Number(nodes) || 1,
          gpu_models: model ? [model] : [],
          min_memory_mb: memory === "" ? null : Number(memory) * MEBIBYTES_PER_GIBIBYTE,
          lease_ttl_seconds: Number(lease) * MINUTE_SECONDS,
        },
      },
      { onSuccess: onClose },
    );
  }

  return (
    <Dialog onClose={onClose} title={t`Reserve GPUs`}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
      >
        <Group grow align="start">
          <NumberInput
            label={t`GPUs of each node`}
            min={1}
            max={64}
            value={count}
            onChange={setCount}
            data-autofocus
          />
          <NumberInput label={t`Nodes`} min={1} max={512} value={nodes} onChange={setNodes} />
        </Group>
        <Autocomplete
          label={t`GPU model`}
          placeholder={t`any`}
          data={[...new Set(gpus.map((gpu) => gpu.name))].sort()}
          value={model}
          onChange={setModel}
        />
        <NumberInput
          label={t`Free memory of each GPU, GiB`}
          placeholder={t`any`}
          min={1}
          value={memory}
          onChange={setMemory}
        />
        <Select
          label={t`Lease`}
          description={t`They are free again when it is over and nobody renewed it`}
          data={LEASES}
          value={lease}
          allowDeselect={false}
          onChange={(value) => value && setLease(value)}
        />
        <Autocomplete
          label={t`Namespace`}
          data={allowed}
          value={namespace}
          onChange={setNamespace}
          required
        />
        <TextInput
          label={t`Name`}
          description={t`Others see it while they wait for these GPUs`}
          value={holder}
          onChange={(event) => setHolder(event.currentTarget.value)}
          mb="sm"
        />
        {reserve.error && <Failure error={reserve.error} />}
        <DialogActions onCancel={onClose}>
          <Button type="submit" loading={reserve.isPending}>
            <Trans>Reserve</Trans>
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}
