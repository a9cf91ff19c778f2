"""The application that answers a person's question: it reads the question in its document, and writes the answer there.

Nothing of what the person wrote is on the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import RewindowError
from spark_jobs.operations.looking import answer_of
from spark_jobs.runs.form_words import in_form_words
from spark_jobs.runs.looks import Looks
from spark_jobs.runs.progress import LogProgress
from spark_jobs.runs.store import RunStore


def answer_question(
    file: str, document: str, session: Callable[[str, Pipeline], SparkSession], say: Callable[[str], None]
) -> int:
    """Answer the question of a document; the exit code. What goes wrong is in the document too."""
    pipeline = load_pipeline(file)
    looks = Looks(RunStore.configured(), pipeline.name)
    asked = looks.read(document)
    if asked is None or asked.question is None:
        say(f"there is no question {document}")
        return 2

    def start() -> SparkSession:
        return session(f"rewindow look {pipeline.name}", pipeline)

    try:
        found = answer_of(start, pipeline, asked.question, LogProgress())
    except RewindowError as problem:
        said = in_form_words(problem)
        where = f" ({said.where})" if said.where else ""
        looks.write(document, asked.model_copy(update={"problem": f"{said.what}{where}", "hint": said.hint}))
        say(str(said))
        return problem.exit_code
    except Exception as problem:
        unforeseen = f"{type(problem).__name__}: {str(problem).splitlines()[0][:300] if str(problem) else ''}"
        looks.write(document, asked.model_copy(update={"problem": unforeseen, "hint": "See the log of the task."}))
        raise
    looks.write(document, asked.model_copy(update={"answer": found, "answered_at": datetime.now(UTC).isoformat()}))
    print(found.sentence, flush=True)
    return 0
