// The chosen turn: what is known of it, its exact context, and its answer.

const EDGES = {
  continuation: "goes on from",
  fresh_prompt: "a fresh prompt",
  rerender: "rendered again",
  compaction: "compacted",
  strip_reasoning: "reasoning stripped",
  retry: "a retry",
  subagent_call: "a call of a subagent",
  subagent_return: "a subagent's answer",
  system_swap: "another system prompt",
  tools_change: "other tools",
  auxiliary: "a side call",
  unknown: "nobody knows how",
};
const REASONS = {
  unused_attempt: "the episode went on with another attempt",
  failed_turn: "the turn failed",
  aborted: "the engine was stopped in the middle",
  auxiliary: "a side call",
  forced: "prefilled ids",
  inexact_ids: "the ids may be others than were drawn",
  demonstration: "not the policy\u2019s own words",
  no_logprobs: "the engine gave no log-probabilities",
  sentinel_logprobs: "the engine gave stand-ins for log-probabilities",
  redacted: "ids were taken out of the file",
  no_sampling: "nobody knows the temperature",
};
const ORIGINS = {
  prompt: "first prompt",
  observation: "world",
  tool: "tool",
  sampled: "drawn by the policy",
  demonstration: "expert",
  forced: "prefilled",
};

/** Say in a few words where a turn's context came from. */
function edgeWords(turn) {
  const { kind, source } = turn.edge;
  if (kind === "continuation") return `goes on from turn ${source}`;
  if (source === null) return EDGES[kind];
  return source === turn.index ? `${EDGES[kind]} of the same turn` : `${EDGES[kind]}, from turn ${source}`;
}

class TurnPanel {
  /**
   * @param trace The trace.
   * @param episode Its line in the list of episodes.
   * @param turn The turn.
   * @param parts What was loaded for it: `{chunk, context, completion, difference, marks, words}`.
   */
  constructor(trace, episode, turn, parts) {
    Object.assign(this, { trace, episode, turn }, parts);
    this.bySpan = new Map(this.chunk.turns.map((other) => [other.completion, other]));
    for (const other of this.chunk.turns) if (other.used) this.bySpan.set(other.completion, other);
    this.bySpan.set(turn.completion, turn);
    this.info = el("div.info", el("span.faint", "Point at a token, or choose one with the arrow keys."));
    this.info.setAttribute("role", "status");
    const tell = (box, chosen) => this.tell(box, chosen);
    this.before = new Tokens("Exact context", this.context.map((span) => this.segment(span)), this.words, tell);
    this.answer = new Tokens("Answer", [this.segment(this.completion)], this.words, tell);
  }

  elements() {
    const words = [this.title(), this.notes(), this.said(), this.facts()];
    return [el("div.scroll", ...words, this.bar(), this.before.root, this.answer.root, ...this.more()), this.info];
  }

  title() {
    const { turn } = this;
    const again = turn.attempt || this.chunk.turns.some((other) => other !== turn && other.index === turn.index);
    const name = again ? `Turn ${turn.index}, attempt ${turn.attempt}` : `Turn ${turn.index}`;
    const badges = [
      el(`span.badge.${turn.used ? "used" : "quiet"}`, turn.used ? "used" : "not used"),
      turn.reward ? el("span.badge", `reward ${signed(turn.reward)}`) : null,
      turn.terminated ? el("span.badge", "ended by the world") : null,
      turn.truncated ? el("span.badge.warn", `ended by a limit: ${brief(turn.truncation ?? "not named")}`) : null,
      turn.format_ok === false ? el("span.badge.warn", "broken form") : null,
      turn.valid_action === false ? el("span.badge.warn", "refused by the world") : null,
    ];
    const edge = el("p.edge", el("span.kind", turn.edge.kind), ` ${edgeWords(turn)}`);
    edge.append(turn.edge.declared ? ", declared by the harness" : ", found out from the ids");
    if (this.difference !== null) {
      edge.append(`; first difference at id ${whole(this.difference)} of ${whole(turn.length)} `);
      edge.append(button("Show", () => this.before.go(this.difference)));
    }
    const reason = turn.edge.reason ? block(turn.edge.reason, "div.text.reason") : null;
    return el("div.head", el("h2", name, " ", ...badges.filter(Boolean)), edge, reason);
  }

