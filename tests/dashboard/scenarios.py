"""Walks through the dashboard of an instance that runs. `scenarios.py --help` lists its arguments.

Each scenario is a function of the browser and the instance; a step that fails is an error."""

import argparse
import sys
import time
import traceback

import appearance
import demo
import editing
import first_use
import fleet
import modules
import operations
import records
import roles
from browser import Browser
from instance import Instance

SCENARIOS = {
    "newcomer": first_use.newcomer,
    "keyboard": first_use.keyboard,
    "invalid": editing.invalid,
    "stale": editing.stale,
    "conflict": editing.conflict,
    "forced": editing.forced,
    "unforced": editing.unforced,
    "late": editing.late,
    "rollback": editing.rollback,
    "talkers": operations.talkers,
    "hostile": operations.hostile,
    "broad": operations.broad,
    "entry": operations.entry,
    "switch": operations.switch,
    "bans": operations.bans,
    "abuse": operations.abuse,
    "many": records.many,
    "changed": records.changed,
    "emergency": records.emergency,
    "trial": operations.trial,
    "away": operations.away,
    "quiet": operations.quiet,
    "slow": operations.slow,
    "directory": roles.directory,
    "by_name": roles.by_name,
    "sign_in": roles.sign_in,
    "viewer": roles.viewer,
    "demo_limit": demo.demo_limit,
    "demo_hot_key": demo.demo_hot_key,
    "demo_outage": demo.demo_outage,
    "fleet": fleet.fleet,
    "looks": appearance.looks,
    "still": appearance.still,
    "parts": modules.parts,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="of the admin port, without a slash at its end")
    parser.add_argument("--calls", required=True, help="of the port that has /json, without a slash at its end")
    parser.add_argument("--pictures", default="target/dashboard", help="folder for screenshots")
    parser.add_argument("--operator", help="an operator's token")
    parser.add_argument("--viewer", help="a viewer's token")
    parser.add_argument("scenarios", nargs="+", choices=SCENARIOS, help="in this order")
    arguments = parser.parse_args()
    instance = Instance(arguments.url, arguments.calls, arguments.operator)
    tokens = {"operator": arguments.operator, "viewer": arguments.viewer}
    browser = Browser(arguments.url, arguments.pictures)
    try:
        failed = [name for name in arguments.scenarios if not passes(name, browser, instance, tokens)]
    finally:
        browser.close()
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def passes(name, browser, instance, tokens):
    start = time.monotonic()
    walk = SCENARIOS[name]
    try:
        walk(browser, instance, tokens) if name in ("sign_in", "viewer") else walk(browser, instance)
        complaints = browser.complaints()
        assert not complaints, "the console says: " + "\n".join(complaints)
        foreign = browser.foreign_requests()
        assert not foreign, f"requests to other hosts: {foreign}"
    except Exception:  # noqa: BLE001 - Any failure is reported, and the next scenario runs.
        browser.picture(f"failed-{name}")
        print(f"{name}: failed", traceback.format_exc(limit=-3), sep="\n", flush=True)
        return False
    print(f"{name}: ok, {time.monotonic() - start:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    main()
