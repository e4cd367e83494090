"""Evaluates every query of a dashboard and every alert rule in a running Prometheus.

Usage: check.py PROMETHEUS DASHBOARD RULES SECONDS

For SECONDS it waits for what needs several scrapes; then each query must return a finite value.
"""

import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "10s", "$job": "acetate"}


def ask(prometheus, path, **args):
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(args)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["error"]) from None


def queries(dashboard):
    """Each panel's queries, with the panel's title."""
    for panel in json.loads(Path(dashboard).read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def has_data(prometheus, query):
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    assert "$" not in query, f"an unknown variable: {query}"
    found = ask(prometheus, "query", query=query)["result"]
    return any(math.isfinite(float(series["value"][1])) for series in found)


def without_data(prometheus, dashboard):
    return [(title, query) for title, query in queries(dashboard) if not has_data(prometheus, query)]


def wait_for_data(prometheus, dashboard, seconds):
    deadline = time.monotonic() + seconds
    while True:
        try:
            missing = without_data(prometheus, dashboard)
        except (urllib.error.URLError, ConnectionError) as error:
            missing = [("Prometheus", error)]
        if not missing:
            return
        if time.monotonic() > deadline:
            for title, query in missing:
                print(f"no data: {title}: {query}", file=sys.stderr)
            sys.exit(1)
        time.sleep(0.5)


def check_rules(prometheus, rules):
    names = re.findall(r"^\s*- alert: (\w+)$", Path(rules).read_text(), re.MULTILINE)
    assert names, f"no rule in {rules}"
    groups = ask(prometheus, "rules")["groups"]
    loaded = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert sorted(loaded) == sorted(names), f"loaded: {sorted(loaded)}"
    for name, rule in loaded.items():
        assert rule["health"] == "ok", f"{name}: {rule['health']}: {rule.get('lastError')}"
        ask(prometheus, "query", query=rule["query"])
        assert rule["state"] == "inactive", f"{name} is {rule['state']} under an ordinary load"
        # Without its comparison, the rule sees data.
        seen = re.split(r" (?:==|>) ", rule["query"])[0].lstrip("(")
        # Only a failing server has these.
        may_be_absent = name == "AcetateServerFaults"
        assert may_be_absent or has_data(prometheus, seen), f"{name} sees nothing: {seen}"
    return len(loaded)


def main(prometheus, dashboard, rules, seconds):
    wait_for_data(prometheus, dashboard, float(seconds))
    rules = check_rules(prometheus, rules)
    targets = ask(prometheus, "targets")["activeTargets"]
    assert [target["lastError"] for target in targets] == ["", ""], targets
    print(f"{len(list(queries(dashboard)))} queries return data, {rules} rules are evaluated")


if __name__ == "__main__":
    main(*sys.argv[1:])