  notes() {
    const { turn } = this;
    const notes = el("div.notes");
    if (turn.failure) notes.append(failureNote(turn.failure));
    if (turn.redacted.length) {
      const gone = `${turn.redacted.join(" and ")} of this turn were taken out of the file.`;
      notes.append(el("div.note.warn", el("b", "Redacted: "), gone));
    }
    for (const mark of marksOf(this.chunk, turn)) {
      const side = mark.position < turn.length ? this.before : this.answer;
      const place = side === this.before ? mark.position : mark.position - turn.length;
      const detail = mark.detail ? `: ${brief(mark.detail, MOST)}` : "";
      const where = `at id ${whole(mark.position)}, ${count(mark.count, "id")}${detail} `;
      const go = button("Show", () => side.go(place));
      const line = el("div", el("b", `Drift: ${brief(mark.kind)} `), where, go);
      notes.append(el("div.note.drift-note", line, this.side("exact", mark.exact), this.side("text", mark.text)));
    }
    return notes;
  }

  /** One side of a drift, id by id. */
  side(name, ids) {
    const made = el("div.side", el("span.faint", `${name} `));
    made.append(...ids.map((id) => tokenBox(id, this.words.get(id))));
    if (!ids.length) made.append("nothing");
    return made;
  }

  said() {
    const { turn } = this;
    const made = el("div.said");
    if (turn.text) made.append(el("h3", "Said"), block(turn.text));
    else made.append(el("p.faint", turn.failure ? "It said nothing." : "No text was kept."));
    if (turn.action && turn.action !== turn.text) made.append(el("h3", "Told to the world"), block(turn.action));
    return made;
  }

  facts() {
    const { turn } = this;
    const trained = (reason) => (reason === null ? "trained" : `not trained: ${reason}, ${REASONS[reason] ?? ""}`);
    const sampled = (sampling) => Object.entries(sampling ?? {}).map((pair) => pair.join(" ")).join(", ") || "unknown";
    const lines = [
      ["rl", trained(turn.rl)],
      ["sft", trained(turn.sft)],
      ["finish", turn.finish],
      ["ids", turn.exact ? "as the engine gave them" : `not exact: ${turn.note || "guessed from text"}`],
      ["log-probabilities", turn.logprob_kind],
      ["engine", turn.engine || "not named"],
      ["sampling", sampled(turn.sampling)],
      ["weights", turn.versions.map((run) => `${run[0]} (${run[1]} to ${run[2]})`).join(", ") || "not named"],
      ["evidence", turn.evidence || "none"],
      ["form kept", yes(turn.format_ok)],
      ["action accepted", yes(turn.valid_action)],
      ["time", turn.started ? `${time(turn.started)}, ${short(turn.ended - turn.started)} s` : "not noted"],
      ["seed", turn.seed],
      ["sent", turn.sent],
    ];
    return facts(lines);
  }

  bar() {
    const position = el("input");
    position.type = "number";
    position.placeholder = "id no.";
    position.min = 0;
    position.max = this.before.total + this.answer.total - 1;
    position.addEventListener("change", () => {
      const place = Math.trunc(Number(position.value));
      if (place < this.before.total) this.before.go(Math.max(0, place));
      else this.answer.go(place - this.before.total);
    });
    const go = el("label.go", "Go to ", position);
    const answer = button("To the answer", () => this.answer.root.scrollIntoView({ block: "end" }));
    const switches = [choices("colour", "Colour", COLOURS), choices("show", "Show", SHOWN)];
    return el("div.toolbar", ...switches, go, answer, this.legend());
  }

  legend() {
    const swatch = () => el("span.t.swatch", "\u00a0");
    const key = (kind, words) => el("span.key", el(`span.${kind}`, swatch()), ` ${words}`);
    const present = new Set([...this.before.segments, ...this.answer.segments].map((segment) => segment.origin));
    const origins = Object.keys(ORIGINS).filter((origin) => present.has(origin));
    const steps = STEPS.map((step, place) => {
      const made = key("none", place === STEPS.length - 1 ? `p < ${STEPS[place - 1]}` : `p \u2265 ${step}`);
      made.querySelector(".t").classList.add(`l${place}`);
      return made;
    });
    const ends = { n3: "\u2264 \u22121.25", zero: "0", p3: "\u2265 1.25" };
    const leanings = ADVANTAGES.map(([, name]) => key(`a-${name}`, ends[name] ?? ""));
    return el(
      "div.legend",
      el("div.for-origin", ...origins.map((origin) => key(`o-${origin}`, `${origin} (${ORIGINS[origin]})`))),
      el("div.for-logprob", ...steps, key("none", "without log-probability")),
      el("div.for-advantage", ...leanings, el("span.key", this.advantageWords())),
    );
  }

