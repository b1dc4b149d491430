//! One limit over three regions: each has a Redis and a tollgate of its own, and links with delay, loss and partitions to
//! the others.

mod costs;
mod limits;
mod measurement;
mod primary;
mod rules;
mod traffic;

use std::fmt::Write as _;

use futures_util::future::join_all;

use crate::support::wan::{Conditions, Link};
use crate::support::{prelude::*, tollgate::rules as rules_directory};

const NAMES: [&str; 3] = ["ap-south", "eu-west", "us-east"];

/// Round trip times between the regions, as in measurements.
const ROUND_TRIPS: [(usize, usize, u64); 3] = [(0, 1, 140), (1, 2, 80), (0, 2, 200)];

/// Requests that are sent at once.
const AT_ONCE: usize = 10;

/// Connections between the regions.
#[derive(Clone, Copy, Debug)]
struct Network {
    /// Multiplies [`ROUND_TRIPS`].
    round_trips: f64,
    loss: f64,
}

impl Network {
    /// Regions beside each other, for tests that do not measure.
    const NEAR: Self = Self { round_trips: 0.05, loss: 0.0 };
    /// Three continents.
    const FAR: Self = Self { round_trips: 1.0, loss: 0.001 };
}

/// A region.
#[derive(Debug)]
struct Region {
    redis: Redis,
    tollgate: Option<Tollgate>,
    port: u16,
    /// Certificate, key, authority, and the table as this region reaches the others.
    directory: PathBuf,
}

/// A region in the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    weight: u32,
    is_lost: bool,
}

/// Three regions.
#[derive(Debug)]
struct World {
    _directory: TempDir,
    rules: TempDir,
    /// More arguments of every instance.
    arguments: Vec<String>,
    regions: Vec<Region>,
    /// From one region to another.
    links: BTreeMap<(usize, usize), Link>,
    rows: [Row; 3],
    generation: u64,
    /// Region that writes the rules.
    writing: Option<usize>,
    /// Region that decides limits with `scope: primary`.
    primary: Option<usize>,
}

/// Regions that do something for all.
#[derive(Clone, Copy, Debug, Default)]
struct Roles {
    writing: Option<usize>,
    primary: Option<usize>,
}

impl World {
    /// Starts the regions, and waits until they reach each other.
    fn start(yaml: &str, network: Network, arguments: &[&str], writing: Option<usize>) -> Self {
        Self::start_with(yaml, network, arguments, Roles { writing, primary: None })
    }

    fn start_with(
        yaml: &str,
        network: Network,
        arguments: &[&str],
        Roles { writing, primary }: Roles,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new("regions");
        let regions = NAMES.map(|name| {
            let place = directory.path().join(name);
            fs::create_dir(&place).expect("writable");
            authority.sign(&[&host(name)]).write(&place);
            fs::write(place.join("ca.pem"), authority.pem()).expect("writable");
            Region { redis: Redis::start(), tollgate: None, port: free_port(), directory: place }
        });
        let mut links = BTreeMap::new();
        for (one, other, millis) in ROUND_TRIPS {
            let delay = Duration::from_millis(millis).mul_f64(network.round_trips / 2.0);
            let conditions = Conditions { delay, loss: network.loss, is_cut: false };
            for (from, to) in [(one, other), (other, one)] {
                links.insert((from, to), Link::to(regions[to].port, conditions));
            }
        }
        let mut world = Self {
            _directory: directory,
            rules: rules_directory(yaml),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            regions: regions.into(),
            links,
            rows: [Row { weight: 1, is_lost: false }; 3],
            generation: 1,
            writing,
            primary,
        };
        world.write_table();
        (0..NAMES.len()).for_each(|region| world.launch(region));
        world.wait_until_connected();
        world
    }

