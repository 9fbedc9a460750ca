//! The mesh: its members, the signed roster that lists them, and the rules for them.
//!
//! A [`Roster`] lists the members and is signed with the key that the mesh's root key
//! endorses ([`Endorsement`]); every node and client keeps the newest one. A
//! [`Token`] lets one host join, once. [`Terms`] are a client's requests to a relay beyond SOCKS5.

mod api;
mod endorsement;
pub mod measure;
pub mod measure_flow;
pub mod measure_ticket;
mod member;
mod member_pattern;
mod reach;
mod roster;
mod rule;
mod terms;
mod token;

pub use api::{
    AddressesReply, AddressesRequest, ApiError, ClientBinding, JoinReply, JoinRequest,
    MemberStatus, RevokeReply, RevokeRequest, StatusReply, TokenReply, TokenRequest,
};
pub use endorsement::{AuthorityError, Endorsement, SignedEndorsement};
pub use member::{Member, Name, NameError, Role, Tag};
pub use member_pattern::MemberPattern;
pub use reach::{
    MAX_REACH_MESSAGE, MAX_REACH_RELAYS, MemberSignal, ReachAnswer, ReachOpening, ReachRefusal,
    ReachReply, ReachRequest, RelaySignal, RequestNumber, entry_relay, is_member_destination,
    member_destination, relay_entry,
};
pub use roster::{Predecessor, Roster, RosterFault, RosterRank};
pub use rule::{PortRange, PortRangeError, Quota, Rule};
pub use terms::{
    GO, GO_ACK, LegKind, MAX_DEPTH, METHOD, Preamble, RelayRequest, Terms, TermsError,
};
pub use token::{Secret, Token, TokenError};

/// The default TCP and UDP port of a node.
pub const PORT: u16 = 7373;
