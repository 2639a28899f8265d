"""What a page calls torch's fused attention with: four axes, (B, H, T, D), since no fused kernel takes fewer."""

import pytest
import torch.nn.functional as F

from tests.pages import properties as p
from tests.structure.test_anatomy import WRITTEN
from tools.cells.source import read_cells

CALL = "scaled_dot_product_attention"
FEWER = {  # cells that show what happens with fewer, as (page, cell)
    *(("kernels/which-kernel", cell) for cell in ("node", "kept", "exercise", "solution")),
    ("foundations/shapes", "own-batch"),
    ("practice/look-inside", "gradient"),  # it puts a function with weights in place of SDPA
}
CALLERS = [
    (page, cell.name)
    for page in WRITTEN
    for cell in read_cells(p.ROOT / f"snippets/{page}.md")
    if CALL in cell.code and cell.output and not cell.needs
]


@pytest.mark.parametrize(("page", "cell"), CALLERS)
def test_sdpa_gets_four_axes(page, cell, monkeypatch):
    axes, sdpa = set(), getattr(F, CALL)

    def counted(query, key, value, *arguments, **options):
        axes.update(tensor.dim() for tensor in (query, key, value))
        return sdpa(query, key, value, *arguments, **options)

    monkeypatch.setattr(F, CALL, counted)
    p.run_cell(page, cell)
    assert (axes == {4}) == ((page, cell) not in FEWER), f"{page}:{cell} calls it with {sorted(axes)} axes"
