// What a page must be for everyone. Each function returns the complaints about the page that it runs in.

function rgb(colour) {
  const parts = colour.match(/[\d.]+/g).map(Number);
  return parts.length === 3 ? [...parts, 1] : parts;
}

function over(top, ground, alpha) {
  return ground.map((below, k) => alpha * top[k] + (1 - alpha) * below);
}

// WCAG 2.1: relative luminance, and the ratio of two colours.
function luminance(colour) {
  const linear = colour.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function ratio(a, b) {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

function opacity(element) {
  let product = 1;
  for (let at = element; at instanceof SVGElement; at = at.parentElement) product *= Number(getComputedStyle(at).opacity);
  return product;
}

function background(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour[3] > 0) return colour.slice(0, 3);
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
}

function painted(svg) {
  return [...svg.querySelectorAll("rect,path,polygon,circle,ellipse")].map((shape) => {
    const style = getComputedStyle(shape);
    const box = shape.getBoundingClientRect();
    if (style.fill === "none" || !box.width || !box.height) return null;
    const fill = rgb(style.fill);
    return { shape, box, fill, alpha: fill[3] * Number(style.fillOpacity) * opacity(shape), inverse: shape.getScreenCTM().inverse() };
  }).filter(Boolean);
}

// The colour that is painted at a point of the window before the text is.
function under(x, y, text, svg, shapes) {
  let colour = background(svg);
  for (const { shape, box, fill, alpha, inverse } of shapes) {
    if (x < box.left || x > box.right || y < box.top || y > box.bottom) continue;
    if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
    if (shape.isPointInFill(new DOMPoint(x, y).matrixTransform(inverse))) colour = over(fill, colour, alpha);
  }
  return colour;
}

// Text in SVG, which axe-core leaves out: its colour against what lies under five places along it.
function svgContrast() {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const shapes = painted(svg);
    for (const part of svg.querySelectorAll("text,tspan")) {
      if (![...part.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())) continue;
      if (!part.checkVisibility({ visibilityProperty: true })) continue;
      const text = part.closest("text"), style = getComputedStyle(part), matrix = part.getScreenCTM();
      const size = parseFloat(style.fontSize) * Math.sqrt(Math.abs(matrix.a * matrix.d - matrix.b * matrix.c));
      const need = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 600) ? 3 : 4.5;
      const range = document.createRange();
      range.selectNodeContents(part);
      const box = range.getBoundingClientRect();
      const flat = box.width > box.height;
      const fill = rgb(style.fill);
      const halo = style.stroke !== "none" && style.paintOrder.startsWith("stroke") && parseFloat(style.strokeWidth) >= 2;
      const ratios = [0.1, 0.3, 0.5, 0.7, 0.9].map((share) => {
        const x = box.x + (flat ? share : 0.5) * box.width, y = box.y + (flat ? 0.5 : share) * box.height;
        let ground = under(x, y, text, svg, shapes);
        if (halo) ground = over(rgb(style.stroke), ground, Number(style.strokeOpacity));
        return ratio(over(fill, ground, fill[3] * Number(style.fillOpacity) * opacity(part)), ground);
      });
      const worst = Math.min(...ratios);
      if (worst < need) found.push(`${part.textContent.trim().slice(0, 40)}: ${worst.toFixed(2)} < ${need}`);
    }
  }
  return found;
}

// axe-core's findings: of one rule, or of WCAG 2.1 A and AA and its best practices.
function axeFindings(rule) {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
  const runOnly = rule ? { type: "rule", values: [rule] } : tags;
  return axe.run(document, { iframes: false, preload: false, resultTypes: ["violations"], runOnly }).then((found) =>
    found.violations.flatMap((rule) => rule.nodes.map((node) => [rule.id, node.target.join(" "), node.failureSummary])));
}

function isNamed(element) {
  if (element.tagName !== "svg") {
    return Boolean(element.getAttribute("alt") || element.getAttribute("aria-label"));
  }
  const words = (id) => (document.getElementById(id)?.textContent ?? "").trim();
  const labels = (element.getAttribute("aria-labelledby") ?? "").split(" ").map(words);
  const own = ["title", "desc"].map((tag) => (element.querySelector(`:scope > ${tag}`)?.textContent ?? "").trim());
  return element.getAttribute("role") === "img" && own.every((text) => text && labels.includes(text));
}

function figures() {
  const seen = [...document.querySelectorAll("svg,canvas,img")].filter((element) => element.checkVisibility());
  return seen.filter((element) => !isNamed(element)).map((element) => element.outerHTML.slice(0, 80));
}

function outline() {
  const wrong = [];
  const headings = [...document.querySelectorAll("h1,h2,h3,h4,h5,h6")];
  const levels = headings.filter((h) => h.getAttribute("role") !== "presentation").map((h) => Number(h.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) wrong.push(`one h1 is needed: ${levels}`);
  if (levels.some((level, k) => k && level > levels[k - 1] + 1)) wrong.push(`headings skip a level: ${levels}`);
  for (const mark of ["main", "nav"]) {
    if (document.querySelectorAll(mark).length !== 1) wrong.push(`one ${mark} is needed`);
  }
  if (!document.documentElement.lang) wrong.push("no language");
  if (!document.title.trim()) wrong.push("no title");
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id stands twice");
  for (const link of document.querySelectorAll("a[href]")) {
    if (!ids.includes(link.getAttribute("href").slice(1))) wrong.push(`leads nowhere: ${link.outerHTML}`);
  }
  return wrong;
}

// Elements that stick out of the page to the right, outside of everything that scrolls by itself.
function tooWide() {
  const most = document.documentElement.clientWidth;
  const scrolls = (element) => getComputedStyle(element).overflowX !== "visible";
  const held = (element) => {
    for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) if (scrolls(at)) return true;
    return element instanceof SVGElement && element.ownerSVGElement !== null;
  };
  const out = [...document.body.querySelectorAll("*")].filter((element) =>
    element.checkVisibility() && element.getBoundingClientRect().right + scrollX > most + 1 && !held(element));
  const page = document.documentElement.scrollWidth > most ? [`the page is ${document.documentElement.scrollWidth} wide`] : [];
  return [...page, ...out.map((element) => element.outerHTML.slice(0, 90))];
}

// Text that is on the page as it is shown now, with one space between words.
function shownText() {
  return document.body.innerText.replace(/\s+/g, " ");
}

function firstView() {
  return new Promise((done) => new PerformanceObserver((list) =>
    list.getEntriesByName("first-contentful-paint").forEach((entry) => done(entry.startTime / 1000)),
  ).observe({ type: "paint", buffered: true }));
}
