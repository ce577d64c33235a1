// The frame of every page: rail, top bar, live clock, theme, keys. A page is a module with `open(context)`.

import { del, get, post, Problem } from "./core/api.js";
import { h, patch } from "./core/dom.js";
import { clock, count, moment, now } from "./core/format.js";
import { live, onLive, reconnect, setPaused, Stream } from "./core/live.js";
import { icon } from "./core/marks.js";
import { palette } from "./core/palette.js";
import { go, here, href, startRouter } from "./core/router.js";
import { dialog, failure, say, skeleton } from "./core/ui.js";
import { keysHelp, startKeys } from "./core/keys.js";

const PAGES = {
  home: ["Home", "home", "h"],
  jobs: ["Jobs", "list", "j"],
  errors: ["Errors", "alert", "e"],
  queues: ["Queues", "stack", "q"],
  schedules: ["Schedules", "clock", "s"],
  workers: ["Workers", "chip", "w"],
  dead: ["Dead letters", "inbox", "d"],
  tenants: ["Tenants, budgets", "people", "t"],
  audit: ["Audit", "book", "a"],
  tokens: ["Tokens", "key", "k"],
};
const TABS = ["home", "jobs", "errors", "queues"];
const WHOLE = ["home", "queues", "schedules", "workers", "tokens"]; // what concerns every tenant
const SIGNED = "windlass-signed-in"; // a cookie that scripts cannot read has the token itself
const ROLES = ["viewer", "operator", "admin"];

/** What every page shares: who looks, and the rows of the overview. */
export const shared = { session: null, overview: new Map(), pages: PAGES };

export const allows = (role) => ROLES.indexOf(shared.session?.role) >= ROLES.indexOf(role);

const app = document.getElementById("app");
let page = null; // the open page: {title, view, close, keys, live, bar}
let opened = 0;
let failed = null;
let waiting = false;
let stream = null;

let drawing = false;
export function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    render();
  });
}

// Theme

