//! Compiles `proto/` with protox, so that building needs no protoc, and lists the files of the dashboard.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let served = "envoy/service/ratelimit/v3/rls.proto";
    let reservations = "tollgate/reservation/v1/reservation.proto";
    let descriptors = protox::compile([served, reservations], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection and the JSON endpoint read the same descriptors at run time.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Reflection does not list xDS, of which tollgate is a client.
    let client = ["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];
    // Nor the service between regions.
    let regions = ["tollgate/region/v1/region.proto"];
    let all = protox::compile([served, reservations].into_iter().chain(client).chain(regions), ["proto"])?;
    tonic_prost_build::configure().build_transport(false).include_file("proto.rs").compile_fds(all)?;
    list_dashboard(&out.join("dashboard.rs"))
}

/// Writes an expression of all files of the dashboard but the document.
fn list_dashboard(to: &Path) -> Result<(), Box<dyn Error>> {
    const FOLDER: &str = "src/http/admin/dashboard";
    println!("cargo:rerun-if-changed={FOLDER}");
    let mut list = "&[\n".to_owned();
    for path in files_below(Path::new(FOLDER))? {
        let name = path.strip_prefix(FOLDER)?.display().to_string();
        if name != "index.html" && !name.ends_with(".rs") {
            let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{FOLDER}/{name}\"))");
            writeln!(list, "Asset {{ name: {name:?}, text: {text} }},")?;
        }
    }
    Ok(fs::write(to, list + "]")?)
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
