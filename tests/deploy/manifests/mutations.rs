//! Mutation test of the consistency check: one field at a time is broken, and the check must report it.

use super::*;

/// A document by kind and name, the place in it, and what it becomes (nothing: it is removed).
type Mutation = (&'static str, &'static str, &'static str, Option<Value>);

fn mutations() -> Vec<Mutation> {
    let pod = "/spec/template/spec/";
    let of_deployment = [
        ("enableServiceLinks", Some(json!(true))),
        ("automountServiceAccountToken", None),
        ("serviceAccountName", Some(json!("default"))),
        ("securityContext/runAsNonRoot", None),
        ("securityContext/runAsUser", Some(json!(0))),
        ("securityContext/seccompProfile/type", Some(json!("Unconfined"))),
        ("containers/0/securityContext/readOnlyRootFilesystem", Some(json!(false))),
        ("containers/0/securityContext/allowPrivilegeEscalation", None),
        ("containers/0/securityContext/capabilities/drop", Some(json!([]))),
        ("topologySpreadConstraints/0/nodeTaintsPolicy", None),
        ("topologySpreadConstraints/1/matchLabelKeys", None),
        ("containers/0/image", Some(json!("tollgate"))),
        ("containers/0/resources/limits/memory", None),
        ("containers/0/resources/limits/cpu", Some(json!("1"))),
        ("containers/0/readinessProbe/grpc/port", Some(json!(8080 + 2))),
        ("containers/0/startupProbe", None),
        ("containers/0/livenessProbe/httpGet/path", Some(json!("/ready"))),
        ("containers/0/volumeMounts/0/subPath", Some(json!("basic.yaml"))),
        ("containers/0/volumeMounts/0/name", Some(json!("rule"))),
        ("containers/0/envFrom/0/configMapRef/name", Some(json!("tollgate-settings"))),
        ("volumes/0/configMap/name", Some(json!("rules"))),
    ];
    let pods = of_deployment.into_iter().map(|(place, value)| {
        let place: &'static str = format!("{pod}{place}").leak();
        ("Deployment", "tollgate", place, value)
    });
    let others = [
        ("Deployment", "tollgate", "/spec/strategy/rollingUpdate/maxUnavailable", Some(json!(1))),
        ("Deployment", "tollgate", "/spec/replicas", Some(json!(3))),
        ("Deployment", "tollgate", "/spec/minReadySeconds", Some(json!(5))),
        ("Deployment", "tollgate", "/spec/selector/matchLabels/app.kubernetes.io~1name", Some(json!("toll"))),
        ("Service", "tollgate", "/spec/ports/0/targetPort", Some(json!("http2"))),
        ("Service", "tollgate", "/spec/selector/app.kubernetes.io~1component", Some(json!("redis"))),
        ("Service", "tollgate-headless", "/spec/selector", Some(json!({}))),
        ("PodDisruptionBudget", "tollgate", "/spec/selector/matchLabels", Some(json!({"a": "b"}))),
        ("PodDisruptionBudget", "redis-cluster", "/spec/maxUnavailable", Some(json!(2))),
        ("ServiceAccount", "tollgate", "/automountServiceAccountToken", None),
        ("HorizontalPodAutoscaler", "tollgate", "/spec/scaleTargetRef/name", Some(json!("toll-gate"))),
        ("HorizontalPodAutoscaler", "tollgate", "/spec/behavior/scaleDown/policies", None),
        ("HorizontalPodAutoscaler", "tollgate", "/spec/behavior/scaleDown/policies/0/value", Some(json!(4))),
        ("StatefulSet", "redis-cluster", "/spec/serviceName", Some(json!("redis"))),
        ("StatefulSet", "redis-cluster", "/spec/template/spec/securityContext/runAsUser", Some(json!(0))),
        ("Job", "redis-cluster-create", "/spec/template/spec/volumes/0/configMap/name", Some(json!("redis"))),
    ];
    pods.chain(others).collect()
}

fn mutate(document: &mut Value, place: &str, value: Option<Value>) {
    let (above, last) = place.rsplit_once('/').expect("a place");
    let last = last.replace("~1", "/");
    let above = document.pointer_mut(above).unwrap_or_else(|| panic!("no {above}"));
    let above = above.as_object_mut().expect("a mapping");
    match value {
        Some(value) => drop(above.insert(last, value)),
        None => assert!(above.remove(&last).is_some(), "no {place}"),
    }
}

#[test]
fn every_broken_field_is_reported() {
    let sound = built(OVERLAYS[0]);
    assert_eq!(consistency_check::problems(sound), [""; 0]);
    for (kind, name, place, value) in mutations() {
        let mut broken = sound.to_vec();
        assert!(find(&broken, kind, name).is_some(), "no {kind}/{name}");
        let document = broken
            .iter_mut()
            .find(|document| document["kind"] == kind && consistency_check::plain_name(document) == name)
            .expect("found before");
        mutate(document, place, value);
        assert!(
            !consistency_check::problems(&broken).is_empty(),
            "no problem is reported for {kind}/{name}{place}"
        );
    }
}
