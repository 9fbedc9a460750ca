//! Which interfaces the user's settings allow a download to use.

use super::args::{Interfaces, PathArgs};
use crate::commands::{host, uplinks};
use anyhow::{Context as _, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    time::Duration,
};
use thalweg_bond::{Application, Rules};
use thalweg_get::PricedPath;
use thalweg_net::{Interface, interfaces, internet_interfaces};
use thalweg_paths::url::HttpUrl;
use thalweg_units::likeness;
use thalweg_uplinks::interfaces::{Settings, Tier, Uplinks};

/// The interfaces for a download.
pub struct Ways {
    /// The interfaces, in the kernel's order of preference.
    pub interfaces: Vec<Interface>,
    /// Whether each path is bound to one of them. A path that is not bound may leave by another interface.
    pub is_bound: bool,
    /// The interfaces with a price, by index, if a deadline is to be met at the least cost.
    pub dear: BTreeMap<NonZeroU32, PricedPath>,
    /// Counts the traffic of interfaces, if the settings have policies.
    pub uplinks: Option<Uplinks>,
    /// The settings' rules; empty if the user named interfaces on the command line.
    rules: Rules,
}

impl Ways {
    fn plain(interfaces: Vec<Interface>, is_bound: bool) -> Self {
        let (dear, rules) = Default::default();
        Self { interfaces, is_bound, dear, uplinks: None, rules }
    }

    /// The interfaces that a rule of the settings leaves for this command and server; `None`: no rule applies.
    ///
    /// # Errors
    /// If the rule leaves none.
    pub fn ruled(&self, url: &HttpUrl) -> anyhow::Result<Option<Vec<Interface>>> {
        let to = url.destination();
        let (host, own) = (to.host.to_string(), Some(env!("CARGO_BIN_NAME").to_owned()));
        let application = Application { process: own, port: to.port };
        if self.interfaces.is_empty() || self.rules.of(&application, &host).is_none() {
            return Ok(None);
        }
        let names: Vec<_> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
        let left = self.rules.filter(&application, &host, &names);
        anyhow::ensure!(
            !left.is_empty(),
            "a rule of the settings leaves no interface for {host}: see `thalweg interfaces rule`, or name one with \
             --interface"
        );
        Ok(Some(left.into_iter().map(|at| self.interfaces[at].clone()).collect()))
    }
}

/// The interfaces that may be used. Empty means the kernel's own choice: as asked for, or because the kernel lists
/// none.
///
/// # Errors
/// If a named interface does not exist.
pub fn chosen(args: &PathArgs, note: &dyn Fn(String)) -> anyhow::Result<Vec<Interface>> {
    let wanted = args.interfaces()?;
    if wanted == Interfaces::None {
        return Ok(Vec::new());
    }
    let found = interfaces();
    let Interfaces::Named(names) = wanted else {
        let found = found.unwrap_or_else(|e| {
            note(format!(
                "only the default interface is used, as the kernel does not list the \
                          others ({e})"
            ));
            Vec::new()
        });
        if wanted == Interfaces::All {
            return Ok(found);
        }
        let settings = host::settings(None)?.interfaces.settings();
        return Ok(internet_interfaces(&found, |name| settings.wish(name)));
    };
    let found = found.context("the kernel does not list its interfaces")?;
    names.iter().map(|name| named(name, &found)).collect()
}

fn named(name: &str, found: &[Interface]) -> anyhow::Result<Interface> {
    if let Some(interface) = found.iter().find(|i| i.name == name) {
        return Ok(interface.clone());
    }
    let names = || found.iter().map(|i| i.name.as_str());
    match likeness::nearest(name, names()) {
        Some(near) => bail!("no interface `{name}` can be used; did you mean `{near}`?"),
        None => bail!(
            "no interface `{name}` can be used; those that are up and have an address: {}",
            if found.is_empty() {
                "none".to_owned()
            } else {
                names().collect::<Vec<_>>().join(", ")
            }
        ),
    }
}

