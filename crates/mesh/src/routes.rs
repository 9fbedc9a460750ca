//! Routes by name: from `fra+nyc` to hops with addresses, keys and terms.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use thalweg_net::{Hop, MAX_HOPS, Route, RouteError};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination, DestinationError,
    mesh::{LegKind, Member, Name, NameError, Role, Roster, Tag, Terms, member_destination},
};
use thiserror::Error;

/// The end of a route whose first leg uses a bond. The routes of the bond's links may follow, each after a `%`.
pub const BOND: &str = "%bond";

/// The end of a route whose first leg rides in probe trains (docs/carrier.md).
pub const RIDE: &str = "%ride";

/// The most routes of a bond's links: with two interfaces they make as many links as a far end accepts.
pub const MAX_BOND_ROUTES: usize = 8;

/// The texts of all routes in a text: the route itself, and those of its bond's links.
///
/// # Errors
/// [`RouteNameError::Suffix`] if anything else follows the route.
pub fn routes_in(text: &str) -> Result<Vec<&str>, RouteNameError> {
    if let Some((route, links)) = bond_in(text) {
        return Ok(std::iter::once(route).chain(links).collect());
    }
    let route = text.strip_suffix(RIDE).unwrap_or(text);
    match route.split_once('%') {
        None => Ok(vec![route]),
        Some(_) => Err(RouteNameError::Suffix(text.to_owned())),
    }
}

/// The route and those of its bond's links, if it has a bond.
fn bond_in(text: &str) -> Option<(&str, Vec<&str>)> {
    let (route, links) = text.split_once(BOND).filter(|(route, _)| !route.contains('%'))?;
    match links.strip_prefix('%') {
        Some(links) => Some((route, links.split('%').collect())),
        None => links.is_empty().then_some((route, Vec::new())),
    }
}

/// Looks up the names in routes.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The roster, if there is a valid one; else why there is none.
    pub roster: Result<&'a Roster, &'a str>,
    /// This host's name; it is never a hop of its own routes.
    pub me: Option<&'a Name>,
}

/// Why a text names no usable route.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RouteNameError {
    /// There is no roster in which to look up the name.
    #[error(
        "`{name}` is the name of a node, but {why}; a relay outside the mesh is written HOST:PORT"
    )]
    NoRoster {
        name: Name,
        /// Why there is no roster.
        why: String,
    },
    /// No member has this name.
    #[error("no member of the mesh is named `{name}`{}", did_you_mean(nearest))]
    Unknown {
        name: Name,
        /// The member's name that resembles it most.
        nearest: Option<Name>,
    },
    /// The member is no relay.
    #[error("member `{0}` does not relay; `thalweg mesh members` shows which members do")]
    NoRelay(Name),
    /// The relay has no address in the roster.
    #[error(
        "relay `{0}` has no address in the roster; it must join again with --address HOST:PORT"
    )]
    NoAddress(Name),
    /// The member runs no daemon.
    #[error(
        "member `{0}` joined without a node (`thalweg mesh join --no-daemon`), so it cannot be \
         reached"
    )]
    NoNode(Name),
    /// The node has no address in the roster.
    #[error(
        "node `{0}` has no address in the roster, and no relays through which it is reached: start \
         `thalweg node` on that host; `thalweg status` there shows its relays, or what keeps it \
         from them (it needs `reach = \"auto\"` in its settings, and a relay that it can dial)"
    )]
    NoNodeAddress(Name),
    /// It is this host.
    #[error("`{0}` is this host itself; leave it out")]
    OwnName(Name),
    /// The relay has a tag that is to be avoided.
    #[error("relay `{name}` has the tag `{tag}`, which must be avoided")]
    Avoided {
        /// The relay.
        name: Name,
        tag: Tag,
    },
    /// The end of the route has no meaning.
    #[error(
        "`{0}`: a route may end in `{BOND}` and the routes of the bond's links \
         (`fra{BOND}%direct%nyc`), or in `{RIDE}`, but not in both; an interface is not part of a \
         route"
    )]
    Suffix(String),
    /// The first relay of a riding route is no member of the mesh.
    #[error(
        "`{0}{RIDE}`: the first relay must be a member of the mesh, because the leg to it \
             rides in probe trains"
    )]
    NoRide(String),
    /// The first relay of a bond is no member of the mesh.
    #[error(
        "`{0}{BOND}`: the first relay must be a member of the mesh, because the bond ends \
             there"
    )]
    NoBond(String),
    /// A link would pass through the node where the bond ends.
    #[error(
        "`{link}{BOND}…%{link}`: a link of a bond cannot pass through the node where the bond \
         ends"
    )]
    ThroughItself { link: String },
    /// Two links have the same route.
    #[error("the bond has two links over `{0}`")]
    LinkTwice(String),
    /// The links have too many routes, namely this many.
    #[error("the links of a bond have at most {MAX_BOND_ROUTES} routes, not {0}")]
    TooManyLinks(usize),
    /// It is neither a name nor `HOST:PORT`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It is no valid `HOST:PORT`.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// It has too many hops, or the same hop twice.
    #[error(transparent)]
    Route(#[from] RouteError),
}

