// The page: what is chosen, and where that is shown.

const COLOURS = { origin: "origin", logprob: "log-prob", advantage: "advantage" };
const SHOWN = { text: "text", ids: "ids", both: "both" };

let trace;
let asked = 0;
const chosen = { episode: null, chunk: null, turn: null, open: new Map() };

/** Buttons of which one is on; the choice stands on the body, where the style sheet reads it. */
function choices(name, label, values) {
  const made = el("div.choices", el("span.faint", label));
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", label);
  for (const [value, words] of Object.entries(values)) {
    const one = button(words, () => choose(name, value));
    one.dataset.choice = `${name} ${value}`;
    one.setAttribute("aria-pressed", document.body.dataset[name] === value);
    made.append(one);
  }
  return made;
}

function choose(name, value) {
  document.body.dataset[name] = value;
  for (const one of document.querySelectorAll(`[data-choice^="${name} "]`)) {
    one.setAttribute("aria-pressed", one.dataset.choice === `${name} ${value}`);
  }
}

function cycle(name, values) {
  const names = Object.keys(values);
  choose(name, names[(names.indexOf(document.body.dataset[name]) + 1) % names.length]);
}

// ---- turns

function drawTurn(row, element) {
  element.style.setProperty("--depth", Math.min(row.depth, 12));
  element.setAttribute("aria-level", row.depth + 1);
  if (row.turn) return drawAttempt(row.turn, element);
  const episode = trace.episodes[row.agent];
  const open = chosen.open.has(row.agent);
  element.classList.add("agent");
  element.setAttribute("aria-expanded", open);
  const [kind, words] = verdict(episode);
  const name = el("span.name", `${open ? "\u25be" : "\u25b8"} subagent ${brief(episode.role)}`);
  const small = [taskOf(episode, 60), count(episode.turns, "turn"), `return ${short(episode.return)}`];
  element.append(
    el("div.line", name, el(`span.badge.${kind}`, words)),
    el("div.small", ...small.map((text) => el("span", text))),
  );
}

function drawAttempt(turn, element) {
  element.classList.add(turn.used ? "used" : "unused");
  if (turn.failure) element.classList.add("failed");
  const drifts = marksOf(loaded(turn.episode), turn);
  const said = brief(turn.action || turn.text || (turn.failure?.kind ?? "")) || "\u2013";
  const number = turn.attempt || !turn.used ? `${turn.index}.${turn.attempt}` : `${turn.index}`;
  const fork = turn.edge.kind === "continuation";
  const plain = fork && turn.edge.source === turn.index - 1;
  const more = drifts.length > 1 ? ` +${drifts.length - 1}` : "";
  const reward = turn.reward ? el(`span.reward.${turn.reward > 0 ? "good" : "bad"}`, signed(turn.reward)) : null;
  element.append(
    el("div.line", el("span.number", number), el("span.name", said), reward),
    el(
      "div.small",
      plain ? null : el("span.kind", fork ? `fork of ${turn.edge.source}` : turn.edge.kind),
      turn.edge.declared ? null : el("span", "found"),
      el("span", `${whole(turn.length)} ids`),
      turn.used ? null : el("span", "not used"),
      turn.failure ? el("span.is-bad", `\u2715 ${turn.failure.boundary}`) : null,
      drifts.length ? el("span.is-drift", `\u25c6 ${brief(drifts[0].kind)}${more}`) : null,
    ),
  );
  element.title = `${edgeWords(turn)}${turn.edge.reason ? `: ${brief(turn.edge.reason)}` : ""}`;
}

function loaded(number) {
  return number === chosen.episode?.number ? chosen.chunk : chosen.open.get(number);
}

const turns = new List(
  at("turns"),
  46,
  drawTurn,
  (row, by) => (row.turn ? openTurn(row.turn) : by === "key" ? turns.mark(row.key) : fold(row.agent)),
  (row) => row.key,
);

async function fold(number, only) {
  const { open } = chosen;
  if (open.has(number) && only !== "open") open.delete(number);
  else if (only !== "close") open.set(number, await trace.episode(number));
  if (open !== chosen.open) return; // another episode was opened meanwhile
  turns.fill(rowsOf(trace, chosen.chunk, chosen.open));
  turns.mark(`agent ${number}`);
}

function drawHead() {
  const { episode } = chosen;
  const [kind, words] = verdict(episode);
  const size = trace.groups.get(episode.group);
  const unseen = "not looked at: the chat format could not be made";
  const lines = [
    ["id", episode.id],
    ["source", episode.source || "not named"],
    ["group", `${brief(episode.group, 8)}, ${size > 1 ? `${whole(size)} rollouts` : "alone"}`],
    ["return", short(episode.return)],
    ["longest", count(episode.longest, "id")],
    ["advantage", episode.advantage === null ? "none" : signed(episode.advantage)],
    ["drifts", episode.drifts === null ? unseen : episode.drifts || "none"],
    ["begun", time(episode.created)],
  ];
  const group = () => {
    at("group").value = episode.group;
    filter();
  };
  const made = [
    trace.prefix ? el("p.faint.prefix", brief(trace.prefix)) : null,
    el("h2", taskOf(episode, MOST), " ", el(`span.badge.${kind}`, words)),
    facts(lines, ["id", "begun"]),
    size > 1 ? button("Show its group", group) : null,
    episode.parent === null ? null : parentLine(episode),
    episode.failure ? failureNote(episode.failure) : null,
  ];
  at("episode").replaceChildren(...made.filter(Boolean));
}