/// Reduces the `chosen` interfaces to those that the settings allow, unless the user named them; caps and limits hold
/// for named ones, too. A download samples its paths and fetches parts twice, so metered interfaces are used only if
/// there is no other one; or, if the download has a deadline (`within`), interfaces with a price are used as far as the
/// deadline needs them. If none of the interfaces reaches anything except those of `fails` (kernel indices), backup and
/// metered ones are added. Must be called within a runtime, which then follows the interfaces.
///
/// # Errors
/// A mistake in the settings, or that they leave no interface.
pub fn of(
    args: &PathArgs,
    within: Option<Duration>,
    chosen: Vec<Interface>,
    fails: &BTreeSet<u32>,
    note: &dyn Fn(String),
) -> anyhow::Result<Ways> {
    let is_named = matches!(args.interfaces()?, Interfaces::Named(_));
    let settings = host::settings(None)?.interfaces.settings();
    let rules = if is_named { Rules::default() } else { settings.rules.clone() };
    if settings.policies.is_empty() {
        return Ok(Ways { rules, ..Ways::plain(chosen, is_named) });
    }
    let uplinks = match uplinks::process_uplinks() {
        Some(uplinks) => uplinks,
        None => {
            let file = uplinks::file(&settings, args.history.as_deref(), &args.state_dir);
            let uplinks = uplinks::open(settings.clone(), file.clone(), note)?;
            uplinks::begin(uplinks, file.as_deref(), uplinks::to_stderr)
        }
    };
    let counted = Some(uplinks.clone());
    if is_named || chosen.is_empty() {
        return Ok(Ways { uplinks: counted, rules, ..Ways::plain(chosen, is_named) });
    }
    let allowed: Vec<_> = uplinks.bond_interfaces(fails).into_iter().map(|i| i.index).collect();
    let left = thrifty(&settings, &chosen, fails, |i| allowed.contains(&i.index));
    anyhow::ensure!(
        !left.is_empty(),
        "the settings leave no interface that is up and may be used: see `thalweg interfaces status`, or \
         name one with --interface"
    );
    if within.is_some() {
        let is_allowed = |i: &Interface| allowed.contains(&i.index);
        let dear = dear(&settings, &uplinks, &chosen, &left, is_allowed);
        if !dear.is_empty() {
            let priced = chosen.iter().filter(|i| dear.contains_key(&i.index)).cloned();
            let interfaces = left.into_iter().chain(priced).collect();
            return Ok(Ways { interfaces, is_bound: true, dear, uplinks: counted, rules });
        }
    }
    let is_bound = left.first() != chosen.first();
    Ok(Ways { uplinks: counted, rules, ..Ways::plain(left, is_bound) })
}

/// Reduces the `found` interfaces to those that a download's bond may use by the settings. The interfaces of `fails`
/// (kernel indices) reach nothing: if only they are left, backups are added.
pub fn for_bond(settings: &Settings, found: &[Interface], fails: &BTreeSet<u32>) -> Vec<Interface> {
    let tier = |i: &Interface| settings.policy(&i.name).tier;
    let mut found = internet_interfaces(found, |name| settings.wish(name));
    found.retain(|i| tier(i) != Tier::Never);
    let is_meant = |i: &Interface| tier(i) != Tier::Backup;
    let has_other = found.iter().any(|i| is_meant(i) && !fails.contains(&i.index.get()));
    thrifty(settings, &found, fails, |i| !has_other || is_meant(i))
}

