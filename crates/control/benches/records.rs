//! Figures of records that operators change, with a `redis-server` of this machine; `docs/internals/benchmarking.md` explains
//! them. Instances share one thread. A lost change is an error, a slow one is not.

#![allow(clippy::print_stdout, clippy::arithmetic_side_effects)]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::{collections::HashMap, env, error::Error, fs, iter, path::PathBuf, sync::Arc, time::Duration};

use tempfile::TempDir;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio::{runtime, task::JoinSet};
use tollgate_control::{
    Control, OverrideEntry, Pair, Reconciler, Record, RecordKind, RecordSelection, RecordView, RulesSource,
    RulesStatus, bounds::MAX_AUDIT_ENTRIES,
};
use tollgate_core::clock::now_ms;
use tollgate_rules::{OverrideTarget as _, Snapshot, config};
use tollgate_store::redis::RedisSettings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const RULES: &str =
    "domain: payments\ndescriptors: [{key: api_key, rate_limit: {unit: minute, requests_per_unit: 60}}]";
/// Number of changes of which the propagation is measured.
const PROPAGATED: usize = 50;
/// Length and rate of many changes, and the number of instances that make them.
const CHANGES_PERIOD: Duration = Duration::from_secs(60);
const CHANGES_PER_SECOND: usize = 1_000;
const CHANGING_INSTANCES: usize = 3;
/// Time after which a change that some instance does not enforce is lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which new instances connect and subscribe, and in which memory of a start is returned.
const SETTLE_TIME: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A Redis server that ends with this value.
struct Server {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    async fn start() -> Done<Self> {
        let (directory, port) =
            (tempfile::tempdir()?, TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--port"]);
        let process = command.arg(port.to_string()).current_dir(&directory).stdout(Stdio::null()).spawn()?;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            sleep(POLL_INTERVAL).await;
        }
        Ok(Self { process, port, directory })
    }

    fn reply(&self, command: &[&str]) -> Done<String> {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(command).output()?;
        Ok(String::from_utf8(output.stdout)?)
    }

    fn used_memory(&self) -> Done<u64> {
        number(&self.reply(&["INFO", "memory"])?, "used_memory:")
    }

    fn cpu(&self) -> Done<Duration> {
        cpu(&self.process.id().to_string())
    }

    async fn instances(&self, count: usize) -> Done<Vec<Instance>> {
        let start = || control(self.port).and_then(Instance::start);
        let instances = iter::repeat_with(start).take(count).collect();
        sleep(SETTLE_TIME).await;
        instances
    }
}

/// The number after a name that begins a line.
fn number(text: &str, name: &str) -> Done<u64> {
    let stated = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
    Ok(stated.trim().trim_end_matches(" kB").parse()?)
}

/// CPU time of a process.
fn cpu(process: &str) -> Done<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    // Of 10 ms each.
    Ok(Duration::from_millis(ticks.sum::<Result<u64, _>>()? * 10))
}

fn control(port: u16) -> Done<Control> {
    let settings = RedisSettings {
        servers: format!("redis://127.0.0.1:{port}").parse()?,
        timeout: Duration::from_millis(10),
        key_prefix: String::new(),
        ca_certificate: None,
        client_certificate: None,
        samples_servers: false,
    };
    Ok(Control::redis(RulesSource::Directory, &settings)?)
}

/// An instance that reconciles itself with the store.
struct Instance {
    control: Control,
    status: RulesStatus,
    snapshot: Arc<Snapshot>,
    _reconciler: Reconciler,
}

impl Instance {
    fn start(control: Control) -> Done<Self> {
        let (snapshot, status) = (Arc::new(Snapshot::default()), RulesStatus::default());
        let file = ("rules.yaml".to_owned(), RULES.as_bytes().to_vec());
        snapshot.replace(Arc::new(config::load_files([file], config::Options::default())?.rules));
        let target = Arc::<Snapshot>::clone(&snapshot);
        let reconciler = Reconciler::start(&control, status.clone(), target, None, Vec::new);
        Ok(Self { control, status, snapshot, _reconciler: reconciler })
    }

