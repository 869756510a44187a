"""A headless Chromium and the few words of its DevTools protocol that the tests need.

async with chromium.started(folder) as browser:
    page = await browser.open("https://…")
    await page.until("document.querySelector('h1')")
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from waiting import PATIENCE_SECONDS

Tree = dict[str, Any]

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_KEYS = {"Enter": "\r", "/": "/"}


class Page:
    """A tab. `problems` are scripts that failed and things that the Content-Security-Policy forbade."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.problems: list[str] = []

    async def send(self, method: str, **parameters: Any) -> Tree:
        return await self._browser.send(method, self._session, **parameters)

    def received(self, method: str, parameters: Tree) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(parameters["exceptionDetails"].get("exception", parameters)))
        elif method == "Log.entryAdded" and parameters["entry"]["source"] in ("security", "javascript"):
            self.problems.append(parameters["entry"]["text"])

    async def run(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        answer = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait for an expression to be true."""
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not await self.run(f"(async () => Boolean(await ({script})))()"):
            if asyncio.get_running_loop().time() > end:
                text = await self.run("document.body.innerText")
                raise AssertionError(f"never: {script}\n{self.problems}\n{text[:2000]}")
            await asyncio.sleep(0.05)

    async def text(self) -> str:
        return str(await self.run("document.getElementById('main').innerText"))

    async def go(self, address: str) -> None:
        """An address within the page."""
        await self.run(f"location.hash = {json.dumps(address)}")

    async def press(self, *keys: str) -> None:
        for key in keys:
            text = {"text": _KEYS[key]} if key in _KEYS else {}
            await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    async def type(self, text: str) -> None:
        await self.send("Input.insertText", text=text)

    async def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])

    async def controls(self) -> list[tuple[str, str]]:
        """Role and name of everything in the accessibility tree."""
        nodes = (await self.send("Accessibility.getFullAXTree"))["nodes"]
        read = ((node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")) for node in nodes)
        return [(role, name) for role, name in read if role not in ("", "none", "InlineTextBox", "StaticText")]


class Browser:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Tree]] = {}
        self._pages: dict[str, Page] = {}

    async def listen(self) -> None:
        async for message in self._socket:
            message = json.loads(message.data)
            if "id" in message:
                self._waiting.pop(message["id"]).set_result(message)
            elif page := self._pages.get(message.get("sessionId", "")):
                page.received(message["method"], message["params"])

    async def send(self, method: str, session: str = "", **parameters: Any) -> Tree:
        number = next(self._numbers)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        where = {"sessionId": session} if session else {}
        await self._socket.send_json({"id": number, "method": method, "params": parameters, **where})
        message = await asyncio.wait_for(answer, PATIENCE_SECONDS)
        assert "error" not in message, f"{method}: {message.get('error')}"
        return dict(message["result"])

    @contextlib.asynccontextmanager
    async def visit(self, address: str) -> AsyncIterator[Page]:
        """A tab of its own while inside, with storage of its own."""
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        target = (await self.send("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        session = (await self.send("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            await page.send(f"{domain}.enable")
        await page.send("Emulation.setFocusEmulationEnabled", enabled=True)
        await page.send("Page.navigate", url=address)
        # The script of the page reads the token from the address, which a test may change from here on.
        await page.until("location.href !== 'about:blank' && document.readyState === 'complete'")
        yield page
        await self.send("Target.disposeBrowserContext", browserContextId=context)


@contextlib.asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Browser]:
    """A browser of our own, with nothing in it."""
    assert PROGRAM is not None
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--ignore-certificate-errors",
               "--remote-debugging-port=0", "--no-first-run", "--disable-extensions", "--hide-scrollbars")  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *options, f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = folder / "DevToolsActivePort"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not port.is_file() or len(lines := port.read_text().splitlines()) < 2:
                await asyncio.sleep(0.05)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{lines[0]}{lines[1]}", max_msg_size=0) as socket,
        ):
            browser = Browser(socket)
            listening = asyncio.create_task(browser.listen())
            try:
                yield browser
            finally:
                listening.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
