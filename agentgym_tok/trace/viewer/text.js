// Elements and text. What a world wrote becomes text nodes and nothing else, and what nobody could see is spelled out.

/** Characters that show nothing, or that change how others are shown. */
const UNSEEN = new RegExp(
  `[${[
    "\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}",
    "\\u00a0\\u2000-\\u200a\\u202f\\u205f\\u2800\\u3000\\ufffe\\uffff", // blanks that are no space
  ].join("")}]+`,
  "gu",
);
const LONG = 3000;
const MOST = 1000;

const at = (id) => document.getElementById(id);

/** Make an element: `el("p.faint", "text", child, ...)`. */
function el(kind, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function button(label, act, kind = "button") {
  const made = el(kind, label);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/** A number behind a sign, with its words for whoever points at it or has it read aloud. */
function tally(kind, sign, number, one) {
  const made = el(kind, `${sign} ${whole(number)}`);
  made.title = count(number, one);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", made.title);
  return made;
}

/** A table of names and values. */
function facts(lines, wide = []) {
  const line = ([name, value]) =>
    el(wide.includes(name) ? "div.wide" : "div", el("dt", name), el("dd", brief(String(value), MOST)));
  return el("dl.facts", ...lines.map(line));
}

/** Return a text in which every character can be seen. */
function visible(text) {
  return text.replace(UNSEEN, (run) => Array.from(run, spelled).join(""));
}

function spelled(character) {
  if (character === "\n") return "\u21b5";
  if (character === "\t") return "\u21e5";
  return `\u2039U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`;
}

/** Show a text on one line, cut where it is long. */
function brief(text, most = 160) {
  const cut = text.length > most ? `${text.slice(0, most)}\u2026` : text;
  return visible(cut.replace(/\s+/gu, " ").trim());
}

/** Show a text with its line breaks; a long one by and by. */
function block(text, kind = "div.text") {
  const made = el(kind);
  made.dir = "auto";
  let shown = 0;
  const more = (most) => {
    const start = shown;
    shown += most;
    if (/[\ud800-\udbff]/.test(text[shown - 1])) shown += 1; // never between the halves of a surrogate pair
    spell(made, text.slice(start, shown));
    if (shown >= text.length) return;
    const left = button(`Show more of ${whole(text.length)} characters`, () => {
      left.remove();
      more(20 * LONG);
    });
    made.append(left);
  };
  more(LONG);
  return made;
}

/** Append a text; what had to be spelled out stands out, so that nobody can fake it. */
function spell(parent, text) {
  let place = 0;
  for (const found of text.matchAll(UNSEEN)) {
    const hidden = found[0].replace(/[\n\t]/g, "");
    if (!hidden) continue;
    parent.append(text.slice(place, found.index), el("span.unseen", visible(found[0])));
    if (found[0].includes("\n")) parent.append("\n");
    place = found.index + found[0].length;
  }
  parent.append(text.slice(place));
}

// ---- numbers

const whole = (number) => number.toLocaleString("en-US");
const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;
const short = (number) => String(Number(number.toPrecision(4))).replace("-", "\u2212");
const signed = (number) => (number > 0 ? `+${short(number)}` : short(number));

/** Return the shortest decimals that are this float32 and no other. */
function float32(number) {
  for (let digits = 1; digits <= 9; digits += 1) {
    const text = number.toPrecision(digits);
    if (Math.fround(Number(text)) === number) return Object.is(number, -0) ? "-0" : String(Number(text));
  }
  return String(number);
}

function time(seconds) {
  const date = new Date(1000 * seconds);
  return Number.isNaN(date.getTime()) ? String(seconds) : date.toISOString().replace("T", " ").replace("Z", " UTC");
}

function yes(value) {
  return value === null ? "unknown" : value ? "yes" : "no";
}
