import { h } from "../core/dom.js";
import { href } from "../core/router.js";
import { empty } from "../core/ui.js";

export async function open() {
  return { title: "Not here", view: () => h("section.panel", empty("search", "There is no such page", [], [h("a.button", { href: href("home") }, "Home")])) };
}