fn did_you_mean(nearest: &Option<Name>) -> String {
    match nearest {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; `thalweg mesh members` lists them".to_owned(),
    }
}

impl Names<'_> {
    /// The route that `text` names: relays' names or `HOST:PORT`s joined by `+`, the nearest first; `direct` has no
    /// relays. Each relay of the mesh gets the same terms. With [`BOND`] at the end all interfaces are used up to the
    /// first relay; with routes after it, such as `%nyc%ber+ams` or `%direct`, all these routes to the first relay are
    /// used as well. With [`RIDE`] at the end the leg to the first relay goes through the carrier.
    ///
    /// # Errors
    /// [`RouteNameError`].
    pub fn route(&self, text: &str, terms: &Terms) -> Result<Route, RouteNameError> {
        if let Some((text, links)) = bond_in(text) {
            return self.bonded(text, &links, terms);
        }
        if let Some(text) = text.strip_suffix(RIDE).filter(|_| routes_in(text).is_ok()) {
            return self.riding(text, terms);
        }
        routes_in(text)?;
        if text == "direct" {
            return Ok(Route::direct());
        }
        let parts: Vec<_> = text.split('+').collect();
        if parts.len() > MAX_HOPS {
            return Err(RouteError::TooLong(parts.len()).into());
        }
        let hops: Result<Vec<_>, _> = parts.into_iter().map(|part| self.hop(part, terms)).collect();
        Ok(Route::new(hops?)?)
    }

    fn riding(&self, text: &str, terms: &Terms) -> Result<Route, RouteNameError> {
        let route = self.route(text, terms)?;
        match route.hops().first().and_then(Hop::key) {
            Some(_) => Ok(route.riding()),
            None => Err(RouteNameError::NoRide(text.to_owned())),
        }
    }

    fn bonded(&self, text: &str, links: &[&str], terms: &Terms) -> Result<Route, RouteNameError> {
        let route = self.route(text, terms)?;
        let no_bond = || RouteNameError::NoBond(text.to_owned());
        let far = route.hops().first().and_then(Hop::key).ok_or_else(no_bond)?;
        if links.len() > MAX_BOND_ROUTES {
            return Err(RouteNameError::TooManyLinks(links.len()));
        }
        // The ends of the streams seal what the links carry.
        let terms = Terms { leg: LegKind::Open, ..terms.clone() };
        let mut by = Vec::new();
        for link in links {
            if *link == &RIDE[1..] && !self.is_node_named(link) {
                return Err(RouteNameError::Suffix(format!("{text}{BOND}%{}", links.join("%"))));
            }
            let way = self.route(link, &terms)?;
            if way.hops().iter().any(|hop| hop.key() == Some(far)) {
                return Err(RouteNameError::ThroughItself { link: (*link).to_owned() });
            }
            if by.contains(&way) {
                return Err(RouteNameError::LinkTwice((*link).to_owned()));
            }
            by.push(way);
        }
        Ok(route.bonded_by(by))
    }

    /// The relays that `me` may use under these terms and the roster's rules, in the roster's order, at most `most`,
    /// each as a route of its own; none without a roster.
    pub fn candidates(&self, terms: &Terms, most: usize) -> Vec<(Name, Route)> {
        let Ok(roster) = self.roster else { return Vec::new() };
        let mine = self.me.and_then(|me| roster.by_name(me)).map(|m| m.tags.clone());
        let mine = mine.unwrap_or_default();
        let open = roster.relays().filter(|relay| {
            let rules = roster.rules_for(&mine, &relay.tags);
            { rules }.all(|rule| rule.avoid.is_disjoint(&relay.tags))
        });
        let route = |relay: &Member| {
            let hop = self.member_hop(relay, terms).ok()?;
            Some((relay.name.clone(), Route::new(vec![hop]).ok()?))
        };
        open.filter_map(route).take(most).collect()
    }

    /// A member's node as the far end of a channel ([`thalweg_net::Dialer::channel`]). It need not be a relay, and may
    /// be this host. A node without an address is one that only its relays find ([`Names::reach`]).
    ///
    /// # Errors
    /// [`RouteNameError`].
    pub fn node(&self, name: &Name) -> Result<Hop, RouteNameError> {
        let MemberReach { dialled, relayed, .. } = self.reach(name)?;
        dialled.or(relayed).ok_or_else(|| RouteNameError::NoNodeAddress(name.clone()))
    }

    /// How a member's node is reached: at its addresses, through relays, or both.
    ///
    /// # Errors
    /// [`RouteNameError`].
    pub fn reach(&self, name: &Name) -> Result<MemberReach, RouteNameError> {
        let none = |why: &str| RouteNameError::NoRoster { name: name.clone(), why: why.to_owned() };
        let roster = self.roster.map_err(none)?;
        let unknown =
            || RouteNameError::Unknown { nearest: nearest(name, roster), name: name.clone() };
        let member = roster.by_name(name).ok_or_else(unknown)?;
        let key = member.node.ok_or_else(|| RouteNameError::NoNode(name.clone()))?;
        let dialled = dialled_hop(member, key, Terms::default());
        let relays: Vec<_> =
            member.reach_relays().filter_map(|relay| self.reach_relay(&relay)).collect();
        let relayed = member_destination(name).filter(|_| !relays.is_empty());
        let relayed = relayed.map(|at| Hop::mesh(at, key, Terms::default()).named(name.clone()));
        if dialled.is_none() && relayed.is_none() {
            return Err(RouteNameError::NoNodeAddress(name.clone()));
        }
        Ok(MemberReach { dialled, relayed, relays })
    }

    /// A relay through which a member is reached, as a hop; it may be this host, which then is also dialled on
    /// loopback. `None` if it is no relay any more.
    fn reach_relay(&self, name: &Name) -> Option<(Name, Hop)> {
        let member = self.roster.ok()?.by_name(name)?;
        let key = member.node.filter(|_| member.is(Role::Relay))?;
        let mut hop = dialled_hop(member, key, Terms::default())?;
        if self.me == Some(name) {
            let port = hop.relay.port;
            let own = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
            hop.others.extend(own.map(|ip| Destination::from(SocketAddr::new(ip, port))));
        }
        Some((name.clone(), hop))
    }

    fn is_node_named(&self, text: &str) -> bool {
        let name = text.parse::<Name>();
        self.roster
            .ok()
            .zip(name.ok())
            .is_some_and(|(roster, name)| roster.by_name(&name).is_some())
    }

    fn hop(&self, text: &str, terms: &Terms) -> Result<Hop, RouteNameError> {
        if text.contains(':') {
            let relay: Destination = text.parse()?;
            return Ok(Hop::socks(relay));
        }
        let name: Name = text.parse()?;
        let roster = self
            .roster
            .map_err(|why| RouteNameError::NoRoster { name: name.clone(), why: why.to_owned() })?;
        match roster.by_name(&name) {
            Some(member) => self.member_hop(member, terms),
            None => Err(RouteNameError::Unknown { nearest: nearest(&name, roster), name }),
        }
    }

    fn member_hop(&self, member: &Member, terms: &Terms) -> Result<Hop, RouteNameError> {
        let name = || member.name.clone();
        if self.me == Some(&member.name) {
            return Err(RouteNameError::OwnName(name()));
        }
        let Some(key) = member.node.filter(|_| member.is(Role::Relay)) else {
            return Err(RouteNameError::NoRelay(name()));
        };
        if let Some(tag) = common(&member.tags, &terms.avoid) {
            return Err(RouteNameError::Avoided { name: name(), tag });
        }
        dialled_hop(member, key, terms.clone()).ok_or_else(|| RouteNameError::NoAddress(name()))
    }
}

