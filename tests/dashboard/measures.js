// What the stories of looks measure in a page, all or some of it; each answers with a list of what is wrong.

(names) => {
  for (const each of document.getAnimations()) each.finish(); // a colour on its way to another has no contrast of its own
  const parse = (text) => {
    const parts = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return text.startsWith("color(srgb") ? [parts[0] * 255, parts[1] * 255, parts[2] * 255, parts[3] ?? 1] : [parts[0], parts[1], parts[2], parts[3] ?? 1];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const line = (node) => {
    const found = [];
    for (let each = node; each; each = each.parentElement) found.unshift(each);
    return found;
  };
  const ground = (node) => line(node).reduce((under, each) => over(parse(getComputedStyle(each).backgroundColor), under), [255, 255, 255]);
  const seen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && node.getClientRects().length > 0;
  const said = (node) => `${node.localName}.${node.getAttribute("class") ?? ""} "${(node.textContent ?? "").trim().slice(0, 40)}"`;

  const faint = () => {
    const wrong = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !seen(node) || node.closest("[disabled], noscript, .skip")) continue;
      const style = getComputedStyle(node);
      const opacity = line(node).reduce((part, each) => part * Number(getComputedStyle(each).opacity), 1);
      const under = ground(node);
      const [r, g, b, a] = parse(node.closest("svg") ? style.fill : style.color);
      const measured = ratio(over([r, g, b, a * opacity], under), under);
      const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
      if (measured < (large ? 3 : 4.5)) wrong.push(`${measured.toFixed(2)} ${said(node)}`);
    }
    return wrong;
  };
  const nameless = () => [...document.querySelectorAll("button, a[href], input, select, textarea, [role=img], [role=progressbar], [role=listbox], nav, [tabindex='0']")]
    .filter(seen)
    .filter((node) => !(node.getAttribute("aria-label") || node.labels?.[0]?.textContent.trim() || (/^(button|a)$/i.test(node.tagName) && node.textContent.trim()) || node.title))
    .map(said);
  const headings = () => {
    const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter(seen).map((node) => Number(node.localName[1]));
    const wrong = levels.filter((level, n) => level > (levels[n - 1] ?? 0) + 1);
    return wrong.length || levels.filter((level) => level === 1).length !== 1 ? [levels.join(" ")] : [];
  };
  const doubles = () => {
    const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
    return ids.filter((id, n) => ids.indexOf(id) !== n);
  };
  const wide = () => {
    const room = document.documentElement.clientWidth;
    const beyond = [...document.querySelectorAll("body *")].filter((node) => seen(node) && !node.closest(".scroll, .phases, svg, .skip, .clip") && node.getBoundingClientRect().right > room + 1);
    return document.documentElement.scrollWidth > room ? [`${document.documentElement.scrollWidth} px`, ...beyond.slice(0, 5).map(said)] : [];
  };
  const cut = () => innerWidth < 1280 ? [] : [...document.querySelectorAll(".scroll")].filter((node) => node.scrollWidth > node.clientWidth + 1 && !node.querySelector("svg[role=group]")).map(said);
  const small = () => [...document.querySelectorAll("button, input, select")].filter(seen).filter((node) => {
    const { width, height } = node.getBoundingClientRect();
    return (width < 24 || height < 24) && !(node.type === "checkbox") && !node.closest(".term");
  }).map(said);
  const all = { faint, nameless, headings, doubles, wide, cut, small };
  return Object.fromEntries((names ?? Object.keys(all)).map((name) => [name, all[name]()]));
}
