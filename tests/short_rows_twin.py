"""The proof that rows are short in plain Python integers, written from the description alone, with rules that tests break on purpose."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

P = 2**61 - 1
Pair = tuple[int, int]


@dataclass(frozen=True)
class Rules:
    """What a proof does; every default is the product's."""

    sums: int = 128
    independent: bool = True  # each row's equation has a weight of its own
    blinded: bool = True  # digests are keyed with a secret of the prover
    chained: bool = True  # coins depend on the prover's words
    third: bool = True  # what is opened has a random third
    fresh: bool = True  # another place has other random words
    sums_weighted: bool = True  # a sum is that of its bits
    bits_weighted: bool = True  # a bit is its own square
    apart: bool = True  # the helper's seed says nothing about the judge's random third


FAIR = Rules()


def typed(*parts: bytes | str | int) -> bytes:
    out = b""
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        out += {bytes: b"b", str: b"s", int: b"i"}[type(part)] + len(raw).to_bytes(8, "big") + raw
    return out


def sha(*parts: bytes | str | int) -> bytes:
    return hashlib.sha256(typed(*parts)).digest()


def mac(key: bytes, *parts: bytes | str | int) -> bytes:
    return hmac.digest(key, typed(*parts), "sha256")


def stream(key: bytes, count: int) -> list[int]:
    """64-bit words of AES-256 in counter mode, block by block."""
    cipher, out = Cipher(algorithms.AES256(key), modes.ECB()).encryptor(), []
    for block in range((count + 1) // 2):
        raw = cipher.update(block.to_bytes(16, "big"))
        out += [int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")]
    return out[:count]


def words(seed: bytes, count: int) -> list[int]:
    return [word & P for word in stream(seed, count + 8) if word & P != P][:count]


def pairs(seed: bytes, count: int) -> list[Pair]:
    flat = words(seed, 2 * count)
    return [(flat[2 * k], flat[2 * k + 1]) for k in range(count)]


def add(a: Pair, b: Pair) -> Pair:
    return (a[0] + b[0]) % P, (a[1] + b[1]) % P


def neg(a: Pair) -> Pair:
    return -a[0] % P, -a[1] % P


def sub(a: Pair, b: Pair) -> Pair:
    return add(a, neg(b))


def mul(a: Pair, b: Pair) -> Pair:
    return (a[0] * b[0] - a[1] * b[1]) % P, (a[0] * b[1] + a[1] * b[0]) % P


def num(k: int) -> Pair:
    return k % P, 0


def inv(a: Pair) -> Pair:
    norm = pow(a[0] * a[0] + a[1] * a[1], -1, P)
    return a[0] * norm % P, -a[1] * norm % P


def basis(nodes: int, at: Pair) -> list[Pair]:
    """The Lagrange polynomials of 0, 1, 2, ... at a point."""
    out = []
    for i in range(nodes):
        value = num(1)
        for j in range(nodes):
            if j != i:
                value = mul(value, mul(sub(at, num(j)), inv(num(i - j))))
        out.append(value)
    return out


def lagrange(values: list[Pair], at: Pair) -> Pair:
    return dot(values, basis(len(values), at))


def dot(u: list[Pair], v: list[Pair]) -> Pair:
    out = (0, 0)
    for a, b in zip(u, v, strict=True):
        out = add(out, mul(a, b))
    return out


@dataclass(frozen=True)
class Case:
    """One proof: place as eight parts, rows, columns, square, and the rules that hold."""

    place: tuple[str, str, str, str, str, int, str, int]
    rows: int
    columns: int
    square: int
    rules: Rules = FAIR

    @property
    def wrap(self) -> int:
        t = 0
        while 4**t < 50 * self.square * self.rows:
            t += 1
        return t

    @property
    def halvings(self) -> int:
        k = 0
        while 2 ** (k + 1) < self.rows * (self.columns + 4) + self.rules.sums * (self.wrap + 1):
            k += 1
        return k

    def named(self) -> tuple[bytes, bytes]:
        return typed("place", *self.place), typed("shape", self.rows, self.columns, self.square, self.wrap, self.rules.sums)

    def first(self, of_helper: bytes, of_judge: bytes) -> bytes:
        return sha("first coin", *self.named(), of_helper, of_judge)

    def next(self, coin: bytes, digest: bytes) -> bytes:
        return sha("next coin", coin, digest if self.rules.chained else b"")

    def signed(self, coin: bytes, flat: list[int]) -> list[int]:
        """Sums with random signs: the difference of two random bits for each entry."""
        groups = -(-len(flat) // 8)
        raw = b"".join(word.to_bytes(8, "little") for word in stream(mac(coin, "signs"), 32 * groups))
        out = [0] * self.rules.sums
        for i, entry in enumerate(flat):
            group = raw[256 * (i // 8) :]
            for c in range(self.rules.sums):
                out[c] += ((group[c] >> (i % 8) & 1) - (group[128 + c] >> (i % 8) & 1)) * entry
        return [value % P for value in out]

    def weights(self, coin: bytes) -> tuple[list[Pair], list[Pair], list[Pair]]:
        of_rows = pairs(mac(coin, "rows"), self.rows) if self.rules.independent else [num(1)] * self.rows
        count = self.rules.sums
        of_sums, of_bits = pairs(mac(coin, "sums"), count), pairs(mac(coin, "bits"), count * (self.wrap + 1))
        of_sums = of_sums if self.rules.sums_weighted else [(0, 0)] * len(of_sums)
        return of_rows, of_sums, of_bits if self.rules.bits_weighted else [(0, 0)] * len(of_bits)

    def padded(self, vector: list[Pair]) -> list[Pair]:
        return vector + [(0, 0)] * (2 ** (self.halvings + 1) - len(vector))

    def factor_of_judge(self, coin: bytes, rows: list[list[int]], bits: list[int]) -> list[Pair]:
        of_rows, _, of_bits = self.weights(coin)
        u = [mul(w, num(x)) for w, row in zip(of_rows, rows, strict=True) for x in row]
        return self.padded(u + [mul(w, num(t)) for w, t in zip(of_bits, bits, strict=True)])

    def factor_of_helper(self, rows: list[list[int]], bits: list[int]) -> list[Pair]:
        return self.padded([num(x) for row in rows for x in row] + [num(t) for t in bits])

    def equation(self, coin: bytes, rows: list[list[int]], sums: list[int], bits: list[int], *, constant: bool) -> Pair:
        """The weighted equations with one side's shares in place of the words; constants are one side's."""
        of_rows, of_sums, of_bits = self.weights(coin)
        out, width = (0, 0), self.wrap + 1
        for w, row in zip(of_rows, rows, strict=True):
            out = add(out, mul(w, num(sum(x * x for x in row) - constant * self.square)))
        for c, (w, y) in enumerate(zip(of_sums, sums, strict=True)):
            of_sum = sum(2**j * bits[c * width + j] for j in range(width))
            out = add(out, mul(w, num(y + constant * 2**self.wrap - of_sum)))
        for w, t in zip(of_bits, bits, strict=True):
            out = add(out, mul(w, num(t * t - t)))
        return out


@dataclass
class Proof:
    """Both messages of a prover, and the vectors and coins behind them, for tests."""

    blind: bytes
    helper_digest: bytes
    roots: list[list[int]]
    bits: list[int]
    halvings: list[tuple[Pair, Pair]]
    last: list[Pair]
    seed: bytes
    digests: list[bytes]
    coin: bytes
    points: list[Pair]


def digest(blind: bytes, name: str, *arrays: tuple[tuple[int, ...], list[int]]) -> bytes:
    text = typed("words of the judge", name)
    for shape, flat in arrays:
        text += typed(*shape) + b"".join(word.to_bytes(8, "little") for word in flat)
    return hmac.digest(blind, text, "sha256")


def flat(values: list[Pair]) -> list[int]:
    return [part for pair in values for part in pair]


def fold(vector: list[Pair], at: Pair) -> list[Pair]:
    half = len(vector) // 2
    return [add(x, mul(at, sub(y, x))) for x, y in zip(vector[:half], vector[half:], strict=True)]


def ends(u: list[Pair], v: list[Pair]) -> list[Pair]:
    return [dot(fold(u, num(k)), fold(v, num(k))) for k in (0, 2)]


def point(coin: bytes) -> Pair:
    return pairs(mac(coin, "point"), 1)[0]


def last_point(coin: bytes) -> Pair:
    real, *rest = words(mac(coin, "last point"), 6)
    return real, next(word for word in rest if word)


def residues_of_helper(case: Case, mask_seed: bytes, seed: bytes) -> tuple[list[list[int]], list[int]]:
    d = case.columns
    of_masks, roots = words(mask_seed, case.rows * d), words(mac(seed, "roots"), case.rows * 4)
    rows = [[-r % P for r in of_masks[i * d : i * d + d]] + roots[4 * i : 4 * i + 4] for i in range(case.rows)]
    return rows, words(mac(seed, "bits"), case.rules.sums * (case.wrap + 1))


def third_of_helper(case: Case, seed: bytes) -> Pair:
    return pairs(mac(seed, "third"), 1)[0] if case.rules.third else (0, 0)


#: Changes the values of the last polynomial, given (case, coin before it, weights' coin, points, completed rows, sums, bits, values).
Lie = Callable[..., list[Pair]]


def prove(
    case: Case,
    rows: list[list[int]],
    completed: list[list[int]],
    mask_seed: bytes,
    secret: bytes,
    lie: Lie | None = None,
    choose: Callable[[int, Pair], Pair] | None = None,
    claimed: Callable[[int], list[int]] | None = None,
) -> Proof | None:
    """The prover, whose completed rows may be lies; ``rows`` name the secret. None where a fair prover would begin again.

    ``choose`` replaces a point of a halving: coins that a verifier sends. ``claimed`` are other words in the place of the bits of a sum.
    """
    block = hashlib.sha256(typed(case.rows, case.columns))
    block.update(b"".join(int(x).to_bytes(8, "little", signed=True) for row in rows for x in row))
    place, shape = case.named()
    parts = (place if case.rules.fresh else b"", shape, 0, block.digest(), sha("masks", mask_seed))
    seed, third, blind = (mac(secret, name, *parts) for name in ("shares of the helper", "third of the judge", "blind"))
    blind = blind if case.rules.blinded else bytes(32)
    third = third if case.rules.apart else mac(seed, "third of the judge")
    rows_h, bits_h = residues_of_helper(case, mask_seed, seed)
    rows_a = [[(x - h) % P for x, h in zip(*both, strict=True)] for both in zip(completed, rows_h, strict=True)]
    of_helper = sha("seeds of the helper", mask_seed, seed)
    digests = [digest(blind, "rows", ((case.rows, case.columns + 4), [x for row in rows_a for x in row]))]
    coin = case.first(of_helper, digests[0])
    sums = case.signed(coin, [x for row in completed for x in row])
    centred = [y - P if y > P // 2 else y for y in sums]
    if lie is None and not all(-(2**case.wrap) <= y < 2**case.wrap for y in centred):
        return None
    bits = [(y + 2**case.wrap) >> j & 1 for y in centred for j in range(case.wrap + 1)]
    if claimed is not None:
        bits = [t for y in sums for t in claimed(y)]
    bits_a = [(t - h) % P for t, h in zip(bits, bits_h, strict=True)]
    digests.append(digest(blind, "bits", ((case.rules.sums, case.wrap + 1), bits_a)))
    weighing = coin = case.next(coin, digests[-1])
    u, v = case.factor_of_judge(coin, rows_a, bits_a), case.factor_of_helper(rows_h, bits_h)
    shares, halvings, points = pairs(mac(seed, "halvings"), 2 * case.halvings), [], []
    for step in range(case.halvings):
        start, end = ends(u, v)
        halvings.append((sub(start, shares[2 * step]), sub(end, shares[2 * step + 1])))
        digests.append(digest(blind, f"halving {step}", ((2, 2), flat(list(halvings[-1])))))
        coin = case.next(coin, digests[-1])
        points.append(choose(step, point(coin)) if choose else point(coin))
        u, v = fold(u, points[-1]), fold(v, points[-1])
    u, v = [pairs(mac(third, "third"), 1)[0], *u], [third_of_helper(case, seed), *v]
    values = [mul(lagrange(u, num(k)), lagrange(v, num(k))) for k in range(5)]
    if lie is not None:
        values = lie(case, coin, weighing, points, completed, sums, bits, values)
    last = [u[0], *(sub(value, share) for value, share in zip(values, pairs(mac(seed, "last"), 5), strict=True))]
    digests.append(digest(blind, "last", ((6, 2), flat(last))))
    coin = case.next(coin, digests[-1])
    roots = [row[case.columns :] for row in rows_a]
    return Proof(blind, of_helper, roots, bits_a, halvings, last, seed, digests, coin, points)


@dataclass
class Opened:
    """The helper's message."""

    value: Pair
    of_ends: Pair
    of_product: Pair
    helper_digest: bytes
    coin: bytes


def folded(claim: Pair, of_ends: tuple[Pair, Pair], at: Pair) -> Pair:
    return lagrange([of_ends[0], sub(claim, of_ends[0]), of_ends[1]], at)


def evaluate(case: Case, mask_seed: bytes, proof: Proof, choose: Callable[[int, Pair], Pair] | None = None) -> Opened:
    rows, bits = residues_of_helper(case, mask_seed, proof.seed)
    of_helper = sha("seeds of the helper", mask_seed, proof.seed)
    coin = case.first(of_helper, proof.digests[0])
    sums = case.signed(coin, [x for row in rows for x in row])
    coin = case.next(coin, proof.digests[1])
    claim = mul(case.equation(coin, rows, sums, bits, constant=False), neg(inv(num(2))))
    v, shares = case.factor_of_helper(rows, bits), pairs(mac(proof.seed, "halvings"), 2 * case.halvings)
    for step in range(case.halvings):
        coin = case.next(coin, proof.digests[2 + step])
        at = choose(step, point(coin)) if choose else point(coin)
        claim, v = folded(claim, (shares[2 * step], shares[2 * step + 1]), at), fold(v, at)
    coin = case.next(coin, proof.digests[-1])
    at, last = last_point(coin), pairs(mac(proof.seed, "last"), 5)
    value = lagrange([third_of_helper(case, proof.seed), *v], at)
    return Opened(value, sub(add(last[1], last[2]), claim), lagrange(last, at), of_helper, coin)


def judge(case: Case, masked: list[list[int]], proof: Proof, opened: Opened) -> bool:
    rows = [list(row) + list(roots) for row, roots in zip(masked, proof.roots, strict=True)]
    of_rows = digest(proof.blind, "rows", ((case.rows, case.columns + 4), [x for row in rows for x in row]))
    coin = case.first(proof.helper_digest, of_rows)
    sums = case.signed(coin, [x for row in rows for x in row])
    coin = case.next(coin, digest(proof.blind, "bits", ((case.rules.sums, case.wrap + 1), proof.bits)))
    claim = mul(case.equation(coin, rows, sums, proof.bits, constant=True), neg(inv(num(2))))
    u = case.factor_of_judge(coin, rows, proof.bits)
    for step, of_ends in enumerate(proof.halvings):
        coin = case.next(coin, digest(proof.blind, f"halving {step}", ((2, 2), flat(list(of_ends)))))
        claim, u = folded(claim, of_ends, point(coin)), fold(u, point(coin))
    coin = case.next(coin, digest(proof.blind, "last", ((6, 2), flat(proof.last))))
    third, *last = proof.last
    at = last_point(coin)
    if (proof.helper_digest, coin) != (opened.helper_digest, opened.coin):
        return False
    holds = add(sub(add(last[1], last[2]), claim), opened.of_ends) == (0, 0)
    return holds and mul(lagrange([third, *u], at), opened.value) == add(lagrange(last, at), opened.of_product)
