"""A real Airflow of its own, on free loopback ports and under one folder: what `airflow standalone` starts.

    with Airflow(Path("airflow"), project=Path(".")) as airflow:
        run = airflow.trigger("backfill__departures_hourly", {"from": "2013-02-01T00:00:00Z"})
        airflow.wait(run)

All processes end with `stop()`, and with the process that started them, however that ends.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from spark_jobs.demo.ports import free_port
from spark_jobs.demo.supervised import Supervised, becomes_true
from spark_jobs.errors import EnvironmentSetupError, SourceError

START_SECONDS = 180
LOCKED_SECONDS = 120  # how long a request waits for SQLite
_PAUSE_SECONDS = 120
_ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
_PAUSED = frozenset({"awaiting_input", "deferred"})


@dataclass(frozen=True, slots=True)
class DagRun:
    """A run that was triggered."""

    dag_id: str
    run_id: str


def waits_for_approval(tasks: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the task `approve` waits for a person. `tasks`: as `Airflow.tasks` returns them."""
    return any(task["task_id"] == "approve" and task["state"] in _PAUSED for task in tasks)


class Airflow:
    """An Airflow with all its files in `directory`, which takes DAGs and plugins from the folders of `project`.

    `spark` is the Spark connection's JSON (default: this machine's cores), `slots` how many tasks run at once. Users
    are `admin` and `viewer`, with passwords of their own (`password`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        project: Path,
        port: int = 0,
        slots: int = 2,
        spark: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.project = project.absolute()
        self.log = self.directory / "standalone.log"
        self.port = port or free_port()
        self._slots = slots
        self._spark = dict(spark or {"conn_type": "spark", "host": "local[*]"})
        self._environ = dict(environ or {})
        self._process: Supervised | None = None
        self._tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def password(self, user: str = "admin") -> str:
        """The password of `admin` or `viewer`, which the first start writes to `passwords.json`."""
        return json.loads(self._password_file.read_text())[user]

    @property
    def _password_file(self) -> Path:
        return self.directory / "passwords.json"

    def __enter__(self) -> Airflow:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None):
        self.stop()

    def start(self) -> Airflow:
        """Start, and wait until the API answers and the DAGs are read. Raises EnvironmentSetupError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._password_file.exists():
            self._password_file.touch(mode=0o600)
            passwords = {user: secrets.token_urlsafe(12) for user in ("admin", "viewer")}
            self._password_file.write_text(json.dumps(passwords))
        with self.log.open("ab") as output:
            self._process = Supervised(
                ["airflow", "standalone"], environ=self.environ(), log=output, folder=self.project
            )
        self._wait_until(self._is_healthy, START_SECONDS, "Airflow did not start")
        return self

    def environ(self) -> dict[str, str]:
        """The environment of its processes; an `airflow` command with it speaks to this Airflow."""
        binaries = str(Path(sys.executable).parent)
        return {
            **os.environ,
            **settings(self.directory, self.project, self.port, self._slots),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(self._spark),
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",  # also for Spark's own page
            **self._environ,
        }

    def stop(self) -> None:
        """End all of its processes."""
        if self._process is not None:
            self._process.stop()
        self._process = None
        self._tokens.clear()  # the next start signs with another secret

    # What a person does in the UI.

    def request(self, method: str, path: str, user: str = "admin", **arguments: Any) -> httpx.Response:
        """A request to the API server as `user`."""
        headers = {"Authorization": f"Bearer {self._token(user)}"}
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=60, **arguments)

    def get(self, path: str) -> Any:
        """A GET under /api/v2. Raises SourceError where the server refuses."""
        return self._checked(self.request("GET", f"/api/v2{path}"))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """A POST under /api/v2; again while Airflow's SQLite is locked: then nothing was done.

        Raises SourceError where the server refuses.
        """
        attempts = Retrying(
            retry=retry_if_result(_is_locked),
            stop=stop_after_delay(LOCKED_SECONDS),
            wait=wait_fixed(2),
            retry_error_callback=lambda last: last.outcome and last.outcome.result(),
        )
        return self._checked(attempts(self.request, "POST", f"/api/v2{path}", json=body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._checked(self.request("PATCH", f"/api/v2{path}", json=body))

    def unpause(self, dag_id: str) -> None:
        self._wait_until(
            lambda: self.request("GET", f"/api/v2/dags/{dag_id}").is_success, START_SECONDS, f"no DAG {dag_id}"
        )
        self.patch(f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, run_id: str | None = None) -> DagRun:
        """Start a run with a filled form."""
        body = {"logical_date": None, "conf": dict(conf or {}), **({"dag_run_id": run_id} if run_id else {})}
        return DagRun(dag_id, self.post(f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def scheduled(self, dag_id: str) -> DagRun:
        """The latest run that the scheduler has created; it creates one as soon as the DAG is unpaused."""
        path = f"/dags/{dag_id}/dagRuns?run_type=scheduled&order_by=-run_after&limit=1"
        self._wait_until(lambda: bool(self.get(path)["dag_runs"]), START_SECONDS, f"no scheduled run of {dag_id}")
        return DagRun(dag_id, self.get(path)["dag_runs"][0]["dag_run_id"])

    def state(self, run: DagRun) -> str:
        return self.get(f"/dags/{run.dag_id}/dagRuns/{quote(run.run_id)}")["state"]

    def tasks(self, run: DagRun) -> list[dict[str, Any]]:
        """The task instances of a run."""
        return self.get(f"/dags/{run.dag_id}/dagRuns/{quote(run.run_id)}/taskInstances?limit=1000")["task_instances"]

    def page_requests(self) -> int:
        """How many requests of its pages Airflow has answered so far, by its log: somebody has one open."""
        return self.log.read_bytes().count(b" path=/ui/")

    def task_log(self, run: DagRun, task: str, attempt: int = 1, map_index: int = -1) -> str:
        """The text of a task's log."""
        path = f"/dags/{run.dag_id}/dagRuns/{quote(run.run_id)}/taskInstances/{task}/logs/{attempt}"
        response = self.request("GET", f"/api/v2{path}?map_index={map_index}&full_content=true")
        content = self._checked(response).get("content", [])
        return "\n".join(line.get("event", "") if isinstance(line, dict) else str(line) for line in content)

    def failures(self, run: DagRun) -> str:
        """The ends of the logs of a run's failed tasks, for people."""
        failed = [task for task in self.tasks(run) if task["state"] == "failed"]
        logs = [self.task_log(run, t["task_id"], t["try_number"], t["map_index"])[-3000:] for t in failed]
        return "\n".join(f"--- {task['task_id']}\n{log}" for task, log in zip(failed, logs, strict=True))

    def question(self, run: DagRun, task: str) -> str:
        """What a task that waits for a person asks, in Markdown."""
        return self.get(self._hitl(run, task))["body"]

    def answer(self, run: DagRun, task: str, choice: str, **fields: str) -> None:
        """Answer a task that waits for a person: Approve or Reject, and the fields beside that.

        First waits until the scheduler has read that the process of the pausing task has ended. A task that goes on
        before then, a busy scheduler takes for failed ("finished with state success, but the task instance's state
        attribute is running").
        """

        def has_paused() -> bool:
            lines = self.log.read_text(errors="replace").splitlines()
            ended = (line for line in lines if "Received executor event" in line)
            return any(f"task_id='{task}'" in line and run.run_id in line for line in ended)

        self._wait_until(has_paused, _PAUSE_SECONDS, f"task {task} did not pause")
        self.patch(self._hitl(run, task), {"chosen_options": [choice], "params_input": fields})

    @staticmethod
    def _hitl(run: DagRun, task: str) -> str:
        return f"/dags/{run.dag_id}/dagRuns/{quote(run.run_id)}/taskInstances/{task}/-1/hitlDetails"

    def wait(
        self,
        run: DagRun,
        seconds: float = 600,
        until: Callable[[list[dict[str, Any]]], bool] | None = None,
        on_end: Callable[[dict[str, Any]], None] | None = None,
    ) -> str:
        """Wait until a run ends, or until its tasks satisfy `until`; return the run's state.

        `on_end` is called once for each attempt of a task that has ended. Raises EnvironmentSetupError after `seconds`.
        """
        reported: set[tuple[str, int, int]] = set()
        state = ""

        def has_ended() -> bool:
            nonlocal state
            tasks = self.tasks(run)
            for task in sorted(tasks, key=lambda t: t["end_date"] or ""):
                attempt = (task["task_id"], task["map_index"], task["try_number"])
                if task["state"] in _ENDED and attempt not in reported:
                    reported.add(attempt)
                    if on_end is not None:
                        on_end(task)
            state = self.state(run)
            return state in ("success", "failed") or (until is not None and until(tasks))

        if not becomes_true(has_ended, within=seconds, every=1):
            raise EnvironmentSetupError(f"run {run.run_id} did not end in {seconds:g} s", str(self.log))
        return state

    def _token(self, user: str) -> str:
        if user not in self._tokens:
            response = httpx.post(
                f"{self.url}/auth/token", json={"username": user, "password": self.password(user)}, timeout=60
            )
            self._tokens[user] = self._checked(response)["access_token"]
        return self._tokens[user]

    def _checked(self, response: httpx.Response) -> Any:
        if response.is_error:
            raise SourceError(f"Airflow answers {response.status_code}: {response.text[:500]}", str(response.url))
        return response.json() if response.content else None

    def _is_healthy(self) -> bool:
        if self._process is not None and self._process.has_ended:
            raise EnvironmentSetupError("Airflow ended while it started", str(self.log), "Its output is in that file.")
        with suppress(httpx.HTTPError, json.JSONDecodeError):
            health = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
            return all(health[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))
        return False

    def _wait_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        if not becomes_true(condition, within=seconds, every=0.5):
            raise EnvironmentSetupError(f"{what} within {seconds:g} s", str(self.log), "Its output is in that file.")


def _is_locked(response: httpx.Response) -> bool:
    """Some routes of Airflow answer 503 then, the others 500 with SQLite's own words."""
    is_broken = response.status_code == httpx.codes.INTERNAL_SERVER_ERROR
    return response.status_code == httpx.codes.SERVICE_UNAVAILABLE or (
        is_broken and "database is locked" in response.text
    )


def settings(directory: Path, project: Path, port: int, slots: int) -> dict[str, str]:
    """Airflow's settings, as environment variables."""
    return {
        "AIRFLOW_HOME": str(directory),
        "AIRFLOW__CORE__DAGS_FOLDER": str(project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(project / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": str(slots),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(directory / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{directory}/airflow.db",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__EXPOSE_STACKTRACE": "True",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(directory / "logs"),
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        # Ordinary runs come before those of a native backfill in every loop: the loop must be longer than their number.
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "200",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "20",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "20",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
