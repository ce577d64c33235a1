"""What the demo asks of each system, by its HTTP API, and what has to be true afterwards.

A system's account is checked against the logs of the stand-ins, not against what the system says of itself alone.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, NamedTuple

import httpx2

from mail_server import MailServer
from model_server import ModelServer
from sites import Sites
from wikidata_server import WikidataServer


class Check(NamedTuple):
    """A sentence, and whether it is true."""

    holds: bool
    text: str


class System(ABC):
    """One of the four, at `http`."""

    turn: str  # what it is asked for in a turn

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    @abstractmethod
    async def play(self, turn: int) -> None:
        """Ask for a turn's work."""

    @abstractmethod
    async def is_settled(self) -> bool:
        """Whether all that was asked for has ended, or waits for a time that the demo does not wait for."""

    @abstractmethod
    async def check(self) -> list[Check]:
        """What has to be true once it is settled."""

    async def get(self, path: str, **headers: str) -> Any:
        answer = await self.http.get(path, headers=headers)
        answer.raise_for_status()
        return answer.json()

    async def post(self, path: str, **request: Any) -> Any:
        answer = await self.http.post(path, **request)
        answer.raise_for_status()
        return answer.json()


class SiteAnalyst(System):
    """Websites through three phases: some slow, one that fails once, one inside the operator's network."""

    turn = "14 websites: two are slow, one answers 503 at first, one is at a private address"
    QUICK, SLOW = 10, 2

    def __init__(self, http: httpx2.AsyncClient, sites: Sites, model: ModelServer) -> None:
        super().__init__(http)
        self._sites, self._model = sites, model
        self._good: set[str] = set()  # ids of jobs
        self._refused: set[str] = set()
        self._twice = 0  # websites that were posted again while their job was unfinished
        self._same = 0  # those of them for which the answer was the job that existed

    async def play(self, turn: int) -> None:
        kinds = ["slow"] * self.SLOW + ["shaky"] + ["quick"] * self.QUICK
        for number, kind in enumerate(kinds):
            website = {"website": f"http://127.0.0.1:{self._sites.port}/{turn}/{kind}/{number}"}
            job = await self.post("/sites", json=website)
            self._good.add(job["id"])
            if kind == "slow":
                again = await self.post("/sites", json=website)
                self._twice += 1
                self._same += again["id"] == job["id"] and again["existing"]
        self._refused.add((await self.post("/sites", json={"website": f"http://10.0.0.1/{turn}"}))["id"])

    async def is_settled(self) -> bool:
        states = [(await self.get(f"/sites/{id}"))["state"] for id in self._good | self._refused]
        return all(state in ("completed", "failed", "canceled") for state in states)

    async def check(self) -> list[Check]:
        reports = [await self.get(f"/sites/{id}") for id in self._good]
        refused = [await self.get(f"/sites/{id}") for id in self._refused]
        done = sum(report["state"] == "completed" and len(report["answers"]) == 1 for report in reports)
        prompts = len(set(self._model.asked))
        return [
            Check(done == len(reports), f"{done} of {len(reports)} websites were analysed and have their answer"),
            Check(len(self._model.asked) == prompts == done, f"the model was asked {prompts} times, once for each"),
            Check(self._same == self._twice, f"{self._twice} were posted twice, and have one job each"),
            Check(
                all(report["state"] == "failed" and "10.0.0.1" in (report["error"] or "") for report in refused),
                f"{len(refused)} at a private address was refused, without a request",
            ),
        ]


