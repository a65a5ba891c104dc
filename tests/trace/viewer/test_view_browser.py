"""The viewer's page in a real browser: what it shows, what it never does, and how little of a long run is drawn."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.cli.trace_view import PageServer
from agentgym_tok.trace import Edge, EpisodeHead, Failure, TraceStore, Turn
from agentgym_tok.trace.viewer.view import DriftMark, write_view
from agentgym_tok.types import Message, ToolCall

PATIENCE = 60.0


def find_chromium() -> str | None:
    names = (os.environ.get("AGENTGYM_TOK_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, filter(None, names))), None)


class Chromium:
    """A headless browser, driven over a pipe by the DevTools protocol: nothing to install beside the browser."""

    def __init__(self, program: str, profile: Path) -> None:
        there, self._write = os.pipe()
        self._read, back = os.pipe()
        # Above 9, so that neither end stands where the browser looks for one: it reads 3 and writes 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (there, back)]
        silence = os.open(os.devnull, os.O_RDWR)
        targets = zip((silence, silence, silence, *ends), range(5), strict=True)
        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run"]
        options += ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # the browser refuses to have one as root
        actions = [(os.POSIX_SPAWN_DUP2, end, target) for end, target in targets]
        environment = {**os.environ, "HOME": str(profile)}
        self._process = os.posix_spawn(
            program, [program, *options, "about:blank"], environment, file_actions=actions, setpgroup=0
        )
        for end in (there, back, silence, *ends):
            os.close(end)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._send("Browser.close", {}, None)
        end = time.monotonic() + 10
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.killpg(self._process, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self._read)
        os.close(self._write)

    def _send(self, method: str, parameters: dict[str, Any], session: str | None) -> int:
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        data = json.dumps(command if session is None else {**command, "sessionId": session}).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return number

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._read, 1 << 20) if ready else b""
            if not more:
                raise TimeoutError("the browser does not answer")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, *, browser: bool = False, **parameters: Any) -> dict[str, Any]:
        number = self._send(method, parameters, None if browser else self._session)
        end = time.monotonic() + PATIENCE
        while True:
            message = self._receive(end)
            if message.get("id") == number:
                assert "error" not in message, (method, message)
                return message["result"]
            self.events.append(message)

    def open(self, url: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> "Chromium":
        """Open a page in a tab of its own and wait until it says that it is ready."""
        target = self.call("Target.createTarget", browser=True, url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", browser=True, targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait("document.body?.dataset.ready === 'yes'")
        return self

    def js(self, expression: str) -> Any:
        """Evaluate; promises are awaited."""
        done = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in done, (expression, done["exceptionDetails"])
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}; {self.complaints()}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        text: dict[str, Any] = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector: str) -> None:
        place = self.js(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        x, y = self.js(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[Any]:
        """Everything that the page printed, threw, or was refused."""
        self.js("0")
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        self.js("0")
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: install one, or set AGENTGYM_TOK_CHROMIUM to the program")
    started = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


# ---- the runs that are looked at


def ids_of(browser: Chromium, box: int) -> list[int]:
    """Return all ids of the context (0) or the answer (1), page by page, as they stand in the document."""
    return browser.js(f"""(() => {{
        const root = document.querySelectorAll(".tokens")[{box}];
        const move = (name) => [...root.querySelectorAll(".pager button")].find((one) => one.textContent === name);
        const found = [];
        move("First")?.click();
        for (;;) {{
            found.push(...[...root.querySelectorAll(".t[data-id]")].map((one) => Number(one.dataset.id)));
            const later = move("Later");
            if (!later || later.disabled) return found;
            later.click();
        }}
    }})()""")


def rows(browser: Chromium, name: str) -> list[str]:
    return browser.js(f"[...document.querySelectorAll('#{name} .row')].map((row) => row.textContent)")


def choose(browser: Chromium, name: str, value: str) -> None:
    """Set a control of the filters as a person would."""
    browser.js(f"""(() => {{
        const control = document.getElementById({json.dumps(name)});
        if (control.type === "checkbox") control.checked = {json.dumps(value == "on")};
        else control.value = {json.dumps(value)};
        control.dispatchEvent(new Event("input", {{bubbles: true}}));
    }})()""")


def turn_shown(browser: Chromium, episode: str, turn: str) -> None:
    """Open a turn by its address, as a shared link would."""
    address = urllib.parse.urlencode({"episode": episode, "turn": turn})
    browser.js("document.querySelector('#turn').replaceChildren()")
    browser.js(f"history.replaceState(null, '', '#'); location.hash = {json.dumps(address)}")
    browser.wait("document.querySelector('#turn .info')")


@pytest.fixture(scope="module")
def run(make: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a run with everything that a tree can hold."""
    folder = tmp_path_factory.mktemp("run") / "run"
    with TraceStore(folder, meta=make.meta, token_text=lambda index: f" w{index}") as store:
        # A long walk: a resampled turn, a fork, a side call, a rewrite, and subagents.
        store.begin(make.head("long", group_id="g"))
        first = make.turn("long", 0, make.prompt(*range(100, 4600)), [1, 2, 3], reward=0.25, text="first words")
        store.append(first)
        resampled = make.turn("long", 1, make.after(first, 10, 11), [4], used=False, failure=Failure("tool", "Timeout"))
        store.append(resampled)
        second = make.turn("long", 1, make.after(first, 10, 11), [5, 6], edge=Edge("retry", 1, 1, "timeout"), attempt=1)
        store.append(second)
        versions = {"weight_versions": (("v7", 0, 1), ("v8", 1, 2))}
        third = make.turn("long", 2, make.after(second, 12), [7, 8], completion=versions)
        store.append(third)
        title = make.turn("long", 3, make.prompt(20, 21), [22], edge=Edge("auxiliary", 2, 3, "a title"))
        store.append(title)
        fork = make.turn("long", 4, make.after(first, 13), [9], edge=Edge("continuation", 0, 4, declared=False))
        store.append(fork)
        rewrite = make.prompt(*range(100, 4600), 1, 2, 3, 13, 99)
        store.append(make.turn("long", 5, rewrite, [33], edge=Edge("rerender", 4, 5, "no bridge")))
        store.finish("long", "done", success=True)
        store.begin(make.head("other", group_id="g", replica=1))
        store.append(make.turn("other", 0, make.prompt(*range(100, 4600)), [40], reward=-1.0))
        store.finish("other", "done", success=False)
        for name, parent, index in (("child", "long", 2), ("grandchild", "child", 0), ("orphan", "elsewhere", 0)):
            store.begin(make.head(name, parent=parent, parent_turn=index, role="searcher"))
            store.append(make.turn(name, 0, make.prompt(50, 51), [52], text=f"said by {name}"))
            store.finish(name, "done")
        store.begin(make.head("fresh"))
        store.begin(make.head("down"))
        nothing = {"logprobs": "missing", "logprobs_T": None, "finish_reason": "abort"}
        failure = Failure("policy", "Down", "no answer")
        store.append(make.turn("down", 0, make.prompt(60), [], completion=nothing, failure=failure))
        store.finish("down", "failed", failure=failure)
    marks = {
        "long": [
            DriftMark("retokenised", 0, 4501, 2, exact=[2, 3], text=[77], detail="other pieces"),
            DriftMark("stop_token", 2, 4510, 1, text=[88], detail="it never drew one"),
        ],
        "other": [],
    }
    write_view(folder, marks=marks)
    return folder


