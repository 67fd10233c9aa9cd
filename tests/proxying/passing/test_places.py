"""Where the proxy finds the API server, and where it listens: what can't be used is one sentence."""

from __future__ import annotations

import base64
import os
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from backoff_ctrl.k8s.proxy import place as places
from backoff_ctrl.k8s.proxy.listening import BindError, bind, descriptors_for, leave_path, read_address
from backoff_ctrl.k8s.proxy.place import PlaceError, find_place, place_of_account
from backoff_ctrl.k8s.proxy.upstream import ApiServer
from tests.kubeconfigs import write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path


def _data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_kubeconfig_is_read_as_client_go_reads_it(tmp_path: Path) -> None:
    """Data wins over files, a token file over a token, and files lie beside it."""
    (tmp_path / "token").write_text("from a file\n")
    user = {"token": "t", "tokenFile": "token", "client-certificate-data": _data("cert"), "client-key": "my.key"}
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": _data("ca"), "tls-server-name": "kube"}
    file = write_kubeconfig(tmp_path / "config", "https://[::1]:6443/k8s/", user, **cluster)
    found = find_place(None, file)
    assert (found.host, found.port, found.tls, found.prefix) == ("::1", 6443, True, "/k8s")
    assert (found.url, found.netloc) == ("https://[::1]:6443/k8s", b"[::1]:6443")
    assert found.authority.read() == b"ca"
    assert found.token.read() == b"from a file\n"
    assert found.certificate.read() == b"cert"
    assert found.key.path == tmp_path / "my.key"
    assert found.server_name == "kube"
    elsewhere = find_place("https://127.0.0.1", file)
    assert (elsewhere.netloc, elsewhere.authority, elsewhere.token) == (b"127.0.0.1", found.authority, found.token)


def test_in_a_cluster_the_pods_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no kubeconfig."""
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "token").write_text("mine")
    monkeypatch.setattr(places, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = place_of_account(tmp_path)
    assert (found.url, found.token.read()) == ("https://10.0.0.1:6443", b"mine")


def _config(**changes: Any) -> dict[str, Any]:
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    return {**whole, **changes}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (_config(clusters=[]), "has no cluster 'c': choose another with --context"),
        (_config(contexts=None), "has no context 'here'"),
        (_config(**{"current-context": ""}), "names no current context"),
        (_config(clusters=[{"name": "c", "cluster": {}}]), "the server of context here must be a URL"),
        (_config(users=[{"name": "u", "user": {"client-key-data": "!"}}]), "holds data that is not base64"),
        (_config(clusters=[{"name": "c", "cluster": {"proxy-url": "x"}}]), "asks for a proxy-url"),
        (["secret"], "does not have the structure of a kubeconfig"),
        ("{", "is not valid YAML"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_is_one_sentence(tmp_path: Path, document: Any, sentence: str) -> None:
    """Which shows none of its secrets."""
    file = tmp_path / "config"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    with pytest.raises(PlaceError, match=r"^the ") as caught:
        find_place(None, str(file))
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://a", "127.0.0.1:80", "http://", "http://a:99999", "http://a:x", "http://a/?b"])
def test_an_address_that_is_none(url: str) -> None:
    """Is named."""
    with pytest.raises(PlaceError, match="--upstream must be a URL such as"):
        find_place(url, None)


def test_certificates_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    """At the start, not at the first request."""
    file = write_kubeconfig(tmp_path / "c", "https://127.0.0.1:1", None, **{"certificate-authority": "none.crt"})
    with pytest.raises(PlaceError, match=r"No such file or directory: .*none\.crt"):
        ApiServer(find_place(None, file))
    file = write_kubeconfig(
        tmp_path / "c", "https://127.0.0.1:1", None, **{"certificate-authority-data": _data("nonsense")}
    )
    with pytest.raises(PlaceError, match=r"the certificates for https://127\.0\.0\.1:1 can't be used"):
        ApiServer(find_place(None, file))


@pytest.mark.parametrize("listen", ["8001", "127.0.0.1", "127.0.0.1:99999", ":80", "unix:here", "unix:/" + "x" * 120])
def test_a_place_to_listen_that_is_none(listen: str) -> None:
    """Is named."""
    with pytest.raises(BindError, match="--listen"):
        read_address(listen)


@pytest.mark.parametrize(
    ("listen", "local"),
    [("127.0.0.1:0", True), ("localhost:1", True), ("[::1]:1", True), ("unix:/s", True), ("0.0.0.0:1", False)],
)
def test_who_can_reach_an_address(listen: str, local: bool) -> None:
    """Loopback and sockets of this machine: nobody else."""
    assert read_address(listen).of_this_machine is local


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    """One that somebody serves is not, nor is a file."""
    address = read_address(f"unix:{tmp_path}/s")
    bind(address).close()
    with bind(address), pytest.raises(BindError, match="Address already in use"):
        bind(address)
    (tmp_path / "f").write_text("mine")
    with pytest.raises(BindError):
        bind(read_address(f"unix:{tmp_path}/f"))
    with bind(read_address("127.0.0.1:0")) as bound, pytest.raises(BindError, match="Address already in use"):
        bind(read_address(f"127.0.0.1:{bound.getsockname()[1]}"))


def test_a_path_is_left_to_the_process_that_bound_it_last(tmp_path: Path) -> None:
    """Who ends removes its own socket, not that of the process that follows; nor what is gone already."""
    path = tmp_path / "s"
    address = read_address(f"unix:{path}")
    with bind(address):
        leave = leave_path(path)
    with bind(address) as following:
        leave()
        assert path.exists()
        with socket(AF_UNIX) as caller:
            caller.connect(str(path))
        leave_following = leave_path(path)
        following.close()
    leave_following()
    assert not path.exists()
    leave_following()


def test_a_socket_with_our_credentials_is_for_this_user_alone(tmp_path: Path) -> None:
    """Whatever the umask lets others do."""
    before = os.umask(0)
    try:
        with bind(read_address(f"unix:{tmp_path}/s"), private=True):
            assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
        with bind(read_address(f"unix:{tmp_path}/t")):
            assert (tmp_path / "t").stat().st_mode & 0o777 == 0o777
    finally:
        os.umask(before)


def test_descriptors_limit_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit is raised; where even the hard one is too low, fewer callers are let in, two descriptors each."""
    set_to: list[object] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    monkeypatch.setattr("resource.setrlimit", lambda _, both: set_to.append(both))
    assert descriptors_for(100, 256) == 100
    assert descriptors_for(2000, 256) == (1024 - 64 - 256) // 2
    assert set_to == [(520, 1024), (1024, 1024)]