class LinkLibrary(System):
    """Bookmarks of a dozen domains. One refuses, and one is broken: its next attempt is five minutes away."""

    turn = "the same 154 bookmarks twice; one site refuses programs, one is broken"
    DOMAINS, LINKS = 10, 150
    BAD = ("javascript:alert(1)", "file:///etc/passwd")

    def __init__(self, http: httpx2.AsyncClient, sites: Sites) -> None:
        super().__init__(http)
        self._sites = sites
        self._imports: list[str] = []
        self._good: set[str] = set()  # addresses

    async def play(self, turn: int) -> None:
        good = {f"http://www.ropes{n % self.DOMAINS}.example:{self._sites.port}/{turn}/{n}" for n in range(self.LINKS)}
        others = [f"http://{host}.example:{self._sites.port}/{turn}" for host in ("grim", "broken")]
        tags = [f'<DT><A HREF="{address}">{address}</A>' for address in [*good, *others, *self.BAD]]
        file = "\n".join(["<!DOCTYPE NETSCAPE-Bookmark-file-1>", "<DL><p>", *tags, "</DL><p>"])
        self._good |= good
        for _ in range(2):  # the same file twice: each link is enriched once
            taken = await self.post("/imports", content=file, headers=by("ann"))
            self._imports.append(taken["id"])

    async def is_settled(self) -> bool:
        states = [(await self.get(f"/imports/{id}", **by("ann")))["status"] for id in self._imports]
        return set(states) == {"succeeded"} and len(await self._titles()) == len(self._good)

    async def check(self) -> list[Check]:
        titles = await self._titles()
        hosts = {each.host for each in self._sites.log}
        most = max(self._sites.most_at_once(host) for host in hosts if host.endswith(".example"))
        blocked = await self.get("/block-candidates", **by("ann"))
        asked = [each for each in self._sites.log if each.host.endswith(".example") and each.status == 200]
        again = len(asked) - len({(each.host, each.path) for each in asked})
        return [
            Check(titles == self._good, f"{len(titles)} of {len(self._good)} links were enriched"),
            Check(most <= 2, f"no domain had more than {most} requests at a time, by the sites' own log"),
            Check(again <= 20, f"{again} pages were asked for again: those that the killed worker had begun"),
            Check(
                [each["domain"] for each in blocked] == ["grim.example"],
                "the site that refuses is a candidate to block",
            ),
        ]

    async def _titles(self) -> set[str]:
        """The addresses of the good links that have a title."""
        found = set[str]()
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            answer = await self.http.get("/links", params={"count": 1_000, "below": page["next"]}, headers=by("ann"))
            page = answer.raise_for_status().json()
            found |= {link["url"] for link in page["links"] if link["title"]}
        return found & self._good


class RecordLinker(System):
    """A file of records to match at Wikidata, which answers some requests with 429, and loses a connection."""

    turn = "80 records to match at 50 requests per second; some are answered with 429, some are lost"
    ENTRIES = 80
    RATE = 50  # requests per second, with a token

    def __init__(self, http: httpx2.AsyncClient, wikidata: WikidataServer) -> None:
        super().__init__(http)
        self._wikidata = wikidata
        self._projects: list[int] = []
        self._jobs: list[tuple[int, int]] = []  # of the first and of the second match of each project

    async def play(self, turn: int) -> None:
        project = (await self.post("/projects", json={"name": f"painters {turn}"}))["id"]
        rows = [f"Painter {turn}-{n},{1850 + n}" for n in range(self.ENTRIES)]
        await self.post(f"/projects/{project}/entries", content="\n".join(["name,born", *rows]))
        first, second = [(await self.post(f"/projects/{project}/match"))["jobs"] for _ in range(2)]
        self._projects.append(project)
        self._jobs.append((first, second))

    async def is_settled(self) -> bool:
        tasks = [(await self.get(f"/projects/{project}"))["tasks"] for project in self._projects]
        return not any(each.get("pending") or each.get("QUEUED") for each in tasks)

    async def check(self) -> list[Check]:
        tasks = [(await self.get(f"/projects/{project}"))["tasks"] for project in self._projects]
        done, wanted = sum(each.get("COMPLETED", 0) for each in tasks), self.ENTRIES * len(tasks)
        busy = sum(each.status == 429 for each in self._wikidata.log)
        most = self._wikidata.most()
        return [
            Check(
                done == wanted,
                f"{done} of {wanted} records were matched, although {busy} requests met a 429",
            ),
            Check(most <= self.RATE, f"no second had more than {most} requests, by Wikidata's own log"),
            Check(
                all(jobs == (self.ENTRIES, 0) for jobs in self._jobs),
                "a second match in the meantime made no second job",
            ),
        ]


