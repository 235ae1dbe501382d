"""What a check for leaks found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LeakReport:
    """The answer of `check_causality` and `check_padding`; true if nothing leaks.

    `str(report)` says it in a sentence.

    Attributes:
        ok: whether nothing leaks. The rest is about the first leak, if there is one.
        rule: what no output may depend on, in words.
        output_position: the first position whose output changed. None for an output
            without a time axis.
        input_position: the first position of the inputs that alone changes it. None
            if it takes several together.
        layer: path of the layer it comes from: the first one, in the order in which
            the data flows, whose outputs changed though its inputs did not, and the
            innermost such. None where that can't be seen.
        training: whether it was found with `training=True`.
        difference: by how much the output changed at most.
    """

    ok: bool
    rule: str
    output_position: int | None = None
    input_position: int | None = None
    layer: str | None = None
    training: bool = False
    difference: float = 0.0

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return f"No output depends on {self.rule}."
        place, source, layer = "", "", "a layer that can't be told"
        if self.output_position is not None:
            place = f" {self.output_position}"
        if self.input_position is not None:
            source = f" (position {self.input_position})"
        if self.layer is not None:
            layer = f"layer `{self.layer}`"
        return (
            f"Output{place} depends on {self.rule}{source}, by {layer} "
            f"(training={self.training}). It changed by up to {self.difference:.3g}."
        )
