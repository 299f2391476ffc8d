"""The guarantee of a release, of censuses and surveys alike: what a page says of it. Public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from das.privacy.attack import attacks_of_total
from das.privacy.cost import Pure, ZeroConcentrated, of_group
from das.privacy.neighborhoods import Comparable
from jobs.pipeline.documents.account import Account, Guarantee, covering
from jobs.pipeline.documents.manifest import (
    Manifest,
    PublishedGuarantee,
    ReleaseManifest,
    attacks_of,
)
from jobs.pipeline.report import text
from jobs.pipeline.report.budget import account_table, attacks_table
from jobs.pipeline.report.page import Block, Prose, Section
from jobs.pipeline.report.table import Table

_LEAD = (
    "The guarantee limits what anyone can learn about one record from this release, whatever "
    "else they know and however much they compute."
)


def guarantee_section(
    manifest: ReleaseManifest,
    template: str,
    values: Mapping[str, object],
    tables: Sequence[Table],
    *accounts: Account | None,
) -> Section:
    """Say what the guarantee is, and what is and is not protected.

    Args:
      manifest: Of the release.
      template: What is said of releases of its kind.
      values: What the template says beside the guarantee.
      tables: What the release promises beyond it.
      accounts: As for `covering`.
    """
    privacy = manifest.privacy
    stated = _guarantee_values(privacy, *accounts, is_void=manifest.not_for_release)
    prose = Prose(template, {**stated, **values})
    blocks: list[Block] = [prose, *tables, *_loss_tables(privacy, *accounts)]
    return Section("privacy", "Privacy", _LEAD, blocks)


def _guarantee_values(
    privacy: PublishedGuarantee, *accounts: Account | None, is_void: bool
) -> dict[str, object]:
    """Return what `guarantee.html.j2` says of a guarantee.

    Args:
      privacy: The guarantee.
      accounts: As for `covering`.
      is_void: Whether the noise was seeded.
    """
    whole = covering(privacy, *accounts)
    return {
        "together": None if whole is privacy else stated_loss(whole),
        "void": is_void,
        "definition": privacy.definition,
        "total": privacy.total,
        "total_value": text.decimal(text.ratio(privacy.total)),
        "epsilon": text.upward(privacy.epsilon),
        "epsilon_simple": text.upward(privacy.epsilon_simple),
        "delta": text.small(privacy.delta),
        "neighbors": privacy.neighbors,
        "randomness": privacy.randomness,
    }


def person_remark(manifest: Manifest) -> str:
    """Return what one person costs in a product whose records may describe several people.

    A person who moves from one household to another changes two records, a group of two. Records of
    the product `persons` are people, so nothing is to be said.
    """
    records, changed = manifest.records, next(iter(manifest.statements), None)
    if records == "persons" or changed is None:
        return ""
    one = f"If one record of {records} describes several people, the promise is to the record."
    if changed.comparable is Comparable.NONE or changed.total is None:
        return f"{one} To a person who moves from one to another nothing is promised."
    total, definition = Fraction(changed.total), manifest.privacy.definition
    if definition.is_pure:
        two = of_group(Pure(total), 2).epsilon
    else:
        two = of_group(ZeroConcentrated(total), 2).rho
    return (
        f"{one} A person who moves from one to another changes two: {text.unit(definition)} = "
        f"{two} of this product. To one who changes more nothing is promised beyond that of a "
        "group."
    )


def stated_loss(guarantee: Guarantee) -> str:
    """Return a guarantee in words, as plain text."""
    if guarantee.definition.is_pure:
        return f"{text.EPSILON} = {guarantee.total}, pure differential privacy"
    return (
        f"{text.RHO} = {guarantee.total}, zero-concentrated differential privacy, and "
        f"{text.EPSILON} = {text.upward(guarantee.epsilon)} at δ = {text.small(guarantee.delta)}"
    )


def _loss_tables(privacy: PublishedGuarantee, *accounts: Account | None) -> list[Table]:
    """List what an attacker gains at most, and what was granted for the same people.

    Args:
      privacy: The guarantee of the product.
      accounts: As for `covering`; the first is shown.
    """
    blocks = []
    whole, account = covering(privacy, *accounts), accounts[0]
    if privacy.attacks is not None and whole is privacy:
        blocks.append(attacks_table([privacy.attacks], privacy.mu_gdp))
    elif privacy.attacks is not None:
        found = attacks_of_total(whole.definition, Fraction(whole.total))
        bounds = attacks_of(found, whole.definition.unit)
        blocks.append(attacks_table([bounds], None))
    if account is not None:
        blocks.append(account_table(account))
    return blocks
