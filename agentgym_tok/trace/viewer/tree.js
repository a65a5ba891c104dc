// The tree of an episode: the walk is the trunk; other attempts, forks, side calls and subagents are branches.

/**
 * Return the rows of a tree from top to bottom.
 *
 * @param trace The trace.
 * @param chunk The episode.
 * @param open Chunks of the subagents that are unfolded, by number.
 */
function rowsOf(trace, chunk, open) {
  const rows = [];
  // A stack, since a walk may be thousands of turns deep.
  const waiting = [...forest(trace, chunk, 0)].reverse();
  while (waiting.length) {
    const row = waiting.pop();
    rows.push(row);
    const below = row.turn ? row.below() : open.has(row.agent) ? forest(trace, open.get(row.agent), row.depth + 1) : [];
    for (const next of [...below].reverse()) waiting.push(next);
  }
  return rows;
}

/** Return the first rows of an episode; each turn's row knows what stands below it. */
function forest(trace, chunk, depth) {
  const steps = new Map();
  const parents = new Map();
  const children = new Map([[null, []]]);
  for (const turn of chunk.turns) {
    const again = turn.edge.source === turn.index ? steps.get(turn.index) : undefined;
    const parent = again ? parents.get(again) : (steps.get(turn.edge.source) ?? null);
    parents.set(turn, parent);
    children.get(parent).push(turn);
    children.set(turn, []);
    if (turn.used || !steps.get(turn.index)?.used) steps.set(turn.index, turn);
  }
  const agents = new Map();
  const stray = [];
  for (const number of trace.children.get(chunk.number) ?? []) {
    const turn = steps.get(trace.episodes[number].parent_turn);
    if (turn) agents.set(turn, [...(agents.get(turn) ?? []), number]);
    else stray.push(number);
  }
  const agent = (level) => (number) => ({ agent: number, depth: level, key: `agent ${number}` });
  const row = (turn, level) => ({
    turn,
    depth: level,
    key: `turn ${chunk.number} ${turn.seq}`,
    below() {
      const next = children.get(turn);
      const trunk = next.findLast((child) => child.used && child.edge.kind !== "auxiliary");
      const side = next.filter((child) => child !== trunk);
      return [
        ...side.map((child) => row(child, level + 1)),
        ...(agents.get(turn) ?? []).map(agent(level + 1)),
        ...(trunk ? [row(trunk, level)] : []),
      ];
    },
  });
  return [
    ...children.get(null).map((turn) => row(turn, turn.used && turn.edge.kind !== "auxiliary" ? depth : depth + 1)),
    ...stray.map(agent(depth + 1)),
  ];
}
