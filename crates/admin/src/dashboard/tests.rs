use std::{collections::BTreeSet, fs, path::Path as File};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use tonic::codegen::Service as _;

use super::*;

fn folder() -> std::path::PathBuf {
    File::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard")
}

/// The files of the folder that are not Rust.
fn found(folder: &File) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => found(&path),
        false => vec![path.to_string_lossy().into_owned()],
    });
    files.filter(|path| !path.ends_with(".rs")).collect()
}

async fn get_from_router(path: &str, etag: Option<&str>) -> Response {
    let mut request = Request::get(path);
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    router().call(request.body(Body::empty()).expect("a request")).await.expect("a response")
}

#[test]
fn every_file_of_the_folder_is_served() {
    let start = format!("{}/", folder().display());
    let found: BTreeSet<String> =
        found(&folder()).iter().map(|path| path.strip_prefix(&start).expect("below").to_owned()).collect();
    let served: BTreeSet<String> = ASSETS.iter().chain([&PAGE]).map(|asset| asset.name.to_owned()).collect();
    assert_eq!(found, served);
}

#[test]
fn imported_modules_exist() {
    for asset in ASSETS.iter().filter(|asset| asset.name.ends_with(".js")) {
        let base = File::new(asset.name).parent().expect("a folder");
        for line in
            asset.text.lines().filter(|line| line.starts_with("import ") || line.starts_with("} from "))
        {
            let Some(path) = line.split("from '").nth(1).and_then(|rest| rest.split('\'').next()) else {
                continue;
            };
            let path = match path.strip_prefix("../") {
                Some(rest) => base.parent().expect("a folder above").join(rest),
                None => base.join(path.strip_prefix("./").expect("a path")),
            };
            let name = path.to_string_lossy();
            assert!(ASSETS.iter().any(|other| other.name == name), "{} imports {name}", asset.name);
        }
    }
}

#[test]
fn no_file_has_external_links_or_parses_text_as_markup() {
    for asset in ASSETS.iter().chain([&PAGE]) {
        let text = asset.text.replace("http://www.w3.org/2000/svg", "");
        for wrong in [
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "style=",
            "onclick=",
        ] {
            assert!(!text.contains(wrong), "{} has {wrong}", asset.name);
        }
    }
}

#[tokio::test]
async fn each_file_has_its_content_type_and_security_headers() {
    for asset in ASSETS.iter().chain([&PAGE]) {
        let path = if asset.name == PAGE.name { "/".to_owned() } else { format!("/assets/{}", asset.name) };
        let response = get_from_router(&path, None).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()["content-security-policy"], POLICY);
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        assert_eq!(response.headers()["cache-control"], "no-cache");
        assert_ne!(response.headers()["content-type"], "text/plain; charset=utf-8", "{path}");
        let tag = response.headers()["etag"].to_str().expect("text").to_owned();
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        assert_eq!(body, asset.text.as_bytes(), "{path}");
        let cached = get_from_router(&path, Some(&tag)).await;
        assert_eq!(cached.status(), StatusCode::NOT_MODIFIED, "{path}");
        assert_eq!(get_from_router(&path, Some("\"other\"")).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn unlisted_files_are_not_found() {
    for path in [
        "/assets/mod.rs",
        "/assets/../Cargo.toml",
        "/assets/%2e%2e/mod.rs",
        "/assets/js/none.js",
        "/assets/index.html",
    ] {
        assert_eq!(get_from_router(path, None).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}
