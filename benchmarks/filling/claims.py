"""Which claims of a paper hold here, in one sentence, from the benchmark of the papers' effects.

<!-- numbers: claims SCL -->
"""

from __future__ import annotations

from bookkeeping import ROOT, module_of, modules_beside

from filling.results import results


def claims(arguments: str, top: str) -> str:
    """The sentence about the paper whose title begins like this."""
    script = ROOT / "benchmarks" / "effects" / "page.py"
    with modules_beside(script):
        page = module_of(script)
        listed = next(listed for paper, listed in page.CLAIMS.items() if paper.startswith(arguments))
        found = {number: of for number in page.TABLES if (of := results(f"effects-{number}"))}
        said = page.sentence(listed, found)
    return f"""{said}

[VOC 2012 with the top of EfficientNet-Lite0 trained]({top}benchmarks/effects.md#what-holds): the gains, those in the
paper, and when a claim counts as holding."""
