//! What a node says of itself to its owner.

use super::counters::{Counters, Counts};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_mesh::Membership;
use thalweg_mesh::service::{Control, MemberService, SubmitService};
use thalweg_units::{NodeId, WallTime, serde_duration};
use thalweg_wire::mesh::{MemberStatus, Name, Role, StatusReply};
use tokio::time::timeout;

/// How long the oracle may take to answer before it counts as not reached.
const ORACLE: Duration = Duration::from_secs(5);

/// One node's state: the reply to `GET /v1/status` of the local API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: Name,
    /// The daemon's key.
    pub key: NodeId,
    /// The mesh's key.
    pub mesh: NodeId,
    /// The program's version.
    pub program: String,
    /// Since the daemon started.
    #[serde(with = "serde_duration")]
    pub up: Duration,
    /// Where its port is bound.
    pub listen: Vec<SocketAddr>,
    /// The roster it goes by; none: it never got one.
    pub roster: Option<RosterStatus>,
    /// What it knows of the oracle.
    pub oracle: OracleStatus,
    /// Its connections.
    pub counts: Counts,
    /// The relay's own counts and quotas; null if it does not relay.
    pub relay: serde_json::Value,
    /// Files served: what is counted, and how many directories are offered; null if none are served.
    #[serde(default)]
    pub files: serde_json::Value,
    /// Drop boxes: what is counted, and their `settings`; null if there are none.
    #[serde(default)]
    pub drop_boxes: serde_json::Value,
    /// Casts: those that land here, and what was handed on; null if it takes part in none.
    #[serde(default)]
    pub casts: serde_json::Value,
    /// Streams: each with its legs, and what is counted; null if it takes part in none.
    #[serde(default)]
    pub streams: serde_json::Value,
    /// The carrier, as [`thalweg_probe::carrier::CarrierReport`]; null if nothing is carried.
    #[serde(default)]
    pub carrier: serde_json::Value,
    /// What calibration found of this host, for probe trains: `is_valid`, `gap_error_ns` (half of all gaps were off by
    /// less, and 99 of 100), `shortest_gap_ns`, `honest_bps`, `send_ns`, `receive_ns`, `age_seconds`; null before the first one.
    #[serde(default)]
    pub calibration: serde_json::Value,
    /// Links that the measurement overlay measured, by outcome, and its bytes; null if it is off.
    #[serde(default)]
    pub overlay: serde_json::Value,
    /// Why the daemon should be started anew; none: it is as it should be.
    #[serde(default)]
    pub restart: Option<String>,
}

/// The roster that a node goes by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterStatus {
    /// Its version.
    pub version: u64,
    /// Not valid from this date on.
    pub expiry: WallTime,
    /// How long it still holds; none if it does not.
    #[serde(default, with = "serde_duration::option")]
    pub left: Option<Duration>,
    /// How many members it has.
    pub members: usize,
    /// Why it does not hold now.
    #[serde(default)]
    pub fault: Option<String>,
}

/// What a node knows of the oracle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OracleStatus {
    /// Whether this node is it.
    pub inside: bool,
    /// Whether it answered just now.
    pub reached: bool,
    /// Why not.
    #[serde(default)]
    pub error: Option<String>,
    /// The version of its roster.
    #[serde(default)]
    pub version: Option<u64>,
    /// Its clock against this host's, in seconds: above zero, ours is behind.
    #[serde(default)]
    pub clock_ahead_s: Option<f64>,
    /// When it last heard of each member.
    #[serde(default)]
    pub members: Vec<MemberStatus>,
}

/// What a status is made of.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The node's name.
    pub name: Name,
    /// Its key.
    pub key: NodeId,
    /// What it believes.
    pub membership: Membership,
    /// Who answers for the oracle.
    pub control: Arc<dyn Control>,
    /// Whether that is this node.
    pub is_oracle: bool,
    /// The relay, if it relays.
    pub relay: Option<Arc<dyn MemberService>>,
    /// Files, if it serves them.
    pub files: Option<Arc<dyn MemberService>>,
    /// Drop boxes, if it serves any.
    pub submit: Option<Arc<dyn SubmitService>>,
    /// Casts, if it takes part in any.
    pub cast: Option<Arc<dyn MemberService>>,
    /// Live media, if it takes part in any.
    pub stream: Option<Arc<dyn MemberService>>,
    /// Probe trains, if it takes any.
    pub probe: Option<Arc<dyn MemberService>>,
    /// Who measures, if anybody does.
    pub measure: Option<Arc<dyn MemberService>>,
    /// What the daemon counts.
    pub counters: Counters,
    /// Where its port is bound.
    pub listen: Vec<SocketAddr>,
    /// The roles that it serves by: those it had when it started.
    pub duties: BTreeSet<Role>,
    /// When it started.
    pub started: Instant,
}

