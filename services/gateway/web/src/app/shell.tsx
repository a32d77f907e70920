import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Suspense, useEffect, useRef, useState } from "react";
import {
  Link,
  NavigationType,
  NavLink,
  Outlet,
  useLocation,
  useNavigationType,
} from "react-router";
import { FilterSelect } from "@/components/filter-select";
import { Icon } from "@/components/icon";
import { RangeSelect } from "@/components/range-select";
import { Toasts } from "@/components/toasts";
import { useIsAnswering } from "@/lib/live/answering";
import { meOptions } from "@/lib/api/get-me";
import { namespacesOptions } from "@/lib/api/get-namespaces";
import { whenIdle } from "@/lib/idle";
import { followEvents, useLiveStatus } from "@/lib/live/events";
import { followReadings } from "@/lib/live/readings";
import { latePart, loadPart } from "@/lib/parts";
import { paths } from "@/lib/paths";
import { isLoggedOut, takeLoginCode } from "@/lib/session";
import { duration, useNow } from "@/lib/time";
import { useNamespace, useSharedSearch } from "@/lib/url-state";
import { withLaterStyles } from "@/components/later-styles";
import { NAVIGATION } from "./navigation";
import classes from "./shell.module.css";

const GPU_PAGES = "/gpus/";
const NARROW = "gpusteward-narrow";
const loadPalette = () => withLaterStyles(import("./palette"));
const AccountMenu = latePart(async () => {
  await whenIdle();
  return { default: (await withLaterStyles(import("./account-menu"))).AccountMenu };
});
const LoginPage = latePart(async () => ({
  default: (await withLaterStyles(import("./login-page"))).LoginPage,
}));
const openPalette = async () => {
  (await loadPart(loadPalette, { waits: true })).openPalette();
};
const Palette = latePart(async () => {
  await whenIdle();
  return { default: (await loadPalette()).Palette };
});

export function Shell() {
  const me = useQuery(meOptions);
  if (isLoggedOut(me.error)) {
    return (
      <Suspense>
        <LoginPage />
      </Suspense>
    );
  }
  return <Frame isKnown={me.data !== undefined} />;
}

function Frame({ isKnown }: { isKnown: boolean }) {
  const client = useQueryClient();
  const search = useSharedSearch();
  const [isNarrow, setNarrow] = useState(() => localStorage.getItem(NARROW) === "true");

  useEffect(() => {
    if (!isKnown) return;
    takeLoginCode(); // of a link that was not needed
    const ends = [followEvents(client), followReadings()];
    return () => ends.forEach((end) => end());
  }, [client, isKnown]);

  const main = useNewPage();

  return (
    <div className={classes.shell} data-narrow={isNarrow || undefined}>
      <a href="#main" className={classes.skip}>
        <Trans>Skip to content</Trans>
      </a>
      <header className={classes.bar}>
        <Link to={{ pathname: "/", search }} className={classes.name} aria-label="GPU Steward">
          <img src="/icon.svg" width={20} height={20} alt="" />
          <span className={classes.wide}>GPU Steward</span>
        </Link>
        <NamespaceSelect />
        <TimeRange />
        <LiveIndicator />
        <Button
          variant="default"
          size="xs"
          px={8}
          aria-label={t`Search pages, tasks, experiments, GPUs and commands (Ctrl K)`}
          title={t`Search (Ctrl-K)`}
          leftSection={<Icon name="search" />}
          rightSection={<span className={`${classes.wide} ${classes.keys}`} />}
          onClick={() => void openPalette()}
        />
        <Suspense fallback={<span className={classes.menu} />}>
          <AccountMenu />
        </Suspense>
      </header>
      <nav className={classes.rail} aria-label={t`Pages`}>
        {NAVIGATION.map((entry) => (
          <NavLink
            key={entry.to}
            to={{ pathname: entry.to, search }}
            end={entry.to === "/"}
            className={classes.entry}
            title={entry.word}
          >
            <Icon name={entry.icon} />
            <span className={classes.word}>{entry.word}</span>
          </NavLink>
        ))}
        <button
          type="button"
          className={`${classes.entry} ${classes.collapse}`}
          onClick={() => {
            setNarrow(!isNarrow);
            localStorage.setItem(NARROW, String(!isNarrow));
          }}
        >
          <Icon name={isNarrow ? "expand" : "collapse"} />
          <span className={classes.word}>{isNarrow ? t`Expand` : t`Collapse`}</span>
        </button>
      </nav>
      <main id="main" ref={main} className={classes.main} tabIndex={-1}>
        <Outlet />
      </main>
      {isKnown && (
        <Suspense>
          <Palette />
        </Suspense>
      )}
      <Toasts />
    </div>
  );
}

/** Where charts follow it. */
function TimeRange() {
  const { pathname } = useLocation();
  const isFollowed = pathname === paths.monitoring() || pathname.startsWith(GPU_PAGES);
  return isFollowed && <RangeSelect className={classes.wide} />;
}

/** Another page begins at its top, and the keyboard goes on in it. */
function useNewPage() {
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const isBack = useNavigationType() === NavigationType.Pop;
  const shown = useRef(pathname);
  useEffect(() => {
    if (shown.current === pathname) return;
    shown.current = pathname;
    main.current?.focus({ preventScroll: true });
    if (!isBack) main.current?.scrollTo(0, 0);
  }, [isBack, pathname]);
  return main;
}

function NamespaceSelect() {
  const [namespace, setNamespace] = useNamespace();
  const namespaces = useQuery(namespacesOptions);
  const names = new Set(namespaces.data?.namespaces.map((use) => use.namespace));
  if (namespace) names.add(namespace);
  return (
    <FilterSelect
      w={150}
      aria-label={t`Namespace`}
      all={t`All namespaces`}
      searchable
      data={[...names].sort()}
      value={namespace}
      onChange={setNamespace}
      comboboxProps={{ withinPortal: true }}
    />
  );
}

function LiveIndicator() {
  const { connection, heardAt, retryAt } = useLiveStatus();
  const now = useNow();
  const age = heardAt === null ? null : Math.max(0, (now - heardAt) / 1000);
  const isAnswering = useIsAnswering(age);
  const isClosed = connection === "waiting" || (connection === "connecting" && heardAt !== null);
  const isLost = isClosed || !isAnswering;
  const retrySeconds = retryAt === null ? null : Math.max(0, Math.ceil((retryAt - now) / 1000));
  const text =
    !isAnswering && !isClosed
      ? t`no answer for ${duration(Math.round(age ?? 0))}`
      : isLost
        ? retrySeconds === null
          ? t`connection lost, retrying`
          : t`connection lost, retrying in ${retrySeconds} s`
        : age === null
          ? connection === "open"
            ? t`connected`
            : t`connecting`
          : age < 3
            ? t`live`
            : t`quiet for ${duration(Math.round(age))}`;
  return (
    <span
      className={classes.live}
      data-lost={isLost || undefined}
      data-waiting={(age === null && connection !== "open") || undefined}
      role="status"
    >
      <span className={classes.dot} aria-hidden />
      {text}
    </span>
  );
}