class Atlas(System):
    """Mails and workflows of two tenants. The budget of `bolt` pays for three mails; the others wait."""

    turn = "mails and a workflow; a recipient is refused, an answer is an error, a budget is small"
    CENTS = 3  # a mail costs one
    WAITING = 5  # mails for which the budget does not suffice

    def __init__(self, http: httpx2.AsyncClient, mails: MailServer) -> None:
        super().__init__(http)
        self._mails = mails
        self._good: list[str] = []  # ids of jobs
        self._refused: list[str] = []
        self._exhausted: list[str] = []
        self._unpaid: list[str] = []
        self._tenants: dict[str, str] = {}  # by job

    async def play(self, turn: int) -> None:
        mails = [
            {
                "name": to,
                "type": "EMAIL_SEND",
                "input": {"to": f"{to}@acme.example", "subject": "Hi", "text": "$report"},
            }
            for to in ("ann", "bob", "eve")
        ]
        await self.put("/workflows/welcome", "acme", [[{"name": "report", "type": "REPORT_BUILD"}], mails])
        workflow = {"jobType": "ENGINE_RUN", "input": {"workflow": "welcome"}}
        self._good.append(await self._enqueue("acme", workflow))
        readers = [f"reader{n}" for n in range(6)]
        for to in [*readers, "slow", "busy", "broken"]:
            self._good.append(await self._mail("acme", to))
        self._refused.append(await self._mail("acme", "refused"))
        self._exhausted.append(await self._mail("acme", "broken", maxRetries=0))
        if turn == 1:
            await self.put("/tenants/bolt/budget", "operator", {"cents": self.CENTS, "per": "day"})
            self._good += [await self._mail("bolt", f"reader{n}") for n in range(self.CENTS)]
            await self._spend()
            self._unpaid += [await self._mail("bolt", f"writer{n}") for n in range(self.WAITING)]

    async def _spend(self) -> None:
        """Wait until the budget is spent."""
        budget = {"spent": 0}
        while budget["spent"] < self.CENTS:
            await asyncio.sleep(0.2)
            budget = await self.get("/budget", **by("bolt"))

    async def is_settled(self) -> bool:
        jobs = [await self._show(id) for id in self._good + self._refused + self._exhausted]
        return all(job["status"] in ("succeeded", "failed") for job in jobs)

    async def check(self) -> list[Check]:
        done, refused, unpaid = [
            [(await self._show(id))["status"] for id in ids] for ids in (self._good, self._refused, self._unpaid)
        ]
        sent = Counter(mail.key for mail in self._mails.taken)
        exhausted = await self.get("/audit?action=JOB_EXHAUSTED_RETRIES&count=1000", **by("acme"))
        return [
            Check(set(done) == {"succeeded"}, f"{len(done)} mails and workflows are done"),
            Check(set(sent.values()) == {1}, f"{len(sent)} mails were sent, none twice, by the provider's own log"),
            Check(set(refused) == {"failed"}, "a refused recipient is not tried again"),
            Check(
                {each["job"] for each in exhausted} == set(self._exhausted),
                "a mail whose only attempt failed is in the audit: JOB_EXHAUSTED_RETRIES",
            ),
            Check(set(unpaid) == {"queued"}, f"{len(unpaid)} mails wait: the day's budget of their tenant is spent"),
        ]

    async def put(self, path: str, caller: str, body: Any) -> None:
        (await self.http.put(path, json=body, headers=by(caller))).raise_for_status()

    async def _mail(self, tenant: str, to: str, **options: int) -> str:
        input = {"to": f"{to}@{tenant}.example", "subject": "News", "text": "All is well."}
        return await self._enqueue(tenant, {"jobType": "EMAIL_SEND", "input": input, **options})

    async def _enqueue(self, tenant: str, order: dict[str, Any]) -> str:
        job = await self.post("/jobs", json=order, headers=by(tenant))
        self._tenants[job["id"]] = tenant
        return str(job["id"])

    async def _show(self, id: str) -> Any:
        return await self.get(f"/jobs/{id}", **by(self._tenants[id]))


def by(caller: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {caller}-demo"}
