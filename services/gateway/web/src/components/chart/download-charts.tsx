import { t } from "@lingui/core/macro";
import { Button, Menu } from "@mantine/core";
import { downloadAll } from "./downloads";

/** Saves every chart that the page has drawn. */
export function DownloadCharts() {
  return (
    <Menu position="bottom-end" keepMounted={false}>
      <Menu.Target>
        <Button size="compact-xs" variant="default">
          {t`Download all charts`}
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => downloadAll("csv")}>{t`As CSV`}</Menu.Item>
        <Menu.Item onClick={() => downloadAll("png")}>{t`As PNG`}</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
