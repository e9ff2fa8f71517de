"""Listeners: where process 0 waits for the others."""

import contextlib
import errno
import ipaddress
import os
import socket


def listen(host: str, port: int, num_processes: int) -> list[socket.socket]:
    """Listens at the addresses of a host; everywhere, if none of them is of this one.

    An address in front of this host is not: that of a router, or of a service.

    Raises:
      ConnectionError: if the port is taken.

    >>> [listener] = listen("127.0.0.1", 0, num_processes=2)
    >>> with listener:
    ...     listener.getsockname()[0]
    '127.0.0.1'
    """
    backlog = num_processes + 128  # strangers wait there as well
    with contextlib.ExitStack() as stack:
        listeners = []
        try:
            for family, address in addresses_of(host):
                try:
                    listener = socket.create_server(
                        (address, port), family=family, backlog=backlog
                    )
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
                else:
                    listeners.append(stack.enter_context(listener))
            if not listeners:
                both = socket.has_dualstack_ipv6()
                family = socket.AF_INET6 if both else socket.AF_INET
                listener = socket.create_server(
                    ("", port), family=family, dualstack_ipv6=both, backlog=backlog
                )
                listeners.append(listener)
        except OSError as error:
            raise ConnectionError(
                f"coordinator must have a free port, got {port}: "
                f"{os.strerror(error.errno or 0)}"
            ) from error
        stack.pop_all()  # they stay open
        return listeners


def addresses_of(host: str) -> set[tuple[int, str]]:
    """Finds families and addresses of a host at which others can reach it.

    >>> [(family, address)] = addresses_of("127.0.0.1")
    >>> address
    '127.0.0.1'
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    addresses = {(int(family), str(address[0])) for family, *_, address in found}
    if host == "localhost" or any(host == address for _, address in addresses):
        return addresses
    # Debian's /etc/hosts has a host's own name as a loopback address, which the other
    # hosts do not mean by that name.
    return {
        (family, address)
        for family, address in addresses
        if not ipaddress.ip_address(address).is_loopback
    }
