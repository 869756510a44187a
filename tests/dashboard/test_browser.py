"""The page in a real Chromium: content, keyboard, dark scheme, small screen, and hostile texts.

`PYKUEUE_PICTURES=docs/images` writes the pictures of the documentation while it is at it.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dashboard import chromium, system
from dashboard.chromium import Browser, Page
from dashboard.system import System

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

PICTURES = os.environ.get("PYKUEUE_PICTURES")
# Users who can create objects choose names and messages; these try to inject markup.
HOSTILE = (
    "<img src=x onerror=window.harmed=1> <script>window.harmed=1</script> ‮gnp.exe‬ javascript:window.harmed=1 "
    + "w" * 10_000
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with chromium.started(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def page(department: System, browser: Browser) -> AsyncIterator[Page]:
    """A browser that opened the link of `pykueue up`; at the end its page has logged no error."""
    async with browser.visit(department.link) as made:
        await made.screen(1280, 720)
        await made.until("document.querySelector('[role=tree]')")
        yield made
        assert made.problems == []


async def pictured(page: Page, name: str) -> None:
    shot = await page.picture()
    assert len(shot) > 5_000
    if PICTURES:
        (Path(PICTURES) / f"dashboard-{name}.png").write_bytes(shot)


async def test_the_link_shows_the_tree_and_keeps_no_token_in_the_address(page: Page, department: System) -> None:
    text = await page.text()
    for name in ("research", "vision", "images", "teaching"):
        assert name in text
    assert await page.run("document.querySelectorAll('[role=treeitem]').length") == 8
    assert "token" not in await page.run("location.href")
    # The label of a borrowing queue has the borrowed amount.
    assert await page.run(
        "Boolean(document.querySelector(\"[aria-label^='cpu of default: 27 of 20 used, 7 borrowed']\"))"
    )
    await pictured(page, "overview")


@pytest.mark.parametrize(
    ("token", "message"),
    [("   ", "a bearer token is required"), ("to\u200bken", "invalid bearer token"), ("x", "invalid bearer token")],
)
async def test_wrong_token_is_refused_with_the_reason(
    browser: Browser, department: System, token: str, message: str
) -> None:
    async with browser.visit(department.url) as page:
        await page.until("document.activeElement.name === 'token'")
        await page.type(token)
        await page.press("Enter")
        await page.until(f"document.querySelector('[role=alert]')?.textContent.startsWith('{message}')")


async def test_page_retries_while_the_server_does_not_serve_the_dashboard(page: Page) -> None:
    """A server that starts or stops answers as for every path that it does not have."""
    await page.run(
        "(() => { window.kept = window.fetch; window.fetch = async () => new Response("
        "JSON.stringify({kind: 'Status', message: 'not found', code: 404}), {status: 404}); })()"
    )
    await page.go("#/queues")
    await page.until("document.querySelector('#main h1').textContent === 'Request failed'")
    assert "not served at the moment" in await page.text()
    await page.run("(() => { window.fetch = window.kept; })()")
    await page.until("document.querySelector('#main h1').textContent === 'Queues'")


async def test_page_shows_changes_live(page: Page, department: System) -> None:
    await page.until("document.getElementById('live').textContent === 'live'")
    before = await page.run("document.querySelector('.tiles strong').textContent")
    await department.workload("late", "teaching", {"cpu": "99"})
    await page.until(f"document.querySelector('.tiles strong').textContent === '{int(before) + 1}'")


async def test_keyboard_navigates_from_search_to_workload_and_back(page: Page) -> None:
    await page.press("/")
    await page.type("segment pending")
    await page.press("Enter")
    await page.until("document.querySelectorAll('tbody tr').length === 2")
    await page.run("document.querySelector('tbody a').focus()")
    await page.press("ArrowDown", "ArrowUp", "ArrowDown")
    name = await page.run("document.activeElement.dataset.key.split('/')[1]")
    await page.press("Enter")
    await page.until(f"document.querySelector('h1.named')?.textContent.startsWith('{name}')")
    await page.press("Escape")
    await page.until("location.hash.startsWith('#/workloads')")


async def test_arrow_keys_navigate_the_tree(page: Page) -> None:
    async def here() -> str:
        return str(await page.run("document.activeElement.dataset.key"))

    await page.run("document.querySelector('[role=treeitem]').focus()")
    await page.press("ArrowDown", "ArrowRight", "ArrowDown")
    assert await here() == "ClusterQueue translation"
    await page.press("ArrowLeft")
    assert await here() == "Cohort language"
    await page.press("ArrowLeft", "ArrowDown")  # closed, so the next is beside it
    assert await here() == "Cohort vision"
    await page.press("ArrowDown", "Enter")
    await page.until("location.hash === '#/queue/video'")
    await page.until("document.querySelector('h1.named')?.textContent === 'video'")
    await page.go("#/")
    await page.until("document.querySelector('[role=tree]')")


async def test_workload_page_shows_history_and_suggestions(page: Page) -> None:
    await page.screen(1280, 620)
    await page.go("#/workload/default/segment-5")
    await page.until("document.querySelector('.causes')")
    assert "insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more needed" in await page.text()
    assert await page.run("document.querySelector('.history li b').textContent") == "Created"
    await page.run("document.querySelector('.help button').click()")
    await page.until("document.querySelector('.ways')")
    assert "raise nominalQuota of nvidia.com/gpu in flavor a100 of ClusterQueue video by" in await page.text()
    await pictured(page, "workload")


async def test_the_assignment_of_an_admitted_workload_reads_as_text_with_links(page: Page) -> None:
    await page.go("#/workload/default/resnet-1")
    await page.until("document.querySelector('h1.named')?.textContent.startsWith('resnet-1')")
    fact = (
        "[...document.querySelectorAll('.facts div')].find((one) => one.querySelector('dt').textContent === 'Assigned')"
    )
    assert await page.run(f"{fact}.querySelector('dd').textContent") == "8 cpu of default, 24Gi memory of default"
    links = await page.run(f"[...{fact}.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
    assert links == ["#/flavor/default", "#/flavor/default"]


async def test_contrast_is_sufficient_in_both_color_schemes(page: Page) -> None:
    """Text of every colour that is used stands out from its ground by 4.5 to 1 (WCAG AA)."""
    for dark in (False, True):
        await page.screen(1280, 720, dark=dark)
        assert await page.run("matchMedia('(prefers-color-scheme: dark)').matches") is dark
        assert await page.run(CONTRASTS) == []
    await pictured(page, "dark")


# The texts that are too faint, with their contrast.
CONTRASTS = """(() => {
  const lightness = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (!colour.endsWith(", 0)")) return colour;
    }
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !element.offsetParent) continue;
    const pair = [getComputedStyle(element).color, ground(element)].map(lightness).sort((a, b) => b - a);
    const contrast = (pair[0] + .05) / (pair[1] + .05);
    if (contrast < 4.5) faint.push([element.textContent.slice(0, 40), contrast]);
  }
  return faint;
})()"""


# Pages, and what no other of them has.
SIGNS = {
    "#/": "[role=tree]",
    "#/queues": "[aria-label='Filter queues'] ~ table tbody tr",
    "#/workloads": "[aria-label='Filter workloads'] ~ table tbody tr",
    "#/queue/video": "[aria-label='Longest pending']",
    "#/workload/default/segment-5": ".causes",
}


async def test_small_screen_needs_no_horizontal_scrolling(page: Page) -> None:
    await page.screen(360, 740)
    for address, sign in SIGNS.items():
        await page.go(address)
        await page.until(f'document.querySelector("{sign}")')
        assert await page.run("document.documentElement.scrollWidth") <= 360, address
        if address == "#/":
            await pictured(page, "phone")


async def test_names_of_views_are_not_broken_on_a_small_screen(page: Page) -> None:
    for width in (320, 400, 760, 1280):
        await page.screen(width, 740)
        lines = await page.run(
            "[...document.querySelectorAll('nav a')].map(link => { const range = document.createRange();"
            " range.selectNodeContents(link); return range.getClientRects().length; })"
        )
        assert lines == [1] * 5, width
        assert await page.run("document.documentElement.scrollWidth") <= width


async def test_lines_of_a_long_name_of_a_queue_begin_at_one_place(page: Page) -> None:
    await page.screen(360, 740)
    begins = await page.run(
        "(() => { const name = document.querySelector('.tree ul .queue .name a, .tree ul .queue a');"
        " name.textContent = 'department-of-computational-'.repeat(5); const range = document.createRange();"
        " range.selectNodeContents(name); return [...range.getClientRects()].map(one => Math.round(one.left)); })()"
    )
    assert len(begins) > 1
    assert len(set(begins)) == 1


async def test_every_control_has_a_name(page: Page) -> None:
    for address, sign in SIGNS.items():
        await page.go(address)
        await page.until(f'document.querySelector("{sign}")')
        found = await page.controls()
        roles = {role for role, _ in found}
        assert {"banner", "main", "navigation", "search", "status"} <= roles
        nameless = [role for role, name in found if role in CONTROLS and not name.strip()]
        assert nameless == [], address


CONTROLS = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "treeitem",
    "tree",
    "img",
    "table",
    "navigation",
    "heading",
}


async def test_hostile_texts_are_shown_as_text(page: Page, department: System) -> None:
    await department.workload("hostile", "teaching", {"cpu": "99"})
    await department.finish("hostile", HOSTILE)
    await page.screen(360, 740)
    for address in ("#/workloads?q=hostile", "#/workload/default/hostile"):
        await page.go(address)
        await page.until("document.getElementById('main').innerText.includes('<img src=x onerror=')")
        assert "⟨U+202E⟩" in await page.text()  # and not turned around
        assert (
            await page.run("window.harmed === undefined && document.querySelectorAll('main img, main script').length")
            == 0
        )
        assert await page.run("document.documentElement.scrollWidth") <= 360
    await page.go("#/workload/%3Cimg%20src=x%20onerror=window.harmed=1%3E/x")
    await page.until("document.getElementById('main').innerText.includes('does not exist')")
    assert await page.run("window.harmed") is None


async def test_without_a_token_only_the_sign_in_form_is_shown(department: System, browser: Browser) -> None:
    async with browser.visit(department.url) as stranger:
        await stranger.until("document.querySelector('form.login')")
        await stranger.run("document.querySelector('[name=token]').value = 'wrong'")
        await stranger.run("document.querySelector('form.login').requestSubmit()")
        await stranger.until("document.querySelector('[role=alert]')")
        assert "research" not in await stranger.run("document.body.innerText")
        await stranger.run(
            f"document.querySelector('[name=token]').value = '{department.serving.credentials.view_token}'"
        )
        await stranger.run("document.querySelector('form.login').requestSubmit()")
        await stranger.until("document.querySelector('[role=tree]')")
        await stranger.run("document.getElementById('leave').click()")
        await stranger.until("document.querySelector('form.login')")
        assert await stranger.run("sessionStorage.length") == 0


async def test_expected_start_of_a_waiting_workload_is_shown(browser: Browser, tmp_path: Path) -> None:
    async with system.running(tmp_path, PlannedBackfill=True) as made, browser.visit(made.link) as page:
        await system.rendering(made)
        await page.go("#/workloads")
        # The forecast is made in the background: the page shows it by itself.
        await page.until(
            "document.querySelector('td .expected .by') && document.querySelector('td .expected .planned')"
        )
        headings = await page.run("[...document.querySelectorAll('th')].map((each) => each.textContent)")
        place = headings.index("Expected start")
        cells = await page.run(
            "Object.fromEntries([...document.querySelectorAll('tbody tr')].map((row) =>"
            f" [row.querySelector('a').textContent, row.cells[{place}].textContent]))"
        )
        assert cells["default/film"] == ""
        assert re.fullmatch(r"(\w{3} )?\d\d:\d\dby (\w{3} )?\d\d:\d\dplanned", cells["default/trailer"])
        title = await page.run("document.querySelector('td .expected').title")
        assert re.fullmatch(r"by [\w: ]+ in 9 of 10 cases; planned: [\w: ]+ at the latest", title)
        await page.go("#/workload/default/trailer")
        await page.until("document.querySelector('.facts .expected .planned')")
        fact = await page.run("document.querySelector('.facts .expected').textContent")
        assert re.fullmatch(r"[\w: ]+, by [\w: ]+ in 9 of 10 casesplanned", fact)
        assert await page.run(CONTRASTS) == []
        assert page.problems == []


async def offline(page: Page, *, lost: bool = True) -> None:
    await page.send("Network.enable")
    await page.send(
        "Network.emulateNetworkConditions", offline=lost, latency=0, downloadThroughput=-1, uploadThroughput=-1
    )
    # The part of the browser that sends requests is notified a moment later.
    comes = "fetch('icon.svg', {cache: 'no-store'}).then(() => true, () => false)"
    await page.until(f"{comes}.then((came) => came !== {str(lost).lower()})")


async def test_lost_connection_is_shown_and_recovered(page: Page) -> None:
    """By itself, also where no change reaches the page."""
    await offline(page)
    await page.go("#/queues")
    await page.until("document.getElementById('main').innerText.includes('cannot be reached')")
    await offline(page, lost=False)
    await page.until("document.querySelector('table')")


async def test_content_stays_while_the_server_is_unreachable(page: Page) -> None:
    """A user reads it; the indicator in the corner shows that it is old."""
    await page.until("document.getElementById('live').textContent === 'live'")
    await page.go("#/queues")
    await page.until("document.querySelector('table')")
    await offline(page)
    # A tab that comes to the front asks at once.
    await page.run("document.dispatchEvent(new Event('visibilitychange'))")
    await page.until("document.getElementById('live').textContent === 'reconnecting'")
    assert "teaching" in await page.text()
    await offline(page, lost=False)
    await page.until("document.getElementById('live').textContent === 'live'")


async def test_lost_explanation_is_requested_again(page: Page) -> None:
    """By the user, or by the page after a change: one of the two is first."""
    await page.go("#/workload/default/segment-5")
    await page.until("document.querySelector('[data-key=ways]')")
    await offline(page)
    await page.run("document.querySelector('.help button').click()")
    await page.until("document.querySelector('[data-key=again]')")
    await offline(page, lost=False)
    await page.run("document.querySelector('[data-key=again]')?.click()")
    await page.until("document.querySelector('.ways')")


# The next answer to a question (the end of its path) waits until the test calls `held`; every document is `changed`.
LATE = """(question, changed) => {
  const usual = window.fetch;
  let isFirst = true;
  window.fetch = async (path, options) => {
    const answer = await usual(path, options);
    if (path.endsWith("/stream")) return answer;
    const seen = await answer.json();
    if (!isFirst || !path.endsWith(question)) return new Response(JSON.stringify(changed(seen)));
    isFirst = false;
    await new Promise((go) => { window.held = () => { go(); return new Promise((done) => setTimeout(done, 200)); }; });
    return new Response(JSON.stringify(seen));
  };
  document.dispatchEvent(new Event("visibilitychange"));  // a tab that comes to the front asks at once
}"""


async def test_outdated_answer_is_not_shown(page: Page) -> None:
    changed = "(seen) => ({...seen, totals: {...seen.totals, Pending: 77}})"
    await page.run(f"({LATE})('overview', {changed})")
    await page.until("window.held")
    await page.run("document.dispatchEvent(new Event('visibilitychange'))")
    await page.until("document.querySelector('.tiles strong').textContent === '77'")
    await page.run("window.held()")
    assert await page.run("document.querySelector('.tiles strong').textContent") == "77"


async def test_outdated_explanation_does_not_replace_a_later_one(page: Page) -> None:
    await page.go("#/workload/default/segment-5")
    await page.until("document.querySelector('[data-key=ways]')")
    await page.run(f"({LATE})('explanation', (seen) => ({{...seen, message: 'another'}}))")
    await page.until("window.held")
    await page.run("document.querySelector('.help button').click()")
    await page.until("document.querySelector('.ways')")
    await page.run("window.held()")
    assert await page.run("Boolean(document.querySelector('.ways'))")


async def test_slow_server_shows_a_busy_indicator(page: Page) -> None:
    await page.send("Fetch.enable", patterns=[{"urlPattern": "*/api/queues*"}])
    await page.go("#/queues")
    await page.until("document.querySelector('main[aria-busy=true]')")
    await page.send("Fetch.disable")  # and what was held goes on
    await page.until("document.querySelector('table') && !document.querySelector('[aria-busy]')")


async def test_invalid_address_shows_not_found(page: Page) -> None:
    await page.go("#/queue/%E0%A4%A")
    await page.until("document.getElementById('main').innerText.includes('does not exist')")
    await page.go("#/nonsense")
    await page.until("document.getElementById('main').innerText.includes('Page not found')")


async def test_expired_token_shows_the_sign_in_form(page: Page) -> None:
    # In one go: a page that looks again meanwhile would have led there by itself.
    await page.run("sessionStorage.setItem('pykueue-token', 'of-yesterday'); location.hash = '#/queues'")
    await page.until("document.querySelector('form.login [role=alert]')")
    assert await page.run("sessionStorage.length") == 0


async def test_empty_system_shows_a_hint(tmp_path: Path, browser: Browser) -> None:
    async with system.running(tmp_path) as empty, browser.visit(empty.link) as visitor:
        await visitor.until("document.querySelector('#live.on')")
        for address in ("#/", "#/queues", "#/workloads"):
            await visitor.go(address)
            await visitor.until("/(no |nothing|nobody|none)/i.test(document.getElementById('main').innerText)")
        assert visitor.problems == []
