//! The mesh as seen by a download: routes by name, and this host's identity towards relays.

use anyhow::bail;
use std::{collections::BTreeSet, sync::Arc};
use thalweg_mesh::carrier_network::OverlayLegs;
use thalweg_mesh::{Names, RouteNameError, State, StateError};
use thalweg_net::{DialOptions, Dialer, Hop, Route, channel::Connector};
use thalweg_units::{Rate, likeness};
use thalweg_wire::mesh::{Name, Roster, Tag, Terms};

/// This host's mesh, as far as it can be used now.
pub struct Mesh {
    me: Option<Name>,
    roster: Result<Arc<Roster>, String>,
    identity: Option<Connector>,
    /// The carried legs of its members.
    legs: Option<OverlayLegs>,
    /// Whether the mesh cannot be used, as opposed to not existing.
    is_faulty: bool,
    /// The argument that makes other commands use the same state: ` --state DIR`, or nothing.
    state_arg: String,
}

impl Mesh {
    /// Opens the mesh in this state directory. Never fails: without a mesh, downloads go directly. `state_arg` is the
    /// argument that makes other commands use the same state.
    pub fn open(state: anyhow::Result<State>, state_arg: String) -> Self {
        let opened = state.and_then(|state| Self::read(&state, &state_arg));
        opened.unwrap_or_else(|e| {
            let absent = e
                .downcast_ref::<StateError>()
                .is_some_and(|e| matches!(e, StateError::Absent(_) | StateError::NoMesh(_)));
            let why = match absent {
                true => format!("this host is in no mesh (see `thalweg mesh join{state_arg}`)"),
                false => format!("this host's mesh cannot be used: {e:#}"),
            };
            let (me, identity, legs) = Default::default();
            Self { me, roster: Err(why), identity, legs, is_faulty: !absent, state_arg }
        })
    }

    fn read(state: &State, state_arg: &str) -> anyhow::Result<Self> {
        let (mesh, membership) = (state.mesh()?, state.membership()?);
        let identity = Connector::new(&state.client_key()?)?;
        let roster = match membership.current() {
            None => Err(format!("this host has no roster yet (start `thalweg node{state_arg}`)")),
            Some(roster) => match roster.check(membership.now()) {
                Ok(()) => Ok(roster),
                Err(fault) => Err(fault.to_string()),
            },
        };
        let is_faulty = roster.is_err();
        let legs = Some(OverlayLegs::of(&membership.mesh()));
        let (me, identity, state_arg) = (Some(mesh.name), Some(identity), state_arg.to_owned());
        Ok(Self { me, roster, identity, legs, is_faulty, state_arg })
    }

    /// A dialer with these options that can use the mesh; `None` if there is no mesh.
    pub fn dialer(&self, options: &DialOptions) -> Option<Dialer> {
        let dialer = Dialer::with_identity(options.clone(), self.identity.clone()?);
        Some(match self.legs {
            Some(legs) => dialer.with_ride_network(Arc::new(legs)),
            None => dialer,
        })
    }

    /// Why its relays cannot be used although this host belongs to it.
    pub fn fault(&self) -> Option<&str> {
        self.roster.as_ref().err().filter(|_| self.is_faulty).map(String::as_str)
    }

    fn names(&self) -> Names<'_> {
        let roster = self.roster.as_deref().map_err(String::as_str);
        Names { roster, me: self.me.as_ref() }
    }

    /// The route with this name; see [`Names::route`].
    ///
    /// # Errors
    /// [`RouteNameError`].
    pub fn route(&self, text: &str, terms: &Terms) -> Result<Route, RouteNameError> {
        self.names().route(text, terms)
    }

    /// Checks that members carry these tags: a mistyped tag would let through relays that must be avoided.
    ///
    /// # Errors
    /// The first tag that no member carries.
    pub fn check_tags(&self, tags: &[Tag]) -> anyhow::Result<()> {
        let roster = match &self.roster {
            Ok(roster) => roster,
            Err(_) if tags.is_empty() => return Ok(()),
            Err(why) => bail!("--avoid needs the list of relays: {why}"),
        };
        check_tags(roster, tags, &self.state_arg)
    }

    /// Whether every relay of the route that is a node of the mesh is still a member. Without a valid roster the answer
    /// is yes.
    pub fn still_has(&self, route: &Route) -> bool {
        let Ok(roster) = &self.roster else { return true };
        let mut keys = route.all_hops().filter_map(Hop::key);
        keys.all(|key| roster.by_key(&key).is_some())
    }

    /// The lowest rate that the mesh's rules give this host at a relay of the path with this name.
    pub fn rate_quota(&self, path: &str) -> Option<Rate> {
        let roster = self.roster.as_ref().ok()?;
        let me = roster.by_name(self.me.as_ref()?)?;
        let relays = path.split('%').next()?.split('+');
        let relays = relays.filter_map(|name| roster.by_name(&name.parse().ok()?));
        let rules = relays.flat_map(|relay| roster.rules_for(&me.tags, &relay.tags));
        rules.filter_map(|rule| rule.quota.rate).min()
    }

    /// All relays that may be tried; none without a valid roster.
    pub fn relays(&self, terms: &Terms) -> Vec<(String, Route)> {
        let found = self.names().candidates(terms, usize::MAX).into_iter();
        found.map(|(name, route)| (name.to_string(), route)).collect()
    }
}

/// Checks that members in this roster carry these tags. `state_arg` is the argument with which other commands use the
/// same state.
///
/// # Errors
/// The first tag that no member carries.
pub fn check_tags(roster: &Roster, tags: &[Tag], state_arg: &str) -> anyhow::Result<()> {
    let known: BTreeSet<&Tag> = roster.members.iter().flat_map(|m| &m.tags).collect();
    match tags.iter().find(|tag| !known.contains(tag)) {
        None => Ok(()),
        Some(strange) => bail!("{}", strange_tag(strange, &known, state_arg)),
    }
}

fn strange_tag(tag: &Tag, known: &BTreeSet<&Tag>, state_arg: &str) -> String {
    let tag = tag.to_string();
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    let hint = match likeness::nearest(&tag, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`thalweg mesh members{state_arg}` lists the tags"),
    };
    format!("--avoid {tag} has no effect: no member of the mesh has this tag; {hint}")
}
