"""Before a run: the request, its limits, and the plan, which says everything that the run will do."""