@pytest.fixture
def page(browser: Chromium, run: Path) -> Chromium:
    return browser.open((run / "view.html").as_uri())


def stored(run: Path, episode: str) -> list[Turn]:
    with TraceStore(run, mode="r") as store:
        return list(store.episode(episode).turns)


# ---- what is shown


def test_the_page_opens_alone_and_without_complaints(page: Chromium, run: Path) -> None:
    assert page.js("document.title") == "run \u00b7 trace"
    assert len(rows(page, "episodes")) == 5
    assert page.complaints() == []
    assert page.requests() == [(run / "view.html").as_uri()]


def test_filters_and_order_of_the_list(page: Chromium) -> None:
    def listed(**controls: str) -> list[str]:
        for name, value in controls.items():
            choose(page, name, value)
        texts = rows(page, "episodes")
        assert page.js("document.getElementById('count').textContent").startswith(f"{len(texts)} ")
        for name in controls:
            choose(page, name, "written" if name == "order" else "")
        return texts

    assert len(listed(subagents="on")) == 7
    assert [("failed" in text) for text in listed(status="failed")] == [True]
    assert ["running" in text for text in listed(status="running")] == [True]
    assert ["no success" in text for text in listed(success="false")] == [True]
    assert len(listed(success="null")) == 3
    assert len(listed(group="g")) == 2
    assert len(listed(words="no answer")) == 1
    assert len(listed(words="nothing like it")) == 0
    assert len(listed(failures="on")) == 2
    assert ["\u25c6 2" in text for text in listed(drifting="on")] == [True]
    assert "return 0.25" in listed(order="high")[0]
    assert "return \u22121" in listed(order="low")[0]
    assert "6 turns" in listed(order="turns")[0]
    assert len(rows(page, "episodes")) == 5


