//! Where it listens.

use super::{
    Fate::{Part, Same, Switch},
    Form::{Boolean, Duration, Number, Text},
    Variable,
};

pub(super) const VARIABLES: [Variable; 14] = [
    Variable::new("HOST", "0.0.0.0", Text, Part("http-address")),
    Variable::new("PORT", "8080", Number, Part("http-address")),
    Variable::new("DEBUG_HOST", "0.0.0.0", Text, Part("admin-address")),
    Variable::new("DEBUG_PORT", "6070", Number, Part("admin-address")),
    Variable::new("GRPC_HOST", "0.0.0.0", Text, Part("grpc-address")),
    Variable::new("GRPC_PORT", "8081", Number, Part("grpc-address")),
    Variable::new("GRPC_UDS", "", Text, Same("grpc-unix-socket")),
    Variable::new("GRPC_MAX_CONNECTION_AGE", "24h", Duration, Same("grpc-max-connection-age")),
    Variable::new("GRPC_MAX_CONNECTION_AGE_GRACE", "1h", Duration, Same("grpc-max-connection-age-grace")),
    Variable::new(
        "GRPC_SERVER_USE_TLS",
        "false",
        Boolean,
        Switch("says whether the four `GRPC_SERVER_TLS_*` and `GRPC_CLIENT_TLS_*` count"),
    ),
    Variable::new("GRPC_SERVER_TLS_CERT", "", Text, Part("grpc-tls-cert")),
    Variable::new("GRPC_SERVER_TLS_KEY", "", Text, Part("grpc-tls-key")),
    Variable::new("GRPC_CLIENT_TLS_CACERT", "", Text, Part("grpc-tls-client-ca")),
    Variable::new("GRPC_CLIENT_TLS_SAN", "", Text, Part("grpc-tls-client-san")),
];
