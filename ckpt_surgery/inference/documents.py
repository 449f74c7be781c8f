"""What `infer` found as a JSON document."""

from collections.abc import Mapping
from typing import Any

from ckpt_surgery.inference.drafting import Draft
from ckpt_surgery.inference.formations import Candidate, Findings


def rules_json(draft: Draft) -> list[dict[str, Any]]:
    """The rules of a draft with their evidence; null for those that drop leaves or take the target's."""
    return [
        {
            "rule": one.rule,
            "line": one.line,
            "claims": one.claims,
            "outputs": one.outputs,
            "evidence": None if one.evidence is None else str(one.evidence),
            "why": one.why,
        }
        for one in draft.rules
    ]


def findings_json(findings: Findings) -> Mapping[str, Any]:
    """What is known of each leaf."""
    leaves = [
        {
            "key": one.target,
            "sources": list(one.sources),
            "value": str(one.value),
            "evidence": str(one.evidence),
            "why": one.why,
        }
        for one in findings.formations
    ]
    undecided = [
        {
            "targets": list(one.targets),
            "why": one.why,
            "candidates": [_candidate_json(candidate) for candidate in one.candidates],
        }
        for one in findings.undecided
    ]
    conflicts = [
        {"target": one.target, "by_values": list(one.by_values), "by_names": list(one.by_names)}
        for one in findings.conflicts
    ]
    return {
        "leaves": leaves,
        "undecided": undecided,
        "conflicts": conflicts,
        "dropped": list(findings.dropped),
        "from_target": list(findings.from_target),
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "sources": list(candidate.sources),
        "value": candidate.value,
        "score": round(candidate.score, 3),
        "how": candidate.how,
    }
