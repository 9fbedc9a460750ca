//! The readiness of a bond: whether it can be used now, or never will be.

use std::{collections::BTreeMap, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Links and what came of dialling them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
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

impl Readiness {
    /// A link is being made.
    pub fn begin_link(&mut self) {
        self.making += 1;
    }

    /// A link by this interface came up.
    pub fn link_up(&mut self, interface: &str) {
        self.making = self.making.saturating_sub(1);
        self.live += 1;
        self.most = self.most.max(self.live);
        self.failed = 0;
        self.without.remove(interface);
    }

    /// A link went down; `why` if that was not intended.
    pub fn link_down(&mut self, interface: &str, why: Option<String>) {
        self.live = self.live.saturating_sub(1);
        if let Some(why) = why {
            self.last = Some(format!("{interface}: {why}"));
            self.without.insert(interface.to_owned(), why);
        }
    }

    /// The interfaces cannot be listed for now. Returns whether the reason is new.
    pub fn set_listing_error(&mut self, why: &str) -> bool {
        let is_new = self.last.as_deref() != Some(why);
        if is_new {
            self.last = Some(why.to_owned());
        }
        is_new
    }

    /// A link is no longer being made: its interface is gone.
    pub fn abandon_link(&mut self) {
        self.making = self.making.saturating_sub(1);
    }

    /// An attempt by this interface failed. The far end has refused only if all attempts were refused: by a single
    /// interface another host may have answered in its place.
    pub fn link_failed(&mut self, interface: &str, why: &str, is_refusal: bool) {
        self.abandon_link();
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
    pub fn forget_absent(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.without.len();
        self.without.retain(|name, _| is_there(name));
        self.without.len() != before
    }

    /// Whether a stream over the bond gains more than over one connection: the bond had two links and still has one, or
    /// it has one and the other interfaces wait for that to fail.
    pub fn is_useful(&self) -> bool {
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
pub async fn wait_until_ready(
    mut readiness: watch::Receiver<Readiness>,
    patience: Duration,
) -> Result<(), String> {
    _ = timeout(patience, readiness.wait_for(Readiness::is_settled)).await;
    let readiness = readiness.borrow();
    if readiness.live > 0 && !readiness.is_over {
        return Ok(());
    }
    let why = readiness.refused.as_ref().or(readiness.last.as_ref());
    Err(why.cloned().unwrap_or_else(|| "no link could be opened".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_suffices_only_after_two_or_if_one_is_wanted() {
        let mut readiness = Readiness { wanted: 3, ..Readiness::default() };
        readiness.link_up("a");
        assert!(!readiness.is_useful());
        readiness.link_up("b");
        readiness.link_down("wan0", None);
        assert!(readiness.is_useful());
        readiness.link_down("wan0", None);
        assert!(!readiness.is_useful());
        let mut readiness = Readiness { wanted: 1, ..Readiness::default() };
        assert!(!readiness.is_useful());
        readiness.link_up("a");
        assert!(readiness.is_useful());
    }

    #[test]
    fn a_refusal_after_a_link_came_up_does_not_refuse_the_bond() {
        let mut readiness = Readiness::default();
        readiness.link_failed("a", "no such protocol", true);
        assert_eq!(readiness.refused.as_deref(), Some("a: no such protocol"));
        let mut readiness = Readiness::default();
        readiness.link_up("a");
        readiness.link_failed("b", "too many", true);
        assert!(readiness.refused.is_none());
    }

    #[test]
    fn one_way_alone_does_not_refuse_for_all() {
        let mut readiness = Readiness::default();
        (0..2).for_each(|_| readiness.begin_link());
        readiness.link_failed("portal", "that is no TLS", true);
        assert!(readiness.refused.is_none());
        let mut other = readiness.clone();
        other.link_up("wan0");
        assert_eq!(other.without.keys().collect::<Vec<_>>(), ["portal"]);
        assert!(other.forget_absent(|name| name == "wan0") && other.without.is_empty());
        let mut unreached = readiness.clone();
        unreached.link_failed("wan0", "no answer", false);
        unreached.begin_link();
        unreached.link_failed("portal", "that is no TLS", true);
        assert!(unreached.refused.is_none());
        readiness.link_failed("wan0", "no such protocol", true);
        assert!(readiness.refused.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bond_without_links_reports_the_last_failure() {
        let (told, readiness) = watch::channel(Readiness { wanted: 1, ..Readiness::default() });
        told.send_modify(|readiness| readiness.link_failed("eth1", "no route", false));
        assert_eq!(
            wait_until_ready(readiness.clone(), Duration::MAX).await,
            Err("eth1: no route".into())
        );
        told.send_modify(|readiness| readiness.link_up("eth1"));
        assert_eq!(wait_until_ready(readiness.clone(), Duration::MAX).await, Ok(()));
        told.send_modify(|readiness| readiness.wanted = 2);
        assert_eq!(wait_until_ready(readiness.clone(), Duration::from_secs(9)).await, Ok(()));
        told.send_modify(|readiness| readiness.is_over = true);
        assert!(wait_until_ready(readiness, Duration::MAX).await.is_err());
    }
}
