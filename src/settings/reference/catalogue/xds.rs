//! Rules from a control plane; `reference/xds.rs` reads them.

use super::{
    Fate::{Of, Switch},
    Form::{Boolean, Decimal, Duration, Number, Text},
    Variable,
};

pub(super) const VARIABLES: [Variable; 16] = [
    Variable::new("CONFIG_TYPE", "FILE", Text, Switch("says where the rules come from")),
    Variable::new("CONFIG_GRPC_XDS_NODE_ID", "default", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_NODE_METADATA", "", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", Duration, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Boolean, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "", Text, Of("CONFIG_TYPE")),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, Of("CONFIG_TYPE")),
    Variable::new("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", Duration, Of("CONFIG_TYPE")),
    Variable::new("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Duration, Of("CONFIG_TYPE")),
    Variable::new("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", Decimal, Of("CONFIG_TYPE")),
    Variable::new("XDS_CLIENT_BACKOFF_JITTER", "true", Boolean, Of("CONFIG_TYPE")),
    Variable::new("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", Number, Of("CONFIG_TYPE")),
];
