//! Rules from a control plane: a real one, and the real program.

mod ai_gateway;
mod envoy_gateway;
mod hostile;
mod overlay;
mod updates;
pub(crate) mod control_plane;
mod startup;
mod tls;

use std::{fs::File, net::Ipv4Addr};

use prost_types::Any;
use tollgate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use tonic::transport::{Certificate, Identity};

use self::control_plane::ControlPlane;
use crate::support::{certificates::Pair, prelude::*};

/// A tollgate with the rules of a control plane.
struct XdsInstance {
    tollgate: Tollgate,
}

impl XdsInstance {
    /// Starts without waiting for anything.
    fn spawn(server: &str, flags: &[&str]) -> Self {
        let all = [&["--rules", "xds", "--xds-server", server], flags].concat();
        Self { tollgate: Tollgate::spawn_logging(command(), Path::new("no/rules/here"), &all) }
    }

    /// Starts with rules, and waits until it is ready.
    fn start(server: &str, flags: &[&str]) -> Self {
        let instance = Self::spawn(server, flags);
        instance.tollgate.wait_until_ready();
        instance
    }

    /// Starts with rules that a control plane has pushed as version 1, and waits until it has accepted them.
    fn with_rules(configs: &[RateLimitConfig], flags: &[&str]) -> (ControlPlane, Self) {
        let plane = ControlPlane::start();
        plane.push("1", configs);
        let instance = Self::start(&plane.url(), flags);
        plane.wait_for_ack("1");
        (plane, instance)
    }

    fn log(&self) -> String {
        self.tollgate.log()
    }

    /// Waits until the log has `part` in it, and gives it all.
    fn wait_for_log(&self, part: &str) -> String {
        self.tollgate.wait_for_log(part)
    }

    /// The rules section of `/api/v1/status`.
    fn rules(&self) -> Value {
        self.tollgate.api("/status")["rules"].clone()
    }

    /// Waits until that is so.
    fn wait_for_rules(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        find("that state of the rules", || Some(self.rules()).filter(&is_it))
    }

    /// A metric's value.
    fn metric(&self, name: &str) -> f64 {
        self.tollgate.metric(name).unwrap_or_else(|| panic!("no {name}"))
    }

    async fn client(&self) -> Client {
        self.tollgate.client().await
    }

    fn is_ready(&self) -> bool {
        http::try_get(&self.tollgate.url("/healthcheck")).is_some_and(|answer| answer.status == 200)
    }
}

/// Pauses between attempts to connect that a test can wait for.
const BACKOFF: [&str; 2] = ["--xds-backoff", "500ms,500ms,0.5"];

/// Writes a file and gives its path.
fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
    fs::write(&new, text).expect("written");
    fs::rename(&new, &path).expect("renamed");
    path
}
