"""What an output may differ from float64 by, and how far it does."""

from __future__ import annotations

from dataclasses import dataclass

_PEERS_MAY = 4.0  # multiples of what Attune's kernels may


@dataclass(frozen=True)
class Gate:
    """tests/accuracy.toml for the element type of a problem; the command passes it on."""

    rms_factor: float = 1.5  # relative RMS error, in multiples of Ideal's
    max_ulp: float = 3.0
    lse: float = 2e-5  # |LSE - LSE64| / max(1, |LSE64|)
    blind_rows: bool = True  # rows that see no key count: 0 is promised by Attune alone

    def for_peers(self) -> Gate:
        return Gate(self.rms_factor * _PEERS_MAY, self.max_ulp * _PEERS_MAY, self.lse, blind_rows=False)


DEFAULT_GATE = Gate()


@dataclass
class Check:
    rel_rms: float
    rel_rms_bound: float
    max_ulp: float | None  # None of gradients: what their rows may err by depends on more than their size
    max_ulp_bound: float
    lse_err: float | None
    lse_bound: float

    @property
    def complaint(self) -> str:
        """Empty if it passed. Written so that NaN fails."""
        if not self.rel_rms <= self.rel_rms_bound:
            return f"relative RMS error {self.rel_rms:.3g}, allowed {self.rel_rms_bound:.3g}"
        if self.max_ulp is not None and not self.max_ulp <= self.max_ulp_bound:
            return f"largest error {self.max_ulp:.3g} ulps of its row, allowed {self.max_ulp_bound:g}"
        if self.lse_err is not None and not self.lse_err <= self.lse_bound:
            return f"error of the log-sum-exp {self.lse_err:.3g}, allowed {self.lse_bound:g}"
        return ""