/// How a member's node is reached.
#[derive(Clone, Debug)]
pub struct MemberReach {
    /// The node at its addresses; `None`: it has none.
    pub dialled: Option<Hop>,
    /// The node as its relays know it; `None`: it has no relays.
    pub relayed: Option<Hop>,
    /// The relays to which it has standing channels, the best first.
    pub relays: Vec<(Name, Hop)>,
}

/// The node at the addresses where it is dialled.
fn dialled_hop(member: &Member, key: NodeId, terms: Terms) -> Option<Hop> {
    let mut addresses = member.dialled_addresses().cloned();
    let hop = Hop::mesh(addresses.next()?, key, terms);
    Some(hop.with_other_addresses(addresses.collect()).named(member.name.clone()))
}

fn common(a: &BTreeSet<Tag>, b: &BTreeSet<Tag>) -> Option<Tag> {
    a.intersection(b).next().cloned()
}

/// The member whose name resembles `name` most, if any does.
fn nearest(name: &Name, roster: &Roster) -> Option<Name> {
    let known = roster.members.iter().map(|m| m.name.as_str());
    thalweg_units::likeness::nearest(name.as_str(), known)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::{Medium, RelayProtocol};
    use thalweg_units::WallTime;
    use thalweg_wire::mesh::{Rule, relay_entry};

    fn member(name: &str, key: u8, roles: &[Role], tags: &[&str]) -> Member {
        Member {
            name: name.parse().unwrap(),
            node: Some(NodeId::from_bytes([key; 32])),
            client: NodeId::from_bytes([key + 100; 32]),
            addresses: vec![format!("10.0.0.{key}:7373").parse().unwrap()],
            roles: roles.iter().copied().collect(),
            tags: tags.iter().map(|t| t.parse().unwrap()).collect(),
        }
    }

    fn roster() -> Roster {
        let relay = &[Role::Client, Role::Relay];
        Roster {
            version: 7,
            not_before: WallTime::from_unix_nanos(0),
            expiry: WallTime::from_unix_nanos(u64::MAX),
            members: vec![
                member("fra", 1, relay, &["country=de"]),
                member("home", 2, relay, &["guest"]),
                member("laptop", 3, &[Role::Client], &[]),
                member("nyc", 4, relay, &["country=us"]),
            ],
            rules: Vec::new(),
            endorsement: None,
            predecessor: None,
        }
    }

    fn with<T>(roster: &Roster, me: &str, ask: impl FnOnce(Names<'_>) -> T) -> T {
        let me = me.parse().unwrap();
        ask(Names { roster: Ok(roster), me: Some(&me) })
    }

    fn terms(avoid: &[&str]) -> Terms {
        Terms { leg: LegKind::Open, avoid: avoid.iter().map(|t| t.parse().unwrap()).collect() }
    }

    #[test]
    fn a_chain_has_its_members_addresses_keys_and_terms_in_order() {
        let roster = roster();
        let route = with(&roster, "home", |n| n.route("fra+10.9.9.9:1080+nyc", &terms(&["x"])));
        let route = route.unwrap();
        let key = |n| NodeId::from_bytes([n; 32]);
        let mesh = |n| RelayProtocol::Mesh { key: key(n), terms: terms(&["x"]) };
        let speech: Vec<_> = route.hops().iter().map(|h| h.speech.clone()).collect();
        assert_eq!(speech, [mesh(1), RelayProtocol::Socks, mesh(4)]);
        assert_eq!(route.to_string(), "via 10.0.0.1:7373 then 10.9.9.9:1080 then 10.0.0.4:7373");
        assert!(with(&roster, "home", |n| n.route("direct", &terms(&[]))).unwrap().is_direct());
    }

    #[test]
    fn the_links_of_a_bond_use_the_routes_named_after_it() {
        let mut roster = roster();
        roster.members[2].roles.insert(Role::Relay);
        let sealed = Terms { leg: LegKind::Sealed, ..Terms::default() };
        let route = |text: &str| with(&roster, "home", |names| names.route(text, &sealed));
        let bonded = route("fra%bond%direct%nyc+laptop").unwrap();
        assert_eq!(bonded.to_string(), "via 10.0.0.1:7373 by a bond over direct, nyc+laptop");
        let links = bonded.all_hops().skip(1);
        let is_open = |hop: &Hop| matches!(&hop.speech, RelayProtocol::Mesh { terms, .. } if terms.leg == LegKind::Open);
        assert!({ links }.all(is_open), "what is sealed twice makes no link");
        assert!(route("fra%bond").unwrap().hops()[0].by.is_empty());
        for (text, says) in [
            ("fra%bond%fra", "cannot pass through the node"),
            ("fra%bond%nyc%nyc", "two links over `nyc`"),
            ("fra%bond%", "is not a valid name"),
            ("fra%bonds", "may end in `%bond`"),
            ("direct%bond%nyc", "must be a member"),
            ("fra%bond%1%2%3%4%5%6%7%8%9", "at most 8 routes"),
        ] {
            let error = route(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert_eq!(routes_in("fra+nyc%bond%direct%ber").unwrap(), ["fra+nyc", "direct", "ber"]);
        assert!(routes_in("fra%bonds").is_err());
    }

    #[test]
    fn a_leg_rides_or_uses_a_bond_but_not_both() {
        let mut roster = roster();
        let ask = |roster: &Roster, text: &str| {
            with(roster, "home", |names| names.route(text, &terms(&[])))
        };
        let route = ask(&roster, "fra+nyc%ride").unwrap();
        let media: Vec<_> = route.hops().iter().map(|hop| hop.medium).collect();
        assert_eq!(media, [Medium::Ride, Medium::Underlay], "the first leg alone");
        assert!(route.is_carried() && !route.is_bonded());
        for (text, says) in [
            ("fra%rides", "may end in `%bond`"),
            ("fra%eth0", "an interface is not part of a route"),
            ("fra%ride%bond", "but not in both"),
            ("fra%ride%nyc", "may end in `%bond`"),
            ("fra%bond%ride", "but not in both"),
            ("fra%bond%direct%nyc%ride", "but not in both"),
            ("direct%ride", "must be a member of the mesh"),
            ("10.9.9.9:1080%ride", "must be a member of the mesh"),
        ] {
            let error = ask(&roster, text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert_eq!(routes_in("fra+nyc%ride").unwrap(), ["fra+nyc"]);
        roster.members.push(member("ride", 5, &[Role::Relay], &[]));
        let by = ask(&roster, "fra%bond%ride").unwrap();
        assert_eq!(by.to_string(), "via 10.0.0.1:7373 by a bond over ride", "a member's name");
    }

    #[test]
    fn a_hop_has_all_addresses_of_its_member_in_order() {
        let mut roster = roster();
        let all: Vec<Destination> =
            ["[2001:db8::1]:7", "fra.example:7", "10.0.0.1:7"].map(|a| a.parse().unwrap()).into();
        roster.members[0].addresses = all.clone();
        let route = with(&roster, "home", |n| n.route("fra", &terms(&[]))).unwrap();
        assert_eq!(route.hops()[0].addresses().cloned().collect::<Vec<_>>(), all);
    }

    #[test]
    fn unusable_routes_are_refused_with_a_hint() {
        let roster = roster();
        for (text, says) in [
            ("frra", "did you mean `fra`?"),
            ("zzz", "`thalweg mesh members` lists them"),
            ("laptop", "does not relay"),
            ("home", "is this host itself"),
            ("nyc", "has the tag `country=us`"),
            ("fra+nyc", "has the tag `country=us`"),
            ("fra+fra", "occurs twice"),
            ("a+b+c+d", "at most 3 relays"),
            ("fra:0", "needs a port"),
            ("Fra", "is not a valid name"),
            ("", "is not a valid name"),
            ("fra+", "is not a valid name"),
        ] {
            let route = with(&roster, "home", |n| n.route(text, &terms(&["country=us"])));
            let error = route.unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let none = Names { roster: Err("no mesh was joined here"), me: None };
        let error = none.route("fra", &terms(&[])).unwrap_err().to_string();
        assert!(error.contains("no mesh was joined here") && error.contains("HOST:PORT"));
        assert!(none.route("10.0.0.1:1080", &terms(&[])).is_ok());
    }

    #[test]
    fn the_error_for_a_node_without_an_address_says_how_to_get_one() {
        let mut roster = roster();
        roster.members[2].addresses.clear();
        let error = with(&roster, "home", |n| n.node(&"laptop".parse().unwrap()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("thalweg status") && error.contains("reach ="), "{error}");
    }

    #[test]
    fn a_node_that_cannot_be_dialled_is_reached_through_its_relays() {
        let mut roster = roster();
        let entry = |relay: &str| relay_entry(&relay.parse().unwrap()).unwrap();
        roster.members[2].addresses = ["nyc", "gone", "fra"].map(entry).into();
        let laptop = "laptop".parse().unwrap();
        let found = with(&roster, "home", |n| n.reach(&laptop)).unwrap();
        assert!(found.dialled.is_none());
        assert_eq!(found.relayed.unwrap().relay.to_string(), "laptop.member.invalid:7373");
        let relays: Vec<_> = found.relays.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(relays, ["nyc", "fra"], "a relay that has left is left out");
        // On a relay's own host the relay is also dialled on loopback.
        let found = with(&roster, "nyc", |n| n.reach(&laptop)).unwrap();
        let addresses: Vec<_> = found.relays[0].1.addresses().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.4:7373", "127.0.0.1:7373", "[::1]:7373"]);
        // Entries of relays are no addresses of a relay.
        roster.members[3].addresses.insert(0, entry("fra"));
        let hop = with(&roster, "home", |n| n.route("nyc", &terms(&[]))).unwrap();
        assert_eq!(hop.hops()[0].relay.to_string(), "10.0.0.4:7373");
    }

    #[test]
    fn candidates_are_the_relays_that_terms_and_rules_permit() {
        let mut roster = roster();
        let names = |roster: &Roster, me: &str, avoid: &[&str]| {
            let found = with(roster, me, |n| n.candidates(&terms(avoid), 8));
            found.into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&roster, "laptop", &[]), ["fra", "home", "nyc"]);
        assert_eq!(names(&roster, "home", &["country=de"]), ["nyc"]);
        let client = Some("guest".parse().unwrap());
        let avoid = ["country=us".parse().unwrap()].into();
        roster.rules.push(Rule { client, avoid, ..Rule::default() });
        assert_eq!(names(&roster, "home", &[]), ["fra"]);
        assert_eq!(names(&roster, "laptop", &[]), ["fra", "home", "nyc"]);
    }
}
