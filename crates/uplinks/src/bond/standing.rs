//! How a bond does, as its links say: whether it can be used, or will never be.

use std::{collections::BTreeMap, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Links and what came of dialling them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Links that there are to be; 0: not known yet, or no interface may be used.
    pub wanted: usize,
    /// Links that are there now.
    pub live: usize,
    /// The most that were there at once.
    pub most: usize,
    /// Tries that failed since a link came.
    pub failed: usize,
    /// The far end takes no bonds, or none of ours, or does not keep to the protocol: why.
    pub refused: Option<String>,
    /// Why the last try failed.
    pub last: Option<String>,
    /// Interfaces that have no link, with the reason for the last one that did not come about.
    pub without: BTreeMap<String, String>,
    /// It carries nothing any more.
    pub is_over: bool,
    /// Links that are being made.
    making: usize,
    /// Tries that failed otherwise than by a refusal.
    unreached: usize,
}

impl Standing {
    /// A link is being made.
    pub fn begins(&mut self) {
        self.making += 1;
    }

    /// A link by this interface is there.
    pub fn came(&mut self, interface: &str) {
        self.making = self.making.saturating_sub(1);
        self.live += 1;
        self.most = self.most.max(self.live);
        self.failed = 0;
        self.without.remove(interface);
    }

    /// A link that was there is gone; `why` if nobody meant it to be.
    pub fn went(&mut self, interface: &str, why: Option<String>) {
        self.live = self.live.saturating_sub(1);
        if let Some(why) = why {
            self.last = Some(format!("{interface}: {why}"));
            self.without.insert(interface.to_owned(), why);
        }
    }

    /// No interface is known to make links by, for now.
    pub fn is_lost(&mut self, why: &str) -> bool {
        let is_new = self.last.as_deref() != Some(why);
        if is_new {
            self.last = Some(why.to_owned());
        }
        is_new
    }

    /// A link is not made any more: its interface is gone.
    pub fn left(&mut self) {
        self.making = self.making.saturating_sub(1);
    }

    /// A try by this interface failed. The far end has refused only once all ways say so: by one of them anybody
    /// may have answered in its place.
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

    /// These interfaces may be used now; others lack nothing.
    pub fn keeps(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.without.len();
        self.without.retain(|name, _| is_there(name));
        self.without.len() != before
    }

    /// Whether a stream over it uses more than one connection could: it had two links, and has one; or
    /// one, where others wait for that to fail.
    pub fn is_worth_it(&self) -> bool {
        self.most >= self.enough() && self.live >= 1 && !self.is_over
    }

    /// So many links are waited for.
    fn enough(&self) -> usize {
        self.wanted.clamp(1, 2)
    }

    /// Whether no more links are to be waited for.
    fn is_settled(&self) -> bool {
        let came = self.wanted > 0 && self.live + self.failed >= self.enough();
        came || self.refused.is_some() || self.is_over
    }
}

/// Waits until there are two links, or as many as there are to be; or until fewer have waited for
/// others long enough.
///
/// # Errors
/// Why there are none.
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
    Err(why.cloned().unwrap_or_else(|| "no link came about".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_is_worth_it_only_after_two_unless_there_is_to_be_one() {
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
    fn a_refusal_after_a_link_is_no_refusal_of_bonds() {
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
    async fn what_never_stands_says_why() {
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
