// Enqueue a job: a form made from the type's hints, as JSON Schema.

import { get, parse, post, Problem } from "../core/api.js";
import { h } from "../core/dom.js";
import { openJob } from "../core/jobs.js";
import { dialog, say } from "../core/ui.js";

/** The field of one parameter. `values` keeps what is typed; an empty optional one is left out. */
export function field(name, schema, required, values, draw, mistakes = {}) {
  const kind = Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") : schema.type;
  const said = [required ? "" : "optional", kind ?? "JSON", schema.default !== undefined ? `default ${JSON.stringify(schema.default)}` : ""].filter(Boolean).join(", ");
  const mistake = mistakes[name] && h("span.mistake", mistakes[name]);
  const label = (input) => h("label.field", { key: name }, h("span", h("bdi.strong", name), " ", h("span.quiet", said)), input, mistake);
  const set = (value) => { values[name] = value; };
  if (schema.enum) return label(h("select", { onchange: (event) => set(event.target.value) }, h("option", { value: "" }, ""), schema.enum.map((each) => h("option", { value: JSON.stringify(each), selected: values[name] === JSON.stringify(each) }, typeof each === "string" ? each : JSON.stringify(each)))));
  if (kind === "boolean") return label(h("select", { onchange: (event) => set(event.target.value) }, ["", "true", "false"].map((each) => h("option", { value: each, selected: values[name] === each }, each))));
  if (kind === "string" || kind === "integer" || kind === "number") return label(h("input", { type: "text", inputmode: kind === "string" ? null : "decimal", value: values[name] ?? "", oninput: (event) => set(event.target.value) }));
  return label(h("textarea", { value: values[name] ?? "", placeholder: kind === "array" ? "[…]" : "JSON", oninput: (event) => set(event.target.value) }));
}

/** The typed texts as the input of a job. Whole numbers are sent digit by digit: JavaScript would round large ones. */
export function inputOf(schema, values) {
  const input = {};
  const mistakes = {};
  for (const [name, each] of Object.entries(schema.properties ?? {})) {
    const typed = values[name];
    if (typed === undefined || typed === "") continue;
    const kind = Array.isArray(each.type) ? each.type.find((one) => one !== "null") : each.type;
    if (kind === "string" && !each.enum) input[name] = typed;
    else {
      try {
        input[name] = parse(typed);
      } catch {
        mistakes[name] = kind === "integer" || kind === "number" ? "this is no number" : "this is no JSON";
      }
    }
  }
  return { input, mistakes };
}

export async function enqueueDialog(first) {
  const { types } = await get("types");
  const offered = types.filter((each) => !each.local_only);
  let chosen = offered.find((each) => each.name === first) ?? offered[0];
  let values = {};
  let mistakes = {};
  let problem = "";
  const options = {};
  const made = await dialog((close, draw) => {
    const submit = async (event) => {
      event.preventDefault();
      const built = inputOf(chosen.parameters, values);
      mistakes = built.mistakes;
      problem = "";
      if (!Object.keys(mistakes).length) {
        try {
          const body = { type: chosen.name, input: built.input };
          for (const [name, value] of Object.entries(options)) if (value) body[name] = name === "priority" ? Number(value) : value;
          close(await post("jobs", body));
          return;
        } catch (refused) {
          if (!(refused instanceof Problem)) throw refused;
          const place = /^\$\.input\.(\w+)/.exec(refused.path ?? "")?.[1];
          if (place) mistakes = { [place]: refused.message };
          else problem = refused.message;
        }
      }
      draw();
    };
    if (!chosen) return h("form", { method: "dialog" }, h("h2", "Enqueue a job"), h("p.second", "No job type is known yet. Start a worker of your program: windlass worker app.py"), h("div.buttons", h("button.button", { type: "submit" }, "Back")));
    return h("form", { onsubmit: submit },
      h("h2", "Enqueue a job"),
      h("label.field", "Type", h("select", { onchange: (event) => { chosen = offered.find((each) => each.name === event.target.value); values = {}; mistakes = {}; draw(); } }, offered.map((each) => h("option", { value: each.name, selected: each === chosen }, each.name)))),
      chosen.description && h("p.quiet.small", chosen.description),
      chosen.workers === 0 && h("p.small", "No live worker runs this type now: the job waits until one starts."),
      h("div.stack", { key: chosen.name }, Object.entries(chosen.parameters.properties ?? {}).map(([name, schema]) => field(name, schema, (chosen.parameters.required ?? []).includes(name), values, draw, mistakes))),
      h("details", h("summary.quiet", "Options"), h("div.stack", ["queue", "tenant", "priority", "delay", "key"].map((name) => h("label.field", { key: name }, name, h("input", { type: "text", placeholder: { delay: "10m", queue: chosen.queue, priority: String(chosen.priority) }[name] ?? "", oninput: (event) => { options[name] = event.target.value; } }))))),
      problem && h("p.mistake", { role: "alert" }, problem),
      h("div.buttons", h("button.button", { type: "button", onclick: () => close() }, "Back"), h("button.button.primary", { type: "submit" }, "Enqueue")));
  });
  if (!made) return;
  say(made.existing ? "A job with this key was there already." : "Enqueued.");
  openJob(made.id);
}
