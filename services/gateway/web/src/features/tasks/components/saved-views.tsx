import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Button, Popover, TextInput } from "@mantine/core";
import { useRef, useState } from "react";
import { Link, useLocation } from "react-router";
import { copyToClipboard } from "@/lib/clipboard";
import { removeView, saveView, useSavedViews, type SavedView } from "@/lib/saved-views";
import { showToast } from "@/lib/toasts";
import classes from "./experiments-table.module.css";

/** Filters, order and columns of a page by name, in this browser; a link shows them to anybody. */
export function SavedViews({ page }: { page: string }) {
  const { pathname, search } = useLocation();
  const views = useSavedViews(page);
  const [name, setName] = useState("");
  const [isOpen, setOpen] = useState(false);
  const address = useRef<HTMLElement>(null);
  const link = `${location.origin}${pathname}${search}`;
  const save = () => {
    const isSaved = saveView(page, { name: name.trim(), search });
    showToast({
      text: isSaved
        ? t`View ${name.trim()} is saved in this browser`
        : t`This browser does not store views: copy the link instead`,
    });
    if (!isSaved) return;
    setName("");
    setOpen(false);
  };
  const remove = (view: SavedView) => {
    removeView(page, view.name);
    showToast({ text: t`View ${view.name} is removed`, undo: () => saveView(page, view) });
  };
  return (
    <Popover position="bottom-end" trapFocus returnFocus opened={isOpen} onChange={setOpen}>
      <Popover.Target>
        <Button size="xs" variant="default" onClick={() => setOpen(!isOpen)}>
          {views.length > 0 ? t`Views (${views.length})` : t`Views`}
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label={t`Views`}>
        <div className={classes.columns}>
          {views.map((view) => (
            <div key={view.name} className={classes.view}>
              <Link to={{ pathname, search: view.search }} onClick={() => setOpen(false)}>
                {view.name}
              </Link>
              <Button
                size="compact-xs"
                variant="default"
                aria-label={t`remove view ${view.name}`}
                onClick={() => remove(view)}
              >
                ×
              </Button>
            </div>
          ))}
          <form
            className={classes.view}
            onSubmit={(event) => {
              event.preventDefault();
              if (name.trim()) save();
            }}
          >
            <TextInput
              size="xs"
              aria-label={t`Name of the view`}
              placeholder={t`name of this view`}
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
            />
            <Button size="xs" type="submit" disabled={!name.trim()}>
              <Trans>Save view</Trans>
            </Button>
          </form>
          <Button
            size="xs"
            variant="default"
            onClick={() =>
              void copyToClipboard(link, address.current).then((isCopied) =>
                showToast({
                  text: isCopied ? t`The link is copied` : t`Copy the address of this page`,
                }),
              )
            }
          >
            <Trans>Copy link to this view</Trans>
          </Button>
          <code ref={address} className="visually-hidden">
            {link}
          </code>
        </div>
      </Popover.Dropdown>
    </Popover>
  );
}
