//! What nodes and clients ask an oracle about measurements: see [`thalweg_wire::mesh::measure`].

use super::{OracleClient, OracleError, lock, read};
use std::{sync::atomic::Ordering, time::Duration};
use thalweg_net::channel::Protocol;
use thalweg_wire::mesh::measure::{
    CandidatesReply, Orders, PathsReply, Reports, ReportsReply, Strategy,
};

/// The most pages: a million legs, which 10,000 nodes have with one pair of 100 measured.
const MAX_PAGES: usize = 20;

/// The greatest answer about paths: a full matrix of 500 nodes, 120 bytes of JSON a leg.
const MAX_PATHS: usize = 32 * 1024 * 1024;

/// The code of an oracle's refusal where one of several is elected and it is another.
const NOT_ELECTED: &str = "not_elected";

const fn word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Oblivious => "oblivious",
        Strategy::Balanced => "balanced",
        Strategy::Specific => "specific",
        Strategy::LoadAware => "load_aware",
    }
}

impl OracleClient {
    /// Measurements that this node is to make; none came within `wait` (whole seconds) if empty.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn orders(&self, wait: Duration) -> Result<Orders, OracleError> {
        let path = format!("/v1/measure/orders?wait_s={}", wait.as_secs());
        let mut oracles = self.oracles().len();
        loop {
            match self.get(&path, wait).await.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// Tells what was measured, received and seen. Asked once: a report that fails may have
    /// arrived, and the oracle knows an order's second report by its number.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn report(&self, reports: &Reports) -> Result<ReportsReply, OracleError> {
        let path = "/v1/measure/reports";
        let mut oracles = self.oracles().len();
        loop {
            let answer = self.post(Protocol::Api, path, reports).await;
            match answer.and_then(|answer| read(&answer)) {
                Err(error) if oracles > 1 && self.turns(&error) => oracles -= 1,
                done => return done,
            }
        }
    }

    /// Whether another oracle is elected to do this; then the next one is asked first from now on.
    fn turns(&self, error: &OracleError) -> bool {
        let is_another = matches!(error, OracleError::Refused(e) if e.code == NOT_ELECTED);
        if is_another {
            self.0.first.fetch_add(1, Ordering::Relaxed);
            lock(&self.0.kept).take();
        }
        is_another
    }

    /// At most `m` relays for whoever asks, by this rule or the oracle's own, the better first.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn candidates(
        &self,
        strategy: Option<Strategy>,
        m: usize,
    ) -> Result<CandidatesReply, OracleError> {
        let rule = strategy.map(|s| format!("strategy={}&", word(s))).unwrap_or_default();
        let path = format!("/v1/candidates?{rule}m={m}");
        read(&self.get(&path, Duration::ZERO).await?)
    }

    /// All that the oracle knows of paths, page by page; the first `MAX_PAGES` of them.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn paths(&self) -> Result<PathsReply, OracleError> {
        let mut all: PathsReply = self.page(None).await?;
        for _ in 1..MAX_PAGES {
            let Some(after) = all.next.take() else { break };
            let page = self.page(Some(after)).await?;
            if page.nodes != all.nodes {
                // Somebody came or went: the indices may mean others. What came so far is sound.
                break;
            }
            all.legs.extend(page.legs);
            all.next = page.next;
        }
        Ok(all)
    }

    async fn page(&self, after: Option<u64>) -> Result<PathsReply, OracleError> {
        let after = after.map(|after| format!("?after={after}")).unwrap_or_default();
        read(&self.get_up_to(&format!("/v1/paths{after}"), Duration::ZERO, MAX_PATHS).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_asked_for_by_the_word_that_its_json_has() {
        for rule in
            [Strategy::Oblivious, Strategy::Balanced, Strategy::Specific, Strategy::LoadAware]
        {
            assert_eq!(serde_json::to_value(rule).unwrap(), word(rule));
        }
    }
}
