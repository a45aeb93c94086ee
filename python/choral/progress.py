"""A bar while many prompts are answered, where tqdm is installed and somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """Gives what is called with the number of answers so far; None where nobody would see it."""
    if not wanted or total < 2:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(total=total, desc="Answers", dynamic_ncols=True) as bar:

        def tell(done: int) -> None:
            bar.update(done - bar.n)

        yield tell
        bar.update(total - bar.n)
