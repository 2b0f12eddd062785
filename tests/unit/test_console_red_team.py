"""Attacks on the console that a red team tried: those that got through once, and the best of those that did not."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from commands import PARTIES, command, two_parties
from consoles import Browser, console

from unpooled.console import desk as inbox
from unpooled.errors import UsageError
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import Plan, Study
from unpooled.protocol.transcript import Transcript
from unpooled.study.files import read_study
from unpooled.study.run import compile_study


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are kept for all consoles of a process; here each test begins without any."""
    monkeypatch.setattr(inbox, "_compiler", type(inbox._compiler)())


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Two parties, and a study in the inbox of north."""
    made = two_parties(tmp_path)
    folder = made / "north/inbox/people"
    for card in ("north", "south"):
        (folder / card).mkdir(parents=True)
        shutil.copy(made / card / f"{card}.card.toml", folder / card)
    shutil.copy(made / "study.toml", folder)
    return made


def plan_of(world: Path) -> str:
    return compile_study(read_study(world / "study.toml")).hash


def decisions(world: Path) -> list[tuple[str, str]]:
    with Ledger.open(world / "north/north.ledger") as ledger:
        return [(entry.kind, entry.by) for entry in ledger.entries() if entry.key is None]


def raw(browser: Browser, *sent: bytes) -> bytes:
    """What comes back for bytes that no browser sends."""
    with socket.create_connection(("127.0.0.1", browser.port), timeout=10) as connection:
        with contextlib.suppress(OSError):  # a server that has heard enough may hang up before the last byte
            for part in sent:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65_536):
                found += part
        return found


# --- a page that is looked at changes no file


def test_a_link_that_poses_as_a_transcript_does_not_empty_the_ledger(world: Path) -> None:
    """An analyst's folder may hold links; a report of such a "run" once cut the file behind the link to nothing."""
    run = world / "north/inbox/a.run"
    run.mkdir()
    targets = [world / "north/north.ledger", world / "north/data.csv", world / "north/party.toml"]
    for target in targets:
        before = target.read_bytes()
        (run / "transcript").symlink_to(target)
        with console(world / "north/party.toml", read_only=True) as browser:
            address = browser.get("/runs").partition("/runs/")[2].partition('"')[0]
            assert browser.ask("GET", f"/runs/{address}").status in {400, 409}
        assert target.read_bytes() == before
        (run / "transcript").unlink()


@pytest.mark.slow
def test_the_report_of_a_run_that_goes_on_leaves_its_transcript_alone(world: Path) -> None:
    command(world, "party", "check", "study.toml", "--config", "north/party.toml", "--approve")
    command(world, "party", "check", "study.toml", "--config", "south/party.toml", "--approve")
    command(world, "run", "study.toml", *PARTIES, "--out", "north/inbox/a.run")
    file = world / "north/inbox/a.run/transcript"
    torn = file.read_bytes() + b"\x00\x00\x00\x00\x00\x00\xff\xffabcd and a reply that is being written"
    file.write_bytes(torn)
    file.chmod(stat.S_IRUSR)
    with console(world / "north/party.toml") as browser:
        address = browser.get("/runs").partition("/runs/")[2].partition('"')[0]
        assert "What was found" in browser.get(f"/runs/{address}")
    assert file.read_bytes() == torn
    # The control: who goes on with the run cuts the torn frame off, as before.
    file.chmod(0o600)
    Transcript.open(file).close()
    assert len(file.read_bytes()) < len(torn)


# --- what lies in the inbox


