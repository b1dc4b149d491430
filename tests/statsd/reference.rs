//! Environments of envoyproxy/ratelimit.

use super::{RULES, end, expected, send, server::Server};
use crate::support::{
    free_port,
    tollgate::{Tollgate, command, rules},
};

/// Starts with an environment of the reference, and a rule that is matched this many times.
async fn as_there(variables: &[(&str, &str)], calls: usize) {
    let config = rules(RULES);
    let mut program = command();
    program.envs(variables.iter().copied()).env("STATS_FLUSH_INTERVAL", "100ms");
    let tollgate = Tollgate::spawn_by(program, config.path(), &[]);
    tollgate.wait_until_ready();
    send(&mut tollgate.client().await, calls).await;
    end(tollgate).await;
}

#[tokio::test]
async fn an_environment_of_the_reference_sends_plain_lines_by_tcp() {
    let server = Server::tcp(free_port());
    let variables = [
        ("STATSD_HOST", "localhost"),
        ("STATSD_PORT", server.port()),
        ("USE_STATSD", "true"),
        ("USE_PROMETHEUS", "true"),
        ("EXTRA_TAGS", "zone:eu.1,env:prod"),
    ];
    as_there(&variables, 20).await;
    let tagged = |(name, sum)| (format!("{name}#env:prod,zone:eu_1"), sum);
    assert_eq!(server.end().sums(), expected(20).into_iter().map(tagged).collect());
}

#[tokio::test]
async fn an_environment_of_the_reference_sends_datadogs_lines_as_its_mogrifiers_say() {
    let server = Server::udp();
    let variables = [
        ("USE_STATSD", "false"),
        ("USE_DOG_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", server.port()),
        ("EXTRA_TAGS", "env:prod"),
        ("USE_DOG_STATSD_MOGRIFIERS", "RULES,NEVER"),
        ("DOG_STATSD_MOGRIFIER_RULES_PATTERN", r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$"),
        ("DOG_STATSD_MOGRIFIER_RULES_NAME", "ratelimit.service.rate_limit.$3"),
        ("DOG_STATSD_MOGRIFIER_RULES_TAGS", "domain:$1,descriptor:$2"),
        ("DOG_STATSD_MOGRIFIER_NEVER_PATTERN", r"rate_limit\.edge"),
        ("DOG_STATSD_MOGRIFIER_NEVER_NAME", "never"),
    ];
    as_there(&variables, 20).await;
    let rewritten = |(name, sum): (String, u64)| {
        let name = match name.strip_prefix("ratelimit.service.rate_limit.edge.") {
            None => format!("{name}#env:prod"),
            Some(rest) => {
                let (descriptor, kind) = rest.rsplit_once('.').expect("a kind");
                format!("ratelimit.service.rate_limit.{kind}#env:prod,domain:edge,descriptor:{descriptor}")
            }
        };
        (name, sum)
    };
    assert_eq!(server.end().sums(), expected(20).into_iter().map(rewritten).collect());
}

#[tokio::test]
async fn nothing_is_sent_if_switched_off_or_without_an_address() {
    let server = Server::tcp(free_port());
    let to = [("STATSD_HOST", "127.0.0.1"), ("STATSD_PORT", server.port())];
    for off in [("USE_STATSD", "false"), ("DISABLE_STATS", "true")] {
        as_there(&[&to[..], &[off]].concat(), 11).await;
    }
    assert_eq!(server.end().connections, 0);
}
