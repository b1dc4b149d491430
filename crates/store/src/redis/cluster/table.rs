//! Owners of slots, and connections to nodes.

use std::sync::Arc;

use super::slots::{Range, SLOTS};
use crate::redis::batch::{Batcher, RequestOptions};
use crate::redis::{connect::ConnectTemplate, script::CommandKeys, targets::Target, url::Address};

/// Maximum number of nodes that only redirections name, until the next refresh lists or drops them. A failover or a
/// migration names a few; a node that names others without end would lead to a connection to each.
const MAX_UNLISTED_NODES: usize = 16;

/// Marks a slot without an owner.
const NO_OWNER: u16 = u16::MAX;

/// The owners of the slots, and the nodes.
pub(super) struct SlotTable {
    template: ConnectTemplate,
    options: RequestOptions,
    /// For each slot, the index of its owner among the nodes.
    owners: Vec<u16>,
    nodes: Vec<Node>,
}

struct Node {
    address: Address,
    /// Opened when the node becomes a master, or on first use.
    server: Option<Arc<Batcher>>,
    is_master: bool,
    /// Whether the last refresh listed it as a master.
    is_listed: bool,
    /// Whether it was used since the last refresh.
    is_used: bool,
}

/// A node, with a handle on its batcher.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) node: Address,
    pub(super) server: Arc<Batcher>,
}

impl SlotTable {
    pub(super) fn new(template: ConnectTemplate, options: RequestOptions) -> Self {
        Self { template, options, owners: vec![NO_OWNER; SLOTS], nodes: Vec::new() }
    }

    /// The route to the owner of a slot, if any.
    pub(super) fn owner(&mut self, slot: u16) -> Option<Route> {
        let owner = *self.owners.get(usize::from(slot))?;
        let node = self.nodes.get_mut(usize::from(owner))?;
        node.route(&self.template, &self.options)
    }

    /// The batcher of the owner of a slot, if it has been opened.
    pub(super) fn server(&mut self, slot: u16) -> Option<&Batcher> {
        let owner = *self.owners.get(usize::from(slot))?;
        let node = self.nodes.get_mut(usize::from(owner))?;
        node.is_used = true;
        node.server.as_deref()
    }

    /// The route to a node, unless too many others were named since the last refresh.
    pub(super) fn node(&mut self, address: &Address) -> Option<Route> {
        let index = self.redirected(address)?;
        self.nodes.get_mut(usize::from(index))?.route(&self.template, &self.options)
    }

    /// Records a new owner of a slot, unless too many others were named since the last refresh.
    pub(super) fn set_owner(&mut self, slot: u16, owner: &Address) {
        let Some(index) = self.redirected(owner) else { return };
        if let Some(node) = self.nodes.get_mut(usize::from(index)) {
            node.is_master = true;
        }
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = index;
        }
    }

    /// Replaces all owners after a refresh. Drops nodes that are no longer masters and were not used since the last
    /// refresh; a node in use may be about to get its first slot.
    pub(super) fn replace(&mut self, ranges: &[Range]) {
        self.nodes.retain_mut(|node| {
            node.is_master = ranges.iter().any(|range| range.master == node.address);
            node.is_listed = node.is_master;
            let was_used = std::mem::take(&mut node.is_used);
            node.is_master || was_used
        });
        self.owners.fill(NO_OWNER);
        for range in ranges {
            let Some(index) = self.index(&range.master) else { continue };
            if let Some(node) = self.nodes.get_mut(usize::from(index)) {
                (node.is_master, node.is_listed) = (true, true);
            }
            let owners = self.owners.get_mut(usize::from(range.first)..=usize::from(range.last));
            owners.unwrap_or_default().fill(index);
        }
    }

    /// Connects to every master, so that no request has to wait for it.
    pub(super) fn connect(&mut self) {
        let Self { template, options, nodes, .. } = self;
        nodes.iter_mut().filter(|node| node.is_master).for_each(|node| drop(node.server(template, options)));
    }

    /// Whether every slot has an owner, and every owner is usable.
    pub(super) fn is_healthy(&self) -> bool {
        let is_lost =
            |node: &Node| node.is_master && node.server.as_ref().is_some_and(|found| !found.is_usable());
        !self.owners.contains(&NO_OWNER) && !self.nodes.iter().any(is_lost)
    }

    /// The nodes that are connected and responsive.
    pub(super) fn reachable(&self) -> Vec<Route> {
        let route = |node: &Node| {
            let server = node.server.clone().filter(|server| server.is_usable())?;
            Some(Route { node: node.address.clone(), server })
        };
        self.nodes.iter().filter_map(route).collect()
    }

    /// The addresses of all known nodes.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// The index of a node that a redirection names, which is added if absent and there is room.
    fn redirected(&mut self, address: &Address) -> Option<u16> {
        let has_room = || self.nodes.iter().filter(|node| !node.is_listed).count() < MAX_UNLISTED_NODES;
        if !self.nodes.iter().any(|node| node.address == *address) && !has_room() {
            return None;
        }
        self.index(address)
    }

    /// The index of a node, which is added if absent.
    fn index(&mut self, address: &Address) -> Option<u16> {
        let known = self.nodes.iter().position(|node| node.address == *address);
        let index =
            u16::try_from(known.unwrap_or(self.nodes.len())).ok().filter(|index| *index != NO_OWNER)?;
        if known.is_none() {
            let address = address.clone();
            self.nodes.push(Node {
                address,
                server: None,
                is_master: false,
                is_listed: false,
                is_used: false,
            });
        }
        Some(index)
    }
}

