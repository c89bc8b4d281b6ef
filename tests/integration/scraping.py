"""A Prometheus server of a test's own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import yaml

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

WAIT_S = 30.0

OWN = {"job_name": "itself", "scrape_interval": "200ms"}
"""A job of somebody else, in a configuration to which pools come."""


class Server:
    """A Prometheus server of this test."""

    def __init__(self, folder, *args):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        self.config_file = folder / "prometheus.yml"
        job = OWN | {"static_configs": [{"targets": [address]}]}
        self.config_file.write_text(yaml.safe_dump({"scrape_configs": [job]}))
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROMETHEUS, f"--config.file={self.config_file}", "--log.level=warn",
                 f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}",
                 *args],
                stdout=log, stderr=log,
            )  # fmt: skip
        until(self.is_ready)

    def is_ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/-/ready") is not None
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return answer.read()

    def query(self, expression):
        """Labels and value of every series."""
        query = urllib.parse.urlencode({"query": expression})
        answer = json.loads(self.get(f"/api/v1/query?{query}"))
        return [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]

    def value(self, expression):
        """Of the one series; None where there is none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def up(self, job):
        """Addresses of a job that answer."""
        return sorted(labels["instance"] for labels, up in self.query(f'up{{job="{job}"}}') if up)

    def jobs(self):
        """Those that have a target."""
        targets = json.loads(self.get("/api/v1/targets?state=active"))["data"]["activeTargets"]
        return {target["labels"]["job"] for target in targets}

    def close(self):
        self.process.terminate()
        self.process.wait(20)


def until(check, wait_s=WAIT_S):
    """Its first answer that is true."""
    deadline = time.monotonic() + wait_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"{check} never became true"
        time.sleep(0.05)
    return answer
