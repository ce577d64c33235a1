// What several pages do with jobs: a row's cells, the actions that its state allows, and bulk actions.

import { bulk, post } from "./api.js";
import { h } from "./dom.js";
import { count, countdown, moment, now, relative, span } from "./format.js";
import { life } from "./charts.js";
import { go, href } from "./router.js";
import { confirm, dialog, say } from "./ui.js";

/** The actions that a job's state allows: verb, label, whether it destroys. */
export const VERBS = {
  queued: [["cancel", "Cancel…", true]],
  running: [["cancel", "Cancel…", true]],
  waiting: [["cancel", "Cancel…", true]],
  failed: [["retry", "Retry now", false], ["cancel", "Cancel…", true]],
  dead: [["replay", "Replay", false], ["discard", "Discard…", true]],
  cancelled: [["resume", "Resume", false]],
  succeeded: [],
};
export const DONE = { cancel: "cancelled", retry: "retried", replay: "replayed", resume: "resumed", discard: "discarded" };
const WORDS = { cancel: "Cancel", retry: "Retry", replay: "Replay", resume: "Resume", discard: "Discard" };
const MEANS = {
  cancel: "Running ones are asked to stop.",
  retry: "Each is tried again at once.",
  replay: "Each starts over with all its attempts.",
  resume: "Each goes back to its queue.",
  discard: "They are gone for good; the audit keeps who did it.",
};

export async function act(job, verb) {
  if (verb === "cancel" || verb === "discard") {
    const sure = await confirm({ title: `${WORDS[verb]} this job?`, text: [`${job.type} ${job.id}`, verb === "discard" ? "It is gone for good; the audit keeps who did it." : "A running job is asked to stop. Its children are cancelled, too."], button: `${WORDS[verb]} it`, danger: true });
    if (!sure) return null;
  }
  const answer = await post(`jobs/${job.id}/${verb}`);
  say(answer.state === "running" ? "Asked to stop." : `Job ${DONE[verb]}.`);
  return answer;
}

/** Count exactly, ask, change with progress that can be stopped, say what came of it. */
export async function bulkAct(verb, filter, after) {
  const dry = await post("jobs/bulk", { verb, filter, dry_run: true });
  if (!dry.matched) {
    say(`No job that matches can be ${DONE[verb]}.`);
    return;
  }
  const states = Object.entries(dry.states).map(([name, number]) => `${count(number)} ${name}`).join(", ");
  const sure = await confirm({ title: `${WORDS[verb]} ${count(dry.matched)} ${dry.matched === 1 ? "job" : "jobs"}?`, text: [`${states}. ${MEANS[verb]}`, `They match ${dry.filter || "everything"}`], button: `${WORDS[verb]} ${count(dry.matched)}`, number: dry.matched, danger: verb === "discard" || verb === "cancel" });
  if (!sure) return;
  const abort = new AbortController();
  let report = dry;
  let redraw = () => {};
  let close = () => {};
  const shown = dialog((shut, draw) => {
    [redraw, close] = [draw, shut];
    const tried = report.changed + report.asked + report.refused;
    return h("form", { method: "dialog" }, h("h2", `${WORDS[verb]}: ${count(tried)} of ${count(dry.matched)}`),
      h("span.bar", { role: "progressbar", "aria-label": "Progress", "aria-valuenow": tried, "aria-valuemax": dry.matched }, h("span", { style: { width: `${(100 * tried) / dry.matched}%` } })),
      h("p.second", `${count(report.changed)} ${DONE[verb]}${report.asked ? `, ${count(report.asked)} asked to stop` : ""}${report.refused ? `, ${count(report.refused)} had moved on` : ""}`),
      h("div.buttons", h("button.button", { type: "button", onclick: () => { abort.abort(); shut(); } }, "Stop")));
  });
  try {
    report = (await bulk({ verb, filter, expected: dry.matched }, (each) => { report = each; redraw(); }, abort.signal)) ?? report;
    say(`${count(report.changed + report.asked)} ${DONE[verb]}${report.refused ? `, ${count(report.refused)} had moved on and were left alone` : ""}.`, 10);
  } catch (problem) {
    say(problem.name === "AbortError" ? `Stopped: ${count(report.changed)} were ${DONE[verb]}.` : problem.message, 12);
  }
  close();
  await shown;
  after?.();
}

/** What is next for a job, over its time: retries in 38 s, ended 2 m ago, why it waits. */
export function next(job) {
  if (job.state === "failed") return h("span.nowrap", { title: job.run_at }, ["retries ", h("strong", countdown(job.run_at))], h("span.two", moment(job.updated_at)));
  if (job.finished_at) return h("span.nowrap", { title: job.finished_at }, `ended ${relative(job.finished_at)}`, h("span.two", moment(job.finished_at)));
  if (job.state === "queued") return h("span.nowrap", h("strong", countdown(job.run_at)), h("span.two", moment(job.run_at)));
  if (job.state === "running") return h("span.nowrap", `runs since ${moment(job.started_at)}`, h("span.two", relative(job.started_at)));
  return h("span.nowrap", job.why?.until ? countdown(job.why.until) : relative(job.updated_at), h("span.two", moment(job.updated_at)));
}

export function lifeOf(job) {
  if (!job.life) return null;
  const total = job.life.total ?? Math.max(0, now() - new Date(job.life.began_at));
  const done = job.life.parts.reduce((sum, [, part]) => sum + (part ?? 0), 0);
  const parts = job.life.parts.map(([kind, part]) => [kind, part ?? Math.max(0, total - done)]); // null: until now
  return [life(parts, job.state, job.life.text || `${job.state}, ${span(total / 1000)} in all`), h("span.two", span(total / 1000))];
}

export const jobHref = (id) => href(`jobs/${id}`);
export const openJob = (id) => go(jobHref(id));
