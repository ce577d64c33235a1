// What pages are made of, in one place.

export * from "./charts.js";
export * from "./data.js";
export * from "./dom.js";
export * from "./format.js";
export * from "./jobs.js";
export * from "./router.js";
export * from "./ui.js";
