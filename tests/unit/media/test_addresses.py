"""What may not be fetched is never connected to, however its address is written, resolved or redirected to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import pytest
from yarl import URL

from serve_app.media.addresses import ATTEMPT, AddressPolicy, Attempt, is_public
from serve_app.media.errors import MediaError
from serve_app.media.resolver import ThreadedResolver
from serve_app.vocabulary import MediaErrorCode
from tests.unit.media.conftest import HOST, FakeResolver, FaultyServer, MakeFetcher, loader_settings

PRIVATE = """
0.0.0.0 0.1.2.3 10.1.1.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.255 169.254.169.254 169.254.0.1 172.16.0.1
172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
:: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:0:10.0.0.1 64:ff9b::10.0.0.1 64:ff9b::a9fe:a9fe
64:ff9b:1::1 100::1 2001::1 2001:0:7f00:1:: 2001:db8::1 2002:7f00:1:: 2002:a00:1::1 3fff::1 4000::1 5f00::1 fc00::1
fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
""".split()
PUBLIC = "1.1.1.1 8.8.8.8 172.32.0.1 2606:4700:4700::1111 ::ffff:8.8.8.8 64:ff9b::8.8.8.8".split()


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    assert not AddressPolicy(loader_settings()).permits(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert AddressPolicy(loader_settings()).permits(address)


def test_allowed_networks_count_as_public() -> None:
    policy = AddressPolicy(loader_settings(allow_networks=("10.1.0.0/16", "fd00::/8")))
    assert policy.permits("10.1.2.3")
    assert policy.permits("::ffff:10.1.2.3")
    assert policy.permits("fd12::1")
    assert not policy.permits("10.2.0.1")
    assert not policy.permits("127.0.0.1")


def test_allowed_hosts_are_names_or_all_names_below_one() -> None:
    policy = AddressPolicy(loader_settings(allow_hosts=("Store.example", "*.cluster.local")))
    for host in ("store.example", "STORE.example.", "a.cluster.local", "a.b.cluster.local"):
        assert policy.trusts(URL(f"http://{host}/")), host
    for host in ("a.store.example", "cluster.local", "xcluster.local", "a.cluster.local.evil.example"):
        assert not policy.trusts(URL(f"http://{host}/")), host


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc/passwd", "is not an http or https URL"),
        ("ftp://example.org/a.png", "is not an http or https URL"),
        ("gopher://example.org/", "is not an http or https URL"),
        ("//example.org/a.png", "is not an http or https URL"),
        ("a.png", "is not an http or https URL"),
        ("", "is not an http or https URL"),
        ("http:///a.png", "is not an http or https URL"),
        ("http://[::1/", "is not a valid URL"),
        ("http://example.org:99999/", "is not a valid URL"),
        ("http://example.org/a b\r\nX: y", "is not a valid URL"),
        ("http://exa\udcffmple.org/", "is not a valid URL"),
        ("http://user@example.org/", "user name or a password"),
        ("http://:secret@example.org/", "user name or a password"),
        ("http://example.org:22/", "port that is not allowed"),
        ("https://example.org:8443/", "port that is not allowed"),
        ("http://2130706433/", "not a canonical IPv4 address"),
        ("http://0x7f.1/", "not a canonical IPv4 address"),
        ("http://example.org/" + "a" * 9_000, "more than 8192 characters"),
    ],
)
def test_urls_that_are_refused_by_their_text(url: str, message: str) -> None:
    with pytest.raises(MediaError, match=message) as raised:
        AddressPolicy(loader_settings(allow_ports=(80, 443))).parse(url)
    assert raised.value.code is MediaErrorCode.FORBIDDEN
    assert "secret" not in str(raised.value)


def test_from_https_to_http_is_not_followed() -> None:
    policy = AddressPolicy(loader_settings())
    assert policy.follow(URL("http://a.example/x"), "https://b.example/y") == URL("https://b.example/y")
    assert policy.follow(URL("https://a.example/x/z"), "../y#part") == URL("https://a.example/y")
    with pytest.raises(MediaError, match="from https to http"):
        policy.follow(URL("https://a.example/x"), "http://b.example/y")


def test_a_socket_without_an_attempt_is_refused() -> None:
    policy = AddressPolicy(loader_settings())
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("1.1.1.1", 80))
    with pytest.raises(PermissionError):
        policy.open_socket(info)
    token = ATTEMPT.set(Attempt(trusted=False))
    try:
        policy.open_socket(info).close()
    finally:
        ATTEMPT.reset(token)


LOCAL_FORMS = """
127.0.0.1 127.0.0.2 127.1 127.0.1 2130706433 017700000001 0177.0.0.1 0x7f000001 0x7f.0.0.1 0x7f.1 0x7F.0x0.0x0.0x1
0.0.0.0 0 localhost LOCALHOST 127.0.0.1. １２７.０.０.１ 127。0。0。1 ①②⑦.0.0.1
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [0:0:0:0:0:ffff:7f00:0001] [::1%25lo] [64:ff9b::127.0.0.1]
""".split()


@pytest.mark.parametrize("host", LOCAL_FORMS)
async def test_no_way_of_writing_this_machines_address_reaches_it(make_fetcher: MakeFetcher, host: str) -> None:
    canary = FaultyServer()
    await canary.start("0.0.0.0")
    fetcher = make_fetcher(resolver=ThreadedResolver(4), timeout_ms=2_000)
    with pytest.raises(MediaError) as raised:
        await fetcher.fetch(f"http://{host}:{canary.port}/image")
    await canary.stop()
    assert raised.value.code is MediaErrorCode.FORBIDDEN
    assert not canary.hits


async def test_the_canary_would_be_hit(make_fetcher: MakeFetcher) -> None:
    canary = FaultyServer()
    await canary.start("0.0.0.0")
    fetcher = make_fetcher(resolver=ThreadedResolver(4), allow_networks=("127.0.0.0/8",))
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        (await fetcher.fetch(f"http://{host}:{canary.port}/image")).lease.release()
    await canary.stop()
    assert canary.hits["/image"] == 3


async def test_a_public_name_with_a_private_address(make_fetcher: MakeFetcher, server: FaultyServer) -> None:
    resolver = FakeResolver(**{"localtest.me": [["127.0.0.1"]], "both.test": [["127.0.0.1", "169.254.169.254"]]})
    for name in ("localtest.me", "both.test"):
        with pytest.raises(MediaError, match="has an address that may not be fetched") as raised:
            await make_fetcher(resolver=resolver).fetch(server.url("/image", name))
        assert raised.value.code is MediaErrorCode.FORBIDDEN
    assert not server.hits


async def test_dns_rebinding_changes_nothing(make_fetcher: MakeFetcher) -> None:
    # 127.0.0.2 stands for a public address. The name has it at first, then the one of an internal service.
    internal, other = FaultyServer(), FaultyServer()
    await internal.start("0.0.0.0")
    await other.start("0.0.0.0")
    resolver = FakeResolver(**{"rebinding.test": [["127.0.0.2"], ["127.0.0.1"]]})
    fetcher = make_fetcher(resolver=resolver, allow_networks=("127.0.0.2/32",))
    (await fetcher.fetch(other.url("/image", "rebinding.test"))).lease.release()
    with pytest.raises(MediaError) as raised:
        await fetcher.fetch(internal.url("/image", "rebinding.test"))
    assert raised.value.code is MediaErrorCode.FORBIDDEN
    assert (other.hits.total(), internal.hits.total()) == (1, 0)
    await asyncio.gather(internal.stop(), other.stop())


@pytest.mark.parametrize(
    "to",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:{port}/image",
        "http://2130706433:{port}/image",
        "http://private.test:{port}/image",
        "//127.0.0.1:{port}/image",
        "file:///etc/passwd",
        "ftp://images.test/image",
        "http://user:secret@images.test:{port}/image",
        "/loop",
    ],
)
async def test_each_redirect_is_checked(make_fetcher: MakeFetcher, server: FaultyServer, to: str) -> None:
    resolver = FakeResolver(**{"private.test": [["127.0.0.1"]]})
    fetcher = make_fetcher(resolver=resolver, timeout_ms=2_000)
    with pytest.raises(MediaError) as raised:
        await fetcher.fetch(server.url(f"/redirect?to={to.format(port=server.port)}"))
    assert raised.value.code is MediaErrorCode.FORBIDDEN
    assert "secret" not in str(raised.value)
    assert server.hits["/image"] == 0


async def test_redirects_to_where_one_may_are_followed(make_fetcher: MakeFetcher, server: FaultyServer) -> None:
    fetcher = make_fetcher()
    for status in (301, 302, 303, 307, 308):
        (await fetcher.fetch(server.url(f"/redirect?status={status}&to=/image"))).lease.release()
    (await fetcher.fetch(server.url(f"/redirect?to=http://{HOST}:{server.port}/image"))).lease.release()
    assert server.hits["/image"] == 6