function parentLine(episode) {
  const where = episode.parent_turn === null ? "" : ` at its turn ${episode.parent_turn}`;
  const parent = trace.byId.get(episode.parent);
  const open = parent === undefined ? "That episode is not in this run." : button("Open it", () => openEpisode(parent));
  return el("p", `A subagent of ${brief(episode.parent)}${where}. `, open);
}

// ---- choosing

/** Open an episode, and one of its turns: `{agent, turn: "index.attempt"}`, by default the first. */
async function openEpisode(number, wanted = {}) {
  const mine = ++asked;
  const chunk = await trace.episode(number);
  if (mine !== asked) return;
  Object.assign(chosen, { episode: trace.episodes[number], chunk, turn: null, open: new Map() });
  const inside = await unfold(number, wanted.agent);
  if (mine !== asked) return;
  drawHead();
  turns.fill(rowsOf(trace, chunk, chosen.open));
  turns.root.scrollTop = 0;
  episodes.mark(number);
  const turn = inside.turns.find((one) => `${one.index}.${one.attempt}` === wanted.turn) ?? inside.turns[0];
  if (turn) return openTurn(turn);
  turns.mark(null);
  const running = chosen.episode.status === "running";
  say(running ? "This episode has no turn yet." : "This episode ended before its first turn.");
  remember();
}

/** Open the subagents down to one of them, and return the chunk of that one. */
async function unfold(number, agent) {
  const path = [];
  for (let inner = trace.byId.get(agent); inner !== undefined && inner !== number; ) {
    path.unshift(inner);
    inner = trace.byId.get(trace.episodes[inner].parent);
    if (inner === undefined || path.includes(inner)) return chosen.chunk;
  }
  for (const inner of path) chosen.open.set(inner, await trace.episode(inner));
  return path.length ? chosen.open.get(path.at(-1)) : chosen.chunk;
}

async function openTurn(turn) {
  const mine = ++asked;
  turns.mark(`turn ${turn.episode} ${turn.seq}`);
  const chunk = loaded(turn.episode);
  const [context, completion, difference, marks, words] = await Promise.all([
    trace.context(turn.context),
    trace.span(turn.completion),
    trace.difference(chunk, turn),
    trace.marks(chunk),
    trace.texts(),
  ]);
  if (mine !== asked) return;
  chosen.turn = turn;
  const parts = { chunk, context, completion, difference, marks, words };
  const panel = new TurnPanel(trace, trace.episodes[turn.episode], turn, parts);
  document.body.classList.toggle("wordless", words.size === 0);
  at("turn").replaceChildren(...panel.elements());
  remember();
}

function say(text) {
  at("turn").replaceChildren(el("p.empty", text));
}

// ---- the address

function remember() {
  const place = new URLSearchParams({ episode: chosen.episode.id });
  const { turn } = chosen;
  if (turn && turn.episode !== chosen.episode.number) place.set("agent", trace.episodes[turn.episode].id);
  if (turn) place.set("turn", `${turn.index}.${turn.attempt}`);
  history.replaceState(null, "", `#${place}`);
}

function recall() {
  const place = new URLSearchParams(location.hash.slice(1));
  const number = trace.byId.get(place.get("episode")) ?? episodes.items[0]?.number;
  if (number === undefined) return say("This run has no episode yet.");
  return openEpisode(number, { agent: place.get("agent"), turn: place.get("turn") });
}

// ---- keys

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
  const acts = {
    "/": () => at("words").focus(),
    "[": () => turns.move(-1),
    "]": () => turns.move(1),
    c: () => cycle("colour", COLOURS),
    t: () => cycle("show", SHOWN),
  };
  if (!Object.hasOwn(acts, event.key)) return;
  event.preventDefault();
  acts[event.key]();
}

function pressTurns(event) {
  const row = turns.items[turns.place];
  if (row?.agent === undefined) return;
  if (event.key === "ArrowRight") fold(row.agent, "open");
  if (event.key === "ArrowLeft") fold(row.agent, "close");
  if (event.key === "Enter" || event.key === " ") fold(row.agent);
}

function drawRun() {
  const { run, folder } = trace;
  const { library } = run;
  const sampled = trace.episodes.reduce((sum, episode) => sum + episode.sampled, 0);
  const attempts = trace.episodes.reduce((sum, episode) => sum + episode.attempts, 0);
  document.title = `${visible(folder)} \u00b7 trace`;
  at("name").textContent = visible(folder);
  const parts = [run.source, run.prompting, run.chat && `chat ${run.chat}`].filter(Boolean).map((part) => brief(part));
  parts.push(count(trace.episodes.length, "episode"), count(attempts, "turn"), `${whole(sampled)} sampled ids`);
  at("about").textContent = parts.join(" \u00b7 ");
  const lines = [
    ["chat", run.chat || "not named"],
    ["fingerprint", run.fingerprint],
    ["vocabulary", whole(run.vocab_size)],
    ["made with", library],
    ["commit", run.commit ?? "not noted"],
    ["format", run.format_version],
    ["begun", time(run.created)],
  ];
  at("run-facts").replaceChildren(
    facts(lines),
    block(trace.config, "pre.text"),
  );
}

async function start() {
  choose("colour", "origin");
  choose("show", "text");
  if (typeof DecompressionStream === "undefined") return say("This browser is too old to unpack the trace.");
  trace = await Trace.open();
  drawRun();
  at("drifting").disabled = trace.episodes.every((episode) => episode.drifts === null);
  at("filters").addEventListener("input", filter);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("turns").addEventListener("keydown", pressTurns);
  document.addEventListener("keydown", press);
  addEventListener("hashchange", recall);
  filter();
  await recall();
  document.body.dataset.ready = "yes";
}

addEventListener("unhandledrejection", ({ reason }) => say(`This cannot be shown: ${reason?.message ?? reason}`));
start();
