//! Denials: decisions of the egress policy or the mesh gate not to connect to a requested destination. A
//! [`super::Refusal`] is what the client is told, of which a denial is one reason.

use super::{address_class::Class, egress::SMTP};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use thalweg_wire::{
    Destination,
    mesh::{MAX_DEPTH, Name, Tag},
};
use thiserror::Error;

/// A reason why a relay does not connect to a destination for this client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// Port 25.
    #[error("port {SMTP} is never relayed to")]
    Smtp,
    /// A port that is not allowed.
    #[error("port {0} is not among the allowed ports")]
    Port(u16),
    /// An address that is not public, and not in an allowed network.
    #[error("{0} is a {1} address and not in an allowed network")]
    Address(IpAddr, Class),
    /// An address in a network of this relay's deny list.
    #[error("{0} is in {1}, which this relay never connects to")]
    Listed(IpAddr, IpNet),
    /// An address of this host.
    #[error("{0} is this relay's own address")]
    Own(IpAddr),
    /// A port that this node listens on.
    #[error("{0} is a port of this node itself")]
    Admin(SocketAddr),
    /// A rule of the roster denies the network to this client.
    #[error("{0} is in {1}, which a rule of the mesh denies to this client")]
    RuleNetwork(IpAddr, IpNet),
    /// A rule of the roster has a list of ports that does not contain this one.
    #[error("a rule of the mesh does not allow this client to use port {0}")]
    RulePort(u16),
    /// The client avoids a tag that this relay itself has, or a rule does so for it.
    #[error("this relay has tag {0}, which the client avoids")]
    AvoidsUs(Tag),
    /// The destination is a member with a tag that is to be avoided.
    #[error("the destination is member {0} with tag {1}, which the client avoids")]
    Avoids(Name, Tag),
    /// The destination is this node itself.
    #[error("the destination is this relay itself: a loop")]
    Itself,
    /// The chain has too many relays.
    #[error(
        "{0} relays before the next hop exceed the limit of {MAX_DEPTH}: the chain is too long or loops"
    )]
    TooDeep(u8),
    /// The destination is a member's port, and the client did not name that member as its next hop.
    #[error(
        "the destination is the port of member {0}, but the client did not announce it as its next hop"
    )]
    Unannounced(Name),
    /// The client has left the roster since its channel was opened.
    #[error("the client is no longer a member")]
    NotMember,
    /// This node does not have the role relay in the roster, or has lost it.
    #[error("this node does not have the role relay in the mesh's roster")]
    NotRelay,
    /// The name of a member that is to be avoided could not be resolved.
    #[error("the client avoids member {0}, but its name {1} could not be resolved: try again")]
    AvoidsUnknown(Name, Destination),
}

impl Denial {
    /// The label for counters, from a fixed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Smtp => "smtp",
            Self::Unannounced(_) => "unannounced",
            Self::Port(_) => "port",
            Self::Address(..) => "address_class",
            Self::Listed(..) => "deny_list",
            Self::Own(_) => "own_address",
            Self::Admin(_) => "admin_port",
            Self::RuleNetwork(..) => "rule_network",
            Self::RulePort(_) => "rule_port",
            Self::AvoidsUs(_) | Self::Avoids(..) | Self::AvoidsUnknown(..) => "avoid",
            Self::Itself => "itself",
            Self::TooDeep(_) => "depth",
            Self::NotMember => "not_member",
            Self::NotRelay => "not_relay",
        }
    }
}
