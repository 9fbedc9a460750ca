//! How a bond does, as its links say: whether it can be used, or will never be.

use std::time::Duration;
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
    /// The far end takes no bonds, or none of ours: why.
    pub refused: Option<String>,
    /// Why the last try failed.
    pub last: Option<String>,
    /// It carries nothing any more.
    pub is_over: bool,
}

impl Standing {
    /// A link is there.
    pub fn came(&mut self) {
        self.live += 1;
        self.most = self.most.max(self.live);
        self.failed = 0;
    }

    /// A link that was there is gone.
    pub fn went(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// A try failed.
    pub fn failed(&mut self, why: String, is_refusal: bool) {
        self.failed += 1;
        if is_refusal && self.most == 0 {
            self.refused = Some(why.clone());
        }
        self.last = Some(why);
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
        standing.came();
        assert!(!standing.is_worth_it());
        standing.came();
        standing.went();
        assert!(standing.is_worth_it());
        standing.went();
        assert!(!standing.is_worth_it());
        let mut standing = Standing { wanted: 1, ..Standing::default() };
        assert!(!standing.is_worth_it());
        standing.came();
        assert!(standing.is_worth_it());
    }

    #[test]
    fn a_refusal_after_a_link_is_no_refusal_of_bonds() {
        let mut standing = Standing::default();
        standing.failed("no such protocol".into(), true);
        assert!(standing.refused.is_some());
        let mut standing = Standing::default();
        standing.came();
        standing.failed("too many".into(), true);
        assert!(standing.refused.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_stands_says_why() {
        let (told, standing) = watch::channel(Standing { wanted: 1, ..Standing::default() });
        told.send_modify(|standing| standing.failed("eth1: no route".into(), false));
        assert_eq!(stands(standing.clone(), Duration::MAX).await, Err("eth1: no route".into()));
        told.send_modify(Standing::came);
        assert_eq!(stands(standing.clone(), Duration::MAX).await, Ok(()));
        told.send_modify(|standing| standing.wanted = 2);
        assert_eq!(stands(standing.clone(), Duration::from_secs(9)).await, Ok(()));
        told.send_modify(|standing| standing.is_over = true);
        assert!(stands(standing, Duration::MAX).await.is_err());
    }
}
