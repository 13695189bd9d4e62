"""What Dagster's Helm chart (release 1.13) takes, as a JSON schema: the sections that `deploy/helm-values.yaml` sets.

The chart itself lets unknown names pass in many places, and they do nothing there; here they are wrong everywhere.
Pieces of Kubernetes objects are judged by Kubernetes' own schemas.
"""

from __future__ import annotations

from typing import Any, Final

_KUBERNETES: Final = "https://kubernetes.io/api/_definitions.json#/$defs/io.k8s.api."
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_NUMBER: Final = {"type": "integer"}
_YES: Final = {"type": "boolean"}
_ANY: Final[dict[str, Any]] = {}


def _of(kind: str) -> dict[str, Any]:
    """A piece of a Kubernetes object, such as ``core/v1/Volume``."""
    return {"$ref": _KUBERNETES + kind.replace("/", ".")}


def _list(kind: str) -> dict[str, Any]:
    return {"type": "array", "items": _of(kind)}


def _section(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


_POLICY: Final = {"enum": ["Always", "IfNotPresent", "Never"]}
_IMAGE: Final = _section(
    "repository", "pullPolicy", repository=_TEXT, tag={"type": ["string", "integer", "null"]}, pullPolicy=_POLICY
)
_SOURCE_OF_NUMBER: Final = {"anyOf": [_NUMBER, _section("env", env=_TEXT)]}
_CLASS: Final = _section("module", "class", "config", module=_TEXT, config={"type": "object"}, **{"class": _TEXT})
_PLACED: Final = {
    "resources": _of("core/v1/ResourceRequirements"),
    "volumes": _list("core/v1/Volume"),
    "volumeMounts": _list("core/v1/VolumeMount"),
    "envConfigMaps": _list("core/v1/ConfigMapEnvSource"),
    "envSecrets": _list("core/v1/SecretEnvSource"),
    "securityContext": _of("core/v1/SecurityContext"),
    "schedulerName": _TEXT,
    "labels": {"type": "object", "additionalProperties": _TEXT},
}
_DEPLOYMENT: Final = _section(
    "name", "image", "port",
    **_PLACED,
    name=_TEXT, image=_IMAGE, port=_NUMBER, dagsterApiGrpcArgs=_TEXTS, codeServerArgs=_TEXTS,
    includeConfigInLaunchedRuns=_section("enabled", enabled=_YES),
    env={"anyOf": [{"type": "object", "additionalProperties": _TEXT}, _list("core/v1/EnvVar")]},
    annotations={"type": "object", "additionalProperties": _TEXT},
    nodeSelector={"type": "object", "additionalProperties": _TEXT},
    affinity=_of("core/v1/Affinity"), tolerations=_list("core/v1/Toleration"),
    podSecurityContext=_of("core/v1/PodSecurityContext"),
    livenessProbe=_of("core/v1/Probe"), startupProbe=_ANY, readinessProbe=_ANY,
)  # fmt: skip
_RUN: Final = _section(
    # What is not given is added to what the launcher makes, so parts of an object are enough; no names but its own.
    containerConfig={"type": "object", "propertyNames": {"enum": []}},
    podSpecConfig={"type": "object", "propertyNames": {"enum": []}},
    podTemplateSpecMetadata={"type": "object"},
    jobMetadata={"type": "object"},
    jobSpecConfig={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {"$ref": f"{_KUBERNETES}batch.v1.JobSpec/properties/{name}"}
            for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        },
    },
)
_LAUNCHER: Final = _section(
    **_PLACED,
    image=_IMAGE, imagePullPolicy=_POLICY, jobNamespace=_TEXT, loadInclusterConfig=_YES, kubeconfigFile=_TEXT,
    envVars=_TEXTS, failPodOnRunFailure=_YES, runK8sConfig=_RUN,
)  # fmt: skip


def _chosen(types: dict[str, str]) -> list[dict[str, Any]]:
    """The settings of the type that is chosen have to be there."""
    return [
        {"if": {"properties": {"type": {"const": kind}}}, "then": {"properties": {"config": {"required": [name]}}}}
        for kind, name in types.items()
    ]


_KEPT: Final = _section(
    purgeAfterDays={
        "anyOf": [
            _NUMBER,
            _section(
                *("skipped", "success", "failure", "started"),
                skipped=_NUMBER, success=_NUMBER, failure=_NUMBER, started=_NUMBER,
            ),
        ]
    }
)  # fmt: skip
SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_section(
        **{
            "global": _section(
                postgresqlSecretName=_TEXT, dagsterHome=_TEXT, serviceAccountName=_TEXT, celeryConfigSecretName=_TEXT
            ),
            "dagster-user-deployments": _section(
                enabled=_YES, enableSubchart=_YES, imagePullSecrets=_list("core/v1/LocalObjectReference"),
                deployments={"type": "array", "items": _DEPLOYMENT},
            ),
            "postgresql": _section(
                image=_IMAGE, enabled=_YES, postgresqlHost=_TEXT, postgresqlUsername=_TEXT, postgresqlPassword=_TEXT,
                postgresqlDatabase=_TEXT, postgresqlParams={"type": "object"}, postgresqlScheme=_TEXT,
                service=_section("port", port=_NUMBER),
            ),
            "runLauncher": {
                **_section(
                    "type", "config",
                    type={"enum": ["CeleryK8sRunLauncher", "K8sRunLauncher", "CustomRunLauncher"]},
                    config=_section(
                        celeryK8sRunLauncher={"type": "object"}, k8sRunLauncher=_LAUNCHER, customRunLauncher=_CLASS
                    ),
                ),
                "allOf": _chosen({"K8sRunLauncher": "k8sRunLauncher", "CustomRunLauncher": "customRunLauncher"}),
            },
            "dagsterDaemon": _section(
                enabled=_YES, heartbeatTolerance=_NUMBER,
                runCoordinator={
                    **_section(
                        "enabled", "type", "config",
                        enabled=_YES, type={"enum": ["QueuedRunCoordinator", "CustomRunCoordinator"]},
                        config=_section(
                            queuedRunCoordinator=_section(
                                maxConcurrentRuns=_SOURCE_OF_NUMBER, tagConcurrencyLimits={"type": "array"},
                                dequeueIntervalSeconds=_SOURCE_OF_NUMBER, dequeueNumWorkers=_SOURCE_OF_NUMBER,
                                dequeueUseThreads=_YES,
                            ),
                            customRunCoordinator=_CLASS,
                        ),
                    ),
                    "allOf": _chosen({"QueuedRunCoordinator": "queuedRunCoordinator"}),
                },
                runMonitoring=_section(
                    enabled=_YES, startTimeoutSeconds=_NUMBER, cancelTimeoutSeconds=_NUMBER,
                    maxResumeRunAttempts=_NUMBER, pollIntervalSeconds=_NUMBER, maxRuntimeSeconds=_NUMBER,
                    freeSlotsAfterRunEndSeconds=_NUMBER,
                ),
                runRetries=_section(enabled=_YES, maxRetries=_NUMBER, retryOnAssetOrOpFailure=_YES),
            ),
            "retention": _section("enabled", enabled=_YES, sensor=_KEPT, schedule=_KEPT, autoMaterialize=_KEPT),
            "telemetry": _section("enabled", enabled=_YES),
        }
    ),
}  # fmt: skip
