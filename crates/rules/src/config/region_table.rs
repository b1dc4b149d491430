//! Regions that enforce limits together, as an operator states them in a file.

use std::{fmt::Display, rc::Rc};

use tollgate_loans::shares::{RegionWeight, RegionWeights};
use tollgate_loans::table::MAX_REGIONS;

use super::problem::{Path, Problems, Report};
use super::raw::{Field, Stated};
use super::yaml::{Content, Layer, Node, Position};
use super::{reader::Reader, vocabulary::nearest};

/// Regions of one generation, in the order of their names. Valid by construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionTable {
    generation: u64,
    writing: Option<Box<str>>,
    primary: Option<Box<str>>,
    regions: Box<[RegionEntry]>,
}

/// A region of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// Name: 1 to 63 of `a-z`, `0-9` and `-`.
    pub name: Box<str>,
    /// URL of the service between regions: `https://host:port`.
    pub address: Box<str>,
    /// DNS name in the certificates of the region's instances.
    pub certificate_name: Box<str>,
    /// Part of every global limit, 1 to 1,000.
    pub weight: u32,
    /// Whether an operator has given the region up: it has no share, and no change of weights waits for it.
    pub is_lost: bool,
}

impl RegionTable {
    /// The generation: a later table has a higher one.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The region whose rule versions and records all others copy; `None` if each region has its own.
    pub fn writing(&self) -> Option<&str> {
        self.writing.as_deref()
    }

    /// The region that decides limits with `scope: primary` for all, if the table names one.
    pub fn primary(&self) -> Option<&str> {
        self.primary.as_deref()
    }

    /// The regions.
    pub fn regions(&self) -> &[RegionEntry] {
        &self.regions
    }

    /// The region of that name.
    pub fn region(&self, name: &str) -> Option<&RegionEntry> {
        self.regions.iter().find(|region| &*region.name == name)
    }

    /// Number of regions that have a share.
    pub fn sharing(&self) -> usize {
        self.regions.iter().filter(|region| !region.is_lost).count()
    }

    /// The weights as the region `own` has them; `None` if the table lacks it.
    pub fn weights(&self, own: &str) -> Option<RegionWeights> {
        let weights = self.regions.iter().map(|region| RegionWeight {
            name: region.name.clone(),
            weight: if region.is_lost { 0 } else { region.weight },
        });
        RegionWeights::new(weights, own)
    }
}

const FILE_KEYS: [&str; 4] = ["generation", "rules", "primary", "regions"];
const REGION_KEYS: [&str; 4] = ["address", "weight", "lost", "certificate_name"];

/// Maximum weight of a region.
const MAX_WEIGHT: u32 = 1_000;

/// Maximum length of a region's name, as of a label of a DNS name.
const MAX_NAME_BYTES: usize = 63;

/// Reads a region table from the file `name`.
///
/// # Errors
/// All problems, with their lines.
pub fn read_regions(name: &str, bytes: &[u8]) -> Result<RegionTable, Report> {
    let mut problems = Problems::new(true);
    let mut reader = TableReader(Reader { file: name, problems: &mut problems });
    let table = match reader.0.root(bytes, Layer::BASE) {
        Some(Some(root)) => reader.table(&root),
        Some(None) => {
            reader.refuse(Position::WHOLE, &Path::Root, "is empty; expected generation and regions")
        }
        None => None,
    };
    let report = problems.finish()?;
    table.ok_or(report)
}

/// Reader of the keys of a region table.
struct TableReader<'a>(Reader<'a>);

