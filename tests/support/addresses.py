"""Addresses that no other test on this machine uses. addresses.h describes the method; both claim
hosts by the same names."""
import errno
import random
import socket

FIRST_PORT, END_OF_PORTS = 20000, 32000
TRIES = 1000
_claims = []  # sockets that stay open for the lifetime of this process
_own = {"host": None, "port": FIRST_PORT}


def _claim(name):
    """True if no other process has claimed `name`."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind("\0" + name)
    except OSError as error:
        claim.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    _claims.append(claim)
    return True


def claim_host(draw):
    """Claims the first host that no other process has; `draw()` returns hosts to try."""
    for _ in range(TRIES):
        host = draw()
        if _claim(f"cairn-test-host {host}"):
            return host
    raise AssertionError(f"no host of 127.0.0.0/8 is free after {TRIES} tries")


def own_host():
    """The host of this process, as in "127.31.4.9"."""
    if _own["host"] is None:
        # Leaves 127.0.x.y to the system's own services.
        draw = random.SystemRandom().randint
        _own["host"] = claim_host(
            lambda: f"127.{draw(1, 254)}.{draw(0, 255)}.{draw(1, 254)}")
    return _own["host"]


def _is_free(host, port):
    with socket.socket() as trial:
        try:
            trial.bind((host, port))
        except OSError:
            return False
    return True


def own_port():
    """A port of own_host() that no earlier call returned."""
    while True:
        port = _own["port"]
        _own["port"] += 1
        assert port < END_OF_PORTS, "this process has used all of its ports"
        if _is_free(own_host(), port):
            return port


def own_address():
    return f"{own_host()}:{own_port()}"


def own_addresses(count):
    return [own_address() for _ in range(count)]


def nobodys_address(number=1):
    """An address without a listener: `number` up to 1023 is a port that own_port() never
    returns."""
    return f"{own_host()}:{number}"


def run_of_ports(count):
    """The first of up to 16 consecutive ports that no other test has on any address: for programs
    that choose their address themselves."""
    most = 16
    assert count <= most
    for _ in range(TRIES):
        base = random.SystemRandom().randrange(FIRST_PORT, END_OF_PORTS, most)
        if _claim(f"cairn-test-ports {base}") and \
                all(_is_free("", base + i) for i in range(count)):
            return base
    raise AssertionError(f"no {count} ports in a row are free after {TRIES} tries")
