//! TLS of the reference's gRPC port: one variable switches it on, four configure it.

use crate::settings::{
    environment::{Environment, EnvironmentFlags, Setting},
    error::Problem,
    parsers::boolean,
};

/// Switch of the other variables.
const SWITCH: &str = "GRPC_SERVER_USE_TLS";

/// Flags and their variables.
const FLAGS: [(&str, &str); 4] = [
    ("grpc-tls-cert", "GRPC_SERVER_TLS_CERT"),
    ("grpc-tls-key", "GRPC_SERVER_TLS_KEY"),
    ("grpc-tls-client-ca", "GRPC_CLIENT_TLS_CACERT"),
    ("grpc-tls-client-san", "GRPC_CLIENT_TLS_SAN"),
];

/// Reports missing variables if the switch is on, and variables without effect if it is off.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    match environment.get(SWITCH).map(boolean) {
        // The catalogue review reports an invalid switch.
        Some(Err(_)) => {}
        Some(Ok(true)) => {
            let lacks =
                |&&(flag, variable): &&(&str, &str)| !given(flag) && environment.get(variable).is_none();
            // A port without TLS would be less secure than intended.
            if let Some((_, variable)) = FLAGS.iter().take(2).find(lacks) {
                found.problems.push(Problem::new(SWITCH, format!("set, but {variable} is not")));
            }
        }
        Some(Ok(false)) | None => {
            for (flag, variable) in FLAGS {
                if environment.get(variable).is_some() && !given(flag) {
                    found.notices.push(format!("{variable} has no effect: {SWITCH} is not true"));
                }
            }
        }
    }
}

/// The flags that the variables set, if the switch is on.
pub(super) fn settings(environment: &Environment, given: impl Fn(&str) -> bool) -> Vec<Setting> {
    if !matches!(environment.get(SWITCH).map(boolean), Some(Ok(true))) {
        return Vec::new();
    }
    let set = FLAGS.into_iter().filter(|(flag, _)| !given(flag)).filter_map(|(flag, variable)| {
        let value = environment.get(variable)?.to_owned();
        Some(Setting { flag, variable: variable.to_owned(), value })
    });
    set.collect()
}
