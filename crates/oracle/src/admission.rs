//! Admission of members: tokens, joining and revocation.

use crate::{
    Caller, Database, Event, OracleError, Refusal,
    error::about,
    limits::{JoinGate, OPEN_TOKENS},
    registry::{Access, Actor, Registry, SignedRoster, later},
    store::{TokenRow, Write},
};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::{collections::BTreeSet, io, iter, net::IpAddr, sync::Arc, time::Duration};
use thalweg_net::Ed25519;
use thalweg_units::{NodeId, WallTime, format_duration};
use thalweg_wire::{
    Destination, Host, Signed,
    address_class::{self, Class, SMTP},
    mesh::{
        ClientBinding, JoinReply, JoinRequest, Member, Name, RevokeReply, RevokeRequest, Role,
        Roster, Secret, Token, TokenReply, TokenRequest, measure::PathsReply,
    },
};

/// Clocks that differ by at most this much count as equal, because hosts may lack NTP.
const ALIKE: Duration = Duration::from_secs(60);
/// The longest validity of a token. A token is a password: for days, not for months.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Admits hosts and revokes members.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    gate: JoinGate,
}

impl Admission {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let gate = JoinGate::new(&registry.config.join_limits);
        Self { registry, gate }
    }

    /// Checks the rate limit on requests to join from this address.
    pub(crate) fn pass(&self, from: IpAddr) -> Result<(), Refusal> {
        self.gate.pass(from)
    }

    /// See [`crate::Oracle::create_token`].
    pub(crate) async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
    ) -> Result<TokenReply, OracleError> {
        let actor = self.registry.authorise(caller, Access::Admin)?;
        check_token_request(&request, &self.registry.config.database)?;
        let newest = self.registry.newest();
        let own = newest.roster.by_key(&self.registry.node);
        let own = own.filter(|own| !own.addresses.is_empty());
        let own = own.ok_or(Refusal::NotListed(self.registry.node))?;
        let token = Token {
            mesh: self.registry.mesh(),
            oracle: self.registry.node,
            addresses: own.addresses.clone(),
            secret: random()?,
        };
        let expires = later(self.registry.now(), request.valid);
        let TokenRequest { mut roles, tags, name, .. } = request;
        roles.insert(Role::Client);
        let maker = actor.0.as_ref().map(Member::principal);
        let row = TokenRow { roles, tags, name, expires, maker, void: false, used_by: None };
        self.keep_token(&token.secret, &row, actor.label()).await?;
        self.registry.emit(&Event::TokenMade { by: actor.label().to_owned() });
        Ok(TokenReply { token: token.to_string(), expires })
    }

    async fn keep_token(
        &self,
        secret: &Secret,
        row: &TokenRow,
        by: &str,
    ) -> Result<(), OracleError> {
        let mut write = self.registry.begin().await?;
        let now = self.registry.now();
        if write.open_tokens(now).await? >= OPEN_TOKENS {
            let why = format!(
                "{OPEN_TOKENS} tokens are open, which is the limit; wait until some expire"
            );
            return Err(Refusal::Full(why).into());
        }
        let members = write.members().await?;
        if !row.is_of_an_admin(&members) {
            // The actor was revoked after it was authorised.
            return Err(Refusal::NotMember.into());
        }
        if let Some(name) = &row.name
            && members.iter().any(|m| m.name == *name)
        {
            return Err(Refusal::NameTaken(name.clone()).into());
        }
        write.add_token(&secret.hash(), row).await?;
        let subject = row.name.as_ref().map_or("-", |name| name.as_str());
        write.note("token", subject, by, now).await?;
        Ok(write.commit().await?)
    }

    /// See [`crate::Oracle::join`].
    pub(crate) async fn join(
        &self,
        caller: &Caller,
        request: JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        let key = caller.key().ok_or(Refusal::Keys("a key is needed to join"))?;
        let done = self.try_join(caller, key, &request).await;
        if let Err(error) = &done {
            self.registry.emit(&Event::JoinRefused { key, code: error.code() });
        }
        done
    }

    async fn try_join(
        &self,
        caller: &Caller,
        key: NodeId,
        request: &JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        let client = self.bound_client(key, request)?;
        let hash = request.secret.hash();
        // Read first without the write lock, which strangers should rarely take.
        let token = self.registry.store.token(&hash).await?;
        let TokenVerdict::Free(token) = self.judge(token, key, request)? else {
            return self.repeat_reply(key, client, request).await;
        };
        let member = self.entry(&token, client, request);
        admissible(&member, Some(caller))?;
        self.add_member(key, member, &token, request).await
    }

    /// Verifies the client key's signature, by which the key belongs to the node and uses this token.
    fn bound_client(&self, key: NodeId, request: &JoinRequest) -> Result<NodeId, Refusal> {
        let unreadable = Refusal::Keys("the client key's signature cannot be read or is not valid");
        let bytes = HEXLOWER_PERMISSIVE.decode(request.client.as_bytes());
        let bytes = bytes.map_err(|_| unreadable.clone())?;
        let signed = Signed::<ClientBinding>::open(&bytes, &Ed25519).map_err(|_| unreadable)?;
        let client = signed.signer();
        let bound = ClientBinding {
            mesh: self.registry.mesh(),
            node: request.node,
            token: request.secret.hash(),
        };
        if *signed.value() != bound {
            return Err(Refusal::Keys(
                "the client key's signature is for another mesh, node or token",
            ));
        }
        if key != request.node.unwrap_or(client) {
            return Err(Refusal::Keys("the connection is not authenticated with the joining key"));
        }
        if request.node == Some(client) {
            return Err(Refusal::Keys("the node and the client need different keys"));
        }
        Ok(client)
    }

    fn judge(
        &self,
        token: Option<TokenRow>,
        key: NodeId,
        request: &JoinRequest,
    ) -> Result<TokenVerdict, Refusal> {
        let token = token.ok_or(Refusal::TokenUnknown)?;
        match token.used_by {
            Some(by) if by == key => return Ok(TokenVerdict::Again),
            Some(_) => return Err(Refusal::TokenUsed),
            None if token.void => return Err(Refusal::TokenVoid),
            None => {}
        }
        let now = self.registry.now();
        if now >= token.expires {
            let ago = since(now, token.expires);
            return Err(Refusal::TokenExpired { ago, skew: skew(now, request.time) });
        }
        Ok(TokenVerdict::Free(token))
    }

    /// The member entry that the token and the request produce.
    fn entry(&self, token: &TokenRow, client: NodeId, request: &JoinRequest) -> Member {
        let mut roles = token.roles.clone();
        roles.insert(Role::Client);
        let reached = roles.contains(&Role::Relay) || roles.contains(&Role::Oracle);
        if !reached && !request.addresses.is_empty() {
            self.registry.emit(&Event::AddressesDropped { name: request.name.clone() });
        }
        // Relays connect to listed addresses of any class: the admin who granted the role vouches for them.
        let addresses = if reached { request.addresses.clone() } else { Vec::new() };
        Member {
            name: request.name.clone(),
            node: request.node,
            client,
            addresses,
            roles,
            tags: token.tags.clone(),
        }
    }

    /// Admits the host in one transaction, which repeats all earlier checks.
    async fn add_member(
        &self,
        key: NodeId,
        member: Member,
        token: &TokenRow,
        request: &JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        let hash = request.secret.hash();
        let mut write = self.registry.begin().await?;
        let now = self.registry.now();
        if !write.use_token(&hash, key, now).await? {
            let token = write.token(&hash).await?;
            drop(write);
            self.judge(token, key, request)?;
            return self.repeat_reply(key, member.client, request).await;
        }
        check_conflicts(&mut write, &member, token).await?;
        write.add(&member, now).await?;
        write.note("joined", member.name.as_str(), &key.to_string(), now).await?;
        let newest = self.registry.publish(write).await?;
        self.registry.emit(&Event::Joined { name: member.name.clone(), key });
        Ok(self.reply(&newest, member))
    }

    /// Answers a host that has already joined with this token.
    async fn repeat_reply(
        &self,
        key: NodeId,
        client: NodeId,
        request: &JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        // Another process may have admitted it.
        self.registry.refresh().await?;
        let newest = self.registry.newest();
        let Some(member) = newest.roster.by_key(&key).cloned() else {
            let row = self.registry.store.key(&key).await?;
            let name = row.map_or_else(|| request.name.clone(), |row| row.name);
            return Err(Refusal::KeyRevoked(name).into());
        };
        if member.client != client || member.node != request.node {
            return Err(Refusal::TokenUsed.into());
        }
        Ok(self.reply(&newest, member))
    }

    fn reply(&self, newest: &SignedRoster, member: Member) -> JoinReply {
        let roster = HEXLOWER.encode(&newest.bytes);
        JoinReply { name: member.name, roster, time: self.registry.now() }
    }

    /// See [`crate::Oracle::revoke`].
    pub(crate) async fn revoke(
        &self,
        caller: &Caller,
        request: RevokeRequest,
    ) -> Result<RevokeReply, OracleError> {
        let actor = self.registry.authorise(caller, Access::Admin)?;
        let reference = MemberRef::read(&request.member);
        let mut write = self.registry.begin().await?;
        let now = self.registry.now();
        let members = write.members().await?;
        let Some(member) = members.iter().find(|m| reference.is(m)) else {
            return Err(refusal_of_absent(&mut write, &reference, &request.member, now)
                .await?
                .into());
        };
        check_revocable(member, &members, &actor)?;
        write.remove(&member.name, now).await?;
        write.note("revoked", member.name.as_str(), actor.label(), now).await?;
        let newest = self.registry.publish(write).await?;
        let (name, by) = (member.name.clone(), actor.label().to_owned());
        self.registry.emit(&Event::Revoked { name: name.clone(), by });
        Ok(RevokeReply { name, version: newest.roster.version })
    }
}

