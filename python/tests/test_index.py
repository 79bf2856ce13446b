"""An index selects the elements that nested lists would give: a wrong run reads other values."""
import itertools
import random

import pytest

from zckpt._index import Selection
from zckpt.errors import UsageError


def expected(shape, index):
    items = list(index)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at:at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    items += [slice(None)] * (len(shape) - len(items))
    dims = []
    for item, n in zip(items, shape):
        if isinstance(item, list):
            dims.append([range(n)[i] for i in item])
        else:
            dims.append(list(range(n))[item] if isinstance(item, slice) else [range(n)[item]])
    out = []
    for place in itertools.product(*dims):
        element = 0
        for i, n in zip(place, shape):
            element = element * n + i
        out.append(element)
    return out


def an_index(rng, shape):
    index = []
    for n in shape[:rng.randint(0, len(shape))]:
        if n and rng.random() < 0.3:
            index.append(rng.randrange(-n, n))
        elif n and rng.random() < 0.1 and not any(isinstance(i, list) for i in index):
            index.append([rng.randrange(-n, n) for _ in range(rng.randint(1, 3))])
        else:
            index.append(slice(rng.choice([None, 0, 1, -2, 3]), rng.choice([None, 0, 2, -1, 9]),
                               rng.choice([None, 1, 2, -1, -2])))
    if rng.random() < 0.2:
        index.append(Ellipsis)
    return tuple(index)


@pytest.mark.parametrize("seed", range(20))
def test_every_index_selects_what_lists_give(seed):
    rng = random.Random(seed)
    for _ in range(300):
        shape = [rng.randint(0, 4) for _ in range(rng.randint(0, 4))]
        index = an_index(rng, shape)
        chosen = Selection(shape, index)
        got = [first + k for first in chosen.runs() for k in range(chosen.run)]
        assert got == expected(shape, index), (shape, index)
        assert chosen.nruns * chosen.run == chosen.numel == len(got)


def test_rows_are_one_run():
    assert Selection((100, 7, 3), slice(20, 50)).nruns == 1
    assert Selection((100, 7, 3), (5, slice(1, 3))).nruns == 1
    assert Selection((100, 7, 3), (slice(None), 0)).nruns == 100


def test_new_dimensions():
    assert Selection((4, 5), (None, slice(1, 3), None, 0)).shape == (1, 2, 1)


@pytest.mark.parametrize("index, error", [
    ((0, 0, 0), IndexError), (9, IndexError), ((Ellipsis, Ellipsis), IndexError), (True, UsageError),
    ("a", UsageError), (([0], [1]), UsageError),
])
def test_what_is_no_index(index, error):
    with pytest.raises(error):
        Selection((4, 5), index)
