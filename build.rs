//! Compiles `proto/` with protox, so that building needs no protoc.

use std::{env, error::Error, fs, path::PathBuf};

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
    tonic_prost_build::configure().build_transport(false).compile_fds(all)?;
    Ok(())
}
