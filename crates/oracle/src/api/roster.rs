//! `GET /v1/roster`: the newest roster, immediately or as soon as there is one newer than the caller's.

use crate::{
    Caller, Oracle, OracleError, Refusal,
    limits::{WAIT, WAITING_EACH},
    registry::{Access, SignedRoster},
};
use axum::{
    body::{Body, Bytes},
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::mesh::RosterRank;
use tokio::{sync::SemaphorePermit, time::timeout};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewestQuery {
    /// The version of the caller's roster.
    after: u64,
    /// The number of the key that signed it; absent: the version alone decides.
    key: Option<u64>,
    wait_s: u64,
}

impl NewestQuery {
    /// The rank of the caller's roster; of the newest one's key, if the caller does not name it.
    fn rank(&self, newest: RosterRank) -> RosterRank {
        RosterRank { endorsement: self.key.unwrap_or(newest.endorsement), version: self.after }
    }
}

pub(super) async fn newest(
    State(oracle): State<Oracle>,
    caller: Caller,
    query: Result<Query<NewestQuery>, QueryRejection>,
) -> Result<Response, OracleError> {
    oracle.registry().authorise(&caller, Access::Member)?;
    let Query(query) = query.map_err(|error| Refusal::Bad(error.body_text()))?;
    let newest = oracle.registry().newest().roster.rank();
    oracle.registry().record_rank(&caller, query.rank(newest));
    let found = newer(&oracle, &caller, query).await?;
    Ok(found.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |newest| answer(&newest)))
}

/// The signed bytes. All answers share them.
fn answer(newest: &SignedRoster) -> Response {
    let body = Body::from(Bytes::from_owner(newest.bytes.clone()));
    ([(CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

/// A waiting request, counted among all waiting requests and among those of its member.
struct WaitPermit<'a> {
    oracle: &'a Oracle,
    key: Option<NodeId>,
    _among_all: SemaphorePermit<'a>,
}

impl<'a> WaitPermit<'a> {
    fn take(oracle: &'a Oracle, caller: &Caller) -> Result<Self, Refusal> {
        let among_all = oracle.inner.waiting.try_acquire().map_err(|_| Refusal::Waiting("all"))?;
        let key = caller.key();
        let free = key.is_none_or(|key| oracle.inner.waits_each.enter(key, WAITING_EACH));
        match free {
            true => Ok(Self { oracle, key, _among_all: among_all }),
            false => Err(Refusal::Waiting("this member")),
        }
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        self.key.iter().for_each(|key| self.oracle.inner.waits_each.leave(key));
    }
}

/// The newest roster once it ranks above the caller's; `None` if that does not happen in the time that it waits.
///
/// A member that is revoked while it waits receives the roster without itself, and so learns of the revocation.
async fn newer(
    oracle: &Oracle,
    caller: &Caller,
    query: NewestQuery,
) -> Result<Option<Arc<SignedRoster>>, Refusal> {
    let wait = Duration::from_secs(query.wait_s).min(WAIT);
    let is_newer =
        |newest: &Arc<SignedRoster>| newest.roster.rank() > query.rank(newest.roster.rank());
    let at_once = oracle.registry().newest();
    if is_newer(&at_once) || wait.is_zero() {
        return Ok(Some(at_once).filter(is_newer));
    }
    let _place = WaitPermit::take(oracle, caller)?;
    let (mut news, mut stop) =
        (oracle.registry().newest.subscribe(), oracle.inner.stopping.subscribe());
    let waited = timeout(wait, async {
        tokio::select! {
            newest = news.wait_for(is_newer) => newest.ok().map(|newest| newest.clone()),
            _ = stop.wait_for(|stop| *stop) => None,
        }
    });
    Ok(waited.await.ok().flatten())
}
