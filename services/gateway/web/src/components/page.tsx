import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Loader } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { useEffect, type ReactNode } from "react";
import { ApiError } from "@/lib/api-client";
import classes from "./page.module.css";

interface PageProps {
  title: string;
  /** Beside the title: badges, marks. */
  aside?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

export function Page({ title, aside, actions, children }: PageProps) {
  useEffect(() => {
    document.title = t`${title} · GPU Steward`;
  }, [title]);
  return (
    <>
      <header className={classes.header}>
        <h1>{title}</h1>
        {aside}
        <div className={classes.actions}>{actions}</div>
      </header>
      {children}
    </>
  );
}

/** What a query gave, or why there is nothing yet; what was known before stays visible. */
export function Loaded<T>({
  query,
  children,
}: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) {
    return (
      <>
        {query.error && <Failure error={query.error} retry={() => void query.refetch()} />}
        {children(query.data)}
      </>
    );
  }
  if (query.error) return <Failure error={query.error} retry={() => void query.refetch()} />;
  return <Loader size="sm" role="status" aria-label={t`loading`} />;
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  const code = error instanceof ApiError ? error.problem.title : t`Error`;
  return (
    <div role="alert" className={classes.failure}>
      <strong>{code}</strong> {error.message}
      {retry && (
        <Button size="compact-xs" variant="default" onClick={retry}>
          <Trans>Try again</Trans>
        </Button>
      )}
    </div>
  );
}

/** Nothing there: says what to do. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className={classes.empty}>
      <strong>{title}</strong>
      <div className="dim">{children}</div>
    </div>
  );
}
