import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { csvOf, download, type Cell } from "@/lib/csv";

interface ReportProps {
  title: string;
  csv: { name: string; columns: string[]; rows: Cell[][] };
  empty: string;
  children: ReactNode;
}

/** A table with its title and its rows as CSV; without rows the sentence for it. */
export function Report({ title, csv, empty, children }: ReportProps) {
  return (
    <section>
      <h2>
        {title}{" "}
        {csv.rows.length > 0 && (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={t`${title}: save as CSV`}
            onClick={() => download(`${csv.name}.csv`, csvOf(csv.columns, csv.rows), "text/csv")}
          >
            <Trans>CSV</Trans>
          </Button>
        )}
      </h2>
      {csv.rows.length > 0 ? children : <p className="dim">{empty}</p>}
    </section>
  );
}
