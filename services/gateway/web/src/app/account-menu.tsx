import { t } from "@lingui/core/macro";
import { ActionIcon, Menu, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { Link } from "react-router";
import type { Me } from "@schemas/messages";
import { Icon } from "@/components/icon";
import { useSignOut } from "@/features/account/api/sign-out";
import { useMe } from "@/lib/api/get-me";
import { changeLanguage, language, LANGUAGES, type Language } from "@/lib/language";
import { paths } from "@/lib/paths";
import { zonedMoment } from "@/lib/time";
import { useSharedSearch } from "@/lib/url-state";
import classes from "./account-menu.module.css";

const SCHEMES: [MantineColorScheme, string][] = [
  ["light", t`Light`],
  ["dark", t`Dark`],
  ["auto", t`As the system`],
];

/** Who is logged in and until when, the look of the page, and the way out. */
export function AccountMenu() {
  const me = useMe();
  const search = useSharedSearch();
  const signOut = useSignOut();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Menu position="bottom-end" width={240} keepMounted={false}>
      <Menu.Target>
        <ActionIcon variant="default" size="md" aria-label={t`Account`} title={t`Account`}>
          <Icon name="person" />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {me && <Who me={me} />}
        <Menu.Item component={Link} to={{ pathname: paths.account(), search }}>
          {t`Account and tokens`}
        </Menu.Item>
        <Menu.Divider />
        <Menu.Label>{t`Colours`}</Menu.Label>
        {SCHEMES.map(([scheme, word]) => (
          <Menu.Item
            key={scheme}
            aria-current={colorScheme === scheme}
            onClick={() => setColorScheme(scheme)}
          >
            <Choice isChosen={colorScheme === scheme} word={word} />
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Label>{t`Language`}</Menu.Label>
        {Object.entries(LANGUAGES).map(([name, word]) => (
          <Menu.Item
            key={name}
            aria-current={language === name}
            lang={name}
            onClick={() => changeLanguage(name as Language)}
          >
            <Choice isChosen={language === name} word={word} />
          </Menu.Item>
        ))}
        {me?.csrf_token && (
          <>
            <Menu.Divider />
            <Menu.Item onClick={() => signOut.mutate()}>{t`Sign out`}</Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}

function Who({ me }: { me: Me }) {
  const namespaces = me.role === "admin" ? t`all namespaces` : me.namespaces.join(", ");
  return (
    <div className={classes.who}>
      <strong>{me.name || t`This host, without a token`}</strong>
      <div>
        {me.role}, {namespaces}
      </div>
      {me.ends_at && <div>{t`until ${zonedMoment(me.ends_at)}`}</div>}
    </div>
  );
}

function Choice({ isChosen, word }: { isChosen: boolean; word: string }) {
  return (
    <>
      <span className={classes.mark} aria-hidden>
        {isChosen ? "●" : ""}
      </span>
      {word}
    </>
  );
}
