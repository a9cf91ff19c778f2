"""Permissions: a user may see a run if Airflow lets the user read the runs of its DAG."""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException


class Reader:
    """The user of a request. Queries the auth manager at most once for each DAG."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._dags: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
        self._answers: dict[str, bool] = {}

    def may_read(self, dag_id: str | None) -> bool:
        """Whether the user may read the runs of a DAG. False for a DAG that Airflow does not know.

        Both checks are those that Airflow itself makes for its list of runs: the DAG is readable, and so are its runs.
        """
        if dag_id is None or dag_id not in self._dags:
            return False
        if dag_id not in self._answers:
            self._answers[dag_id] = get_auth_manager().is_authorized_dag(
                method="GET",
                access_entity=DagAccessEntity.RUN,
                details=DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)),
                user=self._user,
            )
        return self._answers[dag_id]

    @property
    def name(self) -> str:
        """The user's name, as Airflow shows it."""
        return self._user.get_name()

    def refuse_trigger(self, dag_id: str) -> None:
        """Raises 403 where the user may not start runs of a DAG."""
        if not self.may_trigger(dag_id):
            raise HTTPException(403, f"You may not start runs of the DAG {dag_id}.")

    def may_trigger(self, dag_id: str) -> bool:
        """Whether the user may start runs of a DAG, by the check that Airflow itself makes."""
        return DagModel.get_current(dag_id) is not None and get_auth_manager().is_authorized_dag(
            method="POST",
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)),
            user=self._user,
        )


def _reader(user: GetUserDep) -> Reader:
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(_reader)]
