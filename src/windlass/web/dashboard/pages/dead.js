// Dead letters: jobs that are given up, by reason; edit, dry run, replay, discard.

import { h } from "../core/dom.js";
import { FilterBar, toggleValue, valuesOf } from "../core/filterbar.js";
import { count } from "../core/format.js";
import { bulkAct } from "../core/jobs.js";
import { quote } from "../core/palette.js";
import { go, href } from "../core/router.js";
import { empty, only } from "../core/ui.js";
import { JobList } from "./jobs.js";

export async function open({ params, draw, allows }) {
  const list = new JobList({ filter: params.get("filter") ?? "", fixed: "state:dead", draw, allows });
  const bar = new FilterBar({ filter: list.filter, fixed: list.fixed, draw, change: (filter) => go(href("dead", { filter })) });
  list.nothing = () => empty("inbox", list.filter ? ["No dead letter matches ", h("bdi", list.filter)] : "No dead letters", ["Dead jobs stay here until they are replayed or discarded."], list.filter ? list.waysOut("dead") : []);
  await list.load();
  const all = (verb, label, danger) => h("button.button", { key: verb, type: "button", class: danger ? "danger" : "", disabled: !list.rows.length, ...only(allows, "operator"), onclick: () => bulkAct(verb, list.whole, () => list.load()) }, label);
  const chips = () => {
    const reasons = Object.entries(list.facets?.reasons ?? {});
    const chosen = valuesOf(list.filter, "reason");
    return reasons.length > 0 && h("div.row.wrap", { role: "group", "aria-label": "Reasons" }, reasons.slice(0, 8).map(([reason, number]) => h("button.button.slim", { key: reason, type: "button", "aria-pressed": String(chosen.includes(quote(reason))), onclick: () => bar.set(toggleValue(list.filter, "reason", quote(reason))) }, h("bdi", reason), " ", count(number, list.facets.counted))));
  };
  return {
    title: "Dead letters",
    keys: list.keys(),
    close: () => list.close(),
    bar: () => [all("replay", "Replay all…"), h("span.wide-only", { key: "discard" }, all("discard", "Discard all…", true))],
    view: () => {
      bar.problem = list.problem?.kind === "FilterError" ? list.problem.message : null;
      return [bar.view(), chips(), list.table(), list.bulkBar()];
    },
  };
}
