// The list of episodes: what a line says, and which lines are in it.

function verdict(episode) {
  if (episode.status === "failed" || episode.status === "abandoned") return ["bad", episode.status];
  if (episode.status === "running") return ["quiet", "running"];
  if (episode.success === null) return ["quiet", "done"];
  return episode.success ? ["good", "success"] : ["warn", "no success"];
}

/** Return an episode's task without what all tasks begin with. */
function taskOf(episode, most) {
  return brief(episode.task.slice(trace.prefix.length), most) || "(no task)";
}

function drawEpisode(episode, row) {
  const [kind, words] = verdict(episode);
  const name = episode.top ? taskOf(episode) : `\u21b3 ${brief(episode.role)} \u00b7 ${taskOf(episode)}`;
  row.title = brief(episode.task, MOST);
  const badge = el(`span.badge.${kind}`, words);
  const small = el(
    "div.small",
    el("span", `return ${short(episode.return)}`),
    el("span", count(episode.turns, "turn")),
    el("span", `${whole(episode.sampled)} sampled`),
    episode.failures || episode.failure ? tally("span.is-bad", "\u2715", episode.failures || 1, "failure") : null,
    episode.drifts ? tally("span.is-drift", "\u25c6", episode.drifts, "drift") : null,
  );
  row.append(el("div.line", el("span.name", name), badge), small);
}

function matches(episode) {
  const words = at("words").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const { id, task, source, role, failure } = episode;
  const text = [id, task, source, role, failure?.boundary, failure?.kind, failure?.message].join("\n").toLowerCase();
  const group = at("group").value.trim();
  return (
    (at("subagents").checked || episode.top) &&
    (!at("status").value || episode.status === at("status").value) &&
    (!at("success").value || String(episode.success) === at("success").value) &&
    (!group || episode.group.includes(group)) &&
    (!at("failures").checked || episode.failures > 0 || episode.failure !== null) &&
    (!at("drifting").checked || episode.drifts > 0) &&
    words.every((word) => text.includes(word))
  );
}

const ORDERS = {
  written: (one, other) => one.number - other.number,
  high: (one, other) => other.return - one.return,
  low: (one, other) => one.return - other.return,
  turns: (one, other) => other.turns - one.turns,
  sampled: (one, other) => other.sampled - one.sampled,
};

function filter() {
  const found = trace.episodes.filter(matches).sort(ORDERS[at("order").value]);
  const all = trace.episodes.filter((episode) => episode.top).length;
  const some = found.length === all ? "" : `${whole(found.length)} of `;
  at("count").textContent = `${some}${count(all, "episode")}`;
  episodes.fill(found);
}

const episodes = new List(
  at("episodes"),
  52,
  drawEpisode,
  (episode) => openEpisode(episode.number),
  (episode) => episode.number,
);
