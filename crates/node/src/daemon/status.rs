//! The status of a node, for its owner.

use super::counters::{Counters, Counts};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_mesh::Membership;
use thalweg_mesh::reach::ReachView;
use thalweg_mesh::service::{Control, MemberService, SubmitService};
use thalweg_units::{NodeId, WallTime, serde_duration};
use thalweg_wire::mesh::{MemberStatus, Name, Role, StatusReply};
use tokio::time::timeout;
use utoipa::ToSchema;

/// How long the oracle may take to answer before it counts as not reached.
const ORACLE: Duration = Duration::from_secs(5);

/// The status of a node: the reply to `GET /v1/status` of the local API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    #[schema(value_type = String)]
    pub name: Name,
    /// The daemon's key.
    #[schema(value_type = String)]
    pub key: NodeId,
    /// The mesh's key.
    #[schema(value_type = String)]
    pub mesh: NodeId,
    /// The program's version.
    pub program: String,
    /// The time since the daemon started.
    #[serde(with = "serde_duration")]
    #[schema(value_type = String)]
    pub up: Duration,
    /// The addresses of its port.
    #[schema(value_type = Vec<String>)]
    pub listen: Vec<SocketAddr>,
    /// The roster that it uses; `None` if it never got one.
    pub roster: Option<RosterStatus>,
    /// What it knows of the oracle.
    pub oracle: OracleStatus,
    /// The counters of its connections.
    pub counts: Counts,
    /// The relay's own counts and quotas; null if it does not relay.
    pub relay: serde_json::Value,
    /// Files served: counters, and how many directories are offered; null if none are served.
    #[serde(default)]
    pub files: serde_json::Value,
    /// Drop boxes: counters, and their `settings`; null if there are none.
    #[serde(default)]
    pub drop_boxes: serde_json::Value,
    /// Casts: those that are received here, and what was forwarded; null if it takes part in none.
    #[serde(default)]
    pub casts: serde_json::Value,
    /// Streams: each with its legs, and counters; null if it takes part in none.
    #[serde(default)]
    pub streams: serde_json::Value,
    /// The carrier, as [`thalweg_probe::carrier::CarrierReport`]; null if nothing is carried.
    #[serde(default)]
    pub carrier: serde_json::Value,
    /// The calibration of this host for probe trains: `is_valid`, `gap_error_ns` (half of all gaps were off by less,
    /// and 99 of 100), `shortest_gap_ns`, `honest_bps`, `send_ns`, `receive_ns`, `age_seconds`; null before the first
    /// one.
    #[serde(default)]
    pub calibration: serde_json::Value,
    /// Links that the measurement overlay measured, by outcome, and its bytes; null if it is off.
    #[serde(default)]
    pub overlay: serde_json::Value,
    /// How others reach this node: `mode`, `way` (direct or relayed), `relays` with their round trips, `trouble`; and
    /// `standing`, the members that stand here. Null before it is known.
    #[serde(default)]
    pub reach: serde_json::Value,
    /// Why the daemon should be restarted; `None` if it need not be.
    #[serde(default)]
    pub restart: Option<String>,
}

/// The roster that a node uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RosterStatus {
    pub version: u64,
    /// The date from which on it is not valid.
    #[schema(value_type = u64)]
    pub expiry: WallTime,
    /// How long it is still valid; `None` if it is not.
    #[serde(default, with = "serde_duration::option")]
    #[schema(value_type = Option<String>)]
    pub left: Option<Duration>,
    /// The number of its members.
    pub members: usize,
    /// Why it is not valid now.
    #[serde(default)]
    pub fault: Option<String>,
    /// The number of the key that signed it; 0: the mesh has no root key of its own.
    #[serde(default)]
    pub key_number: u64,
    /// Why another host seems to sign with the mesh's key.
    #[serde(default)]
    pub fork: Option<String>,
}