impl TableReader<'_> {
    fn table(&mut self, root: &Node) -> Option<RegionTable> {
        let path = Path::Root;
        let (mut generation, mut regions) = (Field::Absent, None);
        let (mut writing, mut primary) = (Field::Absent, Field::Absent);
        self.each_of(root, &path, &FILE_KEYS, |reader, key, value, path| match key {
            "generation" => generation = reader.0.number(value, path),
            "rules" => writing = reader.0.text(value, path),
            "primary" => primary = reader.0.text(value, path),
            _ => regions = Some((value.at, reader.regions(value, path))),
        })?;
        let generation = match generation {
            Field::Stated(Stated { value: value @ 1.., .. }) => Some(value),
            Field::Stated(Stated { at, .. }) => {
                self.refuse(at, &path.key("generation"), "is 0; expected 1 to 4294967295")
            }
            Field::Invalid => None,
            Field::Absent => {
                let message = "is missing; expected a number that is higher with each change of the table";
                self.refuse(root.at, &path.key("generation"), message)
            }
        };
        let Some((at, regions)) = regions else {
            return self.refuse(root.at, &path.key("regions"), "is missing; expected the regions by name");
        };
        let mut regions = regions?;
        let path = path.key("regions");
        if regions.len() > MAX_REGIONS {
            return self.refuse(at, &path, format!("has too many regions; expected at most {MAX_REGIONS}"));
        }
        if regions.iter().all(|region| region.is_lost) {
            return self.refuse(at, &path, "has no region that is not lost; expected at least one");
        }
        let writing = self.role("rules", &writing, &regions, |_| true);
        let primary = self.role("primary", &primary, &regions, |region| !region.is_lost);
        regions.sort_by(|one, next| one.name.cmp(&next.name));
        let generation = generation?.into();
        Some(RegionTable { generation, writing: writing?, primary: primary?, regions: regions.into() })
    }

    /// Region with the role that `key` states; the outer `None` if it is invalid.
    fn role(
        &mut self,
        key: &str,
        field: &Field<Rc<str>>,
        regions: &[RegionEntry],
        is_allowed: impl Fn(&RegionEntry) -> bool,
    ) -> Option<Option<Box<str>>> {
        let Some(stated) = field.valid()? else { return Some(None) };
        let message = match regions.iter().find(|region| *region.name == *stated.value) {
            Some(region) if is_allowed(region) => return Some(Some(region.name.clone())),
            Some(_) => format!("is `{}`, which is lost; expected a region that is not", stated.value),
            None => format!("is `{}`; expected the name of one of the regions", stated.value),
        };
        self.refuse(stated.at, &Path::Root.key(key), message)
    }

    fn regions(&mut self, node: &Node, path: &Path<'_>) -> Option<Vec<RegionEntry>> {
        let Content::Map(pairs) = &node.content else {
            self.0.wrong_type(node, path, "a mapping of regions by name");
            return None;
        };
        let mut regions = Vec::new();
        for (key, value) in pairs {
            if self.0.problems.is_full() {
                return None;
            }
            let Some(name) = self.0.key(key, path) else { continue };
            let path = path.key(&name);
            let is_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
                let message =
                    format!("is not a name of a region; expected 1 to {MAX_NAME_BYTES} of a-z, 0-9 and -");
                self.refuse::<()>(key.at, &path, message);
            }
            regions.push(self.region(&name, value, &path));
        }
        regions.into_iter().collect()
    }

    fn region(&mut self, name: &str, node: &Node, path: &Path<'_>) -> Option<RegionEntry> {
        let (mut address, mut weight) = (Field::Absent, Field::Absent);
        let (mut lost, mut certificate_name) = (Field::Absent, Field::Absent);
        self.each_of(node, path, &REGION_KEYS, |reader, key, value, path| match key {
            "address" => address = reader.0.text(value, path),
            "weight" => weight = reader.0.number(value, path),
            "lost" => lost = reader.0.flag(value, path),
            _ => certificate_name = reader.0.text(value, path),
        })?;
        let weight = match weight {
            Field::Absent => Some(1),
            Field::Invalid => None,
            Field::Stated(Stated { value: weight @ 1..=MAX_WEIGHT, .. }) => Some(weight),
            Field::Stated(Stated { at, value }) => {
                let message = format!("is {value}; expected 1 to {MAX_WEIGHT}");
                self.refuse(at, &path.key("weight"), message)
            }
        };
        let (address, host) = self.address(node, &address, path)?;
        let certificate_name = match &certificate_name {
            Field::Absent => host,
            Field::Invalid => return None,
            Field::Stated(name) if name.value.is_empty() => {
                let message = "is empty; expected a DNS name in the certificates of the region";
                return self.refuse(name.at, &path.key("certificate_name"), message);
            }
            Field::Stated(name) => (*name.value).into(),
        };
        let is_lost = lost.valid()?.is_some_and(|lost| lost.value);
        Some(RegionEntry { name: name.into(), address, certificate_name, weight: weight?, is_lost })
    }

    /// The address of a region, and its host.
    fn address(
        &mut self,
        node: &Node,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<(Box<str>, Box<str>)> {
        let path = path.key("address");
        let stated = match field {
            Field::Invalid => return None,
            Field::Absent => return self.refuse(node.at, &path, "is missing; expected https://host:port"),
            Field::Stated(stated) => stated,
        };
        let authority = stated.value.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
        let parts = authority.and_then(|authority| authority.rsplit_once(':'));
        let is_valid = |(host, port): &(&str, &str)| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
            !host.is_empty() && host.bytes().all(allowed) && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        match parts.filter(is_valid) {
            Some((host, _)) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                Some(((*stated.value).into(), host.into()))
            }
            None => {
                self.refuse(stated.at, &path, "is not the address of a region; expected https://host:port")
            }
        }
    }

    /// Calls `read` for each of the `known` keys, and reports the others. `None` if there is no mapping.
    fn each_of(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        known: &[&'static str],
        mut read: impl FnMut(&mut Self, &str, &Node, &Path<'_>),
    ) -> Option<()> {
        let Content::Map(pairs) = &node.content else {
            self.0.wrong_type(node, path, "a mapping");
            return None;
        };
        for (key, value) in pairs {
            let Some(name) = self.0.key(key, path) else { continue };
            let path = path.key(&name);
            if known.contains(&&*name) {
                read(self, &name, value, &path);
                continue;
            }
            let message = match nearest(&name, known.iter().copied()) {
                Some(meant) => format!("unknown key; did you mean `{meant}`?"),
                None => format!("unknown key; expected one of {}", known.join(", ")),
            };
            self.refuse::<()>(key.at, &path, message);
        }
        Some(())
    }

    /// Reports an error, and returns `None`.
    fn refuse<T>(&mut self, at: Position, path: &Path<'_>, message: impl Display) -> Option<T> {
        self.0.problems.error(self.0.file, at, path, message);
        None
    }
}
