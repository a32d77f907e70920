import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, FileButton, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { DatasetView } from "@schemas/messages";
import { DataTable, type Column } from "@/components/data-table";
import { Meter } from "@/components/meter";
import { Empty, Failure, Loaded } from "@/components/page";
import { RemoveButton } from "@/components/remove-button";
import { RemoveDialog } from "@/components/remove-dialog";
import { ApiError } from "@/lib/api-client";
import { datasetsOptions } from "@/lib/api/get-datasets";
import { useMayChange } from "@/lib/api/get-me";
import { fullMoment, moment, useNow } from "@/lib/time";
import { gibibytes, number, percent, UNKNOWN, withUnit } from "@/lib/units";
import { useNamespace } from "@/lib/url-state";
import { useAddDataset } from "../api/add-dataset";
import { useRemoveDataset } from "../api/remove-dataset";

const MEBIBYTE = 2 ** 20;

/** Prompts and traces that are uploaded once, for tasks on any node. */
export function Datasets() {
  const [namespace] = useNamespace();
  const datasets = useQuery(datasetsOptions(namespace));
  const now = useNow();
  const [removed, setRemoved] = useState<DatasetView | null>(null);
  const mayChange = useMayChange();
  const columns: Column<DatasetView>[] = [
    { name: t`Dataset`, sortBy: (dataset) => dataset.name, cell: (dataset) => dataset.name },
    {
      name: t`Namespace`,
      sortBy: (dataset) => dataset.namespace,
      cell: (dataset) => dataset.namespace,
    },
    { name: t`Holds`, isLong: true, cell: (dataset) => dataset.contents.text },
    {
      name: t`Size`,
      unit: "MiB",
      isNumber: true,
      sortBy: (dataset) => dataset.size_bytes,
      cell: (dataset) => number(dataset.size_bytes / MEBIBYTE),
    },
    {
      name: t`Added at`,
      sortBy: (dataset) => dataset.added_at,
      cell: (dataset) => (
        <time dateTime={dataset.added_at} title={fullMoment(dataset.added_at)}>
          {moment(dataset.added_at, now)}
        </time>
      ),
    },
    { name: t`By`, cell: (dataset) => dataset.added_by || UNKNOWN },
    ...(mayChange
      ? [
          {
            name: "",
            cell: (dataset: DatasetView) => (
              <RemoveButton of={dataset.name} onClick={() => setRemoved(dataset)} />
            ),
          },
        ]
      : []),
  ];
  return (
    <>
      {mayChange && <Upload namespace={namespace} />}
      <Loaded query={datasets}>
        {(all) =>
          all.datasets.length === 0 ? (
            <Empty title={t`No datasets yet`}>
              <Trans>
                A task file names one by <code>benchmark.dataset.upload</code>.
              </Trans>
            </Empty>
          ) : (
            <DataTable
              label={t`Datasets`}
              columns={columns}
              rows={all.datasets}
              rowKey={(dataset) => `${dataset.namespace}/${dataset.name}`}
            />
          )
        }
      </Loaded>
      {removed && <RemoveDataset dataset={removed} onClose={() => setRemoved(null)} />}
    </>
  );
}

function Upload({ namespace }: { namespace: string }) {
  const add = useAddDataset(namespace);
  const room = useQuery(datasetsOptions(namespace)).data?.room;
  const [tooLarge, setTooLarge] = useState<string | null>(null);
  const send = (file: File | null) => {
    if (!file) return;
    // A browser shows no answer that comes before it has sent all.
    const isTooLarge = room !== undefined && file.size > room.max_bytes;
    setTooLarge(isTooLarge ? file.name : null);
    if (!isTooLarge) add.mutate(file);
  };
  const most = gibibytes((room?.max_bytes ?? 0) / MEBIBYTE);
  return (
    <>
      <Group mb="sm">
        <FileButton onChange={send}>
          {(props) => (
            <Button size="xs" variant="default" loading={add.isPending} {...props}>
              <Trans>Upload a dataset or trace</Trans>
            </Button>
          )}
        </FileButton>
        {room && (
          <span className="dim">
            <Trans>
              {withUnit(number(room.used_bytes / MEBIBYTE), "MiB")} of{" "}
              {gibibytes(room.quota_bytes / MEBIBYTE)} used
            </Trans>
          </span>
        )}
      </Group>
      {add.isPending && (
        <Meter
          label={
            add.share < 1 ? t`${percent(add.share * 100)} sent` : t`sent, its contents are read`
          }
          parts={[{ share: add.share }]}
        />
      )}
      {tooLarge !== null && (
        <p role="alert">
          <Trans>
            {tooLarge} is larger than {most}, which is the most here.
          </Trans>
        </p>
      )}
      {add.error && <Failure error={add.error} />}
    </>
  );
}

function RemoveDataset({ dataset, onClose }: { dataset: DatasetView; onClose: () => void }) {
  const remove = useRemoveDataset();
  // Unfinished tasks use it: the answer names them, and the next press says that they may fail.
  const isUsed = remove.error instanceof ApiError && remove.error.problem.code === "conflict";
  return (
    <RemoveDialog
      title={t`Remove ${dataset.name}?`}
      word={isUsed ? t`Remove, and let these tasks fail` : undefined}
      removal={remove}
      onRemove={() => remove.mutate({ dataset, force: isUsed }, { onSuccess: onClose })}
      onClose={onClose}
    >
      <Trans>New tasks cannot name it any more.</Trans>
    </RemoveDialog>
  );
}
