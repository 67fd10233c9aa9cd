"""The live page in a real browser, and a page of elsewhere that tries to read it. Skipped where there is none."""

from __future__ import annotations

import asyncio
import http.server
import os
import signal
import subprocess
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.kit.browser import REMEDY, find
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.serve.conftest import Served

pytestmark = pytest.mark.long
EVIL = "evil.example"
ATTACK = """<!doctype html><title>attack</title><pre id="out"></pre><script>
const told = (text) => { document.getElementById("out").textContent += text + "\\n"; };
const target = "%s";
async function attempt(name, run) {
  try { told(name + ": got " + (await (await run()).text()).slice(0, 200)); } catch { told(name + ": refused"); }
}
(async () => {
  await attempt("read", () => fetch(target + "/v1/ceilings"));
  await attempt("page", () => fetch(target + "/", { credentials: "include" }));
  await attempt("post", () => fetch(target + "/v1/explain", { method: "POST", body: "{}",
    headers: { "Content-Type": "application/json" } }));
  await attempt("simple post", () => fetch(target + "/v1/explain", { method: "POST", body: "{}" }));
  await attempt("act", () => fetch(target + "/v1/actions/pause", { method: "POST", body: '{"namespace": "team"}' }));
  told("over");
})();
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    """The program."""
    if found := find():
        return str(found)
    pytest.skip(f"there is no browser on this machine: {REMEDY}")


@pytest.fixture
def elsewhere(served: Served) -> Iterator[int]:
    """The port of a page of another host, which attacks ``serve``."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((ATTACK % served.url).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def opened(browser: str, profile: Path) -> Iterator[str]:
    """Run the browser; yields the address at which it takes orders."""
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
        f"--host-resolver-rules=MAP {EVIL} 127.0.0.1", "--remote-debugging-port=0", "about:blank",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "DevTools listening on" in line)
            port = urlsplit(line.split()[-1]).port
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # some are a script that starts the browser


