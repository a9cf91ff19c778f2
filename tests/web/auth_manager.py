"""An auth manager of a real Airflow with permissions that differ from DAG to DAG."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class SomeDenied(SimpleAuthManager):
    """The user `outsider` may see no DAG of departures_kafka, and of reconcile__departures_hourly no runs."""

    def is_authorized_dag(
        self,
        *,
        method: str,
        user: Any,
        access_entity: DagAccessEntity | None = None,
        details: DagDetails | None = None,
    ) -> bool:
        dag_id = (details.id if details else None) or ""
        if user.username == "outsider":
            if dag_id.endswith("__departures_kafka"):
                return False
            if dag_id == "reconcile__departures_hourly" and access_entity is DagAccessEntity.RUN:
                return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
