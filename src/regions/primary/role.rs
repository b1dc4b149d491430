//! Which region is the primary one, and the change of it.

use tollgate_rules::RegionTable;
use tollgate_store::primary::{PrimaryCalls, PrimaryRole};

/// Role of the own region, and the calls to the primary region.
#[derive(Debug, Default)]
pub(in crate::regions) struct Primacy {
    /// Whether the own region became the primary one in this process, and others may still ask the former one.
    is_pending: bool,
    calls: Option<PrimaryCalls>,
}

impl Primacy {
    /// Records the change from one table to another. A former primary region decides nothing more once it has the new
    /// table; the new one decides when all regions have it, so that at no time two regions decide.
    pub(in crate::regions) fn change(&mut self, own: &str, former: &RegionTable, next: &RegionTable) {
        let was_pending = self.is_pending && next.primary() == Some(own);
        let is_new = next.primary() == Some(own) && former.primary().is_some_and(|primary| primary != own);
        self.is_pending = was_pending || is_new;
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

    /// Records that no other region asks the former primary one.
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
    fn a_region_that_becomes_the_primary_one_waits_until_no_other_asks_the_former_one() {
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
