"""The settings of web API plugins: Flyte's keys, defaults and ranges; one sentence with the key for a wrong value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.plugins.web_protocol import PluginConfig, RateLimit
from backoff_ctrl.k8s.tasks.services.webapi.settings import SettingsError, read_section, settings_of


def test_the_defaults_are_flytes() -> None:
    found = settings_of(read_section("jobs", {}), PluginConfig())
    assert (found.read, found.write) == (RateLimit(30, 300), RateLimit(20, 200))
    caching = found.caching
    assert (caching.size, caching.workers, caching.max_system_failures) == (100_000, 10, 5)
    assert caching.resync_interval == timedelta(seconds=30)
    assert found.pools == {}
    assert (found.project, found.namespace) == (None, None)


def test_what_is_set_goes_over_the_plugins_own_key_by_key() -> None:
    own = PluginConfig(RateLimit(10, 100), RateLimit(10, 100), {"default": 1000}, 100, 50)
    found = settings_of(
        read_section("jobs", {"readRateLimiter": {"qps": 5}, "resourceConstraints": {"project": 7}}), own
    )
    assert (found.read, found.write) == (RateLimit(5, 100), RateLimit(10, 100))
    assert (found.pools, found.project, found.namespace) == ({"default": 1000}, 7, 50)


@pytest.mark.parametrize("key", ["caching.resyncInterval", "caching.resync-interval", "CACHING.RESYNC_INTERVAL"])
def test_spellings_do_not_matter(key: str) -> None:
    """Environment variables have only capitals."""
    section, inner = key.split(".")
    assert read_section("jobs", {section: {inner: "5s"}}).caching.resync_interval == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"caching": {"size": 9}}, "caching.size"),
        ({"caching": {"size": 500_001}}, "caching.size"),
        ({"caching": {"resyncInterval": "4s"}}, "caching.resyncInterval"),
        ({"caching": {"resyncInterval": "61m"}}, "caching.resyncInterval"),
        ({"caching": {"workers": 0}}, "caching.workers"),
        ({"caching": {"workers": 10_001}}, "caching.workers"),
        ({"readRateLimiter": {"qps": 0}}, "readRateLimiter.qps"),
        ({"writeRateLimiter": {"burst": 4}}, "writeRateLimiter.burst"),
        ({"writeRateLimiter": {"burst": 10_001}}, "writeRateLimiter.burst"),
        ({"writeRateLimiter": {"qps": 100_001}}, "writeRateLimiter.qps"),
        ({"resourceQuotas": {"default": -1}}, "resourceQuotas.default"),
        ({"resourceQuotas": 7}, "resourceQuotas"),
        ({"cacheing": {}}, "cacheing"),
        ({"caching": {"size": 20, "ttl": 3}}, "caching.ttl"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_its_key(section: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_section("jobs", section)
    assert str(caught.value).startswith(f"plugins.jobs.{key}: ")
    assert "\n" not in str(caught.value)


def test_a_plugins_own_keys_are_left_to_it() -> None:
    assert (
        read_section("jobs", {"endpoint": "x", "caching": {"workers": 3}}, frozenset({"endpoint"})).caching.workers == 3
    )


def test_sections_of_plugins_come_from_the_file_the_environment_and_flags(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag wins over the environment, and that over the file, key by key."""
    file = tmp_path / "settings.yaml"
    file.write_text("plugins: {jobs: {caching: {workers: 3, size: 50}, endpoint: here}}\n", encoding="utf-8")
    monkeypatch.setenv("BACKOFF_CTRL_PLUGINS__JOBS__CACHING__WORKERS", "4")
    section = Platform(str(file), ["plugins.jobs.readRateLimiter.qps=7"]).section("jobs")
    found = settings_of(read_section("jobs", section, frozenset({"endpoint"})), PluginConfig())
    assert (found.caching.workers, found.caching.size, found.read.qps) == (4, 50, 7)
    assert section["endpoint"] == "here"
