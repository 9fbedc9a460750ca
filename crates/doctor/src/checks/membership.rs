//! The roster, the oracle, and the versions of other members.

use std::time::Duration;
use thalweg_wire::doctor::Finding;

/// Rosters are renewed long before they end; less than this means that renewals fail.
const SOON: Duration = Duration::from_secs(12 * 3600);

/// The stored roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterFacts {
    /// This host never got one.
    Missing,
    /// The file cannot be used.
    Damaged(String),
    /// There is one.
    Found {
        version: u64,
        members: usize,
        /// How long it is still valid, or why it is not.
        left: Result<Duration, RosterEnd>,
        /// Why another host seems to sign with the mesh's key.
        fork: Option<String>,
    },
}

/// Why a roster is not valid now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterEnd {
    Expired(Duration),
    /// It becomes valid in this time, by this host's clock.
    NotYet(Duration),
}

/// What asking the oracle gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OracleFacts {
    /// This node is the oracle.
    Inside,
    /// It answered, with this version of the roster.
    Reached { version: u64 },
    /// It does not know this host.
    NotAdmitted,
    /// It did not answer, for this reason.
    Unreached(String),
}

/// A command for the end of remedies: rosters come from the oracle.
const RENEW: &str =
    "thalweg status # asks the oracle; then restart the node: systemctl restart thalweg";

/// Whether this host's roster is in force.
pub fn check_roster(facts: &RosterFacts) -> Finding {
    let nobody = "no member is admitted here, and nothing can be sent or fetched by name";
    match facts {
        RosterFacts::Missing => {
            Finding::error("roster.missing", "this host has no roster").means(nobody).remedy(RENEW)
        }
        RosterFacts::Damaged(why) => {
            Finding::error("roster.damaged", why).means(nobody).remedy(RENEW)
        }
        RosterFacts::Found { fork: Some(fork), version, .. } => {
            Finding::error("roster.fork", format!("version {version}: {fork}"))
                .means("somebody else may decide who is a member")
                .remedy("thalweg mesh rekey # on the oracle's host")
        }
        RosterFacts::Found { version, members, left, .. } => match left {
            Err(RosterEnd::Expired(since)) => Finding::error(
                "roster.expired",
                format!("version {version} expired {} ago", whole(*since)),
            )
            .means(nobody)
            .remedy(RENEW),
            Err(RosterEnd::NotYet(until)) => Finding::error(
                "roster.not-yet-valid",
                format!("version {version} becomes valid in {}", whole(*until)),
            )
            .means("this host's clock is behind; no member is admitted here")
            .remedy("timedatectl set-ntp true"),
            Ok(left) => valid(*version, *members, *left),
        },
    }
}

fn valid(version: u64, members: usize, left: Duration) -> Finding {
    let seen = format!("version {version}, {members} members, valid for {}", whole(left));
    match left < SOON {
        true => Finding::warning("roster.ends-soon", seen)
            .means("after that no member is admitted here")
            .remedy(RENEW),
        false => Finding::ok("roster.valid", seen),
    }
}

/// A rounded duration: minutes, hours or days.
fn whole(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// Whether the oracle answers.
pub fn check_oracle(facts: &OracleFacts) -> Finding {
    match facts {
        OracleFacts::Inside => Finding::ok("oracle.reached", "it is in this node"),
        OracleFacts::Reached { version } => {
            Finding::ok("oracle.reached", format!("it answered, with roster version {version}"))
        }
        OracleFacts::NotAdmitted => {
            Finding::error("membership.revoked", "the oracle does not admit this host's key")
                .means("this host was revoked, or the oracle belongs to another mesh")
                .remedy("move node.key and client.key away, then: thalweg mesh join TOKEN")
        }
        OracleFacts::Unreached(why) => Finding::error("oracle.unreachable", why)
            .means("the roster is used until it expires; nothing new is measured or planned")
            .remedy("on the oracle's host: systemctl start thalweg; thalweg doctor"),
    }
}

/// Compares this program's version with those of other members, by name.
pub fn check_versions(own: &str, others: &[(String, String)]) -> Finding {
    if others.is_empty() {
        return Finding::unchecked("version.same", "no other member could be asked");
    }
    let differing: Vec<String> = others
        .iter()
        .filter(|(_, version)| version != own)
        .map(|(name, version)| format!("{name} runs {version}"))
        .collect();
    if differing.is_empty() {
        let names: Vec<&str> = others.iter().map(|(name, _)| &**name).collect();
        return Finding::ok("version.same", format!("{own}, as {}", names.join(", ")));
    }
    Finding::warning("version.differs", format!("this host has {own}, {}", differing.join(", ")))
        .means("services that one version lacks are refused")
        .remedy("install the same version on all hosts: thalweg --version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    fn roster(left: Result<Duration, RosterEnd>) -> Finding {
        check_roster(&RosterFacts::Found { version: 7, members: 3, left, fork: None })
    }

    #[test]
    fn a_roster_is_judged_by_the_time_that_it_has_left() {
        let hour = Duration::from_secs(3600);
        assert_eq!(roster(Ok(100 * hour)).severity, Severity::Ok);
        assert_eq!(roster(Ok(hour)).id, "roster.ends-soon");
        let expired = roster(Err(RosterEnd::Expired(hour)));
        assert_eq!((&*expired.id, expired.severity), ("roster.expired", Severity::Error));
        assert_eq!(roster(Err(RosterEnd::NotYet(hour))).id, "roster.not-yet-valid");
        assert_eq!(check_roster(&RosterFacts::Missing).id, "roster.missing");
    }

    #[test]
    fn a_version_that_differs_is_named_with_its_host() {
        let of = |version: &str| vec![("fra".to_owned(), version.to_owned())];
        assert_eq!(check_versions("0.1.0", &of("0.1.0")).severity, Severity::Ok);
        let differs = check_versions("0.1.0", &of("0.2.0"));
        assert!(differs.id == "version.differs" && differs.seen.contains("fra runs 0.2.0"));
        assert_eq!(check_versions("0.1.0", &[]).severity, Severity::Unchecked);
    }
}
