#!/usr/bin/env python3
"""Breaks one thing at a time in deploy/ and says whether a test notices. Changes files while it runs, and puts them back.

usage: tests/deploy/mutate.py [PART_OF_A_PATH]
       tests/deploy/mutate.py --list

The second form writes what would be done as JSON: a test holds it to the files, so that none of them has no line here.

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
    ("deploy/envoy/edge.yaml", "ratelimit:decision)%", "ratelimit:rule)%", "envoy::access_log"),
    ("deploy/envoy/edge.yaml", "max_ejection_percent: 50", "max_ejection_percent: 5", "every_file_reaches"),
    ("deploy/envoy/concurrency.yaml", "path: [{key: lease}]", "path: [{key: leases}]", "envoy::concurrency"),
    ("deploy/envoy/tcp.yaml", "domain: tcp", "domain: tpc", "connections_over_the_limit"),
    ("deploy/envoy/tcp.yaml", "{key: remote_address,", "{key: address,", "connections_over_the_limit"),
    ("deploy/envoy/tcp.yaml", "  failure_mode_deny: false", "  failure_mode_deny: true", "connections_over_the_limit"),
    ("deploy/envoy/tcp.yaml", "interval: 2s", "intervall: 2s", "every_file_is_valid"),
    ("deploy/envoy/fail_closed.yaml", "failure_mode_deny: true", "failure_mode_deny: false", "routes_fail_closed"),
    ("deploy/envoy/fail_closed.yaml", "failure_mode_deny: false", "failure_mode_deny: true", "routes_fail_closed"),
    ("deploy/envoy/fail_closed.yaml", "/login([/;].*)?", "/log-in([/;].*)?", "routes_fail_closed"),
    ("deploy/envoy/fail_closed.yaml", "status_on_error: {code: ServiceUnavailable}", "", "routes_fail_closed"),
    ("deploy/envoy/response_cost.yaml", "%RESP(X-COST)%", "%RESP(X-PRICE)%", "a_response_is_charged"),
    ("deploy/envoy/response_cost.yaml", "apply_on_stream_done: true", "", "a_response_is_charged"),
    ("deploy/envoy/rules/cost.yaml", "fixed_window", "token_bucket", "a_response_is_charged"),
    ("deploy/envoy/llm_budget.yaml", "domain: llm", "domain: lm", "envoy::llm_budget"),
    ("deploy/envoy/rules/llm.yaml", "reserve: {ttl: 10m", "reserve: {tll: 10m", "routes_fail_closed"),
    ("deploy/envoy/load_shedding.yaml", "header: endpoint-load-metrics", "header: load-metrics", "load_shedding::reports"),
    ("deploy/envoy/load_shedding.yaml", "path: [{key: report}]", "path: [{key: reports}]", "load_shedding::reports"),
    ("deploy/envoy/load_shedding.yaml", "apply_on_stream_done: true", "", "load_shedding::reports"),
    ("deploy/envoy/load_shedding.yaml", "remove: true", "remove: false", "load_shedding::reports"),
    ("deploy/envoy/rules/shed.yaml", "value: checkout", "value: search", "the_file_sheds"),
    ("deploy/envoy/query_parameter.yaml", "expect_match: false", "expect_match: true", "a_key_in_the_query"),
    ("deploy/envoy/query_parameter.yaml", "{exact: export}", "{exact: exports}", "a_key_in_the_query"),
    ("deploy/envoy/rules/query.yaml", "value: none", "value: absent", "a_key_in_the_query"),
    ("deploy/envoy/local_first.yaml", "max_tokens: 20,", "max_tokens: 200,", "a_flood_is_denied"),
    ("deploy/envoy/local_first.yaml", "filter_enforced: {default_value: {numerator: 100}}", "", "a_flood_is_denied"),
    ("deploy/envoy/rules/local.yaml", "domain: local", "domain: locals", "a_flood_is_denied"),
    ("deploy/envoy/close_banned.yaml", "drainConnectionUponCompletion()", "protocol()", "connections_of_banned"),
    ("deploy/envoy/close_banned.yaml", '== "banned"', "~= nil or true", "connections_of_banned"),
    ("deploy/envoy/rules/close.yaml", "mode: enforce", "mode: watch", "connections_of_banned"),
    ("deploy/envoy/egress.yaml", "destination_cluster: {}", "source_cluster: {}", "requests_to_other_services"),
    ("deploy/envoy/egress.yaml", "cluster: any_host", "cluster: partner", "requests_to_other_services"),
    ("deploy/envoy/rules/egress.yaml", "value: partner", "value: partners", "requests_to_other_services"),
    ("deploy/envoy/connection_limits.yaml", "key: connection_from", "key: connections_from", "open_connections_new_ones"),
    ("deploy/envoy/connection_limits.yaml", "connection_limit.v3.", "connections_limit.v3.", "every_file_is_valid"),
    ("deploy/envoy/rules/connections.yaml", "domain: connections", "domain: connection", "open_connections_new_ones"),
    ("deploy/istio/gateway.yaml", "domain: gateway", "domain: gate", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "INSERT_BEFORE", "INSERT_AFTER", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "vh_rate_limits: INCLUDE", "vh_rate_limits: OVERRIDE", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "route: {name: login}", "route: {name: log-in}", "a_gateway_limits"),
    ("deploy/istio/gateway.yaml", "outbound|8081||tollgate.tollgate", "outbound|8081||tollgate", "a_gateway_limits"),
    ("deploy/istio/cluster.yaml", "            authority: tollgate.tollgate.svc.cluster.local\n", "", "a_gateway_limits"),
    ("deploy/istio/cluster.yaml", "RateLimitService", "RateLimit", "a_gateway_limits"),
    ("deploy/istio/sidecar.yaml", "as_resource_exhausted: true", "as_resource_exhausted: false", "a_sidecar_limits"),
    ("deploy/istio/concurrency.yaml", "path: [{key: lease}]", "path: [{key: leases}]", "a_sidecar_holds"),
    ("deploy/istio/concurrency.yaml", "failure_mode_deny: true", "failure_mode_deny: false", "a_sidecar_holds"),
    ("config/kustomization.yaml", "  - default/concurrency.yaml\n", "", "the_rules_load"),
    ("config/kustomization.yaml", "disableNameSuffixHash: true", "disableNameSuffixHash: false", "the_rules_load"),
    ("deploy/kubernetes/base/kustomization.yaml", "TOLLGATE_WORKERS=", "TOLLGATE_WORKER=", "the_program_accepts"),
    ("deploy/kubernetes/base/kustomization.yaml", "DRAIN_DELAY=10s", "DRAIN_DELAY=20s", "the_program_accepts"),
    ("deploy/kubernetes/base/kustomization.yaml", "DRAIN_DELAY=10s", "DRAIN_DELAY=1s", "the_program_accepts"),
    ("deploy/kubernetes/base/kustomization.yaml", "/etc/tollgate/rules", "/etc/tollgate/config", "the_program_accepts"),
    ("deploy/kubernetes/base/deployment.yaml", "containerPort: 8081", "containerPort: 8082", "manifests::"),
    ("deploy/kubernetes/base/deployment.yaml", "v3.RateLimitService", "v2.RateLimitService", "probes_are_answered"),
    ("deploy/kubernetes/base/deployment.yaml", "path: /live", "path: /alive", "probes_are_answered"),
    ("deploy/kubernetes/base/deployment.yaml", "minReadySeconds: 30", "minReadySecond: 30", "every_overlay"),
    ("deploy/kubernetes/base/autoscaler.yaml", "minReplicas: 3", 'minReplicas: "3"', "every_overlay"),
    ("deploy/kubernetes/base/autoscaler.yaml", "periodSeconds: 60", "periodSeconds: 10", "every_overlay"),
    ("deploy/kubernetes/base/service.yaml", "clusterIP: None", "clusterIp: None", "every_overlay"),
    ("deploy/kubernetes/components/monitoring/adapter.yaml", "requests_per_second", "requests_per_minute", "the_autoscalers"),
    ("deploy/kubernetes/components/monitoring/pod-monitor.yaml", "path: /metrics", "path: /metric", "the_autoscalers"),
    ("deploy/kubernetes/components/network-policy/tollgate.yaml", "port: grpc", "port: rpc", "every_overlay"),
    ("deploy/kubernetes/components/tls/deployment.yaml", "/etc/tollgate/tls", "/etc/tls", "the_program_accepts"),
    ("deploy/kubernetes/components/tls/kustomization.yaml", "path: /ready", "path: /readiness", "probes_are_answered"),
    ("deploy/kubernetes/components/redis-cluster/redis.conf", "cluster-enabled yes", "", "six_nodes"),
    ("deploy/kubernetes/components/redis-cluster/create.sh", "--cluster-replicas 1", "--cluster-replicas 0", "six_nodes"),
    ("deploy/kubernetes/components/redis-cluster/create.sh", ":16384'", ":0'", "six_nodes"),
    ("deploy/kubernetes/components/redis-sentinel/start.sh", "--replicaof", "--replica-priority 1 --maxclients", "sentinels_find"),
    ("deploy/kubernetes/components/redis-sentinel/start.sh", "resolve-hostnames yes", "resolve-hostnames no", "sentinels_find"),
    ("deploy/prometheus/alerts.yaml", "for: 5m", "for: 6m", "the_operators_alerts"),
    ("deploy/docker/Dockerfile", "USER 65532:65532", "USER 1000:1000", "image::the_image"),
    ("deploy/docker/Dockerfile", "EXPOSE 8081 8080", "EXPOSE 8081", "image::the_image"),
    ("deploy/docker/Dockerfile", '"/usr/bin/tollgate"', '"/bin/tollgate"', "image::the_image"),
    ("deploy/docker/try.sh", "remount,bind,ro", "remount,bind", "image::the_program"),
    (".dockerignore", "!lua\n", "", "image::the_builder"),
    ("deploy/compose/compose.yaml", " redis-6:6379", "", "compose::"),
    ("deploy/compose/compose.yaml", "../prometheus/alerts.yaml", "../prometheus/alert.yaml", "compose::"),
    ("deploy/compose/compose.yaml", "stop_grace_period: 20s", "stop_grace_period: 10s", "compose::"),
    ("deploy/compose/compose.yaml", "127.0.0.1:3000:3000", "3000:3000", "compose::"),
    ("deploy/compose/compose.yaml", "read_only", "readonly", "compose::"),
    ("deploy/compose/envoy.yaml", "STRICT_DNS", "LOGICAL_DNS", "compose::"),
    ("deploy/compose/prometheus.yaml", "port: 8080", "port: 8081", "compose::"),
    ("deploy/envoy/rules/edge.yaml", "requests_per_unit: 10", "requests_per_unit: 11", "routes_fail_closed"),
    ("deploy/envoy/rules/tcp.yaml", "requests_per_unit: 5", "requests_per_unit: 6", "connections_over_the_limit"),
    ("deploy/istio/rules/gateway.yaml", "requests_per_unit: 3", "requests_per_unit: 4", "a_gateway_limits"),
    ("deploy/istio/rules/sidecar.yaml", "requests_per_unit: 5", "requests_per_unit: 6", "a_sidecar_limits"),
    ("deploy/istio/rules/concurrency.yaml", "requests_per_unit: 2", "requests_per_unit: 3", "a_sidecar_holds"),
    ("deploy/istio/sidecar.yaml", "name: inbound|http|80", "name: inbound|http|8080", "a_sidecar_limits"),
    ("deploy/istio/cluster_tls.yaml", "sni: tollgate.tollgate", "sni: tollgate", "with_tls_gateways"),
    ("deploy/istio/cluster_tls.yaml", "interval: 1s", "interval: 2s", "with_tls_gateways"),
    ("deploy/kubernetes/base/deployment.yaml", "minReadySeconds: 30", "minReadySeconds: 5", "every_overlay"),
    ("deploy/kubernetes/base/deployment.yaml", "nodeTaintsPolicy: Honor", "nodeTaintsPolicy: Ignore", "every_overlay"),
    ("deploy/kubernetes/base/deployment.yaml", '"25s"', '"5s"', "the_program_accepts"),
    ("deploy/kubernetes/base/disruption-budget.yaml", "maxUnavailable: 1", "maxUnavailable: 0", "every_overlay"),
    ("deploy/kubernetes/base/service-account.yaml", "Token: false", "Token: true", "every_overlay"),
    ("deploy/kubernetes/overlays/dev/kustomization.yaml", "TOLLGATE_WORKERS=1", "TOLLGATE_WORKER=1", "the_program_accepts"),
    ("deploy/kubernetes/overlays/dev/kustomization.yaml", "newTag: dev", "newTag: latest", "every_overlay"),
    ("deploy/kubernetes/overlays/dev/namespace.yaml", "restricted", "privileged", "every_overlay"),
    ("deploy/kubernetes/overlays/production/namespace.yaml", "restricted", "privileged", "every_overlay"),
    ("deploy/kubernetes/overlays/production/kustomization.yaml", "files: [rules/edge.yaml]", "files: [rules/edges.yaml]", "the_rules_load"),
    ("deploy/kubernetes/overlays/production/rules/edge.yaml", "unit: second", "unit: seconds", "the_rules_load"),
    ("deploy/kubernetes/components/network-policy/kustomization.yaml", "- redis.yaml", "", "redis_is_for"),
    ("deploy/kubernetes/components/network-policy/redis.yaml", "component: server", "component: client", "redis_is_for"),
    ("deploy/kubernetes/components/network-policy/tollgate.yaml", "protocol: UDP", "protocol: TCP", "the_policy_lets"),
    ("deploy/kubernetes/components/network-policy/tollgate.yaml", "port: 18001", "port: 18000", "the_policy_lets"),
    ("deploy/kubernetes/components/network-policy/tollgate.yaml", "port: 4317", "port: 4318", "the_policy_lets"),
    ("deploy/kubernetes/components/monitoring/kustomization.yaml", "requests_per_second", "requests_per_minute", "the_autoscalers"),
    ("deploy/kubernetes/components/monitoring/pod-monitor.yaml", "targetLabel: instance", "targetLabel: pod", "the_autoscalers"),
    ("deploy/kubernetes/components/monitoring/prometheus-rule.yaml", "for: 5m", "for: 6m", "the_operators_alerts"),
    ("deploy/kubernetes/components/monitoring/generate.py", "name: tollgate", "name: tollgates", "the_operators_alerts"),
    ("docs/SUMMARY.md", "  - [TollgateAbsent]", "  - [TollgateAbsence]", "the_operators_alerts"),
    ("deploy/kubernetes/components/operators/kustomization.yaml", "TOLLGATE_RULES=redis", "TOLLGATE_RULES=directory", "operators_change"),
    ("deploy/kubernetes/components/operators/kustomization.yaml", "0.0.0.0:6070", "0.0.0.0:6071", "the_program_accepts"),
    ("deploy/kubernetes/components/operators/deployment.yaml", "/etc/tollgate/operators", "/etc/operators", "the_program_accepts"),
    ("deploy/kubernetes/components/operators/deployment.yaml", "defaultMode: 0440", "defaultMode: 0444", "the_admin_port"),
    ("deploy/kubernetes/components/operators/service.yaml", "targetPort: admin", "targetPort: administration", "every_overlay"),
    ("deploy/kubernetes/components/operators/service.yaml", "ClientIP", "None", "the_admin_port"),
    ("deploy/kubernetes/components/tls/cert-manager/kustomization.yaml", "- certificate.yaml", "- ../kustomization.yaml", "every_overlay"),
    ("deploy/kubernetes/components/tls/cert-manager/certificate.yaml", "- tollgate-headless.", "- tollgate-headles.", "the_certificate_is"),
    ("deploy/kubernetes/components/tls/cert-manager/certificate.yaml", "secretName: tollgate-tls", "secretName: tollgate", "the_certificate_is"),
    ("deploy/kubernetes/components/ipv6/kustomization.yaml", "GRPC_ADDRESS=[::]", "GRPC_ADDRESS=0.0.0.0", "the_program_accepts"),
    ("deploy/kubernetes/components/regions/cert-manager/kustomization.yaml", "- certificate.yaml", "- ../service.yaml", "every_overlay"),
    ("deploy/kubernetes/components/regions/cert-manager/certificate.yaml", "secretName: tollgate-region-tls", "secretNames: tollgate-region-tls", "every_overlay"),
    ("deploy/kubernetes/components/regions/deployment.yaml", "mountPath: /etc/tollgate/regions,", "mountPath: /etc/regions,", "the_program_accepts"),
    ("deploy/kubernetes/components/regions/kustomization.yaml", "TOLLGATE_REGION_ADDRESS=0.0.0.0:8444", "TOLLGATE_REGION_ADDRESS=0.0.0.0:8445", "both_regions_have"),
    ("deploy/kubernetes/components/regions/network-policy.yaml", "policyTypes:", "policyType:", "every_overlay"),
    ("deploy/kubernetes/components/regions/service.yaml", "type: LoadBalancer", "types: LoadBalancer", "every_overlay"),
    ("deploy/kubernetes/overlays/two-regions/us-east/kustomization.yaml", "value: tollgate.us-east", "value: tollgate.eu-west", "both_regions_have"),
    ("deploy/kubernetes/overlays/two-regions/eu-west/kustomization.yaml", "TOLLGATE_REGION=eu-west", "TOLLGATE_REGION=us-east", "both_regions_have"),
    ("deploy/kubernetes/overlays/two-regions/us-east/namespace.yaml", "restricted", "privileged", "every_overlay"),
    ("deploy/kubernetes/overlays/two-regions/eu-west/namespace.yaml", "restricted", "privileged", "every_overlay"),
    ("deploy/kubernetes/overlays/two-regions/common/regions.yaml", "generation: 1", "generation: 0", "both_regions_have"),
    ("deploy/kubernetes/overlays/two-regions/common/kustomization.yaml", "name: tollgate-regions\n", "name: tollgate-region\n", "both_regions_have"),
    ("deploy/kubernetes/overlays/two-regions/common/rules/edge.yaml", "scope: global", "scope: globally", "the_rules_load"),
    ("deploy/kubernetes/components/redis-ca/kustomization.yaml", "REDIS_CA=", "REDIS_CAS=", "the_program_accepts"),
    ("deploy/kubernetes/components/redis-ca/deployment.yaml", "/etc/tollgate/redis,", "/etc/redis,", "the_program_accepts"),
    ("deploy/kubernetes/components/redis-cluster/start.sh", "cluster meet", "cluster forget", "six_nodes"),
    ("deploy/kubernetes/components/redis-cluster/start.sh", '*"${id:-nobody} "*)', "*)", "six_nodes"),
    ("deploy/kubernetes/components/redis-cluster/kustomization.yaml", "start.sh, ", "", "nodes_of_the_cluster"),
    ("deploy/kubernetes/components/redis-cluster/kustomization.yaml", "redis+cluster://redis-cluster:", "redis+clusters://redis-cluster:", "nodes_of_the_cluster"),
    ("deploy/kubernetes/components/redis-cluster/redis.yaml", "            redis-cluster-5.redis-cluster:6379\n", "", "nodes_of_the_cluster"),
    ("deploy/kubernetes/components/redis-cluster/redis.yaml", "publishNotReadyAddresses: true", "", "nodes_of_the_cluster"),
    ("deploy/kubernetes/components/redis-cluster/create.yaml", "redis-cluster-0.redis-cluster", "redis-cluster-0.redis", "nodes_of_the_cluster"),
    ("deploy/kubernetes/components/redis-sentinel/kustomization.yaml", "redis-sentinel-2.redis-sentinel:26379/", "redis-sentinel-3.redis-sentinel:26379/", "sentinels_and_tollgate_discover"),
    ("deploy/kubernetes/components/redis-sentinel/redis.yaml", "redis-sentinel-2.redis-sentinel:26379", "redis-sentinel-2.redis:26379", "sentinels_and_tollgate_discover"),
    ("deploy/kubernetes/components/redis-sentinel/redis.yaml", "capabilities: {drop: [ALL]}", "", "every_overlay"),
    ("deploy/envoy-gateway/values.yaml", "failClosed: false", "failClose: false", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/values.yaml", "tollgate:0.1.0", "tollgate", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/values.yaml", "TOLLGATE_DRAIN_DELAY", "TOLLGATE_DRAIN_DELAYS", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/values.yaml", "value: /certs/ca.crt", "value: /certs/tls.crt", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/values.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/values.yaml", "enableServiceLinks: false", "enableServiceLinks: true", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/values.yaml", "mountPath: /overlay", "mountPath: /overlays", "envoy_gateway_generates"),
    ("deploy/envoy-gateway/overlay.yaml", "burst: 20", "brust: 20", "the_overlay_for_envoy_gateway"),
    ("deploy/envoy-gateway/policy.yaml", "unit: Minute", "unit: minute", "the_policy_for_envoy_gateway"),
    ("deploy/envoy-gateway/policy.yaml", "clientSelectors", "clientSelector", "the_policy_for_envoy_gateway"),
    ("deploy/envoy-gateway/network-policy.yaml", "port: 18001", "port: 18000", "the_network_policy"),
    ("deploy/envoy-gateway/network-policy.yaml", "component: ratelimit", "component: proxy", "the_network_policy"),
    ("deploy/envoy-gateway/pod-monitor.yaml", "name: envoy-ratelimit, app", "name: tollgate, app", "prometheus_sees"),
    ("deploy/envoy-gateway/pod-monitor.yaml", "port: metrics", "port: http", "prometheus_sees"),
    ("deploy/grafana/tollgate.json", "tollgate_requests_total", "tollgate_request_total", "grafana_and_the_alerts"),
    ("deploy/grafana/kustomization.yaml", "grafana_dashboard", "grafana_dashboards", "grafanas_sidecar"),
    ("deploy/prometheus/alerts_test.yaml", "alertname: TollgateErrors", "alertname: TollgateError", "every_alert_is_tested"),
    ("deploy/prometheus/objectives_test.yaml", "0+588x120", "0+600x1", "every_alert_is_tested"),
    ("deploy/prometheus/traffic_test.yaml", "6159000+3000x60", "6156600+600x60", "every_alert_is_tested"),
    ("deploy/docker/compile.sh", "+crt-static", "-crt-static", "image::the_image"),
    ("deploy/docker/compile.sh", "-Cprofile-use=", "-Cprofile-used=", "pgo::the_program"),
    ("deploy/docker/train.sh", "addslotsrange 0 16383", "addslotsrange 0 8191", "pgo::the_training"),
    ("deploy/docker/training/rules.yaml", "domain: training", "domain: trainings", "pgo::the_training"),
    ("deploy/docker/layout.sh", "install -m 644", "install -m 640", "image::the_program"),
    ("deploy/docker/layout.sh", "/bin/ratelimit", "/bin/rate-limit", "image::the_program_runs_under"),
    ("deploy/docker/layout.sh", "config/default", "config/defaults", "image::"),
    ("deploy/docker/build.sh", "sh deploy/docker/compile.sh", "sh deploy/docker/compiled.sh", "image::the_image"),
    ("deploy/docker/build.sh", "/bin/ratelimit", "/bin/rate-limit", "image::the_image"),
    ("deploy/debian/tollgate.service", "ExecStart=/usr/bin/tollgate", "ExecStart=/usr/sbin/tollgate", "debian::the_service"),
    ("deploy/debian/tollgate.service", "SystemCallFilter=@system-service\n", "", "debian::the_service"),
    ("deploy/debian/default", "#TOLLGATE_STORE=", "#TOLLGATE_STORES=", "debian::the_package"),
    ("deploy/debian/build.sh", "-m 644 -t", "-m 640 -t", "debian::the_package"),
    ("deploy/docker/Dockerfile", "WORKDIR /\n", "WORKDIR /home\n", "image::the_image"),
    ("deploy/docker/Dockerfile", "USER 65532:65532\n", "USER 65532:65532\nENV TOLLGATE_CONFIG=/config/default\n", "image::the_image"),
    ("deploy/compose/compose.yaml", "[sh, /etc/redis/start.sh]", "[redis-server, /etc/redis/redis.conf]", "compose::"),
    ("deploy/compose/rules/demo.yaml", "value: /login*", "value: /log-in*", "the_demo_shows"),
    ("deploy/compose/demo.sh", "requests_per_unit: 15}", "requests_per_unit: 14}", "the_demo_shows"),
    ("deploy/compose/dashboards.yaml", "/var/lib/grafana/dashboards", "/var/lib/dashboards", "compose::"),
    ("deploy/compose/grafana.yaml", "prometheus:9090", "prometheus:9091", "compose::"),
    ("deploy/helm/tollgate/Chart.yaml", "appVersion: 0.1.0", "appVersion: 0.1.1", "the_chart_has_the_version"),
    ("deploy/helm/tollgate/.helmignore", "*.orig", "templates/deployment.yaml", "the_chart_makes"),
    ("deploy/helm/tollgate/values.yaml", "minReplicas: 3", "minReplicas: 2", "the_chart_makes"),
    ("deploy/helm/tollgate/values.yaml", "docker.io/library/redis:7.0.15-bookworm", "docker.io/library/redis:7.2", "the_chart_has_the_version"),
    ("deploy/helm/tollgate/values.schema.json", '"const": "latest"', '"const": "newest"', "every_broken_value"),
    ("deploy/helm/tollgate/files/alerts.yaml", "for: 5m", "for: 6m", "the_operators_alerts"),
    ("deploy/helm/tollgate/files/dashboard.json", "tollgate_requests_total", "tollgate_request_total", "grafana_and_the_alerts"),
    ("deploy/helm/tollgate/files/rules/basic.yaml", "value: demo", "value: demonstration", "the_test_of_the_chart"),
    ("deploy/helm/tollgate/files/rules/concurrency.yaml", "domain: ", "domains: ", "the_rules_load"),
    ("deploy/helm/tollgate/files/redis-cluster/create.sh", "--cluster-replicas 1", "--cluster-replicas 0", "six_nodes"),
    ("deploy/helm/tollgate/files/redis-cluster/start.sh", "cluster meet", "cluster forget", "six_nodes"),
    ("deploy/helm/tollgate/files/redis-cluster/redis.conf", "cluster-enabled yes", "", "six_nodes"),
    ("deploy/helm/tollgate/files/redis-sentinel/start.sh", "resolve-hostnames yes", "resolve-hostnames no", "sentinels_find"),
    ("deploy/helm/tollgate/files/test.sh", "'^429$'", "'^503$'", "the_test_of_the_chart"),
    ("deploy/helm/tollgate/templates/_names.tpl", "component: server", "component: servers", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/_settings.tpl", '"TOLLGATE_DRAIN_DELAY" "10s"', '"TOLLGATE_DRAIN_DELAY" "1s"', "the_chart_makes"),
    ("deploy/helm/tollgate/templates/_settings.tpl", "regions: store.kind memory;", "regions: no store;", "every_broken_value"),
    ("deploy/helm/tollgate/templates/settings.yaml", 'include "tollgate.settings"', 'include "tollgate.labels"', "the_chart_makes"),
    ("deploy/helm/tollgate/templates/rules.yaml", "files/rules/*", "files/rules/b*", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/store.yaml", "b64enc", "b64enc | b64enc", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/service-account.yaml", "Token: false", "Token: true", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/service.yaml", "clusterIP: None", "clusterIP: ''", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/autoscaler.yaml", "periodSeconds: 60", "periodSeconds: 10", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/disruption-budget.yaml", "AlwaysAllow", "IfHealthyBudget", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/certificates.yaml", "rotationPolicy: Always", "rotationPolicy: Never", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/regions.yaml", "regions.yaml: |", "region.yaml: |", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/monitoring.yaml", "targetLabel: instance", "targetLabel: pod", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/envoy-gateway.yaml", "port: 18001", "port: 18000", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/network-policy.yaml", "port: 26379", "port: 26380", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/deployment.yaml", "defaultMode: 0440", "defaultMode: 0444", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/deployment.yaml", "pullSecrets }}", "pullSecret }}", "thirty_combinations"),
    ("deploy/helm/tollgate/templates/redis/_parts.tpl", "publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/redis/cluster.yaml", "replicas: 6", "replicas: 5", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/redis/sentinel.yaml", "minReadySeconds: 15", "minReadySeconds: 5", "the_chart_makes"),
    ("deploy/helm/tollgate/templates/test.yaml", ":8080/json", ":8081/json", "the_test_of_the_chart"),
    ("deploy/helm/tollgate/templates/NOTES.txt", 'include "tollgate.name"', 'include "tollgate.names"', "the_notes_of_the_chart"),
    ("deploy/helm/tollgate/README.md", "--set store.kind=memory", "--set store.kind=none", "the_notes_of_the_chart"),
    ("deploy/helm/values/dev.yaml", "cpu: 100m", "cpu: 200m", "the_chart_makes"),
    ("deploy/helm/values/production.yaml", "burst: 100", "burst: 10", "the_chart_makes"),
    ("deploy/helm/values/us-east.yaml", "region: us-east", "region: eu-west", "the_chart_makes"),
    ("deploy/helm/values/eu-west.yaml", "dnsNames: [tollgate.eu-west", "dnsNames: [tollgate.us-east", "the_chart_makes"),
    ("deploy/helm/values/envoy-gateway.yaml", "burst: 20", "burst: 21", "the_chart_makes"),
]


def program():
    """The tests, built."""
    built = subprocess.run(
        ["cargo", "test", "--test", "integration", "--no-run", "--message-format=json", "--quiet"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    )
    artifacts = (json.loads(line) for line in built.stdout.splitlines())
    return next(each["executable"] for each in artifacts if each.get("target", {}).get("name") == "integration")


def run(tests, names):
    return subprocess.run([tests, names], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted == "--list":
        json.dump(MUTATIONS, sys.stdout)
        return
    tests, noticed_all, missed = program(), 0, 0
    # A test that fails without a mutation proves nothing.
    for names in sorted({names for file, _, _, names in MUTATIONS if wanted in file}):
        if run(tests, names).returncode != 0:
            sys.exit(f"{names} fails by itself")
    for file, stands, instead, names in MUTATIONS:
        if wanted not in file:
            continue
        path = ROOT / file
        before = path.read_text(encoding="utf-8")
        assert stands in before, f"{file} has no {stands}"
        try:
            path.write_text(before.replace(stands, instead, 1), encoding="utf-8")
            ran = run(tests, names)
        finally:
            path.write_text(before, encoding="utf-8")
        assert b"running 0 tests" not in ran.stdout, f"no test {names}"
        noticed = ran.returncode != 0
        missed += not noticed
        noticed_all += noticed
        print("noticed" if noticed else "MISSED ", f"{file}: {stands.strip()} -> {instead.strip() or 'nothing'}", flush=True)
    print(f"{noticed_all} noticed, {missed} missed")
    sys.exit(1 if missed else 0)


main()
