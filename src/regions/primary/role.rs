//! Which region is the primary one, and the change of it.
//!
//! An instance that starts has the last table alone. So the region's store has a record of the primary region: the
//! generation of the last table that an instance of the region had, the primary region by it, and whether it was confirmed
//! that no other region decides: `7 us-east confirmed`, or `pending`. Further words are ignored.

use tollgate_rules::RegionTable;
use tollgate_store::primary::{PrimaryCalls, PrimaryRole};

/// Role of the own region, and the calls to the primary region.
#[derive(Debug, Default)]
pub(in crate::regions) struct Primacy {
    /// Whether others may still call a former primary region, so that the own one does not decide.
    is_pending: bool,
    calls: Option<PrimaryCalls>,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recorded<'r> {
    generation: u64,
    primary: &'r str,
    is_confirmed: bool,
}

impl<'r> Recorded<'r> {
    /// Reads a record; `None` for `""`, and for one of a later version of this program.
    fn read(record: &'r str) -> Option<Self> {
        let mut words = record.split(' ');
        let (generation, primary) = (words.next()?.parse().ok()?, words.next()?);
        let is_confirmed = match words.next()? {
            "confirmed" => true,
            "pending" => false,
            _ => return None,
        };
        Some(Self { generation, primary, is_confirmed })
    }
}

impl Primacy {
    /// The role of an instance that starts, before it takes over the record of its region: there is no table before the
    /// first generation. `has_record` is whether there will be a record.
    pub(in crate::regions) fn start(own: &str, table: &RegionTable, has_record: bool) -> Self {
        let is_pending = has_record && table.primary() == Some(own) && table.generation() > 1;
        Self { is_pending, calls: None }
    }

    /// Takes over the record of the region, `""` for none: before decisions, and then regularly. Returns the one that has
    /// to replace it.
    ///
    /// The own region decides at once if it was confirmed by the active table, or by one that no other can have followed.
    /// An instance with an earlier table than the record's does not decide while another region may.
    pub(in crate::regions) fn take_over(
        &mut self,
        own: &str,
        table: &RegionTable,
        record: &str,
    ) -> Option<String> {
        let (known, generation) = (Recorded::read(record), table.generation());
        let is_later = |known: &Recorded<'_>| known.generation > generation;
        if let Some(known) = known
            && table.primary() == Some(own)
        {
            let is_own = known.primary == own && known.is_confirmed;
            let is_last = is_later(&known) || known.generation.saturating_add(1) >= generation;
            if is_own && is_last {
                self.is_pending = false;
            } else if is_later(&known) {
                self.is_pending = true;
            }
        }
        let is_readable = known.is_some() || record.is_empty();
        if !is_readable || known.as_ref().is_some_and(is_later) {
            return None;
        }
        let primary = table.primary()?;
        let state = if self.is_pending { "pending" } else { "confirmed" };
        let text = format!("{generation} {primary} {state}");
        (text != record).then_some(text)
    }

    /// Records the change from one table to another. A former primary region decides nothing more once it has the new
    /// table; the new one decides when all regions have it, so that at no time two regions decide. A table between the two
    /// that this instance has not read may have named another region, which may decide by it.
    pub(in crate::regions) fn change(&mut self, own: &str, former: &RegionTable, next: &RegionTable) {
        let is_other = |primary: &str| primary != own;
        let is_next = former.generation().saturating_add(1) >= next.generation();
        let is_new = !is_next || former.primary().is_some_and(is_other);
        self.is_pending = next.primary() == Some(own) && (self.is_pending || is_new);
    }

    /// Role of the region `own` by its active table.
    pub(in crate::regions) fn role(&self, own: &str, table: &RegionTable) -> PrimaryRole {
        match table.primary() {
            None => PrimaryRole::Absent,
            Some(primary) if primary != own => PrimaryRole::Other,
            Some(_) if self.is_pending => PrimaryRole::Pending,
            Some(_) => PrimaryRole::Own,
        }
    }

    /// Whether the own region waits for the others.
    pub(in crate::regions) const fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Records that no other region calls the former primary one.
    pub(in crate::regions) const fn succeed(&mut self) {
        self.is_pending = false;
    }

