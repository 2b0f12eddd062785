"""Secure sum of 1,000,000 int64 over 10 clients and 2 nodes: CPU per party against the raw cipher stream that it needs.

The floor of a client is one key stream per seed and one AES-256-GCM encryption of what is left; that of a node is what it expands or
decrypts for every client. Prints bytes per coordinate and checks that the opened sum is the plain sum.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from board import note, rounds
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.protocol.identity import Identity
from unpooled.totals import secure_sum

SIZE, CLIENTS, NODES, ROUNDS = 1_000_000, 10, 2, rounds(5)
CONTEXT, PURPOSE = b"plan", (b"release",)


def cpu(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1000


def main() -> None:
    rng = np.random.default_rng(0)
    vectors = [rng.integers(-(1 << 50), 1 << 50, SIZE) for _ in range(CLIENTS)]
    clients = [Identity(os.urandom(32)) for _ in range(CLIENTS)]
    nodes = [Identity(os.urandom(32)) for _ in range(NODES)]
    keys = [node.agreement_key(CONTEXT) for node in nodes]
    client_keys = [identity.agreement_key(CONTEXT) for identity in clients]

    def client(identity: Identity, vector: np.ndarray) -> list[tuple[bytes, bytes]]:
        shares = secure_sum.split(vector, NODES, bytes(32))
        return [
            secure_sum.seal(partial(identity.shared_key, CONTEXT), key, PURPOSE, share, bytes(32))
            for key, share in zip(keys, shares, strict=True)
        ]

    sealed = [client(identity, vector) for identity, vector in zip(clients, vectors, strict=True)]

    def node(at: int) -> np.ndarray:
        total, room = np.zeros(SIZE, dtype=np.uint64), bytearray(8 * SIZE)
        for key, parts in zip(client_keys, sealed, strict=True):
            share = secure_sum.unseal(partial(nodes[at].shared_key, CONTEXT), key, PURPOSE, *parts[at], room)
            secure_sum.add_fragment(total, share, at, NODES)
        return total

    total = secure_sum.opened([node(at) for at in range(NODES)])
    assert np.array_equal(total, np.sum(vectors, axis=0)), "the opened sum is not the plain sum"

    cipher, blob = AESGCM(bytes(32)), bytes(8 * SIZE)
    secret = cipher.encrypt(bytes(12), blob, None)
    expand = cpu(lambda: Cipher(algorithms.AES256(bytes(32)), modes.CTR(bytes(16))).encryptor().update(blob))
    encrypt = cpu(lambda: cipher.encrypt(bytes(12), blob, None))
    decrypt = cpu(lambda: cipher.decrypt(bytes(12), secret, None))
    rows = [
        ("client", cpu(lambda: client(clients[0], vectors[0])), (NODES - 1) * expand + encrypt),
        ("node with seeds", cpu(lambda: node(0)), CLIENTS * expand),
        ("node with vectors", cpu(lambda: node(NODES - 1)), CLIENTS * decrypt),
    ]
    print(f"{SIZE} int64, {CLIENTS} clients, {NODES} nodes; medians of {ROUNDS}, CPU milliseconds")
    for name, ours, floor in rows:
        note(f"secure sum, {name}", "a raw cipher stream", ours / floor, "3")
        print(f"  {name:<18}{ours:8.1f}   raw cipher stream {floor:8.1f}   ratio {ours / floor:5.2f}  (aim: at most 3)")
    sent = sum(len(salt) + len(text) for salt, text in sealed[0]) / SIZE
    print(
        f"  a client sends {sent:.4f} bytes per coordinate; a node 8; all clients and nodes {CLIENTS * sent + NODES * 8:.1f}"
    )


if __name__ == "__main__":
    main()
