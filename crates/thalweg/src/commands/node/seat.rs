//! The oracle's seat in this node: empty, taken, or out of order.

use crate::commands::oracle_inside::OracleInside;
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

/// An oracle that does not run is told of again after this time, as other lasting trouble.
const AGAIN: Duration = Duration::from_secs(600);

/// Between two tries to give a database that cannot be written the settings' rules.
const RETRY: Duration = Duration::from_secs(30);

/// Who sits where the oracle may be.
#[derive(Clone, Debug)]
pub enum Seat {
    /// Nobody: the oracle is elsewhere.
    Empty,
    /// The oracle.
    Taken(OracleInside),
    /// It cannot run; its node goes on without it.
    Down(OracleDown),
}

impl Seat {
    /// Opens the oracle of this node, if it has one.
    ///
    /// What is wrong with the oracle is no reason for its node not to relay, as long as
    /// there is a roster to relay by: the cached one, or the copy in `oracle/`.
    ///
    /// # Errors
    /// What is wrong, if there is no roster; rules that make none.
    pub async fn open(
        state: &State,
        node: NodeId,
        membership: &Membership,
        settings: &OracleSection,
        log: &Log,
    ) -> anyhow::Result<Self> {
        let dir = state.oracle_dir();
        if !dir.exists() && !is_oracle(membership, &node) {
            return Ok(Self::Empty);
        }
        match OracleInside::open(state, node, settings, Some(log.clone())).await {
            Ok(oracle) => {
                take(&oracle, membership, settings, log).await?;
                Ok(Self::Taken(oracle))
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

    /// What runs for as long as the node does; none if nothing has to.
    pub async fn remind(self, settings: OracleSection, log: Log) {
        match self {
            Self::Empty => {}
            Self::Taken(oracle) => rule(&oracle, &settings).await,
            Self::Down(down) => loop {
                sleep(AGAIN).await;
                log.put(alert(down.why()));
            },
        }
    }

    /// Whether members ask this node for rosters.
    pub fn is_taken(&self) -> bool {
        !matches!(self, Self::Empty)
    }

    /// Who answers on the channels `api` and `join`.
    pub fn service(&self) -> Option<Arc<dyn ApiService>> {
        match self {
            Self::Empty => None,
            Self::Taken(oracle) => Some(Arc::new(oracle.clone())),
            Self::Down(down) => Some(Arc::new(down.clone())),
        }
    }

    /// Who answers this host's commands; none: an oracle elsewhere.
    pub fn control(&self) -> Option<Arc<dyn Control>> {
        match self {
            Self::Empty => None,
            Self::Taken(oracle) => Some(Arc::new(oracle.clone())),
            Self::Down(down) => Some(Arc::new(down.clone())),
        }
    }
}

/// By the roster, so that a lost directory is noticed.
fn is_oracle(membership: &Membership, node: &NodeId) -> bool {
    let roster = membership.current();
    roster.as_ref().and_then(|r| r.by_key(node)).is_some_and(|m| m.is(Role::Oracle))
}

/// Begins with the settings' rules and with what the oracle has just published.
async fn take(
    oracle: &OracleInside,
    membership: &Membership,
    settings: &OracleSection,
    log: &Log,
) -> anyhow::Result<()> {
    match oracle.rule(settings).await {
        // It can wait until the database can be written, see `remind`.
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

/// Until the settings' rules are the mesh's.
async fn rule(oracle: &OracleInside, settings: &OracleSection) {
    while let Err(OracleError::Store(_)) = oracle.rule(settings).await {
        sleep(RETRY).await;
    }
}

/// The signed copy beside the database, if it is newer than what is cached.
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
        None => "no more: it does not hold".to_owned(),
    };
    let dir = state.oracle_dir();
    format!(
        "the oracle does not run: {error}; this node and the members go on by roster version \
         {version} {until}. Restore {} from a copy, or mend what is named here, and start \
         `thalweg node` anew; until then nobody joins and nobody is revoked",
        dir.display()
    )
}

fn alert(why: &str) -> Event {
    Event::new("oracle_down").with("level", "alert").with("why", why)
}
