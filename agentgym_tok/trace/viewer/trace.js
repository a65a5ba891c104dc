// The data of the page: chunks of base64, unpacked when somebody asks for them.

const MOST_KEPT = 24;

/** Unpack one data block: its JSON, and the bytes behind it. The layout stands in agentgym_tok/trace/chunks.py. */
async function unpack(name) {
  const block = document.getElementById(name);
  if (!block) throw new Error(`the page is not complete: ${name} is missing`);
  const text = atob(block.textContent);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const json = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { json, buffer, offset: 4 + length };
}

class Trace {
  static async open() {
    const trace = new Trace();
    const { json: index } = await unpack("index");
    Object.assign(trace, index);
    trace.byId = new Map(trace.episodes.map((episode, number) => [episode.id, number]));
    trace.children = new Map();
    trace.episodes.forEach((episode, number) => {
      episode.number = number;
      episode.advantage = Object.hasOwn(index.advantages, episode.id) ? index.advantages[episode.id] : null;
      const parent = episode.parent === null ? undefined : trace.byId.get(episode.parent);
      episode.top = parent === undefined;
      if (parent === undefined) return;
      if (!trace.children.has(parent)) trace.children.set(parent, []);
      trace.children.get(parent).push(number);
    });
    trace.groups = new Map();
    for (const episode of trace.episodes) trace.groups.set(episode.group, (trace.groups.get(episode.group) ?? 0) + 1);
    trace.prefix = shared(trace.episodes.map((episode) => episode.task));
    trace.loaded = new Map();
    return trace;
  }

  /** Return the texts of ids. */
  async texts() {
    this.words ??= unpack("tokens").then(({ json }) => new Map(json.ids.map((id, place) => [id, json.texts[place]])));
    return this.words;
  }

  /** Return an episode's turns, spans and marks. */
  async episode(number) {
    const known = this.loaded.get(number);
    this.loaded.delete(number);
    const chunk = known ?? this.read(number);
    this.loaded.set(number, chunk);
    if (this.loaded.size > MOST_KEPT) this.loaded.delete(this.loaded.keys().next().value);
    return chunk;
  }

  async read(number) {
    const { json: { first, spans, turns, marks }, buffer, offset } = await unpack(`episode-${number}`);
    let ids = offset;
    let logprobs = offset + 4 * spans.reduce((sum, span) => sum + span[2], 0);
    const made = spans.map(([parent, origin, length, scored, replaced], place) => {
      const span = { number: first + place, parent, origin, replaced, logprobs: null };
      span.ids = new Int32Array(buffer, ids, length);
      ids += 4 * length;
      if (scored) {
        span.logprobs = new Float32Array(buffer, logprobs, length);
        logprobs += 4 * length;
      }
      return span;
    });
    turns.forEach((turn, seq) => Object.assign(turn, { seq, episode: number }));
    return { number, first, spans: made, turns, marks };
  }

  /** Return a span, from whichever episode met it first. */
  async span(number) {
    let low = 0;
    let high = this.episodes.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.episodes[middle].first <= number) low = middle;
      else high = middle - 1;
    }
    const { first, spans } = await this.episode(low);
    return spans[number - first];
  }

  /** Return the spans of a context, oldest first. */
  async context(last) {
    const spans = [];
    for (let number = last; number >= 0; ) {
      const span = await this.span(number);
      spans.push(span);
      number = span.parent;
    }
    return spans.reverse();
  }

  /** Return where a turn's context leaves the ids of the turn that it comes from; null where it does not. */
  async difference(chunk, turn) {
    const { kind, source, place } = turn.edge;
    if (place !== null || source === null || kind === "continuation") return place;
    const before = chunk.turns.slice(0, turn.seq);
    const from = step({ turns: before }, source);
    if (!from) return null;
    const old = [...(await this.context(from.context)), await this.span(from.completion)];
    const ids = (await this.context(turn.context)).flatMap((span) => [...span.ids]);
    const past = old.flatMap((span) => [...span.ids]);
    const found = ids.findIndex((id, at) => id !== past[at]);
    return found < 0 ? null : found;
  }

  /** Return an episode's drift marks by span, each with its offset there. */
  async marks(chunk) {
    chunk.placed ??= this.place(chunk);
    return chunk.placed;
  }

  async place(chunk) {
    const placed = new Map();
    for (const mark of chunk.marks) {
      const turn = step(chunk, mark.turn);
      if (!turn) continue;
      // From behind: a mark stands near the end of its turn, and a context may be thousands of spans long.
      let span = await this.span(turn.completion);
      let start = turn.length;
      while (mark.position < start && span.parent >= 0) {
        span = await this.span(span.parent);
        start -= span.ids.length;
      }
      // Behind the last id is a place too: what a text pipeline adds there.
      const marks = placed.get(span.number) ?? new Map();
      const offset = mark.position - start;
      marks.set(offset, [...(marks.get(offset) ?? []), mark]);
      placed.set(span.number, marks);
    }
    return placed;
  }
}

/** Return the folders that all names begin with: "world/split/" says nothing where every task has it. */
function shared(names) {
  const [first = "", ...others] = new Set(names);
  let end = first.lastIndexOf("/") + 1;
  const all = () => others.every((name) => name.startsWith(first.slice(0, end)));
  while (end > 0 && !all()) end = first.lastIndexOf("/", end - 2) + 1;
  return others.length ? first.slice(0, end) : "";
}

/** Return the attempt that an episode went on with at a turn, else the last one. */
function step(chunk, index) {
  const attempts = chunk.turns.filter((turn) => turn.index === index);
  return attempts.find((turn) => turn.used) ?? attempts.at(-1);
}

/** Return the drift marks of an attempt; those of a turn belong to the attempt that the episode went on with. */
function marksOf(chunk, turn) {
  const marks = chunk.marks.filter((mark) => mark.turn === turn.index);
  return marks.length && step(chunk, turn.index) === turn ? marks : [];
}
