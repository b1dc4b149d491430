//! Consistency of a set of manifests: references resolve, and pods have minimal privileges.

use super::*;

/// Objects that are made apart, as the files say where they refer to them.
const EXTERNAL_OBJECTS: [&str; 5] = [
    "Secret/tollgate-operators",
    "Secret/tollgate-redis-ca",
    "Secret/tollgate-region-tls",
    "Secret/tollgate-store",
    "Secret/tollgate-tls",
];

/// The end of a name that kustomize makes of its content.
fn is_hash(text: &str) -> bool {
    text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// A document's name without a hash behind it.
pub(in crate::deploy) fn plain_name(document: &Value) -> &str {
    let name = text(document, "/metadata/name");
    match name.rsplit_once('-') {
        Some((plain, hash)) if is_hash(hash) && hash.bytes().any(|byte| byte.is_ascii_digit()) => plain,
        _ => name,
    }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Every mapping and list in a value, itself included.
fn walk<'a>(value: &'a Value, visit: &mut impl FnMut(&'a Value)) {
    visit(value);
    match value {
        Value::Object(fields) => fields.values().for_each(|field| walk(field, visit)),
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

/// A workload's name and the pod that it makes.
fn pods(documents: &[Value]) -> impl Iterator<Item = (String, &Value)> {
    documents.iter().filter_map(|document| {
        let pod = document.pointer("/spec/template")?;
        Some((format!("{}/{}", text(document, "/kind"), plain_name(document)), pod))
    })
}

/// Everything that is wrong, in no order.
pub(in crate::deploy) fn problems(documents: &[Value]) -> Vec<String> {
    let mut problems = of_pods(documents);
    problems.extend(references(documents));
    problems.extend(selections(documents));
    problems.extend(rollout_check::problems(documents));
    problems.extend(rollout_check::guards(documents));
    problems
}

/// Problems of pods by themselves.
pub(super) fn of_pods(documents: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, pod) in pods(documents) {
        let mut say = |problem: String| problems.push(format!("{name}: {problem}"));
        is_restricted(pod, &mut say);
        ports_are_known(pod, &mut say);
        volumes_are_mounted(pod, &mut say);
    }
    problems
}

/// Kubernetes' restricted profile, and a file system that nothing is written to.
fn is_restricted(pod: &Value, say: &mut impl FnMut(String)) {
    let mut expect = |value: &Value, pointer: &str, expected: Value| {
        if value.pointer(pointer) != Some(&expected) {
            say(format!("{pointer} is not {expected}"));
        }
    };
    expect(pod, "/spec/automountServiceAccountToken", false.into());
    // Or variables of a Service named tollgate stop the start.
    expect(pod, "/spec/enableServiceLinks", false.into());
    expect(pod, "/spec/securityContext/runAsNonRoot", true.into());
    expect(pod, "/spec/securityContext/seccompProfile/type", "RuntimeDefault".into());
    for container in list(pod, "/spec/containers") {
        expect(container, "/securityContext/allowPrivilegeEscalation", false.into());
        expect(container, "/securityContext/readOnlyRootFilesystem", true.into());
        expect(container, "/securityContext/capabilities/drop", vec!["ALL"].into());
    }
    if pod.pointer("/spec/securityContext/runAsUser").and_then(Value::as_u64).is_none_or(|user| user == 0) {
        say("it runs as root, or as anyone".to_owned());
    }
    for container in list(pod, "/spec/containers") {
        let pinned = text(container, "/image").rsplit_once(':').is_some_and(|(_, tag)| tag != "latest");
        if !pinned {
            say(format!("the image {} has no version", text(container, "/image")));
        }
        for needed in ["/resources/requests/cpu", "/resources/requests/memory", "/resources/limits/memory"] {
            if container.pointer(needed).is_none() {
                say(format!("no {needed}"));
            }
        }
        if container.pointer("/resources/limits/cpu").is_some() {
            say("the processor is limited".to_owned());
        }
    }
}

fn ports_are_known(pod: &Value, say: &mut impl FnMut(String)) {
    for container in list(pod, "/spec/containers") {
        let known: BTreeSet<String> = list(container, "/ports")
            .flat_map(|port| [port["name"].to_string(), port["containerPort"].to_string()])
            .collect();
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            for kind in ["httpGet", "grpc", "tcpSocket"] {
                if let Some(port) = container.pointer(&format!("/{probe}/{kind}/port"))
                    && !known.contains(&port.to_string())
                {
                    say(format!("{probe} calls port {port}"));
                }
            }
        }
    }
}

fn volumes_are_mounted(pod: &Value, say: &mut impl FnMut(String)) {
    let mounted: BTreeSet<&str> = list(pod, "/spec/containers")
        .flat_map(|container| list(container, "/volumeMounts"))
        .map(|mount| text(mount, "/name"))
        .collect();
    let volumes: BTreeSet<&str> = list(pod, "/spec/volumes").map(|volume| text(volume, "/name")).collect();
    for unknown in volumes.difference(&mounted) {
        say(format!("nothing mounts the volume {unknown}"));
    }
    // Those of a StatefulSet come from its claims.
    for unknown in mounted.difference(&volumes).filter(|name| **name != "data") {
        say(format!("there is no volume {unknown}"));
    }
    for container in list(pod, "/spec/containers") {
        for mount in list(container, "/volumeMounts") {
            if mount.get("subPath").is_some() {
                say(format!("{} is never updated", text(mount, "/name")));
            }
        }
    }
}

/// Names of objects that are not there.
fn references(documents: &[Value]) -> Vec<String> {
    let there: BTreeSet<String> = documents
        .iter()
        .map(|document| format!("{}/{}", text(document, "/kind"), text(document, "/metadata/name")))
        .collect();
    let mut wanted = BTreeSet::new();
    for document in documents {
        walk(document, &mut |value| {
            for (key, kind, field) in [
                ("configMapRef", "ConfigMap", "/name"),
                ("configMap", "ConfigMap", "/name"),
                ("configMapKeyRef", "ConfigMap", "/name"),
                ("secretRef", "Secret", "/name"),
                ("secretKeyRef", "Secret", "/name"),
                ("secret", "Secret", "/secretName"),
                ("scaleTargetRef", "Deployment", "/name"),
            ] {
                if let Some(reference) = value.get(key) {
                    wanted.insert(format!("{kind}/{}", text(reference, field)));
                }
            }
            if let Some(account) = value.get("serviceAccountName").and_then(Value::as_str) {
                wanted.insert(format!("ServiceAccount/{account}"));
            }
            if let Some(service) = value.get("serviceName").and_then(Value::as_str) {
                wanted.insert(format!("Service/{service}"));
            }
        });
    }
    let missing =
        wanted.iter().filter(|name| !there.contains(*name) && !EXTERNAL_OBJECTS.contains(&name.as_str()));
    missing.map(|name| format!("there is no {name}")).collect()
}

/// Selectors that select nothing, and ports of Services that their pods don't have.
fn selections(documents: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    for document in documents {
        let kind = text(document, "/kind");
        let pointer = match kind {
            "Service" => "/spec/selector",
            "Deployment" | "StatefulSet" | "PodDisruptionBudget" | "PodMonitor" => {
                "/spec/selector/matchLabels"
            }
            "NetworkPolicy" if plain_name(document) != "redis" => "/spec/podSelector/matchLabels",
            _ => continue,
        };
        let labels = document.pointer(pointer).and_then(Value::as_object);
        let is_selected = |pod: &&Value| {
            labels.is_some_and(|labels| {
                !labels.is_empty()
                    && labels.iter().all(|(name, value)| pod["metadata"]["labels"].get(name) == Some(value))
            })
        };
        let selected: Vec<&Value> = pods(documents).map(|(_, pod)| pod).filter(is_selected).collect();
        let name = format!("{kind}/{}", plain_name(document));
        if selected.len() != 1 {
            problems.push(format!("{name} selects the pods of {} workloads", selected.len()));
            continue;
        }
        let ports: BTreeSet<&str> = list(selected[0], "/spec/containers")
            .flat_map(|container| list(container, "/ports"))
            .map(|port| text(port, "/name"))
            .collect();
        let mut wanted = Vec::new();
        walk(document, &mut |value| {
            wanted.extend(value.get("targetPort").and_then(Value::as_str));
            if kind == "NetworkPolicy" || kind == "PodMonitor" {
                wanted.extend(value.get("port").and_then(Value::as_str));
            }
        });
        problems.extend(
            wanted.iter().filter(|port| !ports.contains(*port)).map(|port| format!("{name}: no port {port}")),
        );
    }
    problems
}
