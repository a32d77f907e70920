import { useQuery } from "@tanstack/react-query";
import { TokenTable } from "@/components/tokens/token-table";
import { tokensOptions } from "../api/get-tokens";

export function Tokens() {
  const tokens = useQuery(tokensOptions);
  return <TokenTable tokens={tokens} />;
}