@pytest.mark.parametrize(
    ("episode", "turn"), [("long", "0.0"), ("long", "1.0"), ("long", "1.1"), ("long", "5.0"), ("other", "0.0")]
)
def test_the_exact_context_of_a_turn_stands_in_the_document(page: Chromium, run: Path, episode: str, turn: str) -> None:
    turn_shown(page, episode, turn)
    wanted = next(found for found in stored(run, episode) if f"{found.index}.{found.attempt}" == turn)
    assert ids_of(page, 0) == wanted.context.ids.tolist()
    assert ids_of(page, 1) == wanted.completion.ids_T.tolist()
    assert page.js("document.querySelectorAll('.tokens .t').length") < 2 * 2000 + 1


def test_the_tree_has_the_walk_as_its_trunk_and_the_rest_as_branches(page: Chromium) -> None:
    turn_shown(page, "long", "0.0")
    tree = page.js(
        "[...document.querySelectorAll('#turns .row')].map((row) =>"
        " [row.getAttribute('aria-level'), row.querySelector('.number')?.textContent ?? 'agent'])"
    )
    # Turn 4 goes on from turn 0, so that 1 and 2 are the branch that was left.
    trunk_and_branches = ["1 0", "2 1.0", "2 1.1", "2 2", "3 3", "3 agent", "1 4", "1 5"]
    assert tree == [line.split() for line in trunk_and_branches]
    texts = rows(page, "turns")
    assert any("retry" in text for text in texts)
    assert any("fork of 0" in text and "found" in text for text in texts)
    assert any("rerender" in text for text in texts)
    assert any("not used" in text and "tool" in text for text in texts)


def test_subagents_unfold_and_their_turns_can_be_chosen(page: Chromium) -> None:
    turn_shown(page, "long", "0.0")
    page.click("#turns .row.agent")
    page.wait("document.querySelectorAll('#turns .row.agent').length === 2")
    page.js("[...document.querySelectorAll('#turns .row')].find((row) => row.textContent.includes('child')).click()")
    page.wait("document.querySelector('#turn .said').textContent.includes('said by child')")
    assert "agent=child" in page.js("location.hash")
    assert ids_of(page, 0) == [50, 51]
    page.open(page.js("location.href"))
    assert "said by child" in page.js("document.querySelector('#turn .said').textContent")
    address = "#" + urllib.parse.urlencode({"episode": "long", "agent": "grandchild", "turn": "0.0"})
    page.js(f"location.hash = {json.dumps(address)}")
    page.wait("document.querySelector('#turn .said').textContent.includes('said by grandchild')")


def test_edges_say_their_kind_their_reason_and_where_the_context_leaves_its_source(page: Chromium) -> None:
    turn_shown(page, "long", "5.0")
    head = page.js("document.querySelector('#turn .head').textContent")
    assert "rerender rendered again, from turn 4, declared by the harness" in head
    assert "first difference at id 4,504 of 4,505" in head
    assert "no bridge" in head
    page.click("#turn .edge button")
    assert page.js("document.querySelector('.t.chosen').dataset.id") == "99"
    assert "position 4,504" in page.js("document.querySelector('.info').textContent")
    turn_shown(page, "long", "4.0")
    assert "found out from the ids" in page.js("document.querySelector('#turn .head').textContent")