/// What a node knows of the oracle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OracleStatus {
    /// Whether this node is the oracle.
    pub inside: bool,
    /// Whether the oracle answered just now.
    pub reached: bool,
    /// Why the oracle did not answer.
    #[serde(default)]
    pub error: Option<String>,
    /// The version of the oracle's roster.
    #[serde(default)]
    pub version: Option<u64>,
    /// How far the oracle's clock is ahead of this host's, in seconds.
    #[serde(default)]
    pub clock_ahead_s: Option<f64>,
    /// When the oracle last heard of each member.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub members: Vec<MemberStatus>,
}

/// The parts of a node from which its status is made.
#[derive(Clone, Debug)]
pub struct StatusSources {
    pub name: Name,
    pub key: NodeId,
    pub membership: Membership,
    /// Answers requests that only an oracle can answer.
    pub control: Arc<dyn Control>,
    /// Whether this node is the oracle.
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
    /// The prober, if the node measures.
    pub measure: Option<Arc<dyn MemberService>>,
    /// The members that stand here because they cannot be dialled.
    pub standing: Option<Arc<dyn MemberService>>,
    /// How others reach this node.
    pub reach: Option<ReachView>,
    pub counters: Counters,
    /// The addresses of its port.
    pub listen: Vec<SocketAddr>,
    /// The roles that it serves by: those it had when it started.
    pub duties: BTreeSet<Role>,
    pub started: Instant,
}

impl StatusSources {
    /// The status now; asks the oracle, for at most 5 s.
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
            calibration: self.part_of_probe_report("calibration"),
            overlay: self.measure.as_ref().map(|m| m.report()).unwrap_or_default(),
            reach: self.reach(),
            restart: self.restart(),
        }
    }

    /// The carrier's part of the probe service's report; `null` without that service.
    pub fn carrier(&self) -> serde_json::Value {
        self.part_of_probe_report("carrier")
    }

    /// A part of the report of the service for probe trains.
    fn part_of_probe_report(&self, what: &str) -> serde_json::Value {
        let report = self.probe.as_ref().map(|p| p.report());
        report.and_then(|mut report| Some(report.get_mut(what)?.take())).unwrap_or_default()
    }

    fn reach(&self) -> serde_json::Value {
        let Some(view) = &self.reach else { return serde_json::Value::Null };
        let mut report = serde_json::to_value(view.get()).unwrap_or_default();
        let standing = self.standing.as_ref().map(|standing| standing.report());
        if let Some(count) = standing.as_ref().and_then(|standing| standing.get("standing")) {
            report["standing"] = count.clone();
        }
        report
    }

    fn restart(&self) -> Option<String> {
        let now = duties(&self.membership, &self.key);
        (now != self.duties).then(|| {
            let [now, then] = [&now, &self.duties].map(role_names);
            format!("its roles in the roster are {now}, but it started with {then}; restart it")
        })
    }

    async fn oracle(&self) -> OracleStatus {
        let answer = match timeout(ORACLE, self.control.status()).await {
            Ok(answer) => answer.map_err(|e| e.message),
            Err(_) => Err(format!("no answer within {ORACLE:?}")),
        };
        let inside = self.is_oracle;
        match answer {
            Ok(reply) => oracle_status(inside, reply, self.membership.now()),
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

/// The roles of the member with this key, except `client`, which changes nothing that a daemon does; empty if there is
/// no such member.
pub(super) fn duties(membership: &Membership, key: &NodeId) -> BTreeSet<Role> {
    let roster = membership.current();
    let member = roster.as_ref().and_then(|r| r.by_key(key));
    let roles = member.iter().flat_map(|m| m.roles.iter().copied());
    roles.filter(|role| *role != Role::Client).collect()
}

fn role_names(roles: &BTreeSet<Role>) -> String {
    let all: Vec<_> = [Role::Client].iter().chain(roles).map(Role::to_string).collect();
    all.join(", ")
}

fn oracle_status(inside: bool, reply: StatusReply, now: WallTime) -> OracleStatus {
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
        key_number: roster.rank().endorsement,
        fork: membership.fork().map(|fork| fork.to_string()),
    })
}
