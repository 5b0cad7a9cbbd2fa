# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_answers.py, and that answers/cases.json keeps its format."""

import json
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_answers
from check_answers import RIGHT

CASE_KEYS = {"name", "expert", "servers", "needs", "setup", "after", "filter", "ask_after_s", "watch_s",
             "slowpath_starts_late", "client_times", "answers"}
LIMITERS = {"application", "send_buffer", "network", "receiver", "round_trips", "failed", "nothing"}
WHO = {"sending_application", "receiving_application", "accepting_application", "sending_host", "receiving_host",
       "network", "nobody"}


def label(limiter, who=None, process=None, share=None, ask="nginx"):
    return {"ask": ask, "limiter": limiter, "who": who, "process": process, "share_at_least": share}


def answer(limiter, who="network", command=None, share=None, alarm=True, pid=7):
    process = command and {"command": command, "pid": pid}
    return {"limiter": limiter, "share": share, "alarm": alarm, "act": {"who": who, "process": process}}


class Judge(unittest.TestCase):
    def test_on_a_quiet_case_every_answer_is_right_but_an_alarm(self):
        quiet = label(None)
        self.assertEqual(check_answers.judge(quiet, answer("application", alarm=False)), RIGHT)
        self.assertEqual(check_answers.judge(quiet, answer("network")), "alarm: network")

    def test_limiter_actor_process_and_share_are_asked_for_in_this_order(self):
        expected = label(["receiver"], ["receiving_application"], ["curl"], 0.9)
        for given, verdict in [
                (answer("receiver", "receiving_application", "curl", 0.9), RIGHT),
                (answer("network", "network", "nginx", 0.1), "limiter network"),
                (answer("receiver", "receiving_host", "nginx", 0.1), "act receiving_host"),
                (answer("receiver", "receiving_application", "nginx", 0.1), "process nginx"),
                (answer("receiver", "receiving_application", None, 1), "process None"),
                (answer("receiver", "receiving_application", "curl", 0.89), "share 0.89"),
                (answer("receiver", "receiving_application", "curl", None), "share None")]:
            self.assertEqual(check_answers.judge(expected, given), verdict)

    def test_what_a_label_leaves_open_is_not_judged(self):
        expected = label(["failed", "network"], ["network"])
        self.assertEqual(check_answers.judge(expected, answer("failed")), RIGHT)
        self.assertEqual(check_answers.judge(expected, {"limiter": "failed", "alarm": True, "act": None}), "act None")

    def test_the_last_line_must_have_an_answer(self):
        self.assertEqual(check_answers.last_object('{"a": 1}\n{"answer": {}}\n'), {"answer": {}})
        for text in ("", '{"a": 1}', "no JSON"):
            with self.assertRaises((ValueError, KeyError, IndexError)):
                check_answers.last_object(text)


class BothEnds(unittest.TestCase):
    same = {"answers": [label(["receiver"], ["receiving_application"], ["curl"], ask=end) for end in ("nginx", "curl")]}

    def agree(self, *answers, case=None):
        return check_answers.both_ends_agree(case or self.same, answers)

    def test_they_agree_if_limiter_and_process_are_the_same_whether_right_or_not(self):
        self.assertTrue(self.agree(answer("receiver", command="curl"), answer("receiver", "network", "curl", 0.5)))
        self.assertTrue(self.agree(answer("network"), answer("network")))
        self.assertFalse(self.agree(answer("receiver", command="curl"), answer("network", command="curl")))
        self.assertFalse(self.agree(answer("receiver", command="curl"), answer("receiver", command="nginx")))
        self.assertFalse(self.agree(answer("receiver", command="curl"), answer("receiver", command="curl", pid=8)))
        self.assertFalse(self.agree(answer("receiver", command="curl"), None))

    def test_targets_with_other_labels_and_quiet_ones_do_not_count(self):
        other = {"answers": [label(["receiver"], ["network"]), label(["network"], ["network"])]}
        for case in (other, {"answers": [label(None)] * 2}, {"answers": [label(["network"], ["network"])]}):
            self.assertIsNone(self.agree(*[answer("network")] * len(case["answers"]), case=case))


class Turns(unittest.TestCase):
    case = {"answers": [label(["application"], ["network"]), label(["application"], ["network"], ask="wrk")],
            "client_times": {"ask": "wrk", "pattern": r"lat ([0-9.]+) (us|ms|s)"}}

    def test_times_of_a_client_have_units(self):
        pattern = self.case["client_times"]["pattern"]
        self.assertAlmostEqual(check_answers.printed_mean_ms(pattern, "lat 20.0 ms\nlat 0.01 s, lat 30000 us"), 20)
        self.assertIsNone(check_answers.printed_mean_ms(pattern, "nothing"))

    def test_connections_count_by_their_turns(self):
        turns = [{"turns": {"peer": {"mean_us": 1000, "answers": 3}}}, {"turns": {"peer": {"mean_us": 5000, "answers": 1}}},
                 {"turns": None}, {}]
        self.assertEqual(check_answers.turns_mean_ms({"connections": turns}), 2.0)
        self.assertIsNone(check_answers.turns_mean_ms({"connections": turns[2:]}))
        self.assertIsNone(check_answers.turns_mean_ms({}))

    def test_a_mean_and_a_median_are_compared_where_both_are_known(self):
        turn = {"mean_us": 50_900, "p50_us": 51_500, "answers": 9}
        client = {"connections": [{"turns": {"peer": turn}}]}
        case = dict(self.case, client_times=dict(self.case["client_times"], median_pattern="50% +([0-9.]+)(us|ms|s)"))
        printed = "lat 50 ms\n     50%   50.10ms\n"
        self.assertEqual(check_answers.turn_figures(case, [None, client], printed), [(50.0, 50.9), (50.1, 51.5)])
        self.assertEqual(check_answers.turn_figures(case, [None, client], "lat 50 ms"), [(50.0, 50.9)])
        self.assertEqual(check_answers.turn_figures({"answers": []}, [], printed), [])
        # Within 1 ms or 2 %.
        self.assertTrue(check_answers.within(50.0, 50.9) and check_answers.within(100.0, 98.1))
        self.assertFalse(check_answers.within(50.1, 51.5) or check_answers.within(100.0, 97.9))

    def test_the_error_is_that_of_the_target_that_is_the_client(self):
        server, client = ({"connections": [{"turns": {"peer": {"mean_us": mean}}}]} for mean in (1, 52_000))
        self.assertAlmostEqual(check_answers.turn_error_ms(self.case, [server, client], "lat 50 ms"), 2.0)
        self.assertIsNone(check_answers.turn_error_ms(self.case, [server, None], "lat 50 ms"))
        self.assertIsNone(check_answers.turn_error_ms(self.case, [server, client], ""))
        self.assertIsNone(check_answers.turn_error_ms({"answers": []}, [], "lat 50 ms"))


