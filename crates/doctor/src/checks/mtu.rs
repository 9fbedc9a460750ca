//! Packet sizes: whether full-sized packets arrive, in both directions.

use thalweg_wire::doctor::Finding;

/// IPv4 and TCP headers without options, bytes: a segment of n bytes is a packet of n + 40.
const HEADERS: u32 = 40;

/// The packet size of Ethernet, and of most paths.
const USUAL: u32 = 1500;

/// What transfers of padding to one member showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MtuFacts {
    /// The member's name.
    pub peer: String,
    /// The interface by which it is reached, if known.
    pub interface: Option<String>,
    /// The path's MTU as the kernel knows it after the transfer, bytes.
    pub path: Option<u32>,
    /// Whether padding arrived at the member.
    pub up: bool,
    /// Whether the member's padding arrived here.
    pub down: bool,
    /// If some did not arrive: the largest TCP segment, bytes, that passes in both directions; `None`: none did.
    pub passes: Option<u32>,
}

/// Whether packets of full size pass.
pub fn check(facts: &MtuFacts) -> Finding {
    let peer = &facts.peer;
    if facts.up && facts.down {
        return whole(facts);
    }
    let way = match (facts.up, facts.down) {
        (false, true) => "to",
        (true, false) => "from",
        _ => "to and from",
    };
    let Some(passes) = facts.passes else {
        let seen = format!("no data pass {way} {peer}, although connections open");
        return Finding::error("path.stalls", seen)
            .means("transfers with this member never move")
            .remedy(format!("thalweg measure {peer} --method hops # where packets end"));
    };
    let size = passes + HEADERS;
    let device = facts.interface.as_deref().unwrap_or("IFACE");
    let seen = format!(
        "packets of {size} bytes pass {way} {peer}, full-sized ones (up to {}) vanish without an ICMP error",
        facts.path.unwrap_or(USUAL)
    );
    Finding::error("mtu.black-hole", seen)
        .means("connections open, and then hang as soon as they carry data")
        .remedy(format!(
            "sysctl -w net.ipv4.tcp_mtu_probing=1 # or: ip link set {device} mtu {size}"
        ))
}

fn whole(facts: &MtuFacts) -> Finding {
    let peer = &facts.peer;
    match facts.path {
        Some(path) if path < USUAL => {
            let seen = format!("the path to {peer} takes packets of {path} bytes");
            let means = "a tunnel or PPPoE on the way; the kernel knows, and nothing is lost";
            Finding::note("mtu.small", seen).means(means)
        }
        Some(path) => Finding::ok(
            "mtu.whole",
            format!("full-sized packets pass to and from {peer}; MTU {path}"),
        ),
        None => Finding::ok("mtu.whole", format!("full-sized packets pass to and from {peer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_hole_is_told_from_a_small_mtu_and_from_a_dead_path() {
        let good = MtuFacts {
            peer: "fra".to_owned(),
            interface: Some("eth0".to_owned()),
            path: Some(1500),
            up: true,
            down: true,
            passes: None,
        };
        assert_eq!(check(&good).id, "mtu.whole");
        assert_eq!(check(&MtuFacts { path: Some(1400), ..good.clone() }).id, "mtu.small");
        let hole = check(&MtuFacts { up: false, passes: Some(1240), ..good.clone() });
        assert!(hole.id == "mtu.black-hole" && hole.seen.contains("1280 bytes pass to fra"));
        assert!(hole.remedy.contains("ip link set eth0 mtu 1280"), "{}", hole.remedy);
        assert_eq!(check(&MtuFacts { down: false, ..good }).id, "path.stalls");
    }
}
