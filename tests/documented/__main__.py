"""Count the blocks of the documents: `python -m tests.documented`."""

from __future__ import annotations

from collections import Counter

from tests.documented.blocks import pages, read, reason


def main() -> None:
    """Print how many blocks there are, how many are run, and why the others are not."""
    blocks = [block for page in pages() for block in read(page)]
    code = [block for block in blocks if block.must_be_run or block.is_run]
    kinds = Counter(block.mark or "run as written" for block in code)
    print(f"{len(blocks)} blocks, {len(code)} of them to run, write, load or compare")
    for kind, count in kinds.most_common():
        print(f"  {count:>3} {kind}")
    for block in code:
        if block.mark in {"not run", "run by", "run instead"}:
            print(f"{block.where}: {block.mark}: {reason(block)}")


if __name__ == "__main__":
    main()