  advantageWords() {
    const { episode, trace } = this;
    const deviation = `(standard deviation + ${trace.epsilon.toExponential()})`;
    const rule = `(return \u2212 mean of its group) / ${deviation}, as GRPO, on tokens that rl trains`;
    if (episode.advantage !== null) return `${signed(episode.advantage)} for this rollout: ${rule}.`;
    return `This rollout has no advantage: ${rule}; that takes a group of at least two ended rollouts.`;
  }

  segment(span) {
    const turn = this.bySpan.get(span.number);
    const trained = turn !== undefined && turn.rl === null;
    const replaced = span.replaced ? `, ${count(span.replaced, "lone surrogate")} replaced` : "";
    return {
      origin: span.origin,
      label: `${turn ? `turn ${turn.index} ` : ""}\u00b7 ${count(span.ids.length, "id")}${replaced}`,
      ids: span.ids,
      logprobs: span.logprobs,
      versions: turn?.versions ?? [],
      trained: turn ? turn.rl ?? "" : null,
      advantage: trained ? this.episode.advantage : null,
      marks: this.marks.get(span.number),
    };
  }

  /** Say what is known of a token; while one is chosen, pointing at others changes nothing. */
  tell(box, chosen) {
    const inAnswer = this.answer.segments.includes(box.segment);
    if (chosen) (inAnswer ? this.before : this.answer).release();
    else if (this.before.chosen || this.answer.chosen) return;
    const { segment, offset, marks } = box;
    const start = inAnswer ? this.before.total : segment.start;
    const id = segment.ids[offset];
    const parts = [];
    const add = (name, value) => parts.push(el("span", el("b", name), ` ${value}`));
    add("position", whole(start + offset));
    if (id !== undefined) {
      const text = this.words.get(id);
      add("id", id);
      add("text", text === undefined ? "not stored" : visible(JSON.stringify(text)));
      const logprob = segment.logprobs?.[offset];
      if (logprob !== undefined) add("log-probability", `${float32(logprob)} (p ${short(100 * Math.exp(logprob))} %)`);
      const run = segment.versions.find(([, first, end]) => first <= offset && offset < end);
      if (run) add("weights", visible(run[0]));
      if (segment.trained !== null) add("rl", segment.trained === "" ? "trained" : `not trained: ${segment.trained}`);
      if (segment.advantage !== null) add("advantage", signed(segment.advantage));
    }
    add("origin", segment.origin);
    for (const mark of marks ?? []) add("drift", `${visible(mark.kind)}, ${count(mark.count, "id")}`);
    this.info.replaceChildren(...parts);
  }

  more() {
    const { turn, trace } = this;
    const fold = (name, ...inside) => el("details.fold", el("summary", name), ...inside);
    const made = [];
    if (turn.messages.length) {
      const folded = fold(`${count(turn.messages.length, "message")} in text`);
      // Drawn when they are wanted: there may be hundreds.
      folded.addEventListener("toggle", () => folded.append(...turn.messages.map(messageBox)), { once: true });
      made.push(folded);
    }
    const { tools } = trace.roots[turn.root];
    if (tools !== "[]") made.push(fold("Tools", block(tools, "pre.text")));
    if (turn.facts) made.push(fold("Facts", block(turn.facts, "pre.text")));
    return made;
  }
}

function failureNote({ boundary, kind, message }) {
  const head = el("b", `Failed at ${boundary}: `);
  return el("div.note.bad", head, brief(kind, MOST), message ? block(message) : null);
}

function messageBox(message) {
  const name = message.name === undefined ? "" : ` ${brief(message.name)}`;
  const answers = message.answers === undefined ? "" : `, answers ${brief(message.answers)}`;
  const trusted = message.trusted ? " \u00b7 trusted" : "";
  const head = el("div.role", el("b", brief(message.role)), `${name}${answers}${trusted}`);
  const made = el("div.message", head);
  if (message.reasoning !== undefined) made.append(el("div.faint", "reasoning"), block(message.reasoning));
  if (message.content) made.append(block(message.content));
  for (const image of message.images ?? []) made.append(el("div.faint", `image ${brief(image)}`));
  for (const call of message.calls ?? []) {
    const words = `call ${brief(call.id)} of ${brief(call.name)}, ${brief(call.status)}`;
    made.append(el("div.faint", words), block(call.arguments, "pre.text"));
  }
  return made;
}
