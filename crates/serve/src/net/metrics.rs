//! Metrics of ports and connections.

use tollgate_metrics::{CounterFamily, Gauge, GaugeFamily, Metric};

/// Metrics of ports and connections.
pub static METRICS: &[&dyn Metric] = &[
    &GRPC_CONNECTIONS,
    &CONNECTIONS_REFUSED,
    &CONNECTIONS_EVICTED,
    &UNFINISHED_REFUSED,
    &TLS_HANDSHAKES,
    &TLS_RELOADS,
    &CERTIFICATE_EXPIRY,
    &CLIENT_CERTIFICATE_EXPIRY,
];

pub static GRPC_CONNECTIONS: Gauge = Gauge::at_zero("tollgate_grpc_connections", "Open gRPC connections.");

pub static CONNECTIONS_REFUSED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_connections_refused_total",
    &["port"],
    "Connections closed at once because the port had its maximum of connections.",
    &[["grpc"], ["http"], ["admin"]],
);

pub(super) static CONNECTIONS_EVICTED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_connections_evicted_total",
    &["port"],
    "Idle connections closed to make room for new ones.",
    &[["grpc"], ["http"], ["admin"]],
);

pub(super) static UNFINISHED_REFUSED: CounterFamily<1> = CounterFamily::starting_with(
    "tollgate_unfinished_messages_refused_total",
    &["port"],
    "Messages that were refused before they had arrived in full, because too many bytes of such messages are in memory.",
    &[["grpc"], ["http"], ["admin"]],
);

pub(super) static TLS_HANDSHAKES: CounterFamily<2> =
    CounterFamily::new("tollgate_tls_handshakes_total", &["port", "result"], "TLS handshakes by result.");

pub(super) static TLS_RELOADS: CounterFamily<2> = CounterFamily::new(
    "tollgate_tls_reloads_total",
    &["port", "result"],
    "Reloads of changed TLS files by result.",
);

static CERTIFICATE_EXPIRY: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_tls_certificate_expiry_timestamp_seconds",
    &["port"],
    "Time when the first of a port's certificates expires, in seconds since 1970.",
    &[],
);

pub(super) static CLIENT_CERTIFICATE_EXPIRY: GaugeFamily<1> = GaugeFamily::new(
    "tollgate_tls_client_certificate_expiry_timestamp_seconds",
    &["client"],
    "Time when the first certificate that this instance presents as a client expires, in seconds since 1970.",
    &[],
);

/// Results of a TLS handshake: the connection is established, one side refused the other, or the time limit passed.
const HANDSHAKES: [&str; 3] = ["success", "refused", "timeout"];

/// Records that a port uses TLS, and when the first of its certificates expires, in seconds since 1970, if that can be
/// read.
pub(super) fn tls_in_use(port: &'static str, expiry: Option<i64>) {
    HANDSHAKES.into_iter().for_each(|result| TLS_HANDSHAKES.export([port, result]));
    ["success", "error"].into_iter().for_each(|result| TLS_RELOADS.export([port, result]));
    if let Some(expiry) = expiry {
        // Exact up to 2^53.
        CERTIFICATE_EXPIRY.set([port], expiry as f64);
    }
}