impl Subject {
    /// The state now; asks the oracle, for 5 s at most.
    pub async fn status(&self) -> NodeStatus {
        NodeStatus {
            name: self.name.clone(),
            key: self.key,
            mesh: self.membership.mesh(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            up: Duration::from_secs(self.started.elapsed().as_secs()),
            listen: self.listen.clone(),
            roster: roster_status(&self.membership),
            oracle: self.oracle().await,
            counts: self.counters.counts(),
            relay: self.relay.as_ref().map(|r| r.report()).unwrap_or_default(),
            files: self.files.as_ref().map(|f| f.report()).unwrap_or_default(),
            drop_boxes: self.submit.as_ref().map(|s| s.report()).unwrap_or_default(),
            casts: self.cast.as_ref().map(|c| c.report()).unwrap_or_default(),
            streams: self.stream.as_ref().map(|s| s.report()).unwrap_or_default(),
            carrier: self.carrier(),
            calibration: self.probed("calibration"),
            overlay: self.measure.as_ref().map(|m| m.report()).unwrap_or_default(),
            restart: self.restart(),
        }
    }

    /// The carrier's report.
    pub fn carrier(&self) -> serde_json::Value {
        self.probed("carrier")
    }

    /// Of what the service of probe trains reports.
    fn probed(&self, what: &str) -> serde_json::Value {
        let report = self.probe.as_ref().map(|p| p.report());
        report.and_then(|mut report| Some(report.get_mut(what)?.take())).unwrap_or_default()
    }

    fn restart(&self) -> Option<String> {
        let now = duties(&self.membership, &self.key);
        (now != self.duties).then(|| {
            let [now, then] = [&now, &self.duties].map(words);
            format!("its roles are {now} in the roster and were {then} when it started; restart it")
        })
    }

    async fn oracle(&self) -> OracleStatus {
        let answer = match timeout(ORACLE, self.control.status()).await {
            Ok(answer) => answer.map_err(|e| e.message),
            Err(_) => Err(format!("no answer within {ORACLE:?}")),
        };
        let inside = self.is_oracle;
        match answer {
            Ok(reply) => reached(inside, reply, self.membership.now()),
            Err(e) => OracleStatus {
                inside,
                reached: false,
                error: Some(e),
                version: None,
                clock_ahead_s: None,
                members: Vec::new(),
            },
        }
    }
}

/// The roles of the member with this key, but for `client`, which changes nothing that a
/// daemon does; empty if there is none.
pub(super) fn duties(membership: &Membership, key: &NodeId) -> BTreeSet<Role> {
    let roster = membership.current();
    let member = roster.as_ref().and_then(|r| r.by_key(key));
    let roles = member.iter().flat_map(|m| m.roles.iter().copied());
    roles.filter(|role| *role != Role::Client).collect()
}

fn words(roles: &BTreeSet<Role>) -> String {
    let all: Vec<_> = [Role::Client].iter().chain(roles).map(Role::to_string).collect();
    all.join(", ")
}

fn reached(inside: bool, reply: StatusReply, now: WallTime) -> OracleStatus {
    let seconds = |t: WallTime| t.as_unix_nanos() as f64 / 1e9;
    OracleStatus {
        inside,
        reached: true,
        error: None,
        version: Some(reply.version),
        clock_ahead_s: Some(seconds(reply.time) - seconds(now)),
        members: reply.members,
    }
}

/// The state of the roster that this host has, whether a daemon runs or not.
pub fn roster_status(membership: &Membership) -> Option<RosterStatus> {
    let (roster, now) = (membership.current()?, membership.now());
    let fault = roster.check(now).err().map(|fault| fault.to_string());
    let left = roster.expiry.as_unix_nanos().saturating_sub(now.as_unix_nanos());
    Some(RosterStatus {
        version: roster.version,
        expiry: roster.expiry,
        // Whole seconds: nobody reads nanoseconds of a week.
        left: fault.is_none().then(|| Duration::from_secs(left / 1_000_000_000)),
        members: roster.members.len(),
        fault,
    })
}
