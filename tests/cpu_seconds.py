"""CPU seconds of each lane of tests by folder: every lane writes them, and ``make seconds`` puts them into ``tests/cpu_seconds.toml``.

Each issue sees in the difference of that file what it adds. Seconds depend on the machine, so nothing compares them with a clock while tests run;
``tests/contract/test_lanes.py`` holds their sums against the limits, and the numbers of tests against those that are collected.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import tomli_w

FILE = Path(__file__).with_name("cpu_seconds.toml")
#: Tests of the lane `test` that take more CPU seconds than this move to the lane `slow` (tests/slow.txt), where they stay, unless coverage needs them.
MOST = 0.8
SLOW = Path(__file__).with_name("slow.txt")
#: Tests of the lanes `slow` and `audit` that take more CPU seconds than this are left out of CI (tests/long.txt), where a shorter one is near to what they
#: ask: `make test-slow audit` runs all. These stay in CI, for nothing else asks it.
LONGEST = 5.0
LONG = Path(__file__).with_name("long.txt")
KEPT = (
    "tests/audit/test_attacks.py::",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[a refusal that depends on the data]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[another row taken as a row left out]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[divided by its own length before the noise]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[noise six per cent too small]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[ranges read off the data]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[the largest coordinate in the place of the length]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[the lower bound used twice]",
    "tests/audit/test_broken.py::test_it_is_caught_and_its_honest_form_is_not[values beyond the declared range are not clipped]",
    "tests/audit/test_faults.py::",
    "tests/audit/test_fuzz.py::",
    "tests/audit/test_noise_is_there.py::",
    "tests/audit/test_replay.py::test_every_model_passes_on_data_that_fit_its_cards_and_mean_nothing[bayes, sines]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[bayes, columns]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[bayes]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[effects]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[glm]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[lasso]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[pls]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[pride]",
    "tests/audit/test_replay.py::test_every_model_passes_on_its_own_data[stacking]",
    "tests/audit/test_replay.py::test_rounds_of_the_regression_are_audited_in_every_unit[gradient-record-replace]",
    "tests/contract/test_citations.py::",
    "tests/contract/test_columns_read.py::test_no_other_column_moves_an_answer[bayes, columns]",
    "tests/contract/test_commands_of_all_rows.py::test_a_row_goes_through_every_command[bayes]",
    "tests/contract/test_commands_of_all_rows.py::test_a_row_goes_through_every_command[pride]",
    "tests/contract/test_example.py::",
    "tests/contract/test_hostile_parties.py::",
    "tests/contract/test_json_outputs.py::",
    "tests/contract/test_papers_apart.py::",
    "tests/contract/test_theorems.py::",
    "tests/network/test_killed.py::",
    "tests/unit/test_cited_priors.py::test_a_run_is_cited_by_what_predicts[glm]",
    "tests/unit/test_clusters_dask.py::test_releases_are_the_same_bits_on_one_to_four_workers_one_of_which_is_killed",
    "tests/unit/test_evidence_crate.py::test_a_crate_keeps_to_the_profile[crate]",
    "tests/unit/test_formula_fits.py::",
    "tests/unit/test_glm.py::test_an_audit_catches_pulls_that_are_not_cut",
    "tests/unit/test_hadamard.py::test_equals_the_dense_matrix[1]",
    "tests/unit/test_meta_analysis.py::",
    "tests/unit/test_no_error_no_interval.py::test_every_command_prints_one_table_and_no_interval_of_a_level[bayes]",
    "tests/unit/test_pride.py::test_replay_never_exceeds_the_declared_sensitivity[gaussian-record]",
    "tests/unit/test_rare_columns.py::",
    "tests/unit/test_regression_rounds.py::test_no_unit_moves_a_total_farther_than_its_reach[categories-True]",
    "tests/unit/test_studies.py::",
    "tests/unit/test_totals.py::test_a_coalition_that_takes_its_noise_out_is_left_with_the_planned_variance",
    "tests/unit/test_totals.py::test_nothing_but_planned_things_ever_comes_back[distributed]",
    "tests/unit/test_weights.py::test_neighbours_of_a_weighted_study_move_no_release_farther_than_planned[bayes-replace-record]",
)
MEASURED = Path(__file__).with_name("measured.txt")
LANES = ("test", "slow", "audit", "network")


def folder(nodeid: str) -> str:
    """Return the folder of a test that its lane's seconds are counted for: two levels of tests, one of everything else."""
    parts = Path(nodeid.partition("::")[0]).parts
    return "/".join(parts[:2]) if parts[0] == "tests" else parts[0]


def read(lane: str) -> dict[str, float]:
    """Return the CPU seconds of every test of a lane, by its name without the group that workers add."""
    seconds: dict[str, float] = json.loads((Path(sys.argv[1]) / f"{lane}.json").read_text())
    return {nodeid.partition("@")[0]: spent for nodeid, spent in seconds.items()}


def main() -> None:
    """Read the seconds of every lane from a folder, and write the file."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for lane in LANES:
        seconds = read(lane)
        counts, sums = Counter(map(folder, seconds)), Counter[str]()
        for nodeid, spent in seconds.items():
            sums[folder(nodeid)] += spent
        found[lane] = {name: {"tests": counts[name], "seconds": round(sums[name])} for name in sorted(counts)}
    FILE.write_text(tomli_w.dumps(found))
    kept = set(MEASURED.read_text().splitlines())
    moved = {nodeid for nodeid, spent in read("test").items() if spent > MOST and nodeid.partition("[")[0] not in kept}
    SLOW.write_text("".join(f"{nodeid}\n" for nodeid in sorted(moved | set(SLOW.read_text().splitlines()))))
    long = {nodeid for lane in ("slow", "audit") for nodeid, spent in read(lane).items() if spent > LONGEST}
    LONG.write_text("".join(f"{nodeid}\n" for nodeid in sorted(long) if not nodeid.startswith(KEPT)))


if __name__ == "__main__":
    main()
