//! Compiles `proto/` with protox, so that building needs no protoc. The build script of `crates/proto`.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

/// Folder of the sources, from that package.
const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let served = "envoy/service/ratelimit/v3/rls.proto";
    let reservations = "tollgate/reservation/v1/reservation.proto";
    let descriptors = protox::compile([served, reservations], [PROTO])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection and the JSON endpoint read the same descriptors at run time.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Reflection does not list xDS, of which tollgate is a client.
    let client = ["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];
    // Nor the service between regions.
    let regions = ["tollgate/region/v1/region.proto"];
    let all = protox::compile([served, reservations].into_iter().chain(client).chain(regions), [PROTO])?;
    tonic_prost_build::configure().build_transport(false).include_file("proto.rs").compile_fds(all)?;
    Ok(())
}