const themes = ["auto", "light", "dark"];
function theme() {
  return localStorage.getItem("windlass-theme") ?? "auto";
}
function applyTheme() {
  const dark = theme() === "dark" || (theme() === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}
export function nextTheme() {
  const dark = document.documentElement.dataset.theme === "dark";
  localStorage.setItem("windlass-theme", dark ? "light" : "dark");
  applyTheme();
  draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
applyTheme();

// The frame

function counts() {
  const states = shared.overview.get("counts") ?? {};
  const workers = [...shared.overview].filter(([key]) => key.startsWith("worker:")).map(([, row]) => row);
  return { dead: states.dead, workers: workers.filter((row) => row.state !== "dead").length, failed: states.failed };
}

/** The pages that the caller may open. */
export function visible() {
  return Object.keys(PAGES).filter((name) => (name !== "tokens" || allows("admin")) && !(shared.session?.tenant && WHOLE.includes(name)));
}

function item(name, current) {
  const [title, shape] = PAGES[name];
  const numbers = counts();
  const number = { dead: numbers.dead, workers: numbers.workers }[name];
  return h("a.item", { key: name, href: href(name), "aria-current": name === current ? "page" : null }, icon(shape), title,
    number > 0 && h("span.count", count(number, 10000)));
}

function rail(current) {
  const session = shared.session;
  return h("nav.rail", { "aria-label": "Pages" },
    h("a.brand", { href: href("home") }, icon("brand"), "Windlass"),
    visible().map((name) => item(name, current)),
    h("div.foot",
      session?.store && h("div.row", icon("chip"), h("span.clip", session.store)),
      h("div.row", h("span.clip.grow", { title: session ? `${session.name}, ${session.role}` : "" }, session ? `${session.name} · ${session.role}${session.tenant ? ` of ${session.tenant}` : ""}` : ""),
        h("button.button.plain.slim", { type: "button", title: "Times in UTC or in your zone", onclick: () => { clock.utc = !clock.utc; draw(); } }, clock.utc ? "UTC" : "local"),
        h("button.button.plain.slim", { type: "button", title: "Light or dark", "aria-label": "Light or dark", onclick: nextTheme }, icon(document.documentElement.dataset.theme === "dark" ? "sun" : "moon")),
        h("button.button.plain.slim", { type: "button", title: "Keys", "aria-label": "Keys", onclick: keysHelp }, h("kbd", "?"))),
      signedIn() && h("button.button.plain.slim", { type: "button", onclick: signOut }, "Sign out")));
}

function tabs(current) {
  const failedNow = counts().dead;
  return h("nav.tabs", { "aria-label": "Pages" },
    TABS.filter((name) => visible().includes(name)).map((name) => h("a", { key: name, href: href(name), "aria-current": name === current ? "page" : null }, icon(PAGES[name][1]), PAGES[name][0],
      name === "errors" && failedNow > 0 && h("span.badge", failedNow > 99 ? "99+" : failedNow))),
    h("a", { href: "#more", onclick: (event) => { event.preventDefault(); more(); } }, icon("more"), "More"));
}

function more() {
  dialog((close) => h("div.more", visible().filter((name) => !TABS.includes(name)).map((name) => h("a.item", { href: href(name), onclick: () => close() }, icon(PAGES[name][1]), PAGES[name][0])),
    h("button.button", { type: "button", onclick: () => { nextTheme(); close(); } }, "Light or dark"),
    signedIn() && h("button.button", { type: "button", onclick: () => { close(); signOut(); } }, "Sign out")));
}

function liveButton() {
  const paused = live.state === "paused";
  const word = { live: "Live", lost: "Lost", paused: "Paused" }[live.state];
  return h("button.button.live", { type: "button", "data-state": live.state, "aria-pressed": null, title: paused ? "Go live (p)" : "Pause everything on this page (p)", onclick: () => setPaused(!live.paused) },
    h("span.dot"), word, h("span.quiet.wide-only", moment(new Date(live.at).toISOString())), icon(paused ? "play" : "pause"));
}

function topbar() {
  return h("header.topbar",
    h("h1.clip", h("bdi", page?.title ?? "Windlass")),
    page?.bar?.(),
    h("button.button.find", { type: "button", onclick: palette, "aria-label": "Search or do" }, icon("search"), h("span.hint", "Search or do…"), h("kbd", "Ctrl K")),
    liveButton());
}

function notices() {
  const made = [];
  if (live.paused) {
    made.push(h("div.notice", { key: "paused" }, icon("pause"), h("strong", `Paused at ${moment(new Date(live.at).toISOString())}`), h("span.second", "Everything on this page is as of then."),
      h("button.button.primary.slim.push", { type: "button", onclick: () => setPaused(false) }, icon("play"), "Go live")));
  } else if (live.lostSince) {
    const ago = Math.round((now() - live.lostSince) / 1000);
    if (ago >= 2) made.push(h("div.notice", { key: "lost" }, h("span.mark.s-failed", icon("failed")), h("strong", `Connection lost ${ago} s ago`), h("span.second", `What you see is as of ${moment(new Date(live.at).toISOString())}.`),
      h("button.button.slim.push", { type: "button", onclick: reconnect }, "Try now")));
  } else if (live.problem) {
    made.push(h("div.notice", { key: "problem", role: "alert" }, h("span.mark.s-dead", icon("dead")), h("strong", live.problem)));
  }
  return made;
}

function render() {
  const { page: current } = here();
  if (!shared.session) return;
  document.title = page ? `${page.title} · Windlass` : "Windlass";
  let content;
  if (failed) content = failure(failed, () => openPage());
  else if (!page) content = waiting ? skeleton() : null;
  else content = page.view();
  patch(app, [rail(current === "job" ? "jobs" : current), h("div", { key: "page" }, topbar(), h("main", { id: "main", tabindex: "-1" }, notices(), content)), tabs(current)]);
}

// Pages

async function openPage() {
  if (!shared.session) return; // the door is shown: the address stays, and is opened after it
  const mine = (opened += 1);
  const { page: name, rest, params } = here();
  page?.close?.();
  page = null;
  failed = null;
  waiting = false;
  setTimeout(() => { if (mine === opened && !page) { waiting = true; draw(); } }, 150);
  try {
    const known = name === "jobs" && rest.length ? "job" : name in PAGES ? name : "missing";
    if (shared.session.tenant && WHOLE.includes(name) && name !== "home") {
      throw new Problem({ detail: `This page shows all tenants, and your token is for the tenant ${shared.session.tenant}.` }, 403);
    }
    const module = await import(`./pages/${known}.js`);
    const made = await module.open({ rest, params, draw, shared, allows });
    if (mine !== opened) return made.close?.();
    page = made;
  } catch (problem) {
    if (mine !== opened) return;
    if (problem instanceof Problem && problem.status === 401) return login(problem.message);
    if (!(problem instanceof Problem || problem instanceof TypeError)) throw problem;
    failed = problem;
  }
  draw();
}

export const currentPage = () => page;
export const reopen = () => openPage();

// Who looks

function login(why) {
  opened += 1; // a page that is on its way does not open any more
  page?.close?.();
  page = null;
  shared.session = null;
  stream?.close();
  stream = null;
  let mistake = why ?? "";
  const view = () => patch(app, h("main", { id: "main" }, h("section.panel", h("header", h("h1", "Windlass")), h("div.body",
    h("form.stack", { onsubmit: async (event) => {
      event.preventDefault();
      try {
        await post("session", { token: new FormData(event.target).get("token").trim() });
        localStorage.setItem(SIGNED, "1");
        await start();
      } catch (problem) {
        mistake = problem.message;
        view();
      }
    } },
      h("p.second", "This dashboard needs a token. Create one: ", h("code", "windlass token create NAME --role viewer")),
      h("label.field", "Token", h("input", { type: "password", name: "token", autocomplete: "off", required: true, autofocus: true })),
      mistake && h("p.mistake", { role: "alert" }, mistake),
      h("div", h("button.button.primary", { type: "submit" }, "Open")))))));
  view();
}

const signedIn = () => localStorage.getItem(SIGNED) === "1";

async function signOut() {
  await del("session");
  localStorage.removeItem(SIGNED);
  page?.close?.();
  await start();
}

async function start() {
  const sent = Date.now();
  try {
    shared.session = await get("session");
  } catch (problem) {
    if (problem.status === 401) return login();
    failed = problem;
    shared.session = { name: "", role: "viewer", tenant: null };
  }
  if (shared.session.now) clock.offset = new Date(shared.session.now).getTime() - (sent + Date.now()) / 2;
  stream?.close();
  stream = null;
  if (shared.session.tenant === null) {
    stream = new Stream({ list: "overview" }, (rows) => { shared.overview = rows; page?.live?.(rows); draw(); }, pollOverview);
  }
  await openPage();
  // A module whose first fetch failed stays broken until a reload: each is fetched while the server answers.
  for (const name of [...Object.keys(PAGES), "job"]) import(`./pages/${name}.js`).catch(() => {});
}

async function pollOverview(read) {
  const [counted, queues, workers, gates] = await Promise.all([read("counts"), read("queues"), read("workers"), read("gates")]);
  const rows = { counts: counted.counts };
  for (const row of queues.queues) rows[`queue:${row.queue}`] = row;
  for (const row of workers.workers) rows[`worker:${row.id}`] = row;
  for (const row of gates.gates) rows[`gate:${row.kind}:${row.name}`] = row;
  return { overview: rows };
}

addEventListener("unhandledrejection", (event) => {
  const problem = event.reason;
  if (!(problem instanceof Problem)) return;
  event.preventDefault();
  if (problem.status === 401) login(problem.message);
  else say(problem.message, 10);
});

startRouter(() => openPage());
startKeys({ pages: PAGES, go: (name) => go(href(name)), page: currentPage, draw });
onLive(draw);
setInterval(() => { if (!live.paused) { if (!live.lostSince) live.at = now(); draw(); } }, 1000);
start();
