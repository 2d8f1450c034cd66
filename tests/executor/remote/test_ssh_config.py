"""Which sshd a name means: aliases, jumps, includes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor.ssh import resolve_endpoint
from experiments.errors import InputError


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_an_alias_is_resolved_with_its_defaults(tmp_path: Path) -> None:
    """Host name, port, user, key and known_hosts come from the first matching lines, as OpenSSH reads them."""
    config = write(
        tmp_path / "config",
        "Host p0 p1\n HostName 10.0.0.1\n Port 2222\n User=root\n IdentityFile /k/%h\nHost *\n User nobody\n",
    )
    endpoint = resolve_endpoint("p0", ssh_config=config, known_hosts="/kh")
    found = (endpoint.hostname, endpoint.port, endpoint.user, endpoint.identity_files, endpoint.known_hosts)
    assert found == ("10.0.0.1", 2222, "root", ("/k/10.0.0.1",), ("/kh",))
    assert endpoint.known_as == "[10.0.0.1]:2222"
    assert endpoint.jump is None


def test_a_name_may_carry_user_and_port(tmp_path: Path) -> None:
    """`user@host:port` wins over the config's lines."""
    config = write(tmp_path / "config", "Host *\n User nobody\n Port 22\n")
    endpoint = resolve_endpoint("ops@10.0.0.9:2200", ssh_config=config)
    assert (endpoint.user, endpoint.hostname, endpoint.port) == ("ops", "10.0.0.9", 2200)
    bare = resolve_endpoint("10.0.0.9", ssh_config=config)
    assert (bare.user, bare.known_as) == ("nobody", "10.0.0.9")


def test_jumps_are_chained_from_left_to_right(tmp_path: Path) -> None:
    """`ProxyJump a,b` reaches the host through b, and b through a; each with its own lines of the config."""
    config = write(
        tmp_path / "config",
        "Host d0\n ProxyJump gate,ops@inner:2022\nHost gate\n HostName 1.2.3.4\nHost inner\n HostName 10.1.1.1\n",
    )
    endpoint = resolve_endpoint("d0", ssh_config=config)
    inner = endpoint.jump
    assert inner is not None
    assert (inner.hostname, inner.port, inner.user) == ("10.1.1.1", 2022, "ops")
    assert inner.jump is not None
    assert (inner.jump.hostname, inner.jump.jump) == ("1.2.3.4", None)


def test_a_jump_of_a_jump_is_followed_and_a_loop_is_not(tmp_path: Path) -> None:
    """A jump host's own ProxyJump counts; two hosts that jump through one another are an error."""
    config = write(tmp_path / "c1", "Host a\n ProxyJump b\nHost b\n ProxyJump c\n")
    endpoint = resolve_endpoint("a", ssh_config=config)
    assert endpoint.jump is not None
    assert endpoint.jump.jump is not None
    loop = write(tmp_path / "c2", "Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(InputError, match="is it a loop"):
        resolve_endpoint("a", ssh_config=loop)


def test_include_is_followed(tmp_path: Path) -> None:
    """An Include is read where it stands, patterns in order; the lines after it belong to the block before it."""
    write(tmp_path / "hosts.d" / "1", "Host p0\n HostName 10.0.0.1\n")
    write(tmp_path / "hosts.d" / "2", "Host p1\n HostName 10.0.0.2\n")
    config = write(tmp_path / "config", f"Include {tmp_path}/hosts.d/*\nUser everywhere\nHost p0\n Port 2222\n")
    p0, p1 = (resolve_endpoint(name, ssh_config=config) for name in ("p0", "p1"))
    assert (p0.hostname, p0.port, p0.user) == ("10.0.0.1", 2222, "everywhere")
    assert (p1.hostname, p1.user) == ("10.0.0.2", "everywhere")


def test_include_of_plain_options_in_a_block_counts_there(tmp_path: Path) -> None:
    """An included file without Host lines may stand inside a Host block."""
    common = write(tmp_path / "common", "Port 2022\n")
    config = write(tmp_path / "config", f"Host p0\n Include {common}\nHost *\n User x\n")
    assert resolve_endpoint("p0", ssh_config=config).port == 2022
    assert resolve_endpoint("p1", ssh_config=config).port == 22


def test_a_host_key_alias_names_the_key(tmp_path: Path) -> None:
    """HostKeyAlias is looked up without a port."""
    config = write(tmp_path / "config", "Host p0\n HostName 1.1.1.1\n Port 2222\n HostKeyAlias pool-p0\n")
    assert resolve_endpoint("p0", ssh_config=config).known_as == "pool-p0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Host p0\n ProxyCommand nc %h %p\n", "ProxyCommand of p0 is not supported; use ProxyJump"),
        ("Host p0\n StrictHostKeyChecking no\n", "only talks to hosts it knows"),
        ("Include {self}\n", "Include nests deeper"),
        ("Host p0\n Include {inner}\n", "included inside a Host block"),
        ("Host p0\n Port\n", "cannot be read as an ssh config"),
    ],
)
def test_what_cannot_be_followed_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    """An option that would change where we connect is refused with its file, never ignored."""
    inner = write(tmp_path / "inner", "Host p1\n Port 1\n")
    path = tmp_path / "config"
    config = write(path, text.format(self=path, inner=inner))
    with pytest.raises(InputError, match=message) as caught:
        resolve_endpoint("p0", ssh_config=config)
    assert str(caught.value).startswith(str(tmp_path))


def test_a_config_that_is_named_must_exist(tmp_path: Path) -> None:
    """A pool that names a missing ssh config is wrong; silence would connect somewhere else."""
    with pytest.raises(InputError, match="does not exist"):
        resolve_endpoint("p0", ssh_config=str(tmp_path / "none"))