fn check_token_request(request: &TokenRequest, database: &Database) -> Result<(), Refusal> {
    if request.tags.len() > Member::MAX_TAGS {
        return Err(Refusal::Bad(format!("a member has at most {} tags", Member::MAX_TAGS)));
    }
    if request.valid.is_zero() || request.valid > LONGEST {
        let longest = format_duration(LONGEST);
        return Err(Refusal::Bad(format!(
            "a token's validity must be more than 0 s and at most {longest}"
        )));
    }
    if let (true, Database::File) = (request.roles.contains(&Role::Oracle), database) {
        // The new oracle would sign rosters that this one does not see.
        let what = "a database that oracles share: see docs/oracle.md";
        return Err(Refusal::Role { role: Role::Oracle, what });
    }
    Ok(())
}

fn random() -> Result<Secret, OracleError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| OracleError::Random(io::Error::other(error)))?;
    Ok(Secret::from_bytes(bytes))
}

/// What a token allows the requesting host.
enum TokenVerdict {
    /// To join with this unused token.
    Free(TokenRow),
    /// To get the same answer as before.
    Again,
}

/// Checks that the name and the keys are free and that the mesh is not full.
async fn check_conflicts(
    write: &mut Write<'_>,
    member: &Member,
    token: &TokenRow,
) -> Result<(), OracleError> {
    if let Some(name) = token.name.as_ref().filter(|name| **name != member.name) {
        return Err(Refusal::TokenName(name.clone()).into());
    }
    for key in member.node.into_iter().chain([member.client]) {
        match write.key(&key).await? {
            None => {}
            Some(row) if row.revoked.is_some() => return Err(Refusal::KeyRevoked(row.name).into()),
            Some(row) => return Err(Refusal::KeyTaken(row.name).into()),
        }
    }
    let members = write.members().await?;
    if !token.is_of_an_admin(&members) {
        return Err(Refusal::TokenVoid.into());
    }
    let is_taken = member.name.as_str() == PathsReply::FREE;
    if is_taken || members.iter().any(|m| m.name == member.name) {
        return Err(Refusal::NameTaken(member.name.clone()).into());
    }
    if members.len() >= Roster::MAX_MEMBERS {
        let most = Roster::MAX_MEMBERS;
        return Err(
            Refusal::Full(format!("the mesh has {most} members, which is the limit")).into()
        );
    }
    Ok(())
}

