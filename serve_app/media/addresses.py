"""Which URLs may be fetched, and which addresses may be connected to.

A URL's text is checked for its scheme, port and user name. Its host's address is checked where it counts: on the
address that the socket is about to connect to, in aiohttp's `socket_factory`. Whatever a name resolves to, however
often, and however an address was written, there is no gap between the check and the connection.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from contextvars import ContextVar
from dataclasses import dataclass

from aiohttp import AddrInfoType
from yarl import URL

from serve_app.media.errors import MediaError
from serve_app.settings import ImageLoaderSettings
from serve_app.vocabulary import MediaErrorCode

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL_LENGTH = 8_192
_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# `is_global` of Python 3.11 takes all of these for public; later versions some of them.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # IETF protocols; Oracle's metadata service is 192.0.0.192
            "192.88.99.0/24",  # 6to4 relays
            "168.63.129.16/32",  # Azure's host agent: a public address that never leaves the machine
            "224.0.0.0/4",  # multicast
            "2001::/23",  # IETF protocols, among them Teredo, which embeds IPv4 addresses
            "2002::/16",  # 6to4, which embeds IPv4 addresses
            "3fff::/20",  # documentation
        ),
    )
)


@dataclass(slots=True)
class Attempt:
    """One request to one host, as the socket factory sees it.

    Attributes:
        trusted: the host is one of `allow_hosts`, so its addresses are not checked.
        refused: one of its addresses was refused.
    """

    trusted: bool
    refused: bool = False


ATTEMPT: ContextVar[Attempt | None] = ContextVar("ATTEMPT", default=None)
"""The factory is not told for which host a socket is. Without an attempt it refuses."""


def is_public(address: Address) -> bool:
    """Whether an address is reachable for anybody on the internet."""
    address = _unwrapped(address)
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False  # IPv4-compatible, link-local, site-local, unique local, multicast and everything unassigned
    return address.is_global and not any(address in network for network in _SPECIAL)


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that a packet to an IPv4-mapped or NAT64 address ends at."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


class AddressPolicy:
    """The operator's rules for URLs: `allow_hosts`, `allow_networks` and `allow_ports` of the settings."""

    def __init__(self, settings: ImageLoaderSettings) -> None:
        self._hosts = frozenset(host.lower() for host in settings.allow_hosts if not host.startswith("*."))
        self._suffixes = tuple(host[1:].lower() for host in settings.allow_hosts if host.startswith("*."))
        self._networks = tuple(map(ipaddress.ip_network, settings.allow_networks))
        self._ports = frozenset(settings.allow_ports)

    def parse(self, text: str) -> URL:
        """The URL of a text.

        Raises:
            MediaError: it may not be fetched; `media_forbidden`.
        """
        if len(text) > MAX_URL_LENGTH:
            raise _forbidden(f"is a URL of more than {MAX_URL_LENGTH} characters")
        try:
            if any(character <= " " or character == "\x7f" for character in text):
                raise ValueError("whitespace or control characters")
            url = URL(text)
            scheme, host, port = url.scheme, url.raw_host, url.port
        except ValueError:
            raise _forbidden("is not a valid URL") from None
        if scheme not in ("http", "https") or not host:
            raise _forbidden("is not an http or https URL")
        if url.raw_user is not None or url.raw_password is not None:
            raise _forbidden("is a URL with a user name or a password, which is not supported")
        if self._ports and port not in self._ports:
            raise _forbidden("is a URL with a port that is not allowed")
        if _is_odd_ipv4(host):
            raise _forbidden("is a URL whose host is not a canonical IPv4 address")
        return url.with_fragment(None)

    def follow(self, url: URL, location: str) -> URL:
        """Where a redirect leads.

        From https to http is refused: what was to be read over a protected connection could be replaced on the way.
        Browsers block such images in pages too.

        Raises:
            MediaError: it may not be followed; `media_forbidden`.
        """
        try:
            target = url.join(URL(location))
        except ValueError:
            raise _forbidden("redirects to what is not a valid URL") from None
        try:
            target = self.parse(str(target))
        except MediaError:
            raise _forbidden("redirects to a URL that may not be fetched") from None
        if url.scheme == "https" and target.scheme == "http":
            raise _forbidden("redirects from https to http")
        return target

    def trusts(self, url: URL) -> bool:
        """Whether the host is one of `allow_hosts`."""
        host = (url.raw_host or "").lower().rstrip(".")
        return host in self._hosts or host.endswith(self._suffixes)

    def permits(self, address: str) -> bool:
        """Whether an address, as a socket takes it, may be connected to without its host being trusted."""
        parsed = ipaddress.ip_address(address)
        if any(parsed in network or _unwrapped(parsed) in network for network in self._networks):
            return True
        return is_public(parsed)

    def open_socket(self, addr_info: AddrInfoType) -> socket.socket:
        """aiohttp's `socket_factory`: called right before each connection, with the address that it is made to."""
        family, kind, protocol, _, socket_address = addr_info
        attempt = ATTEMPT.get()
        if attempt is None or not (attempt.trusted or self.permits(str(socket_address[0]))):
            if attempt is not None:
                attempt.refused = True
            raise PermissionError(errno.EACCES, "address not allowed")
        return socket.socket(family, kind, protocol)


def _is_odd_ipv4(host: str) -> bool:
    """Whether a resolver would take a host for a number, as inet_aton does: 2130706433, 0177.0.0.1, 0x7f.1, 127.1."""
    if ":" in host or not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


def _forbidden(message: str) -> MediaError:
    return MediaError(MediaErrorCode.FORBIDDEN, message)
