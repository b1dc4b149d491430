//! Its memcached.

use super::{
    Fate::Of,
    Form::{Boolean, Duration, Number, Text},
    Variable,
};

/// What says whether it is used.
const BACKEND: &str = "BACKEND_TYPE";

pub(super) const VARIABLES: [Variable; 9] = [
    Variable::new("MEMCACHE_HOST_PORT", "", Text, Of(BACKEND)),
    Variable::new("MEMCACHE_MAX_IDLE_CONNS", "2", Number, Of(BACKEND)),
    Variable::new("MEMCACHE_SRV", "", Text, Of(BACKEND)),
    Variable::new("MEMCACHE_SRV_REFRESH", "0", Duration, Of(BACKEND)),
    Variable::new("MEMCACHE_TLS", "false", Boolean, Of(BACKEND)),
    Variable::new("MEMCACHE_TLS_CLIENT_CERT", "", Text, Of(BACKEND)),
    Variable::new("MEMCACHE_TLS_CLIENT_KEY", "", Text, Of(BACKEND)),
    Variable::new("MEMCACHE_TLS_CACERT", "", Text, Of(BACKEND)),
    Variable::new("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Boolean, Of(BACKEND)),
];
