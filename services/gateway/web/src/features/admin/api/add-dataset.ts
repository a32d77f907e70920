import { t } from "@lingui/core/macro";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import * as endpoints from "@schemas/endpoints";
import { upload } from "@/lib/api-client";
import { showToast } from "@/lib/toasts";
import { aboutTopic } from "@/lib/topics";

/** `share` of the file that is there, while it is being sent. */
export function useAddDataset(namespace: string) {
  const client = useQueryClient();
  const [share, setShare] = useState(0);
  const change = useMutation({
    mutationFn: (file: File) => {
      setShare(0);
      const query = { name: file.name, file_name: file.name, namespace: namespace || null };
      return upload(endpoints.addDataset, file, { query }, setShare);
    },
    onSuccess: ({ name, contents }) => {
      showToast({ text: t`Uploaded ${name}: ${contents.text}` });
      return client.invalidateQueries(aboutTopic("datasets"));
    },
  });
  return { ...change, share };
}
