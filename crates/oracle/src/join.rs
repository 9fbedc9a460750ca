//! A host becomes a member.

use crate::{
    Caller, Event, Oracle, OracleError, Refusal,
    error::about,
    oracle::Newest,
    store::{TokenRow, Write},
};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::{collections::BTreeSet, iter, net::IpAddr, time::Duration};
use thalweg_net::Ed25519;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Destination, Host, Signed,
    address_class::{self, Class, SMTP},
    mesh::{ClientBinding, JoinReply, JoinRequest, Member, Role, Roster, measure::PathsReply},
};

/// Clocks that differ by no more are alike: hosts without NTP.
const ALIKE: Duration = Duration::from_secs(60);

/// What a token allows the host that asks.
enum Verdict {
    /// To join.
    Free(TokenRow),
    /// The same answer as before.
    Again,
}

impl Oracle {
    /// Makes the host that `request` is about a member, by the key that `caller` has proven.
    ///
    /// The token's use and the member's entry are one transaction: of several keys with
    /// one token exactly one wins. The same keys asking again get the same name again, as
    /// long as they are members. The new roster is published before the answer.
    ///
    /// # Errors
    /// [`OracleError::Refused`], or the database's; the token is as it was.
    pub async fn join(
        &self,
        caller: &Caller,
        request: JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        let key = caller.key().ok_or(Refusal::Keys("to join needs a key"))?;
        let done = self.try_join(caller, key, &request).await;
        if let Err(error) = &done {
            self.tell(&Event::JoinRefused { key, code: error.code() });
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
        // Seen without the write lock first, which strangers are to take seldom.
        let token = self.inner.store.token(&hash).await?;
        let Verdict::Free(token) = self.judge(token, key, request)? else {
            return self.answer_again(key, client, request).await;
        };
        let member = self.entry(&token, client, request);
        admissible(&member, Some(caller))?;
        self.enter(key, member, &token, request).await
    }

    /// The client key, which has signed that it belongs to the node and wants to use this token.
    fn bound_client(&self, key: NodeId, request: &JoinRequest) -> Result<NodeId, Refusal> {
        let unreadable = Refusal::Keys("the client key's signature is not readable or not valid");
        let bytes = HEXLOWER_PERMISSIVE.decode(request.client.as_bytes());
        let bytes = bytes.map_err(|_| unreadable.clone())?;
        let signed = Signed::<ClientBinding>::open(&bytes, &Ed25519).map_err(|_| unreadable)?;
        let client = signed.signer();
        let bound =
            ClientBinding { mesh: self.mesh(), node: request.node, token: request.secret.hash() };
        if *signed.value() != bound {
            return Err(Refusal::Keys("the client key has signed for another mesh, node or token"));
        }
        if key != request.node.unwrap_or(client) {
            return Err(Refusal::Keys("the connection is not authenticated with the joining key"));
        }
        if request.node == Some(client) {
            return Err(Refusal::Keys("node and client need two keys"));
        }
        Ok(client)
    }

    fn judge(
        &self,
        token: Option<TokenRow>,
        key: NodeId,
        request: &JoinRequest,
    ) -> Result<Verdict, Refusal> {
        let token = token.ok_or(Refusal::TokenUnknown)?;
        match token.used_by {
            Some(by) if by == key => return Ok(Verdict::Again),
            Some(_) => return Err(Refusal::TokenUsed),
            None if token.void => return Err(Refusal::TokenVoid),
            None => {}
        }
        let now = self.now();
        if now >= token.expires {
            let ago = since(now, token.expires);
            return Err(Refusal::TokenExpired { ago, skew: skew(now, request.time) });
        }
        Ok(Verdict::Free(token))
    }

    /// The entry that the token and the request make.
    fn entry(&self, token: &TokenRow, client: NodeId, request: &JoinRequest) -> Member {
        let mut roles = token.roles.clone();
        roles.insert(Role::Client);
        let reached = roles.contains(&Role::Relay) || roles.contains(&Role::Oracle);
        if !reached && !request.addresses.is_empty() {
            self.tell(&Event::AddressesDropped { name: request.name.clone() });
        }
        // Relays connect to listed addresses whatever their class: an admin's word, by the role.
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

    /// The transaction. All that was seen before it is looked at again within.
    async fn enter(
        &self,
        key: NodeId,
        member: Member,
        token: &TokenRow,
        request: &JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        let hash = request.secret.hash();
        let mut write = self.begin().await?;
        let now = self.now();
        if !write.use_token(&hash, key, now).await? {
            let token = write.token(&hash).await?;
            drop(write);
            self.judge(token, key, request)?;
            return self.answer_again(key, member.client, request).await;
        }
        fits(&mut write, &member, token).await?;
        write.add(&member, now).await?;
        write.note("joined", member.name.as_str(), &key.to_string(), now).await?;
        let newest = self.publish(write).await?;
        self.tell(&Event::Joined { name: member.name.clone(), key });
        Ok(self.reply(&newest, member))
    }

    /// To a host that has joined with this token before.
    async fn answer_again(
        &self,
        key: NodeId,
        client: NodeId,
        request: &JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        // Another process may have let it in.
        self.refresh().await?;
        let newest = self.newest();
        let Some(member) = newest.roster.by_key(&key).cloned() else {
            let row = self.inner.store.key(&key).await?;
            let name = row.map_or_else(|| request.name.clone(), |row| row.name);
            return Err(Refusal::KeyRevoked(name).into());
        };
        if member.client != client || member.node != request.node {
            return Err(Refusal::TokenUsed.into());
        }
        Ok(self.reply(&newest, member))
    }

    fn reply(&self, newest: &Newest, member: Member) -> JoinReply {
        let roster = HEXLOWER.encode(&newest.bytes);
        JoinReply { name: member.name, roster, time: self.now() }
    }
}

/// Whether the mesh has room for it: its name, its keys, its place.
async fn fits(write: &mut Write<'_>, member: &Member, token: &TokenRow) -> Result<(), OracleError> {
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
            Refusal::Full(format!("the mesh has {most} members, the most there can be")).into()
        );
    }
    Ok(())
}

