#!/usr/bin/env python3
"""Breaks one thing at a time in deploy/ and says whether a test notices. Changes files while it runs, and puts them back.

usage: tests/deploy/mutate.py [PART_OF_A_PATH]

Fields of the manifests that need no other look are broken by `deploy::manifests::mutations` in every run of the tests.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

# A file, what stands there, what stands there instead, and the tests that are to fail.
MUTATIONS = [
    ("deploy/envoy/edge.yaml", "domain: edge", "domain: edges", "envoy::envoy_passes"),
    ("deploy/envoy/edge.yaml", "enable_x_ratelimit_headers: DRAFT_VERSION_03", "", "envoy::envoy_passes"),
    ("deploy/envoy/edge.yaml", "  failure_mode_deny: false", "  failure_mode_deny: true", "envoy::envoy_lets"),
    ("deploy/envoy/edge.yaml", "max_ejection_percent: 50", "max_ejection_percent: 5", "every_file_reaches"),
    ("deploy/envoy/concurrency.yaml", "path: [{key: lease}]", "path: [{key: leases}]", "envoy::concurrency"),
    ("deploy/envoy/tcp.yaml", "domain: tcp", "domain: tpc", "connections_over_the_limit"),
    ("deploy/envoy/tcp.yaml", "{key: remote_address,", "{key: address,", "connections_over_the_limit"),
    ("deploy/envoy/tcp.yaml", "  failure_mode_deny: false", "  failure_mode_deny: true", "connections_over_the_limit"),
    ("deploy/envoy/tcp.yaml", "interval: 2s", "intervall: 2s", "every_file_is_valid"),
    ("deploy/envoy/fail_closed.yaml", "failure_mode_deny: true", "failure_mode_deny: false", "routes_fail_closed"),
    ("deploy/envoy/fail_closed.yaml", "failure_mode_deny: false", "failure_mode_deny: true", "routes_fail_closed"),
    ("deploy/envoy/fail_closed.yaml", "match: {path: /login}", "match: {path: /log-in}", "routes_fail_closed"),
    ("deploy/envoy/fail_closed.yaml", "status_on_error: {code: ServiceUnavailable}", "", "routes_fail_closed"),
    ("deploy/envoy/response_cost.yaml", "%RESP(X-COST)%", "%RESP(X-PRICE)%", "a_response_is_charged"),
    ("deploy/envoy/response_cost.yaml", "apply_on_stream_done: true", "", "a_response_is_charged"),
    ("deploy/envoy/rules/cost.yaml", "fixed_window", "token_bucket", "a_response_is_charged"),
    ("deploy/istio/gateway.yaml", "domain: gateway", "domain: gate", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "INSERT_BEFORE", "INSERT_AFTER", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "include_vh_rate_limits: true", "include_vh_rate_limits: false", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "route: {name: login}", "route: {name: log-in}", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "outbound|8081||tollgate.tollgate", "outbound|8081||tollgate", "a_gateway_limits"),
    ("deploy/istio/cluster.yaml", "            authority: tollgate.tollgate.svc.cluster.local\n", "", "a_gateway_limits"),
    ("deploy/istio/cluster.yaml", "RateLimitService", "RateLimit", "a_gateway_limits"),
    ("deploy/istio/sidecar.yaml", "name: inbound|http|8080", "name: inbound|http|9090", "a_sidecar_limits"),
    ("deploy/istio/sidecar.yaml", "as_resource_exhausted: true", "as_resource_exhausted: false", "a_sidecar_limits"),
    ("deploy/istio/concurrency.yaml", "path: [{key: lease}]", "path: [{key: leases}]", "a_sidecar_holds"),
    ("deploy/istio/concurrency.yaml", "failure_mode_deny: true", "failure_mode_deny: false", "a_sidecar_holds"),
    ("config/kustomization.yaml", "  - default/concurrency.yaml\n", "", "the_rules_load"),
    ("config/kustomization.yaml", "disableNameSuffixHash: true", "disableNameSuffixHash: false", "the_rules_load"),
    ("deploy/kubernetes/base/kustomization.yaml", "TOLLGATE_WORKERS=", "TOLLGATE_WORKER=", "the_program_understands"),
    ("deploy/kubernetes/base/kustomization.yaml", "DRAIN_DELAY=10s", "DRAIN_DELAY=20s", "the_program_understands"),
    ("deploy/kubernetes/base/kustomization.yaml", "DRAIN_DELAY=10s", "DRAIN_DELAY=1s", "the_program_understands"),
    ("deploy/kubernetes/base/kustomization.yaml", "/etc/tollgate/rules", "/etc/tollgate/config", "the_program_understands"),
    ("deploy/kubernetes/base/deployment.yaml", "containerPort: 8081", "containerPort: 8082", "manifests::"),
    ("deploy/kubernetes/base/deployment.yaml", "v3.RateLimitService", "v2.RateLimitService", "probes_are_answered"),
    ("deploy/kubernetes/base/deployment.yaml", "path: /live", "path: /alive", "probes_are_answered"),
    ("deploy/kubernetes/base/deployment.yaml", "minReadySeconds: 5", "minReadySecond: 5", "every_overlay"),
    ("deploy/kubernetes/base/autoscaler.yaml", "minReplicas: 3", 'minReplicas: "3"', "every_overlay"),
    ("deploy/kubernetes/base/service.yaml", "clusterIP: None", "clusterIp: None", "every_overlay"),
    ("deploy/kubernetes/components/monitoring/adapter.yaml", "requests_per_second", "requests_per_minute", "the_autoscalers"),
    ("deploy/kubernetes/components/monitoring/pod-monitor.yaml", "path: /metrics", "path: /metric", "the_autoscalers"),
    ("deploy/kubernetes/components/network-policy/tollgate.yaml", "port: grpc", "port: rpc", "every_overlay"),
    ("deploy/kubernetes/components/tls/deployment.yaml", "/etc/tollgate/tls", "/etc/tls", "the_program_understands"),
    ("deploy/kubernetes/components/tls/kustomization.yaml", "path: /ready", "path: /readiness", "probes_are_answered"),
    ("deploy/kubernetes/components/redis-cluster/redis.conf", "cluster-enabled yes", "", "six_nodes"),
    ("deploy/kubernetes/components/redis-cluster/create.sh", "--cluster-replicas 1", "--cluster-replicas 0", "six_nodes"),
    ("deploy/kubernetes/components/redis-cluster/create.sh", ":16384'", ":0'", "six_nodes"),
    ("deploy/kubernetes/components/redis-sentinel/start.sh", "--replicaof", "--replica-priority 1 --maxclients", "sentinels_find"),
    ("deploy/kubernetes/components/redis-sentinel/start.sh", "resolve-hostnames yes", "resolve-hostnames no", "sentinels_find"),
    ("deploy/prometheus/alerts.yaml", "for: 5m", "for: 6m", "the_operators_alerts"),
    ("deploy/docker/Dockerfile", "USER 65532:65532", "USER 1000:1000", "image::the_image"),
    ("deploy/docker/Dockerfile", "EXPOSE 8081 8080", "EXPOSE 8081", "image::the_image"),
    ("deploy/docker/Dockerfile", "/usr/bin/tollgate", "/bin/tollgate", "image::the_image"),
    ("deploy/docker/try.sh", "remount,bind,ro", "remount,bind", "image::the_program"),
    (".dockerignore", "!lua", "!luas", "image::the_image"),
    ("deploy/compose/compose.yaml", " redis-6:6379", "", "compose::"),
    ("deploy/compose/compose.yaml", "../prometheus/alerts.yaml", "../prometheus/alert.yaml", "compose::"),
    ("deploy/compose/compose.yaml", "stop_grace_period: 20s", "stop_grace_period: 10s", "compose::"),
    ("deploy/compose/compose.yaml", "127.0.0.1:3000:3000", "3000:3000", "compose::"),
    ("deploy/compose/compose.yaml", "read_only", "readonly", "compose::"),
    ("deploy/compose/envoy.yaml", "STRICT_DNS", "LOGICAL_DNS", "compose::"),
    ("deploy/compose/prometheus.yaml", "port: 8080", "port: 8081", "compose::"),
]


def program():
    """The tests, built."""
    built = subprocess.run(
        ["cargo", "test", "--test", "integration", "--no-run", "--message-format=json", "--quiet"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    )
    artifacts = (json.loads(line) for line in built.stdout.splitlines())
    return next(each["executable"] for each in artifacts if each.get("target", {}).get("name") == "integration")


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    tests, missed = program(), 0
    for file, stands, instead, names in MUTATIONS:
        if wanted not in file:
            continue
        path = ROOT / file
        before = path.read_text(encoding="utf-8")
        assert stands in before, f"{file} has no {stands}"
        try:
            path.write_text(before.replace(stands, instead, 1), encoding="utf-8")
            ran = subprocess.run([tests, names], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        finally:
            path.write_text(before, encoding="utf-8")
        assert b"running 0 tests" not in ran.stdout, f"no test {names}"
        noticed = ran.returncode != 0
        missed += not noticed
        print("noticed" if noticed else "MISSED ", f"{file}: {stands.strip()} -> {instead.strip() or 'nothing'}", flush=True)
    sys.exit(1 if missed else 0)


main()
