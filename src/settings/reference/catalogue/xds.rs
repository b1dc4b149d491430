//! Rules from a control plane; `reference/xds.rs` reads them.

use super::{
    Fate::Part,
    Form::{Boolean, Decimal, Duration, Number, Text},
    Variable,
};

pub(super) const VARIABLES: [Variable; 16] = [
    Variable::new("CONFIG_TYPE", "FILE", Text, Part("rules")),
    Variable::new("CONFIG_GRPC_XDS_NODE_ID", "default", Text, Part("xds-node-id")),
    Variable::new("CONFIG_GRPC_XDS_NODE_METADATA", "", Text, Part("xds-node-metadata")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, Part("xds-server")),
    Variable::new(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        "3s",
        Duration,
        Part("xds-backoff-initial"),
    ),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", Text, Part("xds-headers")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Boolean, Part("xds-server")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", Text, Part("xds-client-cert")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, Part("xds-client-key")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", Text, Part("xds-ca")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, Part("xds-server-name")),
    Variable::new("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", Duration, Part("xds-backoff-initial")),
    Variable::new("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Duration, Part("xds-backoff-max")),
    Variable::new("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", Decimal, Part("xds-backoff-jitter")),
    Variable::new("XDS_CLIENT_BACKOFF_JITTER", "true", Boolean, Part("xds-backoff-jitter")),
    Variable::new("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", Number, Part("xds-max-message-bytes")),
];
