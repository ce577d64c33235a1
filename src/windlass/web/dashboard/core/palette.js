// Ctrl-K: go to a page, a queue, a type, a schedule or a pasted id, or do something that the role allows.

import { allows, nextTheme, shared, visible } from "../app.js"; // which imports this: nothing of it is used before a key is pressed
import { get } from "./api.js";
import { h } from "./dom.js";
import { live, setPaused } from "./live.js";
import { icon } from "./marks.js";
import { go, href } from "./router.js";
import { dialog } from "./ui.js";

let names = null; // {types, schedules} as they were when the palette was opened first

async function loadNames(draw) {
  const read = (path, key) => get(path).then((answer) => answer[key].map((row) => row.name), () => []);
  const [types, schedules] = await Promise.all([read("types", "types"), read("schedules", "schedules")]);
  names = { types, schedules };
  draw();
}

/** Whether the letters of the query are in the text, in order; lower is better. */
function score(query, text) {
  if (!query) return 1;
  const plain = text.toLowerCase();
  const at = plain.indexOf(query);
  if (at >= 0) return at / 100;
  let place = 0;
  for (const letter of query) {
    place = plain.indexOf(letter, place) + 1;
    if (!place) return null;
  }
  return 1 + plain.length / 100;
}

const UUID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

function entries(query) {
  const found = [];
  const add = (group, shape, text, more, run) => {
    const points = score(query.toLowerCase(), text);
    if (points !== null) found.push({ group, shape, text, more, run, points });
  };
  if (UUID.test(query)) found.push({ group: "Jobs", shape: "list", text: `Open job ${query}`, more: "", points: -1, run: () => go(href(`jobs/${query}`)) });
  else if (/^-?[\w.]+:\S/.test(query)) found.push({ group: "Jobs", shape: "search", text: `Search ${query}`, more: "filter", points: -1, run: () => go(href("jobs", { filter: query })) });
  add("Do", live.paused ? "play" : "pause", live.paused ? "Go live" : "Pause this page", "p", () => setPaused(!live.paused));
  if (allows("operator")) add("Do", "bolt", "Enqueue a job…", "", () => import("../pages/enqueue.js").then((module) => module.enqueueDialog()));
  add("Do", "moon", "Light or dark", "", nextTheme);
  for (const name of visible()) {
    const [title, shape, key] = shared.pages[name];
    add("Go to", shape, title, `g ${key}`, () => go(href(name)));
  }
  for (const [key] of shared.overview) {
    if (key.startsWith("queue:")) add("Queues", "stack", key.slice(6), "jobs of this queue", () => go(href("jobs", { filter: `queue:${quote(key.slice(6))}` })));
  }
  for (const name of names?.types ?? []) add("Types", "bolt", name, "jobs of this type", () => go(href("jobs", { filter: `type:${quote(name)}` })));
  for (const name of names?.schedules ?? []) add("Schedules", "clock", name, "", () => go(href("schedules", { name })));
  const order = ["Jobs", "Do", "Go to", "Queues", "Types", "Schedules"];
  found.sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group) || a.points - b.points);
  const most = query ? 8 : 12;
  return order.flatMap((group) => found.filter((each) => each.group === group).slice(0, most)).slice(0, 40);
}

export const quote = (text) => (/[\s,"*:]/.test(text) ? `"${text.replaceAll('"', '\\"')}"` : text);

/** Open the palette at once: the letters that follow Ctrl-K are for its field. */
export function palette() {
  if (!shared.session || document.querySelector("dialog.palette")) return;
  let query = "";
  let chosen = 0;
  let list = entries(query);
  const refresh = (draw) => {
    list = entries(query.trim());
    chosen = Math.min(chosen, Math.max(0, list.length - 1));
    draw();
  };
  return dialog((close, draw) => {
    if (!names) loadNames(() => refresh(draw));
    const run = (entry) => { close(); entry?.run(); };
    const keydown = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        chosen = (chosen + step + list.length) % Math.max(1, list.length);
        draw();
        document.getElementById(`palette-${chosen}`)?.scrollIntoView({ block: "nearest" });
      } else if (event.key === "Enter") {
        event.preventDefault();
        run(list[chosen]);
      }
    };
    let group = null;
    return [
      h("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-activedescendant": `palette-${chosen}`, "aria-label": "Search or do", placeholder: "Search, or do something", autofocus: true, oninput: (event) => { query = event.target.value; chosen = 0; refresh(draw); }, onkeydown: keydown }),
      h("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" }, list.map((entry, n) => {
        const heading = entry.group !== group && h("li.group", { key: entry.group, role: "presentation" }, entry.group);
        group = entry.group;
        return [heading, h("li", { key: `${entry.group}${entry.text}`, id: `palette-${n}`, role: "option", "aria-selected": String(n === chosen), onclick: () => run(entry) }, icon(entry.shape), h("bdi.clip", entry.text), entry.more && h("span.push", entry.more))];
      }), !list.length && h("li.group", "Nothing has this name.")),
    ];
  }, { className: "palette" });
}