/// The interfaces with a price that are allowed and not used anyway.
fn dear(
    settings: &Settings,
    uplinks: &Uplinks,
    chosen: &[Interface],
    used: &[Interface],
    is_allowed: impl Fn(&Interface) -> bool,
) -> BTreeMap<NonZeroU32, PricedPath> {
    let shown = uplinks.table().show(uplinks.today());
    let expected = |name: &str| shown.iter().find(|s| s.name == name).map(|s| s.estimate.down());
    let of = |i: &Interface| {
        let expected = expected(&i.name).unwrap_or_default();
        (i.index, PricedPath { price: settings.policy(&i.name).price, expected })
    };
    let is_dear = |i: &&Interface| {
        let is_used = used.iter().any(|used| used.index == i.index);
        !is_used && is_allowed(i) && settings.policy(&i.name).price > 0.0
    };
    chosen.iter().filter(is_dear).map(of).collect()
}

/// The allowed interfaces whose bytes may be spent; if there are none, or only those of `fails`, all allowed ones.
fn thrifty(
    settings: &Settings,
    chosen: &[Interface],
    fails: &BTreeSet<u32>,
    is_allowed: impl Fn(&Interface) -> bool,
) -> Vec<Interface> {
    let allowed: Vec<_> = chosen.iter().filter(|i| is_allowed(i)).cloned().collect();
    let may_spend = |i: &&Interface| settings.policy(&i.name).may_spend();
    let free: Vec<_> = allowed.iter().filter(may_spend).cloned().collect();
    let is_cut_off = free.iter().all(|i| fails.contains(&i.index.get()));
    if is_cut_off { allowed } else { free }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use thalweg_uplinks::interfaces::Policy;

    fn interface(index: u32, name: &str) -> Interface {
        Interface::new(NonZeroU32::new(index).unwrap(), name)
    }

    #[test]
    fn a_bond_follows_the_tiers() {
        let tier = |tier| Policy { tier, ..Policy::default() };
        let policies = [("lte0", tier(Tier::Backup)), ("tun0", tier(Tier::Never))];
        let policies = policies.map(|(name, policy)| (name.to_owned(), policy)).into();
        let settings = Settings { policies, ..Settings::default() };
        let without = |names: &[&str], fails: &BTreeSet<u32>| {
            let found = names.iter().zip(1..).map(|(name, n)| interface(n, name));
            let left = for_bond(&settings, &found.collect::<Vec<_>>(), fails);
            left.into_iter().map(|i| i.name).collect::<Vec<_>>()
        };
        let of = |names: &[&str]| without(names, &BTreeSet::new());
        assert_eq!(of(&["eth0", "lte0", "tun0"]), ["eth0"]);
        assert_eq!(of(&["lte0", "tun0"]), ["lte0"]);
        assert_eq!(without(&["eth0", "lte0"], &[1].into()), ["eth0", "lte0"]);
        let mut bypasses = interface(1, "eth0");
        bypasses.beside = NonZeroU32::new(9);
        let left = for_bond(&settings, &[bypasses], &BTreeSet::new());
        assert!(left.is_empty(), "nothing goes beside a VPN");
        assert!(of(&["tun0"]).is_empty());
    }

    #[test]
    fn metered_interfaces_are_used_only_without_another() {
        let all = [interface(1, "eth0"), interface(2, "wlan0"), interface(3, "lte0")];
        let metered = Policy { metered: true, ..Policy::default() };
        let policies = [("lte0".to_owned(), metered)].into();
        let settings = Settings { policies, ..Settings::default() };
        let without = |fails: &[u32], is_allowed: &dyn Fn(&Interface) -> bool| {
            let fails = fails.iter().copied().collect();
            let left = thrifty(&settings, &all, &fails, is_allowed);
            left.into_iter().map(|i| i.name).collect::<Vec<_>>()
        };
        let names = |is_allowed: &dyn Fn(&Interface) -> bool| without(&[], is_allowed);
        assert_eq!(names(&|_| true), ["eth0", "wlan0"]);
        assert_eq!(without(&[1], &|_| true), ["eth0", "wlan0"]);
        assert_eq!(without(&[1, 2], &|_| true), ["eth0", "wlan0", "lte0"]);
        assert_eq!(names(&|i| i.name == "lte0"), ["lte0"]);
        assert!(names(&|_| false).is_empty());
    }
}