def test_a_token_says_its_id_position_log_probability_weights_and_training(page: Chromium, run: Path) -> None:
    turn_shown(page, "long", "2.0")
    page.hover(".tokens:last-of-type .t[data-id='8']")
    page.wait("document.querySelector('.info').textContent.includes('id 8')")
    info = page.js("document.querySelector('.info').textContent")
    turn = next(found for found in stored(run, "long") if found.index == 2)
    assert turn.completion.logprobs_T is not None
    assert f"log-probability {turn.completion.logprobs_T[1]!s}" in info
    for words in (f"position {len(turn.context) + 1:,}", 'text " w8"', "weights v8", "rl trained", "origin sampled"):
        assert words in info
    # GRPO by hand: returns 0.25 and -1, mean -0.375, unbiased deviation 0.8839.
    assert "advantage +0.7071" in info
    page.js("document.querySelector('.tokens .flow').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    chosen = page.js("document.querySelector('.t.chosen').dataset.id")
    assert f"id {chosen}" in page.js("document.querySelector('.info').textContent")


def test_colours_follow_the_switch(page: Chromium) -> None:
    turn_shown(page, "long", "2.0")

    def colours() -> dict[str, str]:
        boxes = {"prompt": ".o-prompt .t", "first": ".tokens:last-of-type .t", "second": ".tokens:last-of-type .t + .t"}
        return {
            name: page.js(f"getComputedStyle(document.querySelector({json.dumps(box)})).backgroundColor")
            for name, box in boxes.items()
        }

    page.js("document.querySelectorAll('.pager button')[0].click()")
    origin = colours()
    assert origin["prompt"] != origin["first"] == origin["second"]
    page.press("c")
    logprob = colours()
    assert logprob["prompt"] == "rgba(0, 0, 0, 0)"
    assert len({logprob["first"], logprob["second"], origin["first"]}) == 3  # -0.5 and -0.75: above and below p = 0.5
    page.click("[data-choice='colour advantage']")
    advantage = colours()
    assert advantage["prompt"] == "rgba(0, 0, 0, 0)"
    assert advantage["first"] == advantage["second"] not in (origin["first"], logprob["first"])
    assert "as GRPO" in page.js("document.querySelector('.for-advantage').innerText")
    turn_shown(page, "other", "0.0")
    first = "document.querySelector('.tokens:last-of-type .t')"
    assert page.js(f"getComputedStyle({first}).backgroundColor") != advantage["first"]


def test_text_and_ids_stand_beside_each_other(page: Chromium) -> None:
    turn_shown(page, "child", "0.0")

    def seen() -> tuple[str, str]:
        box = "document.querySelector('.o-sampled .boxes .t')"
        size = page.js(f"getComputedStyle({box}).fontSize")
        return page.js(f"getComputedStyle({box}, '::before').content"), size

    assert seen() == ("none", "13px")
    page.click("[data-choice='show both']")
    assert seen() == ('"52"', "13px")
    page.press("t")
    page.press("t")
    assert seen() == ('"52"', "0px")


def test_drift_marks_stand_in_the_list_the_tree_and_on_the_tokens(page: Chromium) -> None:
    turn_shown(page, "long", "0.0")
    assert any("\u25c6 retokenised" in row for row in rows(page, "turns"))
    assert page.js("document.querySelector('.tokens:last-of-type .t.drift').dataset.id") == "2"
    assert page.js("document.querySelector('.t.drift').dataset.drift") == "retokenised"
    assert page.js("document.querySelector('.t.drifted').dataset.id") == "3"
    assert "Drift: retokenised at id 4,501, 2 ids" in page.js("document.querySelector('.drift-note').textContent")
    page.click(".drift-note button")
    assert "drift retokenised, 2 ids" in page.js("document.querySelector('.info').textContent")
    turn_shown(page, "long", "2.0")
    # What came before keeps its mark in later contexts; behind the last id is a place too.
    assert page.js("document.querySelector('.tokens .t.drift').dataset.id") == "2"
    assert page.js("document.querySelector('.t.end').dataset.drift") == "stop_token"
    turn_shown(page, "child", "0.0")
    assert page.js("document.querySelector('.t.drift')") is None
    assert "not looked at" in page.js("document.getElementById('episode').textContent")
    turn_shown(page, "other", "0.0")
    assert "driftsnone" in page.js("document.getElementById('episode').textContent")


def test_what_is_missing_is_said(page: Chromium, make: Any, tmp_path: Path) -> None:
    page.js("location.hash = 'episode=fresh'")
    page.wait("document.getElementById('turn').textContent.includes('no turn yet')")
    turn_shown(page, "down", "0.0")
    text = page.js("document.getElementById('turn').textContent")
    assert "Failed at policy: Down" in text
    assert "It said nothing." in text
    assert "not trained: failed_turn" in text
    assert ids_of(page, 1) == []
    turn_shown(page, "orphan", "0.0")
    assert "not in this run" in page.js("document.getElementById('episode').textContent")
    assert page.complaints() == []
    with TraceStore(tmp_path / "empty", meta=make.meta):
        pass
    page.open(write_view(tmp_path / "empty").as_uri())
    assert "no episode yet" in page.js("document.getElementById('turn').textContent")
    with TraceStore(tmp_path / "wordless", meta=make.meta) as store:
        store.begin(make.head("one"))
        store.append(make.turn("one", 0, make.prompt(7), [8]))
    page.open(write_view(tmp_path / "wordless").as_uri())
    assert page.js("getComputedStyle(document.querySelector('.o-sampled .boxes .t'), '::before').content") == '"8"'


def test_a_page_that_is_not_complete_says_so(page: Chromium) -> None:
    page.js("document.getElementById('episode-1').remove()")
    page.click("#episodes-1")
    page.wait("document.getElementById('turn').textContent.includes('episode-1 is missing')")


def test_the_served_page_works_and_asks_for_nothing_else(browser: Chromium, run: Path) -> None:
    with PageServer(run / "view.html") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        page = browser.open(server.url)
        assert len(rows(page, "episodes")) == 5
        assert page.complaints() == []
        assert page.requests() == [server.url]
        server.shutdown()
        thread.join()


def test_the_keyboard_reaches_episodes_and_turns(page: Chromium) -> None:
    turn_shown(page, "long", "0.0")
    page.press("]")
    page.wait("location.hash.includes('turn=1.0')")
    page.press("[")
    page.wait("location.hash.includes('turn=0.0')")
    page.press("/")
    assert page.js("document.activeElement.id") == "words"
    page.js("document.getElementById('episodes').focus()")
    page.press("ArrowDown")
    page.wait("location.hash.includes('episode=other')")
    active = page.js("document.getElementById('episodes').getAttribute('aria-activedescendant')")
    assert page.js(f"document.getElementById({json.dumps(active)}).getAttribute('aria-selected')") == "true"


# ---- what it never does


TRICKS = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    '<img src="x" onerror="window.pwned = 3">',
    "javascript:window.pwned = 4",
    '"><svg onload="window.pwned = 5"></svg>',
    "<a href='javascript:window.pwned = 6' id=index>x</a><!--",
    "${window.pwned = 7}`;window.pwned = 8;//",
    "\u202egnirts desrever\u202c \u2066x\u2069 \u200b\x00\x1b[31m\x7f\u2028 \U000e0041",
    "lone \ud800 surrogate",
    '<img title="' + "x" * 200_000 + '" src=x onerror="window.pwned = 9">',
    "__proto__",
)