    /// Starts the instance of a region.
    fn launch(&mut self, region: usize) {
        let Region { redis, port, directory, .. } = &self.regions[region];
        let file = |name: &str| directory.join(name).display().to_string();
        let mut arguments =
            vec!["--store".to_owned(), redis.url(), "--store-timeout".to_owned(), "20s".to_owned()];
        let values = [
            ("--region", NAMES[region].to_owned()),
            ("--regions", file("regions.yaml")),
            ("--region-address", format!("127.0.0.1:{port}")),
            ("--region-tls", ["cert.pem", "key.pem", "ca.pem"].map(file).join(",")),
        ];
        arguments.extend(values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        arguments.extend(self.arguments.iter().cloned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.regions[region].tollgate = Some(Tollgate::start(self.rules.path(), &arguments));
    }

    /// Ends the instance of a region, and its Redis loses everything.
    fn kill(&mut self, region: usize) {
        self.regions[region].tollgate = None;
        self.regions[region].redis.restart_after(Duration::ZERO);
    }

    /// Writes the next generation of the table to all regions.
    fn change_table(&mut self, change: impl FnOnce(&mut [Row; 3])) {
        change(&mut self.rows);
        self.generation += 1;
        self.write_table();
    }

    /// Writes the table for each region: it reaches the others through its links.
    fn write_table(&self) {
        for (from, region) in self.regions.iter().enumerate() {
            let mut table = format!("generation: {}\n", self.generation);
            if let Some(writing) = self.writing {
                let _ = writeln!(table, "rules: {}", NAMES[writing]);
            }
            if let Some(primary) = self.primary {
                let _ = writeln!(table, "primary: {}", NAMES[primary]);
            }
            table.push_str("regions:\n");
            for (to, (name, Row { weight, is_lost })) in NAMES.iter().zip(self.rows).enumerate() {
                let port = self.links.get(&(from, to)).map_or(region.port, Link::port);
                let _ = writeln!(
                    table,
                    "  {name}: {{address: 'https://127.0.0.1:{port}', certificate_name: {}, weight: {weight}, \
                     lost: {is_lost}}}",
                    host(name)
                );
            }
            // At once, as a ConfigMap changes.
            let (new, file) = (region.directory.join("new.yaml"), region.directory.join("regions.yaml"));
            fs::write(&new, table).expect("writable");
            fs::rename(new, file).expect("writable");
        }
    }

    fn tollgate(&self, region: usize) -> &Tollgate {
        self.regions[region].tollgate.as_ref().expect("it runs")
    }

    /// The regions whose instance runs.
    fn running(&self) -> Vec<usize> {
        let is_running = |region: &usize| self.regions[*region].tollgate.is_some();
        (0..self.regions.len()).filter(is_running).collect()
    }

    async fn clients(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for region in self.running() {
            clients.push(self.tollgate(region).client().await);
        }
        clients
    }

    /// The state of the regions as one of them has it.
    fn view(&self, region: usize) -> Value {
        self.tollgate(region).api("/regions")
    }

    /// State of another region as a region has it.
    fn peer(&self, region: usize, other: usize) -> Value {
        let view = self.view(region);
        let rows = view["regions"].as_array().expect("a list").iter();
        let mut rows = rows.filter(|row| row["name"] == NAMES[other]);
        rows.next().expect("in the table").clone()
    }

    /// Cuts a region off from the others, or heals that.
    fn set_cut_off(&self, region: usize, is_cut: bool) {
        for ((from, to), link) in &self.links {
            if *from == region || *to == region {
                link.set_cut(is_cut);
            }
        }
    }

    /// Whether running regions that are not lost reach each other, and the weights of the last table decide.
    fn is_connected(&self) -> bool {
        let running = self.running();
        running.iter().all(|region| {
            let view = self.view(*region);
            let others = running.iter().filter(|other| *other != region && !self.rows[**other].is_lost);
            view["generation"] == self.generation
                && view["unfinished_changes"] == 0
                && view["waiting_for"].as_array().is_some_and(Vec::is_empty)
                && others.into_iter().all(|other| self.peer(*region, *other)["up"] == true)
        })
    }

    fn wait_until_connected(&self) {
        wait("the regions do not reach each other", || self.is_connected());
    }

    /// Waits until a region misses another one.
    fn wait_until_missed(&self, region: usize, other: usize) {
        wait("a region that is cut off is not missed", || self.peer(region, other)["up"] == false);
    }

    /// The sum of a metric's series over all regions.
    fn metric(&self, name: &str) -> f64 {
        self.running().into_iter().filter_map(|region| self.tollgate(region).sum_of(name)).sum()
    }
}

/// The name in a region's certificate.
fn host(region: &str) -> String {
    format!("{region}.regions.example")
}

/// Sends requests of one hit, some at a time, and counts those that pass.
async fn admitted(client: &Client, key: &str, value: &str, requests: usize) -> usize {
    let mut admitted = 0;
    for begun in (0..requests).step_by(AT_ONCE) {
        let passes = (begun..requests.min(begun + AT_ONCE)).map(async |_| {
            let mut client = client.clone();
            client.passes("web", &[(key, value)]).await
        });
        admitted += join_all(passes).await.into_iter().filter(|passes| *passes).count();
    }
    admitted
}