/// Checks an entry by itself. `caller` brings it; `None` when a mesh is founded.
pub(crate) fn admissible(member: &Member, caller: Option<&Caller>) -> Result<(), Refusal> {
    if member.addresses.len() > Member::MAX_ADDRESSES {
        let most = Member::MAX_ADDRESSES;
        return Err(Refusal::Bad(format!("a member has at most {most} addresses")));
    }
    if member.tags.len() > Member::MAX_TAGS {
        return Err(Refusal::Bad(format!("a member has at most {} tags", Member::MAX_TAGS)));
    }
    for role in [Role::Relay, Role::Oracle].into_iter().filter(|role| member.is(*role)) {
        if member.node.is_none() {
            return Err(Refusal::Role { role, what: "a node key" });
        }
        if member.addresses.is_empty() {
            let what = "an address at which other hosts reach it: `--address HOST:PORT`";
            return Err(Refusal::Role { role, what });
        }
    }
    plausible(&member.addresses, caller)
}

/// Checks addresses. Relays connect to the listed addresses of members, whatever their class, so an address must not be
/// one that no other host can have, or one that only the relay itself can reach.
fn plausible(addresses: &[Destination], caller: Option<&Caller>) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for destination in addresses {
        let wrong = |why| Refusal::Address { address: destination.to_string(), why };
        if !seen.insert(destination) {
            return Err(wrong("it is given twice"));
        }
        if destination.port == SMTP {
            return Err(wrong("relays never connect to port 25"));
        }
        if let Some(why) = implausible(&destination.host, caller) {
            return Err(wrong(why));
        }
    }
    Ok(())
}

