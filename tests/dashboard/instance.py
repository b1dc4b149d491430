"""The instance beside the page: what others do by the API, and what is true there."""

import json
import urllib.error
import urllib.request


class Instance:
    """One instance: its API, with another user's token than that of the page, and its calls."""

    def __init__(self, url, calls, token=None):
        self.url = url
        self.calls = calls
        self.token = token

    def call(self, method, path, body=None):
        """Sends a call; gives its status and what it answers."""
        headers = {"content-type": "application/json", "tollgate-author": "bo"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or "null")

    def send(self, domain, pairs, times=1, hits=1):
        """Sends requests as Envoy does, with hits in each; returns the number of those that were denied."""
        entries = [{"key": key, "value": value} for key, value in pairs]
        body = json.dumps({"domain": domain, "descriptors": [{"entries": entries}], "hitsAddend": hits}).encode()
        denied = 0
        for _ in range(times):
            try:
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(f"{self.calls}/json", body, headers)
                urllib.request.urlopen(request, timeout=20).close()
            except urllib.error.HTTPError as error:
                assert error.code == 429, error
                denied += 1
        return denied

    def get(self, path):
        status, answer = self.call("GET", path)
        assert status == 200, f"{path}: {status} {answer}"
        return answer

    def rule(self, domain, path):
        rules = self.get(f"rules?domain={domain}")["rules"]
        return next(rule for rule in rules if rule["rule"] == path)

    def limit(self, domain, path):
        return self.rule(domain, path)["requests_per_unit"]

    def change(self, file, old, new, comment):
        """Applies a change of one file, as another operator."""
        current = self.get("versions/current")
        files = current["files"]
        assert old in files[file], f"no {old!r} in {file}"
        files[file] = files[file].replace(old, new, 1)
        draft = {"based_on": current["version"]["number"], "files": files, "comment": comment}
        status, answer = self.call("POST", "versions", draft)
        assert status == 201, answer
        return answer["version"]["number"]
