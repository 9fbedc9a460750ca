//! The examination with other members: the oracle, and up to three members that connect back.

use super::examination::{Patient, port_facts, roster};
use futures_util::future::join_all;
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};
use thalweg_base::clock::WallClock;
use thalweg_doctor::{
    Finding, Severity,
    checks::{
        clock::{self, ClockFacts, OtherClock},
        membership::{OracleFacts, check_oracle, check_versions},
        mtu, nat, path, port,
    },
    host,
    peer::{Examination, Examiner, PeerError},
};
use thalweg_mesh::{Membership, OracleClient, OracleError, State};
use thalweg_wire::mesh::{Member, Name, Role, StatusReply};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};

/// Members that are asked if none is named: two tell the kind of a NAT, a third one may be away.
const MEMBERS: usize = 3;

/// How long the oracle may take.
const ORACLE: Duration = Duration::from_secs(6);

/// What a member answered.
type Answer = (Name, Result<Examination, PeerError>);

/// The findings that need a mesh; only the clock's if there is none.
pub(super) async fn examine(patient: &Patient<'_>) -> Vec<Finding> {
    let Some(state) = &patient.state else {
        let mut found = clock::check(&clock_facts(Vec::new()));
        if let Some(peer) = &patient.args.peer {
            found.push(path::no_mesh(peer.as_str()));
        }
        return found;
    };
    let mut found = vec![roster(patient)];
    let (oracle, answers) = tokio::join!(ask_oracle(patient, state), ask_members(patient, state));
    let (facts, oracle_clock) = oracle;
    found.push(check_oracle(&facts));
    let reached: Vec<&Examination> =
        answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
    found.extend(unreached(patient, &answers, !reached.is_empty()));
    let clocks: Vec<OtherClock> = reached.iter().map(|one| one.clock.clone()).collect();
    let clocks = if clocks.is_empty() { oracle_clock.into_iter().collect() } else { clocks };
    found.extend(clock::check(&clock_facts(clocks)));
    found.extend(about_paths(patient, &reached));
    found.extend(port::check(&dialed(patient, &answers)));
    found
}

fn clock_facts(others: Vec<OtherClock>) -> ClockFacts {
    ClockFacts { kernel: Some(host::kernel_clock()), others }
}

/// Asks the oracle with the command line's key, which tells a revocation from silence.
async fn ask_oracle(patient: &Patient<'_>, state: &State) -> (OracleFacts, Option<OtherClock>) {
    if state.oracle_dir().exists() && patient.node.as_ref().is_none_or(|node| node.oracle.reached) {
        return (OracleFacts::Inside, None);
    }
    let client =
        state.client_key().ok().zip(state.mesh().ok()).and_then(|(key, mesh)| {
            OracleClient::new(&key, mesh.oracles, WallClock::default()).ok()
        });
    let Some(client) = client else {
        return (OracleFacts::Unreached("this host's key cannot be used".to_owned()), None);
    };
    let begun = Instant::now();
    match timeout(ORACLE, client.status()).await {
        Ok(Ok(reply)) => {
            let clock = oracle_clock(&reply, begun.elapsed());
            (OracleFacts::Reached { version: reply.version }, Some(clock))
        }
        Ok(Err(OracleError::NotAdmitted)) => (OracleFacts::NotAdmitted, None),
        Ok(Err(why)) => (OracleFacts::Unreached(why.to_string()), None),
        Err(_) => (OracleFacts::Unreached(format!("no answer in {} s", ORACLE.as_secs())), None),
    }
}

fn oracle_clock(reply: &StatusReply, took: Duration) -> OtherClock {
    let now = WallClock::default().now().as_unix_nanos() as f64 / 1e9;
    let ahead_s = reply.time.as_unix_nanos() as f64 / 1e9 - now;
    OtherClock { of: "the oracle".to_owned(), ahead_s, doubt_s: took.as_secs_f64() }
}

/// Asks the named member, or some; all at a time.
async fn ask_members(patient: &Patient<'_>, state: &State) -> Vec<Answer> {
    let members = match chosen(patient) {
        Ok(members) => members,
        Err((name, why)) => return vec![(name, Err(PeerError::Unreached(why)))],
    };
    let Ok(key) = state.client_key() else { return Vec::new() };
    // The port stays reserved until all have answered.
    let reserved = Examiner::reserve_port().ok();
    let from = reserved.as_ref().map_or(0, |(port, _)| *port);
    let Ok(examiner) = Examiner::new(&key, WallClock::default(), from) else { return Vec::new() };
    let stand_in = stand_in(patient).await;
    let dial_back = patient.node.is_some() || stand_in.is_some();
    let asked = members.iter().map(|member| examiner.examine(member, dial_back));
    let answers = join_all(asked).await;
    if let Some(stand_in) = stand_in {
        stand_in.abort();
        // Only then is its port free, and not found to be held.
        _ = stand_in.await;
    }
    members.into_iter().map(|member| member.name).zip(answers).collect()
}

