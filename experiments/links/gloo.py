"""Bytes that a host sends when gloo, the transport of JAX on CPUs, averages an array.

gloo sums along a ring. Each of m hosts owns a part of the array, in two segments. The
first trip around the ring sums the parts and the second distributes the sums, so a host
sends 2 (m − 1) parts: 2 (m − 1) / m times the array. A tree is averaged array by array.
The overhead of a segment was fitted to the interface counters of 2 and 4 hosts: three
headers, each in a frame of its own, and one acknowledgement.
"""

SEGMENTS = 2  # of a part
GLOO_HEADER = 48
FRAME_HEADER = 14 + 20 + 32  # of Ethernet, IP, and TCP with its timestamps
FRAME_PAYLOAD = (
    1500 - 20 - 32
)  # bytes in an Ethernet frame after the headers of IP and TCP
GOODPUT = FRAME_PAYLOAD / (FRAME_PAYLOAD + FRAME_HEADER)
"""The fraction of a link's rate that is left for the payload."""
_PER_SEGMENT = 3 * (GLOO_HEADER + FRAME_HEADER) + FRAME_HEADER


def ring_bytes(array_bytes: int, num_hosts: int) -> float:
    """Computes the bytes that one host sends for the mean of one array.

    A long segment takes several frames; their headers are not counted here.

    >>> ring_bytes(8_000_000, num_hosts=2) / 8_000_000
    1.000204
    """
    num_sent = 2 * (num_hosts - 1) * SEGMENTS
    return 2 * (num_hosts - 1) / num_hosts * array_bytes + num_sent * _PER_SEGMENT