impl Node {
    fn route(&mut self, template: &ConnectTemplate, options: &RequestOptions) -> Option<Route> {
        self.is_used = true;
        Some(Route { node: self.address.clone(), server: self.server(template, options)? })
    }

    fn server(&mut self, template: &ConnectTemplate, options: &RequestOptions) -> Option<Arc<Batcher>> {
        match &self.server {
            Some(server) => Some(server.clone()),
            None => {
                let scripts = &[CommandKeys::OneSlot, CommandKeys::AnySlotOfNode];
                let target = Target::Server(Box::new(template.client(&self.address).ok()?), scripts);
                Some(self.server.insert(Batcher::open(target, options.clone())).clone())
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

    fn table(ranges: &[Range]) -> SlotTable {
        let mut table = SlotTable::new(
            ConnectTemplate::from_client(&Client::open("redis://localhost").expect("a URL")),
            RequestOptions::for_tests(),
        );
        table.replace(ranges);
        table
    }

    fn owner(table: &mut SlotTable, slot: u16) -> Option<u16> {
        table.owner(slot).map(|route| route.node.port)
    }

    #[tokio::test]
    async fn a_slot_has_its_latest_owner() {
        let mut table = table(&[range(0, 9, 1), range(10, 16_382, 2)]);
        assert_eq!((owner(&mut table, 9), owner(&mut table, 10)), (Some(1), Some(2)));
        assert_eq!(owner(&mut table, 16_383), None);
        assert!(!table.is_healthy());
        table.set_owner(9, &node(3));
        table.set_owner(16_383, &node(2));
        assert_eq!((owner(&mut table, 8), owner(&mut table, 9)), (Some(1), Some(3)));
        table.replace(&[range(0, 16_383, 4)]);
        assert!(table.is_healthy());
        assert_eq!((owner(&mut table, 0), owner(&mut table, 16_383)), (Some(4), Some(4)));
        // In use now, and not connected yet.
        assert!(!table.is_healthy());
    }

    #[tokio::test]
    async fn redirections_name_a_bounded_number_of_nodes_until_the_next_refresh() {
        let mut table = table(&[range(0, 16_383, 1)]);
        let most = u16::try_from(MAX_UNLISTED_NODES).expect("few");
        for port in 2..2 + most {
            assert!(table.node(&node(port)).is_some());
        }
        assert!(table.node(&node(9_000)).is_none());
        table.set_owner(7, &node(9_001));
        assert_eq!(owner(&mut table, 7), Some(1));
        // Those that are known remain usable.
        assert!(table.node(&node(2)).is_some());
        table.set_owner(7, &node(3));
        assert_eq!(owner(&mut table, 7), Some(3));
        // One is listed now, and the others are no longer used.
        table.replace(&[range(0, 8_191, 1), range(8_192, 16_383, 2)]);
        table.replace(&[range(0, 8_191, 1), range(8_192, 16_383, 2)]);
        assert_eq!(table.addresses(), [node(1), node(2)]);
        assert!(table.node(&node(9_000)).is_some());
    }

    #[tokio::test]
    async fn a_node_without_slots_and_use_is_dropped() {
        let mut table = table(&[range(0, 8_191, 1), range(8_192, 16_383, 2)]);
        // A node that is about to get its first slot.
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