class Tab:
    """An open page that scripts can be run in."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Talk through the browser's socket."""
        self._socket = socket
        self._count = 0

    async def order(self, method: str, **params: Any) -> dict[str, Any]:
        """Give an order, and return its answer."""
        self._count += 1
        await self._socket.send_json({"id": self._count, "method": method, "params": params})
        found: dict[str, Any] = (await self._told(lambda told: told.get("id") == self._count))["result"]
        return found

    async def load(self, url: str) -> None:
        """Open a page, and wait until it is there: a script that runs meanwhile may never be answered."""
        await self.order("Page.navigate", url=url)
        await self._told(lambda told: told.get("method") == "Page.loadEventFired")

    async def _told(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while not holds(told := await self._socket.receive_json()):
                pass
        answer: dict[str, Any] = told
        return answer

    async def run(self, script: str) -> Any:
        """Run a script, and return its value."""
        found = await self.order("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Run a script until its value is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.run(script):  # noqa: ASYNC110 - a page that changes, polled
                await asyncio.sleep(0.05)


@asynccontextmanager
async def tab(browser: str, url: str, profile: Path) -> AsyncIterator[Tab]:
    """Open a page, and note each breach of its policy in ``window.breaches``."""
    with opened(browser, profile) as orders:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{orders}/json/list") as listed:
                target = next(each for each in await listed.json() if each["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"]) as socket:
                page = Tab(socket)
                await page.order("Page.enable")
                script = (
                    "window.breaches = []; "
                    "document.addEventListener('securitypolicyviolation', (e) => breaches.push(e.blockedURI));"
                )
                await page.order("Page.addScriptToEvaluateOnNewDocument", source=script)
                await page.load(url)
                yield page


async def test_the_page_lives(browser: str, served: Served, tmp_path: Path) -> None:
    """Search, news of the gates, who holds a quota, and a manifest that is explained: all without a reload."""
    async with tab(browser, served.url, tmp_path / "profile") as page:
        await page.run("window.mark = 1")
        await page.run("search.value = 'roomy'; search.dispatchEvent(new Event('input')); search.blur()")
        await page.until("document.querySelectorAll('.card').length === 1")
        await page.run("search.value = ''; search.dispatchEvent(new Event('input'))")
        await page.until("document.querySelectorAll('.card').length === 3")
        await page.run("document.querySelector('details[data-holders=team] summary').click()")
        await page.until(
            "document.querySelector('details[data-holders=team] .holders').innerText.includes('Pod/first')"
        )
        await asyncio.to_thread(served.gates[0].wait_with, "late", namespace="team")
        await page.until("document.getElementById('waiting').innerText.includes('team/late')")
        await page.until("document.getElementById('decisions').innerText.includes('team/late')")
        manifest = "apiVersion: v1\\nkind: Pod\\nmetadata: {name: x}\\nspec: {containers: [{name: c, image: i}]}"
        await page.run(
            f"manifest.value = '{manifest}'; document.getElementById('explain-namespace').value = 'team';"
            "document.querySelector('#explain button').click()"
        )
        await page.until("document.getElementById('explained').innerText.includes('It would wait.')")
        assert await page.run("document.querySelector('details[data-holders=team]').open")
        assert await page.run("[window.mark, breaches.length, document.body.className]") == [1, 0, ""]


async def test_who_reads_is_not_disturbed(browser: str, served: Served, tmp_path: Path) -> None:
    """What has the focus or was scrolled goes on changing in its place; what is marked to copy stays as it is."""
    gone = "document.querySelector('%s [data-old]') === null"
    mark = "document.querySelector('%s').dataset.old = '1'"
    async with tab(browser, served.url, tmp_path / "profile") as page:
        await page.run("document.querySelector('details[data-holders=team] summary').focus()")
        await page.run(mark % "#namespaces .card")
        await page.until(gone % "#namespaces")
        assert await page.run("document.activeElement.parentElement.dataset.holders") == "team"
        await page.run("document.activeElement.blur()")
        await page.run("document.styleSheets[0].insertRule('#waiting .scroll { max-height: 50px !important }', 0)")
        await page.run("document.querySelector('#waiting .scroll').scrollTop = 40; " + mark % "#waiting tr")
        await page.until(gone % "#waiting")
        assert await page.run("document.querySelector('#waiting .scroll').scrollTop") == 40
        await page.run(
            "getSelection().selectAllChildren(document.querySelector('#waiting tr')); " + mark % "#waiting tr"
        )
        await page.run(mark % "#namespaces .card")
        await page.until(gone % "#namespaces")
        await page.run(mark % "#namespaces .card")
        await page.until(gone % "#namespaces")
        assert not await page.run(gone % "#waiting"), "two renewals went by"


async def test_a_page_of_elsewhere_reads_nothing(browser: str, served: Served, elsewhere: int, tmp_path: Path) -> None:
    """Neither across origins, nor under a name of its own that it binds to this machine."""
    async with tab(browser, f"http://{EVIL}:{elsewhere}/", tmp_path / "one") as page:
        await page.until("document.getElementById('out').textContent.includes('over')")
        told = (await page.run("document.getElementById('out').textContent")).split("\n")
        assert told[:6] == [
            "read: refused", "page: refused", "post: refused", "simple post: refused", "act: refused", "over"
        ]  # fmt: skip
        assert not any(gate.gate.ledger.is_halted("team") for gate in served.gates)
    async with tab(browser, f"http://{EVIL}:{urlsplit(served.url).port}/", tmp_path / "two") as page:
        rebound = await page.run("document.documentElement.innerText")
        assert "team" not in rebound
        assert "localhost only" in rebound


@pytest.mark.parametrize("width", [390, 1400])
async def test_the_page_fits_its_window(browser: str, served: Served, width: int, tmp_path: Path) -> None:
    """Nobody scrolls sideways, not on a phone either."""
    async with tab(browser, served.url, tmp_path / "profile") as page:
        await page.order(
            "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500
        )
        await page.until(f"innerWidth === {width}")
        assert await page.run("document.documentElement.scrollWidth") <= width