class Score(unittest.TestCase):
    def test_answers_are_counted_and_skipped_cases_are_not_among_them(self):
        score = check_answers.Score()
        case = {"answers": [label(None), label(["network"], ["network"])]}
        score.case(case, {"verdicts": ["alarm: network", RIGHT], "agree": True, "turn_error_ms": 0.5,
                          "turn_figures": [(50.0, 50.9), (100.0, 102.1)]})
        score.case(case, {"verdicts": [RIGHT, "no answer object"], "agree": False, "turn_error_ms": None,
                          "turn_figures": []})
        score.skipped += 1
        self.assertEqual(score.result(), {"answers": 4, "right": 2, "alarms": 1, "skipped": 1, "both_ends_agree": 0.5,
                                          "turn_error_median_ms": 0.5, "turn_figures": 2,
                                          "turn_figures_within": 1})
        self.assertEqual(score.by_label(), [("network", 1, 2), ("no alarm", 1, 2)])
        self.assertIn("| ours | 4 | 2 | 0.500 | 1 | 0.500 | 0.5 | 1 |", check_answers.table({"ours": score}, score))

    def test_without_anything_to_compare_there_is_no_rate(self):
        result = check_answers.Score().result()
        self.assertIsNone(result["both_ends_agree"])
        self.assertIsNone(result["turn_error_median_ms"])


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.set = check_answers.OurSet()
        cls.cases = cls.set.cases

    def labels(self):
        return [(case, expected) for case in self.cases for expected in case["answers"]]

    def test_names_choose_cases(self):
        name = self.cases[0]["name"]
        self.assertEqual([case["name"] for case in self.set.chosen([f"ours/{name}"])], [name])
        self.assertEqual(self.set.chosen(["shared/"]), [])
        self.assertEqual(len(self.set.chosen([])), len(self.cases))

    def test_there_are_forty_of_different_names_and_a_third_is_quiet(self):
        names = [case["name"] for case in self.cases]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len(names), 40)
        quiet = [case for case in self.cases if all(expected["limiter"] in (None, ["nothing"]) for expected in case["answers"])]
        self.assertGreaterEqual(3 * len(quiet), len(self.cases))

    def test_every_limiter_and_everyone_who_acts_is_the_answer_of_some_case(self):
        for key, words in (("limiter", LIMITERS), ("who", WHO)):
            used = {word for _, expected in self.labels() for word in expected[key] or []}
            self.assertEqual(used, words)

    def test_cases_have_the_documented_keys_and_values(self):
        for case in self.cases:
            self.assertLessEqual(set(case), CASE_KEYS, case["name"])
            self.assertTrue(case["expert"] and case["setup"] and case["answers"], case["name"])
        for case, expected in self.labels():
            self.assertEqual(set(expected), set(label(None)), case["name"])
            self.assertEqual(expected["limiter"] is None, expected["who"] is None, case["name"])
            self.assertTrue(0 <= (expected["share_at_least"] or 0) <= 1, case["name"])

    def test_servers_are_functions_and_what_is_limited_is_undone(self):
        functions = set(re.findall(r"^(\w+)\(\) ", (ROOT / "answers/servers.sh").read_text(), re.M))
        for case in self.cases:
            self.assertLessEqual(set(case["servers"]), functions, case["name"])
            after = case.get("after", "")
            for host, setting in re.findall(r"\blimit (sp-\S+) (\S+)", case["setup"]):
                self.assertIn(f"unlimit {host} {setting}", after, case["name"])
            for word, undone in (("quota", "no_quota"), ("tc qdisc add dev s0", "tc qdisc del dev s0"), ("nft add", "nft delete")):
                self.assertEqual(word in case["setup"], undone in after, case["name"])

    def test_no_two_cases_share_a_port_of_their_own(self):
        owners = {}
        for case in self.cases:
            for port in set(re.findall(r"\b17\d{3}\b", json.dumps(case))):
                self.assertEqual(owners.setdefault(port, case["name"]), case["name"])

    def test_a_client_that_measures_is_a_target(self):
        for case in self.cases:
            if label_of_client := case.get("client_times"):
                self.assertIn(label_of_client["ask"], [expected["ask"] for expected in case["answers"]])
                self.assertEqual(re.compile(label_of_client["pattern"]).groups, 2)


if __name__ == "__main__":
    unittest.main()
