"""The console: what its pages say, what its forms do, and what nobody can make it do."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from commands import PARTIES, STUDY, command, two_parties
from consoles import Browser, console

from unpooled.console.guard import Session
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import HelperCard
from unpooled.privacy.unit import Target
from unpooled.study.files import read_card, read_study, write_card
from unpooled.study.party import create_helper, create_party
from unpooled.study.run import compile_study

PURPOSE = "Who comes to us, and how old are they?"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Two parties, and a study in the inbox of north."""
    return with_inbox(two_parties(tmp_path))


def with_inbox(world: Path, text: str | None = None, name: str = "people") -> Path:
    text = (world / "study.toml").read_text() if text is None else text
    if "purpose" not in text:
        text = text.replace("[study]\n", f'[study]\npurpose = "{PURPOSE}"\n', 1)
    folder = world / "north/inbox" / name
    for card in ("north", "south"):
        (folder / card).mkdir(parents=True, exist_ok=True)
        shutil.copy(world / card / f"{card}.card.toml", folder / card)
    (folder / "study.toml").write_text(text)
    (world / "study.toml").write_text(text)
    return world


def plan_of(world: Path) -> str:
    return compile_study(read_study(world / "study.toml")).hash


def head(world: Path) -> str:
    with Ledger.open(world / "north/north.ledger") as ledger:
        return ledger.head


def decisions(world: Path) -> list:
    with Ledger.open(world / "north/north.ledger") as ledger:
        return [entry for entry in ledger.entries() if entry.key is None]


NORTH = ("--config", "north/party.toml")


# --- what an officer does


