import { Link } from "react-router";
import { holderOf } from "@/domain/holder";
import { paths } from "@/lib/paths";
import { UNKNOWN } from "@/lib/units";
import { useSharedSearch } from "@/lib/url-state";

/** By name; an experiment is a way to its page. */
export function Holder({ of }: { of: string | null | undefined }) {
  const search = useSharedSearch();
  const { name, experimentId } = holderOf(of ?? "");
  if (experimentId === null) return <>{name || UNKNOWN}</>;
  return <Link to={{ pathname: paths.experiment(experimentId), search }}>{name}</Link>;
}
