use std::collections::BTreeSet;

use axum::{body::Body, http::StatusCode};
use serde_json::Value;
use tollgate_control::{Control, RulesSource, RulesStatus};
use tollgate_core::clock::Clock;
use tollgate_fleet::FleetView;
use tollgate_limiter::{CounterInspector, Modes, OwnShares};
use tollgate_serve::readiness::Readiness;
use tollgate_store::{MemoryStore, Store};
use tonic::codegen::Service as _;

use super::*;
use crate::StoreInfo;

const METHODS: [&str; 5] = ["get", "post", "put", "delete", "patch"];

fn router() -> Router {
    let memory = MemoryStore::new(16, Clock::System);
    let control = Control::memory(RulesSource::Memory);
    let parts = ApiParts {
        fleet: FleetView::new(control.clone(), true, Arc::default()),
        control,
        status: RulesStatus::default(),
        rules: Arc::default(),
        options: Options::default(),
        directory: "nowhere".into(),
        readiness: Readiness::new(0),
        counters: CounterInspector {
            store: Store::new(memory.clone()),
            modes: Modes::default(),
            shares: OwnShares::default(),
        },
        store: StoreInfo { kind: "memory", address: "memory".into(), memory, replicas: None },
        regions: None,
    };
    routes(parts, false)
}

fn documented() -> BTreeSet<(String, &'static str)> {
    let document: Value = serde_json::from_str(include_str!("openapi.json")).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let methods = |(path, item): (&String, &Value)| {
        let (path, item) = (path.clone(), item.clone());
        METHODS
            .into_iter()
            .filter(move |method| item.get(*method).is_some())
            .map(move |method| (path.clone(), method))
    };
    paths.iter().flat_map(methods).filter(|(path, _)| path != "/openapi.json").collect()
}

async fn status(router: &mut Router, path: &str, method: &str, role: Role) -> StatusCode {
    let path = path.replace("{number}", "1").replace("{id}", "1");
    let caller = Caller { name: "ann".into(), role };
    let request = Request::builder().method(&*method.to_uppercase()).uri(path).header("host", "localhost");
    let request = request.extension(caller).body(Body::empty()).expect("a request");
    router.call(request).await.expect("an response").status()
}

#[tokio::test]
async fn the_openapi_document_lists_exactly_the_routes() {
    let (mut router, documented) = (router(), documented());
    let tables = viewer_routes().into_iter().chain(operator_routes());
    let mut paths: BTreeSet<String> = tables.map(|(path, _)| path.to_owned()).collect();
    paths.extend(documented.iter().map(|(path, _)| path.clone()));
    let mut found = BTreeSet::new();
    for path in paths {
        for method in METHODS {
            if status(&mut router, &path, method, Role::Operator).await != StatusCode::METHOD_NOT_ALLOWED {
                found.insert((path.clone(), method));
            }
        }
    }
    assert_eq!(found, documented);
}

#[tokio::test]
async fn viewers_are_refused_changes_and_nothing_else() {
    let mut router = router();
    for (path, method) in documented() {
        let reads = ["/validate", "/diff", "/try"];
        let is_for_viewers = method == "get" || reads.contains(&&*path);
        let refused = status(&mut router, &path, method, Role::Viewer).await == StatusCode::FORBIDDEN;
        assert_eq!(refused, !is_for_viewers, "{method} {path}");
    }
}

#[tokio::test]
async fn no_response_has_cors_headers() {
    let mut router = router();
    for method in ["GET", "OPTIONS"] {
        let request = Request::builder().method(method).uri("/me").header("host", "localhost");
        let request = request.header("access-control-request-method", "POST");
        let request = request.extension(Caller { name: "ann".into(), role: Role::Operator });
        let response =
            router.call(request.body(Body::empty()).expect("a request")).await.expect("an response");
        assert!(
            !response.headers().keys().any(|name| name.as_str().starts_with("access-control")),
            "{method}"
        );
    }
}
