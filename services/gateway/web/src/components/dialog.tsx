import { t } from "@lingui/core/macro";
import { Modal, type ModalProps } from "@mantine/core";
import { useEffect } from "react";

/** Open as long as it is there. The library gives the focus back only where a closed one stays. */
export function Dialog(props: Omit<ModalProps, "opened">) {
  useEffect(() => {
    const opener = document.activeElement;
    return () => {
      if (opener instanceof HTMLElement) opener.focus({ preventScroll: true });
    };
  }, []);
  return <Modal opened closeButtonProps={{ "aria-label": t`Close` }} {...props} />;
}