def test_nothing_of_a_world_runs_or_loads(browser: Chromium, make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    meta = make.meta.model_copy(update={"source": TRICKS[0], "chat": TRICKS[2], "prompting": TRICKS[4]})
    marks: dict[str, list[DriftMark]] = {}
    with TraceStore(folder, meta=meta, token_text=lambda index: TRICKS[index % 8]) as store:
        for place, trick in enumerate(TRICKS):
            safe = trick.encode("utf-8", "replace").decode()
            name = f"{safe[:80]} {place}"
            store.begin(EpisodeHead(name, task=safe, source=safe, group_id=safe, role=safe))
            turn = make.turn(
                name,
                0,
                make.prompt(*range(9), root=make.root),
                list(range(9)),
                edge=Edge("unknown", None, 0, trick),
                messages=(
                    Message("user", trick),
                    Message(
                        trick, trick, tool_calls=(ToolCall(trick, None, trick, trick),), name=trick, reasoning=trick
                    ),
                ),
                completion={"engine": safe, "weight_versions": ((safe, 0, 9),)},
                text=trick,
                action_text=trick,
                truncation=safe,
                truncated=True,
                failure=Failure("world", trick, trick),
                facts={"anchor": trick, trick: trick},
            )
            store.append(turn)
            store.finish(name, "failed", failure=Failure("world", trick, trick))
            store.begin(EpisodeHead(f"child {name}", task=safe, role=safe, parent=name, parent_turn=0))
            marks[name] = [DriftMark(trick, 0, 3, 1, exact=[3], text=[4], detail=trick)]
    page = browser.open(write_view(folder, marks=marks).as_uri())
    page.js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    choose(page, "subagents", "on")
    for place, _ in enumerate(TRICKS):
        page.js(f"document.getElementById('episodes').scrollTop = {52 * 2 * place}")
        page.wait(f"document.getElementById('episodes-{2 * place}')")
        page.js("document.querySelector('#turn').replaceChildren()")
        page.click(f"#episodes-{2 * place}")
        page.wait("document.querySelector('#turn .info')")
        page.js("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.js("document.querySelector('#turns .row.agent').click()")
        page.hover(".tokens:last-of-type .t")
        page.wait("document.querySelectorAll('.message').length === 2")
        for key in "ccttt":
            page.press(key)
        # What the page is made of, whatever the world wrote.
        tags = set(page.js("[...document.querySelectorAll('body *')].map((one) => one.localName)"))
        assert not tags & {"a", "img", "svg", "iframe", "object", "embed", "link", "base", "style"}, tags
        scripts = "[...document.scripts].filter((one) => one.type !== 'application/octet-stream').length"
        assert page.js(scripts) == 1
        attributes = set(page.js("[...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())"))
        assert not [name for name in attributes if name.startswith("on") or name in {"href", "src", "srcdoc"}]
        # Nothing that hides or turns text reaches the screen.
        text = page.js("document.body.innerText")
        assert not set(text) & set("\u202e\u202c\u2066\u2069\u200b\x00\x1b\x7f\u2028\U000e0041")
    assert page.js("window.pwned") is None
    assert page.complaints() == []
    assert len(page.requests()) == 1
    page.js("location.hash = 'episode=' + encodeURIComponent('<script>window.pwned = 1</script>')")
    page.js("location.hash = 'episode=__proto__&agent=constructor&turn=<img>'")
    page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.js("window.pwned") is None
    assert page.complaints() == []


def test_the_policy_holds_even_against_code_of_our_own(page: Chromium) -> None:
    """A mistake in the script would still run nothing: neither markup nor a request gets through."""
    refused = page.js("""(() => {
        try { document.body.innerHTML = "<b>x</b>"; return false; } catch (error) { return error instanceof TypeError; }
    })()""")
    assert refused
    page.js("""(() => {
        const script = document.createElement("script");
        try { script.text = "window.pwned = 1"; } catch {}
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "http://127.0.0.1:9/x.png";
        document.body.append(image);
    })()""")
    page.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.js("window.pwned") is None
    failed = [event["params"] for event in page.events if event["method"] == "Network.loadingFailed"]
    assert [event.get("blockedReason") for event in failed] == ["csp"]


# ---- size


def test_five_thousand_turns_open_with_few_elements(browser: Chromium, make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", meta=make.meta, token_text=lambda index: f"w{index}") as store:
        for number in range(100):
            name = f"episode-{number}"
            store.begin(make.head(name, group_id=f"g{number // 4}"))
            turn = make.turn(name, 0, make.prompt(*range(200)), list(range(20)))
            store.append(turn)
            for index in range(1, 50):
                message = Message("user", f"You see {index} things. " * 20)
                context = make.after(turn, *range(index, index + 90))
                turn = make.turn(name, index, context, list(range(20)), messages=(message,), text="go " * 20)
                store.append(turn)
            store.finish(name, "done", success=bool(number % 2))
    file = write_view(tmp_path / "run")
    page = browser.open(file.as_uri())
    elements = "document.querySelectorAll('*').length - document.querySelectorAll('script').length"
    assert page.js(elements) < 2000
    assert page.js("document.querySelectorAll('#episodes .row').length") < 60
    assert page.js("document.querySelectorAll('#turns .row').length") < 45
    turn_shown(page, "episode-99", "49.0")
    assert page.js("document.querySelector('.range').textContent").endswith(f"of {200 + 49 * 110:,}")
    assert page.js("document.querySelectorAll('*').length") < 5000
    page.js("document.getElementById('episodes').scrollTop = 1e6")
    page.wait("document.getElementById('episodes-99')")
    assert page.js("document.querySelectorAll('#episodes .row').length") < 60
