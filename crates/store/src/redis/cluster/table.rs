//! Which node has which slot, and the connections to the nodes.

use super::slots::{Range, SLOTS};
use crate::redis::{
    address::Address,
    batch::{Batcher, Terms},
    connect::ConnectTemplate,
    target::Target,
};

/// Stands for the absence of an owner.
const NOBODY: u16 = u16::MAX;

/// The slots' owners, and the nodes.
pub(super) struct Table {
    access: ConnectTemplate,
    terms: Terms,
    /// For each slot, its owner's place among the nodes.
    owners: Vec<u16>,
    nodes: Vec<Node>,
}

struct Node {
    address: Address,
    /// Opened when the node is known as a master, or first used.
    server: Option<Batcher>,
    is_master: bool,
    /// Whether it was used since the slots were read.
    is_used: bool,
}

/// A node, and a handle on the way to it.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) node: Address,
    pub(super) server: Batcher,
}

impl Table {
    pub(super) fn new(access: ConnectTemplate, terms: Terms) -> Self {
        Self { access, terms, owners: vec![NOBODY; SLOTS], nodes: Vec::new() }
    }

    /// The way to the owner of a slot, if it has one.
    pub(super) fn owner(&mut self, slot: u16) -> Option<Route> {
        let owner = *self.owners.get(usize::from(slot))?;
        let node = self.nodes.get_mut(usize::from(owner))?;
        node.route(&self.access, &self.terms)
    }

    /// The way to a node.
    pub(super) fn node(&mut self, address: &Address) -> Option<Route> {
        let place = self.place(address)?;
        self.nodes.get_mut(usize::from(place))?.route(&self.access, &self.terms)
    }

    /// Notes that a slot has another owner.
    pub(super) fn note_owner(&mut self, slot: u16, owner: &Address) {
        let Some(place) = self.place(owner) else { return };
        if let Some(node) = self.nodes.get_mut(usize::from(place)) {
            node.is_master = true;
        }
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = place;
        }
    }

    /// Takes over the slots as they were read. A node that is no master any more, nor was used since the last
    /// time, is left; one that was used may be about to get its first slot.
    pub(super) fn replace(&mut self, ranges: &[Range]) {
        self.nodes.retain_mut(|node| {
            node.is_master = ranges.iter().any(|range| range.master == node.address);
            let was_used = std::mem::take(&mut node.is_used);
            node.is_master || was_used
        });
        self.owners.fill(NOBODY);
        for range in ranges {
            let Some(place) = self.place(&range.master) else { continue };
            if let Some(node) = self.nodes.get_mut(usize::from(place)) {
                node.is_master = true;
            }
            let owners = self.owners.get_mut(usize::from(range.first)..=usize::from(range.last));
            owners.unwrap_or_default().fill(place);
        }
    }

    /// Connects to every master, so that no call has to wait for it.
    pub(super) fn connect(&mut self) {
        let Self { access, terms, nodes, .. } = self;
        nodes.iter_mut().filter(|node| node.is_master).for_each(|node| drop(node.server(access, terms)));
    }

    /// Whether every slot has an owner, and no owner is out of reach.
    pub(super) fn is_sound(&self) -> bool {
        let is_lost =
            |node: &Node| node.is_master && node.server.as_ref().is_some_and(|found| !found.is_usable());
        !self.owners.contains(&NOBODY) && !self.nodes.iter().any(is_lost)
    }

    /// The nodes to which there is a connection now, and which are not silent.
    pub(super) fn reachable(&self) -> Vec<Route> {
        let route = |node: &Node| {
            let server = node.server.clone().filter(Batcher::is_usable)?;
            Some(Route { node: node.address.clone(), server })
        };
        self.nodes.iter().filter_map(route).collect()
    }

    /// Every known node.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// A node's place; it gets one if it has none.
    fn place(&mut self, address: &Address) -> Option<u16> {
        let known = self.nodes.iter().position(|node| node.address == *address);
        let place = u16::try_from(known.unwrap_or(self.nodes.len())).ok().filter(|place| *place != NOBODY)?;
        if known.is_none() {
            let address = address.clone();
            self.nodes.push(Node { address, server: None, is_master: false, is_used: false });
        }
        Some(place)
    }
}

impl Node {
    fn route(&mut self, access: &ConnectTemplate, terms: &Terms) -> Option<Route> {
        self.is_used = true;
        Some(Route { node: self.address.clone(), server: self.server(access, terms)? })
    }

    fn server(&mut self, access: &ConnectTemplate, terms: &Terms) -> Option<Batcher> {
        match &self.server {
            Some(server) => Some(server.clone()),
            None => {
                let target = Target::Fixed(Box::new(access.client(&self.address).ok()?));
                Some(self.server.insert(Batcher::open(target, terms.clone())).clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::Client;

    use super::*;

    fn node(port: u16) -> Address {
        Address::new("127.0.0.1", port)
    }

    fn range(first: u16, last: u16, port: u16) -> Range {
        Range { first, last, master: node(port) }
    }

    fn table(ranges: &[Range]) -> Table {
        let mut table = Table::new(
            ConnectTemplate::from_client(&Client::open("redis://localhost").expect("a URL")),
            Terms::for_tests(),
        );
        table.replace(ranges);
        table
    }

    fn owner(table: &mut Table, slot: u16) -> Option<u16> {
        table.owner(slot).map(|route| route.node.port)
    }

    #[tokio::test]
    async fn a_slot_has_the_owner_that_was_noted_last() {
        let mut table = table(&[range(0, 9, 1), range(10, 16_382, 2)]);
        assert_eq!((owner(&mut table, 9), owner(&mut table, 10)), (Some(1), Some(2)));
        assert_eq!(owner(&mut table, 16_383), None);
        assert!(!table.is_sound());
        table.note_owner(9, &node(3));
        table.note_owner(16_383, &node(2));
        assert_eq!((owner(&mut table, 8), owner(&mut table, 9)), (Some(1), Some(3)));
        table.replace(&[range(0, 16_383, 4)]);
        assert!(table.is_sound());
        assert_eq!((owner(&mut table, 0), owner(&mut table, 16_383)), (Some(4), Some(4)));
        // It is used now, and there is no connection yet.
        assert!(!table.is_sound());
    }

    #[tokio::test]
    async fn a_node_is_left_when_it_has_no_slots_and_no_use() {
        let mut table = table(&[range(0, 8_191, 1), range(8_192, 16_383, 2)]);
        // One that is about to get its first slot.
        assert!(table.node(&node(3)).is_some());
        assert_eq!(owner(&mut table, 0), Some(1));
        let all = [range(0, 16_383, 2)];
        table.replace(&all);
        assert_eq!(table.addresses(), [node(1), node(2), node(3)]);
        assert!(table.node(&node(3)).is_some());
        table.replace(&all);
        assert_eq!(table.addresses(), [node(2), node(3)]);
        table.replace(&all);
        assert_eq!(table.addresses(), [node(2)]);
        assert_eq!(owner(&mut table, 0), Some(2));
    }
}