/// Whether an entry makes sense by itself; `caller` is whoever brings it, none at the founding.
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
            let what = "an address at which others reach it: `--address HOST:PORT`";
            return Err(Refusal::Role { role, what });
        }
    }
    plausible(&member.addresses, caller)
}

/// Relays connect to what members call their addresses, whatever its class. So they must
/// not be what no other host is at, nor what serves the relay alone.
fn plausible(addresses: &[Destination], caller: Option<&Caller>) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for destination in addresses {
        let wrong = |why| Refusal::Address { address: destination.to_string(), why };
        if !seen.insert(destination) {
            return Err(wrong("given twice"));
        }
        if destination.port == SMTP {
            return Err(wrong("port 25 is never relayed to"));
        }
        if let Some(why) = implausible(&destination.host, caller) {
            return Err(wrong(why));
        }
    }
    Ok(())
}

fn implausible(host: &Host, caller: Option<&Caller>) -> Option<&'static str> {
    let Host::Ip(ip) = host else { return None };
    let (ip, here) = (ip.to_canonical(), is_here(caller));
    // A translator connects to what an address carries inside.
    let inner = address_class::embedded(ip).map(IpAddr::from);
    iter::once(ip).chain(inner).find_map(|ip| match address_class::classify(ip)? {
        Class::Metadata => Some("a cloud's metadata service, and no host"),
        Class::Unspecified => Some("no host is there; give one that others reach"),
        Class::Multicast => Some("not one host's"),
        Class::LinkLocal => Some("only valid on one link; give one that others reach"),
        Class::Loopback if !here => Some("only this host reaches it; give another"),
        _ => None,
    })
}

/// Whether the caller is on the oracle's own host: a mesh on one machine uses loopback.
fn is_here(caller: Option<&Caller>) -> bool {
    match caller {
        None | Some(Caller::Local) => true,
        Some(Caller::Peer { address, .. }) => address.is_loopback(),
    }
}

fn since(later: WallTime, earlier: WallTime) -> Duration {
    let nanos = later.as_unix_nanos().saturating_sub(earlier.as_unix_nanos());
    // Seconds are enough for people.
    Duration::from_secs(nanos.div_ceil(1_000_000_000))
}

/// How the joiner's clock differs, in words; nothing if it hardly does.
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