@pytest.mark.long
@pytest.mark.slow
def test_a_file_without_end_hides_nothing_and_stops_no_page(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        for name in ("a.toml", "a.proposal", "people/south/south.card.toml"):
            file = world / "north/inbox" / name
            for kind in ("pipe", "device", "large"):
                file.unlink(missing_ok=True)
                if kind == "pipe":
                    os.mkfifo(file)
                elif kind == "device":
                    file.symlink_to("/dev/zero")
                else:
                    with file.open("wb") as out:
                        out.truncate(10**12)
                assert ("Cannot be shown" in browser.get("/")) == (name != "a.toml" or kind == "large"), (name, kind)
                assert browser.ask("GET", f"/plan/{plan}").status == (404 if "card" in name else 200)
            file.unlink()


@pytest.mark.slow
def test_a_study_that_takes_minutes_to_compile_holds_up_no_page(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, plan, compiled, ended = world / "north/inbox/people", plan_of(world), inbox.compile_study, threading.Event()
    (folder / "a.toml").write_text((folder / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 0.5"))
    (folder / "b.toml").write_text((folder / "study.toml").read_text().replace("epsilon = 1.0", "epsilon = 0.25"))
    asked: list[float] = []

    def slowly(study: Study) -> Plan:
        asked.append(study.epsilon)
        if study.epsilon == 0.25:
            raise UsageError("it does not compile")
        if study.epsilon == 0.5:
            ended.wait(60)
        return compiled(study)

    monkeypatch.setattr(inbox, "compile_study", slowly)
    monkeypatch.setattr(inbox, "_PATIENCE", 0.1)
    with console(world / "north/party.toml") as browser:
        for _ in range(3):
            assert "still being worked out" in browser.get("/")
        while "Nobody has decided" not in browser.ask("GET", f"/plan/{plan}").text:
            time.sleep(0.05)
        assert browser.decide(plan, "decline").status == 303
        ended.set()
        while "still being worked out" in browser.get("/"):
            time.sleep(0.05)
        assert "it does not compile" in browser.get("/")
    assert sorted(asked) == [0.25, 0.5, 1.0]  # nothing is worked out twice


def test_no_model_is_loaded_before_the_policy_admits_it(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study file with ids and keys is compiled to see whether its columns are split; the model of another package must be admitted first."""
    from unpooled.study import files

    file = world / "north/inbox/people/study.toml"
    file.write_text(file.read_text().replace('"describe"', '"foreign"'))
    loaded: list[str] = []
    monkeypatch.setattr(files, "load", lambda name: loaded.append(name) or files.load)
    monkeypatch.setattr(inbox, "maker", lambda _: "foreign-package 1.0")
    with console(world / "north/party.toml") as browser:
        assert "runs unpooled&#39;s own models only" in browser.get("/")
    assert loaded == []


# --- who decided, and what they knew


@pytest.mark.slow
def test_a_page_from_before_a_decision_does_not_undo_it(world: Path) -> None:
    """Two people look at one study. One declines it; the other's page still says that nobody has decided."""
    plan = plan_of(world)
    with console(world / "north/party.toml") as one, console(world / "north/party.toml") as other:
        stale = other.fields(f"/plan/{plan}") | {"by": "late", "reason": "it looked open"}
        assert one.decide(plan, "decline", by="first").status == 303
        refused = other.post(f"/plan/{plan}/approve", stale)
        assert refused.status == 409
        assert "somebody decided" in refused.text
        assert one.decide(plan, "approve", by="first").status == 303
        assert other.post(f"/plan/{plan}/decline", stale).status == 409
        # The same form twice, after its approval was taken back: a browser's "back", and Enter.
        again = one.fields(f"/plan/{plan}") | {"by": "first", "reason": "x"}
        assert one.post(f"/plan/{plan}/withdraw", again).status == 303
        assert one.post(f"/plan/{plan}/approve", again).status == 409
    assert decisions(world) == [("withdrawal", "first"), ("approval", "first"), ("withdrawal", "first")]


@pytest.mark.guarantee
def test_a_form_that_is_sent_twice_decides_once(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        for action in ("decline", "approve"):
            form = browser.fields(f"/plan/{plan}") | {"by": "a", "reason": "b"}
            assert [browser.post(f"/plan/{plan}/{action}", form).status for _ in range(2)] == [303, 303]
            assert browser.post(f"/plan/{plan}/{action}", form | {"by": "c"}).status == 409
    assert decisions(world) == [("withdrawal", "a"), ("approval", "a")]


@pytest.mark.guarantee
def test_a_decision_while_the_data_are_read_is_not_undone(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data are held against the plan for minutes, perhaps; what somebody says meanwhile, here on the command line, counts."""
    from unpooled.protocol.party import Party

    plan, consider = plan_of(world), Party.consider

    def slowly(self: Party, *given: object, **named: object) -> object:
        found = consider(self, *given, **named)  # type: ignore[arg-type]
        with Ledger.open(world / "north/north.ledger") as ledger:
            ledger.withdraw(plan, by="somebody", reason="no")
        return found

    with console(world / "north/party.toml") as browser:
        monkeypatch.setattr(Party, "consider", slowly)
        assert browser.decide(plan, "approve").status == 409
    assert decisions(world) == [("withdrawal", "somebody")]


# --- other servers of this machine


def test_the_cookie_is_of_a_path_that_no_other_server_can_name(world: Path) -> None:
    """Browsers send the cookies of 127.0.0.1 to each of its ports: the path alone keeps this one from a server of somebody else."""
    with console(world / "north/party.toml", enter=False) as browser:
        entered = browser.enter()
        attributes = entered.headers["set-cookie"].split("; ")
        assert f"Path={browser.root}/" in attributes
        assert len(browser.root) > 20
        browser.root = ""
        for path in ("/", "/ledger", "/runs", "/x/ledger", f"/plan/{plan_of(world)}"):
            assert browser.ask("GET", path).status == 403
        assert browser.ask("GET", "/favicon.ico").status == 204


def test_cookies_of_other_servers_shut_nobody_out(world: Path) -> None:
    with console(world / "north/party.toml") as browser:
        own = browser.cookie
        for others in (
            f"{own}; unpooled-{browser.port}=tossed",
            f'odd={{"a": [1, 2]}}; {own}',
            f"a=\xff; b; ; =; {own}",
            f"[x]=1;{own}",
        ):
            browser.cookie = others
            assert browser.ask("GET", "/").status == 200
        browser.cookie = f"unpooled-{browser.port}=; x{own}"
        assert browser.ask("GET", "/").status == 403


# --- what no browser sends


def test_bytes_that_no_browser_sends_open_nothing(world: Path) -> None:
    plan = plan_of(world)
    with console(world / "north/party.toml") as browser:
        host, root = f"127.0.0.1:{browser.port}", browser.root
        known = f"Host: {host}\r\nCookie: {browser.cookie}\r\nConnection: close\r\n"
        form = f"POST {root}/plan/{plan}/decline HTTP/1.1\r\n{known}Content-Type: application/x-www-form-urlencoded\r\n"
        strange = [
            f"GET {root}/ HTTP/1.0\r\nCookie: {browser.cookie}\r\n\r\n",
            f"GET {root}/ HTTP/1.1\r\nHost: evil.example\r\n{known}\r\n",
            f"GET {root}/ HTTP/1.1\r\nHost: {host}.\r\nCookie: {browser.cookie}\r\n\r\n",
            f"GET http://evil.example{root}/ HTTP/1.1\r\nHost: evil.example\r\nCookie: {browser.cookie}\r\n\r\n",
            f"GET {root}/ HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n",
            f"GET {root}/plan/..%2f..%2fledger HTTP/1.1\r\n{known}\r\n",
            f"GET {root}/plan/{'a' * 60_000} HTTP/1.1\r\n{known}\r\n",
            f"GET {root}/{'x' * 200_000} HTTP/1.1\r\n{known}\r\n",
            f"GET {root}//evil.example/ledger/ HTTP/1.1\r\n{known}\r\n",
            f"{form}Origin: http://{host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ntoken\r\n0\r\n\r\n",
            f"{form}Origin: http://evil.example\r\nOrigin: http://{host}\r\nContent-Length: 5\r\n\r\ntoken",
            f"{form}Origin: http://{host}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\ntoken",
            f"{form}Origin: http://{host}\r\nContent-Length: +5\r\n\r\ntoken",
            f"{form}Origin: http://{host}\r\nContent-Length: 99999999999999999999999999\r\n\r\ntoken",
        ]
        for sent in strange:
            found = raw(browser, sent.encode())
            assert b"evil.example" not in found.partition(b"\r\n\r\n")[0]
            assert not found.startswith(b"HTTP/1.1 303")
            if b"Upgrade" not in sent.encode():
                assert not found.startswith(b"HTTP/1.1 200"), sent
        # A second request in the same bytes is judged by itself.
        found = raw(
            browser,
            f"GET /style.css HTTP/1.1\r\nHost: {host}\r\n\r\nGET {root}/ledger HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        )
        assert found.count(b"HTTP/1.1 200") == 1
        assert found.count(b"HTTP/1.1 403") == 1
        parts = (
            "".join(f'--b\r\nContent-Disposition: form-data; name="f{i}"; filename="f"\r\n\r\nx\r\n' for i in range(100))
            + "--b--\r\n"
        )
        many = browser.ask(
            "POST", f"/plan/{plan}/decline", {"Content-Type": "multipart/form-data; boundary=b"}, parts.encode()
        )
        assert many.status == 400
    assert decisions(world) == []


@pytest.mark.slow
def test_one_ticket_opens_one_of_many_browsers_at_once(world: Path) -> None:
    with console(world / "north/party.toml", enter=False) as browser:
        path, status = f"/enter?ticket={browser.session.ticket}", list[int]()
        threads = [threading.Thread(target=lambda: status.append(browser.ask("GET", path).status)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(status) == [303] + [403] * 15


LETTERS = "\u202e\u200b\u2066\u00ad\ufeff\U000e0041"


def test_letters_that_nobody_sees_are_refused_or_marked(world: Path) -> None:
    """A purpose may not hold them; the names of files are shown with a mark in their place."""
    folder = world / "north/inbox/people"
    text = (folder / "study.toml").read_text()
    for letter in LETTERS:
        (folder / f"{ord(letter)}.toml").write_text(text.replace("[study]\n", f'[study]\npurpose = "Who{letter} comes?"\n'))
    (folder / "study.toml").rename(folder / f"{LETTERS}.toml")
    with console(world / "north/party.toml") as browser:
        shown = browser.get("/")
        assert shown.count("purpose is one line") == len(LETTERS)
        found = re.findall(r"/plan/(\w+)", shown)
        shown += "".join(browser.get(f"/plan/{plan}") for plan in found)
        assert not set(LETTERS) & set(shown)
        assert "\ufffd" * len(LETTERS) in shown


@pytest.mark.slow
def test_the_same_plan_with_another_purpose_is_said_on_its_page(world: Path) -> None:
    """The plan's hash holds no purpose: two files of one plan lead to one page, which must not hide what the other one says."""
    folder, plan = world / "north/inbox/people", plan_of(world)
    text = (folder / "study.toml").read_text()
    with console(world / "north/party.toml") as browser:
        assert "another purpose" not in browser.get(f"/plan/{plan}")
        (folder / "a.toml").write_text(text.replace("[study]\n", '[study]\npurpose = "To help"\n'))
        (folder / "b.toml").write_text(text.replace("[study]\n", '[study]\npurpose = "To sell"\n'))
        shown = browser.get(f"/plan/{plan}")
        assert "<h1>To help</h1>" in shown
        assert "another purpose: To sell" in shown


NAME = "<svg onload=alert(1)><script>\"'x<b"


@pytest.mark.long
@pytest.mark.slow
def test_html_in_the_names_of_another_party_is_text_in_every_figure(world: Path) -> None:
    """The names of parties, columns and categories of others stand in tables, in figures, in their titles and labels."""
    folder = world / "north/inbox/people"
    card = folder / "south/south.card.toml"
    text = card.read_text().replace('name = "south"', f"name = '''{NAME}'''").replace('"f"', f"'''{NAME}'''")
    card.write_text(text.replace('name = "age"', f"name = '''{NAME}'''"))
    own = folder / "north/north.card.toml"
    own.write_text(own.read_text().replace('name = "age"', f"name = '''{NAME}'''").replace('"f"', f"'''{NAME}'''"))
    with console(world / "north/party.toml") as browser:
        (plan,) = re.findall(r"/plan/(\w+)", browser.get("/"))
        assert browser.decide(plan, "try").status == 303
        for _ in range(200):
            shown = browser.get(f"/plan/{plan}")
            if f"/plan/{plan}/preview" in shown:
                break
            time.sleep(0.05)
        shown += browser.get(f"/plan/{plan}/preview")
        assert shown.count("&lt;svg onload") > 5
        assert not re.search(r"<svg onload|<script|<b[^a-z]", shown)