    /// Passes the role on to these calls, from the next [`Self::publish`] on.
    pub(in crate::regions) fn set_calls(&mut self, calls: PrimaryCalls) {
        self.calls = Some(calls);
    }

    /// Passes the role on to the stores.
    pub(in crate::regions) fn publish(&self, own: &str, table: &RegionTable) {
        if let Some(calls) = &self.calls {
            calls.set_role(self.role(own, table));
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_rules::config::read_regions;

    use super::*;

    fn table(generation: u32, primary: &str) -> RegionTable {
        let primary = if primary.is_empty() { String::new() } else { format!("primary: {primary}\n") };
        let text = format!(
            "generation: {generation}\n{primary}regions:\n  us: {{address: 'https://us:1'}}\n  \
             eu: {{address: 'https://eu:1'}}\n"
        );
        read_regions("regions.yaml", text.as_bytes()).expect("valid")
    }

    /// The role of an instance of `us` that starts with the table and the record of its region, and the next record.
    fn started((generation, primary): (u32, &str), record: &str) -> (PrimaryRole, Option<String>) {
        let table = table(generation, primary);
        let mut primacy = Primacy::start("us", &table, true);
        let next = primacy.take_over("us", &table, record);
        (primacy.role("us", &table), next)
    }

    #[test]
    fn an_instance_that_starts_decides_only_if_no_other_region_may() {
        use PrimaryRole::{Other, Own, Pending};
        for (stated, record, role) in [
            ((1, "us"), "", Own),
            ((2, "us"), "", Pending),
            ((2, "us"), "1 eu confirmed", Pending),
            ((2, "us"), "2 us pending", Pending),
            ((2, "us"), "2 us confirmed", Own),
            ((3, "us"), "2 us confirmed", Own),
            ((3, "us"), "2 us pending", Pending),
            // A table between them may have named another region.
            ((4, "us"), "2 us confirmed", Pending),
            ((3, "us"), "4 us confirmed", Own),
            ((3, "us"), "4 us pending", Pending),
            ((1, "us"), "2 eu confirmed", Pending),
            ((2, "us"), "2 us confirmed with a word of later versions", Own),
            ((2, "us"), "unreadable", Pending),
            ((2, "eu"), "1 us confirmed", Other),
        ] {
            assert_eq!(started(stated, record).0, role, "{stated:?} {record}");
        }
        let table = table(2, "us");
        assert_eq!(Primacy::start("us", &table, false).role("us", &table), Own, "no record is kept");
    }

    #[test]
    fn the_record_has_the_last_table_and_is_replaced_by_no_earlier_one() {
        for (stated, record, next) in [
            ((1, "us"), "", Some("1 us confirmed")),
            ((2, "us"), "1 eu confirmed", Some("2 us pending")),
            ((2, "eu"), "1 us confirmed", Some("2 eu confirmed")),
            ((2, "us"), "2 us pending", None),
            ((2, "us"), "2 us confirmed", None),
            ((2, "us"), "3 eu confirmed", None),
            ((2, "us"), "unreadable", None),
            ((2, ""), "", None),
        ] {
            assert_eq!(started(stated, record).1.as_deref(), next, "{stated:?} {record}");
        }
    }

    #[test]
    fn one_instance_confirms_the_role_for_all_of_its_region() {
        let (former, next) = (table(1, "eu"), table(2, "us"));
        let mut instances = [Primacy::default(), Primacy::default()];
        let mut record = "1 eu confirmed".to_owned();
        for instance in &mut instances {
            instance.change("us", &former, &next);
            record = instance.take_over("us", &next, &record).unwrap_or(record);
        }
        assert_eq!(record, "2 us pending");
        instances[0].succeed();
        let confirmed = instances[0].take_over("us", &next, &record).expect("a new record");
        assert_eq!(instances[1].role("us", &next), PrimaryRole::Pending);
        assert_eq!(instances[1].take_over("us", &next, &confirmed), None);
        assert_eq!(instances[1].role("us", &next), PrimaryRole::Own);
    }

    /// Roles of `us` while the tables name these primary regions, one after the other.
    fn roles(named: &[&str]) -> (Primacy, Vec<PrimaryRole>) {
        let (mut primacy, mut roles, mut active) = (Primacy::default(), Vec::new(), None);
        for (generation, primary) in (1..).zip(named) {
            let next = table(generation, primary);
            if let Some(former) = &active {
                primacy.change("us", former, &next);
            }
            roles.push(primacy.role("us", &next));
            active = Some(next);
        }
        (primacy, roles)
    }

    #[test]
    fn a_region_is_the_primary_one_at_start_if_the_table_names_it() {
        for (primary, role) in
            [("", PrimaryRole::Absent), ("eu", PrimaryRole::Other), ("us", PrimaryRole::Own)]
        {
            assert_eq!(roles(&[primary]).1, [role]);
        }
        let (_, roles) = roles(&["", "us"]);
        assert_eq!(roles[1], PrimaryRole::Own, "there was no former one");
    }

    #[test]
    fn a_region_that_becomes_the_primary_one_waits_until_no_other_calls_the_former_one() {
        let (mut primacy, roles) = roles(&["eu", "us", "us"]);
        assert_eq!(roles, [PrimaryRole::Other, PrimaryRole::Pending, PrimaryRole::Pending]);
        primacy.succeed();
        assert_eq!(primacy.role("us", &table(3, "us")), PrimaryRole::Own);
        primacy.change("us", &table(3, "us"), &table(4, "us"));
        assert_eq!(primacy.role("us", &table(4, "us")), PrimaryRole::Own);
        primacy.change("us", &table(4, "us"), &table(5, "eu"));
        assert_eq!(primacy.role("us", &table(5, "eu")), PrimaryRole::Other, "a former one ends at once");
    }

    #[test]
    fn an_instance_that_missed_a_table_waits_until_its_region_is_confirmed() {
        let (former, next) = (table(1, "us"), table(3, "us"));
        // The table between them named `eu`, and other instances of `us` had it or not.
        for (record, has_role) in [
            ("1 us confirmed", PrimaryRole::Pending),
            ("2 eu confirmed", PrimaryRole::Pending),
            ("3 us pending", PrimaryRole::Pending),
            ("2 us confirmed", PrimaryRole::Own),
            ("3 us confirmed", PrimaryRole::Own),
        ] {
            let mut primacy = Primacy::start("us", &former, true);
            primacy.take_over("us", &former, "1 us confirmed");
            assert_eq!(primacy.role("us", &former), PrimaryRole::Own);
            primacy.change("us", &former, &next);
            assert_eq!(primacy.role("us", &next), PrimaryRole::Pending, "at once");
            let written = primacy.take_over("us", &next, record).unwrap_or_else(|| record.to_owned());
            assert_eq!(primacy.role("us", &next), has_role, "{record}");
            let state = if has_role == PrimaryRole::Own { "3 us confirmed" } else { "3 us pending" };
            assert_eq!(written, state, "{record}");
            primacy.succeed();
            assert_eq!(primacy.role("us", &next), PrimaryRole::Own, "all regions have the table");
        }
        let mut primacy = Primacy::default();
        primacy.change("us", &table(1, ""), &next);
        assert_eq!(primacy.role("us", &next), PrimaryRole::Pending, "the first table named none");
        primacy.change("us", &next, &table(7, "eu"));
        assert_eq!(primacy.role("us", &table(7, "eu")), PrimaryRole::Other);
    }

    #[test]
    fn a_wait_ends_with_the_role() {
        let (_, roles) = roles(&["eu", "us", "eu", "us"]);
        assert_eq!(roles[2..], [PrimaryRole::Other, PrimaryRole::Pending]);
    }

    #[test]
    fn calls_have_the_published_role() {
        let (calls, _queue) = PrimaryCalls::new();
        let mut primacy = Primacy::default();
        primacy.publish("us", &table(1, "eu"));
        assert_eq!(calls.role(), PrimaryRole::Absent);
        primacy.set_calls(calls.clone());
        primacy.publish("us", &table(1, "eu"));
        assert_eq!(calls.role(), PrimaryRole::Other);
    }
}
