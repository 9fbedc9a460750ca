//! Counters of riders.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was sent to a member and received from it, since the daemon started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct RiderCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for RiderCounts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Packets that this host's programs sent to the member.
    sent_packets,
    /// Bytes of these packets, IP headers included.
    sent_bytes,
    /// Packets whose last byte rode in a probe.
    ridden_packets,
    /// Fragments of packets that rode.
    ridden_fragments,
    /// Bytes that rode.
    ridden_bytes,
    /// Bytes that rode a second time, if repeats are enabled.
    repeated_bytes,
    /// Probes that carried fragments.
    carrying_probes,
    /// Probes that could have carried fragments, but carried none.
    empty_probes,
    /// Datagrams with packets alone, without a probe.
    own_datagrams,
    /// Packets whose rest was sent by itself, because it had waited long enough or its train was over.
    timed_out_packets,
    /// Packets that were dropped, because no session could be opened or the kernel accepted none.
    dropped_packets,
    /// Packets that arrived and were delivered to this host's programs.
    received_packets,
    /// Bytes of these packets.
    received_bytes,
    /// Fragments that arrived.
    received_fragments,
    /// Fragments that arrived twice or too late, or fit no packet.
    refused_fragments,
    /// Packets that were given up, because fragments were missing for too long.
    expired_packets,
    /// Packets whose source is not the member's address, or whose destination is not this host's.
    strange_packets,
    /// Packets that are no replies, for ports that are not open to their sender.
    unasked_packets,
}
