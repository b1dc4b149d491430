//! Sentinels that disagree: servers of these tests' own, each with a word for the master.

use super::misbehaving_nodes::{listen, read};
use super::*;

/// The reply of a sentinel: the master's port, and the epoch if the user may read it; or nothing at all.
type Word = Option<(u16, Option<u64>)>;

struct Sentinel {
    port: u16,
    word: Arc<Mutex<Word>>,
}

impl Sentinel {
    fn start(master: &Redis, epoch: Option<u64>) -> Self {
        let word = Arc::new(Mutex::new(Some((master.port(), epoch))));
        let listener = listen();
        let port = listener.local_addr().expect("an address").port();
        let said = Arc::clone(&word);
        thread::spawn(move || {
            for client in listener.incoming() {
                let said = Arc::clone(&said);
                thread::spawn(move || serve(&client.expect("a client"), &said));
            }
        });
        Self { port, word }
    }

    fn say(&self, port: u16, epoch: Option<u64>) {
        *self.word.lock().expect("no panic") = Some((port, epoch));
    }

    /// Has it end its connections from now on.
    fn end(&self) {
        *self.word.lock().expect("no panic") = None;
    }
}

fn serve(mut client: &TcpStream, said: &Mutex<Word>) {
    let mut reader = BufReader::new(client);
    while let Some(command) = read(&mut reader) {
        let Some((port, epoch)) = *said.lock().expect("no panic") else { return };
        let answer = match (command[0].as_str(), command.get(1).map(String::as_str), epoch) {
            ("SENTINEL", Some("get-master-addr-by-name"), _) => bulks(&["127.0.0.1", &port.to_string()]),
            ("SENTINEL", _, Some(epoch)) => bulks(&["name", "main", "config-epoch", &epoch.to_string()]),
            ("SENTINEL", _, None) => "-NOPERM this user has no permissions\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        if client.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn bulks(texts: &[&str]) -> String {
    let each = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len()));
    format!("*{}\r\n{}", texts.len(), each.collect::<String>())
}

fn url(sentinels: &[Sentinel]) -> String {
    let each: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
    format!("redis+sentinel://{}/main", each.join(","))
}

/// The number of keys of a server.
fn keys(server: &Redis) -> usize {
    cmd("DBSIZE").query(&mut server.connect()).expect("a number")
}

/// Calls for longer than it takes to call the sentinels twice, and all are answered.
async fn decides_throughout(store: &RedisStore) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_700) {
        charge(store, &one("a", Hits::ONE)).await.expect("an answer");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Calls, which are all answered, until a server decides them.
async fn followed(store: &RedisStore, master: &Redis) {
    until("it is not followed", async || {
        decides_throughout(store).await;
        keys(master) > 0
    })
    .await;
}

#[tokio::test]
async fn a_stale_sentinel_does_not_redirect_to_a_former_master() {
    for has_epochs in [true, false] {
        let epoch = |number| has_epochs.then_some(number);
        let [old, new] = [Redis::start(), Redis::start()];
        let sentinels = [
            Sentinel::start(&new, epoch(2)),
            Sentinel::start(&old, epoch(1)),
            Sentinel::start(&new, epoch(2)),
        ];
        let store = connected(&url(&sentinels), "").await;
        decides_throughout(&store).await;
        // The others are lost, one after the other.
        sentinels[0].end();
        decides_throughout(&store).await;
        sentinels[2].end();
        decides_throughout(&store).await;
        assert_eq!((keys(&old), keys(&new)), (0, 1));
        // The old one is elected.
        [&sentinels[0], &sentinels[2]].iter().for_each(|sentinel| sentinel.say(old.port(), epoch(3)));
        followed(&store, &old).await;
    }
}

#[tokio::test]
async fn a_working_master_is_not_left_for_an_unreachable_address() {
    let master = Redis::start();
    let sentinels = [1, 0, 1].map(|epoch| Sentinel::start(&master, Some(epoch)));
    sentinels[1].say(1, Some(0));
    let store = connected(&url(&sentinels), "").await;
    decides_throughout(&store).await;
    // Even if it is the latest word.
    sentinels[1].say(1, Some(9));
    decides_throughout(&store).await;
    // A replica is not accepted as a master.
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", "1"]);
    sentinels[1].say(replica.port(), Some(10));
    decides_throughout(&store).await;
}

#[tokio::test]
async fn a_sentinel_that_names_an_unusable_server_does_not_keep_the_store_from_the_majoritys_master() {
    let master = Redis::start();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", "1"]);
    for unusable in [1, replica.port()] {
        let sentinels = [1, u64::MAX, 1].map(|epoch| Sentinel::start(&master, Some(epoch)));
        sentinels[1].say(unusable, Some(u64::MAX));
        // From the start, with no connection to keep.
        let store = connected(&url(&sentinels), "").await;
        decides_throughout(&store).await;
        // It is followed again once it names a master.
        let other = Redis::start();
        sentinels.iter().for_each(|sentinel| sentinel.say(other.port(), Some(2)));
        followed(&store, &other).await;
    }
}

#[tokio::test]
async fn after_losing_the_master_stale_addresses_are_not_followed() {
    let old = Redis::start();
    let new = Redis::start();
    let sentinels = [2, 1, 2].map(|epoch| Sentinel::start(&new, Some(epoch)));
    sentinels[1].say(old.port(), Some(1));
    let store = connected(&url(&sentinels), "").await;
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    [&sentinels[0], &sentinels[2]].iter().for_each(|sentinel| sentinel.end());
    drop(new);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        charge(&store, &one("a", Hits::ONE)).await.expect_err("there is no master");
        sleep(Duration::from_millis(10)).await;
    }
    // Were they all set up anew, most would say so.
    sentinels[0].say(old.port(), Some(0));
    sentinels[1].say(old.port(), Some(0));
    recovered(&store, "a", Instant::now()).await;
}

#[tokio::test]
async fn a_server_that_is_not_the_named_master_is_left() {
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", "1"]);
    let masters = [Redis::start(), Redis::start()];
    let sentinels = [Sentinel::start(&replica, None)];
    let store = open(&settings(&url(&sentinels)));
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("it is no master");
    assert!(error.to_string().contains("is not a master"), "{error}");
    for master in &masters {
        sentinels[0].say(master.port(), None);
        // The one before it works as well as ever.
        until("it is not followed", async || {
            let _ = charge(&store, &one("a", Hits::ONE)).await;
            keys(master) > 0
        })
        .await;
    }
}
