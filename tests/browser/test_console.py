"""The console in a real browser, by the real command, over real ledgers. Screenshots stay in build/console, to be looked at."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import PARTIES, command, two_parties
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

from unpooled.privacy.ledger import Ledger
from unpooled.study.files import read_study
from unpooled.study.run import compile_study

SHOTS = Path(__file__).parents[2] / "build/console"
#: The studies in the inbox, by folder: purpose and epsilon. The last has no room in a budget of 1.
STUDIES = {
    "age": ("How old are the people who come to us?", 0.6),
    "again": ("The same once more", 0.2),
    "dear": ("Every year, exactly", 3.0),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:  # what the ledgers of all tests are remembered in is set for each test alone
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        found = two_parties(tmp_path_factory.mktemp("console"))
    for name, (purpose, epsilon) in STUDIES.items():
        text = (found / "study.toml").read_text().replace("epsilon = 1.0", f"epsilon = {epsilon}")
        text = text.replace("[study]\n", f'[study]\npurpose = "{purpose}"\n')
        for folder in (found / "north/inbox" / name, found / name):
            for party in ("north", "south"):
                (folder / party).mkdir(parents=True)
                shutil.copy(found / party / f"{party}.card.toml", folder / party)
            (folder / "study.toml").write_text(text)
    return found


@contextmanager
def served(world: Path, *words: str) -> Iterator[str]:
    """The real command; gives the address with its ticket."""
    line = [sys.executable, "-m", "unpooled", "party", "console", "--config", "north/party.toml", "--json", *words]
    with subprocess.Popen(line, cwd=world, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while not said.rstrip().endswith("}"):
                said += process.stdout.readline()
            yield json.loads(said)["address"]
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def home(world: Path, browser: Chrome) -> Iterator[str]:
    """The console is open in the browser; gives its address without the ticket."""
    with served(world) as address:
        browser.get(address)
        yield browser.current_url.rstrip("/")


def plan_of(world: Path, name: str) -> str:
    return compile_study(read_study(world / name / "study.toml")).hash


def text(browser: Chrome) -> str:
    """The text of the page; of the next one where this one goes away while it is read."""
    for _ in range(40):
        with contextlib.suppress(StaleElementReferenceException, NoSuchElementException):
            return browser.find_element(By.TAG_NAME, "main").text
        time.sleep(0.05)
    return ""


def fill(browser: Chrome, action: str, by: str, reason: str) -> None:
    """Fill in a form as people do: click into a field, type, press Tab to the next, and Enter."""
    field = browser.find_element(By.ID, f"{action}-by")
    field.clear()
    field.send_keys(by, Keys.TAB)
    browser.switch_to.active_element.send_keys(reason, Keys.TAB)
    button = browser.switch_to.active_element
    assert button.tag_name == "button"
    button.send_keys(Keys.ENTER)
    WebDriverWait(browser, 60).until(staleness_of(button))  # the next page has come


def last_decision(world: Path, plan: str) -> tuple[str, str, str]:
    with Ledger.open(world / "north/north.ledger") as ledger:
        *_, last = (entry for entry in ledger.entries() if entry.plan == plan and entry.key is None)
    return last.kind, last.by, last.reason


def test_approve_run_report_and_withdraw(world: Path, browser: Chrome, home: str) -> None:
    plan = plan_of(world, "age")
    browser.get(f"{home}/")
    browser.find_element(By.LINK_TEXT, STUDIES["age"][0]).click()
    assert "Nobody has decided yet" in text(browser)
    fill(browser, "approve", "Dr. A. Example", "ethics vote 12/2026")
    assert "approved by Dr. A. Example" in text(browser).lower().replace("dr. a. example", "Dr. A. Example")
    assert last_decision(world, plan) == ("approval", "Dr. A. Example", "ethics vote 12/2026")
    command(world, "party", "check", "age/study.toml", "--config", "south/party.toml", "--approve")
    command(world, "run", "age/study.toml", *PARTIES, "--out", "north/inbox/age/age.run")
    browser.get(f"{home}/ledger")
    assert "epsilon = 0.6 of 1 is spent" in text(browser)
    with Ledger.open(world / "north/north.ledger") as ledger:
        assert ledger.head in text(browser)
    browser.get(f"{home}/runs")
    browser.find_element(By.PARTIAL_LINK_TEXT, "age.run").click()
    assert "What was found" in text(browser)
    browser.get(f"{home}/runs")
    browser.find_element(By.PARTIAL_LINK_TEXT, STUDIES["age"][0]).click()
    assert "What this party's ledger says of it" in text(browser)
    browser.get(f"{home}/plan/{plan}")
    fill(browser, "withdraw", "Dr. A. Example", "the vote was wrong")
    assert "withdrawn by" in text(browser).lower()
    assert last_decision(world, plan)[0] == "withdrawal"


def test_decline(world: Path, browser: Chrome, home: str) -> None:
    plan = plan_of(world, "again")
    browser.get(f"{home}/plan/{plan}")
    # A form without a reason is not even sent.
    browser.find_element(By.CSS_SELECTOR, 'form[action$="/decline"] button').click()
    assert "Nobody has decided yet" in text(browser)
    fill(browser, "decline", "Dr. A. Example", "asked before")
    assert "declined by" in text(browser).lower()
    assert last_decision(world, plan) == ("withdrawal", "Dr. A. Example", "asked before")


def test_a_study_without_room_cannot_be_approved(world: Path, browser: Chrome, home: str) -> None:
    browser.get(f"{home}/plan/{plan_of(world, 'dear')}")
    assert "has no room" in text(browser)
    assert not browser.find_elements(By.CSS_SELECTOR, 'form[action$="/approve"]')


def test_audit_and_preview(world: Path, browser: Chrome, home: str) -> None:
    plan = plan_of(world, "again")
    browser.get(f"{home}/plan/{plan}")
    for action, done in (("audit", "No violation"), ("try", "Open the preview")):
        browser.find_element(By.CSS_SELECTOR, f'form[action$="/{action}"] button').click()
        for _ in range(240):  # the page reloads itself
            if done.lower() in text(browser).lower():
                break
            time.sleep(0.25)
        assert done.lower() in text(browser).lower()
    browser.find_element(By.LINK_TEXT, "Open the preview").click()
    assert "SIMULATED" in text(browser)


def test_the_ticket_opens_one_browser_once(world: Path, browser: Chrome) -> None:
    with served(world, "--read-only") as address:
        browser.get(address)
        assert "read-only" in browser.find_element(By.TAG_NAME, "nav").text
        cookie = next(c for c in browser.get_cookies() if c["name"].endswith(address.split(":")[2].split("/")[0]))
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert not browser.execute_script("return document.cookie")
        browser.delete_cookie(cookie["name"])
        for again in (address, address.partition("/enter")[0]):
            browser.get(again)
            assert "The console did not answer" in text(browser)


def test_a_page_of_another_site_can_neither_send_nor_frame_nor_read(world: Path, browser: Chrome, home: str) -> None:
    plan = plan_of(world, "again")
    before = last_decision(world, plan)
    page = f"""<!doctype html><form id="f" method="post" action="{home}/plan/{plan}/approve"><input name="by" value="x"><input name="reason" value="y">
    </form><iframe id="i" src="{home}/ledger"></iframe><script>
    fetch("{home}/ledger", {{credentials: "include"}}).then(r => r.text()).then(t => window.read = t, () => window.read = "no")</script>"""

    handed: list[str] = []

    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handed.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            for host in (
                "localhost",
                "127.0.0.1",
            ):  # another site, and another origin of the same site, whose forms carry the cookie
                browser.get(f"http://{host}:{server.server_port}/")
                for _ in range(100):
                    if read := browser.execute_script("return window.read"):
                        break
                    time.sleep(0.05)
                assert read == "no"
                browser.execute_script("document.getElementById('f').submit()")
                for _ in range(100):
                    if browser.find_elements(By.CSS_SELECTOR, "main .verdict"):
                        break
                    time.sleep(0.05)
                assert "The console did not answer" in text(browser)
        finally:
            server.shutdown()
    # Cookies know no port: a server of somebody else on this machine would be handed that of the console, but for its path.
    assert len(handed) > 1
    assert not any("unpooled" in cookies for cookies in handed)
    assert last_decision(world, plan) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_page_fits_and_is_readable(world: Path, browser: Chrome, home: str, width: int, scheme: str) -> None:
    """No page is wider than the window, no text has too little contrast, and the browser complains of nothing."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get_log("browser")
    pages = {"studies": "/", "budget": "/ledger", "reports": "/runs"} | {
        name: f"/plan/{plan_of(world, name)}" for name in STUDIES
    }
    for name, path in pages.items():
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(home + path)
        for _ in range(40):  # the new size of the window reaches a page after it was loaded
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            if wide <= width:
                break
            time.sleep(0.05)
        assert wide <= width, path
        assert browser.execute_script(CONTRAST) == [], path
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | {"height": min(height, 6000)})
        browser.save_screenshot(str(SHOTS / f"{name}-{width}-{scheme}.png"))
    assert browser.get_log("browser") == []
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


#: Every text whose contrast with the ground behind it is below 4.5, as the browser computed both.
CONTRAST = """
const rgb = c => (c.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const bad = [];
for (const e of document.querySelectorAll("main *, nav *")) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length) continue;
  const style = getComputedStyle(e), inside = e.closest("svg");
  const a = light(rgb(inside ? (style.fill === "none" ? "rgb(0,0,0)" : style.fill) : style.color)), b = light(ground(e));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) bad.push(e.tagName + " " + e.textContent.trim().slice(0, 40) + " " + ratio.toFixed(2));
}
return bad;
"""


def test_tab_goes_through_the_page_in_its_order(world: Path, browser: Chrome, home: str) -> None:
    browser.get(f"{home}/plan/{plan_of(world, 'dear')}")
    seen = []
    for _ in range(30):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.switch_to.active_element
        if focused.tag_name == "body":
            break
        seen.append(focused.rect["y"])
        outline = focused.value_of_css_property("outline-style")
        assert outline != "none", focused.get_attribute("outerHTML")
    assert len(seen) > 6
    assert seen[1:] == sorted(seen[1:])  # the first is the link that skips to the content
    assert re.match(r"\d", str(seen[0]))
