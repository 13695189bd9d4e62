"""The translator: names and descriptions of a project's assets in one object that users override.

An asset is described as the platform makes it, and a translator answers with the description that is wanted. Whatever
else names the asset (checks, jobs, the sensor, dependencies, column lineage, observations) asks `Translation`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import dagster as dg

from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Insert, Table
from upsert_platform.graph.keys import AS_DECLARED, TABLE_METADATA, AssetKeys, told_apart

VARIABLE: Final = "UPSERT_PLATFORM_TRANSLATOR"
_FIXED: Final = ("partitions_def", "skippable")
"""Attributes that follow from what an asset does."""
_KIND: Final = "dagster/kind/"
_NEEDED: Final = (TABLE_METADATA, "dagster/io_manager_key")
"""Metadata by which an asset is written."""


@dataclass(frozen=True)
class TranslatorData:
    """The declaration behind an asset.

    Attributes:
        kind: ``topic``, ``database`` (a table of a database), ``changelog``, ``query``, ``table`` (one that is written)
            or ``source`` (a Delta table of MaxCompute that others write).
        name: of the topic, or as declared; a query has the name of the table that it feeds.
        table: the declaration; of a topic that of the first table that reads it, of a query its result.
        insert: what writes it; for ``table`` alone.
        spec: the asset as the platform describes it by itself. Its dependencies have the keys that a translator gave.
    """

    kind: str
    name: str
    table: Table
    spec: dg.AssetSpec
    insert: Insert | None = None


class UpsertTranslator:
    """Returns names and descriptions of assets; the default implementation is the platform's own.

    Override one of the small methods, or `get_asset_spec` for all of them at once. The methods are called more than
    once for an asset, and have to return the same.

    Example:
        import dagster as dg

        from upsert_platform import UpsertProject, UpsertTranslator

        class OurNames(UpsertTranslator):
            def get_asset_key(self, data):
                return super().get_asset_key(data).with_prefix("shop")

        shop = UpsertProject("shop", translator=OurNames())
        defs = dg.Definitions(assets=[*shop.topics(), *shop.assets()], resources=shop.resources())
    """

    def get_asset_spec(self, data: TranslatorData) -> dg.AssetSpec:
        """The whole description of an asset."""
        return data.spec.replace_attributes(
            key=self.get_asset_key(data),
            description=self.get_description(data),
            group_name=self.get_group_name(data),
            metadata=self.get_metadata(data),
            tags=self.get_tags(data),
            kinds=set(self.get_kinds(data)),
            owners=self.get_owners(data),
        )

    def get_asset_key(self, data: TranslatorData) -> dg.AssetKey:
        """The key; two assets cannot have the same."""
        return data.spec.key

    def get_description(self, data: TranslatorData) -> str | None:
        """The description, in Markdown."""
        return data.spec.description

    def get_group_name(self, data: TranslatorData) -> str | None:
        """The group, by default ``topics``, ``databases``, ``changelogs``, ``queries``, ``tables`` or ``sources``."""
        return data.spec.group_name

    def get_metadata(self, data: TranslatorData) -> Mapping[str, Any]:
        """Metadata, over that of the platform: columns, lineage, code references. What is left out stays as it is."""
        return data.spec.metadata

    def get_tags(self, data: TranslatorData) -> Mapping[str, str]:
        """All tags but the kinds."""
        return {name: value for name, value in data.spec.tags.items() if not name.startswith(_KIND)}

    def get_kinds(self, data: TranslatorData) -> Collection[str]:
        """Return the kinds that Dagster shows: the system, and the compute engine."""
        return data.spec.kinds

    def get_owners(self, data: TranslatorData) -> Sequence[str]:
        """E-mail addresses, and teams as ``team:NAME``."""
        return data.spec.owners


@dataclass(frozen=True)
class Translation:
    """A translator, and the keys that it gave to every asset of a project.

    Attributes:
        translator: None leaves everything as it is.
        apart: key by itself to the one by which the platform tells it from another one.
    """

    translator: UpsertTranslator | None = None
    keys: AssetKeys = AS_DECLARED
    apart: Mapping[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)

    def described(self, data: TranslatorData) -> dg.AssetSpec:
        """Return the final description of an asset.

        Args:
            data: with the key that the platform gives by itself.

        Raises:
            DeclarationError: it has another key than before, or what such an asset cannot have.
        """
        given, data = self.keys.of(data.spec.key), _told_apart(data, self.apart)
        if self.translator is None:
            return data.spec
        found, own = self.translator.get_asset_spec(data), data.spec
        if found.key != given:
            raise _refused(data, f"gets key {_text(given)} once, and then {_text(found.key)}")
        for name in _FIXED:
            if getattr(found, name) != getattr(own, name):
                raise _refused(data, f"gets '{name}', which follows from what it does")
        needed = {name: own.metadata[name] for name in _NEEDED if name in own.metadata}
        return found.replace_attributes(metadata={**own.metadata, **found.metadata, **needed})

    def applied(self, asset: dg.AssetsDefinition, **data: Any) -> dg.AssetsDefinition:
        """An asset that is materialised, made with the keys of this translation, as it is described in the end."""
        if self.translator is None:
            return asset
        (spec,) = asset.specs
        own = {key: name for name, key in self.keys.translated.items()}.get(spec.key, spec.key)
        described = self.described(TranslatorData(spec=spec.replace_attributes(key=own), **data))
        return asset.map_asset_specs(lambda _: described)


@dataclass(frozen=True)
class Noting(Translation):
    """Notes every asset as it is without a translator."""

    found: list[TranslatorData] = field(default_factory=list)

    def described(self, data: TranslatorData) -> dg.AssetSpec:
        """Notes it."""
        self.found.append(data)
        return data.spec

    def applied(self, asset: dg.AssetsDefinition, **data: Any) -> dg.AssetsDefinition:
        """Notes it."""
        self.found.extend(TranslatorData(spec=spec, **data) for spec in asset.specs)
        return asset


def translation_of(
    translator: UpsertTranslator | None,
    assets: Callable[[Translation], Iterable[object]],
    *,
    own: Iterable[dg.AssetKey] = (),
    instance: str = "",
) -> Translation:
    """The keys of every asset, once a translator was asked for all of them.

    Args:
        assets: gives the assets of a project.
        own: the keys that these have by themselves.
        instance: tells the project from others of its code location.

    Raises:
        DeclarationError: two assets get one key.
    """
    apart = told_apart(own)
    if translator is None:
        return Translation(keys=AssetKeys(apart, instance), apart=apart)
    noting = Noting()
    list(assets(noting))
    given: dict[dg.AssetKey, TranslatorData] = {}
    translated: dict[dg.AssetKey, dg.AssetKey] = {}
    for data in noting.found:
        key = translator.get_asset_spec(_told_apart(data, apart)).key
        other = given.setdefault(key, data)
        if other is not data:
            raise _refused(data, f"gets key {_text(key)}, which {other.kind} '{other.name}' has")
        translated[data.spec.key] = key
    return Translation(translator, AssetKeys(translated, instance), apart)


def _told_apart(data: TranslatorData, apart: Mapping[dg.AssetKey, dg.AssetKey]) -> TranslatorData:
    key = apart.get(data.spec.key)
    return data if key is None else replace(data, spec=data.spec.replace_attributes(key=key))


def translator_of(given: UpsertTranslator | None) -> UpsertTranslator | None:
    """The translator that is meant: that of the environment, ``module:Name``, if none is given; or none.

    Raises:
        DeclarationError: the environment names what is not there, or not a translator.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if given is not None or not text:
        return given
    module, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        told = f"{VARIABLE} takes 'module:Name' of a translator, and '{text}' cannot be imported: {error}"
        raise DeclarationError([Problem(told, None)]) from error
    made = found() if isinstance(found, type) else found
    if not isinstance(made, UpsertTranslator):
        told = f"{VARIABLE} takes 'module:Name' of an UpsertTranslator; '{text}' is a {type(made).__name__}"
        raise DeclarationError([Problem(told, None)])
    return made


def _refused(data: TranslatorData, told: str) -> DeclarationError:
    return DeclarationError(
        [Problem(f"translation: the asset of {data.kind} '{data.name}' {told}", data.table.location)]
    )


def _text(key: dg.AssetKey) -> str:
    return f"'{key.to_user_string()}'"
