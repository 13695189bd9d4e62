"""A project folder as a Dagster component, for code locations that are built from ``defs.yaml`` files."""

from pathlib import Path

import dagster as dg
from pydantic import Field


class UpsertProjectComponent(dg.Component, dg.Model, dg.Resolvable):
    """Topics, changelogs and destination tables of a folder of declarations.

    The folder holds what `upsert_platform.declarations.project.load_project` reads: Flink SQL, YAML, ingestion
    pipelines, Kafka Connect configurations. Options given here complete tables that do not declare them.

    Example of a ``defs.yaml`` beside the declarations:

        type: upsert_platform.graph.project_component.UpsertProjectComponent
        attributes:
          kafka: {properties.bootstrap.servers: "{{ env.KAFKA }}"}
    """

    project: str = Field(default=".", description="The folder, relative to the component's own.")
    home: str | None = Field(default=None, description="Root of the lake; UPSERT_PLATFORM_HOME if left out.")
    kafka: dict[str, str] = Field(default_factory=dict, description="Options for upsert-kafka tables.", repr=False)
    tablestore: dict[str, str] = Field(default_factory=dict, description="Options for tablestore tables.", repr=False)
    maxcompute: dict[str, str] = Field(default_factory=dict, description="Options for maxcompute tables.", repr=False)
    spark: dict[str, str] = Field(default_factory=dict, description="Spark settings.", repr=False)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Assets, checks, jobs, sensor and resources of the folder.

        Raises:
            DeclarationError: the folder has errors; it carries all of them.
        """
        return self.definitions_of((context.path / self.project).resolve())

    def definitions_of(self, folder: Path) -> dg.Definitions:
        """The definitions of a folder; the point to override for other resources or assets."""
        from upsert_platform.graph.build import build_definitions
        from upsert_platform.graph.resources import (
            KafkaResource,
            MaxComputeResource,
            PlatformResource,
            SparkResource,
            TablestoreResource,
        )
        from upsert_platform.hops.binding import bind, load

        project, problems = load(folder, root=self.home)
        bind(
            project,
            problems,
            defaults={"upsert-kafka": self.kafka, "tablestore": self.tablestore, "maxcompute": self.maxcompute},
        )
        platform = PlatformResource(
            project=str(folder),
            home=self.home,
            kafka=KafkaResource(options=self.kafka),
            tablestore=TablestoreResource(options=self.tablestore),
            maxcompute=MaxComputeResource(options=self.maxcompute),
        )
        return build_definitions(project, platform=platform, spark=SparkResource(settings=self.spark))
