// One job: its story, its life, what it started, its attempts, its log; input and output beside it.

import { get, parse, post, Problem } from "../core/api.js";
import { h } from "../core/dom.js";
import { cents, count, countdown, moment, now, relative, span } from "../core/format.js";
import { act, jobHref, VERBS } from "../core/jobs.js";
import { life } from "../core/charts.js";
import { url } from "../core/api.js";
import { live, repeat, rests } from "../core/live.js";
import { icon, mark, state } from "../core/marks.js";
import { go, href } from "../core/router.js";
import { confirm, copy, copyButton, dialog, json, only, panel, say, valueButtons } from "../core/ui.js";
import { field, inputOf } from "./enqueue.js";

const OUTCOMES = { succeeded: ["succeeded", "succeeded"], raised: ["failed", "failed"], dead: ["dead", "died"], crashed: ["dead", "crashed"], released: ["queued", "was given back"], snoozed: ["waiting", "snoozed"], cancelled: ["cancelled", "was cancelled"], waiting: ["waiting", "waits"] };
const LIFE = { wait: "Waited for a processor", run: "Ran", backoff: "Backed off", limit: "Waited at limits", gate: "Behind a gate", hold: "Was held", sleep: "Slept", jobs: "Waits for its jobs", signal: "Waits for a signal" };

const AGAIN = 5000; // milliseconds between two looks at a job that has ended