@pytest.mark.long
@pytest.mark.slow
def test_a_study_is_read_approved_run_and_withdrawn(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        assert PURPOSE in browser.get("/")
        shown = browser.get(f"/plan/{plan}")
        assert "Nobody has decided yet" in shown
        assert "the number of values, their sum and their sum of squares in each column" in shown
        assert re.search(r"as large as what [\d.]+ people can change", shown)
        assert "After this plan" in shown
        assert "all declared columns" in shown
        assert browser.decide(plan, "approve").status == 303
        assert "approved</strong> by Dr. A. Example" in browser.get(f"/plan/{plan}")
        (row,) = decisions(world)
        assert (row.kind, row.by, row.reason, row.purpose) == ("approval", "Dr. A. Example", "ethics vote 12/2026", PURPOSE)
        command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
        command(world, "run", "study.toml", *PARTIES)
        assert "epsilon = 1 of 1" in browser.get("/ledger")
        assert "<svg" in browser.get("/ledger")
        assert head(world) in browser.get("/ledger")
        assert PURPOSE in browser.get("/runs")
        report = browser.ask("GET", f"/plan/{plan}/report")
        assert "What this party keeps" in report.text
        assert "sandbox" in report.headers["content-security-policy"]
        shutil.move(world / "study.run", world / "north/inbox/study.run")
        (run,) = re.findall(r'href="[^"]*(/runs/\w+)"', browser.get("/runs"))
        assert "What was found" in browser.get(run)
        assert browser.decide(plan, "withdraw", reason="the vote was wrong").status == 303
        assert "withdrawn</strong> by Dr. A. Example" in browser.get(f"/plan/{plan}")
    assert "not approved here" in command(world, "run", "study.toml", *PARTIES, "--out", "other", code=3)


@pytest.mark.slow
def test_a_declined_study_is_in_the_ledger_and_does_not_run(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        assert browser.decide(plan, "decline", reason="no consent").status == 303
        assert "declined</strong> by Dr. A. Example" in browser.get(f"/plan/{plan}")
        assert "declined" in browser.get("/ledger")
        assert "declined describe" in command(world, "party", "ledger", *NORTH, "--all")
        told = json.loads(command(world, "party", "ledger", *NORTH, "--json"))["studies"]
        assert [(s["state"], s["by"], s["reason"], s["purpose"]) for s in told] == [
            ("declined", "Dr. A. Example", "no consent", PURPOSE)
        ]
        command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
        assert "not approved" in command(world, "run", "study.toml", *PARTIES, code=3)
        # People may think again.
        assert browser.decide(plan, "approve").status == 303
    command(world, "run", "study.toml", *PARTIES)


@pytest.mark.slow
def test_a_study_without_room_in_the_budget_has_no_form_and_is_refused(world: Path) -> None:
    with_inbox(world, (world / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 2.0"))
    plan, before = plan_of(world), head(world)
    with console(world / "north/party.toml") as browser:
        shown = browser.get(f"/plan/{plan}")
        assert "has no room" in shown
        assert f"/plan/{plan}/approve" not in shown
        refused = browser.decide(plan, "approve")
        assert refused.status == 409
        assert "has no room" in refused.text
    assert head(world) == before


def test_data_that_do_not_fit_the_card_are_found_when_it_is_approved(world: Path) -> None:
    plan, before = plan_of(world), head(world)
    lines = (world / "north/data.csv").read_text().splitlines()
    (world / "north/data.csv").write_text("\n".join(lines[:-1]) + "\n")
    with console(world / "north/party.toml") as browser:
        assert browser.decide(plan, "approve").status in {400, 409}
    assert head(world) == before


@pytest.mark.guarantee
@pytest.mark.parametrize("fields", [{"by": ""}, {"reason": "  "}, {"by": "a\nb"}, {"reason": "x" * 5000}, {"by": "\x1b[2J"}])
@pytest.mark.parametrize("action", ["approve", "decline"])
def test_a_decision_needs_a_name_and_a_reason_of_one_line(world: Path, action: str, fields: dict[str, str]) -> None:
    plan, before = plan_of(world), head(world)
    with console(world / "north/party.toml") as browser:
        assert browser.decide(plan, action, **fields).status == 400
    assert head(world) == before


@pytest.mark.slow
def test_what_was_never_approved_cannot_be_withdrawn(world: Path) -> None:
    before = head(world)
    with console(world / "north/party.toml") as browser:
        assert browser.decide(plan_of(world), "withdraw").status == 400
        fields = browser.fields(f"/plan/{plan_of(world)}") | {"by": "a", "reason": "b"}
        assert browser.post("/plan/nonsense/withdraw", fields).status == 400
        assert browser.post(f"/plan/{'0' * 64}/approve", fields).status == 409
    assert head(world) == before


@pytest.mark.slow
def test_a_plan_that_the_party_file_lists_is_approved_and_can_be_withdrawn(world: Path) -> None:
    plan, path = plan_of(world), world / "north/party.toml"
    path.write_text(path.read_text().replace('approval = "ask"', f'approval = ["{plan}"]'))
    with console(path) as browser:
        assert "approved by the party file" in browser.get("/")
        assert "by the party file itself" in browser.get(f"/plan/{plan}")
        assert browser.decide(plan, "withdraw").status == 303
        assert "withdrawn" in browser.get("/") or "declined" in browser.get("/")
    command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
    assert "withdrew its approval" in command(world, "run", "study.toml", *PARTIES, code=3)


@pytest.mark.slow
def test_the_ledger_still_speaks_of_a_study_whose_file_is_gone(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        browser.decide(plan, "approve")
        shutil.rmtree(world / "north/inbox")
        assert "No study waits" in browser.get("/")
        assert "only the ledger speaks of it" in browser.get(f"/plan/{plan}")
        assert browser.decide(plan, "withdraw").status == 303
        assert browser.ask("GET", f"/plan/{'0' * 64}").status == 404
    assert [row.kind for row in decisions(world)] == ["approval", "withdrawal"]


@pytest.mark.slow
@pytest.mark.long
def test_the_audit_and_the_preview_run_in_the_background_and_the_page_reloads_itself(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        before = head(world)
        for action, done in (("audit", "No violation"), ("try", f"/plan/{plan}/preview")):
            assert browser.decide(plan, action).status == 303
            for _ in range(600):
                shown = browser.get(f"/plan/{plan}")
                if 'http-equiv="refresh"' not in shown:
                    break
                time.sleep(0.1)
            assert done in shown
        assert "SIMULATED" in browser.get(f"/plan/{plan}/preview")
        assert head(world) == before


@pytest.mark.guarantee
def test_a_helper_decides_and_has_no_budget(world: Path, tmp_path: Path) -> None:
    config, card = create_helper(tmp_path / "registry", "registry")
    text = (world / "study.toml").read_text() + '[[party]]\ncard = "registry/registry.card.toml"\n'
    folder = tmp_path / "registry/inbox/one"
    shutil.copytree(world / "north/inbox/people", folder)
    (folder / "registry").mkdir()
    shutil.copy(card, folder / "registry")
    (folder / "study.toml").write_text(text.replace("[privacy]", '[trust]\nhelpers = ["registry"]\n\n[privacy]'))
    assert isinstance(read_card(card), HelperCard)
    with console(config) as browser:
        assert browser.get("/")
        assert "its ledger holds decisions only" in browser.get("/ledger")
        assert browser.get("/runs")


# --- who gets in


def pages_of(world: Path) -> list[str]:
    plan = plan_of(world)
    return ["/", "/ledger", "/runs", "/runs/0", f"/plan/{plan}", f"/plan/{plan}/report", f"/plan/{plan}/preview", "/none"]


def test_without_a_ticket_nothing_is_shown(world: Path) -> None:
    with console(world / "north/party.toml", enter=False) as browser:
        for path in pages_of(world):
            for cookie in ("", f"unpooled-{browser.port}=guess", "unpooled=x; ;;=", "\xff"):
                browser.cookie = cookie
                found = browser.ask("GET", path)
                assert found.status == 403
                assert "north" not in found.text
        assert browser.ask("GET", "/style.css").status == 200


def test_a_ticket_opens_once(world: Path) -> None:
    with console(world / "north/party.toml", enter=False) as browser:
        ticket = browser.session.ticket
        for wrong in ("", "?ticket=", "?ticket=x", f"?ticket={ticket}x", "?ticket=%ff"):
            assert browser.ask("GET", f"/enter{wrong}").status == 403
        assert browser.ask("HEAD", f"/enter?ticket={ticket}").status == 403
        assert browser.ask("POST", f"/enter?ticket={ticket}").status == 403
        found = browser.enter()
        assert found.status == 303
        assert {"HttpOnly", "SameSite=Strict"} <= set(found.headers["set-cookie"].split("; "))
        assert browser.ask("GET", f"/enter?ticket={ticket}").status == 403
        assert "north" in browser.get("/")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{}", "[::1]:{}", "", None]
)
def test_another_host_is_refused_and_does_not_use_the_ticket_up(world: Path, host: str | None) -> None:
    with console(world / "north/party.toml", enter=False) as browser:
        headers = {"Host": None if host is None else host.format(browser.port)}
        assert browser.ask("GET", f"/enter?ticket={browser.session.ticket}", headers).status in {400, 421}
        browser.enter()
        for path in pages_of(world):
            assert browser.ask("GET", path, headers).status in {400, 421}
        assert browser.ask("GET", "/", {"Host": f"localhost:{browser.port}"}).status == 200


@pytest.mark.slow
def test_a_form_of_another_site_changes_nothing(world: Path) -> None:
    plan, before = plan_of(world), head(world)
    with console(world / "north/party.toml") as browser:
        fields = browser.fields(f"/plan/{plan}") | {"by": "a", "reason": "b"}
        foreign = [
            {"Origin": None},
            {"Origin": "null"},
            {"Origin": "http://evil.example"},
            {"Origin": f"https://127.0.0.1:{browser.port}"},
            {"Origin": f"http://127.0.0.1:{browser.port + 1}"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Cookie": None},
        ]
        for action in ("approve", "decline", "withdraw", "audit", "try"):
            for headers in foreign:
                assert browser.post(f"/plan/{plan}/{action}", fields, headers).status == 403
            for token in ("", "guess", fields["token"] + "x"):
                assert browser.post(f"/plan/{plan}/{action}", fields | {"token": token}).status == 403
            assert browser.ask("GET", f"/plan/{plan}/{action}").status == 405
        large = fields | {"reason": "x" * 30_000}
        assert browser.post(f"/plan/{plan}/approve", large).status == 413
        assert (
            browser.ask("POST", f"/plan/{plan}/approve", {"Content-Length": None, "Transfer-Encoding": "chunked"}).status
            == 413
        )
        for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
            assert browser.ask(method, f"/plan/{plan}/approve").status == 405
    assert head(world) == before
    assert not [job for job in browser.seen if job.endswith("/audit") and "Under way" in browser.seen[job].text]


def test_the_same_form_decides_where_the_door_is_broken(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the guard's checks the forms that the tests above send are the ones that approve."""
    from unpooled.console import pages
    from unpooled.console.guard import Guard, Session

    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        fields = browser.fields(f"/plan/{plan}") | {"by": "a", "reason": "b"}
        monkeypatch.setattr(Guard, "_refused_form", lambda *_: None)
        foreign = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert browser.post(f"/plan/{plan}/approve", fields | {"token": "guess"}, foreign).status == 403
        monkeypatch.setattr(pages, "is_own", lambda *_: True)
        assert browser.post(f"/plan/{plan}/approve", fields, foreign | {"Cookie": None}).status == 403
        monkeypatch.setattr(Session, "holds", lambda *_: True)
        assert browser.post(f"/plan/{plan}/approve", fields, foreign | {"Cookie": None}).status == 303
    assert [row.kind for row in decisions(world)] == ["approval"]


@pytest.mark.long
@pytest.mark.slow
def test_a_console_that_is_killed_while_it_approves_leaves_the_ledger_whole(world: Path) -> None:
    plan, config = plan_of(world), world / "north/party.toml"
    line = [sys.executable, "-m", "unpooled", "party", "console", "--config", str(config), "--json"]
    found = set()
    for delay in (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 1.0, 5.0):
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process, contextlib.ExitStack() as ended:
            ended.callback(process.kill)
            assert process.stdout is not None
            said = ""
            while not said.rstrip().endswith("}"):
                said += process.stdout.readline()
            where, _, ticket = json.loads(said)["address"].partition("/enter?ticket=")
            session = Session(int(where.rpartition(":")[2]))
            session.ticket = ticket
            browser = Browser(session.port, session)
            assert browser.enter().status == 303
            fields = browser.fields(f"/plan/{plan}") | {"by": "a", "reason": "b"}
            sending = threading.Thread(target=_sent, args=(browser, plan, fields))
            sending.start()
            time.sleep(delay)
            process.kill()
            sending.join(30)
        rows = decisions(world)
        with Ledger.open(world / "north/north.ledger") as ledger:
            assert not [entry for entry in ledger.entries() if entry.key is not None]
        found.add(len(rows))
        assert len(rows) <= 1
    assert 1 in found
    with console(config) as again:
        assert "approved</strong> by a" in again.get(f"/plan/{plan}")


def _sent(browser: Browser, plan: str, fields: dict[str, str]) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        browser.post(f"/plan/{plan}/approve", fields)


@pytest.mark.slow
def test_two_consoles_do_not_take_each_others_cookies_or_forms(world: Path) -> None:
    plan, before = plan_of(world), head(world)
    with console(world / "north/party.toml") as one, console(world / "north/party.toml") as other:
        fields = one.fields(f"/plan/{plan}") | {"by": "a", "reason": "b"}
        assert other.post(f"/plan/{plan}/approve", fields).status == 403
        cookie, other.cookie = other.cookie, one.cookie
        assert other.ask("GET", "/").status == 403
        assert head(world) == before
        # Both decide at once: one row, and a ledger that is whole.
        other.cookie = cookie
        status: list[int] = []
        threads = [
            threading.Thread(target=lambda b=b: status.append(b.decide(plan, "approve").status)) for b in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        # The second one sees either its own decision made already, or a page that is no longer true.
        assert 303 in status
        assert set(status) <= {303, 409}
        assert "approved</strong>" in one.get(f"/plan/{plan}")
    assert [row.kind for row in decisions(world)] == ["approval"]


@pytest.mark.slow
def test_a_read_only_console_shows_everything_and_decides_nothing(world: Path) -> None:
    plan, before = plan_of(world), head(world)
    with console(world / "north/party.toml", read_only=True) as browser:
        for path in ("/", "/ledger", "/runs", f"/plan/{plan}"):
            shown = browser.get(path)
            assert "<form" not in shown
            assert "read-only" in shown
        fields = {"token": browser.session.token, "by": "a", "reason": "b", "shown": "x"}
        for action in ("approve", "decline", "withdraw", "audit", "try"):
            assert browser.post(f"/plan/{plan}/{action}", fields).status == 403
    assert head(world) == before


# --- what is shown is what is decided


def rewritten(world: Path, old: str, new: str) -> None:
    file = world / "north/inbox/people/study.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.slow
def test_a_plan_that_is_swapped_after_it_was_shown_is_not_approved(world: Path) -> None:
    plan, before = plan_of(world), head(world)
    with console(world / "north/party.toml") as browser:
        fields = browser.fields(f"/plan/{plan}") | {"by": "a", "reason": "b"}
        rewritten(world, "epsilon = 1.0", "epsilon = 0.9")
        for action in ("approve", "decline"):
            assert browser.post(f"/plan/{plan}/{action}", fields).status == 409
        rewritten(world, "epsilon = 0.9", "epsilon = 1.0")
        rewritten(world, PURPOSE, "Something else")
        refused = browser.post(f"/plan/{plan}/approve", fields)
        assert refused.status == 409
        assert "read it again" in refused.text
        rewritten(world, "Something else", PURPOSE)
        card = world / "north/inbox/people/south/south.card.toml"
        text = card.read_text()
        card.write_text(text.replace("rows = 200", "rows = 201"))
        assert browser.post(f"/plan/{plan}/approve", fields).status == 409
        card.write_text(text)
        assert head(world) == before
        assert browser.post(f"/plan/{plan}/approve", fields).status == 303


HTML = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;"


@pytest.mark.guarantee
def test_html_in_every_name_is_text(tmp_path: Path) -> None:
    world = two_parties(tmp_path)
    home = tmp_path / "north"
    for name in ("party.toml", "north.card.toml"):
        (home / name).unlink()
    for file in home.glob("north.ledger*"):
        file.unlink()
    columns = (Column("age", 0.0, 100.0), Column("sex", categories=("f", "m", HTML)))
    create_party(home, "north", home / "data.csv", columns, Target(1.0, 1e-6), "id", new_budget=True)
    card = read_card(home / "north.card.toml")
    party = (home / "party.toml").read_text().replace("[party]\n", f"[party]\ncollected = '''{HTML}'''\n", 1)
    (home / "party.toml").write_text(party)
    try:
        command(world, "party", "card", *NORTH)
    except AssertionError:  # the party file has no such key: the card has it alone
        (home / "party.toml").write_text(party.replace(f"collected = '''{HTML}'''\n", ""))
        (home / "north.card.toml").write_text(write_card(card))
    text = STUDY.replace('[[party]]\ncard = "south/south.card.toml"\n', "")
    text = text.replace("[study]\n", f"[study]\npurpose = '''{HTML}'''\n").replace(
        "[privacy]\n", f"[privacy]\njustification = '''{HTML}'''\n"
    )
    (world / "study.toml").write_text(text)
    folder = home / "inbox/<b>bold<"
    (folder / "north").mkdir(parents=True)
    shutil.copy(home / "north.card.toml", folder / "north")
    (folder / "study.toml").write_text(text)
    (folder / "<i>.toml").write_text(f"[study]\nmodel = '''{HTML}'''\n")
    plan = plan_of(world)
    with console(home / "party.toml") as browser:
        assert browser.decide(plan, "approve", by=HTML, reason=HTML).status == 303
        command(world, "run", "study.toml", "--party", "north/party.toml", "--out", "north/<u>.run")
        for path in ("/", f"/plan/{plan}", "/ledger", "/runs", f"/plan/{plan}/report"):
            shown = browser.get(path)
            for bad in ("<script", "<img", "onerror=alert(1)>", "<b>bold", "<i>.", "<u>."):
                assert bad not in shown, (path, bad)
        assert "&lt;script&gt;alert(1)" in browser.get(f"/plan/{plan}")
        assert "&lt;u&gt;.run" in browser.get("/runs")
        refused = browser.decide(plan, "withdraw", reason=HTML * 40)
        assert refused.status == 400
        assert "<script" not in refused.text


def test_files_that_cannot_be_read_say_why_and_hide_no_other(world: Path) -> None:
    inbox = world / "north/inbox"
    (inbox / "a.proposal").write_bytes(b"\x00\xff" * 100)
    (inbox / "b.proposal").write_bytes(b"\x93" * 100_000)
    (inbox / "c.toml").write_text("[study]\nmodel = 'nonsense'\n")
    (inbox / "d.toml").write_text("[study]\n" + "x" * 100)
    (inbox / "e.toml").write_text("study = " + "[" * 5000 + "]" * 5000)
    (inbox / "f.toml").symlink_to(inbox / "f.toml")
    (inbox / "g.toml").mkdir()
    (inbox / "h.proposal").mkdir()
    with console(world / "north/party.toml") as browser:
        shown = browser.get("/")
        assert PURPOSE in shown
        assert "Cannot be shown" in shown
        for name in ("a.proposal", "b.proposal", "c.toml"):
            assert name in shown
        assert "Traceback" not in shown


@pytest.mark.slow
def test_every_answer_forbids_scripts_styles_and_frames(world: Path) -> None:
    with console(world / "north/party.toml") as browser:
        plan = plan_of(world)
        for path in (*pages_of(world), "/style.css", f"/plan/{plan}/approve"):
            found = browser.ask("GET", path)
            policy = found.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "script-src" not in policy
            assert found.headers["cache-control"] == "no-store"
            assert found.headers["referrer-policy"] == "same-origin"
            assert found.headers["x-content-type-options"] == "nosniff"
            if "sandbox" not in policy and path != "/style.css":
                assert "unsafe-inline" not in policy
                assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", found.text), path
            # Nothing is fetched from elsewhere.
            assert not re.search(r'(?:src|href|action)="(?!/|#)', found.text.replace('href="#', "")), path


def test_labels_headings_and_the_order_of_focus(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        for path in ("/", "/ledger", "/runs", f"/plan/{plan}"):
            shown = browser.get(path)
            assert shown.count("<h1") == 1
            assert '<html lang="en">' in shown
            assert "tabindex" not in shown  # the order is that of the page
            assert shown.index('class="skip"') < shown.index("<nav") < shown.index("<main")
            ids = re.findall(r'\sid="([^"]+)"', re.sub(r"<svg.*?</svg>", "", shown, flags=re.DOTALL))
            assert len(ids) == len(set(ids))
            for field in re.findall(r'<input id="([^"]+)"', shown):
                assert f'<label for="{field}">' in shown


def test_a_page_that_fails_says_so_without_the_error(
    world: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> str:
        raise KeyError("the secret value 141.7")

    monkeypatch.setattr("unpooled.console.desk.read_inbox", fails)
    with console(world / "north/party.toml") as browser:
        found = browser.ask("GET", "/")
        assert found.status == 500
        assert "141.7" not in found.text
    assert "141.7" not in caplog.text
    assert "a page failed with KeyError" in caplog.text


@pytest.mark.guarantee
def test_the_command_needs_its_extra_and_a_party(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read" in command(world, "party", "console", "--config", "none.toml", code=2)
    import sys

    for name in [name for name in sys.modules if name.startswith("unpooled.console")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'unpooled[console]'" in command(world, "party", "console", *NORTH, code=2)


def test_contrast_of_every_colour_of_text_is_at_least_4_5() -> None:
    from unpooled.console.pages import style

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{([^}]*)\}", style())]
    assert len(themes) >= 2
    for theme in themes[:2]:
        for ground in ("ground", "wash"):
            for text, least in {
                "ink": 4.5,
                "soft": 4.5,
                "good": 4.5,
                "bad": 4.5,
                "warn": 4.5,
                "other": 3.0,
                "faint": 2.5,
            }.items():
                light, dark = sorted((luminance(theme[text]), luminance(theme[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= least, (text, ground)


# --- what a data manager missed


@pytest.mark.slow
def test_a_study_of_which_too_little_is_expected_says_so_before_it_is_approved(world: Path) -> None:
    text = (
        (world / "study.toml")
        .read_text()
        .replace('model = "describe"', 'model = "bayes"')
        .replace("epsilon = 1.0", "epsilon = 0.001")
    )
    text = text.replace("[privacy]", '[parameters]\nresponse = "age"\n\n[privacy]')
    with_inbox(world, text)
    with console(world / "north/party.toml") as browser:
        shown = browser.get(f"/plan/{plan_of(world)}")
        assert "Too little is expected of this study" in shown
        assert "will be refused" in shown
        with_inbox(world, text.replace("[study]\n", "[study]\nforce = true\n"))
        assert "force = true" in browser.get(f"/plan/{plan_of(world)}")
    assert "Warning: " in command(world, "party", "check", "study.toml", *NORTH)


@pytest.mark.long
@pytest.mark.slow
def test_approved_studies_that_have_not_run_are_counted(world: Path) -> None:
    text = (world / "study.toml").read_text()
    with_inbox(world, text.replace("epsilon = 1.0", "epsilon = 0.9"), "first")
    first = plan_of(world)
    with_inbox(world, text.replace("epsilon = 1.0", "epsilon = 0.8"), "second")
    second = plan_of(world)
    with console(world / "north/party.toml") as browser:
        assert "Approved, not run yet" not in browser.get(f"/plan/{second}")
        assert browser.decide(first, "approve").status == 303
        assert "none yet" in browser.get("/ledger")
        shown = browser.get(f"/plan/{second}")
        assert "Approved, not run yet" in shown
        assert "1 other study" in shown
        assert "1 more study is approved here" in command(world, "party", "check", "study.toml", *NORTH)
        assert browser.decide(second, "approve").status == 303
        command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
        command(world, "run", "study.toml", *PARTIES)
        assert "Approved, not run yet" not in browser.get(f"/plan/{second}") or "0.9" in browser.get(f"/plan/{second}")
        assert "it cannot run (any more)" in browser.get(f"/plan/{first}")


def test_a_study_file_that_a_mail_program_changed_and_a_card_that_is_missing_are_shown(world: Path) -> None:
    inbox = world / "north/inbox"
    (inbox / "quotes.toml").write_text("[study]\nmodel = “describe”\n")
    (inbox / "alone").mkdir()
    shutil.copy(inbox / "people/study.toml", inbox / "alone/study.toml")
    with console(world / "north/party.toml") as browser:
        shown = browser.get("/")
        assert "quotes.toml" in shown
        assert "not a TOML file" in shown
        assert "the study names the card north/north.card.toml, which does not lie there" in shown


def test_a_study_without_this_party_is_not_waiting(world: Path) -> None:
    with_inbox(
        world, (world / "study.toml").read_text().replace('[[party]]\ncard = "north/north.card.toml"\n\n', ""), "south"
    )
    with console(world / "north/party.toml") as browser:
        assert "Not for this party" in browser.get("/")
        assert "is no member of this study" in browser.get(f"/plan/{plan_of(world)}")


@pytest.mark.slow
def test_who_approved_is_still_there_after_a_withdrawal(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        browser.decide(plan, "approve", by="Dr. A. Example", reason="the vote")
        browser.decide(plan, "withdraw", by="Dr. B. Example", reason="no consent")
        shown = browser.get("/ledger")
        assert re.search(
            r"approved [\d :-]+ by Dr. A. Example: the vote \(for the data with digest [0-9a-f]{16}\); withdrawn [\d :-]+ by Dr. B. Example: no consent",
            shown,
        )


def test_a_cut_head_is_told_from_a_false_one(world: Path) -> None:
    with console(world / "north/party.toml") as browser:
        old = head(world)
        browser.decide(plan_of(world), "approve")
    command(world, "party", "ledger", *NORTH, "--export", "ledger.json")
    assert "give all of it" in command(world, "party", "verify", "ledger.json", "--head", old[:8], code=2)
    assert "never ended in the head" in command(world, "party", "verify", "ledger.json", "--head", "0" * 64, code=2)
    assert "rows were added after it" in command(world, "party", "verify", "ledger.json", "--head", old)
    assert "it is the head of today" in command(world, "party", "verify", "ledger.json", "--head", head(world))