    fn held(&self) -> usize {
        let counts = self.control.records(&RecordSelection::default()).counts;
        counts.get(&RecordKind::Override).copied().unwrap_or_default()
    }
}

/// Waits until all instances enforce the last of these records.
async fn enforced(instances: &[Instance], views: impl Iterator<Item = &RecordView>) -> Done {
    let revision = views.map(|view| view.revision).max().unwrap_or_default();
    let is_enforced = |instance: &Instance| instance.status.now().generation >= revision;
    let all = async {
        while !instances.iter().all(is_enforced) {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(LOSS_TIMEOUT, all).await.map_err(|_| "an instance does not enforce a change: lost".into())
}

/// An override with texts as operators write them. Ten share a reason, and every other one has an end.
fn put(number: usize, limit: usize) -> (Record, Option<u64>) {
    let (ticket, key) = (number / 10, (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let entry = OverrideEntry {
        domain: "payments".into(),
        rule: "api_key".into(),
        descriptor: vec![Pair { key: "api_key".into(), value: format!("key_live_{key:016x}") }],
        rate_limit: iter::once(("requests_per_unit".to_owned(), (100 + limit % 20 * 50).into())).collect(),
        reason: format!("higher plan of customer {ticket:05}, see OPS-{}", 4_000 + ticket),
        author: if number.is_multiple_of(3) { "billing-sync" } else { "ada.lovelace@example.com" }.into(),
        created_at_ms: now_ms(),
        expires_at_ms: number.is_multiple_of(2).then(|| now_ms() + 30 * 86_400_000),
    };
    (Record::Override(entry), None)
}

fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() - 1) * percent / 100).copied().unwrap_or_default();
    println!("{name}: median {:.1?}, p99 {:.1?}, maximum {:.1?}", at(50), at(99), at(100));
}

async fn propagation(count: usize) -> Done {
    let server = Server::start().await?;
    let instances = server.instances(count).await?;
    let [mut acknowledged, mut enforced_by_all] = [const { Vec::new() }; 2];
    for number in 0..PROPAGATED {
        let instance = fastrand::choice(&instances).ok_or("no instances")?;
        let begun = Instant::now();
        let views = instance.control.put_records(vec![put(number, number)]).await?;
        acknowledged.push(begun.elapsed());
        let replied = Instant::now();
        enforced(&instances, views.iter()).await?;
        enforced_by_all.push(replied.elapsed());
        sleep(Duration::from_millis(fastrand::u64(200..1_200))).await;
    }
    print_times("put to its acknowledgement", acknowledged);
    print_times("acknowledgement to the last instance that enforces it", enforced_by_all);
    Ok(())
}

async fn start(count: usize) -> Done {
    let server = Server::start().await?;
    // Loads the script, whose memory is not that of records.
    control(server.port)?.put_records(vec![put(count, 0)]).await?;
    server.reply(&["FLUSHALL"])?;
    let before = server.used_memory()?;
    control(server.port)?.put_records((0..count).map(|number| put(number, number)).collect()).await?;
    println!("{} bytes of Redis, of which", server.used_memory()? - before);
    for key in server.reply(&["--scan"])?.lines() {
        println!("  {key}: {}", server.reply(&["MEMORY", "USAGE", key, "SAMPLES", "0"])?.trim());
    }
    let file = server.directory.path().join("records");
    for (name, files) in [("Redis", 0), ("Redis, with a new file", 1), ("the file", 1)] {
        let before = server.cpu()?;
        println!("start from {name}");
        let mut child = Command::new(env::current_exe()?);
        child.args(["open".into(), server.port.to_string(), count.to_string()]);
        if !child.args(iter::repeat_n(&file, files)).status()?.success() {
            return Err("a start failed".into());
        }
        println!("  CPU of Redis: {:.1?}", server.cpu()? - before);
    }
    println!("{} bytes of the file", fs::metadata(file)?.len());
    Ok(())
}

/// Starts an instance with records that the store or its file has, in a process of its own.
async fn open(port: u16, count: usize, file: Option<PathBuf>) -> Done {
    let resident = || number(&fs::read_to_string("/proc/self/status")?, "VmRSS:");
    let (before, begun, control) = (resident()?, Instant::now(), control(port)?);
    if let Some(file) = file {
        control.open_records(file)?;
        println!("  file read after {:.1?}", begun.elapsed());
    }
    let instance = Instance::start(control)?;
    while instance.held() < count {
        sleep(POLL_INTERVAL).await;
    }
    println!("  all held after {:.1?}", begun.elapsed());
    while instance.snapshot.overridden_counts().keys < count {
        sleep(POLL_INTERVAL).await;
    }
    println!("  all enforced after {:.1?}, with {:.1?} of CPU", begun.elapsed(), cpu("self")?);
    sleep(SETTLE_TIME).await;
    println!("  {} resident bytes of each record", (resident()? - before) * 1_024 / count as u64);
    Ok(())
}

/// Changes `count` records in turn, by puts of `batch`.
async fn changes(batch: usize, count: usize) -> Done {
    let server = Server::start().await?;
    let instances = server.instances(CHANGING_INSTANCES).await?;
    let before = [server.cpu()?, cpu("self")?];
    let mut ticks = interval(Duration::from_secs(1) * batch as u32 / CHANGES_PER_SECOND as u32);
    let (mut puts, steps) = (JoinSet::new(), CHANGES_PERIOD.as_secs() as usize * CHANGES_PER_SECOND / batch);
    for (step, instance) in (0..steps).zip(instances.iter().cycle()) {
        let due = ticks.tick().await;
        let control = instance.control.clone();
        puts.spawn(async move {
            let records = (0..batch).map(|at| put((step * batch + at) % count, step)).collect();
            let views = control.put_records(records).await;
            (due.elapsed(), views)
        });
    }
    let (mut times, mut latest) = (Vec::new(), HashMap::new());
    while let Some(put) = puts.join_next().await {
        let (took, views) = put?;
        times.push(took);
        for view in views? {
            let known = latest.entry(view.key).or_insert_with(|| view.clone());
            if known.revision < view.revision {
                *known = view;
            }
        }
    }
    enforced(&instances, latest.values()).await?;
    print_times("put to its acknowledgement", times);
    println!("CPU of Redis: {:.1?}", server.cpu()? - before[0]);
    println!("CPU of {CHANGING_INSTANCES} instances: {:.1?}", cpu("self")? - before[1]);
    for instance in &instances {
        let selection = RecordSelection { limit: count, ..RecordSelection::default() };
        let views = instance.control.records(&selection).records;
        if latest != views.into_iter().map(|view| (view.key, view)).collect() {
            return Err("an instance does not hold all that was acknowledged: lost".into());
        }
        let audit = instance.control.audit(None, MAX_AUDIT_ENTRIES).await?;
        if audit.len() != steps.min(MAX_AUDIT_ENTRIES) {
            return Err(format!("{} entries of the audit log for {steps} puts", audit.len()).into());
        }
    }
    println!("all {} records are held by all instances, and the audit log is complete", latest.len());
    Ok(())
}

fn main() -> Done {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        match *words {
            ["propagation", instances] => propagation(instances.parse()?).await,
            ["start", records] => start(records.parse()?).await,
            ["changes", batch, records] => changes(batch.parse()?, records.parse()?).await,
            ["open", port, records] => open(port.parse()?, records.parse()?, None).await,
            ["open", port, records, file] => open(port.parse()?, records.parse()?, Some(file.into())).await,
            _ => Err("expected `propagation INSTANCES`, `start RECORDS` or `changes BATCH RECORDS`".into()),
        }
    })
}
