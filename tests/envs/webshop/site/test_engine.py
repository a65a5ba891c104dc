"""A site of the original's page structure, served on loopback from the native shop: both engines see the same."""

import ast
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pprint import pformat
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import numpy as np
import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.envs.webshop import Product, Shop, WebShopEngine
from agentgym_tok.envs.webshop.env import WebShopEnv
from agentgym_tok.envs.webshop.generated.shop import synth_shop
from agentgym_tok.envs.webshop.reward import score
from agentgym_tok.envs.webshop.site.engine import SiteEngine
from agentgym_tok.errors import ConfigError, DataMissing, MissingExtra, ResetNeeded, UnknownName, WorldError
from agentgym_tok.harness import Harness

Answer = tuple[int, Mapping[str, str], str]


class Site:
    """Serve a shop's pages; `fault` answers instead of them where it is set."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.asked: list[str] = []
        self.fault: Callable[[BaseHTTPRequestHandler], Answer | None] | None = None
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                site.asked.append(self.path)
                length = int(self.headers.get("Content-Length", 0))
                form = parse_qs(self.rfile.read(length).decode())
                answer = site.fault(self) if site.fault else site.page(self.path, form)
                if answer is None:
                    return
                status, headers, text = answer
                body = text.encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def page(self, path: str, form: Mapping[str, list[str]]) -> Answer:
        match unquote(path).strip("/").split("/"):
            case [session] if form:
                words = form["search_query"][0].lower().split(" ")
                return 302, {"Location": f"/search_results/{session}/{quote(str(words))}/1"}, ""
            case [session]:
                return self.ok(
                    f"""<h2>WebShop</h2>{self.told(session, "Instruction: ")}
                    <form method="post" action="/{session}"><input id="search_input" name="search_query"/>
                    <button class="btn btn-success" type="submit"><i class="glyphicon"></i>Search</button></form>"""
                )
            case ["search_results", session, keywords, number]:
                return self.results(session, keywords, int(number))
            case ["item_page", session, asin, keywords, number, options]:
                return self.item(session, asin, (keywords, number), ast.literal_eval(options))
            case ["item_sub_page", session, asin, keywords, number, name, options]:
                product, back = (
                    self.product(asin),
                    f"/item_page/{session}/{asin}/{quote(keywords)}/{number}/{quote(options)}",
                )
                words = {
                    "Description": f'<p class="product-info">{escape(product.description)}</p>',
                    "Features": "".join(
                        f'<li><p class="product-info"> {escape(text)}</p></li>\n' for text in product.features
                    ),
                    "Reviews": "",
                }[name]
                return self.ok(self.told(session) + self.back(session) + button("&lt; Prev", back) + words)
            case ["done", session, asin, options]:
                return self.done(session, asin, ast.literal_eval(options))
        return 404, {}, "no such page"

    def ok(self, body: str) -> Answer:
        head = "<head><title>WebShop</title><script>let a = 1;</script><style>b {}</style></head>"
        return 200, {}, f"<!DOCTYPE html>\n<html>\n {head}\n<body>\n<!-- note -->\n{body}\n</body></html>"

    def goal(self, session: str) -> Any:
        return self.shop.goals[int(session.rpartition("_")[2])]

    def told(self, session: str, words: str = "Instruction:") -> str:
        return f'<div id="instruction-text">\n<h4>{words}<br>{escape(self.goal(session).instruction_text)}</h4></div>\n'

    def back(self, session: str) -> str:
        return button("Back to Search", f"/{session}", "btn btn-success")

    def product(self, asin: str) -> Product:
        index = self.shop.catalogue.index(asin)
        assert index is not None
        return self.shop.catalogue.product(index)

    def results(self, session: str, keywords: str, number: int) -> Answer:
        hits = self.shop.catalogue.find(ast.literal_eval(keywords), "")
        assert hits is not None

        def at(page: int) -> str:
            return f"/search_results/{session}/{quote(keywords)}/{page}"

        flips = (button("&lt; Prev", at(number - 1)) if number > 1 else "") + button("Next &gt;", at(number + 1))
        rows = ""
        for index in hits[10 * (number - 1) : 10 * number].tolist():
            product = self.shop.catalogue.product(index)
            link = f"/item_page/{session}/{product.asin}/{quote(keywords)}/{number}/%7B%7D"
            rows += f"""<div class="row">
                <h4 class="product-asin"><a class="product-link" href="{link}">{product.asin}</a></h5>
                <h4 class="product-title">{escape(product.title)}</h5>
                <h5 class="product-price">{product.price_tag}</h6><!-- <h5>hidden</h5> --></div>\n"""
        head = f"<h3>Page {number} (Total results: {len(hits)})</h3>"
        return self.ok(self.told(session) + self.back(session) + head + flips + rows)

    def item(self, session: str, asin: str, at: tuple[str, str], options: dict[str, str]) -> Answer:
        product = self.product(asin)
        place = f"{session}/{asin}/{quote(at[0])}/{at[1]}"
        choices = ""
        for name, values in product.options.items():
            choices += f"<h4>{name}</h4>\n"
            for value in values:
                link = f"/item_page/{place}/{quote(str({**options, name: value}))}"
                choices += f'<input type="radio" name="{name}" value="{escape(value)}" data-url="{link}">\n'
                choices += f"<label>{escape(value)}</label>\n"
        subs = "".join(
            button(name, f"/item_sub_page/{place}/{name}/{quote(str(options))}")
            for name in ("Description", "Features", "Reviews")
        )
        return self.ok(
            f"""{self.told(session)}{self.back(session)}
            {button("&lt; Prev", f"/search_results/{session}/{quote(at[0])}/{at[1]}")}
            {choices}<h2>{escape(product.title)}</h2>
            <h4>Price: {product.price_tag}</h4>
            <h4>Rating: N.A.</h4>{subs}
            {button("Buy Now", f"/done/{session}/{asin}/{quote(str(options))}", "btn btn-lg purchase")}"""
        )

    def done(self, session: str, asin: str, options: dict[str, str]) -> Answer:
        goal, product = self.goal(session), self.product(asin)
        index = self.shop.catalogue.index(asin)
        assert index is not None
        price, nouns = float(self.shop.prices_N[index]), self.shop.title_nouns(product)
        found = score(product, goal, price, options, nouns=nouns, goal_nouns=self.shop.goal_nouns(goal))
        return self.ok(
            f"""<h1>Thank you for shopping with us!</h1><pre>{escape(str(goal))}</pre>
            <h3 id="reward">Your score (min 0.0, max 1.0)<pre>{found.score}</pre></h3>
            <h4 hidden>Reward Details <div id="reward_info"><pre>{escape(pformat(found.parts()))}</pre></div></h4>"""
        )


def button(name: str, address: str, css: str = "btn btn-primary") -> str:
    return f'<form method="post" action="{address}">\n<button type="submit" class="{css}">{name}</button>\n</form>\n'


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site(synth_shop(products=300))
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


@pytest.fixture(autouse=True)
def healthy(site: Site) -> Iterator[None]:
    yield
    site.fault = None


def engine(site: Site, **options: Any) -> SiteEngine:
    return SiteEngine(site.url, range(50), **options)


SEARCHES = [
    "search[black]",
    "search[\ud800 lamp]",
    "search[Gluten Free snacks]",
    "search[zzz]",
    "search[it's 50% & more?]",
    "search[#+]",
]
NOTHING = ["click[search]", "click[nowhere]", "buy", "", "SEARCH[lamp]", "search[]"]


@pytest.mark.parametrize("mode", ["text", "text_rich"])
def test_both_engines_see_the_same_on_random_walks(site: Site, mode: Any) -> None:
    draw = np.random.default_rng(4)
    native, remote = WebShopEngine(site.shop, observation=mode), engine(site, observation=mode)
    ended = 0
    for task in map(str, range(14)):
        seen = native.reset(task)
        assert remote.reset(task) == seen
        assert remote.task_info()["goal"] == native.task_info()["goal"]
        for _ in range(14):
            if seen.terminated:
                break
            clicks = [click for click in seen.admissible_commands if click != "click[back to search]"]
            pool = clicks if clicks and draw.random() < 0.8 else [*SEARCHES, *NOTHING, "click[back to search]"]
            command = pool[int(draw.integers(len(pool)))]
            if draw.random() < 0.3:
                command = native.expert_command() or command
            seen = native.step(command)
            assert remote.step(command) == seen, command
        ended += seen.terminated
    assert ended >= 3


def test_a_chosen_option_and_a_visited_product_are_marked(site: Site) -> None:
    remote = engine(site, observation="text_rich")
    native = WebShopEngine(site.shop, observation="text_rich")
    native.reset("3")
    remote.reset("3")
    while (command := native.expert_command()) != "click[buy now]":
        assert command is not None
        native.step(command)
        seen = remote.step(command)
    assert seen.text.startswith("You have clicked ")
    assert "[clicked button]" in remote.step("click[< prev]").text
    assert remote.step("click[back to search]").text == native.reset("3").text


def test_an_episode_through_the_environment_scores_and_hides_the_goal(site: Site) -> None:
    env = WebShopEnv(backend="http", url=site.url, split="eval")
    assert (env.engine.source, len(env.engine.tasks())) == ("WebShop-site", 500)
    chat = ChatFormat.builtin()
    env.reset(options={"task": "2"})
    native = WebShopEngine(site.shop)
    native.reset("2")
    info: dict[str, Any] = {}
    while (command := native.expert_command()) is not None:
        native.step(command)
        *_, info = env.step(chat.encode_turn(f"<action>{command}</action>"))
    assert (info["score"], info["success"]) == (1.0, True)
    assert info["reward_parts"]["r_price"] is True
    assert "Goal" in info["text"]
    assert info["goal"] not in info["text"]
    assert env.hints()["expert"] is None


def test_clones_and_pickles_share_a_session_and_go_on_alone(site: Site) -> None:
    remote = engine(site)
    remote.reset("1")
    remote.step("search[black]")
    twin, copy = remote.clone(), pickle.loads(pickle.dumps(remote))
    assert twin.step("click[next >]") == copy.step("click[next >]")
    assert "Page 1 " in remote.step("nothing").text
    remote.reset("1")
    sessions = {path for path in site.asked if path.startswith("/fixed_")}
    assert len(sessions) >= 2


def test_words_that_the_sites_addresses_cannot_hold_are_an_invalid_search(site: Site) -> None:
    remote = engine(site)
    before = remote.reset("0")
    seen = remote.step("search[a/b]")
    assert (seen.valid, seen.text) == (False, before.text)
    assert remote.step("search[black]").valid


def say(status: int = 200, body: str = "", **headers: str) -> Callable[[BaseHTTPRequestHandler], Answer]:
    return lambda _handler: (status, headers, body)


def trickle(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    for _ in range(30):
        try:
            handler.wfile.write(b"<p>" * 10)
            time.sleep(0.02)
        except OSError:
            break
    handler.close_connection = True


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def sleep(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(0.4)
    handler.close_connection = True


FAULTS: list[tuple[Any, str]] = [
    (say(500, "Internal Server Error"), "status 500"),
    (say(200, "<html><body>Welcome to my blog</body></html>"), "something else than its pages"),
    (say(200, "<![n]>"), "something else than its pages"),
    (say(200, "\x00\xff{"), "something else than its pages"),
    (say(302, Location="http://127.0.0.1:9/elsewhere"), "an address elsewhere"),
    (say(302, Location="http://127.0.0.1:port/"), "an address elsewhere"),
    (say(302, Location="http://[/"), "Invalid IPv6 URL"),
    (say(302, Location="/again"), "one redirect after another"),
    (say(200, "<div id='instruction-text'>Instruction: another task</div>"), "something else than its pages"),
    (say(200, "<div id='reward'><pre>lots</pre></div>"), "something else than its pages"),
    (say(200, "<div id='reward'><pre>7</pre></div>"), "something else than its pages"),
]


@pytest.mark.parametrize(("fault", "words"), FAULTS)
@pytest.mark.parametrize("where", ["reset", "search[black]", "click[next >]", "click[buy now]"])
def test_faults_of_the_site_are_errors_of_the_world(site: Site, fault: Any, words: str, where: str) -> None:
    remote = engine(site)
    if where != "reset":
        remote.reset("0")
        seen = remote.step("search[black]")
        if where == "click[buy now]":
            remote.step(next(click for click in seen.admissible_commands if click.startswith("click[s")))
    site.fault = fault
    with pytest.raises(WorldError, match=words) as caught:
        remote.reset("0") if where == "reset" else remote.step(where)
    assert site.url in str(caught.value) or "elsewhere" in words
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("fault", [trickle, sleep, hang_up])
def test_a_site_that_does_not_answer_in_time_is_an_error_of_the_world(site: Site, fault: Any) -> None:
    remote = engine(site, timeout_s=0.2)
    site.fault = fault
    with pytest.raises(WorldError, match="does not answer"):
        remote.reset("0")


def test_a_link_that_leads_nowhere_is_an_error_of_the_world(site: Site) -> None:
    remote = engine(site)
    goal = escape(remote.reset("0").text.split(" [SEP] ")[2])
    told = f"<div id='instruction-text'>Instruction: {goal}</div>"
    site.fault = say(200, told + button("Next &gt;", "http://[") + button("Buy Now", "http://127.0.0.1:9/done"))
    remote.step("search[black]")
    for command, words in (("click[next >]", "the address"), ("click[buy now]", "an address elsewhere")):
        with pytest.raises(WorldError, match=words):
            remote.step(command)


def test_a_connection_that_breaks_once_is_tried_again(site: Site) -> None:
    remote = engine(site, timeout_s=5.0)
    remote.reset("0")
    broken: list[str] = []

    def once(handler: BaseHTTPRequestHandler) -> Answer | None:
        site.fault = None
        broken.append(handler.path)
        return hang_up(handler)

    site.fault = once
    assert remote.step("search[black]").valid
    assert broken


def test_mistakes_are_named(site: Site) -> None:
    remote = engine(site)
    with pytest.raises(ResetNeeded):
        remote.step("search[x]")
    with pytest.raises(ResetNeeded):
        remote.task_info()
    with pytest.raises(UnknownName):
        remote.reset("50")
    with pytest.raises(UnknownName):
        engine(site, observation="html")
    with pytest.raises(DataMissing):
        SiteEngine(site.url, [])


@pytest.mark.parametrize("url", ["shop", "ftp://h", "http://", "http://[", "http://h:port", "http://h:99999", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no HTTP address"):
        SiteEngine(url, [0])


def test_an_episode_on_a_broken_site_is_a_failure_of_the_world(site: Site) -> None:
    chat = ChatFormat.builtin()

    def policy(ids_T: np.ndarray) -> np.ndarray:
        site.fault = say(500)
        return chat.encode_turn("<action>search[black \ud800]</action>".encode("utf-8", "replace").decode())

    env = WebShopEnv(chat, backend="http", url=site.url, split="eval")
    episode = Harness(policy, chat).run(env, task=0)
    assert episode.failure is not None
    assert (episode.failure.boundary, episode.failure.kind) == ("world", "WorldError")


def test_a_missing_parser_says_the_command_that_installs_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bs4", None)
    with pytest.raises(MissingExtra, match="pip install beautifulsoup4"):
        engine(site).reset("0")
