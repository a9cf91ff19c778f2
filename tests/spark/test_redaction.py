"""The secrets of a catalog are neither in Spark's event log nor on its pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import run_python
from tests.sampling import first_of

SECRETS = {
    "credential": "s3cr3t-credential",
    "header.Authorization": "Bearer s3cr3t-header",
    "jdbc.password": "s3cr3t-jdbc",
    "s3.access-key-id": "s3cr3t-key-id",
    "rest.x-odd-name": "s3cr3t-odd",
}
"""Catalog properties with invented values; some of their names are of a kind that Spark does not take for a secret."""

QUERY = """
    import json, sys, urllib.request
    from pathlib import Path
    from spark_jobs.spark.session import spark_session

    home = Path(sys.argv[1])
    conf = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": (home / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "true", "spark.ui.port": "0", "spark.redaction.regex": "(?i)mine",
        "spark.mine": "s3cr3t-mine",
    }
    (home / "events").mkdir()
    spark = spark_session("redaction", home=home, master="local[1]", conf=conf)
    if sys.argv[2] == "another session":
        other = {"type": "jdbc", "uri": f"jdbc:sqlite:{home}/other.db", "warehouse": str(home / "other"),
                 "jdbc.schema-version": "V1", "token-of-theirs": "s3cr3t-other"}
        spark = spark_session("redaction", home=home, catalog=other, conf=conf)
        assert spark.conf.get("spark.sql.catalog.rewindow.credential", None) is None
    spark.sql("CREATE NAMESPACE rewindow.n")
    spark.range(9).repartition(2).writeTo("rewindow.n.t").create()
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    assert spark.table("rewindow.n.t").groupBy("id").count().count() == 9
    page = spark.sparkContext.uiWebUrl
    pages = ["/environment/", "/SQL/", "/SQL/execution/?id=1", "/jobs/", "/stages/"]
    application = f"/api/v1/applications/{spark.sparkContext.applicationId}"
    pages += [f"{application}/{part}" for part in ("environment", "sql", "jobs", "stages")]
    texts = {at: urllib.request.urlopen(page + at, timeout=60).read().decode() for at in pages}
    spark.stop()
    Path(home / "pages.json").write_text(json.dumps(texts))
"""


@pytest.mark.parametrize("where", first_of(["another session", "first session"]))
def test_no_secret_of_a_catalog_is_in_the_event_log_or_on_a_page(tmp_path: Path, where: str) -> None:
    properties = {
        "type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/own.db", "warehouse": str(tmp_path / "own"),
        "jdbc.schema-version": "V1", **SECRETS,
    }  # fmt: skip
    text = ",".join(f"{name}={value}" for name, value in properties.items())
    done = run_python(QUERY, str(tmp_path), where, environ={"REWINDOW_CATALOG_CONF": text})
    assert done.returncode == 0, done.stderr[-3000:]

    logs = [file for file in (tmp_path / "events").rglob("*") if file.is_file() and not file.name.startswith(".")]
    events = "".join(file.read_text() for file in logs)
    kinds = {json.loads(line)["Event"].rpartition(".")[2] for line in events.splitlines()}
    assert {"SparkListenerJobStart", "SparkListenerStageSubmitted", "SparkListenerSQLExecutionStart"} <= kinds
    pages = json.loads((tmp_path / "pages.json").read_text())
    assert "spark.app.name" in pages["/environment/"]
    for text in (events, *pages.values()):
        assert "s3cr3t" not in text, text[max(0, text.index("s3cr3t") - 300) :][:400]
    log = tmp_path / "logs" / "spark.log"
    assert "s3cr3t" not in (log.read_text() if log.exists() else "")
