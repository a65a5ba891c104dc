// The list of episodes: which lines are in it, in which order, and a page of them. Everything becomes text nodes.

const PER_PAGE = 50;
const [RUN, PART, TASK, SAMPLE, KIND, ENDING, METRICS, RETURN, STEPS, TOKENS, CONTEXT, WHY, ID, LINKED] = Array(14).keys();

const at = (id) => document.getElementById(id);
const data = JSON.parse(at("data").textContent);
const { words, runs, endings } = data;

function el(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...children.filter((child) => child !== null));
  return made;
}

const several = (place) => new Set(data.episodes.map((line) => line[place])).size > 1;
const whole = (value) => value.toLocaleString("en-US");
const short = (value) => (value === null ? "" : String(Number(value.toPrecision(4))).replace("-", "\u2212"));

/** What can be a column: its heading, its value for sorting, what is shown, whether it is a number. */
const COLUMNS = [
  { name: "task", value: (line) => words[line[TASK]], show: task, head: true },
  { name: "ending", value: (line) => line[ENDING], show: badge },
  several(RUN) && { name: "run", value: (line) => runs[line[RUN]] },
  several(PART) && { name: "part", value: (line) => words[line[PART]] },
  several(KIND) && { name: "kind", value: (line) => words[line[KIND]] },
  several(SAMPLE) && { name: "sample", value: (line) => line[SAMPLE], number: true },
  ...data.metrics.map((name, place) => ({
    name: `${name} %`,
    value: (line) => line[METRICS][place],
    show: (line) => (line[METRICS][place] === null ? "" : (100 * line[METRICS][place]).toFixed(1)),
    number: true,
  })),
  { name: "return", value: (line) => line[RETURN], show: (line) => short(line[RETURN]), number: true },
  { name: "steps", value: (line) => line[STEPS], show: (line) => whole(line[STEPS]), number: true },
  { name: "tokens", value: (line) => line[TOKENS], show: (line) => whole(line[TOKENS]), number: true },
  { name: "context", value: (line) => line[CONTEXT], show: (line) => whole(line[CONTEXT]), number: true },
].filter(Boolean);

const state = { found: data.episodes, page: 0, by: null, down: false };

function task(line) {
  const name = words[line[TASK]] || "(no task)";
  if (!line[LINKED]) return name;
  const link = el("a", "", name);
  link.href = `${data.views[line[RUN]]}#episode=${encodeURIComponent(line[ID])}`;
  return link;
}

function badge(line) {
  const made = el("span", `badge b${line[ENDING]}`, endings[line[ENDING]]);
  const why = words[line[WHY]];
  return why ? el("span", "", made, " ", el("span", "why", why)) : made;
}

/** The columns that say something of the lines that were found: not the scores of other worlds. */
function columns() {
  return COLUMNS.filter((column) => state.found.some((line) => column.value(line) !== null));
}

function header(shown) {
  const cells = shown.map((column) => {
    const sort = el("button", "", column.name);
    sort.type = "button";
    sort.addEventListener("click", () => {
      state.down = state.by === column ? !state.down : Boolean(column.number);
      state.by = column;
      filter();
      table.tHead.querySelector("[aria-sort] button")?.focus();
    });
    const made = el("th", column.number ? "n" : "", sort);
    made.scope = "col";
    if (column === state.by) made.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    return made;
  });
  return el("tr", "", ...cells);
}

function row(line, shown) {
  const cells = shown.map((column) => {
    const made = el(column.head ? "th" : "td", column.number ? "n" : "");
    if (column.head) made.scope = "row";
    made.append(column.show ? column.show(line) : String(column.value(line)));
    return made;
  });
  return el("tr", "", ...cells);
}

function matches(line, wanted) {
  if (at("run").value && runs[line[RUN]] !== at("run").value) return false;
  if (at("part").value && words[line[PART]] !== at("part").value) return false;
  if (at("kind").value && words[line[KIND]] !== at("kind").value) return false;
  if (at("ending").value && endings[line[ENDING]] !== at("ending").value) return false;
  if (!wanted.length) return true;
  const text = [words[line[TASK]], words[line[KIND]], words[line[WHY]], line[ID]].join("\n").toLowerCase();
  return wanted.every((word) => text.includes(word));
}

function compared(one, other) {
  if (one === other) return 0;
  if (one === null || other === null) return one === null ? 1 : -1;
  return (one < other ? -1 : 1) * (state.down ? -1 : 1);
}

function filter() {
  const wanted = at("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  state.found = data.episodes.filter((line) => matches(line, wanted));
  if (state.by) state.found.sort((one, other) => compared(state.by.value(one), state.by.value(other)));
  table.tHead.replaceChildren(header(columns()));
  turn(0);
}

function turn(page) {
  const pages = Math.max(1, Math.ceil(state.found.length / PER_PAGE));
  state.page = Math.min(Math.max(page, 0), pages - 1);
  const first = state.page * PER_PAGE;
  const shown = columns();
  table.tBodies[0].replaceChildren(...state.found.slice(first, first + PER_PAGE).map((line) => row(line, shown)));
  const all = data.episodes.length;
  const some = state.found.length === all ? "" : `${whole(state.found.length)} of `;
  at("count").textContent = `${some}${whole(all)} episodes`;
  at("page").textContent = `page ${whole(state.page + 1)} of ${whole(pages)}`;
  at("pages").hidden = pages === 1;
  at("earlier").disabled = state.page === 0;
  at("later").disabled = state.page === pages - 1;
}

function options(id, values) {
  const known = [...new Set(values)];
  for (const value of known) {
    const made = el("option", "", value);
    made.value = value;
    at(id).append(made);
  }
  const label = at(`${id}-label`);
  if (label) label.hidden = known.length < 2;
}

const table = at("episode-list")?.querySelector("table");
if (table) {
  at("episode-list").querySelector(".note")?.remove();
  options("run", runs);
  options("part", data.episodes.map((line) => words[line[PART]]));
  options("kind", data.episodes.map((line) => words[line[KIND]]));
  options("ending", endings.filter((_, place) => data.episodes.some((line) => line[ENDING] === place)));
  at("filters").hidden = false;
  at("filters").addEventListener("input", filter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("earlier").addEventListener("click", () => turn(state.page - 1));
  at("later").addEventListener("click", () => turn(state.page + 1));
  filter();
}
document.body.dataset.ready = "yes";
