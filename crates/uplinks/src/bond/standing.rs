//! The standing of a bond: whether it can be used now, or never will be.

use std::{collections::BTreeMap, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Links and what came of dialling them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Links that there are to be; 0: not known yet, or no interface may be used.
    pub wanted: usize,
    /// Links that are up.
    pub live: usize,
    /// The most links that were up at once.
    pub most: usize,
    /// Attempts that failed since a link came up.
    pub failed: usize,
    /// Why the far end takes no bonds or not this one, or how it violated the protocol.
    pub refused: Option<String>,
    /// Why the last attempt failed.
    pub last: Option<String>,
    /// Interfaces without a link, with the reason of the last failure.
    pub without: BTreeMap<String, String>,
    /// The bond has ended.
    pub is_over: bool,
    /// Links that are being made.
    making: usize,
    /// Attempts that failed for other reasons than a refusal.
    unreached: usize,
}

impl Standing {
    /// A link is being made.
    pub fn begins(&mut self) {
        self.making += 1;
    }

    /// A link by this interface came up.
    pub fn came(&mut self, interface: &str) {
        self.making = self.making.saturating_sub(1);
        self.live += 1;
        self.most = self.most.max(self.live);
        self.failed = 0;
        self.without.remove(interface);
    }

    /// A link went down; `why` if that was not intended.
    pub fn went(&mut self, interface: &str, why: Option<String>) {
        self.live = self.live.saturating_sub(1);
        if let Some(why) = why {
            self.last = Some(format!("{interface}: {why}"));
            self.without.insert(interface.to_owned(), why);
        }
    }

    /// The interfaces cannot be listed for now. Returns whether the reason is new.
    pub fn is_lost(&mut self, why: &str) -> bool {
        let is_new = self.last.as_deref() != Some(why);
        if is_new {
            self.last = Some(why.to_owned());
        }
        is_new
    }

    /// A link is no longer being made: its interface is gone.
    pub fn left(&mut self) {
        self.making = self.making.saturating_sub(1);
    }

    /// An attempt by this interface failed. The far end has refused only if all attempts were refused: by a single
    /// interface another host may have answered in its place.
    pub fn failed(&mut self, interface: &str, why: &str, is_refusal: bool) {
        self.left();
        self.failed += 1;
        self.unreached += usize::from(!is_refusal);
        let told = format!("{interface}: {why}");
        if is_refusal && (self.most, self.making, self.unreached) == (0, 0, 0) {
            self.refused = Some(told.clone());
        }
        self.last = Some(told);
        self.without.insert(interface.to_owned(), why.to_owned());
    }

    /// Forgets the failures of interfaces that are not there; returns whether there were any.
    pub fn keeps(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.without.len();
        self.without.retain(|name, _| is_there(name));
        self.without.len() != before
    }

    /// Whether a stream over the bond gains more than over one connection: the bond had two links and still has one, or
    /// it has one and the other interfaces wait for that to fail.
    pub fn is_worth_it(&self) -> bool {
        self.most >= self.enough() && self.live >= 1 && !self.is_over
    }

    /// How many links are waited for: two, or fewer if no more are wanted.
    fn enough(&self) -> usize {
        self.wanted.clamp(1, 2)
    }

    /// Whether waiting for more links is of no use.
    fn is_settled(&self) -> bool {
        let came = self.wanted > 0 && self.live + self.failed >= self.enough();
        came || self.refused.is_some() || self.is_over
    }
}

/// Waits until there are two links, or as many as are wanted; or until `patience` is over, if there is a link by then.
///
/// # Errors
/// Why there is no link.
pub async fn stands(
    mut standing: watch::Receiver<Standing>,
    patience: Duration,
) -> Result<(), String> {
    _ = timeout(patience, standing.wait_for(Standing::is_settled)).await;
    let standing = standing.borrow();
    if standing.live > 0 && !standing.is_over {
        return Ok(());
    }
    let why = standing.refused.as_ref().or(standing.last.as_ref());
    Err(why.cloned().unwrap_or_else(|| "no link could be opened".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_suffices_only_after_two_or_if_one_is_wanted() {
        let mut standing = Standing { wanted: 3, ..Standing::default() };
        standing.came("a");
        assert!(!standing.is_worth_it());
        standing.came("b");
        standing.went("wan0", None);
        assert!(standing.is_worth_it());
        standing.went("wan0", None);
        assert!(!standing.is_worth_it());
        let mut standing = Standing { wanted: 1, ..Standing::default() };
        assert!(!standing.is_worth_it());
        standing.came("a");
        assert!(standing.is_worth_it());
    }

    #[test]
    fn a_refusal_after_a_link_came_up_does_not_refuse_the_bond() {
        let mut standing = Standing::default();
        standing.failed("a", "no such protocol", true);
        assert_eq!(standing.refused.as_deref(), Some("a: no such protocol"));
        let mut standing = Standing::default();
        standing.came("a");
        standing.failed("b", "too many", true);
        assert!(standing.refused.is_none());
    }

    #[test]
    fn one_way_alone_does_not_refuse_for_all() {
        let mut standing = Standing::default();
        (0..2).for_each(|_| standing.begins());
        standing.failed("portal", "that is no TLS", true);
        assert!(standing.refused.is_none());
        let mut other = standing.clone();
        other.came("wan0");
        assert_eq!(other.without.keys().collect::<Vec<_>>(), ["portal"]);
        assert!(other.keeps(|name| name == "wan0") && other.without.is_empty());
        let mut unreached = standing.clone();
        unreached.failed("wan0", "no answer", false);
        unreached.begins();
        unreached.failed("portal", "that is no TLS", true);
        assert!(unreached.refused.is_none());
        standing.failed("wan0", "no such protocol", true);
        assert!(standing.refused.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bond_without_links_reports_the_last_failure() {
        let (told, standing) = watch::channel(Standing { wanted: 1, ..Standing::default() });
        told.send_modify(|standing| standing.failed("eth1", "no route", false));
        assert_eq!(stands(standing.clone(), Duration::MAX).await, Err("eth1: no route".into()));
        told.send_modify(|standing| standing.came("eth1"));
        assert_eq!(stands(standing.clone(), Duration::MAX).await, Ok(()));
        told.send_modify(|standing| standing.wanted = 2);
        assert_eq!(stands(standing.clone(), Duration::from_secs(9)).await, Ok(()));
        told.send_modify(|standing| standing.is_over = true);
        assert!(stands(standing, Duration::MAX).await.is_err());
    }
}