/// The members to ask: oracles first, because every member must reach them.
fn chosen(patient: &Patient<'_>) -> Result<Vec<Member>, (Name, String)> {
    let roster = patient.membership.as_ref().and_then(Membership::current);
    let all = roster.as_ref().map(|roster| roster.members.clone()).unwrap_or_default();
    if let Some(peer) = &patient.args.peer {
        let named = all.into_iter().find(|member| member.name == *peer);
        let unknown = "it is not in this host's roster; `thalweg mesh members` lists all members";
        return named.map(|one| vec![one]).ok_or_else(|| (peer.clone(), unknown.to_owned()));
    }
    let own = patient.member().map(|member| member.name);
    let mut others: Vec<Member> = all
        .into_iter()
        .filter(|member| Some(&member.name) != own.as_ref())
        .filter(|member| member.node.is_some() && !member.addresses.is_empty())
        .collect();
    others.sort_by_key(|member| !member.is(Role::Oracle));
    others.truncate(MEMBERS);
    Ok(others)
}

/// While no node runs, this command holds the port, so that others can try it.
async fn stand_in(patient: &Patient<'_>) -> Option<tokio::task::JoinHandle<()>> {
    if patient.node.is_some() {
        return None;
    }
    let port = patient.port();
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.ok()?,
    };
    Some(tokio::spawn(async move {
        // Each connection is closed at once: the member has seen that it stood.
        while listener.accept().await.is_ok() {}
    }))
}

/// Members that did not answer.
fn unreached(patient: &Patient<'_>, answers: &[Answer], some: bool) -> Vec<Finding> {
    let finding = |(name, answer): &Answer| {
        let why = answer.as_ref().err()?;
        if let PeerError::TooOld(why) = why {
            return Some(Finding::note("peer.too-old", format!("{name}: {why}")));
        }
        if let PeerError::BlackHole(facts) = why {
            return Some(mtu::check(facts));
        }
        let is_named = patient.args.peer.is_some();
        let finding = path::unreachable(name.as_str(), &why.to_string(), is_named);
        // One of several may be switched off; that is no fault of this host.
        Some(match some && !is_named {
            true => Finding { severity: Severity::Note, ..finding },
            false => finding,
        })
    };
    answers.iter().filter_map(finding).collect()
}

fn about_paths(patient: &Patient<'_>, reached: &[&Examination]) -> Vec<Finding> {
    let views: Vec<_> = reached.iter().map(|one| one.view.clone()).collect();
    let mut found = vec![nat::check(&views)];
    for one in reached {
        found.push(path::check(&one.path));
        found.push(mtu::check(&one.mtu));
        if patient.args.peer.is_some() {
            found.extend(one.findings.iter().cloned().map(|finding| theirs(one, finding)));
        }
    }
    let versions: Vec<(String, String)> =
        reached.iter().map(|one| (one.hello.name.to_string(), one.hello.version.clone())).collect();
    found.push(check_versions(env!("CARGO_PKG_VERSION"), &versions));
    found
}

/// A member's finding about itself.
fn theirs(one: &Examination, finding: Finding) -> Finding {
    let name = &one.hello.name;
    let remedy = match finding.remedy.is_empty() {
        true => String::new(),
        false => format!("on {name}: {}", finding.remedy),
    };
    Finding { seen: format!("on {name}: {}", finding.seen), remedy, ..finding }
}

fn dialed(patient: &Patient<'_>, answers: &[Answer]) -> port::PortFacts {
    let facts = port_facts(patient);
    let answered = || {
        let reached =
            answers.iter().filter_map(|(name, answer)| Some((name, answer.as_ref().ok()?)));
        reached.map(|(name, one)| (name, &one.dialed))
    };
    let dialed: Vec<_> = answered()
        .filter_map(|(name, dialed)| Some((name.to_string(), dialed.as_ref().ok()?.clone())))
        .collect();
    let unasked = answered().find_map(|(name, dialed)| {
        Some(format!("{name} did not connect back: {}", dialed.as_ref().err()?))
    });
    port::PortFacts { dialed, unasked, filter: Some(host::packet_filter()), ..facts }
}