export async function open({ rest, draw, allows }) {
  const id = rest[0];
  let job = await get(`jobs/${id}`);
  let details = null;
  let story = null;
  let gone = false;
  let revealed = false;
  let follows = true;
  let frames = new Set();
  const read = async () => {
    [details, story] = await Promise.all([get(`jobs/${id}/details`).catch(() => null), get(`jobs/${id}/story`).catch(() => null)]);
    draw();
  };
  read();

  let source = null;
  let timer = null;
  let missed = false; // something happened while paused
  const follow = () => {
    source = new EventSource(url(`jobs/${id}/events`));
    const learn = (event) => {
      if (live.paused) missed = true;
      else if (!revealed) { job = parse(event.data); read(); }
    };
    source.addEventListener("job", learn);
    source.addEventListener("result", () => source.close());
    source.addEventListener("gone", () => { source.close(); lose(); });
    source.onerror = () => {
      source.close();
      timer = setTimeout(async () => {
        try {
          job = await get(`jobs/${id}`);
          follow();
        } catch (problem) {
          if (problem.status === 404) return lose();
          follow();
        }
        draw();
      }, 3000);
    };
  };
  const lose = () => {
    if (live.paused) { missed = true; return; }
    gone = true;
    draw();
  };
  follow();
  const stays = rests({ rest: () => { clearTimeout(timer); source.close(); }, wake: () => changed() });

  const changed = async () => {
    missed = false;
    try {
      job = await get(`jobs/${id}`);
    } catch (problem) {
      if (problem.status === 404) return lose();
    }
    clearTimeout(timer);
    source?.close();
    follow();
    read();
  };
  const change = async (verb) => {
    try {
      if (await act(job, verb)) changed();
    } catch (problem) {
      gone = problem.status === 404;
      if (gone) return draw();
      changed(); // it had moved on
      throw problem;
    }
  };
  // The stream of a job ends with the job. Somebody may replay or discard it later.
  const stop = repeat(async () => {
    if (gone || revealed || (source?.readyState !== EventSource.CLOSED && !missed)) return;
    const [row] = (await get("jobs", { filter: `id:${id}`, count: 1 })).jobs;
    if (!row) lose();
    else if (missed || row.state !== job.state || row.updated_at !== job.updated_at) changed();
  }, AGAIN);

  const signal = async () => {
    const sure = await confirm({ title: "Send a signal", fields: [{ name: "name", label: "Name", value: details?.waits?.signal ?? "" }, { name: "value", label: "Value, as JSON", value: "null" }], button: "Send" });
    if (!sure) return;
    let value = sure.value;
    try { value = parse(sure.value); } catch { /* it is text */ }
    const answer = await post(`jobs/${id}/signal`, { name: sure.name, value });
    say(answer.sent ? "Sent." : "The job had a signal of this name already.");
    changed();
  };

  const reveal = async () => {
    job = await post(`jobs/${id}/reveal`);
    revealed = true;
    draw();
  };

  const buttons = () => {
    const who = only(allows, "operator");
    const verbs = VERBS[job.state].map(([verb, label, danger]) => h("button.button", { key: verb, type: "button", class: danger ? "danger" : verb === "retry" || verb === "replay" ? "primary" : "", ...who, onclick: () => change(verb) }, label));
    return [
      h("button.button", { key: "edit", type: "button", ...who, onclick: () => rerunDialog(job, changed) }, icon("pen"), "Edit, run again…"),
      job.state === "waiting" && h("button.button", { key: "signal", type: "button", ...who, onclick: signal }, "Send signal…"),
      verbs,
    ];
  };

  const lifePanel = () => {
    const parts = story?.life;
    if (!parts) return null;
    return h("section.panel", h("div.body",
      h("div.row", h("strong", `${span(parts.total / 1000)}${job.finished_at ? "" : " so far"}`), h("span.quiet.small", { style: { "margin-left": "auto" } }, `since ${moment(job.created_at)}`)),
      life(parts.parts, job.state, parts.text ?? ""),
      h("div.row.wrap", { style: { gap: "24px", "margin-top": "8px" } }, Object.entries(parts.sums ?? {}).filter(([, seconds]) => seconds > 0).map(([kind, seconds]) => h("div", { key: kind }, h("div.quiet.small", LIFE[kind] ?? kind), h("strong", span(seconds / 1000)))))));
  };

  const traceback = (error, key) => {
    if (!error) return null;
    const lines = String(error.traceback ?? "").trimEnd().split("\n");
    const shown = lines.slice(0, -1);
    const folded = [];
    let hidden = 0;
    for (let n = 0; n < shown.length; n += 1) {
      if (/^\s*[\^~]+\s*$/.test(shown[n])) continue;
      const library = /site-packages|lib\/python|windlass\/runtime/.test(shown[n]);
      if (library && !frames.has(key)) {
        hidden += 1;
        while (n + 1 < shown.length && !/^\s*File "/.test(shown[n + 1])) n += 1;
        continue;
      }
      folded.push(h("span", { key: n, class: /^\s{4}/.test(shown[n]) && !library ? "own" : "" }, shown[n], "\n"));
    }
    return h("div.traceback", h("div", h("bdi.strong", error.type), ": ", h("bdi", String(error.message).slice(0, 400))),
      error.traceback && h("pre.small", folded, hidden > 0 && h("button.button.plain.slim", { type: "button", onclick: () => { frames.add(key); draw(); } }, `… ${hidden} frames of libraries folded`), h("span.last", lines.at(-1))));
  };

  const attempts = () => {
    const made = [...(job.attempts ?? [])].reverse();
    const entry = (key, at, shape, text, more) => [
      h("div.when", { key: `${key}-w` }, moment(at), h("br"), relative(at)), h("div", { key: `${key}-i` }, h(`span.mark.s-${shape}`, icon(shape))), h("div", { key: `${key}-t` }, text, more)];
    return panel("Attempts", "newest first", h("div.steps-line",
      job.state === "running" && job.started_at && entry("now", job.started_at, "running", [h("strong", `Attempt ${job.attempt} of ${job.max_attempts}`), ` runs for ${span((now() - new Date(job.started_at)) / 1000)}`]),
      made.map((attempt) => {
        const [shape, word] = OUTCOMES[attempt.outcome] ?? ["queued", attempt.outcome];
        const ran = attempt.finished_at && attempt.started_at ? (new Date(attempt.finished_at) - new Date(attempt.started_at)) / 1000 : null;
        return entry(`${attempt.attempt}-${attempt.fence}`, attempt.started_at ?? attempt.finished_at, shape,
          [h("strong", `Attempt ${attempt.attempt} of ${job.max_attempts}`), ` ${word}${ran === null ? "" : ` after ${span(ran)}`}`, h("span.quiet", attempt.worker ? ` · fence ${attempt.fence}` : "")],
          attempt.error?.type && traceback(attempt.error, `${attempt.attempt}-${attempt.fence}`));
      }),
      entry("enqueued", job.created_at, "queued", [h("strong", "Enqueued"), job.key && h("span.quiet", " with key ", h("code", job.key))])));
  };

  const logs = () => {
    const lines = (job.attempts ?? []).flatMap((attempt) => (attempt.log ?? []).map((line) => ({ ...(typeof line === "string" ? { message: line } : line), attempt: attempt.attempt })));
    if (!lines.length) return null;
    const text = lines.map((line) => `${line.at ?? ""} ${line.level ?? ""} ${line.message ?? ""}`).join("\n");
    return panel("Log", `${count(lines.length)} lines`, h("div.log", { tabindex: "0", onscroll: (event) => { const node = event.target; follows = node.scrollTop + node.clientHeight >= node.scrollHeight - 8; }, made: (node) => new MutationObserver(() => { if (follows) node.scrollTop = node.scrollHeight; }).observe(node, { childList: true }) },
      lines.map((line, n) => h("div", { key: n }, h("span.quiet", line.at ? moment(line.at) : `attempt ${line.attempt}`), " ", h("span.quiet", line.level ?? ""), " ", h("bdi", line.message ?? JSON.stringify(line))))), { side: copyButton(text, "Copy the log") });
  };

  const graph = () => {
    const drawn = story?.graph ?? story?.phases;
    const nodes = drawn?.nodes ?? [];
    if (nodes.length < 2) return null;
    const [w, gap, height, rise] = [132, 40, 40, 12];
    const x = (node) => node.x * (w + gap);
    const y = (node) => node.y * (height + rise);
    const at = new Map(nodes.map((node) => [node.key ?? node.id, node]));
    const width = Math.max(...nodes.map(x)) + w;
    const tall = Math.max(...nodes.map(y)) + height;
    return h("div.scroll.body", h("svg", { width: width + 4, height: tall + 4, viewBox: `-2 -2 ${width + 4} ${tall + 4}`, role: "img", "aria-label": `${nodes.length} jobs as a graph` },
      (drawn.edges ?? []).map(([from, to], n) => {
        const [a, b] = [at.get(from), at.get(to)];
        if (!a || !b) return null;
        const [x1, y1, x2, y2] = [x(a) + w, y(a) + height / 2, x(b), y(b) + height / 2];
        return h("path", { key: `e${n}`, class: "link", d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` });
      }),
      nodes.map((node) => h("g.node", { key: node.key ?? node.id, class: node.current ? "current" : "", style: { cursor: node.id ? "pointer" : "default" }, onclick: () => node.id && node.id !== job.id && go(jobHref(node.id)) },
        h("rect", { x: x(node), y: y(node), width: w, height, rx: 6 }),
        h("g", { class: `s-${node.state}`, style: { color: "var(--tone)" } }, h("svg", { x: x(node) + 8, y: y(node) + 12, width: 16, height: 16, viewBox: "0 0 16 16" }, icon(node.state ?? "queued").kids)),
        h("text", { x: x(node) + 30, y: y(node) + 17, "font-size": 12, fill: "var(--ink)" }, String(node.name ?? node.type).slice(0, 16)),
        h("text", { x: x(node) + 30, y: y(node) + 31, "font-size": 11, fill: "var(--ink-3)" }, node.count > 1 ? `× ${count(node.count)}${node.dead ? `, ${node.dead} dead` : ""}` : (node.state ?? ""))))));
  };

  const links = () => {
    const found = story?.links?.length ? story.links : (details?.links ?? []);
    const picture = graph();
    if (!found.length && !picture) return null;
    return panel(found.length ? "Its jobs" : "Its phases", found.length ? count(found.length) : null, [picture, (story?.groups ?? []).filter((group) => group.count > 1).length > 0 && h("p.body.second", story.groups.filter((group) => group.count > 1).map((group) => `${group.name || group.type} × ${count(group.count)} ${group.state ?? ""}`).join(", ")), h("div.scroll", h("table", h("tbody", found.slice(0, 200).map((link) => h("tr.hoverable", { key: link.id ?? link.name }, h("td", link.state ? state(link.state) : "—"), h("td", link.id ? h("a.name", { href: jobHref(link.id) }, h("bdi", link.name || link.type || link.id)) : h("bdi", `${link.name} × ${count(link.count)}`)), h("td", { style: { width: "50%" } }, link.life && life(link.life.parts, link.state, link.life.text ?? ""), !link.life && h("span.quiet.small", link.id?.slice(-12)))))))) ]);
  };

  const facts = () => h("section.panel", h("dl.facts.body",
    h("dt", "Id"), h("dd.row", h("code.clip", job.id), copyButton(job.id, "Copy the id")),
    h("dt", "Queue"), h("dd", h("a", { href: href("jobs", { filter: `queue:${job.queue}` }) }, h("bdi", job.queue)), job.pipeline ? `, phase ${job.phase}` : ""),
    h("dt", "Tenant"), h("dd", h("bdi", job.tenant)),
    h("dt", "Priority"), h("dd", String(job.priority)),
    job.limits?.length > 0 && [h("dt", "Limits"), h("dd", job.limits.map((key) => h("code", { key }, key, " ")))],
    job.cost_cents > 0 && [h("dt", "Cost"), h("dd", cents(job.cost_cents))],
    job.trace && [h("dt", "Trace"), h("dd", h("code", job.trace))],
    job.parent && [h("dt", "Parent"), h("dd", h("a", { href: jobHref(job.parent) }, job.parent.slice(-12)))],
    job.copied_from && [h("dt", "Copy of"), h("dd", h("a", { href: jobHref(job.copied_from) }, job.copied_from.slice(-12)))],
    h("dt", "Created"), h("dd", `${relative(job.created_at)}, ${moment(job.created_at)}`)));

  const copies = () => {
    const lines = [["CLI", `windlass jobs show ${job.id}`], ["Python", `app.find("${job.id}")`], ...(job.redacted?.length ? [] : [["Again", `windlass enqueue -a app.py ${job.type} --input '${JSON.stringify(job.input).replaceAll("'", "'\\''")}'`]]), ["curl", `curl -H "Authorization: Bearer $TOKEN" ${url(`jobs/${job.id}`)}`]];
    return panel("Copy as", null, h("div.body", lines.map(([name, text]) => h("div.copyline", { key: name }, h("span", name), h("code.clip.grow", text.slice(0, 300)), copyButton(text, `Copy ${name}`)))));
  };

  const value = (title, content, more) => panel(title, more, h("div.body", content), { side: [job.redacted?.length > 0 && !revealed && allows("admin") && h("button.button.plain.slim", { type: "button", onclick: reveal }, "Reveal"), valueButtons(title === "Input" ? job.input : job.output, title.toLowerCase())] });

  const audit = () => panel("Audit", null, h("div.body", details?.audit?.length ? details.audit.map((row) => h("p", { key: row.number }, h("span.quiet.small", moment(row.at)), " ", row.action.toLowerCase().replaceAll("_", " "), row.actor ? [" by ", h("bdi", row.actor)] : "", row.reason ? [": ", h("bdi", row.reason)] : "")) : h("p.quiet.small", "What operators do to it, and its end, is written here.")));

  const plainStory = () => {
    if (story?.story) return story.story;
    if (job.why) return job.why.text;
    return { queued: "It is queued.", running: "It runs.", succeeded: "It succeeded.", failed: "It failed, and is tried again.", dead: "It is dead.", waiting: "It waits.", cancelled: "It was cancelled." }[job.state];
  };

  const progress = () => {
    const { total, processed, failed } = job.progress ?? {};
    if (!total && !processed) return null;
    return h("div.row", h("strong.nowrap", total ? `${count(processed)} of ${count(total)}` : `${count(processed)} done`), total && h("span.bar.grow", { role: "progressbar", "aria-label": "Progress", "aria-valuenow": processed, "aria-valuemax": total }, h("span", { style: { width: `${Math.min(100, (100 * processed) / total)}%` } })), failed > 0 && h("span.mark.s-failed", `${count(failed)} failed`));
  };

  return {
    title: job.type,
    close: () => { stop(); stays(); clearTimeout(timer); source?.close(); },
    keys: { r: () => VERBS[job.state].find(([verb]) => ["retry", "replay", "resume"].includes(verb)) && allows("operator") && change(VERBS[job.state].find(([verb]) => ["retry", "replay", "resume"].includes(verb))[0]), c: () => VERBS[job.state].some(([verb]) => verb === "cancel") && allows("operator") && change("cancel"), e: () => allows("operator") && rerunDialog(job, changed), y: () => copy(job.id, "Id copied"), Y: () => copy(`windlass jobs show ${job.id}`, "Command copied"), u: () => go(href("jobs")) },
    view: () => [
      gone && h("div.notice", { key: "gone" }, icon("cancelled"), h("strong", "This job is gone."), h("span.second", "It was discarded, or its history was deleted. What you see is what was known last.")),
      h("div.row.wrap", { key: "head" }, state(job.state, { label: job.label, tinted: true }), h("h2.clip", { style: { "font-size": "18px" } }, h("bdi", job.type)), h("code.quiet", job.id.slice(-8)), h("span.row.wrap", { style: { "margin-left": "auto" } }, !gone && buttons())),
      h("p.story", { key: "story" }, h("bdi", plainStory()), job.state === "failed" && [" Retries ", h("strong", countdown(job.run_at)), "."]),
      progress(),
      h("div.with-side.job", { key: "body" },
        h("div.stack", lifePanel(), links(), attempts(), logs()),
        h("div.stack", value("Input", json(job.input)), value("Output", job.output === null ? h("p.quiet", "None yet.") : json(job.output), details?.steps?.length ? `steps remembered: ${details.steps.length}` : null), facts(), copies(), audit())),
    ],
  };
}

/** Run a job again as a new one: a form from the type's hints, secrets kept unseen. */
export async function rerunDialog(job, after) {
  const { types } = await get("types");
  const schema = types.find((each) => each.name === job.type)?.parameters;
  const hidden = (job.redacted ?? []).filter((path) => path.startsWith("input."));
  const values = {};
  let text = JSON.stringify(job.input, null, 2);
  for (const [name, value] of Object.entries(job.input ?? {})) values[name] = typeof value === "string" ? value : JSON.stringify(value);
  const before = JSON.stringify(job.input);
  let mistakes = {};
  let problem = "";
  let discard = false;
  let checks = null;
  const build = () => {
    problem = "";
    if (schema) {
      const built = inputOf(schema, values);
      mistakes = built.mistakes;
      return Object.keys(mistakes).length ? null : built.input;
    }
    try {
      return parse(text);
    } catch (error) {
      problem = `This is no JSON: ${error.message}`;
      return null;
    }
  };
  const hides = (input) => {
    const same = JSON.stringify(input) === before;
    if (hidden.length && !same && JSON.stringify(input).includes("[redacted]")) throw new Problem({ detail: `${hidden.join(", ")} is hidden: type its value, or leave the input as it is` }, 422);
    return same;
  };
  const attempt = async (input, send, draw) => {
    try {
      return await send(hides(input));
    } catch (refused) {
      if (!(refused instanceof Problem)) throw refused;
      const place = /(\w+)$/.exec(refused.path ?? "")?.[1];
      if (place && schema?.properties?.[place]) mistakes = { [place]: refused.message };
      else problem = refused.message;
      draw();
      return null;
    }
  };
  const made = await dialog((close, draw) => h("form", { onsubmit: async (event) => {
    event.preventDefault();
    const input = build();
    if (input === null) return draw();
    const answer = await attempt(input, (same) => post(`jobs/${job.id}/rerun`, same ? { discard } : { input, discard }), draw);
    if (answer) close(answer);
  } },
    h("h2", "Run again, as a new job"),
    h("p.quiet.small", "Without a change it runs with the same input, hidden values included."),
    schema ? h("div.stack", Object.entries(schema.properties ?? {}).map(([name, each]) => field(name, each, (schema.required ?? []).includes(name), values, draw, mistakes)))
      : h("label.field", "Input", h("textarea", { value: text, oninput: (event) => { text = event.target.value; } })),
    job.state === "dead" && h("label.row", h("input", { type: "checkbox", onchange: (event) => { discard = event.target.checked; } }), "Discard the dead one"),
    checks && h("ul.checks", checks.map((check, n) => h("li", { key: n }, mark(check.ok ? "succeeded" : "failed", check.ok ? "check" : "alert", check.said, false), check.command && h("code.two", check.command)))),
    problem && h("p.mistake", { role: "alert" }, problem),
    h("div.buttons", h("button.button", { type: "button", onclick: () => close() }, "Back"),
      h("button.button", { type: "button", onclick: async () => {
        const input = build();
        if (input !== null) checks = (await attempt(input, (same) => post(`jobs/${job.id}/dry-run`, same ? {} : { input }), draw))?.checks ?? null;
        draw();
      } }, "Dry run"),
      h("button.button.primary", { type: "submit" }, "Run again"))), { wide: true });
  if (!made) return;
  say("Enqueued.");
  after?.();
  go(jobHref(made.id));
}

