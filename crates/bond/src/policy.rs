//! What the user allows an interface to be used for.

use serde::{Deserialize, Serialize};
use thalweg_units::Rate;

/// When an interface is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Always.
    #[default]
    Primary,
    /// For whole connections, while the primary ones are full or absent. For links of bonds and for downloads, always,
    /// because this end does not know how much waits at the far end ([`link_interfaces`]).
    Secondary,
    /// While no other interface is available.
    Backup,
    Never,
}

/// The bytes that an interface may move in a month, both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    pub bytes: u64,
    /// The day on which a month begins, from 1; see [`crate::Period`].
    pub reset_day: u8,
}

/// The policy of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// When it is used.
    pub tier: Tier,
    /// Its maximum rate, both directions together; none: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<Rate>,
    /// Its maximum per month; an interface with a cap counts as metered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Cap>,
    /// Its bytes cost money: no probes and no second copies use it, unless `spend` is set.
    pub metered: bool,
    /// A metered interface may be probed and carry second copies all the same.
    pub spend: bool,
    /// The price of a gigabyte, in any unit.
    pub price: f64,
    /// It may be used while a tunnel carries the default route; it then bypasses the tunnel.
    pub beside_tunnel: bool,
}

impl Policy {
    /// Whether probes and second copies may use it.
    pub fn may_spend(&self) -> bool {
        self.spend || !(self.metered || self.cap.is_some() || self.price > 0.0)
    }

    /// The bytes that are left of its cap, if it has one, after `used` bytes in this period.
    pub fn left(&self, used: u64) -> Option<u64> {
        self.cap.map(|cap| cap.bytes.saturating_sub(used))
    }
}

/// The places of the interfaces that may be used now: all of the first tier that has a usable interface, and the
/// secondary ones as well if `is_full`, i.e. if the primary ones take no more. The `bool` of each says whether it is
/// usable: it is present, has a route out, and has bytes left.
pub fn allowed_interfaces(interfaces: &[(Policy, bool)], is_full: bool) -> Vec<usize> {
    let of = |tier: Tier| {
        let places = interfaces.iter().enumerate();
        places.filter(move |(_, (policy, usable))| *usable && policy.tier == tier).map(|(at, _)| at)
    };
    let tiers = [Tier::Primary, Tier::Secondary, Tier::Backup];
    let first = tiers.into_iter().find(|tier| of(*tier).next().is_some());
    match first {
        Some(Tier::Primary) if is_full => of(Tier::Primary).chain(of(Tier::Secondary)).collect(),
        Some(tier) => of(tier).collect(),
        None => Vec::new(),
    }
}

/// An interface as the links of a bond may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInterface {
    /// The tier of its policy.
    pub tier: Tier,
    /// It is present, has a route out, and has bytes left.
    pub is_usable: bool,
    /// The bond cannot reach its peer through it at present.
    pub fails: bool,
}

/// The places of the interfaces that the links of a bond use. Secondary ones are always used beside primary ones,
/// because this end does not know how much waits at the far end. Backups are used only while the peer is not reached
/// through any other interface; those are still tried.
pub fn link_interfaces(interfaces: &[LinkInterface]) -> Vec<usize> {
    let of = |tiers: &[Tier]| -> Vec<usize> {
        let places = interfaces.iter().enumerate();
        let fits = |one: &LinkInterface| one.is_usable && tiers.contains(&one.tier);
        places.filter(|(_, one)| fits(one)).map(|(at, _)| at).collect()
    };
    let mut chosen = of(&[Tier::Primary, Tier::Secondary]);
    if chosen.iter().all(|at| interfaces[*at].fails) {
        chosen.extend(of(&[Tier::Backup]));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(tier: Tier) -> (Policy, bool) {
        (Policy { tier, ..Policy::default() }, true)
    }

    #[test]
    fn lower_tiers_are_used_only_after_higher_ones() {
        let all = [Tier::Backup, Tier::Primary, Tier::Secondary, Tier::Never, Tier::Primary];
        let mut all = all.map(tier);
        assert_eq!(allowed_interfaces(&all, false), [1, 4]);
        assert_eq!(allowed_interfaces(&all, true), [1, 4, 2]);
        (all[1].1, all[4].1) = (false, false);
        assert_eq!(allowed_interfaces(&all, false), [2]);
        all[2].1 = false;
        assert_eq!(allowed_interfaces(&all, true), [0]);
        all[0].1 = false;
        assert!(allowed_interfaces(&all, true).is_empty());
    }

    #[test]
    fn backups_carry_links_while_nothing_else_is_reached() {
        let one = |tier| LinkInterface { tier, is_usable: true, fails: false };
        let mut all = [Tier::Backup, Tier::Primary, Tier::Secondary, Tier::Never].map(one);
        assert_eq!(link_interfaces(&all), [1, 2]);
        all[1].fails = true;
        assert_eq!(link_interfaces(&all), [1, 2], "the secondary one still answers");
        all[2].is_usable = false;
        assert_eq!(link_interfaces(&all), [1, 0], "the primary one is still tried");
        all[0].fails = true;
        assert_eq!(link_interfaces(&all), [1, 0]);
        all[1].is_usable = false;
        assert_eq!(link_interfaces(&all), [0]);
    }

    #[test]
    fn paid_interfaces_carry_no_probes_by_default() {
        let cap = Some(Cap { bytes: 100, reset_day: 1 });
        let capped = Policy { cap, ..Policy::default() };
        assert!(Policy::default().may_spend() && !capped.may_spend());
        assert!(Policy { spend: true, ..capped }.may_spend());
        assert!(!Policy { price: 0.1, ..Policy::default() }.may_spend());
        assert_eq!(
            (capped.left(40), capped.left(140), Policy::default().left(1)),
            (Some(60), Some(0), None)
        );
    }
}
