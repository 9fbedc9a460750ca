//! What nodes and clients ask an oracle about measurements: see [`thalweg_wire::mesh::measure`].

use super::{OracleClient, OracleError, read};
use std::time::Duration;
use thalweg_net::channel::Protocol;
use thalweg_wire::mesh::measure::{
    CandidatesReply, Orders, PathsReply, Reports, ReportsReply, Strategy,
};

/// The greatest answer about paths: a full matrix of 500 nodes, 120 bytes of JSON a leg.
const MAX_PATHS: usize = 32 * 1024 * 1024;

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
        read(&self.get(&path, wait).await?)
    }

    /// Tells what was measured, received and seen. Asked once: a report that fails may have
    /// arrived, and the oracle knows an order's second report by its number.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn report(&self, reports: &Reports) -> Result<ReportsReply, OracleError> {
        read(&self.post(Protocol::Api, "/v1/measure/reports", reports).await?)
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

    /// All that the oracle knows of paths.
    ///
    /// # Errors
    /// [`OracleError`].
    pub async fn paths(&self) -> Result<PathsReply, OracleError> {
        read(&self.get_up_to("/v1/paths", Duration::ZERO, MAX_PATHS).await?)
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
