from test_summary import *
def test_x(opening, tmp_path):
    def stops(request): return sampled([*opening.encode(NOTES).tolist(), opener(opening, "<tool_call>")], request)
    c = SummaryCompaction(at_turns=3, keep=0, request="Write notes for yourself.")
    ep = play(tmp_path, opening, policy(opening, c.request, stops, goes_until_opened), c, max_steps=5)
    print(opening.stop_ids, opening.parse(stops(Request(as_ids([1]))).ids_T))
    for t in ep.turns: print(t.index,t.attempt,t.edge,t.facts, t.completion.ids_T[-1], opening.decode(t.context.ids[-60:]))
    assert 0
