//! Operations on leases that Redis receives, as `MONITOR` writes them.

use std::net::TcpStream;

use super::*;

/// An operation that Redis received on a lease, at a time in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    Reserve(f64, u64),
    Settle(f64, u64),
    Cancel,
}

/// The arguments of a command as `MONITOR` writes them.
fn unquoted(line: &str) -> Vec<Vec<u8>> {
    let (mut arguments, mut bytes) = (Vec::new(), line.bytes());
    while bytes.any(|byte| byte == b'"') {
        let mut argument = Vec::new();
        loop {
            let byte = match bytes.next().expect("a closing quote") {
                b'"' => break,
                b'\\' => match bytes.next().expect("an escape") {
                    b'x' => {
                        let digits = [bytes.next().expect("a digit"), bytes.next().expect("a digit")];
                        u8::from_str_radix(std::str::from_utf8(&digits).expect("ASCII"), 16)
                            .expect("hexadecimal")
                    }
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => other,
                },
                byte => byte,
            };
            argument.push(byte);
        }
        arguments.push(argument);
    }
    arguments
}

/// The operations on leases in a line of `MONITOR`, by lease.
pub(super) fn received(line: &str) -> Vec<([u8; 8], Sent)> {
    let Some(time) =
        line.split(' ').next().and_then(|time| time.strip_prefix('+').unwrap_or(time).parse::<f64>().ok())
    else {
        return Vec::new();
    };
    let arguments = unquoted(line);
    if arguments.first().is_none_or(|name| !name.eq_ignore_ascii_case(b"EVALSHA")) {
        return Vec::new();
    }
    let checks =
        arguments.iter().skip(3).filter(|argument| argument.len() >= 43 && (argument.len() - 4) % 39 == 0);
    let mut found = Vec::new();
    for check in checks.flat_map(|argument| argument[4..].chunks(39)) {
        let number = |at: usize| f64::from_le_bytes(check[at..at + 8].try_into().expect("8 bytes"));
        if check[5] & 15 != 6 {
            continue;
        }
        let (hits, operation) = (number(7) as u64, (number(23) as u64 >> 46) & 7);
        let lease = check[31..39].try_into().expect("8 bytes");
        match operation {
            1 => found.push((lease, Sent::Reserve(time, hits))),
            2 => found.push((lease, Sent::Settle(time, hits))),
            3 => found.push((lease, Sent::Cancel)),
            _ => {}
        }
    }
    found
}

/// Lines of `MONITOR` since now.
pub(super) fn monitor(redis: &Redis) -> Arc<std::sync::Mutex<Vec<String>>> {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("listens");
    stream.write_all(b"MONITOR\r\n").expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    assert_eq!(line.trim_end(), "+OK");
    let lines = Arc::<std::sync::Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&lines);
    thread::spawn(move || {
        for line in io::BufRead::lines(reader).map_while(Result::ok) {
            seen.lock().expect("no panic").push(line);
        }
    });
    lines
}