fn implausible(host: &Host, caller: Option<&Caller>) -> Option<&'static str> {
    let ip = match host {
        Host::Ip(ip) => ip,
        Host::Name(name) if name.to_ascii_lowercase().ends_with(".invalid") => {
            return Some("names below .invalid are no hosts (RFC 2606)");
        }
        Host::Name(_) => return None,
    };
    let (ip, here) = (ip.to_canonical(), is_local(caller));
    // A translator connects to the address embedded in this one.
    let inner = address_class::embedded(ip).map(IpAddr::from);
    iter::once(ip).chain(inner).find_map(|ip| match address_class::classify(ip)? {
        Class::Metadata => Some("this is a cloud's metadata service, not a host"),
        Class::Unspecified => Some(
            "this is the unspecified address; give one that other hosts can \
                                    reach",
        ),
        Class::Multicast => Some("this is a multicast address; give the address of one host"),
        Class::LinkLocal => {
            Some("this is a link-local address; give one that other hosts can reach")
        }
        Class::Loopback if !here => Some(
            "only this host can reach it; give one that other hosts \
                                          can reach",
        ),
        _ => None,
    })
}

/// Whether the caller is on the oracle's own host: a mesh on one machine uses loopback.
fn is_local(caller: Option<&Caller>) -> bool {
    match caller {
        None | Some(Caller::Local) => true,
        Some(Caller::Peer { address, .. }) => address.is_loopback(),
    }
}

fn since(later: WallTime, earlier: WallTime) -> Duration {
    let nanos = later.as_unix_nanos().saturating_sub(earlier.as_unix_nanos());
    // Whole seconds are precise enough for people.
    Duration::from_secs(nanos.div_ceil(1_000_000_000))
}

/// How the joiner's clock differs, in words; empty if by at most a minute.
fn skew(ours: WallTime, theirs: WallTime) -> String {
    let (off, way) = match theirs > ours {
        true => (since(theirs, ours), "ahead of"),
        false => (since(ours, theirs), "behind"),
    };
    match off > ALIKE {
        true => format!(" (this host's clock is {} {way} the oracle's)", about(off)),
        false => String::new(),
    }
}

/// A member given by name or key. No text is both, because a name is shorter than a key.
enum MemberRef {
    Name(Name),
    Key(NodeId),
    Unknown,
}

impl MemberRef {
    fn read(text: &str) -> Self {
        match (text.parse(), text.parse()) {
            (_, Ok(key)) => Self::Key(key),
            (Ok(name), _) => Self::Name(name),
            _ => Self::Unknown,
        }
    }

    fn is(&self, member: &Member) -> bool {
        match self {
            Self::Name(name) => member.name == *name,
            Self::Key(key) => member.holds(key),
            Self::Unknown => false,
        }
    }
}

/// The refusal for a member that is not in the roster. It distinguishes revoked members, for a caller that repeats a
/// request whose answer was lost.
async fn refusal_of_absent(
    write: &mut Write<'_>,
    reference: &MemberRef,
    text: &str,
    now: WallTime,
) -> Result<Refusal, OracleError> {
    let row = match reference {
        MemberRef::Name(name) => write.revoked(name).await?,
        MemberRef::Key(key) => write.key(key).await?,
        MemberRef::Unknown => None,
    };
    let dated = row.and_then(|row| Some((row.name, row.revoked?)));
    let Some((name, at)) = dated else {
        let shown = text.chars().take(64).flat_map(char::escape_debug).collect();
        return Ok(Refusal::UnknownMember(shown));
    };
    let seconds = now.as_unix_nanos().saturating_sub(at.as_unix_nanos()) / 1_000_000_000;
    Ok(Refusal::AlreadyRevoked { name, ago: Duration::from_secs(seconds) })
}

fn check_revocable(member: &Member, members: &[Member], actor: &Actor) -> Result<(), Refusal> {
    for role in [Role::Oracle, Role::Admin].into_iter().filter(|role| member.is(*role)) {
        let another = members.iter().any(|m| m.is(role) && m.name != member.name);
        if !another {
            return Err(Refusal::Last { name: member.name.clone(), role });
        }
    }
    match &actor.0 {
        Some(own) if own.name == member.name => Err(Refusal::Yourself(own.name.clone())),
        _ => Ok(()),
    }
}
