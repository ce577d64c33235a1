// Dead letters: jobs that are given up, by reason; edit, dry run, replay, discard.

import { bdi, bulkAct, capital, count, destroys, empty, h, only, quote, toggleValue, valuesOf } from "../core/kit.js";
import { openList } from "./jobs.js";

const none = (filter, waysOut) => empty("inbox", filter ? ["No dead letter matches ", bdi(filter)] : "No dead letters",
	["Dead jobs stay here until they are replayed or discarded."], filter && waysOut("dead"));

export async function open({ params }) {
	const { list, bar, filter, ...page } = await openList(params, "dead", "state:dead", none);
	const all = (verb) => h("button", {
		key: verb, class: destroys(verb) ? "danger" : "", disabled: !list.rows.length,
		...only("operator", () => bulkAct(verb, list.whole, list.load)),
	}, `${capital(verb)} all ${list.facets ? list.number() : ""}…`);
	const chosen = valuesOf(filter, "reason");
	const chip = ([reason, number]) => {
		const value = quote(reason);
		const onclick = () => bar.set(toggleValue(filter, "reason", value));
		return h("button.slim", { key: reason, "aria-pressed": String(chosen.includes(value)), onclick },
			bdi(reason), " ", count(number, list.facets.counted));
	};
	const chips = () => {
		const reasons = Object.entries(list.facets?.reasons ?? {}).slice(0, 8);
		return reasons.length > 0 && h("div.row.wrap", { role: "group", label: "Reasons" }, reasons.map(chip));
	};
	return {
		...page,
		title: "Dead letters",
		bar: () => [all("replay"), h("span.wide-only", { key: "discard" }, all("discard"))],
		view: () => [bar.view(list.mistake), chips(), list.table(), list.bulkBar()],
	};
}
