//! Checks of rollouts, and of isolation from other workloads.

use super::consistency_check::{list, plain_name, text};
use super::*;

/// No pod ends before another has taken its place, and none is ended in a way that it does not know.
pub(super) fn problems(documents: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let deployments = documents.iter().filter(|document| document["kind"] == "Deployment");
    for deployment in deployments {
        let update = &deployment["spec"]["strategy"]["rollingUpdate"];
        if update["maxUnavailable"] != 0 || update["maxSurge"] == 0 {
            problems.push("a pod ends before another has taken its place".to_owned());
        }
        if deployment["spec"]["minReadySeconds"].as_u64().is_none_or(|seconds| seconds < 30) {
            problems.push("the last old pod may end before the first new one is known by DNS".to_owned());
        }
        for spread in list(deployment, "/spec/template/spec/topologySpreadConstraints") {
            if spread["nodeTaintsPolicy"] != "Honor" || spread["matchLabelKeys"][0] != "pod-template-hash" {
                problems.push("a pod may wait for a node that it may not run on".to_owned());
            }
        }
        if deployment["spec"].get("replicas").is_some() {
            problems.push("the number of replicas is not the autoscaler's".to_owned());
        }
        for container in list(deployment, "/spec/template/spec/containers") {
            for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
                if container.get(probe).is_none() {
                    problems.push(format!("there is no {probe}"));
                }
            }
            if text(container, "/livenessProbe/httpGet/path") != "/live" {
                problems.push("a pod may be ended for what others do".to_owned());
            }
        }
    }
    problems
}

/// Isolation from other workloads.
pub(super) fn guards(documents: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    for scaler in documents.iter().filter(|document| document["kind"] == "HorizontalPodAutoscaler") {
        // The time for which an Envoy may still use the address of a removed pod.
        let slow = |policy: &Value| policy["value"] == 1 && policy["periodSeconds"].as_u64() >= Some(40);
        let policies: Vec<_> = list(scaler, "/spec/behavior/scaleDown/policies").collect();
        if policies.is_empty() || !policies.into_iter().all(|it| it["type"] == "Pods" && slow(it)) {
            problems.push("more than half of the pods may go at once, and Envoy still calls them".to_owned());
        }
    }
    let expected = documents.iter().filter_map(|document| {
        let (pointer, expected) = match text(document, "/kind") {
            "Namespace" => {
                ("/metadata/labels/pod-security.kubernetes.io~1enforce", Value::from("restricted"))
            }
            "ServiceAccount" => ("/automountServiceAccountToken", false.into()),
            "PodDisruptionBudget" => ("/spec/maxUnavailable", 1.into()),
            "HorizontalPodAutoscaler" => ("/spec/behavior/scaleUp/stabilizationWindowSeconds", 0.into()),
            _ => return None,
        };
        let name = plain_name(document);
        (document.pointer(pointer) != Some(&expected)).then(|| format!("{name}: {pointer} is not {expected}"))
    });
    problems.extend(expected);
    problems
}
