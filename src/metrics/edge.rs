//! What the ports count.

/// How a handshake of TLS ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// With a connection.
    Done,
    /// One side did not like the other.
    Refused,
    /// It took too long.
    TimedOut,
}

/// Counts a gRPC connection that opened.
pub fn connection_opened() {
    metrics::gauge!("tollgate_grpc_connections").increment(1);
}

/// Counts a gRPC connection that closed.
pub fn connection_closed() {
    metrics::gauge!("tollgate_grpc_connections").decrement(1);
}

/// Counts a connection that was closed at once, because its port has as many as it may.
pub fn connection_refused(port: &'static str) {
    metrics::counter!("tollgate_connections_refused_total", "port" => port).increment(1);
}

/// Counts a handshake of TLS.
pub fn handshake(port: &'static str, outcome: Handshake) {
    let result = match outcome {
        Handshake::Done => "success",
        Handshake::Refused => "refused",
        Handshake::TimedOut => "timeout",
    };
    metrics::counter!("tollgate_tls_handshakes_total", "port" => port, "result" => result).increment(1);
}

/// Tells that a port uses certificates of which the first expires then, in seconds since 1970, if that can be read.
pub fn tls_in_use(port: &'static str, expiry: Option<i64>) {
    for result in ["success", "refused", "timeout"] {
        metrics::counter!("tollgate_tls_handshakes_total", "port" => port, "result" => result).increment(0);
    }
    for result in ["success", "error"] {
        metrics::counter!("tollgate_tls_reloads_total", "port" => port, "result" => result).increment(0);
    }
    if let Some(expiry) = expiry {
        // Exact up to 2^53.
        metrics::gauge!("tollgate_tls_certificate_expiry_timestamp_seconds", "port" => port)
            .set(expiry as f64);
    }
}

/// Counts a change of a port's TLS files, which took effect or was not good.
pub fn tls_reload(port: &'static str, succeeded: bool) {
    let result = if succeeded { "success" } else { "error" };
    metrics::counter!("tollgate_tls_reloads_total", "port" => port, "result" => result).increment(1);
}

/// Counts a panic on a thread that is there for `part`.
pub fn panicked(part: &'static str) {
    metrics::counter!("tollgate_panics_total", "thread" => part).increment(1);
}
