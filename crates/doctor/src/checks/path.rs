//! The path to another member: reached at all, and with how much loss.

use std::time::Duration;
use thalweg_wire::doctor::Finding;

/// Loss from which on a single TCP connection with cubic cannot fill usual paths.
const LOSSY: f64 = 0.02;

/// Fewer retransmissions than this may be chance, or the kernel's probes of a tail that a busy host acknowledges late.
const FEW: u64 = 8;

/// What one member's answers showed of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// The member's name.
    pub peer: String,
    pub rtt: Duration,
    /// Segments with data sent to the member.
    pub sent: u64,
    /// Of these, segments that were sent again.
    pub retransmitted: u64,
    /// Segments with data received.
    pub received: u64,
    /// Of these, segments that arrived after a gap.
    pub out_of_order: u64,
}

/// How the path treats packets.
pub fn check(facts: &PathFacts) -> Finding {
    let PathFacts { peer, rtt, sent, retransmitted, received, out_of_order } = facts;
    let seen = format!(
        "{peer}: round trip {:.1} ms; {retransmitted} of {sent} segments sent again, {out_of_order} of \
         {received} received after a gap",
        rtt.as_secs_f64() * 1e3
    );
    let lossy = |lost: u64, of: u64| lost >= FEW && lost as f64 > LOSSY * of as f64;
    if lossy(*retransmitted, *sent) || lossy(*out_of_order, *received) {
        return Finding::warning("path.loss", seen)
            .means("one TCP connection stays far below the path's rate")
            .remedy(format!(
                "thalweg measure {peer} --method badabing; thalweg get URL --paths 4"
            ));
    }
    Finding::ok("path.answers", seen)
}

/// A member that did not answer.
pub fn unreachable(peer: &str, why: &str, is_asked_for: bool) -> Finding {
    let found = match is_asked_for {
        true => Finding::error("peer.unreachable", format!("{peer}: {why}")),
        false => Finding::warning("peer.unreachable", format!("{peer}: {why}")),
    };
    found
        .means("nothing can be sent to this member or fetched from it directly")
        .remedy(format!("on {peer}: thalweg doctor"))
}

/// A member that cannot be asked, because this host is in no mesh.
pub fn no_mesh(peer: &str) -> Finding {
    Finding::error("peer.unreachable", format!("{peer}: this host is in no mesh"))
        .means("only members of a mesh examine each other")
        .remedy("thalweg up TOKEN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_losses_are_chance() {
        let good = PathFacts {
            peer: "fra".to_owned(),
            rtt: Duration::from_micros(20_300),
            sent: 300,
            retransmitted: 3,
            received: 300,
            out_of_order: 0,
        };
        assert_eq!(check(&good).id, "path.answers");
        assert!(check(&good).seen.contains("20.3 ms"));
        assert_eq!(check(&PathFacts { retransmitted: 19, ..good.clone() }).id, "path.loss");
        assert_eq!(check(&PathFacts { out_of_order: 19, ..good }).id, "path.loss");
    }
}
