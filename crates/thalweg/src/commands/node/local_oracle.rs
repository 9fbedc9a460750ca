//! The oracle of this node: absent, running, or down.

use crate::commands::embedded_oracle::EmbeddedOracle;
use std::{fs, sync::Arc, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_mesh::{
    Membership, State,
    service::{ApiService, Control},
};
use thalweg_node::{
    config::OracleSection,
    daemon::{OracleDown, roster_status},
};
use thalweg_oracle::OracleError;
use thalweg_units::{NodeId, format_duration};
use thalweg_wire::mesh::Role;
use tokio::time::sleep;

/// The interval at which an oracle that is down is reported again, as other lasting faults.
const REMINDER_INTERVAL: Duration = Duration::from_secs(600);

/// The time between attempts to write the settings' rules into a database.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The state of the oracle in this node.
#[derive(Clone, Debug)]
pub enum LocalOracle {
    /// This node has no oracle: it is elsewhere.
    Absent,
    Running(EmbeddedOracle),
    /// The oracle cannot run; its node runs without it.
    Down(OracleDown),
}

impl LocalOracle {
    /// Opens the oracle of this node, if it has one.
    ///
    /// A fault of the oracle does not keep its node from relaying, as long as there is a roster: the cached one, or the
    /// copy in `oracle/`.
    ///
    /// # Errors
    /// The fault, if there is no roster; or that the settings' rules are invalid.
    pub async fn open(
        state: &State,
        node: NodeId,
        membership: &Membership,
        settings: &OracleSection,
        log: &Log,
    ) -> anyhow::Result<Self> {
        let dir = state.oracle_dir();
        if !dir.exists() && !is_oracle(membership, &node) {
            return Ok(Self::Absent);
        }
        match EmbeddedOracle::open(state, node, settings, Some(log.clone())).await {
            Ok(oracle) => {
                take_oracle(&oracle, membership, settings, log).await?;
                Ok(Self::Running(oracle))
            }
            Err(error) => {
                take_copy(state, membership, log);
                if membership.current().is_none() {
                    return Err(error.into());
                }
                let why = why(&error, state, membership);
                log.put(alert(&why));
                Ok(Self::Down(OracleDown::new(membership.clone(), &why)))
            }
        }
    }

    /// Runs beside the node: writes the settings' rules, or reports an oracle that is down.
    pub async fn maintain(self, settings: OracleSection, log: Log) {
        match self {
            Self::Absent => {}
            Self::Running(oracle) => enforce_rules(&oracle, &settings).await,
            Self::Down(down) => loop {
                sleep(REMINDER_INTERVAL).await;
                log.put(alert(down.why()));
            },
        }
    }

    /// Whether members ask this node for rosters.
    pub fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The service for the channels `api` and `join`.
    pub fn service(&self) -> Option<Arc<dyn ApiService>> {
        match self {
            Self::Absent => None,
            Self::Running(oracle) => Some(Arc::new(oracle.clone())),
            Self::Down(down) => Some(Arc::new(down.clone())),
        }
    }

    /// The service for this host's commands; `None`: they use an oracle elsewhere.
    pub fn control(&self) -> Option<Arc<dyn Control>> {
        match self {
            Self::Absent => None,
            Self::Running(oracle) => Some(Arc::new(oracle.clone())),
            Self::Down(down) => Some(Arc::new(down.clone())),
        }
    }
}

/// Whether the roster names this node as an oracle, so that a lost directory is noticed.
fn is_oracle(membership: &Membership, node: &NodeId) -> bool {
    let roster = membership.current();
    roster.as_ref().and_then(|r| r.by_key(node)).is_some_and(|m| m.is(Role::Oracle))
}

/// Writes the settings' rules, and takes the roster that the oracle has just published.
async fn take_oracle(
    oracle: &EmbeddedOracle,
    membership: &Membership,
    settings: &OracleSection,
    log: &Log,
) -> anyhow::Result<()> {
    match oracle.rule(settings).await {
        // `maintain` writes the rules once the database can be written.
        Err(error @ OracleError::Store(_)) => {
            log.put(alert(&format!("the settings' rules are not in force yet: {error}")));
        }
        done => done?,
    }
    if let Err(error) = membership.offer(&oracle.signed()) {
        log.put(Event::new("roster_refused").with("level", "alert").with("why", error));
    }
    Ok(())
}

/// Retries until the settings' rules are in force.
async fn enforce_rules(oracle: &EmbeddedOracle, settings: &OracleSection) {
    while let Err(OracleError::Store(_)) = oracle.rule(settings).await {
        sleep(RETRY_INTERVAL).await;
    }
}

/// Takes the signed copy beside the database, if it is newer than the cached roster.
fn take_copy(state: &State, membership: &Membership, log: &Log) {
    let file = state.oracle_dir().join("roster");
    let offered = match fs::read(&file) {
        Ok(signed) => membership.offer(&signed).map(drop).map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    };
    if let (Err(why), None) = (offered, membership.current()) {
        log.put(Event::new("roster_refused").with("file", file.display()).with("why", why));
    }
}

/// The reason, what still works, and what to do.
fn why(error: &OracleError, state: &State, membership: &Membership) -> String {
    let roster = roster_status(membership);
    let version = roster.as_ref().map_or(0, |r| r.version);
    let until = match roster.and_then(|r| r.left) {
        Some(left) => format!("for {} more", format_duration(left)),
        None => "no longer: it is not valid".to_owned(),
    };
    let dir = state.oracle_dir();
    format!(
        "the oracle does not run: {error}; this node and the members continue with roster version \
         {version} {until}. Restore {} from a backup, or fix this error, and restart `thalweg \
         node`; until then no host can join or be revoked",
        dir.display()
    )
}

fn alert(why: &str) -> Event {
    Event::new("oracle_down").with("level", "alert").with("why", why)
}
